"""PDPG with actions one can enumerate: a critic per signal, one policy, and weights that seek the min-norm direction.

Pareto deterministic policy gradients (Chen et al., WWW 2021) have one critic per aspect of the reward and a shared
actor, whose per-aspect gradients g_i are weighted by w on the simplex; w takes one step of descent on ‖Σ w_i g_i‖²
where MGDA would solve it anew, which *reuses* weights across batches and lowers the bias of a solution to noisy
gradients; a supervised term keeps the actor near what was logged. Theirs is a deterministic actor because its action
is a vector in the space of item embeddings. With K actions the policy is a softmax, and the gradient sums over all:

    J_i(θ) = (1/B) Σ_s Σ_a π(a|s) Q_i(s, a),    g_i = ∇_θ J_i with Q_i held,    K = G Gᵀ,
    w ← Π_Δ(w − η K w / (tr K / M)),            θ ← θ + Adam(Σ w_i g_i + behaviour_pull · ∇_θ E_b log π).

½∇_w ‖Gᵀw‖² = K w; its size is that of the gradients squared, so η is counted in units of their mean. A fixed point of
the projected step is a min-norm point: see `step_of_weights`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jaxtyping import Float

from moac import simplex
from moac.logs.dataset import LoggedDataset
from moac.logs.states import Data
from moac.offline import baselines
from moac.offline.baselines import ActionValues, CriticState, Learned, Problem
from moac.policies.networks import Weights
from moac.types import Batch, Key


@dataclass(frozen=True, kw_only=True)
class Options(baselines.Options):
    """How PDPG learns; `baselines.Options` says what the others mean."""

    weight_step_size: float = 0.001  # η of the weights
    normalise: str = "l2"  # `l2` gives all g_i length one, as MOAC's option of that name; `none` leaves them


def train(dataset: LoggedDataset, options: Options | None = None, trials: int = 1, seed: int = 0) -> Learned:
    """Learn from the rows of train users of a log with propensities."""
    options = options or Options()
    numbers = (jnp.float32(options.weight_step_size), jnp.array(options.normalise == "l2"))
    learner = PDPG(Problem.of(dataset, options), *numbers)
    return baselines.learn(dataset, learner, (options.steps,), trials, seed)


class State(NamedTuple):
    """θ, w, the critic, and Adam's moments of θ."""

    theta: Weights
    weights: Float[Array, " M"]
    critic: CriticState
    moments: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PDPG:
    """The method on one log; weights start equal."""

    problem: Problem
    eta: Any  # of the weights
    normalised: Any  # whether gradients have length one

    @property
    def phases(self) -> tuple[Callable[[Data, State, Key], State], ...]:
        """One."""
        return (self.step,)

    def init(self, data: Data, key: Key) -> State:
        """Equal weights."""
        key_policy, key_critic = jax.random.split(key)
        theta, M = self.problem.first(data, key_policy), len(self.problem.scale)
        weights = jnp.full(M, 1 / M, jnp.float32)
        return State(theta, weights, self._critic.init(key_critic), self.problem.optimiser.init(theta))

    def step(self, data: Data, state: State, key: Key) -> State:
        """The critic, then the weights, then the policy, all on one batch."""
        batch = self.problem.draw(data, key)
        next_pi = jnp.exp(self.problem.log_pi(state.theta, batch.next_observation))
        critic = self._critic.updated(state.critic, batch, next_pi[:, None])
        G = self._gradients(state.theta, critic.w, batch)
        K = gram(G)
        scale = jnp.where(self.normalised, jax.lax.rsqrt(jnp.maximum(jnp.diagonal(K), 1e-20)), 1.0)
        w = step_of_weights(state.weights, scale[:, None] * K * scale, self.eta)
        kl = jax.grad(lambda theta: self.problem.regularisation(self._log_pi(theta, batch), batch))(state.theta)
        descent = jax.tree.map(lambda g, p: -(jnp.tensordot(w * scale, g, 1) + p), G, kl)
        change, moments = self.problem.optimiser.update(descent, state.moments)
        theta: Any = optax.apply_updates(state.theta, change)
        return State(theta, w, critic, moments)

    def _gradients(self, theta: Weights, w: Weights, batch: Batch) -> Weights:
        """g_i, as θ with a leading axis M: all actions of each state, as Q_i values them."""
        Q = self._critic(w, batch.observation)

        def objectives(theta: Weights) -> Float[Array, " M"]:
            return jnp.mean(jnp.sum(jnp.exp(self._log_pi(theta, batch))[:, None] * Q, axis=2), axis=0)

        return jax.jacrev(objectives)(theta)

    def _log_pi(self, theta: Weights, batch: Batch) -> Float[Array, "B K"]:
        return self.problem.log_pi(theta, batch.observation)

    @property
    def _critic(self) -> ActionValues:
        return ActionValues(self.problem, tuple(range(len(self.problem.scale))))


def gram(G: Weights) -> Float[Array, "M M"]:
    """K_ij = ⟨g_i, g_j⟩ over all layers."""
    flat = [layer.reshape(len(layer), -1) for layer in G]
    return sum((rows @ rows.T for rows in flat), jnp.zeros(()))


def step_of_weights(w: Float[Array, " M"], K: Float[Array, "M M"], eta: Any) -> Float[Array, " M"]:
    """w ← Π_Δ(w − η K w / (tr K / M)), Π_Δ the nearest point of the simplex.

    A fixed point has K w equal on the support of w and not smaller elsewhere: the conditions of the min-norm point.
    (Clipping at 0 and dividing by the sum, in place of Π_Δ, has its fixed points where K w is a multiple of w.)
    """
    size = jnp.trace(K) / len(w)
    return simplex.projection(w - eta * (K @ w) / jnp.where(size > 0, size, 1))
