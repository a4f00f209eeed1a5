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

Both programmes of this file, non-negative variables and a simplex with a cap on every weight, run under `jit` and
`vmap`, in the dtype of their input, and end after a bounded number of steps whatever it holds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.core import Tracer
from jaxtyping import Bool, Float

from moac import compiling
from moac.arguments import Numbers, checked

_BLOCK = 16
"""Gram matrices that are solved together outside of a compiled program."""
_LARGEST = {"G": 1e150, "K": 1e300}
"""Entries of gradients and of their products in double precision, so that sums of squares are finite."""
_CUT = 1e-3
"""The largest share of a solution that a refinement may leave below 0."""
_UNROLL_UP_TO = 8
"""Largest M whose Cholesky factor is written out; above, LAPACK's is faster than what XLA makes of it."""


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


@checked
def min_norm(G: Numbers) -> MinNorm:
    """The shortest vector in the convex hull of the rows of `G`.

    Args:
        G: [..., M, P], one gradient per row. A JAX array is solved in its own dtype, under any transformation;
            anything else is solved in float64 and answered in NumPy.

    Raises:
        ValueError: if `G` is a NumPy array (or a list) that is not finite or has no rows. JAX arrays with
            non-finite entries give NaN weights instead.
    """
    return _dispatch(_from_rows, "G", G)


@checked
def min_norm_from_gram(K: Numbers) -> MinNorm:
    """As `min_norm`, from the Gram matrix K = G Gᵀ, [..., M, M]. The direction is None."""
    if np.ndim(K) >= 2 and np.shape(K)[-1] != np.shape(K)[-2]:
        raise ValueError(f"`K` must be square, got shape {np.shape(K)}.")
    if np.ndim(K) >= 2 and not isinstance(K, Array):
        K = _finite("K", np.asarray(K, dtype=np.float64))
        if (np.abs(K - K.swapaxes(-1, -2)) > 1e-3 * np.abs(K).max(initial=0.0)).any():
            raise ValueError(f"`K` must be symmetric, as G Gᵀ is, got {K.tolist()}.")
    return _dispatch(_from_gram, "K", K)


@checked
def weights_in_blocks(K: Float[np.ndarray, "n M M"]) -> Float[np.ndarray, "n M"]:
    """λ̂ of n Gram matrices in blocks of one size: one compilation serves every n, and no answer depends on it."""
    padded = np.concatenate([_finite("K", K), np.ones((-len(K) % _BLOCK, *K.shape[1:]))])
    solve = _of_block(K.shape[-1] <= _UNROLL_UP_TO)
    with jax.enable_x64(True):
        blocks = [np.asarray(solve(padded[k : k + _BLOCK])) for k in range(0, len(K), _BLOCK)]
    return np.concatenate(blocks)[: len(K)]


@lru_cache
def _of_block(at_once: bool) -> Callable[[Any], Float[Array, "n M"]]:
    """Gram matrices [n, M, M] ↦ their λ̂, compiled at once where a matrix is small."""
    options = compiling.known(compiling.AT_ONCE) if at_once else None
    return jax.jit(lambda K: jax.vmap(_from_gram)(K).weights, compiler_options=options)


@checked
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
    shape = np.shape(values)
    if len(shape) < 2 or shape[-2] == 0:
        raise ValueError(f"`{name}` must have two axes or more and at least one row, got shape {shape}.")
    if isinstance(values, Tracer) and len(shape) == 2:  # a part of the program that is traced
        return solve(values)
    if isinstance(values, Array):
        return _batched(solve, values)
    table = _finite(name, np.asarray(values, dtype=np.float64))
    flat = table.reshape(-1, *table.shape[-2:])
    padding = (1 << (len(flat) - 1).bit_length()) - len(flat) if len(flat) else 1  # few shapes, few compilations
    padded = np.concatenate([flat, np.ones((padding, *flat.shape[1:]))])
    with jax.enable_x64(True):
        solution = _batched(solve, jnp.asarray(padded))
    return jax.tree.map(lambda x: np.asarray(x)[: len(flat)].reshape((*table.shape[:-2], *x.shape[1:])), solution)


def _finite(name: str, table: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    for index in np.argwhere(~(np.abs(table) <= _LARGEST[name]))[:1]:
        where = tuple(int(i) for i in index)
        raise ValueError(
            f"`{name}` must be finite and within ±{_LARGEST[name]:g}, got {table[where]} at index {where}."
        )
    return table


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
    slopes = _product(C, lam * norm)
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
    vertex = _one_hot(jnp.argmin(norm), norm).astype(norm.dtype)
    w = jnp.min(norm)
    usable = finite & (w > 0)
    q = jnp.where(usable, w / jnp.where(usable, norm, 1), 1)
    root = jnp.sqrt(1 + q * q)
    b = q / root
    C = jnp.where(usable, C, jnp.eye(norm.shape[0], dtype=C.dtype))
    A = C / root[:, None] / root + b[:, None] * b
    y, support = non_negative(A, b)
    for _ in range(2):
        if cosines is None:
            break
        residual = b - cosines(y / root) / root - b * jnp.sum(b * y)
        z = jnp.where(support, y + solve(A, jnp.where(usable, residual, 0), support)[0], 0)
        # A block that is singular but for rounding answers with anything, and what has to be cut off says so.
        y = jnp.where(jnp.min(z) < -_CUT * jnp.max(y), y, jnp.maximum(z, 0))
    lam = b * y / jnp.sum(b * y)
    lam = jnp.where(_one_hot(jnp.argmax(lam), lam), lam + (1 - jnp.sum(lam)), lam)
    squares = [jnp.sum(each * _product(C, each)) for each in (lam * norm, vertex * norm)]
    worse = squares[0] > squares[1]  # false for NaN: a failure must not look like a vertex
    return jnp.where(finite, jnp.where(usable & ~worse, lam, vertex), jnp.nan)


def _one_hot(k: Array, like: Float[Array, " M"]) -> Bool[Array, " M"]:
    """Whether i = k, for every i. A comparison fuses with what comes next, which a scatter does not."""
    return jnp.arange(len(like)) == k


def _product(A: Float[Array, "M M"], y: Float[Array, " M"]) -> Float[Array, " M"]:
    """A y; of a small matrix by sums, which fuse under `vmap`."""
    return A @ y if len(y) > _UNROLL_UP_TO else jnp.sum(A * y, axis=1)


class _ActiveSet(NamedTuple):
    """Where an active set stands: the point, its free indices, the one let in last, and those not to be asked again."""

    y: Float[Array, " M"]
    free: Bool[Array, " M"]
    newest: Bool[Array, " M"]
    refused: Bool[Array, " M"]
    steps: Array
    done: Array


def _run(pivot: Callable[[_ActiveSet], _ActiveSet], y: Any, free: Any, newest: Any, most: int) -> _ActiveSet:
    """Pivot until nothing is left to free; never more than `most` steps, whatever the input holds."""
    nobody = jnp.zeros(len(y), bool)
    start = _ActiveSet(y, free, newest, nobody, jnp.zeros((), jnp.int32), jnp.zeros((), bool))
    return lax.while_loop(lambda s: ~s.done & (s.steps < most), pivot, start)


@checked
def non_negative(A: Float[Array, "M M"], b: Float[Array, " M"]) -> tuple[Array, Array]:
    """argmin over y ≥ 0 of ½ yᵀA y − bᵀy for a unit-diagonal A and any b, and the set of free indices."""
    newest = first = _one_hot(jnp.argmax(b), b)
    if len(b) > _UNROLL_UP_TO:  # every step costs a factor: begin where cheaper steps ended
        first, newest = _likely_support(A, b), jnp.zeros_like(first)
    state = _run(lambda s: _pivot(A, b, s), jnp.zeros_like(b), first, newest, 6 * len(b) + 10)
    return state.y, state.free


class _Tableau(NamedTuple):
    """A and b after pivots on the free indices: the last column holds the minimiser there, and slopes elsewhere."""

    T: Float[Array, "M M+1"]
    y: Float[Array, " M"]
    free: Bool[Array, " M"]
    steps: Array
    done: Array


def _likely_support(A: Float[Array, "M M"], b: Float[Array, " M"]) -> Bool[Array, " M"]:
    """The free indices at the end of the same steps as `_pivot`'s, at a cost of M² each: rounding errors add up.

    One principal pivot of the tableau (A | b) lets an index in or out, where a factor would be computed anew.
    """
    M, smallest = len(b), 8 * len(b) * jnp.finfo(b.dtype).eps
    index = jnp.arange(M)

    def step(s: _Tableau) -> _Tableau:
        z = s.T[:, -1]
        blocking = s.free & (z <= 0)
        ratio = jnp.where(blocking, s.y / jnp.where(s.y > z, s.y - z, 1), jnp.inf)
        blocked = jnp.any(blocking)
        y = jnp.where(s.free, s.y + jnp.minimum(jnp.min(ratio), 1) * (z - s.y), 0)
        usable = ~s.free & (z > smallest) & (jnp.diagonal(s.T) > smallest)
        k = jnp.where(blocked, jnp.argmin(ratio), jnp.argmax(jnp.where(usable, z, -jnp.inf)))
        here, there = (index == k).astype(b.dtype), (jnp.arange(M + 1) == k).astype(b.dtype)
        row, column = here @ s.T, s.T @ there  # products: gathers and scatters of a batch are slower
        pivot = here @ column
        T = s.T - (column - here)[:, None] * ((row + there) / pivot)
        done = ~blocked & ~jnp.any(usable)
        return _Tableau(T, jnp.where(here > 0, 0, y), s.free ^ ((here > 0) & ~done), s.steps + 1, done)

    start = _Tableau(
        jnp.concatenate([A, b[:, None]], axis=1),
        jnp.zeros_like(b), jnp.zeros(M, bool), jnp.zeros((), jnp.int32), jnp.zeros((), bool),
    )  # fmt: skip
    return lax.while_loop(lambda s: ~s.done & (s.steps < 4 * M), step, start).free


def _pivot(A: Float[Array, "M M"], b: Float[Array, " M"], s: _ActiveSet) -> _ActiveSet:
    """Go to the minimiser on the support: reached, add the steepest index; blocked, drop what blocks."""
    eps = jnp.finfo(b.dtype).eps
    z, regular = solve(A, b, s.free)
    # The newest index depends on the others, or rounding alone let it in: put it back and do not ask again.
    refuse = ~regular | jnp.any(s.newest & (z <= 0))
    blocking = s.free & (z <= 0)
    # How far towards z each index may go before it turns negative; 0 for what stands at 0 and would stay there.
    ratio = jnp.where(blocking, s.y / jnp.where(blocking & (s.y > z), s.y - z, 1), 1)
    step = jnp.min(ratio)  # the shortest: beyond it the first of them would be negative
    blocked = jnp.any(blocking)
    leaving = blocking & (ratio <= step)
    moved = jnp.where(s.free & ~leaving, s.y + step * (z - s.y), 0)
    y = jnp.where(refuse, s.y, moved)
    kept = s.free & ~s.newest & jnp.any(s.newest)  # none where the very start is not regular
    support = jnp.where(refuse, kept, s.free & ~leaving)
    # Until y moves; after many steps for good, since rounding alone lets the same indices in and out again.
    refused = (s.refused & (refuse | (s.steps > 4 * len(b)))) | (refuse & s.newest)
    slope = b - _product(A, y)
    # A slope within the rounding of its own sum is 0: an index let in by it would leave again, and so for ever.
    noise = 8 * eps * (jnp.abs(b) + _product(jnp.abs(A), y))
    candidate = jnp.where(support | refused | (slope <= noise), -jnp.inf, slope)
    best = jnp.argmax(candidate)
    settled = refuse | ~blocked
    none_left = jnp.all(candidate == -jnp.inf)
    newest = _one_hot(best, b) & settled & ~none_left
    return _ActiveSet(y, support | newest, newest, refused, s.steps + 1, settled & none_left)


class _Capped(NamedTuple):
    """min ½ xᵀC x − qᵀx over aᵀx = 1 and 0 ≤ x ≤ top, with C of unit diagonal."""

    C: Float[Array, "M M"]
    q: Float[Array, " M"]
    a: Float[Array, " M"]
    top: Float[Array, " M"]


@checked
def on_capped_simplex(A: Float[Array, "M M"], b: Float[Array, " M"], cap: Numbers = 1.0) -> Float[Array, " M"]:
    """argmin of ½ λᵀA λ − bᵀλ over Σ λ = 1, 0 ≤ λ ≤ `cap`, for a positive semi-definite A and a cap of at least 1/M.

    Starts in the middle with every index free. The variables are x = n∘λ with n = √diag A, so that gradients of
    different lengths keep their digits; the value is exact to rounding of the longest gradient's square.
    """
    if jnp.shape(cap) not in ((), jnp.shape(b)):
        raise ValueError(f"`cap` must be one number or one per weight ({len(b)}), got shape {jnp.shape(cap)}.")
    M, eps = len(b), jnp.finfo(b.dtype).eps
    largest = jnp.max(jnp.diagonal(A))
    largest = jnp.where(largest > 0, largest, 1)
    n = jnp.maximum(jnp.sqrt(jnp.maximum(jnp.diagonal(A) / largest, 0)), jnp.sqrt(eps))
    problem = _Capped(A / largest / n[:, None] / n, b / largest / n, 1 / n, cap * n)
    everybody = jnp.ones(M, bool)
    state = _run(lambda s: _capped_pivot(problem, s), n / M, everybody, ~everybody, 16 * M + 10)
    lam = jnp.maximum(state.y, 0) / n
    return lam / jnp.sum(lam)


def _capped_pivot(problem: _Capped, s: _ActiveSet) -> _ActiveSet:
    """Go to the minimiser on the free indices: reached, free what gains most; blocked, hold what blocks."""
    C, q, a, top = problem
    p, nu = _step_to_minimiser(problem, s)
    # How much of p each free index may take before it meets its bound; what meets it first is put exactly on it.
    room = jnp.where(p < 0, s.y, top - s.y)
    ratio = jnp.where(s.free & (p != 0), room / jnp.where(p == 0, 1, jnp.abs(p)), jnp.inf)
    step = jnp.minimum(jnp.min(ratio), 1)
    leaving = (ratio <= step) & (ratio < 1)
    x = jnp.where(leaving, jnp.where(p < 0, 0, top), s.y + step * p)
    refuse = jnp.any(s.newest & leaving) & (step <= 0)  # rounding alone let it in
    refused = (s.refused & refuse) | (refuse & s.newest)
    gain = q - C @ x - nu * a
    gain = jnp.where(x <= 0, gain, -gain)  # what is held at the cap gains by falling
    noise = 8 * jnp.finfo(x.dtype).eps * (jnp.abs(q) + jnp.abs(C) @ x + jnp.abs(nu) * a)
    candidate = jnp.where(s.free | refused | (gain <= noise), -jnp.inf, gain)
    best = jnp.argmax(candidate)
    settled = ~jnp.any(leaving) & ~jnp.any(p != 0)
    none_left = candidate[best] == -jnp.inf
    newest = (jnp.arange(len(x)) == best) & settled & ~none_left
    return _ActiveSet(x, (s.free & ~leaving) | newest, newest, refused, s.steps + 1, settled & none_left)


def _step_to_minimiser(problem: _Capped, s: _ActiveSet) -> tuple[Float[Array, " M"], Array]:
    """The step p on the free indices, aᵀp = 0, to the minimiser there, and the multiplier ν of the sum.

    (C + εI) p = q − C x − ν a. The ridge bounds the step and not the solution: where C is singular, p is long and
    ends at a bound, and at the minimiser it is zero. Since aᵀp = 0, adding a multiple of a aᵀ changes nothing but the
    digits: C may be singular along a.
    """
    C, q, a, _ = problem
    M, eps = len(q), jnp.finfo(q.dtype).eps
    slope = q - C @ s.y
    B = C + 16 * M * eps * jnp.eye(M, dtype=C.dtype) + a[:, None] * a / jnp.sum(jnp.where(s.free, a * a, 0))
    # Not written out as in `solve`: the last pivot is mostly rounding, and a fused program would round it anew for
    # every entry of p, so that the entries of a long p belong to different steps.
    A = jnp.where(s.free[:, None] & s.free, B, jnp.eye(M, dtype=B.dtype))
    factored_solve = _factored_solve if M <= _UNROLL_UP_TO else _one_by_one
    both, pivots = factored_solve(A, jnp.where(s.free[:, None], jnp.stack([slope, a], axis=1), 0))
    along, across = jnp.where(jnp.all(pivots > 0), both, 0).T
    total = jnp.sum(a * across)
    nu = jnp.sum(a * along) / jnp.where(total > 0, total, 1)
    p = along - nu * across
    p = p - jnp.sum(a * p) / jnp.where(total > 0, total, 1) * across  # what rounding left of aᵀp
    # pᵀ slope is twice what the step gains. Within the rounding of the value it is no gain, however long p is.
    gains = jnp.sum(p * slope) > eps * (jnp.sum(jnp.abs(q) * s.y) + s.y @ (jnp.abs(C) @ s.y))
    return jnp.where(s.free & (jnp.sum(s.free) > 1) & gains, p, 0), nu


@checked
def solve(
    A: Float[Array, "M M"], b: Float[Array, " M"], support: Bool[Array, " M"]
) -> tuple[Float[Array, " M"], Array]:
    """x with A x = b on the support and x = 0 elsewhere, and whether the support's matrix is safely regular."""
    M = b.shape[0]
    smallest = 4 * M * jnp.finfo(b.dtype).eps
    A = jnp.where(support[:, None] & support, A, jnp.eye(M, dtype=A.dtype))
    b = jnp.where(support, b, 0)
    if M <= _UNROLL_UP_TO:
        return _unrolled_solve(A, b, smallest)
    x, pivots = _one_by_one(A, b)
    # A factor that failed is NaN, which XLA's min of a large batch drops; each comparison with NaN is false.
    regular = jnp.all(pivots > smallest)
    return jnp.where(regular, x, 0), regular


def _factored_solve(A: Float[Array, "M M"], b: Float[Array, "M ..."]) -> tuple[Float[Array, "M ..."], Array]:
    """x with A x = b for a positive definite A, and the pivots; NaN if it is not one."""
    L = jnp.linalg.cholesky(A)
    return jax.scipy.linalg.cho_solve((L, True), b), jnp.diagonal(L) ** 2


_one_by_one = jax.custom_batching.sequential_vmap(_factored_solve)
"""One matrix of a batch after the other. LAPACK cuts a batch of larger matrices in parts and waits for them in the
threads that would do them: two batches at once, of two devices or of one program, can wait for each other for ever."""


def _unrolled_solve(A: Float[Array, "M M"], b: Float[Array, " M"], smallest: Any) -> tuple[Float[Array, " M"], Array]:
    """Cholesky and two triangular solves, written out: under `vmap` every scalar is one contiguous vector."""
    M = b.shape[0]
    L: list[list[Array]] = []
    inverse: list[Array] = []
    pivots: list[Array] = []
    half: list[Array] = []
    for i in range(M):
        row: list[Array] = []
        for j in range(i):
            row.append((A[i, j] - sum(row[k] * L[j][k] for k in range(j))) * inverse[j])
        pivots.append(A[i, i] - sum(value * value for value in row))
        inverse.append(lax.rsqrt(jnp.maximum(pivots[i], smallest)))
        half.append((b[i] - sum(row[k] * half[k] for k in range(i))) * inverse[i])
        L.append(row)
    x = half
    for i in reversed(range(M)):
        x[i] = (half[i] - sum(L[k][i] * x[k] for k in range(i + 1, M))) * inverse[i]
    return jnp.stack(x), jnp.all(jnp.stack(pivots) > smallest)
