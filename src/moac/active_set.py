"""Small convex quadratic programmes by active sets: the index set changes by one index a step, and the end is exact.

Two of them: non-negative variables, and a simplex with a cap on every weight. Both run under `jit` and `vmap`, in the
dtype of their input, and end after a bounded number of steps whatever it holds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float

_UNROLL_UP_TO = 8
"""Largest M whose Cholesky factor is written out; above, LAPACK's is faster than what XLA makes of it."""


class _Pivot(NamedTuple):
    """State of the active set."""

    y: Float[Array, " M"]
    support: Bool[Array, " M"]
    newest: Bool[Array, " M"]
    refused: Bool[Array, " M"]
    steps: Array
    done: Array


def non_negative(A: Float[Array, "M M"], b: Float[Array, " M"]) -> tuple[Array, Array]:
    """argmin over y ≥ 0 of ½ yᵀA y − bᵀy for a unit-diagonal A and any b, and the set of free indices."""
    M = b.shape[0]
    nobody = jnp.zeros(M, bool)
    first = nobody.at[jnp.argmax(b)].set(True)
    state = _Pivot(jnp.zeros_like(b), first, first, nobody, jnp.zeros((), jnp.int32), jnp.zeros((), bool))
    state = lax.while_loop(lambda s: ~s.done & (s.steps < 6 * M + 10), lambda s: _pivot(A, b, s), state)
    return state.y, state.support


def _pivot(A: Float[Array, "M M"], b: Float[Array, " M"], s: _Pivot) -> _Pivot:
    """Go to the minimiser on the support: reached, add the steepest index; blocked, drop what blocks."""
    eps = jnp.finfo(b.dtype).eps
    z, regular = solve(A, b, s.support)
    # The newest index depends on the others, or rounding alone let it in: put it back and do not ask again.
    refuse = ~regular | jnp.any(s.newest & (z <= 0))
    blocking = s.support & (z <= 0)
    # How far towards z each index may go before it turns negative; 0 for what stands at 0 and would stay there.
    ratio = jnp.where(blocking, s.y / jnp.where(blocking & (s.y > z), s.y - z, 1), 1)
    step = jnp.min(ratio)  # the shortest: beyond it the first of them would be negative
    blocked = jnp.any(blocking)
    leaving = blocking & (ratio <= step)
    moved = jnp.where(s.support & ~leaving, s.y + step * (z - s.y), 0)
    y = jnp.where(refuse, s.y, moved)
    support = jnp.where(refuse, s.support & ~s.newest, s.support & ~leaving)
    refused = (s.refused & refuse) | (refuse & s.newest)  # until y moves
    slope = b - A @ y
    # A slope within the rounding of its own sum is 0: an index let in by it would leave again, and so for ever.
    noise = 8 * eps * (jnp.abs(b) + jnp.abs(A) @ y)
    candidate = jnp.where(support | refused | (slope <= noise), -jnp.inf, slope)
    best = jnp.argmax(candidate)
    settled = refuse | ~blocked
    none_left = candidate[best] == -jnp.inf
    newest = (jnp.arange(b.shape[0]) == best) & settled & ~none_left
    return _Pivot(y, support | newest, newest, refused, s.steps + 1, settled & none_left)


class _Walk(NamedTuple):
    """State of the walk over the capped simplex."""

    x: Float[Array, " M"]
    free: Bool[Array, " M"]
    newest: Bool[Array, " M"]
    refused: Bool[Array, " M"]
    steps: Array
    done: Array


class _Capped(NamedTuple):
    """min ½ xᵀC x − qᵀx over aᵀx = 1 and 0 ≤ x ≤ top, with C of unit diagonal."""

    C: Float[Array, "M M"]
    q: Float[Array, " M"]
    a: Float[Array, " M"]
    top: Float[Array, " M"]


def on_capped_simplex(A: Float[Array, "M M"], b: Float[Array, " M"], cap: Any = 1.0) -> Float[Array, " M"]:
    """argmin of ½ λᵀA λ − bᵀλ over Σ λ = 1, 0 ≤ λ ≤ `cap`, for a positive semi-definite A and a cap of at least 1/M.

    Starts in the middle with every index free. The variables are x = n∘λ with n = √diag A, so that gradients of very
    different lengths keep their digits.
    """
    M, eps = len(b), jnp.finfo(b.dtype).eps
    largest = jnp.max(jnp.diagonal(A))
    largest = jnp.where(largest > 0, largest, 1)
    n = jnp.maximum(jnp.sqrt(jnp.maximum(jnp.diagonal(A) / largest, 0)), jnp.sqrt(eps))
    problem = _Capped(A / largest / n[:, None] / n, b / largest / n, 1 / n, cap * n)
    everybody, nobody = jnp.ones(M, bool), jnp.zeros(M, bool)
    state = _Walk(n / M, everybody, nobody, nobody, jnp.zeros((), jnp.int32), jnp.zeros((), bool))
    state = lax.while_loop(lambda s: ~s.done & (s.steps < 16 * M + 10), lambda s: _walk(problem, s), state)
    lam = jnp.maximum(state.x, 0) / n
    return lam / jnp.sum(lam)


def _walk(problem: _Capped, s: _Walk) -> _Walk:
    """Go to the minimiser on the free indices: reached, free what gains most; blocked, hold what blocks."""
    C, q, a, top = problem
    p, nu = _towards(problem, s)
    # How much of p each free index may take before it meets its bound; what meets it first is put exactly on it.
    room = jnp.where(p < 0, s.x, top - s.x)
    ratio = jnp.where(s.free & (p != 0), room / jnp.where(p == 0, 1, jnp.abs(p)), jnp.inf)
    step = jnp.minimum(jnp.min(ratio), 1)
    leaving = (ratio <= step) & (ratio < 1)
    x = jnp.where(leaving, jnp.where(p < 0, 0, top), s.x + step * p)
    refuse = jnp.any(s.newest & leaving) & (step <= 0)  # rounding alone let it in
    refused = (s.refused & refuse) | (refuse & s.newest)
    gain = q - C @ x - nu * a
    gain = jnp.where(x <= 0, gain, -gain)  # what is held at the cap gains by falling
    noise = 8 * jnp.finfo(x.dtype).eps * (jnp.abs(q) + jnp.abs(C) @ x + jnp.abs(nu) * a)
    candidate = jnp.where(s.free | refused | (gain <= noise), -jnp.inf, gain)
    best = jnp.argmax(candidate)
    # The ridge makes p a little wrong, so the minimiser takes more than one step; √ε of x is ε of the value.
    settled = ~jnp.any(leaving) & (jnp.max(jnp.abs(p)) <= jnp.sqrt(jnp.finfo(x.dtype).eps) * jnp.max(x))
    none_left = candidate[best] == -jnp.inf
    newest = (jnp.arange(len(x)) == best) & settled & ~none_left
    return _Walk(x, (s.free & ~leaving) | newest, newest, refused, s.steps + 1, settled & none_left)


def _towards(problem: _Capped, s: _Walk) -> tuple[Float[Array, " M"], Array]:
    """The step p on the free indices, aᵀp = 0, to the minimiser there, and the multiplier ν of the sum.

    (C + εI) p = q − C x − ν a. The ridge bounds the step and not the solution: where C is singular, p is long and
    ends at a bound, and at the minimiser it is zero. Since aᵀp = 0, adding a multiple of a aᵀ changes nothing but the
    digits: C may be singular along a.
    """
    C, q, a, _ = problem
    M = len(q)
    ridge = 16 * M * jnp.finfo(q.dtype).eps
    B = C + ridge * jnp.eye(M, dtype=C.dtype) + a[:, None] * a / jnp.sum(jnp.where(s.free, a * a, 0))
    along, _ = solve(B, q - C @ s.x, s.free)
    across, _ = solve(B, a, s.free)
    total = jnp.sum(a * across)
    nu = jnp.sum(a * along) / jnp.where(total > 0, total, 1)
    p = along - nu * across
    p = p - jnp.sum(a * p) / jnp.where(total > 0, total, 1) * across  # what rounding left of aᵀp
    return jnp.where(s.free & (jnp.sum(s.free) > 1), p, 0), nu


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
    L = jnp.linalg.cholesky(A)
    # A factor that failed is NaN, which XLA's min of a large batch drops; each comparison with NaN is false.
    regular = jnp.all(jnp.diagonal(L) ** 2 > smallest)
    return jnp.where(regular, jax.scipy.linalg.cho_solve((L, True), b), 0), regular


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
