"""Critics of all actions at once: Qⁱ(s, a) for every signal and every action, from one network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jaxtyping import Float

from moac.offline.baselines.problem import Problem
from moac.policies.networks import Network, Weights
from moac.types import Batch, Key


class Fit(NamedTuple):
    """A critic while it learns.

    Attributes:
        w: its weights.
        held: those of the target network.
        moments: Adam's.
    """

    w: Weights
    held: Weights
    moments: Any


@final
@dataclass(frozen=True)
class ActionValues:
    """Qⁱ(s, a) = vⁱ(s) + uⁱ(s, a), M·(1 + K) outputs of one network like the policy's.

    A state's value vⁱ is an output of its own (Wang et al., *Dueling Network Architectures*, 2016), and begins at what
    the log earns, r̄ⁱ/(1 − γ): else actions that the log takes often would seem better for having been updated often.

    Attributes:
        problem: of the log.
        signals: which of its signals.
    """

    problem: Problem
    signals: tuple[int, ...]

    @property
    def network(self) -> Network:
        """Gives v and u, signal by signal; differences between actions begin near 0."""
        policy = self.problem.policy
        return Network(policy.inputs, policy.hidden, len(self.signals) * (1 + policy.num_actions), last_scale=0.01)

    def init(self, key: Key) -> Fit:
        """Values at what the log earns."""
        *others, last = self.network.init(key)
        earned = self.problem.mean[jnp.array(self.signals)] / (1 - self.problem.rates.discount)
        w = (*others, last.at[-1, :: 1 + self.problem.policy.num_actions].set(earned))
        return Fit(w, w, self._steps.init(w))

    def __call__(self, w: Weights, x: Float[Array, "B F"]) -> Float[Array, "B M K"]:
        """Qⁱ(s, ·)."""
        outputs = self.network(w, x).reshape(len(x), len(self.signals), -1)
        return outputs[..., :1] + outputs[..., 1:]

    def updated(self, fit: Fit, batch: Batch, next_pi: Float[Array, "B M K"]) -> Fit:
        """A step of Adam on the squared TD errors, and the target network's.

        y_i = r_i + γ (1 − terminated) Σ_a π_i(a|s') Q̄_i(s', a), with the target network's Q̄;  ½ Σ_i (Q_i(s, a) − y_i)²
        mean over the batch. π_i may be one policy for all signals [B, 1, K]. Expected over a' ~ π_i and conditioned on
        the logged a, it needs no importance ratio.
        """
        following = jnp.sum(next_pi * self(fit.held, batch.next_observation), axis=-1)
        alive = 1.0 if batch.terminated is None else 1.0 - batch.terminated[:, None]
        y = batch.reward[:, jnp.array(self.signals)] + self.problem.rates.discount * alive * following

        def loss(w: Weights) -> Float[Array, ""]:
            taken = jnp.take_along_axis(self(w, batch.observation), batch.action[:, None, None], axis=2)[..., 0]
            return 0.5 * jnp.mean(jnp.sum((taken - y) ** 2, axis=1))

        change, moments = self._steps.update(jax.grad(loss)(fit.w), fit.moments, fit.w)
        w = optax.apply_updates(fit.w, change)
        held = optax.incremental_update(w, fit.held, self.problem.rates.target_step_size)
        return Fit(w, held, moments)  # pyright: ignore[reportArgumentType]

    @property
    def _steps(self) -> optax.GradientTransformation:
        rates = self.problem.rates
        return optax.adamw(rates.critic_step_size, weight_decay=rates.critic_weight_decay)
