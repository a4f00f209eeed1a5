import re

from moac.report import style


def _figure(title="returns"):
    figure, (left, right) = style.grid(1, 2, (6, 3))
    left.plot([0, 1000], [0.0, 1e-9])
    right.set(title=title, ylabel="a long label that the layout makes room for")
    return figure


def _size(svg):
    return re.search(r'viewBox="([^"]*)"', svg).group(1)


def test_equal_figures_give_equal_files():
    first, second, other = (
        [style.rendered(f, "png"), style.svg(f)] for f in (_figure(), _figure(), _figure("weights"))
    )
    assert first == second
    assert first[0] != other[0]
    assert first[1] != other[1]


def test_the_second_file_has_the_layout_of_the_first():
    figure = _figure()
    before = figure.axes[0].get_position().bounds
    style.rendered(figure, "png")
    laid_out = figure.axes[0].get_position().bounds
    assert laid_out != before
    assert _size(style.svg(figure)) == _size(style.svg(_figure()))
    assert figure.axes[0].get_position().bounds == laid_out
