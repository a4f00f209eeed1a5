"""What training returns, with arrays made by hand,."""

import pickle
from dataclasses import replace

import jax
import numpy as np
import pytest

from moac import Config, Discounted, api, envs, momdp, training
from moac.training import result
from moac.training.run import History
from tests.helpers.environments import Line, Own

K, L, M = 4, 3, 3
MODEL = momdp.library.resource_gathering()
S, A = MODEL.num_states, MODEL.num_actions


def outcome_of(model=MODEL, config=None, trials=K, stopped=None, value=0.1):
    run = result.prepare(model, config, trials, 0)
    M = model.num_objectives
    cube, square = np.full((trials, L, M), value), np.full((trials, L), value)
    history = History(np.array([1, 5, 9]), cube, cube, cube, *(square,) * 5, np.zeros(L))
    policy = result.TrainedPolicy(run.parts.policy, np.zeros((trials, S, A), np.float32), run.source.spec.observations)
    stopped = np.zeros(trials, int) if stopped is None else np.array(stopped)
    return api.with_outputs(result.Result(run, 9, history, policy, policy, np.ones(trials, int), stopped))


def test_policies_as_an_array():
    policy = outcome_of().policy
    assert np.asarray(policy) is not None
    assert np.asarray(policy, dtype=np.float64).dtype == np.float64
    assert np.array(policy).shape == (K, S, A)
    exact = momdp.evaluate(MODEL, policy, Discounted(0.9))
    uniform = momdp.evaluate(MODEL, np.zeros((S, A)), Discounted(0.9))
    np.testing.assert_allclose(exact.returns, np.tile(uniform.returns, (K, 1)))


def test_a_result_tells_how_many_trials_stopped():
    assert "stopped" not in repr(outcome_of())
    assert "4 trials, 9 iterations, 2 stopped at an update" in repr(outcome_of(stopped=[0, 3, 1, 0]))


@pytest.mark.parametrize("problem", [momdp.library.fishwood(), envs.make(Line, num_envs=2, evaluation_episodes=1)])
def test_a_result_that_was_pickled_acts_and_is_saved_like_itself(problem, tmp_path):
    sizes = {"num_iterations": 1, "num_critic_steps": 1, "critic_batch_size": 4, "actor_batch_size": 4}
    outcome = api.train(problem, learner="paper", **sizes)
    outcome.policy.act(0, jax.random.key(3))  # which keeps a compiled function
    again = pickle.loads(pickle.dumps(outcome))
    assert (again.config, repr(again)) == (outcome.config, repr(outcome))
    actions = [each.policy.act(0, jax.random.key(4)) for each in (outcome, again)]
    assert actions[0] == actions[1]
    saved = [each.save(tmp_path / str(k)) / "policy.safetensors" for k, each in enumerate((outcome, again))]
    assert saved[0].read_bytes() == saved[1].read_bytes()


def test_plot_has_all_panels():
    figure = outcome_of().plot()
    titles = [ax.get_title(loc="left") for ax in figure.axes]
    assert len(titles) == 6
    assert titles[0] == "Returns"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["death", "gold", "diamond"]


@pytest.mark.parametrize(("value", "trials"), [(0.0, K), (np.nan, 1), (np.inf, K), (1e30, 1)])
def test_plot_of_odd_numbers(value, trials):
    outcome_of(value=value, trials=trials).plot().canvas.draw()


def test_plot_of_one_evaluation_shows_points():
    outcome = outcome_of()
    arrays = {name: array[:, :1] for name, array in outcome.history.arrays_per_trial().items()}
    arrays |= {"iteration": outcome.history.iteration[:1], "evaluation_steps": outcome.history.evaluation_steps[:1]}
    figure = replace(outcome, history=History.of_arrays(arrays, "exact")).plot()
    assert {line.get_marker() for line in figure.axes[0].lines} == {"o"}


def test_bands_on_a_log_axis_stay_positive():
    outcome = outcome_of()
    outcome.history.gap[:] = np.geomspace(1e-12, 1, K)[:, None]
    axis = outcome.plot().axes[2]
    assert axis.get_yscale() == "log"
    assert min(path.vertices[:, 1].min() for c in axis.collections for path in c.get_paths()) > 0


@pytest.mark.parametrize(("trials", "seed"), [(0, 0), (1, -1), (1.5, 0), (1, 2**32)])
def test_refused_trials_and_seeds(trials, seed):
    with pytest.raises(ValueError, match=r"^`(trials|seed)` must be a whole number"):
        api.train(MODEL, Config(), trials=trials, seed=seed)


def test_refused_for_this_problem():
    with pytest.raises(ValueError, match=r"^`discount` must be one value or one per objective \(3\), got 2.$"):
        api.train(MODEL, Config(setting=Discounted((0.9, 0.8))))
    with pytest.raises(ValueError, match=r"^`weights` must hold one weight per objective \(3\), got 2.$"):
        api.train(MODEL, Config(weights=(0.5, 0.5)))


@pytest.mark.parametrize("scale", ["running", "standard", "bounds"])
def test_a_policy_is_a_start_unless_observations_are_scaled_by_what_a_run_has_seen(scale):
    run = result.prepare(envs.make(Own, num_envs=1), Config(policy="mlp", hidden=(4,), observation_scale=scale), 1, 0)
    policy = result.Result.of(run, training.first(run)).policy
    if scale == "bounds":
        assert result.beginning(policy, run).iteration == 0
    else:
        with pytest.raises(ValueError, match="`start` must be a run where observations are scaled by running"):
            result.beginning(policy, run)
