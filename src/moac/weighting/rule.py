"""What a weighting rule is, what it may see, and the checks that all rules share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from moac import simplex
from moac.arguments import checked
from moac.choices import NOT_NEGATIVE, POSITIVE, POSITIVE_SHARE, on_simplex


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Seen:
    """What a rule sees of an iteration, where the Gram matrix is not enough; what it did not ask for is None."""

    gram: Float[Array, "M M"]  # K = G Gᵀ
    cross: Float[Array, "M M"] | None = None  # G₁ G₂ᵀ of two independent batches; not symmetric
    level: Float[Array, " M"] | None = None  # the reward per step that the critic expects of the policy
    rewards: Float[Array, "B M"] | None = None  # of the actor's batch


@checked
@dataclass(frozen=True)
class Needs:
    """What a rule asks for beyond the Gram matrix."""

    preference: bool = False  # its `init` takes a second argument, the preference p on the simplex of a trial
    cross: bool = False  # `Seen.cross`; the two batches are the halves of the actor's
    values: bool = False  # `Seen.level` and `Seen.rewards`
    tracking: float | None = None  # β of Y ← Y − β (Y − G), which takes the place of G: then K = YYᵀ, d = Yᵀλ

    def __post_init__(self) -> None:
        if self.tracking is not None:
            POSITIVE_SHARE.checked("tracking", self.tracking)


@checked
@dataclass(frozen=True)
class Rule:
    """A weighting rule: two pure functions, as in optax.

    Attributes:
        init: M ↦ state, a pytree.
        update: (state, K [M, M], t) ↦ (state, λ [M]), where t = 1, 2, … counts the updates. For a rule that needs
            `cross` or `values`, a `Seen` takes the place of K.
        needs: what it asks for beyond K; most rules ask for nothing.
        simplex: whether λ ≥ 0 and Σλ = 1. Where not, λ has the scale of its definition, and momentum keeps it.
    """

    init: Callable[..., Any]
    update: Callable[[Any, Any, Any], tuple[Any, Float[Array, " M"]]]
    needs: Needs = field(default_factory=Needs)
    simplex: bool = True


def stateless(weights: Callable[[Float[Array, "M M"]], Float[Array, " M"]], simplex: bool = True) -> Rule:
    """The rule λ_t = `weights`(K), NaN where K is not finite."""
    return Rule(lambda M: (), lambda state, K, t: (state, where_finite(K, weights(K))), simplex=simplex)


def where_finite(K: Float[Array, "M M"], lam: Float[Array, " M"]) -> Float[Array, " M"]:
    """`lam` where K is finite, NaN elsewhere: a rule that takes NaN for a gradient of length 0 would hide it."""
    return jnp.where(jnp.all(jnp.isfinite(K)), lam, jnp.nan)


def starting(name: str, weights: Any) -> Callable[..., Float[Array, " M"]]:
    """(M, given) ↦ `given`, or without it `weights` on the simplex, uniform where they are None; refused if unfit."""
    start = None if weights is None else np.array(on_simplex(name, np.asarray(weights).tolist()))

    def init(M: int, given: Any = None) -> Float[Array, " M"]:
        if given is not None:
            return given
        if start is None:
            return middle(M)
        if len(start) != M:
            raise ValueError(f"`{name}` must hold one weight per objective ({M}), got {len(start)}.")
        return jnp.asarray(start / start.sum(), float)

    return init


def middle(M: int) -> Float[Array, " M"]:
    """(1/M, …, 1/M)."""
    return jnp.full(M, 1 / M, float)


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


def projected_step(step_size: float, regulariser: float) -> Callable[[Any, Any, Any], Any]:
    """The update λ ← Π_Δ(λ − γ (K + ρI) λ), with γ = `step_size` and ρ = `regulariser`."""
    gamma, rho = POSITIVE.checked("step_size", step_size), NOT_NEGATIVE.checked("regulariser", regulariser)

    def update(lam: Any, K: Float[Array, "M M"], t: Any) -> tuple[Any, Float[Array, " M"]]:
        del t
        lam = lam.astype(K.dtype)
        lam = simplex.projection(lam - gamma * (K @ lam + rho * lam))
        return lam, lam

    return update
