"""Small problems as data: their samples and exact gradients, and ascent on many of them in one compiled program.

Compiling costs seconds and a run of a small problem less than one: so the tables of a model are arguments here, where
the library takes the model as a constant. That is why this file samples and differentiates by itself: `sample` does
what `FiniteMOMDP.sample` does, and `gradients` gives in microseconds what `momdp.evaluate`, which is careful with rare
states and slow chains, gives in a fraction of a millisecond. Tests hold each against the library's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float, Int

from moac import algorithm, settings, simplex, weighting
from moac.config import Average, Config, Discounted, Setting
from moac.critic import LinearCritic
from moac.momdp import FiniteMOMDP
from moac.policies import features
from moac.policies.observations import StateSpec
from moac.types import Batch, Key, Observation, Params, Sampling, Spec, State
from moac.weighting import Rule

_NEVER = -1e9  # Logit of an action that a problem does not have
SCHEDULES: dict[str, tuple[float, float]] = {
    "η = 1": (1.0, 0.0),
    "η = 1/√t": (1.0, 0.5),
    "η = 1/t": (1.0, 1.0),
    "η = 1/t²": (1.0, 2.0),
    "η = 0": (0.0, 0.0),
}
"""η_t = c t⁻ᵖ, as (c, p); with c = 0 the weights stay uniform."""
FIRST_BATCH = "first batch"
_CONTROLS = {FIRST_BATCH: (1.0, 200.0)}
"""η_1 = 1 and then 0, as near as any float can tell: the weights of the first batch for ever."""
COLOURS = {label: index for index, label in enumerate((*SCHEDULES, FIRST_BATCH))}
"""One colour for each schedule, in all figures."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Problem:
    """A finite model with a policy π(a|s) ∝ exp(x(s, a)ᵀθ + o(s, a)); problems of one shape may be stacked."""

    next_state: Int[Array, "S A O"]  # successor of each outcome, as in `FiniteMOMDP`; likewise the next four
    probability: Float[Array, "S A O"]  # of each outcome
    reward: Float[Array, "S A O M"]  # of each outcome
    terminated: Bool[Array, "S A O"]  # whether it ends the episode
    initial: Float[Array, " S"]  # distribution of the first state
    features: Float[Array, "S A p"]  # x
    offset: Float[Array, "S A"]  # o, very low where the problem lacks an action, else 0
    theta: Float[Array, " p"]  # θ_1


def problem_of(model: FiniteMOMDP, features: Any = None, theta: Any = None) -> Problem:
    """A model with its policy; by default a table of logits that starts uniform."""
    S, A = model.num_states, model.num_actions
    x = np.eye(S * A).reshape(S, A, -1) if features is None else np.asarray(features, np.float64)
    start = np.zeros(x.shape[2]) if theta is None else np.asarray(theta, np.float64)
    tables: Any = (model.next_state, model.probability, model.reward, model.terminated, model.start_distribution)
    policy: Any = (x, np.zeros((S, A)), start)
    return Problem(*tables, *policy)


def one_step(reward: Any) -> FiniteMOMDP:
    """Every step ends the episode; outcomes of r [S, A, O, M] are equally likely, the first state is drawn evenly."""
    shape = reward.shape[:3]
    return FiniteMOMDP.from_outcomes(np.zeros(shape, int), np.full(shape, 1 / shape[2]), reward, np.ones(shape, bool))


def stacked(problems: list[Problem]) -> Problem:
    """Problems of one shape along a leading axis."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *problems)


def padded(problem: Problem, shape: tuple[int, int, int], num_outcomes: int | None = None) -> Problem:
    """The same problem in a larger shape [S, A, p]: states never visited, actions never taken, idle parameters.

    And with room for more outcomes, of probability 0.
    """
    S, A, p = problem.features.shape
    more: Any = ((0, shape[0] - S), (0, shape[1] - A))
    outcomes: Any = (*more, (0, 0 if num_outcomes is None else num_outcomes - problem.probability.shape[2]))
    certain = np.pad(problem.probability, outcomes)
    certain[..., 0] = np.where(certain.sum(axis=2) > 0, certain[..., 0], 1.0)
    offset = np.pad(problem.offset, ((0, 0), more[1]), constant_values=_NEVER)
    fields: dict[str, Any] = {
        "next_state": np.pad(problem.next_state, outcomes),
        "probability": certain,
        "reward": np.pad(problem.reward, (*outcomes, (0, 0))),
        "terminated": np.pad(problem.terminated, outcomes, constant_values=True),
        "initial": np.pad(problem.initial, more[0]),
        "features": np.pad(problem.features, (*more, (0, shape[2] - p))),
        "offset": np.pad(offset, (more[0], (0, 0))),
        "theta": np.pad(problem.theta, (0, shape[2] - p)),
    }
    return replace(problem, **fields)


@dataclass(frozen=True, eq=False)
class LinearLogits:
    """The policy of a problem, for the algorithm."""

    problem: Problem

    def init(self, key: Key) -> Float[Array, " p"]:
        """θ_1."""
        del key
        return jnp.asarray(self.problem.theta, float)

    def sample(self, theta: Float[Array, " p"], observation: Observation, key: Key) -> Any:
        """a ~ π(·|s)."""
        return jax.random.categorical(key, self._logits(theta)[observation])

    def log_prob(self, theta: Float[Array, " p"], observation: Observation, action: Any) -> Float[Array, ""]:
        """log π(a|s)."""
        return jax.nn.log_softmax(self._logits(theta)[observation])[action]

    def tabulate(self, theta: Float[Array, " p"]) -> Float[Array, "S A"]:
        """π(a|s) for all states."""
        return jax.nn.softmax(self._logits(theta))

    def accumulate(
        self, theta: Float[Array, " p"], observation: Observation, action: Any, signal: Float[Array, "B M"]
    ) -> tuple[Params, ...]:
        """Σ_l signalⁱ_l ψ_l."""
        psi = self.scores(theta)[observation, action]
        return tuple(column @ psi for column in signal.T)

    def scores(self, theta: Float[Array, " p"]) -> Float[Array, "S A p"]:
        """ψ(s, a) = x(s, a) − Σ_b π(b|s) x(s, b)."""
        x = jnp.asarray(self.problem.features, theta.dtype)
        return x - jnp.einsum("sa,sap->sp", self.tabulate(theta), x)[:, None]

    def _logits(self, theta: Float[Array, " p"]) -> Float[Array, "S A"]:
        x, offset = (jnp.asarray(part, theta.dtype) for part in (self.problem.features, self.problem.offset))
        return x @ theta + offset


def first_state(problem: Problem, key: Key) -> Int[Array, ""]:
    """s ~ start."""
    return jax.random.categorical(key, jnp.log(problem.initial)).astype(jnp.int32)


def sample(
    problem: Problem, state: Int[Array, ""], theta: Params, key: Key, sizes: Sampling
) -> tuple[Int[Array, ""], Batch, Batch]:
    """As `FiniteMOMDP.sample`, but without age: the state after N·D + B transitions, and the two kinds of batches."""
    pi = LinearLogits(problem).tabulate(theta)
    joint = (pi[:, :, None] * jnp.asarray(problem.probability, pi.dtype)).reshape(len(pi), -1)
    cumulative = jnp.cumsum(joint, axis=1) / jnp.sum(joint, axis=1, keepdims=True)
    successor, terminated = problem.next_state.reshape(len(pi), -1), problem.terminated.reshape(len(pi), -1)
    starts = jnp.cumsum(jnp.asarray(problem.initial, pi.dtype))
    restarts = 1.0 if sizes.survival is None else sizes.survival

    def step(s: Any, uniform: Any) -> tuple[Any, tuple[Any, Any, Any]]:
        index = jnp.sum(uniform[0] >= cumulative[s, :-1], dtype=jnp.int32)
        first = jnp.sum(uniform[1] * starts[-1] >= starts[:-1], dtype=jnp.int32)
        after = jnp.where(terminated[s, index] & sizes.average, first, successor[s, index])
        ends = terminated[s, index] | (uniform[2] >= restarts)
        return jnp.where(ends, first, after), (s, index, after)

    state, (seen, index, after) = lax.scan(step, state, jax.random.uniform(key, (sizes.steps, 3)))
    reward = problem.reward.reshape(*joint.shape, -1)[seen, index]
    ended = None if sizes.average else terminated[seen, index]
    batch = Batch(seen, index // problem.probability.shape[2], jnp.asarray(reward, pi.dtype), after, ended)
    cut, shape = sizes.steps - sizes.actor_batch_size, (sizes.num_critic_steps, sizes.critic_batch_size)
    critic = jax.tree.map(lambda x: x[:cut].reshape(*shape, *x.shape[1:]), batch)
    return state, critic, jax.tree.map(lambda x: x[cut:], batch)


def gradients(problem: Problem, theta: Float[Array, " p"], setting: Setting, law: str = "own") -> Float[Array, "M p"]:
    """Σ_{s,a} ν(s) π(a|s) Advⁱ(s, a) x(s, a): with `law="own"` the gradient ∇Jⁱ with respect to θ.

    ν is the discounted visitation Σ γᵗ Pr(s_t = s), not normalised, or in the average setting the stationary law d;
    `law="stationary"` puts d there in both settings, which is Lemma 1's Hⁱ. Discounts must be equal.
    """
    pi = LinearLogits(problem).tabulate(theta)
    goes_on = problem.probability * ~problem.terminated
    successor = jax.nn.one_hot(problem.next_state, len(problem.initial), dtype=goes_on.dtype)
    move, end = jnp.einsum("sao,saot->sat", goes_on, successor), (problem.probability - goes_on).sum(axis=2)
    reward = jnp.einsum("sao,saom->sam", problem.probability, problem.reward)
    P, r = jnp.einsum("sa,sat->st", pi, move), jnp.einsum("sa,sam->sm", pi, reward)
    restart = P + (pi * end).sum(axis=1)[:, None] * problem.initial
    if isinstance(setting, Average):
        weight, V = _average(restart, r)
        ahead = jnp.einsum("sat,tm->sam", move, V) + end[..., None] * (problem.initial @ V)
    else:
        (gamma,) = set(setting.discounts(r.shape[1]))
        resolvent = _inverse(gamma * P)
        V = resolvent @ r
        ahead = gamma * jnp.einsum("sat,tm->sam", move, V)
        weight = problem.initial @ resolvent if law == "own" else _average(restart, r)[0]
    Q = reward + ahead
    advantage = Q - jnp.einsum("sa,sam->sm", pi, Q)[:, None]
    return jnp.einsum("s,sa,sam,sap->mp", weight, pi, advantage, problem.features)


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
    def one(problem: Problem, theta: Any) -> Any:
        return simplex.min_norm(gradients(problem, theta, setting, law)).squared_norm

    n, count = theta.shape[:2]
    repeated = jax.tree.map(lambda x: jnp.repeat(jnp.asarray(x), count, axis=0), problems)
    return jax.vmap(one)(repeated, theta.reshape(n * count, -1)).reshape(n, count)


def momentum_rule() -> Rule:
    """Min-norm weights with momentum, the schedule a part of the state, so that one program serves all of them.

    λ_t = (1 − η_t) λ_{t−1} + η_t λ̂_t from λ_0 uniform, as `weighting.with_momentum`; the state is (λ, c, p).
    """
    inner = weighting.min_norm()

    def update(state: Any, K: Float[Array, "M M"], t: Any) -> tuple[Any, Float[Array, " M"]]:
        lam, c, p = state
        eta = (c * jnp.asarray(t, K.dtype) ** -p).astype(K.dtype)
        mixed = (1 - eta) * lam.astype(K.dtype) + eta * inner.update((), K, t)[1]
        lam = jnp.where(eta > 0, mixed / jnp.sum(mixed), lam)  # weights that do not move keep their bits
        return (lam, c, p), lam

    return Rule(lambda M: (jnp.full(M, 1 / M), jnp.ones(()), jnp.ones(())), update)


def exponents(labels: tuple[str, ...]) -> tuple[Any, Any]:
    """c [E] and p [E] of schedules by label."""
    c, p = zip(*((SCHEDULES | _CONTROLS)[label] for label in labels), strict=True)
    return jnp.asarray(c, float), jnp.asarray(p, float)


def spec_of(problem: Problem) -> Spec:
    """What the algorithm knows of a problem, or of stacked ones."""
    S, A, _, M = problem.reward.shape[-4:]
    return Spec("problem", tuple(map(str, range(M))), StateSpec(S), A)


def setting_of(kind: str, discount: float) -> Setting:
    """By what a table of a study calls it."""
    return Average() if kind == "average" else Discounted(discount)


def config_of(p: Mapping[str, Any], setting: Setting, step: float, num_evaluations: int, **more: Any) -> Config:
    """The sizes that a table of a study gives, as a configuration."""
    sizes: dict[str, Any] = {"num_iterations": p["iterations"], "num_critic_steps": p["critic_steps"]}
    sizes |= {"critic_batch_size": p["critic_batch"], "actor_batch_size": p["actor_batch"], "actor_step_size": step}
    sizes |= {"critic_step_size": p["critic_step"], "num_evaluations": num_evaluations}
    return Config(setting=setting, **sizes, **more)


def learned_ascent(
    problems: Problem, config: Config, labels: tuple[str, ...], trials: tuple[int, int]
) -> tuple[Int[np.ndarray, " L"], Float[np.ndarray, "E n K L p"]]:
    """Iterations t [L] from 1 to T + 1, and θ_t, of Algorithm 2 with its own critic and samples.

    On problems stacked along [n], under E schedules by label. `config.num_evaluations` says how many evenly spread
    iterates are kept; `trials` is K and the seed, and trial k has the same randomness under every schedule.
    """
    keys = jax.random.split(jax.random.key(trials[1]), (len(problems.theta), trials[0]))
    T = config.num_iterations or 1
    pace = max(1, T // config.num_evaluations)
    theta = _learned(config, pace, problems, keys, exponents(labels))
    return np.arange(0, T + 1, pace) + 1, np.asarray(theta)


@partial(jax.jit, static_argnums=(0, 1))
def _learned(config: Config, pace: int, problems: Problem, keys: Any, schedules: Any) -> Any:
    """θ_t of all schedules, problems and trials, every `pace` iterations."""
    spec = spec_of(problems)
    resolved = settings.resolve(config, spec)
    sizes = settings.sampling(resolved, spec)
    critic = LinearCritic(features.OneHot(problems.reward.shape[-4]), spec.num_objectives)

    def one(problem: Problem, key: Any, schedule: Any) -> Any:
        init, update = algorithm.build(resolved, spec, LinearLogits(problem), critic, momentum_rule())

        def iteration(_: Any, carry: tuple[State, Any]) -> tuple[State, Any]:
            state, place = carry
            key, key_sample = jax.random.split(state.key)
            place, critic_batches, actor_batch = sample(problem, place, state.theta, key_sample, sizes)
            return update(replace(state, key=key), critic_batches, actor_batch)[0], place

        def stretch(carry: Any, _: Any) -> tuple[Any, Any]:
            carry = lax.fori_loop(0, pace, iteration, carry)
            return carry, carry[0].theta

        key_state, key_start = jax.random.split(key)
        first = init(key_state)
        first = replace(first, rule=(first.rule[0], *schedule))
        start = (first, first_state(problem, key_start))
        _, later = lax.scan(stretch, start, None, resolved.num_iterations // pace)
        return jnp.concatenate([first.theta[None], later])

    E, (n, K) = len(schedules[0]), keys.shape[:2]
    e, i, k = (index.reshape(-1) for index in np.indices((E, n, K)))
    theta = jax.vmap(one)(jax.tree.map(lambda x: jnp.asarray(x)[i], problems), keys[i, k], [x[e] for x in schedules])
    return theta.reshape(E, n, K, *theta.shape[1:])


def horizons(longest: int, per_decade: int = 4) -> Int[np.ndarray, " L"]:
    """Numbers of iterations from 1 to `longest`, evenly spread on a log axis."""
    return np.unique(np.geomspace(1, longest, 1 + round(per_decade * np.log10(longest))).round().astype(int))


def exact_ascent(
    problems: Problem, labels: tuple[str, ...], how: tuple[float, Setting, str], grid: Any
) -> tuple[Any, Any]:
    """θ ← θ + α Σ λᵢ∇Jⁱ(θ) with exact gradients: what is left of Theorem 2 when neither critic nor batch err.

    On problems stacked along [n], each from its own start, under E schedules by label. `how` is the step α, the
    setting, and the law that weighs states in the direction that is followed; `grid` [L] has numbers of iterations T.
    Returns Σ_{t ≤ T} gap(θ_t)/T of the true gap [E, n, L], and the iterates θ_{T+1} [E, n, L, p].
    """
    with jax.enable_x64(True):
        schedules, alpha = exponents(labels), jnp.asarray(how[0])
        total, theta = _ascend(how[1], how[2], jnp.asarray(grid, jnp.int32), problems, schedules, alpha)
        return np.asarray(total) / np.asarray(grid), np.asarray(theta)


@partial(jax.jit, static_argnums=(0, 1))
def _ascend(setting: Setting, law: str, grid: Any, problems: Problem, schedules: Any, alpha: Any) -> Any:
    rule = momentum_rule()

    def one(problem: Problem, schedule: Any) -> Any:
        def step(carry: Any) -> Any:
            theta, weights, total, t = carry
            G = gradients(problem, theta, setting)
            H = G if law == "own" else gradients(problem, theta, setting, law)
            weights, lam = rule.update(weights, H @ H.T, t)
            return theta + alpha * lam @ H, weights, total + simplex.min_norm(G).squared_norm, t + 1

        def until(carry: Any, last: Any) -> Any:
            carry = lax.while_loop(lambda c: c[3] <= last, step, carry)
            return carry, (carry[2], carry[0])

        weights = (rule.init(problem.reward.shape[-1])[0], *schedule)
        start = (jnp.asarray(problem.theta), weights, jnp.zeros(()), jnp.ones((), jnp.int32))
        return lax.scan(until, start, grid)[1]

    e, i = (index.reshape(-1) for index in np.indices((len(schedules[0]), len(problems.theta))))
    paths = jax.vmap(one)(jax.tree.map(lambda x: jnp.asarray(x)[i], problems), [x[e] for x in schedules])
    return jax.tree.map(lambda x: x.reshape(len(schedules[0]), -1, *x.shape[1:]), paths)
