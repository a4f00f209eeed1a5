"""Rules whose weights take a step of their own with every batch instead of solving for it.

A single batch gives E[GGᵀ] ≠ E[G]E[G]ᵀ, which biases the weights. MoDo and SDMGrad remove the bias by two independent
batches, MoCo shrinks it by gradients averaged over time.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from moac import simplex
from moac.weighting.rule import Rule, at_least_zero, in_interval, starting


def moco(tracking: float = 0.5, step_size: float = 0.1, regulariser: float = 0.0, initial: Any = None) -> Rule:
    """Y ← Y − β (Y − G), λ ← Π_Δ(λ − γ (YYᵀ + ρI) λ), d = Yᵀλ: MoCo (Fernando et al., 2023).

    The gradients followed, one per objective, are part of the state: M times the memory of θ.

    Args:
        tracking: β in (0, 1]; 1 is G itself. Y starts at 0.
        step_size: γ > 0, to be compared with 1/‖gⁱ‖².
        regulariser: ρ ≥ 0, pulls λ to uniform.
        initial: λ_0; None is uniform.
    """
    return Rule(starting("initial", initial), _descent(step_size, regulariser), tracking=tracking)


def modo(step_size: float = 0.1, regulariser: float = 0.1, initial: Any = None) -> Rule:
    """λ ← Π_Δ(λ − γ (G₁G₂ᵀ + ρI) λ), with G₁, G₂ of two independent batches: MoDo (Chen et al., 2023).

    The direction is that of the mean of both batches' gradients.

    Args:
        step_size: γ > 0, to be compared with 1/‖gⁱ‖².
        regulariser: ρ ≥ 0, pulls λ to uniform.
        initial: λ_0; None is uniform.
    """
    return Rule(starting("initial", initial), _descent(step_size, regulariser), batches=2)


def _descent(step_size: float, regulariser: float) -> Any:
    gamma, rho = in_interval("step_size", step_size, 0), at_least_zero("regulariser", regulariser)

    def update(lam: Any, K: Float[Array, "M M"], t: Any) -> tuple[Any, Float[Array, " M"]]:
        del t
        lam = lam.astype(K.dtype)
        lam = simplex.projection(lam - gamma * (K @ lam + rho * lam))
        return lam, lam

    return update


def sdmgrad(pull: float = 0.3, preference: Any = None, initial: Any = None) -> Rule:
    """λ = (w + κp)/(1 + κ), w = argmin over the simplex of ‖Σ (wᵢ + κpᵢ) gⁱ‖²: SDMGrad (Xiao et al., 2023).

    w takes 20 projected gradient steps of size 10 with heavy-ball momentum ½ along A (w + κp), from where it stood, as
    in its authors' code; A is G₁G₂ᵀ of two independent batches over the square of the mean of √(its diagonal)₊.

    Args:
        pull: κ ≥ 0, how much the direction is drawn to Σ pᵢgⁱ.
        preference: p on the simplex; None is uniform.
        initial: w_0; None is uniform.
    """
    kappa = at_least_zero("pull", pull)
    w_start, p_start = starting("initial", initial), starting("preference", preference)

    def update(state: Any, K: Float[Array, "M M"], t: Any) -> tuple[Any, Float[Array, " M"]]:
        del t
        w, p = state[0].astype(K.dtype), state[1].astype(K.dtype)
        A = _unit_scale(K)

        def step(_: Any, carry: Any) -> Any:
            w, velocity = carry
            velocity = velocity / 2 + A @ (w + kappa * p)
            return simplex.projection(w - 10 * velocity), velocity

        w, _ = lax.fori_loop(0, 20, step, (w, jnp.zeros_like(w)))
        return (w, state[1]), (w + kappa * p) / (1 + kappa)

    return Rule(lambda M: (w_start(M), p_start(M)), update, lambda state, p: (state[0], p), batches=2)


def _unit_scale(K: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """K over the square of the mean of √(its diagonal)₊, as far as that can be told from 0."""
    largest = jnp.max(jnp.abs(K))
    K = K / jnp.where(largest > 0, largest, 1)
    scale = jnp.mean(jnp.sqrt(jnp.maximum(jnp.diagonal(K), 0)))
    return K / jnp.maximum(scale * scale, jnp.finfo(K.dtype).eps)
