"""What a rule is, and the checks that all of them share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float


@final
@dataclass(frozen=True)
class Rule:
    """A weighting rule.

    Attributes:
        init: M ↦ state, a pytree.
        update: (state, K [M, M], t) ↦ (state, λ [M]), where t = 1, 2, … counts the updates.
        prefer: (state, p [M]) ↦ the state of a trial with preference p on the simplex; None where p means nothing.
        simplex: whether λ ≥ 0 and Σλ = 1. Where not, λ has the scale of its definition, and momentum keeps it.
        batches: 2 where K must be G₁G₂ᵀ of two independent batches: the halves of the actor's. K is then not symmetric.
        tracking: β, where the rule wants Y ← Y − β (Y − G) in the place of G: K is then YYᵀ and the direction Yᵀλ.
        observe: (state, level [M], reward [B, M]) ↦ state, called before `update` with the reward per step that the
            critic expects of the policy and with the rewards of the actor's batch; None where the rule sees K alone.
    """

    init: Callable[[int], Any]
    update: Callable[[Any, Float[Array, "M M"], Any], tuple[Any, Float[Array, " M"]]]
    prefer: Callable[[Any, Float[Array, " M"]], Any] | None = None
    simplex: bool = True
    batches: int = 1
    tracking: float | None = None
    observe: Callable[[Any, Float[Array, " M"], Float[Array, "B M"]], Any] | None = None

    def __post_init__(self) -> None:
        if self.batches not in (1, 2):
            raise ValueError(f"`batches` must be 1 or 2, got {self.batches!r}.")
        if self.tracking is not None:
            in_interval("tracking", self.tracking, 0, 1)
            if self.prefer is not None:
                raise ValueError("`prefer` must be None where `tracking` is given, got a function.")


def stateless(weights: Callable[[Float[Array, "M M"]], Float[Array, " M"]], simplex: bool = True) -> Rule:
    """The rule λ_t = `weights`(K), NaN where K is not finite."""
    return Rule(lambda M: (), lambda state, K, t: (state, where_finite(K, weights(K))), simplex=simplex)


def where_finite(K: Float[Array, "M M"], lam: Float[Array, " M"]) -> Float[Array, " M"]:
    """`lam` where K is finite, NaN elsewhere: a rule that takes NaN for a gradient of length 0 would hide it."""
    return jnp.where(jnp.all(jnp.isfinite(K)), lam, jnp.nan)


def starting(name: str, weights: Any) -> Callable[[int], Float[Array, " M"]]:
    """M ↦ `weights` as an array on the simplex, uniform where they are None; refused where they do not fit."""
    start = None if weights is None else on_simplex(name, weights)

    def init(M: int) -> Float[Array, " M"]:
        if start is None:
            return middle(M)
        if len(start) != M:
            raise ValueError(f"`{name}` must hold one weight per objective ({M}), got {len(start)}.")
        return jnp.asarray(start, float)

    return init


def middle(M: int) -> Float[Array, " M"]:
    """(1/M, …, 1/M)."""
    return jnp.full(M, 1 / M, float)


def on_simplex(name: str, weights: Any) -> Float[np.ndarray, " M"]:
    """`weights` as float64 on the simplex, refused if they are not on it."""
    lam = np.asarray(weights, dtype=np.float64)
    if lam.ndim != 1 or lam.size == 0:
        raise ValueError(f"`{name}` must be a vector with one weight per objective, got shape {lam.shape}.")
    if not (np.isfinite(lam).all() and (lam >= 0).all() and abs(lam.sum() - 1) <= 1e-6):
        raise ValueError(f"`{name}` must be non-negative and sum to 1, got {lam.tolist()}.")
    return lam / lam.sum()


def in_interval(name: str, value: float, low: float, high: float = math.inf) -> float:
    """`value`, refused unless it is in (low, high], or in (low, ∞)."""
    if low < value <= high and math.isfinite(value):
        return float(value)
    right = f"greater than {low:g} and finite" if math.isinf(high) else f"in ({low:g}, {high:g}]"
    raise ValueError(f"`{name}` must be {right}, got {value!r}.")


def at_least_zero(name: str, value: float) -> float:
    """`value`, refused unless it is in [0, ∞)."""
    if not 0 <= value < math.inf:
        raise ValueError(f"`{name}` must be at least 0 and finite, got {value!r}.")
    return float(value)


def lengths(K: Float[Array, "M M"]) -> tuple[Float[Array, " M"], Float[Array, "M M"]]:
    """‖gⁱ‖ and the matrix of cosines, with a unit diagonal.

    A gradient that is shorter than the longest by more than the dtype's precision counts as zero: no finite weight
    would make it count. Its cosines with the others are 0.
    """
    square = jnp.diagonal(K)
    there = square > jnp.finfo(K.dtype).eps ** 2 * jnp.max(square)
    n = jnp.sqrt(jnp.where(there, square, 0))
    safe = jnp.where(there, n, 1)
    C = jnp.where(there[:, None] & there, K / safe[:, None] / safe, 0)
    return n, jnp.where(jnp.eye(len(n), dtype=bool), 1, C)
