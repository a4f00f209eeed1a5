"""Algorithm 1: the shared TD critic, for all objectives at once; linear in the paper."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float
from optax import GradientTransformation

from moac import beyond
from moac.config import Average
from moac.policies.features import Features
from moac.policies.networks import Network, Weights
from moac.settings import Settings
from moac.types import Batch, Critic, Key, Observation, Params

Mu = Float[Array, " M"]


@dataclass(frozen=True)
class LinearCritic:
    """Vⁱ(s) ≈ φ(s)ᵀwⁱ, one feature map for all objectives; w [d, M] starts at zero."""

    features: Features
    num_objectives: int

    def init(self, key: Key) -> Float[Array, "d M"]:
        """w_0 = 0."""
        del key
        return jnp.zeros((self.features.size, self.num_objectives))

    def values(self, w: Float[Array, "d M"], observation: Observation) -> Float[Array, "... M"]:
        """φ(s)ᵀw."""
        return self.features.apply(w, observation)


@dataclass(frozen=True)
class MLPCritic:
    """Vⁱ(s) ≈ output i of a network with M heads: outside the theory, which needs φ(s)ᵀwⁱ."""

    network: Network

    def init(self, key: Key) -> Weights:
        """Random weights; values near 0."""
        return self.network.init(key)

    def values(self, w: Weights, observation: Observation) -> Float[Array, "... M"]:
        """The network's outputs."""
        return self.network(w, observation)


@dataclass(frozen=True)
class TD:
    """TD errors and TD steps in one of the two settings."""

    critic: Critic  # the value function
    settings: Settings  # of the run
    gamma: tuple[float, ...]  # γ [M]; ones in the average setting

    @cached_property
    def steps(self) -> GradientTransformation:
        """How w moves along a TD direction."""
        settings = self.settings
        return beyond.steps(settings.critic_optimiser, settings.critic_step_size, settings.gradient_clip)

    def learn(self, w: Params, mu: Mu, optimiser: Any, batches: Batch) -> tuple[Params, Mu, Any]:
        """Algorithm 1: N mini-batch TD steps, w ← w + (β/D) Σ_τ δ_τ φ(s_τ)."""
        beta, D = self.settings.critic_step_size, self.settings.critic_batch_size

        def step(carry: tuple[Params, Mu, Any], batch: Batch) -> tuple[tuple[Params, Mu, Any], None]:
            w, mu, optimiser = carry
            V, transpose = jax.vjp(lambda w: self.critic.values(w, batch.observation), w)
            delta, mu = self._errors(w, V, mu, batch, beta)
            ascent, optimiser = self.steps.update(transpose(delta / D)[0], optimiser)
            return (jax.tree.map(jnp.add, w, ascent), mu, optimiser), None

        return lax.scan(step, (w, mu, optimiser), batches)[0]

    def errors(self, w: Params, mu: Mu, batch: Batch) -> tuple[Float[Array, "B M"], Mu]:
        """δ of the actor's batch, and μ after it."""
        V = self.critic.values(w, batch.observation)
        return self._errors(w, V, mu, batch, self.settings.actor_step_size)

    def level_and_rewards(self, w: Params, mu: Mu, batch: Batch) -> tuple[Float[Array, " M"], Float[Array, "B M"]]:
        """What a rule may see beside gradients: the level, and the batch's rewards."""
        return self.level(w, mu, batch), batch.reward

    def level(self, w: Params, mu: Mu, batch: Batch) -> Float[Array, " M"]:
        """Reward per step that the policy is expected to earn: μⁱ, or (1 − γⁱ) (1/B) Σ φ(s)ᵀwⁱ.

        Over the states of the stationary law the second is the first: E[Vⁱ] = E[rⁱ] + γⁱ E[Vⁱ].
        """
        if isinstance(self.settings.setting, Average):
            return mu
        V = self.critic.values(w, batch.observation)
        return (1 - jnp.asarray(self.gamma, V.dtype)) * jnp.mean(V, axis=0)

    def _errors(
        self, w: Params, V: Float[Array, "B M"], mu: Mu, batch: Batch, step_size: float
    ) -> tuple[Float[Array, "B M"], Mu]:
        """δⁱ = ρ (rⁱ + γⁱ φ(s')ᵀwⁱ − φ(s)ᵀwⁱ), and in the average setting − μⁱ with γ = 1; ρ = 1 on-policy."""
        V_next = self.critic.values(w, batch.next_observation)
        if not isinstance(self.settings.setting, Average):
            if batch.terminated is not None:
                V_next = jnp.where(batch.terminated[:, None], 0, V_next)
            delta = batch.reward + jnp.asarray(self.gamma, V.dtype) * V_next - V
            return delta if batch.weight is None else batch.weight[:, None] * delta, mu
        if self.settings.mu == "paper":
            mus = running_mean(mu, batch.reward, step_size)
            return batch.reward - mus + V_next - V, mus[-1]
        c = self.settings.average_step_size
        return batch.reward - mu + V_next - V, (1 - c) * mu + c * jnp.mean(batch.reward, axis=0)


def running_mean(mu: Mu, reward: Float[Array, "B M"], c: float) -> Float[Array, "B M"]:
    """μ_τ = (1 − c) μ_{τ−1} + c r_τ for τ = 1 … B: the paper's recursion, which moves μ before δ uses it."""
    return beyond.recurrence(jnp.full((len(reward), 1), 1 - c, reward.dtype), c * reward, mu)
