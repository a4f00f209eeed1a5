"""Choosing a policy of an archive: floors are kept by intervals, the rest is as large as possible."""

from dataclasses import replace

import numpy as np
import pytest

from moac.search.archive import Archive

POINTS = np.array([[1.0, 0.2, -1.0], [0.5, 0.9, -2.0], [0.9, 0.5, -3.0]])
HALF = np.array([0.1, 0.1, 0.2])


def archive(points=POINTS):
    n, M = points.shape
    p = np.full((n, M), 1 / M)
    names = (("conditioned",) * n, np.arange(n), "episodes", ("ore1", "ore2", "fuel"))
    return Archive(points, points - HALF, points + HALF, p, p, *names)


@pytest.mark.parametrize(
    ("protect", "prefer", "index"),
    [
        ((), ("ore1",), 0),
        ((), ("ore2",), 1),
        ((), ("fuel",), 0),
        (("ore2=0.3",), ("ore1",), 2),
        ("ore2=0.3", "ore1", 2),
        (("ore2=0.41",), ("ore1",), 1),  # the lower end of 0.5 ± 0.1 is below it
        (("ore2=0.4",), ("ore1",), 2),
        (("fuel=-2.2",), ("ore2",), 1),
        (("fuel=-2.19",), ("ore2",), 0),
        (("ore2=0.3", "fuel=-2.5"), ("ore1",), 1),
        (("fuel=-120%",), ("ore2",), 1),  # 1.2 below the best, −1
        (("fuel=-119%",), ("ore2",), 0),
        ((), (), 1),  # sums in units of the ranges: 1.5, 1.5, 1.23; then the first
    ],
)
def test_the_best_that_keeps_the_floors(protect, prefer, index):
    if not prefer:
        index = int(np.argmax((POINTS / np.ptp(POINTS, axis=0)).sum(axis=1)))
    choice = archive().choose(protect, prefer)
    assert choice.fits and choice.index == index
    assert choice.record()["point"] == index and choice.record()["fits"] is True


def test_several_preferred_objectives_count_in_units_of_their_ranges():
    points = np.array([[0.9, 20.0, 0.0], [0.5, 30.0, 0.0], [1.0, 0.0, 0.0], [0.0, 100.0, 0.0]])
    assert archive(points).choose(prefer=("ore1", "ore2")).index == 0


def test_values_keep_the_floors_where_there_are_no_intervals():
    alone = replace(archive(), low=np.full_like(POINTS, np.nan), high=np.full_like(POINTS, np.nan))
    choice = alone.choose("ore2=0.41", "ore1")
    assert choice.fits and choice.index == 2
    assert not alone.choose("ore2=0.95").fits


def test_where_no_point_keeps_the_floors_the_nearest_is_told():
    choice = archive().choose(["ore1=0.85", "ore2=0.85"], ["fuel"])
    assert not choice.fits and choice.index == 2 and "no point keeps every floor" in repr(choice)
    assert choice.short == pytest.approx((0.85 - 0.4) / 0.7)


@pytest.mark.parametrize(
    ("protect", "prefer", "said"),
    [
        (["fuel"], [], "`protect` must be an objective and its least value"),
        (["fuel=low"], [], "`protect` must be an objective and its least value"),
        (["fuel=+5%"], [], "`protect` must be at most 0%, a change from the archive's best, got 'fuel=.5%'"),
        (["oil=1"], [], "`protect` must name one of ore1, ore2, fuel, got 'oil'"),
        (["fuel=1", "fuel=2"], [], "got 'fuel' twice"),
        ([], ["ore"], "`prefer` must name one of ore1, ore2, fuel, got 'ore'. Did you mean ore"),
    ],
)
def test_what_cannot_be_meant_is_one_line(protect, prefer, said):
    with pytest.raises(ValueError, match=said.replace("?", r"\?")):
        archive().choose(protect, prefer)
