"""The exact gradient of a small problem inside a compiled program.

The oracle of `momdp` is careful with rare states and slow chains, and costs a fraction of a millisecond a policy. The
studies of the actor need millions of gradients of well-behaved models with few states: here they cost microseconds.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from moac import simplex
from moac.config import Average, Setting
from moac_studies.rates.problems import LinearLogits, Problem


def gradients(own: Problem, theta: Float[Array, " p"], setting: Setting, law: str = "own") -> Float[Array, "M p"]:
    """Σ_{s,a} ν(s) π(a|s) Advⁱ(s, a) x(s, a): with `law="own"` the gradient ∇Jⁱ with respect to θ.

    ν is the discounted visitation Σ γᵗ Pr(s_t = s), not normalised, or in the average setting the stationary law d;
    `law="stationary"` puts d there in both settings, which is Lemma 1's Hⁱ. Discounts must be equal.
    """
    pi = LinearLogits(own).tabulate(theta)
    move, end, reward = _tables(own)
    P, r = jnp.einsum("sa,sat->st", pi, move), jnp.einsum("sa,sam->sm", pi, reward)
    restart = P + (pi * end).sum(axis=1)[:, None] * own.initial
    if isinstance(setting, Average):
        weight, V = _average(restart, r)
        ahead = jnp.einsum("sat,tm->sam", move, V) + end[..., None] * (own.initial @ V)
    else:
        (gamma,) = set(setting.discounts(r.shape[1]))
        resolvent = _inverse(gamma * P)
        V = resolvent @ r
        ahead = gamma * jnp.einsum("sat,tm->sam", move, V)
        weight = own.initial @ resolvent if law == "own" else _average(restart, r)[0]
    Q = reward + ahead
    advantage = Q - jnp.einsum("sa,sam->sm", pi, Q)[:, None]
    return jnp.einsum("s,sa,sam,sap->mp", weight, pi, advantage, own.features)


def _tables(own: Problem) -> tuple[Array, Array, Array]:
    """Chance to go on from s to s' by a [S, A, S], to end [S, A], and the expected reward [S, A, M]."""
    goes_on = own.probability * ~own.terminated
    successor = jax.nn.one_hot(own.next_state, len(own.initial), dtype=goes_on.dtype)
    move = jnp.einsum("sao,saot->sat", goes_on, successor)
    return move, (own.probability - goes_on).sum(axis=2), jnp.einsum("sao,saom->sam", own.probability, own.reward)


def _average(chain: Float[Array, "S S"], reward: Float[Array, "S M"]) -> tuple[Array, Array]:
    """The stationary law d and the bias h with h(0) = 0, from the chain between two visits to state 0."""
    between = _inverse(chain[1:, 1:])
    visits = jnp.append(1.0, chain[0, 1:] @ between)
    d = visits / jnp.sum(visits)
    excess = reward - d @ reward
    return d, jnp.concatenate([jnp.zeros_like(excess[:1]), between @ excess[1:]])


def _inverse(P: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """(I − P)⁻¹ for a substochastic P. Gauss and Jordan, written out: such matrices need no pivoting."""
    n = len(P)
    table = jnp.concatenate([jnp.eye(n) - P, jnp.eye(n)], axis=1)
    for k in range(n):
        row = table[k] / table[k, k]
        table = (table - table[:, k, None] * row).at[k].set(row)
    return table[:, n:]


def gaps(problems: Problem, theta: Any, setting: Setting, law: str = "own") -> Float[np.ndarray, "n ..."]:
    """min over the simplex of ‖Σ λᵢ∇Jⁱ(θ)‖² for θ [n, ..., p] of n stacked problems, in float64."""
    shape = np.shape(theta)
    with jax.enable_x64(True):
        flat = jnp.asarray(np.asarray(theta, np.float64).reshape(shape[0], -1, shape[-1]))
        return np.asarray(_gaps(setting, law, problems, flat)).reshape(shape[:-1])


@partial(jax.jit, static_argnums=(0, 1))
def _gaps(setting: Setting, law: str, problems: Problem, theta: Any) -> Any:
    def one(own: Problem, theta: Any) -> Any:
        return simplex.min_norm(gradients(own, theta, setting, law)).squared_norm

    n, count = theta.shape[:2]
    repeated = jax.tree.map(lambda x: jnp.repeat(jnp.asarray(x), count, axis=0), problems)
    return jax.vmap(one)(repeated, theta.reshape(n * count, -1)).reshape(n, count)
