"""What the shared figures draw, read back from their axes."""

import numpy as np
import pytest
from matplotlib.collections import PolyCollection

from moac import statistics
from moac.report import figures
from moac.report.figures import Points
from moac.training.run import History

POINTS = np.array([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])


@pytest.mark.parametrize("M, expected", [(1, [(0, 0)]), (2, [(0, 1)]), (3, [(0, 1), (0, 2), (1, 2)])])
def test_a_scatter_has_a_panel_for_each_pair_of_objectives(M, expected):
    names = ["a", "b", "c"][:M]
    figure = figures.scatter([Points("all", POINTS[:, :M], figures.dots(0))], names, "title")
    assert [(ax.get_xlabel(), ax.get_ylabel()) for ax in figure.axes] == [(names[i], names[j]) for i, j in expected]
    for ax, (i, j) in zip(figure.axes, expected, strict=True):
        assert np.asarray(ax.collections[0].get_offsets()).tolist() == POINTS[:, [i, j]].tolist()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["all"]


@pytest.mark.parametrize("half, drawn", [(0.5, True), (0.0, False)])
def test_intervals_are_drawn_where_they_have_a_width(half, drawn):
    values = POINTS[:, :2]
    figure = figures.scatter([Points("all", values, figures.rings(), values - half, values + half)], ["a", "b"])
    (ax,) = figure.axes
    assert len(ax.containers) == drawn
    if drawn:
        across = ax.containers[0].lines[2][0].get_segments()
        assert np.ptp(across[0], axis=0).tolist() == pytest.approx([1.0, 0.0])


def test_what_no_mixture_dominates_is_filled():
    hull = np.array([True, False])
    (ax,) = figures.front(POINTS[:, :2], hull, ("a", "b"), "title").axes
    filled, hollow = ax.collections
    assert np.asarray(filled.get_offsets()).tolist() == [[0.0, 1.0]] and len(filled.get_facecolor())
    assert np.asarray(hollow.get_offsets()).tolist() == [[3.0, 4.0]] and not len(hollow.get_facecolor())


def history(gap, direction_gap):
    cube, square = np.full((2, 3, 2), 0.5), np.ones((2, 3))
    signed = np.array([[-1e-3, 0.0, 1.0], [-1e-3, 0.0, 1.0]])
    return History(np.arange(1, 4), cube, cube, cube, square, signed, gap, direction_gap, square, np.zeros(3))


def test_every_panel_of_training_says_what_it_shows_and_signs_can_be_seen():
    figure = figures.training(history(np.full((2, 3), 1e-31), np.full((2, 3), 1e-33)), ("a", "b"), "title")
    assert all(ax.get_title(loc="left") and ax.get_ylabel() and ax.get_xlabel() == "iteration" for ax in figure.axes)
    assert figure.axes[2].lines[0].get_label() == "0 up to rounding" and len(figure.axes[2].lines) == 1
    assert figure.axes[5].get_yscale() == "symlog" and figure.axes[1].get_yscale() == "log"


def test_gaps_that_must_agree_are_one_line_and_rounding_is_none():
    same, falling = np.array([[1.0, 1e-3, 1e-31]] * 2), np.array([[1.0, 1e-2, 1e-30]] * 2)
    assert list(figures.gaps(history(same, same))) == ["both (equal)"]
    assert list(figures.gaps(history(same, falling))) == ["true gradient", "stationary law"]
    gap = figures.training(history(same, falling), ("a", "b"), "title").axes[2]
    assert all(np.isnan(line.get_ydata()[-1]) and np.isfinite(line.get_ydata()[:-1]).all() for line in gap.lines)


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_a_band_is_the_mean_with_students_interval(scale):
    values = np.array([[1.0, 2.0, np.nan], [2.0, 4.0, 3.0], [4.0, 3.0, np.nan]])
    _, (ax,) = figures.grid(1, 1, (3, 3))
    ax.set_yscale(scale)
    figures.band(ax, np.arange(3), values, 0, "label")
    (line,), means = ax.lines, [statistics.mean(column) for column in values.T]
    assert line.get_ydata() == pytest.approx([one.value for one in means])
    (band,) = (each for each in ax.collections if isinstance(each, PolyCollection))
    heights = np.concatenate([path.vertices[:, 1] for path in band.get_paths()])
    first = means[0]
    high = first.high if scale == "linear" else first.value * np.exp((first.high - first.value) / first.value)
    assert np.isclose(heights, high).any()
    assert (heights > 0).all() or scale == "linear"


def _figure(title="returns"):
    figure, (left, right) = figures.grid(1, 2, (6, 3))
    left.plot([0, 1000], [0.0, 1e-9])
    right.set(title=title, ylabel="a long label that the layout makes room for")
    return figure


def test_equal_figures_give_equal_files():
    first, second, other = (
        [figures.rendered(f, "png"), figures.svg(f)] for f in (_figure(), _figure(), _figure("weights"))
    )
    assert first == second
    assert first[0] != other[0]
    assert first[1] != other[1]


def test_the_second_file_has_the_layout_of_the_first():
    figure = _figure()
    before = figure.axes[0].get_position().bounds
    figures.rendered(figure, "png")
    laid_out = figure.axes[0].get_position().bounds
    assert laid_out != before
    figures.svg(figure)
    assert figure.axes[0].get_position().bounds == laid_out
