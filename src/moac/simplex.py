"""The min-norm point of a convex hull: λ̂ = argmin over the simplex of ‖Σᵢ λᵢ gⁱ‖², solved exactly.

The quadratic programme of the actor step, and the definition of the stationarity gap. It is turned into
non-negative least squares and solved by an active set that adds or drops one index at a time (Lawson & Hanson,
*Solving Least Squares Problems*, 1974, ch. 23).

With norms nᵢ = ‖gⁱ‖, the smallest of them w and qᵢ = w/nᵢ, put one more coordinate of value w under every gⁱ and
scale the columns to length one. Then

    min over y ≥ 0 of ½ yᵀA y − bᵀy,    Aᵢⱼ = (cos(gⁱ, gʲ) + qᵢqⱼ) / √((1+qᵢ²)(1+qⱼ²)),    bᵢ = qᵢ / √(1+qᵢ²),

has λ̂ ∝ b∘y: for a fixed total s of the weights the best value is s²f* + w²(s−1)², so the extra coordinate only
fixes s, and non-negativity survives the scaling of columns. A has a unit diagonal whatever the norms, which
keeps gradients of size 1e-8 beside others of size 1e8 exact.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from moac import active_set


class MinNorm(NamedTuple):
    """The min-norm point and how well it solves the problem.

    Attributes:
        weights: λ̂ [M], non-negative, sums to one. NaN where the input was not finite.
        direction: Σ λ̂ᵢ gⁱ [P], or None when only the Gram matrix was given.
        squared_norm: ‖Σ λ̂ᵢ gⁱ‖².
        kkt_residual: max over i of (‖d‖² − ⟨gⁱ, d⟩)₊ / (‖gⁱ‖ ‖d‖), 0 at the exact solution; where d is too short
            to have an accurate angle (a Pareto-stationary point), ‖d‖² relative to (Σ λ̂ᵢ‖gⁱ‖)².
    """

    weights: Any
    direction: Any
    squared_norm: Any
    kkt_residual: Any


def min_norm(G: Any) -> MinNorm:
    """The shortest vector in the convex hull of the rows of `G`.

    Args:
        G: [..., M, P], one gradient per row. A JAX array is solved in its own dtype, under any transformation;
            anything else is solved in float64 and answered in NumPy.

    Raises:
        ValueError: if `G` is a NumPy array (or a list) that is not finite or has no rows. JAX arrays with
            non-finite entries give NaN weights instead.
    """
    return _dispatch(_from_rows, "G", G)


def min_norm_from_gram(K: Any) -> MinNorm:
    """As `min_norm`, from the Gram matrix K = G Gᵀ, [..., M, M]. The direction is None."""
    if np.ndim(K) >= 2 and np.shape(K)[-1] != np.shape(K)[-2]:
        raise ValueError(f"`K` must be square, got shape {np.shape(K)}.")
    return _dispatch(_from_gram, "K", K)


def projection(x: Float[Array, " M"]) -> Float[Array, " M"]:
    """Π_Δ(x) = argmin over the simplex of ‖λ − x‖: (xᵢ − τ)₊ with the τ that makes the sum one (Held et al., 1974).

    NaN where x is not finite.
    """
    x = jnp.where(jnp.all(jnp.isfinite(x)), x, jnp.nan)  # all of them: XLA's max of a large batch drops one NaN
    x = x - jnp.max(x)
    taus = (jnp.cumsum(-jnp.sort(-x)) - 1) / jnp.arange(1, len(x) + 1)
    return jnp.maximum(x - jnp.max(taus), 0)  # of the k largest, τ_k rises while they stay above it and falls after


def _dispatch(solve: Any, name: str, values: Any) -> MinNorm:
    """Solve over all leading axes: JAX arrays as they are, all else as NumPy in float64."""
    if isinstance(values, Array):
        _check_axes(name, values.shape)
        return _batched(solve, values)
    table = np.asarray(values, dtype=np.float64)
    _check_axes(name, table.shape)
    for index in np.argwhere(~np.isfinite(table))[:1]:
        where = tuple(int(i) for i in index)
        raise ValueError(f"`{name}` must be finite, got {table[where]} at index {where}.")
    flat = table.reshape(-1, *table.shape[-2:])
    padding = (1 << (len(flat) - 1).bit_length()) - len(flat) if len(flat) else 1  # few shapes, few compilations
    padded = np.concatenate([flat, np.ones((padding, *flat.shape[1:]))])
    with jax.enable_x64(True):
        solution = _batched(solve, jnp.asarray(padded))
    return jax.tree.map(lambda x: np.asarray(x)[: len(flat)].reshape((*table.shape[:-2], *x.shape[1:])), solution)


def _check_axes(name: str, shape: tuple[int, ...]) -> None:
    if len(shape) < 2 or shape[-2] == 0:
        raise ValueError(f"`{name}` must have two axes or more and at least one row, got shape {shape}.")


@partial(jax.jit, static_argnums=0)
def _batched(solve: Any, values: Float[Array, "..."]) -> MinNorm:
    flat = values.reshape(-1, *values.shape[-2:])
    return jax.tree.map(lambda x: x.reshape((*values.shape[:-2], *x.shape[1:])), jax.vmap(solve)(flat))


def _from_rows(G: Float[Array, "M P"]) -> MinNorm:
    peak = jnp.max(jnp.abs(G), axis=1, initial=0.0)
    U = G / jnp.where(peak > 0, peak, 1)[:, None]
    length = jnp.sqrt(jnp.sum(U * U, axis=1))
    U = U / jnp.where(length > 0, length, 1)[:, None]
    norm = peak * length
    lam = _weights(U @ U.T, norm, lambda x: U @ (x @ U))
    d = lam @ G
    return _solution(lam, d, jnp.sqrt(jnp.sum(d * d)), norm, U @ d)


def _from_gram(K: Float[Array, "M M"]) -> MinNorm:
    norm = jnp.sqrt(jnp.maximum(jnp.diagonal(K), 0))
    safe = jnp.where(norm > 0, norm, 1)
    C = K / safe[:, None] / safe
    lam = _weights(C, norm)
    slopes = C @ (lam * norm)
    squared = jnp.maximum(jnp.sum(lam * norm * slopes), 0)
    return _solution(lam, None, jnp.sqrt(squared), norm, slopes)


def _solution(
    lam: Float[Array, " M"],
    d: Float[Array, " P"] | None,
    length: Float[Array, ""],
    norm: Float[Array, " M"],
    slopes: Float[Array, " M"],
) -> MinNorm:
    """Measure a solution; `slopes` are ⟨gⁱ, d⟩/‖gⁱ‖."""
    terms = jnp.sum(lam * norm)
    resolution = 64 * jnp.finfo(lam.dtype).eps
    resolution = (resolution if d is not None else jnp.sqrt(resolution)) * terms
    safe = jnp.where(length > 0, length, 1)
    cosine_gap = jnp.where(norm > 0, length / jnp.where(norm > 0, norm, 1) - slopes / safe, 0)
    stationary = (length / jnp.where(terms > 0, terms, 1)) ** 2
    kkt = jnp.where(length > resolution, jnp.max(jnp.maximum(cosine_gap, 0)), stationary)
    return MinNorm(lam, d, length * length, kkt)


def _weights(
    C: Float[Array, "M M"], norm: Float[Array, " M"], cosines: Callable[[Any], Any] | None = None
) -> Float[Array, " M"]:
    """λ̂ from the matrix of cosines and the norms; `cosines(x)`, if given, is C x more accurately than from C."""
    finite = jnp.all(jnp.isfinite(norm)) & jnp.all(jnp.isfinite(C))
    vertex = jnp.zeros_like(norm).at[jnp.argmin(norm)].set(1)
    w = jnp.min(norm)
    usable = finite & (w > 0)
    q = jnp.where(usable, w / jnp.where(usable, norm, 1), 1)
    root = jnp.sqrt(1 + q * q)
    b = q / root
    C = jnp.where(usable, C, jnp.eye(norm.shape[0], dtype=C.dtype))
    A = C / root[:, None] / root + b[:, None] * b
    y, support = active_set.non_negative(A, b)
    for _ in range(2):
        if cosines is None:
            break
        residual = b - cosines(y / root) / root - b * jnp.sum(b * y)
        y = jnp.where(support, jnp.maximum(y + active_set.solve(A, jnp.where(usable, residual, 0), support)[0], 0), 0)
    lam = b * y / jnp.sum(b * y)
    lam = lam.at[jnp.argmax(lam)].add(1 - jnp.sum(lam))
    x, v = lam * norm, vertex * norm
    worse = x @ (C @ x) > v @ (C @ v)  # false for NaN: a failure must not look like a vertex
    return jnp.where(finite, jnp.where(usable & ~worse, lam, vertex), jnp.nan)
