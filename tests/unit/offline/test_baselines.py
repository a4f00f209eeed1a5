"""Critics of all actions of a log: where they start."""

import jax
import numpy as np
import pytest

from moac.logs import About, LoggedDataset, Rows
from moac.offline.baselines import ActionValues, Problem, pdpg, tscac


@pytest.mark.parametrize("discount", [0.0, 0.75])
def test_values_start_at_what_the_log_earns_in_all_the_time_to_come(discount):
    """Q = r̄/(1 − γ) for every action: 4 r̄ with γ = 0.75, and r̄ where nothing follows."""
    action = np.tile(np.arange(4), 30)
    reward = np.array([[0, 3], [1, 3], [2, 3], [3, 7]], float)[action]
    rows = Rows(np.repeat(np.arange(30), 4), action, reward, propensity=np.full(120, 0.25))
    log = LoggedDataset.from_numpy(rows, About(window=0, actions=np.ones((4, 1))))
    options = pdpg.Options(discount=discount, scale_rewards=False, hidden=(), start="random")
    critic = ActionValues(Problem.of(log, options), signals=(1, 0))
    x = np.zeros((1, log.num_features), np.float32)
    Q = jax.jit(lambda key: critic(critic.init(key).w, x))(jax.random.key(0))
    np.testing.assert_allclose(Q[0], np.array([[4.0], [1.5]]) / (1 - discount) * np.ones(4), atol=0.1)


@pytest.mark.parametrize("method", [pdpg, tscac])
def test_propensities_are_asked_for_before_anything_is_learned(method):
    """Also where nothing starts from the behaviour model; before, training went through and its evaluation failed."""
    log = LoggedDataset.from_numpy(Rows(np.repeat(np.arange(30), 4), np.arange(120) % 4, np.zeros((120, 2))))
    with pytest.raises(ValueError, match="has no propensities: fit a model"):
        method.train(log, method.Options(start="random", steps=1))
