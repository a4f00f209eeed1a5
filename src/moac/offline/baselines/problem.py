"""What a learner knows of a log, apart from its rows, and how it draws them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jaxtyping import Float

from moac.logs import sampling
from moac.logs.dataset import LoggedDataset
from moac.logs.sampling import Data
from moac.offline.baselines.options import Common
from moac.policies import SoftmaxMLP
from moac.policies.networks import Network, Plain, Weights
from moac.types import Batch, Key

_HIDDEN = (64,)


class Rates(NamedTuple):
    """Numbers that are arguments of a compiled program, so that it serves all of them; as in `Common`."""

    step_size: Any
    critic_step_size: Any
    critic_weight_decay: Any
    target_step_size: Any
    discount: Any
    behaviour_pull: Any


@final
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Problem:
    """What a learner knows of a log, apart from its rows; a pytree.

    Attributes:
        rates: step sizes and coefficients.
        scale: [M] what each signal is divided by.
        mean: [M] of each signal over train rows, scaled.
        policy: of all learners alike, and of MOAC.
        behaviour: the network that models how the log chose; None where nothing does.
        batch_size: rows of a step.
        start: `behaviour` or `random`.
    """

    rates: Rates
    scale: Float[Array, " M"]
    mean: Float[Array, " M"]
    policy: SoftmaxMLP = field(metadata={"static": True})
    behaviour: Network | None = field(metadata={"static": True})
    batch_size: int = field(metadata={"static": True})
    start: str = field(metadata={"static": True})

    @property
    def num_signals(self) -> int:
        """M."""
        return len(self.scale)

    def first(self, data: Data, key: Key) -> Weights:
        """θ of the behaviour model, or at random."""
        return data.behaviour if self.start == "behaviour" else self.policy.init(key)

    @property
    def steps(self) -> optax.GradientTransformation:
        """Adam, for policies."""
        return optax.adam(self.rates.step_size)

    def draw(self, data: Data, key: Key) -> Batch:
        """Rows of train users, uniformly with replacement, with scaled rewards."""
        rows = data.train[jax.random.randint(key, (self.batch_size,), 0, len(data.train))]
        batch = sampling.seen(data, sampling.transitions(data, rows))
        log_b = (
            None if self.behaviour is None else jax.nn.log_softmax(self.behaviour(data.behaviour, batch.observation))
        )
        return replace(batch, reward=batch.reward / self.scale, behaviour_log_probs=log_b)

    def log_pi(self, theta: Weights, x: Float[Array, "B F"]) -> Float[Array, "B K"]:
        """log π(·|s)."""
        return jax.nn.log_softmax(self.policy.logits(theta, x))

    def supervised(self, log_pi: Float[Array, "B K"], batch: Batch) -> Float[Array, ""]:
        """behaviour_pull · (1/B) Σ E_{a∼b} log π(a|s): −KL(b‖π) but for a constant; as logged without a model."""
        if batch.behaviour_log_probs is None:
            taken = jnp.take_along_axis(log_pi, batch.action[:, None], axis=1)
            return self.rates.behaviour_pull * jnp.mean(taken)
        return self.rates.behaviour_pull * jnp.mean(jnp.sum(jnp.exp(batch.behaviour_log_probs) * log_pi, axis=1))


def of(dataset: LoggedDataset, options: Common) -> Problem:
    """The problem of a dataset, checked."""
    if not len(dataset.rows("train")):
        raise ValueError(f"{dataset.name} has no rows of train users: a policy is learned from them.")
    if dataset.num_signals < 2:
        raise ValueError(f"{dataset.name} has one signal only: there is nothing to weigh.")
    model = None if dataset.behaviour is None else dataset.behaviour.network
    usual = _HIDDEN if model is None else model.hidden
    hidden = usual if options.hidden is None else options.hidden
    if options.start == "behaviour" and (model is None or model.hidden != hidden):
        found = "has no behaviour model" if model is None else f"has one with hidden={list(model.hidden)}"
        raise ValueError(f"`start` must be random, or as the behaviour model: {dataset.name} {found}.")
    scale, mean = _moments(dataset, options.scale_rewards)
    policy = SoftmaxMLP(Plain(dataset.num_features), hidden, dataset.num_actions)
    rates = Rates(*(jnp.float32(getattr(options, name)) for name in Rates._fields))
    return Problem(rates, scale, mean, policy, model, options.batch_size, options.start)


def _moments(dataset: LoggedDataset, scaled: bool) -> tuple[Any, Any]:
    """Standard deviations, 1 where a signal does not vary, and means in units of them."""
    reward = dataset.reward[dataset.rows("train")].astype(np.float64)
    spread = reward.std(axis=0)
    scale = np.where(spread > 0, spread, 1.0) if scaled else np.ones_like(spread)
    return jnp.float32(scale), jnp.float32(reward.mean(axis=0) / scale)
