"""Small problems as data: one compiled program serves all models, policies and starts of one shape.

Compiling costs seconds and a run of a small problem less than one: so the tables are arguments here, where the package
otherwise takes the model as a constant.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float, Int

from moac.momdp import FiniteMOMDP
from moac.types import Batch, Key, Observation, Params, Sampling

_NEVER = -1e9
"""Logit of an action that a problem does not have."""


@final
@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Problem:
    """A finite model with a policy π(a|s) ∝ exp(x(s, a)ᵀθ + o(s, a)); problems of one shape may be stacked.

    Attributes:
        next_state: successor of each outcome, as in `FiniteMOMDP`; likewise the next four.
        probability: of each outcome.
        reward: of each outcome.
        terminated: whether it ends the episode.
        initial: distribution of the first state.
        features: x.
        offset: o, very low where the problem lacks an action, else 0.
        theta: θ_1.
    """

    next_state: Int[Array, "S A O"]
    probability: Float[Array, "S A O"]
    reward: Float[Array, "S A O M"]
    terminated: Bool[Array, "S A O"]
    initial: Float[Array, " S"]
    features: Float[Array, "S A p"]
    offset: Float[Array, "S A"]
    theta: Float[Array, " p"]


def problem(model: FiniteMOMDP, features: Any = None, theta: Any = None) -> Problem:
    """A model with its policy; by default a table of logits that starts uniform."""
    S, A = model.num_states, model.num_actions
    x = np.eye(S * A).reshape(S, A, -1) if features is None else np.asarray(features, np.float64)
    start = np.zeros(x.shape[2]) if theta is None else np.asarray(theta, np.float64)
    tables: Any = (model.next_state, model.probability, model.reward, model.terminated, model.start_distribution)
    policy: Any = (x, np.zeros((S, A)), start)
    return Problem(*tables, *policy)


def stacked(problems: list[Problem]) -> Problem:
    """Problems of one shape along a leading axis."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *problems)


def padded(given: Problem, num_states: int, num_actions: int, num_parameters: int) -> Problem:
    """The same problem in a larger shape: states that are never visited, actions never taken, idle parameters."""
    S, A, p = given.features.shape
    more: Any = ((0, num_states - S), (0, num_actions - A))
    certain = np.pad(given.probability, (*more, (0, 0)))
    certain[..., 0] = np.where(certain.sum(axis=2) > 0, certain[..., 0], 1.0)
    fields: dict[str, Any] = {
        "next_state": np.pad(given.next_state, (*more, (0, 0))),
        "probability": certain,
        "reward": np.pad(given.reward, (*more, (0, 0), (0, 0))),
        "terminated": np.pad(given.terminated, (*more, (0, 0)), constant_values=True),
        "initial": np.pad(given.initial, more[0]),
        "features": np.pad(given.features, (*more, (0, num_parameters - p))),
        "offset": np.pad(given.offset, ((0, 0), more[1]), constant_values=_NEVER),
        "theta": np.pad(given.theta, (0, num_parameters - p)),
    }
    fields["offset"] = np.pad(fields["offset"], (more[0], (0, 0)))
    return replace(given, **fields)


def widened(given: Problem, num_outcomes: int) -> Problem:
    """The same problem with room for more outcomes, of probability 0."""
    more: Any = ((0, 0), (0, 0), (0, num_outcomes - given.probability.shape[2]))
    fields: dict[str, Any] = {
        name: np.pad(getattr(given, name), more) for name in ("next_state", "probability", "terminated")
    }
    return replace(given, **fields, reward=np.pad(given.reward, (*more, (0, 0))))  # type: ignore[arg-type]


def with_step(given: Problem, alpha: float) -> Problem:
    """The problem in which a step 1 is what a step α is in the given one, for √α θ: its features are √α x."""
    root: Any = np.sqrt(alpha)
    return replace(given, features=root * given.features, theta=given.theta / root)


@final
@dataclass(frozen=True, eq=False)
class LinearLogits:
    """The policy of a problem, for the algorithm."""

    problem: Problem

    def init(self, key: Key) -> Float[Array, " p"]:
        """θ_1."""
        del key
        return jnp.asarray(self.problem.theta, float)

    def sample(self, theta: Float[Array, " p"], observation: Observation, key: Key) -> Any:
        """a ~ π(·|s)."""
        return jax.random.categorical(key, self._logits(theta)[observation])

    def log_prob(self, theta: Float[Array, " p"], observation: Observation, action: Any) -> Float[Array, ""]:
        """log π(a|s)."""
        return jax.nn.log_softmax(self._logits(theta)[observation])[action]

    def tabulate(self, theta: Float[Array, " p"]) -> Float[Array, "S A"]:
        """π(a|s) for all states."""
        return jax.nn.softmax(self._logits(theta))

    def accumulate(
        self, theta: Float[Array, " p"], observation: Observation, action: Any, signal: Float[Array, "B M"]
    ) -> tuple[Params, ...]:
        """Σ_l signalⁱ_l ψ_l."""
        psi = self.scores(theta)[observation, action]
        return tuple(column @ psi for column in signal.T)

    def scores(self, theta: Float[Array, " p"]) -> Float[Array, "S A p"]:
        """ψ(s, a) = x(s, a) − Σ_b π(b|s) x(s, b)."""
        x = jnp.asarray(self.problem.features, theta.dtype)
        return x - jnp.einsum("sa,sap->sp", self.tabulate(theta), x)[:, None]

    def _logits(self, theta: Float[Array, " p"]) -> Float[Array, "S A"]:
        own = self.problem
        return jnp.asarray(own.features, theta.dtype) @ theta + jnp.asarray(own.offset, theta.dtype)


class _Step(NamedTuple):
    state: Any
    index: Any
    successor: Any


def walk(
    own: Problem, state: Int[Array, ""], theta: Params, key: Key, sizes: Sampling
) -> tuple[Int[Array, ""], Batch, Batch]:
    """As `FiniteMOMDP.sample`, but without age: the state after N·D + B transitions, and the two kinds of batches."""
    pi = LinearLogits(own).tabulate(theta)
    joint = (pi[:, :, None] * jnp.asarray(own.probability, pi.dtype)).reshape(len(pi), -1)
    cumulative = jnp.cumsum(joint, axis=1) / jnp.sum(joint, axis=1, keepdims=True)
    successor, terminated = own.next_state.reshape(len(pi), -1), own.terminated.reshape(len(pi), -1)
    starts = jnp.cumsum(jnp.asarray(own.initial, pi.dtype))
    restarts = 1.0 if sizes.survival is None else sizes.survival

    def step(s: Any, uniform: Any) -> tuple[Any, _Step]:
        index = jnp.sum(uniform[0] >= cumulative[s, :-1], dtype=jnp.int32)
        first = jnp.sum(uniform[1] * starts[-1] >= starts[:-1], dtype=jnp.int32)
        after = jnp.where(terminated[s, index] & sizes.average, first, successor[s, index])
        ends = terminated[s, index] | (uniform[2] >= restarts)
        return jnp.where(ends, first, after), _Step(s, index, after)

    state, seen = lax.scan(step, state, jax.random.uniform(key, (sizes.steps, 3)))
    reward = own.reward.reshape(*joint.shape, -1)[seen.state, seen.index]
    ended = None if sizes.average else terminated[seen.state, seen.index]
    action = seen.index // own.probability.shape[2]
    batch = Batch(seen.state, action, jnp.asarray(reward, pi.dtype), seen.successor, ended)
    cut, shape = sizes.steps - sizes.actor_batch_size, (sizes.num_critic_steps, sizes.critic_batch_size)
    critic = jax.tree.map(lambda x: x[:cut].reshape(*shape, *x.shape[1:]), batch)
    return state, critic, jax.tree.map(lambda x: x[cut:], batch)
