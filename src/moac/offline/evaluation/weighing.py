"""Policies on the rows of a log, block by block: all actions' probabilities are never in memory for all rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from moac.logs.dataset import LoggedDataset
from moac.offline import ncis
from moac.offline.ncis import Logged, Shard
from moac.offline.reward_model import RewardModel
from moac.policies import SoftmaxMLP
from moac.types import Params, Policy

Method = tuple[Policy, Params]
"""A kind of policy, and the parameters of its training seeds: leading axis K."""
BASELINE = "Behavior-Clone"
"""The policy that made the log, as far as it is known."""
_BLOCK = 2048
_NUMBERS = 1 << 24
"""Probabilities that are in memory at once."""


@final
@dataclass(frozen=True, eq=False)
class Weighing:
    """What is to be weighed.

    Attributes:
        dataset: whose behaviour model is Behavior-Clone.
        methods: by name.
        signals: names of those that fire.
        model: for doubly robust estimates; None is none.
        options: of the estimate.
    """

    dataset: LoggedDataset
    methods: Mapping[str, Method]
    signals: Sequence[str]
    model: RewardModel | None
    options: ncis.Options

    def log(self, rows: Any) -> tuple[Shard, dict[str, Float[np.ndarray, "K n"]]]:
        """Sums over rows of the log, and each policy's weight π/π_b on them."""
        return self._over(self.dataset, rows, self.model, self.options)

    def random(self, rows: Any) -> Shard | None:
        """The same over rows of random exposure; None where none of the policies can be weighed there."""
        source = self.dataset.random
        return None if source is None else self._over(source, rows, None, ncis.uncapped(self.options))[0]

    def _over(self, source: LoggedDataset, rows: Any, model: Any, options: ncis.Options) -> tuple[Shard, Any]:
        seeds = 1 + sum(count(theta) for _, theta in self.methods.values())
        size = max(_BLOCK, _NUMBERS // (self.dataset.num_actions * seeds))
        blocks = [rows[begin : begin + size] for begin in range(0, len(rows), size)]
        found = [self._block(source, block, model, options) for block in blocks]
        weights = {name: np.concatenate([one[1][name] for one in found], axis=1) for name in found[0][1]}
        return _merged([shard for shard, _ in found]), weights

    def _block(self, source: LoggedDataset, rows: Any, model: Any, options: ncis.Options) -> tuple[Shard, Any]:
        log = logged(source, rows).signals(self.signals)
        x = features(source, rows)
        policies = {BASELINE: self._baseline(source, log, x)} if self._known(source) else {}
        policies |= {name: tables(method, x, self.dataset.num_actions) for name, method in self.methods.items()}
        q = None if model is None else lambda chosen: model.values(x[chosen])
        weights = {name: np.stack([log.importance_ratio(name, one) for one in own]) for name, own in policies.items()}
        return ncis.accumulate(log, policies, q, options), weights

    def _known(self, source: LoggedDataset) -> bool:
        """Whether Behavior-Clone can be weighed: on rows of random exposure only as a model."""
        return source is self.dataset or self.dataset.behaviour is not None

    def _baseline(self, source: LoggedDataset, log: Logged, x: Any) -> list[Any]:
        """Behavior-Clone; on the log's own rows its probabilities of what was logged are the propensities."""
        model = self.dataset.behaviour
        if model is None:
            return [log.propensity]
        policy = SoftmaxMLP(model.network.inputs, model.network.hidden, model.network.outputs)
        (table,) = tables((policy, tuple(W[None] for W in model.clone)), x, model.network.outputs)
        if source is self.dataset:
            table[np.arange(len(table)), log.action] = log.propensity
        return [table]


def logged(source: LoggedDataset, rows: Any) -> Logged:
    """Some rows, checked."""
    if source.propensity is None:
        raise ValueError(
            f"{source.name} does not say how it chose: fit a model and give it, "
            "dataset.with_behaviour(moac.offline.behaviour.fit(dataset))."
        )
    user = source.user_ids[source.user[rows]]
    return Logged.of(user, source.reward[rows], source.propensity[rows], source.action[rows], source.signal_names)


def features(source: LoggedDataset, rows: Any) -> Float[np.ndarray, "n F"]:
    """What policies see of the rows."""
    blocks = [rows[begin : begin + _BLOCK] for begin in range(0, len(rows), _BLOCK)]
    found = [np.asarray(source.features(source.observation(np.resize(block, _BLOCK)))) for block in blocks]
    return np.concatenate(found)[: len(rows)]


def tables(method: Method, x: Float[np.ndarray, "n F"], num_actions: int) -> list[Float[np.ndarray, "n K"]]:
    """π(·|s) of each training seed."""
    policy, theta = method
    padded = np.concatenate([x, np.zeros((-len(x) % _BLOCK, x.shape[1]), x.dtype)])
    found = []
    for k in range(count(theta)):
        own = jax.tree.map(lambda leaf, k=k: jnp.asarray(leaf[k]), theta)
        blocks = [_table(policy, own, padded[b : b + _BLOCK], num_actions) for b in range(0, len(x), _BLOCK)]
        found.append(np.concatenate([np.asarray(block) for block in blocks])[: len(x)].astype(np.float64))
    return found


def count(theta: Params) -> int:
    """Training seeds."""
    return len(jax.tree.leaves(theta)[0])


@partial(jax.jit, static_argnames=("policy", "num_actions"))
def _table(policy: Policy, theta: Params, x: Any, num_actions: int) -> Any:
    of_row = jax.vmap(policy.log_prob, in_axes=(None, None, 0))
    return jnp.exp(jax.vmap(of_row, in_axes=(None, 0, None))(theta, x, jnp.arange(num_actions)))


def _merged(shards: list[Shard]) -> Shard:
    """Neighbours first: each user's sums are copied few times."""
    while len(shards) > 1:
        shards = [a + b for a, b in zip(shards[::2], shards[1::2], strict=False)] + shards[len(shards) & ~1 :]
    return shards[0]
