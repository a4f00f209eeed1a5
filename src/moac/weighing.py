"""What a rule sees of the gradients, and the direction of its weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from moac import actor
from moac.actor import Gradients
from moac.types import Params
from moac.weighting import Rule

Outlook = Callable[[], tuple[Float[Array, " M"], Float[Array, "B M"]]]
Weigh = Callable[[Any, Gradients, Any, Outlook], tuple[Any, Float[Array, " M"], Gradients]]


def build(rule: Rule, num_objectives: int) -> tuple[Callable[[Params], Any], Weigh]:
    """The state of a rule at θ_1, and (state, gradients, t, outlook) ↦ (state, λ_t, the gradients that λ_t weighs).

    `outlook` gives level and rewards to a rule that observes them, and is not called for others. The state of a rule
    that tracks gradients is (Y, its own).
    """
    beta = rule.tracking

    def init(theta: Params) -> Any:
        own = rule.init(num_objectives)
        return own if beta is None else (tuple(jax.tree.map(jnp.zeros_like, theta) for _ in range(num_objectives)), own)

    def weigh(state: Any, g: Gradients, t: Any, outlook: Outlook) -> tuple[Any, Float[Array, " M"], Gradients]:
        if rule.observe is not None:
            state = rule.observe(state, *outlook())
        state, lam = rule.update(state, g.seen, t)
        return state, lam, g

    def weigh_tracked(state: Any, g: Gradients, t: Any, outlook: Outlook) -> tuple[Any, Float[Array, " M"], Gradients]:
        Y = followed(state[0], g, beta or 1.0)
        own, lam, g = weigh(state[1], actor.of_rows(Y), t, outlook)
        return (Y, own), lam, g

    return init, weigh if beta is None else weigh_tracked


def followed(Y: tuple[Params, ...], g: Gradients, beta: float) -> tuple[Params, ...]:
    """Y ← Y − β (Y − G), one row per objective, each a pytree like θ."""
    ones = jnp.eye(len(Y), dtype=g.gram.dtype)
    G = [g.direction(one) for one in ones]
    return tuple(jax.tree.map(lambda y, row: y - beta * (y - row), *pair) for pair in zip(Y, G, strict=True))
