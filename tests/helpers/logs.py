"""Logs whose policies' values are known, for tests of estimators."""

import numpy as np

from moac.offline import ncis

SIGNALS = ("Click", "Like", "WatchTime")
_KEPT = [0, 1, 6]


def tilted(model, power):
    """The logging policy made flatter (below 1) or sharper (above)."""
    table = model.logging_policy() ** power
    return table / table.sum(axis=-1, keepdims=True)


def rows_of(log, propensity=None):
    """Three signals of a generated log."""
    known = log.propensity if propensity is None else propensity
    return ncis.Logged.of(log.user, log.reward[:, _KEPT], known, log.action, SIGNALS)


def chosen(policy, log):
    """π(a|s) of the logged actions."""
    return policy[log.kind, log.tab, log.action]


def truth(model, policy):
    """Of the three signals."""
    return model.true_values(policy)[_KEPT]


def small(seed=0, rows=60, users=9, actions=4, signals=2):
    """Any rows, by chance: a log, and all actions' probabilities of a policy."""
    rng = np.random.default_rng(seed)
    behaviour, policy = rng.dirichlet(np.ones(actions), (2, rows))
    action = np.array([rng.choice(actions, p=p) for p in behaviour])
    reward = rng.standard_normal((rows, signals))
    user = rng.integers(users, size=rows)
    return ncis.Logged.of(user, reward, behaviour[np.arange(rows), action], action), policy
