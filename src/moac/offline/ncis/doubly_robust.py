"""The doubly robust estimate: a reward model for all actions, corrected where an action was logged."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from moac.offline.ncis.rows import Logged

_BLOCK = 4_000_000
"""Numbers of the reward model that are in memory at once."""


def terms(log: Logged, name: str, policy: Any, weight: Float[np.ndarray, " N"], q: Any) -> Float[np.ndarray, "N M"]:
    """Each row's term, whose mean is the estimate, with the weights as they are given (Dudík, Langford, Li 2011).

        Σ_a π(a|s) q(s, a) + w (r − q(s, a_logged)).

    Without a cap it is right on average where the propensities or the reward model are; with one, where q is. q must
    not have been fitted on these rows.
    """
    table = np.asarray(policy, dtype=np.float64)
    if table.ndim != 2 or log.action is None:
        raise ValueError(f"a doubly robust estimate needs all actions' probabilities [N, K] of {name}, and `action`.")
    shape = (*table.shape, log.reward.shape[1])
    model = q if callable(q) else _table(q, shape)
    found = np.empty(log.reward.shape)
    step = max(1, _BLOCK // (shape[1] * shape[2]))
    for begin in range(0, len(table), step):
        rows = np.arange(begin, min(begin + step, len(table)))
        values = _checked(model(rows), (len(rows), *shape[1:]))
        logged = values[np.arange(len(rows)), log.action[rows]]
        expected = (table[rows, None] @ values)[:, 0]
        found[rows] = expected + weight[rows, None] * (log.reward[rows] - logged)
    return found


def _table(q: Any, shape: tuple[int, ...]) -> Any:
    given = np.asarray(q)
    if given.shape != shape:
        raise ValueError(f"`q` must have shape {list(shape)}, got {list(given.shape)}.")
    return lambda rows: given[rows]


def _checked(values: Any, shape: tuple[int, ...]) -> Float[np.ndarray, "n K M"]:
    found = np.asarray(values, dtype=np.float64)
    if found.shape != shape:
        raise ValueError(f"`q` must give shape {list(shape)} for {shape[0]} rows, got {list(found.shape)}.")
    if not np.isfinite(found).all():
        raise ValueError("`q` must be finite.")
    return found
