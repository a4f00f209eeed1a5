"""Ascent along exact directions: what is left of Theorem 2 when neither critic nor batch err."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Int

from moac import simplex
from moac.config import Setting
from moac_studies.rates import trajectories
from moac_studies.rates.closed_form import gradients
from moac_studies.rates.problems import Problem


def points(longest: int, per_decade: int = 4) -> Int[np.ndarray, " L"]:
    """Numbers of iterations from 1 to `longest`, evenly spread on a log axis."""
    return np.unique(np.geomspace(1, longest, 1 + round(per_decade * np.log10(longest))).round().astype(int))


def mean_gaps(
    problems: Problem, labels: tuple[str, ...], how: tuple[float, Setting, str], grid: Any
) -> tuple[Any, Any]:
    """θ ← θ + α Σ λᵢ∇Jⁱ(θ) with exact gradients, on n problems at once.

    Args:
        problems: stacked along [n]; each has its own start.
        labels: the schedules, E of them.
        how: the step α, the setting, and the law that weighs states in the direction that is followed.
        grid: [L] numbers of iterations T.

    Returns:
        Σ_{t ≤ T} gap(θ_t)/T of the true gap [E, n, L], and the iterates θ_{T+1} [E, n, L, p].
    """
    with jax.enable_x64(True):
        schedules, alpha = trajectories.exponents(labels), jnp.asarray(how[0])
        total, theta = _ascend(how[1], how[2], jnp.asarray(grid, jnp.int32), problems, schedules, alpha)
        return np.asarray(total) / np.asarray(grid), np.asarray(theta)


@partial(jax.jit, static_argnums=(0, 1))
def _ascend(setting: Setting, law: str, grid: Any, problems: Problem, schedules: Any, alpha: Any) -> Any:
    rule = trajectories.rule()

    def one(own: Problem, schedule: Any) -> Any:
        def step(carry: Any) -> Any:
            theta, weights, total, t = carry
            G = gradients(own, theta, setting)
            H = G if law == "own" else gradients(own, theta, setting, law)
            weights, lam = rule.update(weights, H @ H.T, t)
            return theta + alpha * lam @ H, weights, total + simplex.min_norm(G).squared_norm, t + 1

        def until(carry: Any, last: Any) -> Any:
            carry = lax.while_loop(lambda c: c[3] <= last, step, carry)
            return carry, (carry[2], carry[0])

        weights = (rule.init(own.reward.shape[-1])[0], *schedule)
        start = (jnp.asarray(own.theta), weights, jnp.zeros(()), jnp.ones((), jnp.int32))
        return lax.scan(until, start, grid)[1]

    e, i = (index.reshape(-1) for index in np.indices((len(schedules[0]), len(problems.theta))))
    found = jax.vmap(one)(jax.tree.map(lambda x: jnp.asarray(x)[i], problems), [x[e] for x in schedules])
    return jax.tree.map(lambda x: x.reshape(len(schedules[0]), -1, *x.shape[1:]), found)
