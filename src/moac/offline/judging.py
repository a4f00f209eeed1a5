"""Policies on the rows of a log: how probable the logged actions are, and what that makes the policies worth."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from moac.logs import sampling, states
from moac.logs.dataset import LoggedDataset
from moac.logs.sampling import Data
from moac.offline import ncis
from moac.types import Evaluation, Params, Policy

BLOCK = 2048
"""Rows whose probabilities are computed at a time."""


def evaluation(dataset: LoggedDataset, policy: Policy, theta: Params, split: str = "validation") -> Evaluation:
    """NCIS of the policies `theta` (leading axis K) on a split's users: values without intervals, as training logs."""
    rows = dataset.rows(split)
    if not len(rows):
        raise ValueError(f"{dataset.name} has no rows of {split} users: a policy's worth is estimated on them.")
    taken = {str(k): one for k, one in enumerate(probabilities(dataset, policy, theta, rows))}
    shard = ncis.accumulate(ncis.Logged.from_dataset(dataset, split), taken, options=ncis.Options(caps=()))
    returns = np.stack(list(ncis.values(shard).values()))
    unknown = np.full(len(returns), np.nan)
    return Evaluation(returns, unknown, unknown, unknown, "ncis")


def probabilities(dataset: LoggedDataset, policy: Policy, theta: Params, rows: Any) -> Float[np.ndarray, "K n"]:
    """π(a|s) of the logged actions of some rows, for each of K policies."""
    found = []
    for k in range(len(jax.tree.leaves(theta)[0])):
        own = jax.tree.map(lambda leaf, k=k: jnp.asarray(leaf[k]), theta)
        blocks = [rows[begin : begin + BLOCK] for begin in range(0, len(rows), BLOCK)]
        padded = [np.resize(block, BLOCK).astype(np.int32) for block in blocks]
        log_p = [np.asarray(_log_probs(policy, own, dataset.data, block)) for block in padded]
        found.append(np.exp(np.concatenate(log_p)[: len(rows)].astype(np.float64)))
    return np.stack(found)


@partial(jax.jit, static_argnames="policy")
def _log_probs(policy: Policy, theta: Params, data: Data, rows: Any) -> Any:
    x = states.features(data.tables, sampling.observation(data, rows))
    return jax.vmap(policy.log_prob, in_axes=(None, 0, 0))(theta, x, data.action[rows])
