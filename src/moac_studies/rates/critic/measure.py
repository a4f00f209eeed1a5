"""Algorithm 1 on a fixed policy, many trials at once: how far w_N is from w*."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from moac import settings
from moac.config import Average, Config, Discounted
from moac.critic import TD, LinearCritic
from moac.policies import SoftmaxTable
from moac.policies.features import OneHot
from moac.types import Batch, Key, Sampling
from moac_studies.rates.critic.problems import DISCOUNTED, EXACT, OURS, PAPER, VARIANTS, Plan, Problem

_TOGETHER = 50
"""Trials in one compiled call at most; two such calls run at a time."""

Learned = tuple[Any, ...]
"""w [S, M] and μ [M], with a leading axis of trials outside the compiled program."""


@final
@dataclass(frozen=True, eq=False)
class Learner:
    """One variant of Algorithm 1 on one problem."""

    problem: Problem
    variant: str
    plan: Plan

    @cached_property
    def target(self) -> Float[np.ndarray, "S M"]:
        """w*."""
        return self.problem.target(self.variant)

    @cached_property
    def _td(self) -> TD:
        """With the exact J the average setting is the discounted recursion at γ = 1 on rewards r − J."""
        M, own = self.problem.model.num_objectives, self.variant in (OURS, PAPER)
        config = Config(
            setting=Average() if own else Discounted(self.problem.gamma),
            critic_step_size=self.plan.step_size,
            critic_batch_size=self.plan.batch_size,
            mu="paper" if self.variant == PAPER else "batch",
        )
        gamma = self.problem.setting(self.variant).discounts(M)
        resolved = settings.resolve(config, self.problem.model.spec)
        return TD(LinearCritic(OneHot(self.problem.model.num_states), M), resolved, gamma)

    def start(self, trials: int) -> Learned:
        """w_0 and μ_0 of so many trials."""
        w, mu = self.target, self.problem.average_reward
        first = (np.zeros_like(w), np.zeros_like(mu)) if self.plan.from_zero else (w, mu)
        return tuple(np.broadcast_to(x.astype(np.float32), (trials, *x.shape)) for x in first)

    def learn(self, learned: Learned, batches: Batch) -> Learned:
        """The next TD steps; in the average setting an ended episode's successor is the restart state."""
        if self.variant != DISCOUNTED:
            batches = replace(batches, terminated=None)
        if self.variant == EXACT:
            J = jnp.asarray(self.problem.average_reward, batches.reward.dtype)
            batches = replace(batches, reward=batches.reward - J)
        w, mu = learned
        return self._td.learn(w, mu, self._td.steps.init(w), batches)[:2]

    def error(self, w: Float[Array, "S M"]) -> Float[Array, " M"]:
        """‖wⁱ − w^{i,*}‖² of each objective, modulo constants in the average setting."""
        apart = w - jnp.asarray(self.target, w.dtype)
        if self.variant != DISCOUNTED:
            apart = apart - jnp.mean(apart, axis=0)
        return jnp.sum(apart**2, axis=0)


def errors(problem: Problem, plan: Plan, variants: tuple[str, ...] = VARIANTS) -> dict[str, Float[np.ndarray, "K L M"]]:
    """‖w_N − w*‖² of every trial, checkpoint and objective, by variant; all variants see the same samples."""
    together = min(_TOGETHER, max(1, plan.trials // 2))
    if plan.trials % together:
        raise ValueError(f"`trials` must be even, and beyond 100 a multiple of 50, got {plan.trials}.")
    learners = tuple(Learner(problem, variant, plan) for variant in variants)
    walks = _walks(problem, plan.between * plan.batch_size, together)
    learn = _program(problem, (plan.step_size, plan.batch_size, plan.between), variants, together)
    key = jax.random.fold_in(jax.random.key(plan.seed), 2 * plan.batch_size + plan.from_zero)
    groups = jax.random.split(key, plan.trials).reshape(-1, together)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda group: _group(learners, walks, learn, group), groups))
    return {variant: np.concatenate([part[v] for part in found]) for v, variant in enumerate(variants)}


class _Walks(NamedTuple):
    """Compiled chains: their first states, and the next transitions of each; their number, not D, shapes it."""

    start: Any
    walk: Any


@lru_cache(maxsize=4)
def _walks(problem: Problem, steps: int, together: int) -> _Walks:
    model = problem.model
    policy, theta = SoftmaxTable(model.num_states, model.num_actions), jnp.asarray(problem.logits, jnp.float32)

    def walk(chain: Any, key: Key, number: Any) -> tuple[Any, Batch]:
        sizes = Sampling(1, steps, 0, False, None)
        chain, batches, _ = model.sample(chain, policy, theta, jax.random.fold_in(key, number), sizes)
        return chain, jax.tree.map(lambda x: x[0], batches)

    keys = jax.random.split(jax.random.key(0), together)
    start = jax.jit(jax.vmap(lambda key: model.start(jax.random.fold_in(key, 0)))).lower(keys).compile()
    lowered = jax.jit(jax.vmap(walk, (0, 0, None))).lower(start(keys), keys, np.int32(1))
    return _Walks(start, lowered.compile())


@lru_cache(maxsize=16)
def _program(problem: Problem, sizes: tuple[float, int, int], variants: tuple[str, ...], together: int) -> Any:
    """The compiled TD steps of all variants on the transitions of one walk, and their errors after it.

    `sizes` is β, D and the number of steps: all that it depends on, so that floors and decays share it.
    """
    beta, D, between = sizes
    plan = Plan(beta, D, between, between * D, together, 0, from_zero=True)
    learners = tuple(Learner(problem, variant, plan) for variant in variants)

    def learn(learned: list[Learned], walked: Batch) -> tuple[list[Learned], list[Array]]:
        batches = jax.tree.map(lambda x: x.reshape(between, D, *x.shape[1:]), walked)
        after = [learner.learn(now, batches) for learner, now in zip(learners, learned, strict=True)]
        return after, [learner.error(w) for learner, (w, _) in zip(learners, after, strict=True)]

    walked = _walks(problem, between * D, together).walk.out_info[1]
    return jax.jit(jax.vmap(learn)).lower([learner.start(together) for learner in learners], walked).compile()


def _group(learners: tuple[Learner, ...], walks: _Walks, learn: Any, keys: Key) -> list[Float[np.ndarray, "K L M"]]:
    """Some trials from the first step to the last."""
    learned, found = [learner.start(len(keys)) for learner in learners], list[Any]()
    chain = walks.start(keys)
    for number in range(1, 1 + len(learners[0].plan.checkpoints)):
        chain, walked = walks.walk(chain, keys, np.int32(number))
        learned, error = learn(learned, walked)
        found.append(error)
    return [np.stack([np.asarray(e[v], np.float64) for e in found], axis=1) for v in range(len(learners))]


def mean_dynamics(A: Float[np.ndarray, "M S S"], target: Float[np.ndarray, "S M"], plan: Plan) -> Mapping[str, Any]:
    """What the expected step alone does from w_0 = 0: ‖(I + βAⁱ)ᴺ w^{i,*}‖², and the rate it settles at.

    Args:
        A: of each objective; an eigenvalue of zero (constants, in the average setting) is left out, for the target
            has no part in it.
        target: w*.
        plan: β and the checkpoints.

    Returns:
        errors: [L, M].
        rate: [M], −2 log|1 + βλ| of the slowest eigenvalue: what log ‖·‖² loses with each step.
    """
    shrink = np.eye(A.shape[1]) + plan.step_size * A
    leap = np.linalg.matrix_power(shrink, plan.between)
    apart, found = target.T[:, :, None], []
    for _ in plan.checkpoints:
        apart = leap @ apart
        found.append((apart**2).sum(axis=(1, 2)))
    sizes = np.sort(np.abs(np.linalg.eigvals(shrink)), axis=1)
    slowest = np.where(sizes[:, -1] > 1 - 1e-12, sizes[:, -2], sizes[:, -1])
    return {"errors": np.array(found), "rate": -2 * np.log(slowest)}
