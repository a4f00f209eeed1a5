"""Scores ψ = ∇ log π of many steps: sums Σ weight ψ, slopes ψ·v, and the metric F̂ + ζI, without forming any ψ."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.flatten_util import ravel_pytree
from jax.scipy.sparse.linalg import cg
from jaxtyping import Float, Int

from moac import actor
from moac.compiling import kept_for_few
from moac.types import Batch, Params, Policy

Steps = tuple[Any, Any]
"""Observations and actions, leading axis [N]."""
_CHUNK = 1 << 14  # steps that go through the policy at once
_FISHER_STEPS, _FISHER_NUMBERS = 1 << 10, 1 << 27
"""Steps that the metric is estimated from, at most; fewer where their scores would be more numbers than this."""
_TOLERANCE, _MOST_STEPS = 1e-4, 50  # of conjugate gradients


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores of one policy; θ and directions are flat vectors [P], in the order of `ravel_pytree`."""

    policy: Policy
    theta: Params

    @cached_property
    def size(self) -> int:
        """P."""
        return sum(leaf.size for leaf in jax.tree.leaves(self.theta))

    def sums(self, x: Steps, weights: Float[np.ndarray, "N K"], edges: Int[np.ndarray, " G+1"]) -> Any:
        """Σ_l weight_lk ψ_l over the steps of each group [G, K, P], which are those between two edges.

        K sums cost little more than one where the policy has factors.
        """
        rows, inside = _padded(edges)
        padded = np.where(inside[..., None], weights[rows], 0).astype(np.float32)
        return np.asarray(_sums(self.policy, self.theta, *_rows(x, rows), padded))

    def slopes(self, x: Steps, v: Float[np.ndarray, " P"]) -> Float[np.ndarray, " N"]:
        """ψ_l·v of each step, by one forward derivative."""
        N = len(x[1])
        rows, inside = _padded(np.append(np.arange(0, N, _CHUNK), N))
        slopes = _slopes_of(self.policy, self.theta, *_rows(x, rows), jnp.asarray(v, jnp.float32))
        return np.asarray(slopes)[inside]


@dataclass(frozen=True, eq=False)
class Metric:
    """H = F̂ + ζI with F̂ = (1/E) Σ_l weight_l ψ_l ψ_lᵀ: lengths in units of how much the policy changes."""

    scores: Scores  # of the policy
    x: Steps  # of the steps of F̂
    weight: Float[np.ndarray, " N"]  # of each step, over E
    trace: float  # tr F̂, by Hutchinson's estimate; ζ is a hundredth of its mean eigenvalue
    signs: Float[np.ndarray, "4 P"]  # random ones, of that estimate

    @classmethod
    def of(cls, scores: Scores, x: Steps, weight: Float[np.ndarray, " N"]) -> Metric:
        """From at most 1,024 steps, evenly spread; along what they do not visit the metric is ζI."""
        N = len(weight)
        count = min(N, max(min(_FISHER_STEPS, _FISHER_NUMBERS // scores.size), 64))
        rows, inside = _padded(np.array([0, count]))
        some = (rows[0] * (N / count)).astype(int)
        x, w = _rows(x, some), np.where(inside[0], weight[some] * (N / count), 0).astype(np.float32)
        signs = np.random.default_rng(0).choice([-1.0, 1.0], (4, scores.size)).astype(np.float32)
        slopes = jax.vmap(partial(_slopes, scores.policy, scores.theta, *x))(jnp.asarray(signs))
        return cls(scores, x, w, float((np.asarray(slopes) ** 2 @ w).mean()), signs)

    @property
    def zeta(self) -> float:
        """ζ."""
        return 0.01 * self.trace / self.scores.size or 1.0

    @cached_property
    def rank(self) -> float:
        """tr F̂H⁻¹ = P − ζ tr H⁻¹: the mean of ψᵀH⁻¹ψ over an episode, by Hutchinson's estimate."""
        return float(self.scores.size - self.zeta * (self.signs * self.solve(self.signs)).sum(axis=1).mean())

    def solve(self, rows: Float[np.ndarray, "K P"]) -> Float[np.ndarray, "K P"]:
        """H⁻¹ of each row, by conjugate gradients."""
        steps = (*self.x, self.weight, self.zeta)
        return np.asarray(_solve(self.scores.policy, self.scores.theta, steps, jnp.asarray(rows, jnp.float32)))


def _rows(x: Steps, rows: Any) -> Steps:
    return jax.tree.map(lambda leaf: leaf[rows], x)


def _padded(edges: Int[np.ndarray, " G+1"]) -> tuple[Int[np.ndarray, "G L"], Any]:
    """Steps of each group, and which are no padding; L is a power of two, so that few programs are compiled."""
    lengths = np.diff(edges)
    places = np.arange(1 << max((int(lengths.max()) - 1).bit_length(), 6))
    return np.minimum(edges[:-1, None] + places, edges[-1] - 1), places < lengths[:, None]


def _sum(policy: Policy, theta: Params, observation: Any, action: Any, weights: Float[Array, "N K"]) -> Any:
    g = actor.of_samples(policy, theta, Batch(observation, action, weights, observation), weights)
    return jnp.stack([ravel_pytree(g.mix(one))[0] for one in jnp.eye(weights.shape[1], dtype=weights.dtype)])


@kept_for_few(1)
def _sums(policy: Policy, theta: Params, observation: Any, action: Any, weights: Float[Array, "G N K"]) -> Any:
    return lax.map(lambda x: _sum(policy, theta, *x), (observation, action, weights))


@kept_for_few(1)
def _slopes(policy: Policy, theta: Params, observation: Any, action: Any, v: Float[Array, " P"]) -> Any:
    def log_pi(theta: Params) -> Any:
        return jax.vmap(policy.log_prob, in_axes=(None, 0, 0))(theta, observation, action)

    return jax.jvp(log_pi, (theta,), (ravel_pytree(theta)[1](v),))[1]


@kept_for_few(1)
def _slopes_of(policy: Policy, theta: Params, observation: Any, action: Any, v: Float[Array, " P"]) -> Any:
    return lax.map(lambda x: _slopes(policy, theta, *x, v), (observation, action))


@kept_for_few(1)
def _solve(policy: Policy, theta: Params, steps: Any, rows: Float[Array, "K P"]) -> Any:
    observation, action, weight, zeta = steps

    def apply(v: Any) -> Any:
        along = weight * _slopes(policy, theta, observation, action, v)
        return _sum(policy, theta, observation, action, along[:, None])[0] + zeta * v

    def solve(row: Any) -> Any:
        scale = jnp.maximum(jnp.max(jnp.abs(row)), jnp.finfo(row.dtype).tiny)
        return scale * cg(apply, row / scale, tol=_TOLERANCE, maxiter=_MOST_STEPS)[0]

    return lax.map(solve, rows, batch_size=8)
