"""How far Algorithm 1's w_N is from w* on a fixed policy: measured for many trials, with its decay and floor fitted."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from moac import settings, theory
from moac.config import Average, Config, Discounted, Setting
from moac.critic import TD, LinearCritic
from moac.momdp import FiniteMOMDP, evaluate, library, td_fixed_point
from moac.policies import SoftmaxTable
from moac.policies.features import OneHot
from moac.statistics import Mean
from moac.types import Batch, Key, Sampling
from moac_studies import compare
from moac_studies.framework import Table, Workspace

DISCOUNTED, EXACT, OURS, PAPER = "discounted", "average, exact J", "average, our μ", "average, the paper's μ"
VARIANTS = (DISCOUNTED, EXACT, OURS, PAPER)
_TOGETHER = 50  # Trials in one compiled call at most; two such calls run at a time
_ABOVE = 2.0  # A rate is fitted while the mean error is above this many times its floor
_FEWEST = 4  # Checkpoints that a rate, or how much an error still rises, is told from; with fewer it is not known
_MOST = 40
"""Checkpoints that a rate is fitted to: spread over all, for the bootstrap takes them times trials times 1000."""
UNKNOWN = Mean(np.nan, np.nan, np.nan, 0)


@dataclass(frozen=True, eq=False)
class Problem:
    """A fixed softmax policy on a model, with one-hot features."""

    name: str  # as tables say it
    model: FiniteMOMDP  # the MOMDP
    logits: Float[np.ndarray, "S A"]  # of the policy [S, A]
    gamma: float  # the discount of the discounted variant

    def setting(self, variant: str) -> Setting:
        """The setting of a variant."""
        return Discounted(self.gamma) if variant == DISCOUNTED else Average()

    @cached_property
    def average_reward(self) -> Float[np.ndarray, " M"]:
        """J of the average setting."""
        return evaluate(self.model, self.logits, Average()).returns

    def target(self, variant: str) -> Float[np.ndarray, "S M"]:
        """w*; in the average setting the one of least norm, for only its differences are determined."""
        return td_fixed_point(self.model, self.logits, self.setting(variant), np.eye(self.model.num_states)).T


def random_ergodic(table: Table) -> Problem:
    """A random ergodic model under a random policy."""
    S, A = int(table["num_states"]), int(table["num_actions"])
    model = library.random_ergodic(int(table["model_key"]), S, A, int(table["num_objectives"]))
    logits = np.random.default_rng(int(table["policy_key"])).normal(size=(S, A))
    return Problem("random ergodic", model, logits, float(table["discount"]))


def resource_gathering(table: Table) -> Problem:
    """resource-gathering-v0 under the uniform policy."""
    model = library.resource_gathering()
    logits = np.zeros((model.num_states, model.num_actions))
    return Problem("resource-gathering", model, logits, float(table["discount"]))


def well_mixed(table: Table) -> Problem:
    """One action, and every state as likely as any other after one step, so that ρ = 0; rewards [S, M]."""
    reward = np.array(table["rewards"], dtype=np.float64)
    S = len(reward)
    model = FiniteMOMDP.from_dense(np.full((S, 1, S), 1 / S), reward[:, None, :])
    return Problem("well-mixed", model, np.zeros((S, 1)), float(table["discount"]))


@dataclass(frozen=True)
class Plan:
    """How to run the critic."""

    step_size: float  # β
    batch_size: int  # D
    num_steps: int  # N, rounded up to whole rollouts
    walk: int  # transitions of a rollout, from one checkpoint to the next, rounded down to whole batches
    trials: int  # K
    seed: int  # of the samples, which all variants share
    from_zero: bool  # whether w_0 = 0 and μ_0 = 0; else w_0 = w* and μ_0 = J, and the error rises to its floor

    @property
    def between(self) -> int:
        """TD steps from one checkpoint to the next."""
        return max(1, self.walk // self.batch_size)

    @property
    def checkpoints(self) -> Float[np.ndarray, " L"]:
        """N at each checkpoint."""
        return self.between * np.arange(1.0, np.ceil(self.num_steps / self.between) + 1)


def errors(problem: Problem, plan: Plan, variants: tuple[str, ...] = VARIANTS) -> dict[str, Float[np.ndarray, "K L M"]]:
    """‖w_N − w*‖² of every trial, checkpoint and objective, by variant; all variants see the same samples."""
    together = min(_TOGETHER, max(1, plan.trials // 2))
    if plan.trials % together:
        raise ValueError(f"`trials` must be even, and beyond 100 a multiple of 50, got {plan.trials}.")
    sizes = (plan.step_size, plan.batch_size, plan.between)

    def of_group(keys: Key) -> list[Float[np.ndarray, "K L M"]]:
        """Some trials from the first step to the last."""
        learned, by_checkpoint = [_start(problem, v, len(keys), plan.from_zero) for v in variants], list[Any]()
        chain = _begin(problem, keys)
        for number in range(1, 1 + len(plan.checkpoints)):
            chain, learned, error = _advance(problem, sizes, variants, (chain, learned), (keys, np.int32(number)))
            by_checkpoint.append(error)
        return [np.stack([np.asarray(e[v], np.float64) for e in by_checkpoint], axis=1) for v in range(len(variants))]

    key = jax.random.fold_in(jax.random.key(plan.seed), 2 * plan.batch_size + plan.from_zero)
    groups = jax.random.split(key, plan.trials).reshape(-1, together)
    with ThreadPoolExecutor(2) as pool:
        by_group = list(pool.map(of_group, groups))
    return {variant: np.concatenate([part[v] for part in by_group]) for v, variant in enumerate(variants)}


def _start(problem: Problem, variant: str, trials: int, from_zero: bool) -> tuple[Any, ...]:
    """w_0 [K, S, M] and μ_0 [K, M]."""
    w, mu = problem.target(variant), problem.average_reward
    first = (np.zeros_like(w), np.zeros_like(mu)) if from_zero else (w, mu)
    return tuple(np.broadcast_to(x.astype(np.float32), (trials, *x.shape)) for x in first)


@partial(jax.jit, static_argnums=0)
def _begin(problem: Problem, keys: Key) -> Any:
    """The first states of some chains."""
    return jax.vmap(lambda key: problem.model.start(jax.random.fold_in(key, 0)))(keys)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _advance(problem: Problem, sizes: tuple[float, int, int], variants: tuple[str, ...], carried: Any, at: Any) -> Any:
    """The next rollout of some chains, and the TD steps of all variants on it: chains, what is learned, and its errors.

    `sizes` are β, D and the number of steps: all that it depends on, so that floors and decays share a program.
    `at` are the keys of the chains and the number of the rollout.
    """
    model, (_, D, between) = problem.model, sizes
    policy, theta = SoftmaxTable(model.num_states, model.num_actions), jnp.asarray(problem.logits, jnp.float32)
    steps = [_learner(problem, variant, sizes) for variant in variants]

    def advance(chain: Any, learned: list[Any], key: Key, number: Any) -> tuple[Any, list[Any], list[Array]]:
        sampling = Sampling(between, D, 0, False, None)
        chain, batches, _ = model.sample(chain, policy, theta, jax.random.fold_in(key, number), sampling)
        after, errors = zip(*(step(now, batches) for step, now in zip(steps, learned, strict=True)), strict=True)
        return chain, list(after), list(errors)

    return jax.vmap(advance, (0, 0, 0, None))(*carried, *at)


def _learner(problem: Problem, variant: str, sizes: tuple[float, int, int]) -> Any:
    """TD steps of a variant, and ‖wⁱ − w^{i,*}‖² after them, modulo constants in the average setting.

    With the exact J it is the discounted recursion at γ = 1 on rewards r − J.
    """
    M, running = problem.model.num_objectives, variant in (OURS, PAPER)
    config = Config(
        setting=Average() if running else Discounted(problem.gamma),
        critic_step_size=sizes[0],
        critic_batch_size=sizes[1],
        mu="paper" if variant == PAPER else "batch",
    )
    resolved, gamma = settings.resolve(config, problem.model.spec), problem.setting(variant).discounts(M)
    td = TD(LinearCritic(OneHot(problem.model.num_states), M), resolved, gamma)

    def learn(learned: tuple[Any, ...], batches: Batch) -> tuple[tuple[Any, ...], Float[Array, " M"]]:
        if variant != DISCOUNTED:  # an ended episode's successor is the restart state
            batches = replace(batches, terminated=None)
        if variant == EXACT:
            J = jnp.asarray(problem.average_reward, batches.reward.dtype)
            batches = replace(batches, reward=batches.reward - J)
        w, mu = learned
        w, mu = td.learn(w, mu, td.steps.init(w), batches)[:2]
        apart = w - jnp.asarray(problem.target(variant), w.dtype)
        if variant != DISCOUNTED:
            apart = apart - jnp.mean(apart, axis=0)
        return (w, mu), jnp.sum(apart**2, axis=0)

    return learn


def mean_dynamics(problem: Problem, variant: str, plan: Plan) -> tuple[Float[np.ndarray, "L M"], Any]:
    """What the expected step alone does from w_0 = 0: ‖(I + βAⁱ)ᴺ w^{i,*}‖² [L, M], and the rate it settles at [M].

    The rate is −2 log|1 + βλ| of the slowest eigenvalue: what log ‖·‖² loses with each step. An eigenvalue of zero
    (constants, in the average setting) is left out, for the target has no part in it.
    """
    A, target = theory.ground(problem.model, problem.logits, problem.setting(variant)).A, problem.target(variant)
    shrink = np.eye(A.shape[1]) + plan.step_size * A
    leap = np.linalg.matrix_power(shrink, plan.between)
    apart, squares = target.T[:, :, None], []
    for _ in plan.checkpoints:
        apart = leap @ apart
        squares.append((apart**2).sum(axis=(1, 2)))
    sizes = np.sort(np.abs(np.linalg.eigvals(shrink)), axis=1)
    slowest = np.where(sizes[:, -1] > 1 - 1e-12, sizes[:, -2], sizes[:, -1])
    return np.array(squares), -2 * np.log(slowest)


@dataclass(frozen=True)
class Fit:
    """A geometric rate: log(E‖w_N − w*‖² − floor) ≈ constant − rate·N."""

    orders: Mean  # powers of ten by which the error falls until it is close to its floor, with its interval over trials
    straight: Mean  # R² of the line, likewise
    rate: Mean  # per TD step, with its interval over trials
    expected: float  # the same line fitted to the mean dynamics ‖(I + βA)ᴺ(w_0 − w*)‖² at the same N
    limit: float  # −2 log(1 − β min Re eig(−A)), at which the mean dynamics settle

    @property
    def agreement(self) -> Mean:
        """The measured rate as a multiple of the expected one."""
        return self.rate.mapped(lambda rate: rate / self.expected)


@dataclass(frozen=True, eq=False)
class Decay:
    """The error from w_0 = 0 on."""

    plan: Plan  # how it was run
    errors: Float[np.ndarray, "K L M"]  # ‖wⁱ_N − w^{i,*}‖²
    floor: Float[np.ndarray, " M"]  # where it ends, from a run that began at w*
    expected: Float[np.ndarray, "L M"]  # the mean dynamics; of a running μ, which moves along with w, they say nothing
    limit: Float[np.ndarray, " M"]  # the rate at which they settle

    @property
    def worst(self) -> int:
        """The objective with the largest error."""
        return int(self.errors.mean(axis=(0, 1)).argmax())

    @cached_property
    def fits(self) -> tuple[Fit, ...]:
        """The rate of each objective."""
        return tuple(self._fit(i) for i in range(len(self.floor)))

    def _fit(self, i: int) -> Fit:
        mean = self.errors[:, :, i].mean(axis=0)
        near = np.flatnonzero(mean < _ABOVE * self.floor[i])
        last = int(near[0]) if len(near) else len(mean)
        if last < _FEWEST:
            return Fit(UNKNOWN, UNKNOWN, UNKNOWN, np.nan, float(self.limit[i]))
        used = np.unique(np.linspace(0, last - 1, _MOST).astype(int))
        N, excess = self.plan.checkpoints[used], self.errors[:, used, i] - self.floor[i]
        rate = compare.slope(np.exp(N / N[-1]), excess).mapped(lambda slope: -slope / N[-1])
        straight = compare.bootstrapped(excess, lambda means: compare.straightness(N, compare.logarithm(means)))
        ends = self.errors[:, [0, last - 1], i]
        orders = compare.bootstrapped(ends, lambda means: np.log10(means[:, 0] / means[:, 1]))
        expected = -float(np.polyfit(N, np.log(self.expected[used, i]), 1)[0])
        return Fit(orders, straight, rate, expected, float(self.limit[i]))


@dataclass(frozen=True, eq=False)
class Floors:
    """The error late in runs that began at w*."""

    sizes: Float[np.ndarray, " n"]  # D
    values: Mapping[str, Float[np.ndarray, "K n M"]]  # the mean over the second half of the checkpoints, by variant
    # how much the last quarter is above the one before, by variant, a mean over all D and objectives
    rising: Mapping[str, float]

    @cached_property
    def slopes(self) -> Mapping[str, list[Mean]]:
        """Of log floor against log D, of each objective, by variant."""
        return {v: [compare.slope(self.sizes, x[:, :, i]) for i in range(x.shape[2])] for v, x in self.values.items()}

    def worst(self, variant: str) -> int:
        """The objective with the largest floor."""
        return int(self.values[variant].mean(axis=(0, 1)).argmax())

    def trials(self, variant: str, size: int) -> Float[np.ndarray, "K M"]:
        """The floors at one D."""
        return self.values[variant][:, list(self.sizes).index(size)]

    def of(self, variant: str, size: int) -> Float[np.ndarray, " M"]:
        """The mean floor at one D."""
        return self.trials(variant, size).mean(axis=0)


@dataclass(frozen=True, eq=False)
class Measured:
    """All of one problem."""

    problem: Problem
    step_size: float
    floors: Floors
    decays: Mapping[str, Decay]


def run(problem: Problem, plan: Plan, variants: tuple[str, ...], work: Workspace) -> dict[str, Any]:
    """The errors of one plan, kept in the workspace."""
    about = {"model": problem.model.fingerprint, "logits": problem.logits.tolist(), "discount": problem.gamma}
    began = "decay" if plan.from_zero else "floor"
    label = f"{problem.name.replace(' ', '-')}-{began}-{plan.batch_size}"
    return work.keep(label, {**about, **vars(plan), "variants": variants}, lambda: errors(problem, plan, variants))


def measure(problem: Problem, table: Table, seed: int, work: Workspace) -> Measured:
    """The floor of every variant at every D, then decays at one D."""
    beta, sizes = float(table["step_size"]), [int(D) for D in table["batch_sizes"]]

    def plan(D: int, steps: int, from_zero: bool) -> Plan:
        return Plan(beta, D, steps, int(table["walk"]), int(table["trials"]), seed, from_zero)

    by_size = [run(problem, plan(D, int(table["floor_steps"]), False), VARIANTS, work) for D in sizes]
    late = {v: np.stack([late_mean(run[v]) for run in by_size], axis=1) for v in VARIANTS}
    rising = {v: float(np.mean([_rise(run[v]) for run in by_size])) for v in VARIANTS}
    floors = Floors(np.array(sizes, float), late, rising)
    D, steps = int(table["decay_batch_size"]), table["decay_steps"]
    longest, decays = run(problem, plan(D, max(steps.values()), True), VARIANTS, work), dict[str, Decay]()
    for v in VARIANTS:
        own_plan = plan(D, int(steps["discounted" if v == DISCOUNTED else "average"]), True)
        decays[v] = decay(problem, v, own_plan, longest[v], floors.of(v, D))
    return Measured(problem, beta, floors, decays)


def decay(problem: Problem, variant: str, plan: Plan, measured: Any, floor: Float[np.ndarray, " M"]) -> Decay:
    """The measured errors, as far as `plan` goes, beside the mean dynamics."""
    return Decay(plan, measured[:, : len(plan.checkpoints)], floor, *mean_dynamics(problem, variant, plan))


def late_mean(values: Float[np.ndarray, "K L M"]) -> Float[np.ndarray, "K M"]:
    """The mean over the second half of the checkpoints."""
    return values[:, values.shape[1] // 2 :].mean(axis=1)


def _rise(values: Float[np.ndarray, "K L M"]) -> float:
    if values.shape[1] < _FEWEST:
        return np.nan
    half, quarter = values.shape[1] // 2, values.shape[1] * 3 // 4
    return float((values[:, quarter:].mean(axis=(0, 1)) / values[:, half:quarter].mean(axis=(0, 1)) - 1).mean())
