"""The public functions: what they take, what they join, and what a result can do without them."""

import doctest
import inspect
import subprocess
import sys
from pathlib import Path

import jax
import mo_gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import moac
from moac import Config, api, driver, envs, evaluating, momdp
from moac.policies import SoftmaxTable
from moac.training import result
from moac.training.trained import TrainedPolicy
from moac.types import SourceError
from tests.helpers.environments import Line

CONFIG = Config(num_iterations=3, num_evaluations=2)
"""Of the usual sizes: most tests here, and the examples of the docstrings, share one compiled program."""
STEPPED = {"num_iterations": 1, "num_critic_steps": 1, "critic_batch_size": 16, "actor_batch_size": 16}
FUNCTIONS = ("certify", "choose", "compare", "defaults", "evaluate", "explore", "load", "resume", "sweep", "train")


@pytest.fixture(scope="module")
def trained():
    return api.train("fishwood-v0", CONFIG, trials=2)


def test_an_id_is_the_model_of_the_library(trained):
    assert trained.run.source.spec.fingerprint == momdp.library.fishwood().spec.fingerprint
    with pytest.raises(ValueError, match=r"got 'fishwod-v0'. Did you mean fishwood-v0\?$"):
        api.train("fishwod-v0", CONFIG)


def test_a_mistake_that_shows_as_training_begins_leaves_no_folder(tmp_path):
    with pytest.raises(ValueError, match=r"^`actor_batch_size` must be at least 2 for a rule of two batches, got 1"):
        api.train("fishwood-v0", CONFIG, weighting="modo", actor_batch_size=1, out=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_log_with_nobody_to_evaluate_on_is_refused_before_training(tmp_path):
    names = ("user_id", "item_id", "time", "click", "p")
    log = dict(zip(names, ([0, 0, 1, 1], [0, 1, 1, 0], [0, 1, 2, 3], [0, 1, 1, 0], [0.5] * 4), strict=True))
    dataset = moac.logs.build(log, signals="click", propensity="p", shares=(1.0, 0.0, 0.0))
    with pytest.raises(ValueError, match="has no rows of validation users: policies are evaluated on them"):
        api.train(dataset, num_iterations=3, num_evaluations=1, out=tmp_path / "run")  # which is after the last
    assert list(tmp_path.iterdir()) == []


def test_an_environment_that_fails_at_once_leaves_a_folder_to_resume(tmp_path):
    with pytest.raises(SourceError):
        api.train(lambda: Line("raises", at=1), **STEPPED, out=tmp_path / "run")
    assert (tmp_path / "run" / "config.json").exists()


def test_an_environment_is_made_anew_from_its_spec():
    environment = mo_gymnasium.make("fishwood-v0")
    assert np.isfinite(api.train(environment, **STEPPED, num_evaluations=1).returns).all()
    by_function = api.source_of(lambda: mo_gymnasium.make("fishwood-v0"))
    assert by_function.spec.num_states == api.source_of(environment).spec.num_states == 2
    with pytest.raises(ValueError, match="without: give a function that makes it"):
        api.train(environment.unwrapped.__class__())
    vector = mo_gymnasium.wrappers.vector.MOSyncVectorEnv([lambda: mo_gymnasium.make("fishwood-v0")])
    with pytest.raises(ValueError, match=r"one environment, not a vector of them.*num_envs"):
        api.train(vector)
    with pytest.raises(ValueError, match=r"an id, an environment or a function that makes one, .*, got 3"):
        api.train(3)


def test_a_missing_package_names_its_extra():
    def broken():
        raise mo_gymnasium.make.__globals__["gym"].error.DependencyNotInstalled("Box2D is not installed")

    with pytest.raises(ValueError, match=r"pip install 'moac\[box2d\]'"):
        api.train(broken)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"nun_iterations": 3}, "`nun_iterations` .* Did you mean num_iterations?"),
        ({"config": {"num_iterations": 3}}, "`config` must be a Config, .* got {'num_iterations': 3}"),
        ({"steps": 3}, "`steps` must be a whole number of at least 448 \\(one iteration\\), got 3"),
        ({"steps": 8, "num_iterations": 2}, "`steps` and `num_iterations` must not both be given"),
        ({"sinks": ("tensorboard",)}, "need `out`"),
        ({"sinks": ("paper",)}, "`sinks` must be some of tensorboard, wandb, got 'paper'"),
        ({"sinks": "paper"}, "`sinks` must be some of tensorboard, wandb, got 'paper'"),
        ({"start": 3}, "`start` must be a policy, a run with its last state, or a snapshot, got 3"),
        ({"checkpoint_every": -1.0}, "`checkpoint_every` must be at least 0"),
        ({"callback": 3}, "`callback` must be a function, got 3"),
    ],
)
def test_mistakes(arguments, message):
    with pytest.raises(ValueError, match=message):
        api.train("fishwood-v0", **arguments)


def test_steps_are_those_of_a_trial(trained):
    counted = api.train("fishwood-v0", trials=2, steps=3 * 448 + 447, num_evaluations=2)
    assert counted.iteration == 3
    np.testing.assert_array_equal(counted.returns, trained.returns)


def test_a_start_is_a_policy_a_result_or_a_folder(trained, tmp_path):
    trained.save(tmp_path / "run")
    by_result = api.train("fishwood-v0", CONFIG, trials=2, start=trained)
    by_folder = api.train("fishwood-v0", CONFIG, trials=2, start=tmp_path / "run")
    np.testing.assert_array_equal(by_result.returns, by_folder.returns)
    assert (by_result.returns != trained.returns).any()
    snapshots = []
    other = api.train("fishwood-v0", CONFIG, trials=3, start=trained.policy.of_trial(1), callback=snapshots.append)
    beginning = result.beginning(trained.policy.of_trial(1), other.run).trials.state.theta
    np.testing.assert_array_equal(beginning, np.repeat(trained.policy.theta[1:], 3, axis=0))
    assert snapshots[-1].iteration == 3
    assert repr(snapshots[-1]) == "Snapshot(3 iterations, 2 of them logged)"
    with pytest.raises(ValueError, match="`start` must have parameters of the shapes"):
        api.train("fishwood-v0", CONFIG, trials=3, start=trained)


def test_a_run_in_a_folder_is_that_in_memory(trained, tmp_path, capsys):
    kept = api.train("fishwood-v0", CONFIG, trials=2, out=tmp_path / "run", keep_every=1, progress=True)
    np.testing.assert_array_equal(kept.returns, trained.returns)
    assert "iteration 3/3" in capsys.readouterr().err
    assert (tmp_path / "run" / "report.html").exists()
    assert (api.load(tmp_path / "run", iteration=1).theta != api.load(tmp_path / "run").theta).any()


def test_parts_by_name_and_by_object(trained):
    named = api.train("fishwood-v0", CONFIG, trials=2, policy="table", critic="linear", start="random")
    assert (named.config.policy, named.config.start, named.run.given) == ("table", "random", ())
    np.testing.assert_array_equal(named.returns, trained.returns)
    rule = moac.weighting.with_momentum(moac.weighting.min_norm(), "1/t")
    np.testing.assert_array_equal(api.train("fishwood-v0", CONFIG, trials=2, rule=rule).returns, trained.returns)


def test_a_saved_result_has_figures_and_is_read_again(trained, tmp_path):
    assert trained.save(tmp_path / "run") == tmp_path / "run"
    assert {path.name for path in (tmp_path / "run" / "figures").iterdir()} == {"training.png", "training.svg"}
    again = api.resume(tmp_path / "run", momdp.library.fishwood())
    np.testing.assert_array_equal(again.returns, trained.returns)
    assert again.plot().axes
    assert (tmp_path / "run" / "report.html").exists()
    np.testing.assert_array_equal(api.resume(tmp_path / "run").returns, trained.returns)  # its id is known
    values = api.evaluate(tmp_path / "run", episodes=2, trials=(1,), out=tmp_path / "values")
    assert values.points.shape == (1, 2)
    np.testing.assert_allclose(values.exact, trained.returns[1:], rtol=1e-5)
    assert (tmp_path / "values" / "evaluation.json").exists()
    with pytest.raises(ValueError, match="`problem` must be given with a policy"):
        api.evaluate(again.policy)
    assert api.evaluate(again.policy, "fishwood-v0", episodes=2, trials=(1,)).points.tolist() == values.points.tolist()
    assert api.evaluate(again, episodes=2, trials=1).points.tolist() == values.points.tolist()
    with pytest.raises(ValueError, match="`trials` must name at least one trial, got none"):
        api.evaluate(again, episodes=2, trials=())
    with pytest.raises(ValueError, match="`episodes` must be a whole number of at least 1, got 0"):
        api.evaluate(again, episodes=0)


def test_a_run_plays_in_the_environment_that_is_given(tmp_path):
    def make(limit=30):
        return envs.make(lambda: Line(limit=limit), num_envs=2)

    run = api.train(make(), moac.Config(**STEPPED, learner="paper"), out=tmp_path / "run")
    with pytest.raises(ValueError, match=r"give it there, as in moac.evaluate\(.*/run', problem\)"):
        api.evaluate(tmp_path / "run", episodes=2)
    own = api.evaluate(run, episodes=2).points
    np.testing.assert_array_equal(api.evaluate(tmp_path / "run", make(), episodes=2).points, own)
    for given in (run, tmp_path / "run", run.policy):
        assert api.evaluate(given, make(limit=1), episodes=2).length == 1


@pytest.mark.parametrize(
    "option", [{"split": "test"}, {"cap": 5.0}, {"control": ["time"]}, {"control": "time"}, {"protect": ["fish=-1%"]}]
)
def test_options_of_logs_are_refused_by_name_on_an_environment(option, trained):
    (name,) = option
    with pytest.raises(ValueError, match=rf"^`{name}` must be left out .* fishwood-v0: it is for logs, got .*\.$"):
        api.evaluate(trained, episodes=2, **option)


def test_options_of_logs_that_say_nothing_are_welcome_on_an_environment(trained):
    values = api.evaluate(trained, episodes=2, split="validation", cap=10, control=[], protect=None)
    assert values.points.shape == (2, 2)


def test_a_policy_plays_only_where_its_actions_are_taken(trained):
    told = r"`problem` must take the policy's actions \(2 actions\), got "
    for problem, taken in (("resource-gathering-v0", "4 actions"), ("mo-mountaincarcontinuous-v0", "arrays .*")):
        for function in (moac.evaluate, moac.certify):
            with pytest.raises(ValueError, match=rf"{told}{problem} \({taken}\)"):
                function(trained.policy, problem)


def test_a_policy_plays_only_where_it_is_shown_what_it_observes():
    def made(space):
        return envs.make(lambda: Line(observation_space=space), num_envs=2)

    policy = TrainedPolicy.of(SoftmaxTable(5, 2), np.zeros((1, 5, 2)), made(spaces.Discrete(5)).spec, None, None)
    told = r"`problem` must give observations as the policy takes them \(1 number, 5 states\), got <lambda> "
    for space, given in ((spaces.Discrete(9), "1 number, 9 states"), (spaces.MultiDiscrete([5, 2]), "2 numbers, 10 ")):
        with pytest.raises(ValueError, match=rf"{told}\({given}"):
            moac.evaluate(policy, made(space))
    assert moac.evaluate(policy, made(spaces.Discrete(5)), episodes=2).points.shape == (1, 2)


def test_defaults_take_what_train_takes():
    by_id, by_model = moac.defaults("fishwood-v0"), moac.defaults(momdp.library.fishwood())
    assert by_id == by_model
    assert moac.defaults("fishwood-v0", moac.Config(optimiser="adam")).actor_step_size == 0.001
    with pytest.raises(ValueError, match="`problem` must be an id, an environment or a function"):
        moac.defaults(3)


def test_a_result_without_outputs_says_what_gives_it_them(trained, tmp_path):
    bare = result.Result.of(trained.run, trained.snapshot)
    for output in (bare.plot, lambda: bare.save(tmp_path / "run")):
        with pytest.raises(ValueError, match=r"moac.api.with_outputs"):
            output()


def test_objects_are_shown_in_one_line(trained):
    shown = repr(trained)
    assert shown.startswith("Result(fishwood-v0, 2 trials, 3 iterations, exact returns: fish ")
    assert repr(trained.policy.of_trial(1)) == "TrainedPolicy(SoftmaxTable, trial 1 of 2)"
    assert "\n" not in shown
    model, setting = momdp.library.fishwood(), moac.Discounted(0.9)
    assert repr(model) == "FiniteMOMDP(fishwood-v0, 2 states, 2 actions, 2 objectives)"
    assert (
        repr(momdp.evaluate(model, np.zeros((3, 2, 2)), setting)) == f"Exact(fishwood-v0, {setting}, policy [3, 2, 2])"
    )
    assert (
        repr(momdp.pareto_front(model, setting)) == "ParetoFront(3 points, 3 on the hull, 2 objectives, memory=False)"
    )
    assert repr(envs.make(Line, num_envs=3)) == "Environment(Line, 3 copies, 2 objectives)"


def test_names_are_imported_when_they_are_used():
    script = "import sys, moac; assert 'jax' not in sys.modules; moac.Config; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    here = f"import sys; sys.path.append({str(Path(moac.__file__).parents[1])!r}); import moac.__main__"
    bare = [sys.executable, "-S", "-c", f"{here}; assert 'typing' not in sys.modules"]
    subprocess.run(bare, check=True, timeout=60)  # until then Ctrl-C shows a traceback
    assert all(hasattr(moac, name) for name in moac.__all__)
    with pytest.raises(AttributeError, match="'policy'"):
        moac.policy  # noqa: B018


@pytest.mark.parametrize("module", [api, driver, evaluating])
def test_the_examples_of_the_docstrings_run(module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    failed, run = doctest.testmod(module, extraglobs={"moac": moac, "jax": jax})
    assert (failed, run > 0) == (0, True)


def test_public_functions_are_typed_explained_and_listed():
    page = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
    for name in FUNCTIONS:
        function = getattr(moac, name)
        parameters = inspect.signature(function).parameters.values()
        assert all(each.annotation is not inspect.Parameter.empty for each in parameters)
        assert all(f"        {each.name}: " in function.__doc__ for each in parameters)
        assert f"`moac.{name}(" in page
    assert all(f"moac.{name}" in page for name in moac.__all__ if name != "api")
