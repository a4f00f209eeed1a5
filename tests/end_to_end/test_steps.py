"""Every call of an environment's `step` is counted, by what it was for; evaluations take a small share of them."""

import json

import numpy as np
import pytest

import moac
from moac import envs, files
from moac.runs import directory
from moac.training.run import History
from tests.helpers.counting import calls, counted
from tests.helpers.environments import Line

SMALL = {"hidden": (8,), "actor_batch_size": 64}


def small(**fields):
    return moac.Config(**{**SMALL, **fields})


@pytest.mark.parametrize("learner", ["ppo", "paper"])
@pytest.mark.parametrize("tells_rewards", [True, False])
def test_training_and_evaluating_are_all_calls_of_step(learner, tells_rewards):
    result = moac.train(counted(tells_rewards=tells_rewards), learner=learner, trials=2, num_iterations=20)
    assert result.env_steps + result.evaluation_steps == calls()


@pytest.mark.parametrize("length", [5, 50, 400])
def test_training_spends_a_tenth_on_evaluations(length):
    result = moac.train(counted(length), small(), steps=8_192)
    assert result.env_steps + result.evaluation_steps == calls()
    assert result.evaluation_steps <= result.env_steps / 10
    taken = result.history.evaluation_steps
    assert (np.diff(taken) > 0).all() and taken[-1] == result.evaluation_steps


def test_the_last_policies_are_evaluated_whatever_it_takes():
    result = moac.train(counted(400), small(), trials=2, steps=1_024, evaluation_share=0.0)
    assert result.evaluation_steps == 2 * 400
    assert np.isfinite(result.returns).all()
    assert result.history.iteration.tolist() == [result.iteration]


def test_a_larger_share_plays_every_episode_of_every_evaluation():
    result = moac.train(counted(400), small(num_evaluations=3), steps=1_024, evaluation_share=1_000.0)
    assert len(result.history.iteration) == 3
    assert result.evaluation_steps == 3 * 10 * 400


def test_a_resumed_run_goes_on_counting(tmp_path):
    class StoppedError(Exception):
        pass

    def stop(snapshot):
        if snapshot.iteration >= 8:
            raise StoppedError

    problem, run = envs.make(counted(5), 4), tmp_path / "run"
    config = small(num_iterations=16, evaluation_share=1.0)
    with pytest.raises(StoppedError):
        moac.train(problem, config, callback=stop, out=run, checkpoint_every=0)
    opened, prepared = directory.reopen(run, problem)
    stored = opened.checkpoints().newest(prepared)
    before = calls()
    result = moac.resume(run, problem)
    trained = (result.iteration - stored.iteration) * result.run.env_steps_per_iteration
    evaluated = result.evaluation_steps - stored.history.steps_taken
    assert trained + evaluated == calls() - before
    assert evaluated > 0 < stored.history.steps_taken


@pytest.mark.parametrize("length", [5, 50])
def test_an_exploration_spends_half_of_its_steps_on_evaluations(length):
    archive = moac.explore(counted(length, tells_rewards=False), small(), steps=4_096, preferences=5)
    numbers = archive.exploration.record()
    purposes = numbers["numbers"]["evaluation_steps_by_purpose"]
    assert numbers["env_steps"] + numbers["evaluation_steps"] == calls()
    assert numbers["evaluation_steps"] == sum(purposes.values()) <= numbers["env_steps"] / 2
    assert purposes["valuing the policies"] > purposes["evaluations while training"] > 0
    assert numbers["numbers"]["not_valued"] == 0


def test_an_exploration_with_long_episodes_values_fewer_preferences():
    archive = moac.explore(counted(400), small(), steps=4_096, preferences=9)
    explored = archive.exploration
    numbers = explored.record()
    assert numbers["env_steps"] + numbers["evaluation_steps"] == calls()
    assert numbers["evaluation_steps"] <= numbers["env_steps"] / 2
    assert 0 < numbers["numbers"]["not_valued"] == 9 - len(explored.candidates)
    assert len(numbers["asked"]["preferences"]) == len(numbers["asked"]["points"]) == len(explored.candidates)
    assert np.isfinite(archive.points).all()


def test_the_share_of_an_exploration_can_be_chosen():
    archive = moac.explore(counted(20), small(), steps=2_048, preferences=4, episodes=6, evaluation_share=50.0)
    assert archive.exploration.record()["numbers"]["evaluation_steps_by_purpose"]["valuing the policies"] == 4 * 6 * 20


def test_tables_of_an_environment_are_valued_within_the_share_too():
    archive = moac.explore(counted(20), small(), rules=["fixed"], preferences=3, steps=4_096)
    numbers = archive.exploration.record()
    assert numbers["env_steps"] + numbers["evaluation_steps"] == calls()
    assert numbers["evaluation_steps"] <= numbers["env_steps"] / 2


def test_evaluations_and_certificates_are_counted():
    problem = envs.make(counted(20, tells_rewards=False), 4)
    policy = moac.train(problem, small(num_iterations=1)).policy
    before = calls()
    assert moac.evaluate(policy, problem, episodes=7).steps == calls() - before == 7 * 20
    before = calls()
    certificate = moac.certify(policy, problem, episodes=80)
    assert certificate.evaluation_steps == calls() - before > 80
    assert certificate.record()["evaluation_steps"] == certificate.evaluation_steps


def test_processes_count_too():
    environment = envs.make(Line, 4, workers=2)
    result = moac.train(environment, moac.Config(num_iterations=4, actor_batch_size=32, learner="ppo"))
    assert 0 < result.evaluation_steps <= max(result.env_steps / 10, 10_000)
    environment.close()


def test_a_model_is_evaluated_without_steps():
    result = moac.train("fishwood-v0", num_iterations=3)
    assert result.evaluation_steps == 0


def test_the_command_prints_saves_and_reports_both_figures(moac, tmp_path):  # the command, not the package
    run = tmp_path / "run"
    done = moac("train", "deep-sea-treasure-v0", "--blackbox", "--steps", "4096", "--out", run, "--json")
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["env_steps"] == 4096 and 0 < told["evaluation_steps"] <= 409
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["evaluation_steps"] for row in rows][-1] == told["evaluation_steps"]
    page = (run / "report.html").read_text()
    assert "Environment steps of evaluations" in page and str(told["evaluation_steps"]) in page


def test_the_terminal_says_both_figures_of_an_environment_and_none_of_a_model(moac, tmp_path):
    done = moac("train", "deep-sea-treasure-v0", "--blackbox", "--steps", "2048", "--out", tmp_path / "stepped")
    assert "Environment steps: 2,048 of the training, " in done.stdout
    done = moac("train", "fishwood-v0", "--iterations", "3", "--out", tmp_path / "exact")
    assert "Environment steps" not in done.stdout


def test_runs_of_earlier_versions_did_not_count(tmp_path):
    result = moac.train("fishwood-v0", num_iterations=3, num_evaluations=2)
    run = result.save(tmp_path / "run")
    arrays, about = files.read_arrays(run / "history.safetensors")
    del arrays["evaluation_steps"]
    files.write_arrays(run / "history.safetensors", arrays, about)
    assert moac.resume(run).evaluation_steps is None
    history = History.of_arrays(arrays, "episodes")
    assert np.isnan(history.evaluation_steps).all() and len(history.evaluation_steps) == 2
