"""What a page refuses."""

import pytest

from moac.report.page import Claim, Figure, Table


def test_parts_that_do_not_fit_are_refused():
    with pytest.raises(
        ValueError, match="`verdict` must be one of holds, holds in part, does not hold, not decided, not measured"
    ):
        Claim("c", "m", "maybe")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="must have 2 cells each, got 1"):
        Table("t", "c", ("a", "b"), (("x",),))
    with pytest.raises(ValueError, match="must be an SVG document"):
        Figure("f", "<html></html>", "c", "a")
