"""One network for every preference: how p is drawn, stands behind observations, is saved, and is asked for."""

import json

import jax
import numpy as np
import pytest

import moac
from moac import envs, settings, training
from moac.cli import main as cli
from moac.envs import acting
from moac.policies.networks import Digits, Vectors, WithPreference
from moac.training import result
from moac.types import Sampling
from tests.helpers.environments import Line, Push, Unbounded

SMALL = {"conditioned": True, "num_evaluations": 1, "actor_batch_size": 16, "minibatch_size": 16, "epochs": 2}


@pytest.mark.parametrize(("draw", "spread"), [("dirichlet:1", 1 / 18), ("dirichlet:0.5", 4 / 45), ("corners", None)])
def test_draws_are_on_the_simplex_and_spread_as_they_should(draw, spread):
    drawn = acting.preferences(draw, 3, 7)
    p = np.array([drawn() for _ in range(4000)])
    assert (p >= 0).all() and np.allclose(p.sum(axis=1), 1) and np.abs(p.mean(axis=0) - 1 / 3).max() < 0.02
    if spread is not None:  # (1/M)(1 − 1/M)/(Mα + 1)
        np.testing.assert_allclose(p.var(axis=0), spread, rtol=0.1)
    ends, middle = (p == 1).any(axis=1).mean(), (p == 1 / 3).all(axis=1).mean()
    assert (ends, middle) == pytest.approx((0.25, 0.1) if spread is None else (0, 0), abs=0.03)


def test_a_seed_gives_the_same_preferences_and_another_others():
    first, again, other = (acting.preferences("dirichlet:1", 2, seed)() for seed in (1, 1, 2))
    assert (first == again).all() and (first != other).any() and acting.preferences(None, 2, 1)() is None


@pytest.mark.parametrize(("make", "sees"), [(Line, Digits), (Unbounded, Vectors), (Push, Digits)])
def test_an_episode_keeps_its_preference_and_the_next_has_another(make, sees):
    run = result.prepare(envs.make(make, num_envs=2), moac.Config(num_iterations=1, **SMALL), 1, 0)
    policy = run.parts.policy
    inputs = policy.network.inputs if hasattr(policy, "network") else policy.inputs
    assert isinstance(inputs, WithPreference) and isinstance(inputs.inner, sees)
    chain, theta = run.source.start(np.array([1, 2], np.uint32)), policy.init(jax.random.key(0))
    sizes = settings.sampling(run.settings, run.source.spec)
    sizes = Sampling(0, 16, 400, average=False, survival=None, deviations=sizes.deviations)
    _, _, batch = run.source.sample(chain, policy, theta, np.array([0, 5], np.uint32), sizes)
    p, after = (x[:, -2:].reshape(200, 2, 2) for x in (batch.observation, batch.next_observation))
    np.testing.assert_allclose(p.sum(axis=2), 1, atol=1e-6)
    np.testing.assert_array_equal(p, after)  # the true successor belongs to the same episode
    ended = batch.terminated.reshape(200, 2)[:-1]
    np.testing.assert_array_equal((p[1:] != p[:-1]).any(axis=2), ended)
    assert ended.sum() > 10


def test_preferences_stay_as_they_are_where_observations_are_scaled_by_moments():
    run = result.prepare(envs.make(Unbounded, num_envs=2), moac.Config(num_iterations=2, **SMALL), 1, 0)
    assert run.config.observation_scale == "standard"
    policy = result.Result.of(run, list(training.iterate(run))[-1]).policy
    seen = policy.at([0.25, 0.75]).see(np.array([3.0]))
    assert seen[1:].tolist() == [0.25, 0.75] and 0 < seen[0] < 1
    assert policy.see(np.array([3.0]), (0.25, 0.75)).tolist() == seen.tolist()


def test_the_network_acts_by_the_preference_it_was_trained_for():
    """On the line one objective wants to arrive, the other, with its sign changed, to stay for ever."""
    environment = envs.make(lambda: Lazy(limit=20), num_envs=8, evaluation_episodes=1)
    sizes = {"actor_batch_size": 256, "minibatch_size": 256, "epochs": 1, "hidden": (8,)}  # quick to compile
    steps = {"steps": 20_480, "actor_step_size": 0.02, "critic_step_size": 0.02}
    trained = moac.train(environment, conditioned=True, num_evaluations=1, seed=3, **sizes, **steps).policy
    with pytest.raises(ValueError, match=r"`trial` must be 0: one network acts for every `preference`, got 3\."):
        trained.of_trial(3)
    arrive, stay = (moac.evaluate(trained.at(p), environment, episodes=50).discounted for p in ([1.0, 0.0], [0.0, 1.0]))
    assert arrive[0].low > stay[0].high + 0.2 and stay[1].low > arrive[1].high + 0.2
    both = moac.evaluate(trained, environment, episodes=50).discounted  # each episode draws its own
    assert stay[0].value < both[0].value < arrive[0].value


class Lazy(Line):
    """A step right costs: it pays to stay for who minds that alone."""

    def step(self, action):
        shown, reward, terminated, truncated, info = super().step(action)
        return shown, np.array([reward[0], -float(action)], np.float32), terminated, truncated, info


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A conditioned run on minecart, of two trials."""
    out = tmp_path_factory.mktemp("conditioned") / "run"
    small = {**SMALL, "hidden": (4,), "setting": moac.Discounted(0.5)}
    made = envs.make("minecart-deterministic-v0", 4, evaluation_episodes=2)
    moac.train(made, num_iterations=3, trials=2, out=out, **small)
    return out


def test_a_run_comes_back_and_acts_for_each_preference(folder):
    policy, key = moac.load(folder, trial=1), jax.random.key(0)
    shown = np.zeros(7, np.float32)
    assert policy.act(shown, key, preference=[0.2, 0.3, 0.5]) == policy.at([0.2, 0.3, 0.5]).act(shown, key)
    w = np.array([0.2, 0.3, 0.5], np.float32)  # as morl-baselines hands them over
    assert policy.eval(shown, w) in range(6) and policy.at(w).eval(shown, None) in range(6)
    assert policy.log_prob(shown, 0, [1, 0, 0]) == policy.at([1, 0, 0]).log_prob(shown, 0) < 0
    assert policy.log_prob(shown, 0, [1, 0, 0]) != policy.log_prob(shown, 0, [0, 0, 1])
    assert "preference [0.5, 0.5, 0.0]" in repr(policy.at([0.5, 0.5, 0]))
    again = moac.resume(folder)
    assert again.config.conditioned and again.config.weighting == "fixed" and again.returns.shape == (2, 3)
    assert moac.evaluate(folder, episodes=2).points.shape == (2, 3)


@pytest.mark.parametrize("wrong", [[0.2, 0.9, 0.1], [1.5, -0.5, 0.0], [0.5, 0.5], [1.0], "even", [0.5, 0.5, np.nan]])
def test_what_is_no_preference_is_refused_in_one_line(folder, wrong):
    with pytest.raises(ValueError, match=r"^`preference` must .+\.$"):
        moac.load(folder).at(wrong)


def test_a_missing_or_a_needless_preference_is_refused(folder):
    policy, shown = moac.load(folder), np.zeros(7, np.float32)
    with pytest.raises(ValueError, match="`preference` must be given"):
        policy.act(shown, jax.random.key(0))
    with pytest.raises(ValueError, match="acts for one already"):
        policy.at([1, 0, 0]).act(shown, jax.random.key(0), preference=[0, 1, 0])
    plain = moac.train("fishwood-v0", num_iterations=1, num_evaluations=1).policy
    with pytest.raises(ValueError, match="not conditioned"):
        plain.at([0.5, 0.5])


def test_the_commands_take_a_preference(folder, tmp_path, capsys):
    arguments = ["evaluate", str(folder), "--episodes", "2", "--json"]
    assert cli.main([*arguments, "--preference", "0.2", "0.3", "0.5"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["preference"] == [0.2, 0.3, 0.5]
    assert cli.main([*arguments, "--preference", "0.2", "0.3"]) == 2
    assert "`preference`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"weighting": "min-norm"}, "weighting"),
        ({"weighting": "preferred"}, "weighting"),
        ({"weights": (0.5, 0.5)}, "weights"),
        ({"weighting": "fixed", "preferences": ((0.5, 0.5),)}, "preferences"),
        ({"learner": "paper"}, "learner"),
        ({"policy": "linear"}, "policy"),
        ({"critic": "linear"}, "critic"),
        ({"preference_draw": "dirichlet:0"}, "preference_draw"),
        ({"preference_draw": "dirichlet"}, "preference_draw"),
        ({"conditioned": 1}, "conditioned"),
    ],
)
def test_what_does_not_go_together_is_one_line(fields, named):
    with pytest.raises(ValueError, match=rf"^`{named}` must be .+ got .+\.$|^`{named}` must be None with"):
        moac.Config(**{"conditioned": True, **fields})


def test_a_finite_model_keeps_a_table_for_each_preference():
    with pytest.raises(ValueError, match="`conditioned` needs an environment that is stepped"):
        moac.train("fishwood-v0", conditioned=True)
