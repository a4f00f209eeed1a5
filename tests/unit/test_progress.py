"""What stands beside a bar in a terminal."""

import pytest

from moac.progress import _fitted


@pytest.mark.parametrize(
    ("room", "shown"),
    [
        (40, "J 1 2  gap 0.1  norm 3  9 steps/s"),
        (30, "J 1 2  gap 0.1  9 steps/s"),
        (3, "J 1 2"),
    ],
)
def test_numbers_that_have_no_room_are_left_out(room, shown):
    assert _fitted("J 1 2  gap 0.1  norm 3  9 steps/s", room) == shown
