import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moac.config import Average, Config, Discounted
from moac.critic import TD, LinearCritic, running_mean
from moac.policies import features
from moac.types import Batch

SIZES = {"num_critic_steps": 3, "critic_batch_size": 2, "actor_batch_size": 2}
STEPS = {"actor_step_size": 0.3, "critic_step_size": 0.5}
CRITIC = LinearCritic(features.OneHot(3), 2)
W = jnp.array([[1.0, -1.0], [2.0, 0.5], [-3.0, 4.0]])
MU = jnp.array([0.25, -0.5])


def td(setting, **options):
    return TD(CRITIC, Config(setting=setting, **SIZES, **STEPS, **options), setting.discounts(2))


def batch(terminated=None):
    return Batch(
        observation=jnp.array([0, 2]),
        action=jnp.array([0, 0]),
        reward=jnp.array([[1.0, 2.0], [3.0, 4.0]]),
        next_observation=jnp.array([1, 0]),
        terminated=terminated,
    )


def test_values_are_features_times_weights():
    np.testing.assert_array_equal(CRITIC.values(W, jnp.array([[2, 0], [1, 1]])), W[jnp.array([[2, 0], [1, 1]])])
    np.testing.assert_array_equal(CRITIC.init(jax.random.key(0)), np.zeros((3, 2)))


def test_discounted_errors_by_hand():
    delta, mu = td(Discounted((0.5, 0.9))).errors(W, MU, batch())
    np.testing.assert_allclose(delta, [[1 + 0.5 * 2 - 1, 2 + 0.9 * 0.5 + 1], [3 + 0.5 + 3, 4 - 0.9 - 4]], rtol=1e-6)
    np.testing.assert_array_equal(mu, MU)


def test_the_level_is_the_mean_value_per_step_or_the_average_reward():
    level = td(Discounted((0.5, 0.9))).level(W, MU, batch())
    np.testing.assert_allclose(level, [0.5 * (1 - 3) / 2, 0.1 * (-1 + 4) / 2], rtol=1e-5)
    np.testing.assert_array_equal(td(Average()).level(W, MU, batch()), MU)


def test_the_end_is_worth_nothing_in_the_discounted_setting():
    delta, _ = td(Discounted((0.5, 0.9))).errors(W, MU, batch(jnp.array([True, False])))
    np.testing.assert_allclose(delta, [[1 - 1, 2 + 1], [3 + 0.5 + 3, 4 - 0.9 - 4]], rtol=1e-6)


def test_not_even_where_the_critic_is_not_finite():
    w = W.at[1].set(jnp.inf)  # the successor of the first, where the episode ends
    delta, _ = td(Discounted((0.5, 0.9))).errors(w, MU, batch(jnp.array([True, False])))
    assert np.isfinite(delta).all()


def test_average_errors_by_hand():
    """δ uses the μ held before the batch, which then moves towards the batch's mean reward, (2, 3)."""
    delta, mu = td(Average(), average_step_size=0.1).errors(W, MU, batch())
    expected = [[1 - 0.25 + 2 - 1, 2 + 0.5 + 0.5 + 1], [3 - 0.25 + 1 + 3, 4 + 0.5 - 1 - 4]]
    np.testing.assert_allclose(delta, expected, rtol=1e-6)
    np.testing.assert_allclose(mu, [0.9 * 0.25 + 0.1 * 2, 0.9 * -0.5 + 0.1 * 3], rtol=1e-6)


def test_the_papers_errors_by_hand():
    """μ moves at each transition before δ uses it, by the actor's step in the actor's batch."""
    delta, mu = td(Average(), mu="paper").errors(W, MU, batch())
    first = 0.7 * np.array(MU) + 0.3 * np.array([1.0, 2.0])
    second = 0.7 * first + 0.3 * np.array([3.0, 4.0])
    differences = np.array([[2.0 - 1.0, 0.5 + 1.0], [1.0 + 3.0, -1.0 - 4.0]])
    np.testing.assert_allclose(delta, np.array([[1, 2], [3, 4]]) - [first, second] + differences, rtol=1e-5)
    np.testing.assert_allclose(mu, second, rtol=1e-6)


def test_learning_is_one_step_per_batch_and_carries_mu():
    """Three batches of two transitions, the critic's step 0.5 for w and, in the paper's way, for μ."""
    batches = jax.tree.map(lambda x: jnp.stack([x, x, x]), batch())
    for mode in ("batch", "paper"):
        learner = td(Average(), mu=mode)
        w, mu, _ = learner.learn(W, MU, learner.steps.init(W), batches)
        V, m = np.array(W, float), np.array(MU, float)
        for _ in range(3):
            ms = []
            for r in ([1.0, 2.0], [3.0, 4.0]):
                m = 0.5 * m + 0.5 * np.array(r) if mode == "paper" else m
                ms.append(m)
            delta_0, delta_2 = [1, 2] - ms[0] + V[1] - V[0], [3, 4] - ms[1] + V[0] - V[2]
            V = V + np.array([delta_0 / 4, [0, 0], delta_2 / 4])
            m = 0.95 * m + 0.05 * np.array([2.0, 3.0]) if mode == "batch" else m
        np.testing.assert_allclose(w, V, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(mu, m, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("c", [0.05, 0.5, 1.0, 1.7])
def test_the_papers_mean_is_its_recursion(c):
    """Also with a step beyond one, which the paper does not exclude."""
    reward = np.random.default_rng(0).normal(size=(37, 2)).astype(np.float32)
    mu, expected = np.array([0.3, -2.0]), []
    for r in reward:
        mu = (1 - c) * mu + c * r
        expected.append(mu)
    ours = jax.jit(running_mean)(jnp.array([0.3, -2.0]), jnp.asarray(reward), c)
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)
