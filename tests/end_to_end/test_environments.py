"""Training on real environments, from the command line and from Python."""

import contextlib
import json
import warnings
from importlib.util import find_spec

import gymnasium
import numpy as np
import pytest

import moac as package
from moac import api, envs, training
from moac.cli.main import main
from moac.momdp import library
from moac.runs import runner
from moac.runs.directory import RunDirectory
from moac.training.result import prepare
from moac.types import SourceError
from tests.helpers.environments import Line
from tests.helpers.misbehaving import HangsOnce

PAPER = ["--learner", "paper"]  # its programs compile faster
SHORT = ["--iterations", "6", "--num-evaluations", "2", "--evaluation-episodes", "2", "--json", *PAPER]
ENVIRONMENTS = {
    "resource-gathering-v0": (1296, 3),
    "fishwood-v0": (2, 2),
    "deep-sea-treasure-concave-v0": (144, 2),
    "four-room-v0": (None, 3),
    "fruit-tree-v0": (4096, 6),
    "breakable-bottles-v0": (360, 3),
    "minecart-v0": (None, 3),
    "mo-mountaincar-v0": (None, 3),
}
KINDS = ("four-room-v0", "fruit-tree-v0", "minecart-v0")
"""Whole numbers, many states with six objectives, and vectors; the others differ in size alone."""
EXTRAS = {"mo-lunar-lander-v3": "Box2D", "mo-supermario-v0": "gym_super_mario_bros"}


def trained(capsys, *arguments):
    assert main(["train", *map(str, arguments)]) == 0
    out, err = capsys.readouterr()
    return json.loads(out.splitlines()[-1]), err


@pytest.mark.parametrize(
    "env", [env if env in KINDS else pytest.param(env, marks=pytest.mark.slow) for env in ENVIRONMENTS]
)
def test_every_environment_trains(env, capsys, tmp_path):
    states, objectives = ENVIRONMENTS[env]
    summary, err = trained(capsys, env, "--blackbox", "--num-envs", 8, "--out", tmp_path / "run", *SHORT)
    assert (summary["returns_kind"], summary["stationarity_gap"]) == ("episodes", None)
    assert len(summary["returns"]) == len(summary["objectives"]) == objectives
    assert np.isfinite(summary["returns"]).all()
    assert summary["env_steps"] == 6 * 448
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["problem"]["num_states"] == states
    assert config["problem"]["options"]["num_envs"] == 8
    assert err.startswith(f"{env}: {'observations of' if states is None else f'{states} states'}")
    policy = package.load(tmp_path / "run")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        copy = gymnasium.make(env, disable_env_checker=True)
    observation, _ = copy.reset(seed=0)
    for _ in range(5):
        observation, _, terminated, truncated, _ = copy.step(policy.eval(observation, None))
        if terminated or truncated:
            observation, _ = copy.reset()


@pytest.mark.parametrize("env", ["minecart-rgb-v0", "mo-supermario-v0"])
def test_images_are_refused_before_anything_is_made(env, capsys, tmp_path):
    pytest.importorskip(EXTRAS.get(env, "mo_gymnasium"))
    assert main(["train", env, "--out", str(tmp_path / "run")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"moac: {env} cannot be trained on: `observation_space` must not be an image, got shape (")
    assert "a wrapper must extract features" in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("env", [env for env, module in EXTRAS.items() if find_spec(module) is None])
def test_without_its_extra_one_line_says_so(env, capsys, tmp_path):
    assert main(["train", env, "--out", str(tmp_path / "run")]) == 2
    err = capsys.readouterr().err
    assert err.startswith((f"moac: {env} cannot be made: ", f"moac: {env} needs a package that is missing: "))
    assert err.count("\n") == 1


@pytest.fixture(scope="module")
def blackbox(tmp_path_factory):
    """A run on the real resource-gathering."""
    path = tmp_path_factory.mktemp("blackbox") / "run"
    arguments = ["resource-gathering-v0", "--blackbox", "--num-envs", "8", "--iterations", "60", "--out", str(path)]
    assert (
        main(["train", *arguments, *PAPER, "--num-evaluations", "3", "--trials", "2", "--evaluation-episodes", "4"])
        == 0
    )
    return path


def test_evaluation_agrees_with_the_exact_values(blackbox, capsys):
    assert main(["evaluate", str(blackbox), "--episodes", "2000", "--trial", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["trials"], found["episodes"]) == ([1], 2000)
    for exact, low, high in zip(found["exact"][0], *np.array(found["discounted_returns_interval"]).T, strict=True):
        middle, half = (low + high) / 2, (high - low) / 2
        assert abs(exact - middle) <= 2 * half
        assert half < 0.02


def test_several_runs_form_an_archive(blackbox, capsys):
    assert main(["evaluate", str(blackbox), str(blackbox), "--episodes", "20", "--reference", "-1", "-1", "-1"]) == 0
    text = capsys.readouterr().out
    assert "policies not dominated; hypervolume" in text
    assert "IGD+" in text


def test_runs_that_do_not_belong_together_are_refused_before_any_episode(blackbox, capsys, tmp_path, monkeypatch):
    assert main(["train", "fishwood-v0", "--iterations", "2", "--out", str(tmp_path / "other")]) == 0
    monkeypatch.setattr(api, "evaluate", None)
    assert main(["evaluate", str(blackbox), str(tmp_path / "other")]) == 2
    assert "`RUN` must be runs of one problem, got several with different env." in capsys.readouterr().err
    assert main(["evaluate", str(blackbox), "--reference", "1"]) == 2
    assert "`reference` must be one number per objective (3), got 1." in capsys.readouterr().err


def test_a_single_episode_has_no_interval(blackbox, capsys):
    assert main(["evaluate", str(blackbox), "--episodes", "1", "--trial", "1"]) == 0
    text = capsys.readouterr().out
    assert "1 episode, too few for intervals" in " ".join(text.split())
    assert "nan" not in text + repr(package.evaluate(blackbox, episodes=1, trials=1))


def test_a_policy_of_the_model_is_evaluated_in_the_environment(finished, capsys):
    assert main(["evaluate", str(finished.path), "--episodes", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["trials"] == list(range(9))
    assert np.shape(found["exact"]) == (9, 3)


def test_watch_records_a_gif(blackbox, capsys, tmp_path):
    gif = tmp_path / "film.gif"
    assert main(["watch", str(blackbox), "--episodes", "2", "--out", str(gif), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert gif.read_bytes().startswith(b"GIF89a")
    assert found["frames"] == sum(found["lengths"]) + 2


def test_what_does_not_render_says_so(capsys, tmp_path):
    trained(capsys, "fishwood-v0", "--blackbox", "--out", tmp_path / "run", *SHORT)
    assert main(["watch", str(tmp_path / "run")]) == 2
    assert "moac: fishwood-v0 cannot be watched: " in capsys.readouterr().err


def test_a_resumed_run_says_that_it_starts_new_episodes(capsys, tmp_path):
    config = package.Config(
        num_iterations=4, num_evaluations=4, num_critic_steps=1, critic_batch_size=8, actor_batch_size=8
    )
    run = prepare(envs.make("resource-gathering-v0", num_envs=2, evaluation_episodes=1), config, trials=1, seed=0)
    directory = RunDirectory.create(tmp_path / "run", run)
    directory.checkpoints().write(next(training.iterate(run)))
    assert main(["resume", str(tmp_path / "run"), "--json"]) == 0
    out, err = capsys.readouterr()
    assert "iteration 1 of 4, in new episodes" in err
    assert json.loads(out.splitlines()[-1])["iterations"] == 4


@pytest.mark.parametrize(
    ("fault", "step", "kept"),
    [
        ("raises", 3000, "What was trained is kept"),
        ("raises", 1, "Nothing was trained yet; try again with"),
        ("reset", 1, "Nothing was trained yet; try again with"),
    ],
)
def test_what_was_trained_before_a_failure_is_kept(fault, step, kept, capsys, tmp_path, monkeypatch):
    name = f"moac-test/Failing{fault}{step}-v0"
    gymnasium.register(name, entry_point=lambda: Line(fault, at=step))
    monkeypatch.setattr(envs, "known_ids", lambda: (name,))
    monkeypatch.setattr("moac.cli.options.check_environment", lambda env: None)
    run, sizes = tmp_path / "run", "--num-envs 1 --iterations 50 --num-evaluations 10 --evaluation-episodes 1"
    assert main(["train", name, *PAPER, *sizes.split(), "--out", str(run)]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    what = f"{fault if fault == 'reset' else 'step'} raised ZeroDivisionError: no road"
    assert line == f"moac: the environment failed at step {step} of copy 0: {what}. {kept}: moac resume {run}"
    assert any((run / "checkpoint").glob("*.safetensors")) is kept.startswith("What")


def test_a_failure_in_a_worker_is_told():
    environment = envs.make(Line, num_envs=1, workers=1, fault="nan", at=20)
    with pytest.raises(ValueError, match="step 20 of copy 0: its reward must be finite"):
        package.train(environment, package.Config(learner="paper", num_iterations=2, num_evaluations=1))
    environment.close()


def test_a_step_that_does_not_return_ends_its_worker_and_the_run_is_resumed(tmp_path):
    sizes = {"num_critic_steps": 1, "critic_batch_size": 4, "actor_batch_size": 4}
    config = package.Config(learner="paper", num_iterations=8, num_evaluations=8, weighting="uniform", **sizes)
    mark, folder = tmp_path / "mark", tmp_path / "run"

    def make():
        options = {"num_envs": 1, "workers": 1, "step_timeout": 1.0, "evaluation_episodes": 1}
        return envs.make(HangsOnce, mark=str(mark), at=40, **options)  # in the fifth iteration

    with contextlib.closing(make()) as environment:
        run = prepare(environment, config, trials=1, seed=0)
        with pytest.raises(SourceError, match=r"worker process \d took longer than 1 s"):
            runner.train(RunDirectory.create(folder, run), run, every=1e6)
    assert mark.exists()
    assert RunDirectory(folder).checkpoints().newest(run).iteration == 4
    with contextlib.closing(make()) as environment:
        assert package.resume(folder, environment).iteration == 8


def test_a_step_that_does_not_return_is_one_line_of_the_command(capsys, tmp_path):
    """It hangs in an evaluation already, which a worker plays too."""
    arguments = ["train", "tests.helpers.misbehaving:Hangs-v0", "--num-envs", "1", "--workers", "1"]
    run = tmp_path / "run"
    assert main([*arguments, "--step-timeout", "0.5", "--iterations", "2", "--out", str(run)]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert "a step in worker process 0 took longer than 0.5 s" in line
    assert f"moac resume {run}" in line


def test_workers_and_a_time_limit_of_steps_change_no_result():
    config = package.Config(learner="paper", num_iterations=3, num_evaluations=3)
    results = []
    for watched in ({}, {"workers": 2, "step_timeout": 60}):
        environment = envs.make(Line, num_envs=2, evaluation_episodes=2, **watched)
        results.append(package.train(environment, config, trials=2))
        environment.close()
    np.testing.assert_array_equal(np.asarray(results[0].policy), np.asarray(results[1].policy))
    np.testing.assert_array_equal(results[0].history.returns, results[1].history.returns)


@pytest.mark.slow
def test_model_and_environment_learn_alike():
    """At equal settings the real environment, its time limit lifted, trains as its exact model does."""
    setting = package.Discounted(0.9)
    config = package.Config(
        learner="paper", setting=setting, num_iterations=150, num_evaluations=1, actor_step_size=100.0
    )
    model = library.resource_gathering()
    ours = package.train(model, config, trials=64).returns
    environment = envs.make("resource-gathering-v0", num_envs=1, time_limit=False, evaluation_episodes=1)
    from moac.search import values

    result = package.train(environment, config, trials=8)
    theirs = values.exact(model, [result.policy.of_trial(k) for k in range(8)], setting)
    assert theirs.shape == (8, 3)
    spread = 4 * np.sqrt(ours.var(axis=0) / 8 + 1e-6)
    assert (np.abs(theirs.mean(axis=0) - ours.mean(axis=0)) < spread).all()


@pytest.mark.slow
def test_the_study_of_environments(capsys, tmp_path):
    assert main(["reproduce", "environments", "--quick", "--out", str(tmp_path / "study"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    verdicts = [claim["verdict"] for claim in found["claims"]]
    assert len(verdicts) == 8
    assert verdicts[0] in ("holds", "not decided")  # four trials tell little
    assert verdicts[1] == "holds"
    assert (tmp_path / "study" / "report.html").exists()
