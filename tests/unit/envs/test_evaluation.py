"""Whole episodes: what they return, how they end, how they look."""

import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit

import moac
from moac import envs
from moac.envs import evaluation
from moac.policies import SoftmaxTable
from moac.training import result
from moac.training.trained import TrainedPolicy
from tests.helpers.environments import Line, Own
from tests.helpers.rollouts import always_right

of_both_forms = pytest.mark.parametrize("kind", [Line, Own], ids=["states", "vectors"])


@of_both_forms
@pytest.mark.parametrize(
    ("make", "length", "truncated"),
    [
        (lambda kind: kind(), 4, False),
        (lambda kind: kind(limit=4), 4, True),  # both flags: the clock has run out
        (lambda kind: TimeLimit(kind(), 4), 4, False),
        (lambda kind: kind(limit=3), 3, True),
        (lambda kind: TimeLimit(kind(), 3), 3, True),
    ],
    ids=["end", "end and clock", "end and limit", "clock", "limit"],
)
def test_an_episode_is_discounted_from_its_first_reward_on_and_says_how_it_ended(kind, make, length, truncated):
    """r = (0, −1) in every step but the fourth, which ends at (1, −1)."""
    environment, gamma = envs.make(lambda: make(kind)), (0.5, 0.9)
    run = result.prepare(environment, moac.Config(learner="paper"), 1, 0)
    trained = TrainedPolicy.of(run.parts.policy, always_right(kind)[None], environment.spec, None, None)
    found = evaluation.play(environment, trained, [3, 4], gamma)
    arrives = float(length == 4)
    np.testing.assert_allclose(found.returns, [[arrives, -length]] * 2)
    np.testing.assert_allclose(found.discounted, [[arrives * 0.5**3, -sum(0.9**t for t in range(length))]] * 2)
    assert found.lengths.tolist() == [length] * 2
    assert found.truncated.tolist() == [truncated] * 2
    cut = evaluation.play(environment, trained, [3], gamma, longest=2)
    assert (cut.lengths.tolist(), cut.truncated.tolist()) == ([2], [True])


def test_what_fails_to_render_says_so_in_one_line():
    class Dark(Line):
        metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - Gymnasium's way

        def __init__(self, render_mode=None, **options):
            super().__init__(**options)
            self.render_mode = render_mode

        def render(self):
            raise RuntimeError("no driver\nof that name")

    environment = envs.make(Dark, num_envs=1)
    trained = TrainedPolicy.of(SoftmaxTable(5, 2), np.zeros((1, 5, 2)), environment.spec, None, None)
    with pytest.raises(ValueError) as error:
        evaluation.record(environment, trained, 1, 0, 10)
    assert str(error.value) == "Dark cannot be watched: RuntimeError: no driver of that name."
