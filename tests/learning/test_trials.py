"""Trial i depends on (seed, i) alone, bit for bit; one that becomes non-finite stops alone."""

import subprocess
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moac import Config, api, momdp, training, weighting
from moac.training import compiled, result
from moac.training.run import History

T = 6
CONFIG = Config(
    num_iterations=T,
    num_critic_steps=2,
    critic_batch_size=4,
    actor_batch_size=8,
    actor_step_size=2.0,
    critic_step_size=0.5,
    num_evaluations=T,
    weighting="uniform",
)
MODEL = momdp.library.random_ergodic(jax.random.key(3), num_states=5, num_actions=3, num_objectives=2)

ON_DEVICES = """
import sys
import jax
jax.config.update("jax_num_cpu_devices", int(sys.argv[2]))
import numpy as np
from tests.learning import test_trials as here
assert len(jax.local_devices()) == int(sys.argv[2])
np.savez(sys.argv[1], *here.bits(here.trained(500)))
"""

MANY_OBJECTIVES = """
import sys
from dataclasses import replace
import jax
jax.config.update("jax_num_cpu_devices", 2)
from moac import api, momdp
from tests.learning import test_trials as here
model = momdp.library.random_ergodic(0, num_states=5, num_actions=2, num_objectives=32)
for rule in sys.argv[1:]:
    print(rule, flush=True)
    config = replace(here.CONFIG, num_evaluations=1, weighting=rule)
    found = api.train(model, config, trials=2 * here.compiled.WIDTH, seed=0)
    assert (found.iteration, found.history.weights.shape[-1]) == (here.T, 32)
"""

NETWORKS = """
import jax
jax.config.update("jax_num_cpu_devices", 2)
import moac
from tests.learning import test_trials as here
fields = dict(policy="mlp", hidden=(64,), num_iterations=1, num_evaluations=1, num_critic_steps=1, actor_batch_size=3,
              critic_batch_size=3, weighting="uniform", normalise="l2", critic_optimiser="adam")
one, two = (jax.tree.leaves(moac.train("fishwood-v0", trials=k, **fields).policy.theta) for k in (1, 2))
for few, many in zip(one, two, strict=True):
    here.np.testing.assert_array_equal(few[0], many[0])
with jax.enable_x64(True):  # an option of the caller holds in every block
    double = moac.train("fishwood-v0", num_iterations=1, num_evaluations=1, trials=2 * here.compiled.WIDTH)
assert double.policy.theta.dtype == "float64"
"""


def trained(trials, seed=11, **options):
    return api.train(MODEL, CONFIG, trials=trials, seed=seed, **options)


def bits(outcome):
    """All that trials end with, leading axis K."""
    logged = [array for name, array in outcome.history.arrays().items() if name != "iteration"]
    return [outcome.policy.theta, outcome.random_iterate_policy.theta, outcome.random_iteration, *logged]


NAMES = ["theta", "theta_random", "random_iteration", *(n for n in History.empty().arrays() if n != "iteration")]


def assert_same_trials(few, many):
    """The first trials of `many` are `few`: what was learned and logged of it to the last bit."""
    for name, a, b in zip(NAMES, few, many, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b[: len(a)], err_msg=name)


@pytest.fixture(scope="module")
def many():
    return bits(trained(500))


@pytest.mark.parametrize("trials", [1, 2, 64])
def test_any_number_of_trials(trials, many):
    assert_same_trials(bits(trained(trials)), many)


@pytest.mark.slow
def test_any_number_of_devices(tmp_path):
    """Each in a process of its own: JAX counts its devices when it starts."""
    found = []
    for devices in ("1", "2"):
        command = [sys.executable, "-c", ON_DEVICES, str(tmp_path / f"{devices}.npz"), devices]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        with np.load(tmp_path / f"{devices}.npz") as stored:
            found.append([stored[name] for name in stored.files])
    assert_same_trials(*found)


def test_a_network_alone_and_beside_another_on_two_devices():
    """A program of two devices rounded in another way than one of a single device."""
    done = subprocess.run([sys.executable, "-c", NETWORKS], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_many_objectives_on_two_devices_end():
    """Batches of LAPACK's factors, one per device, waited for each other."""
    command = [sys.executable, "-c", MANY_OBJECTIVES, "min-norm", "capped:0.5", "imtl-g"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_trials_differ(many):
    theta = many[0]
    assert len(np.unique(theta.reshape(500, -1), axis=0)) == 500


def test_seeds_differ(many):
    shared = result.prepare(MODEL, CONFIG, 1, 11).parts._asdict()  # so that nothing is compiled anew
    other = bits(trained(2, seed=12, **shared))[0]
    assert not (other[:, None] == many[0][None]).all(axis=(2, 3)).any()


def test_stopping_between_any_two_iterations_changes_nothing(many):
    run = result.prepare(MODEL, CONFIG, 64, 11)
    snapshots = list(training.iterate(run))
    assert [snapshot.iteration for snapshot in snapshots] == list(range(1, T + 1))
    for snapshot in (snapshots[0], snapshots[3]):
        *_, final = training.iterate(run, snapshot)
        assert_same_trials(bits(result.Result.of(run, final)), many)


def test_a_run_starts_in_memory_where_another_ended(many):
    half = replace(CONFIG, num_iterations=T // 2)
    shared = result.prepare(MODEL, CONFIG, 64, 11).parts._asdict()
    first = api.train(MODEL, half, trials=64, seed=11, **shared)
    second = api.train(MODEL, half, trials=64, seed=11, start=first.snapshot, **shared)
    np.testing.assert_array_equal(second.policy.theta, many[0][:64])
    assert second.iteration == T // 2 == second.history.iteration[-1]
    assert second.random_iteration.max() == T // 2


def breaks_above(limit):
    """Uniform weights, and NaN as soon as ‖g‖² is above the limit."""

    def update(state, K, t):
        lam = jnp.full(len(K), 1 / len(K), K.dtype)
        return state, jnp.where(lam @ K @ lam > limit, jnp.nan, lam)

    return weighting.Rule(lambda M: (), update)


def test_a_trial_that_becomes_non_finite_stops_alone(tmp_path):
    count = 64
    run = result.prepare(MODEL, CONFIG, count, 11)
    snapshots = list(training.iterate(run))
    norms = snapshots[-1].history.gradient_norm_squared
    ordered = np.sort(norms.max(axis=1))
    limit = (ordered[40] + ordered[41]) / 2
    above = norms > limit
    expected = np.where(above.any(axis=1), above.argmax(axis=1) + 1, 0)
    assert (expected > 0).sum() == 23
    assert len(np.unique(expected)) > 3

    outcome = trained(count, rule=breaks_above(limit))
    np.testing.assert_array_equal(outcome.stopped, expected)
    start = np.zeros_like(snapshots[0].trials.state.theta)
    thetas = [start, *(snapshot.trials.state.theta for snapshot in snapshots)]
    for trial, stopped in enumerate(expected):
        last = stopped - 1 if stopped else T
        # two rules are two programs, whose last bits may differ; one iteration more differs by far more
        np.testing.assert_allclose(outcome.policy.theta[trial], thetas[last][trial], rtol=1e-5, atol=1e-7)
        assert np.isfinite(outcome.random_iterate_policy.theta[trial]).all()
        assert outcome.random_iteration[trial] <= max(last, 1)
        assert np.isfinite(outcome.history.returns[trial]).all()
        assert np.isfinite(outcome.history.weights[trial]).all(axis=1).tolist() == [t <= last for t in range(1, T + 1)]

    outcome.save(tmp_path / "run")
    again = api.resume(tmp_path / "run", MODEL, rule=breaks_above(limit))
    np.testing.assert_array_equal(again.stopped, expected)


@pytest.mark.slow
def test_a_critic_that_diverges_stops_every_trial_at_its_last_finite_state():
    outcome = api.train(MODEL, replace(CONFIG, critic_step_size=1e9), trials=2)
    assert (outcome.stopped > 0).all()
    assert np.isfinite(outcome.policy.theta).all()
    outcome.plot().canvas.draw()


def test_trials_with_preferences_are_the_runs_with_them():
    """Trial i has the i-th preference, in turn, and is otherwise the trial it would be."""
    several = ((0.2, 0.8), (0.7, 0.3))
    config = replace(CONFIG, weighting="fixed", preferences=several)
    together = api.train(MODEL, config, trials=3, seed=11)
    for trial, p in enumerate((*several, several[0])):
        alone = api.train(MODEL, replace(config, preferences=(p,)), trials=3, seed=11)
        np.testing.assert_array_equal(together.policy.theta[trial], alone.policy.theta[trial])
    given = api.train(MODEL, replace(CONFIG, weighting="fixed", weights=several[1]), trials=2, seed=11)
    np.testing.assert_array_equal(together.policy.theta[1], given.policy.theta[1])


@pytest.mark.slow
def test_step_sizes_are_arguments_of_one_program(monkeypatch):
    """A run with another step size traces nothing, and is the run that it would be with a program of its own."""
    config, traced, iteration = replace(CONFIG, entropy=0.01), [], compiled._iteration
    monkeypatch.setattr(compiled, "_iteration", lambda *given: traced.append(given) or iteration(*given))
    program = compiled._program_of(api.train(MODEL, config, trials=2, seed=11).run)
    before = len(traced), program.first._cache_size()
    changed = replace(config, actor_step_size=0.3, critic_step_size=0.1, entropy=0.2, num_iterations=T + 1)
    shared = api.train(MODEL, changed, trials=2, seed=11)
    assert compiled._program_of(shared.run) is program
    assert before[0] > 0
    assert (len(traced), program.first._cache_size()) == before
    alone = api.train(replace(MODEL), changed, trials=2, seed=11)
    for a, b in zip(bits(shared), bits(alone), strict=True):
        np.testing.assert_array_equal(a, b)


def test_refuses_preferences_that_a_rule_does_not_take():
    with pytest.raises(ValueError, match="`preferences` must be None with a rule that takes none"):
        config = replace(CONFIG, weighting="fixed", preferences=((0.5, 0.5),))
        api.train(MODEL, config, rule=weighting.min_norm())
    with pytest.raises(ValueError, match="`preferences` must be None unless"):
        replace(CONFIG, preferences=((0.5, 0.5),))
    with pytest.raises(ValueError, match=r"must hold one number per objective \(2\), got 3"):
        api.train(MODEL, replace(CONFIG, weighting="preferred", preferences=((0.5, 0.5, 0.0),)))
