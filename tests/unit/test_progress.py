"""What stands beside a bar in a terminal."""

import pytest

from moac.progress import _fitted, _numbers, watched
from moac.training.run import Snapshot
from tests.helpers.hand_made import history_of


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


@pytest.mark.parametrize("iteration, shown", [(3, "J 0.5000 "), (4, "logged at 3: J 0.5000 ")])
def test_numbers_tell_the_iteration_that_they_are_of(iteration, shown):
    assert _numbers(Snapshot(iteration, list, history_of(3))).startswith(shown)


@pytest.mark.parametrize("shown", [True, False])
def test_the_stages_after_the_runs_heed_a_request_to_stop_too(shown):
    def check():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), watched(shown, check) as (_, tell):
        tell("evaluating", 1, 2)
