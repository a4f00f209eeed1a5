"""What an exploration trains: its defaults by the problem, its stages, and what it refuses before it begins."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import moac
from moac import envs
from moac.momdp import library
from moac.report.pages import exploration
from moac.search import EXPLORING, explore
from moac.search.plan import FALLING, Options, Plan
from moac.search.values import Candidate
from tests.helpers.environments import Line

MODEL = library.fishwood()
POINT = {"returns": [1.0] * 4, "interval": None, "preference": [0.25] * 4, "rule": "conditioned"}


def test_defaults_on_a_model_are_those_of_the_command():
    plan = Plan.of(Options(config=moac.Config(setting=moac.Discounted(0.9), **EXPLORING)), MODEL)
    assert (plan.env, plan.rules, len(plan.preferences)) == ("fishwood-v0", ("fixed", "preferred"), 128)
    assert plan.config.num_iterations == 6_000 and (plan.config.gae, plan.config.num_evaluations) == (0.95, 25)
    assert plan.entropies == pytest.approx([share * MODEL.spec.reward_bound for share in FALLING])


def test_stages_share_the_iterations_and_say_what_went_before():
    config = moac.Config(setting=moac.Discounted(0.9), num_iterations=10, num_evaluations=7)
    plan = Plan.of(Options(config, preferences="0.2,0.8; 0.5,0.5", entropies=(0.1, 0.01, 1e-5)), MODEL)
    fixed, free = plan.stages("fixed"), plan.stages("min-norm")
    assert [task.config.num_iterations for task in fixed] == [3, 3, 4]
    assert {task.config.num_evaluations for task in fixed} == {2} and {task.trials for task in fixed} == {2}
    assert [task.config.entropy for task in fixed] == [0.1, 0.01, 1e-5]
    assert fixed[1].label == "fixed entropy 0.1 0.01" and fixed[0].config.weighting == "fixed"
    assert np.allclose(fixed[0].config.preferences, [[0.2, 0.8], [0.5, 0.5]]) and free[0].config.preferences is None


def test_steps_are_environment_steps_of_all_trials_over_all_stages():
    sizes = {"num_critic_steps": 2, "critic_batch_size": 8, "actor_batch_size": 4}  # 20 steps an iteration
    options = Options(moac.Config(setting=moac.Discounted(0.9), **sizes), 3, entropies=(0.1, 0.0), steps=319)
    assert [task.config.num_iterations for task in Plan.of(options, MODEL).stages("fixed")] == [2, 3]  # as in `train`
    for steps in (0, 59):
        with pytest.raises(ValueError, match="`steps` must be a whole number of at least 60"):
            Plan.of(replace(options, steps=steps), MODEL)
    with pytest.raises(ValueError, match="`steps` and `num_iterations` must not both"):
        Plan.of(replace(options, config=replace(options.config, num_iterations=6)), MODEL)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rules": ()}, "`rules` must name at least one"),
        ({"rules": ("fixed", "fixed")}, "got fixed twice"),
        ({"reference": (1.0,)}, r"`reference` must hold one number per objective \(2\), got 1"),
        ({"config": moac.Config(num_iterations=2), "entropies": (0.1, 0.01, 0.0)}, "at least 3, one per stage"),
        ({"preferences": 1, "draw": "grid"}, "`preferences` must be at least 2 on a grid"),
        ({"preferences": "0.2,0.9"}, "`preferences`"),
        ({"episodes": 0}, "`episodes` must be"),
        ({"rules": ("conditioned", "fixed")}, "conditioned alone"),
        ({"rules": ("conditioned",)}, "`conditioned` needs an environment that is stepped"),
    ],
)
def test_what_cannot_be_explored_is_refused_before_anything_is_trained(wrong, message):
    with pytest.raises(ValueError, match=message):
        Plan.of(replace(Options(preferences=3), **wrong), MODEL)


def test_an_environment_is_explored_by_one_network_unless_another_learner_is_asked_for():
    environment = envs.make(Line, num_envs=2)
    plan = Plan.of(Options(steps=10_000), environment)
    (task,) = plan.stages("conditioned")
    assert plan.rules == ("conditioned",) and (task.trials, task.config.conditioned) == (1, True)
    assert task.config.num_iterations * task.config.actor_batch_size == 9_984  # all of the steps are its own
    assert plan.preferences.shape == (36, 2) and plan.preferences[:, 0].tolist() == (np.arange(36)[::-1] / 35).tolist()
    assert plan.entropies == (task.config.entropy,) == (0.1,) and task.config.num_evaluations == 8
    for config in ({"learner": "paper"}, {"num_critic_steps": 2}, {"setting": moac.Average()}, {"policy": "table"}):
        assert Plan.of(Options(moac.Config(**config)), environment).rules == ("fixed",)
    with pytest.raises(ValueError, match="`entropy` must be one number"):
        Plan.of(Options(entropies=(0.1, 0.0)), environment)


def test_candidates_are_named_by_rule_stage_and_form():
    named = [Candidate("fixed", stage, greedy, 0, 0.0, None).name for stage in (None, 1) for greedy in (False, True)]
    assert named == ["fixed", "fixed, greedy", "fixed, stage 1", "fixed, stage 1, greedy"]


def test_a_folder_with_something_else_is_refused(tmp_path):
    explore.check_folder(tmp_path)
    (tmp_path / "mine.txt").write_text("dear diary")
    with pytest.raises(ValueError, match="is not an exploration"):
        explore.check_folder(tmp_path)
    (tmp_path / "rules").mkdir()
    explore.check_folder(tmp_path)


@pytest.mark.parametrize("kind", ["exact", "episodes"])
@pytest.mark.parametrize("known", [True, False])
def test_the_caption_names_the_marks_that_are_drawn(kind, known):
    numbers = {"hull_points": 3, "hull_found": 2} if known else {}
    for count in (2, 3, 4):
        data = {"numbers": numbers, "objectives": ["a", "b", "c", "d"][:count], "returns_kind": kind}
        caption = exploration._caption(data)
        assert ("ring" in caption) == (count <= 3)
        assert ("line" in caption) == (count > 3)
        assert ("stars" in caption) == (count <= 3 and known)
        assert ("hull" in caption) == known
        assert ("intervals" in caption) == (count <= 3 and kind == "episodes")
    data = {"archive": [POINT], "asked": {}, "objectives": ["a", "b", "c", "d"]}
    assert exploration._choice(Path("folder"), data).about.startswith("A line is a policy")
