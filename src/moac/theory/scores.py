"""Scores ψ = ∇ log π of many steps: sums Σ weight ψ, slopes ψ·v, and the metric F̂ + ζI, without forming any ψ."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
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
from moac.types import Batch, Params, Policy

Steps = tuple[Any, Any]
"""Observations and actions, leading axis [N]."""
_SHORT = 1 << 11
"""Groups of up to so many steps are summed by one call."""
_CHUNK = 1 << 14
"""Steps that go through the policy at once."""
_FISHER_STEPS, _FISHER_NUMBERS = 1 << 10, 1 << 27
"""Steps that the metric is estimated from, at most; fewer where their scores would be more numbers than this."""
_TOLERANCE, _MOST_STEPS = 1e-4, 50
"""Of conjugate gradients."""


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores of one policy; θ and directions are flat vectors [P], in the order of `ravel_pytree`."""

    policy: Policy
    theta: Params

    @cached_property
    def size(self) -> int:
        """P."""
        return sum(leaf.size for leaf in jax.tree.leaves(self.theta))

    def total(self, x: Steps, weights: Float[np.ndarray, "N K"]) -> Float[np.ndarray, "K P"]:
        """Σ_l weight_lk ψ_l, K sums at the cost of little more than one where the policy has factors."""
        total = np.zeros((weights.shape[1], self.size), np.float32)
        for part, w, _ in _chunks(x, weights.astype(np.float32)):
            total += np.asarray(_total(self.policy, self.theta, *part, w))
        return total

    def totals(self, x: Steps, signal: Float[np.ndarray, " N"], edges: Int[np.ndarray, " G+1"]) -> Any:
        """Σ_l signal_l ψ_l over the steps of each group [G, P], which are those between two edges."""
        longest = int(np.diff(edges).max())
        if longest > _SHORT:
            pairs = itertools.pairwise(edges.tolist())
            return np.concatenate([self.total(_rows(x, slice(a, b)), signal[a:b, None]) for a, b in pairs])
        places = np.arange(1 << max((longest - 1).bit_length(), 6))
        rows = np.minimum(edges[:-1, None] + places, len(signal) - 1)
        weights = np.where(places < np.diff(edges)[:, None], signal[rows], 0).astype(np.float32)
        return np.asarray(_totals(self.policy, self.theta, *_rows(x, rows), weights))

    def slopes(self, x: Steps, v: Float[np.ndarray, " P"]) -> Float[np.ndarray, " N"]:
        """ψ_l·v of each step, by one forward derivative."""
        direction = jnp.asarray(v, jnp.float32)
        parts = _chunks(x, np.zeros((len(x[1]), 0), np.float32))
        return np.concatenate(
            [np.asarray(_slopes(self.policy, self.theta, *part, direction))[:n] for part, _, n in parts]
        )


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
        """From at most the first 1,024 steps; along what they do not visit the metric is ζI."""
        first = slice(0, max(min(_FISHER_STEPS, _FISHER_NUMBERS // scores.size), 64))
        ((x, padded, _),) = _chunks(_rows(x, first), weight[first, None].astype(np.float32))
        signs = np.random.default_rng(0).choice([-1.0, 1.0], (4, scores.size)).astype(np.float32)
        slopes = jax.vmap(partial(_slopes, scores.policy, scores.theta, *x))(jnp.asarray(signs))
        return cls(scores, x, padded[:, 0], float((np.asarray(slopes) ** 2 @ padded[:, 0]).mean()), signs)

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


def _chunks(x: Steps, weights: Any) -> Iterator[tuple[Steps, Any, int]]:
    """Steps in chunks whose sizes are powers of two, so that few programs are compiled; padded rows have weight 0."""
    for first in range(0, len(weights), _CHUNK):
        n = min(_CHUNK, len(weights) - first)
        size = max(1 << (n - 1).bit_length(), 64)
        rows = first + np.minimum(np.arange(size), n - 1)
        w = np.where(np.arange(size)[:, None] < n, weights[rows], 0)
        yield _rows(x, rows), w, n


@partial(jax.jit, static_argnums=0)
def _total(policy: Policy, theta: Params, observation: Any, action: Any, weights: Float[Array, "N K"]) -> Any:
    g = actor.of_samples(policy, theta, Batch(observation, action, weights, observation), weights)
    return jnp.stack([ravel_pytree(g.mix(one))[0] for one in jnp.eye(weights.shape[1], dtype=weights.dtype)])


@partial(jax.jit, static_argnums=0)
def _totals(policy: Policy, theta: Params, observation: Any, action: Any, signal: Float[Array, "G N"]) -> Any:
    return lax.map(lambda x: _total(policy, theta, *x[:2], x[2][:, None])[0], (observation, action, signal))


@partial(jax.jit, static_argnums=0)
def _slopes(policy: Policy, theta: Params, observation: Any, action: Any, v: Float[Array, " P"]) -> Any:
    def log_pi(theta: Params) -> Any:
        return jax.vmap(policy.log_prob, in_axes=(None, 0, 0))(theta, observation, action)

    return jax.jvp(log_pi, (theta,), (ravel_pytree(theta)[1](v),))[1]


@partial(jax.jit, static_argnums=0)
def _solve(policy: Policy, theta: Params, steps: Any, rows: Float[Array, "K P"]) -> Any:
    observation, action, weight, zeta = steps

    def apply(v: Any) -> Any:
        along = weight * _slopes(policy, theta, observation, action, v)
        return _total(policy, theta, observation, action, along[:, None])[0] + zeta * v

    def solve(row: Any) -> Any:
        scale = jnp.maximum(jnp.max(jnp.abs(row)), jnp.finfo(row.dtype).tiny)
        return scale * cg(apply, row / scale, tol=_TOLERANCE, maxiter=_MOST_STEPS)[0]

    return lax.map(solve, rows, batch_size=8)
