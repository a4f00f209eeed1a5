"""A finite model as a source of training: Markovian samples inside a compiled program, and exact values of policies.

The policy is evaluated on all states once, whatever its kind. Then every step costs one uniform number, one row of
the table of cumulative probabilities of (action, outcome), and one look-up of the successor. That table is computed
anew for every policy: where it would be large, the outcome is drawn after the action, from a fixed table of the model.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float, Int

from moac import compiling
from moac.config import Setting
from moac.kept import with_owner
from moac.momdp import chain as chains
from moac.momdp import oracle, support
from moac.momdp.model import FiniteMOMDP
from moac.policies import OnHost, SoftmaxTable, Tabulated, log_probs
from moac.policies.observations import StateSpec
from moac.types import Batch, Drawn, Evaluation, Key, Params, Policy, Sampling, Spec

_FIELDS = ("returns", "gap", "direction_gap", "regret")  # of an evaluation
_FEW, _SMALL = 32, 4096
"""Columns and entries that a table of (action, outcome), computed for every policy, may have."""


@with_owner
def spec(model: FiniteMOMDP) -> Spec:
    """The model's description, one object per model."""
    return Spec(
        model.name,
        model.objective_names,
        StateSpec(model.num_states, model.observations, reference=_most_visited(model)),
        model.num_actions,
        float(np.abs(model.reward[model.probability > 0]).max()) or 1.0,
        model.fingerprint,
        no_average=chains.several_classes(model),
    )


def _most_visited(model: FiniteMOMDP) -> int:
    """The state that the uniform policy visits most; for a model beyond the oracle's size, the likeliest start."""
    law, uniform = model.start_distribution, np.full((1, model.num_states, model.num_actions), 1 / model.num_actions)
    if model.num_states <= oracle.MAX_STATES:
        with contextlib.suppress(ValueError):  # several recurrent classes
            law = chains.stationary_distribution(model, uniform)[0]
    return int(np.argmax(law))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Chain:
    """The position of the chain."""

    state: Int[Array, ""]  # the state index
    age: Int[Array, ""]  # steps since the last start; constant where the visitation is stationary


_Sampled = tuple[Chain, Batch, Batch]


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Tables(Drawn):
    """A model as it is sampled, in flat tables by i = (s·A + a)·O + o: an argument of compiled programs."""

    chances: Float[Any, "S A O"]  # of the outcomes; their running sums where the outcome is drawn after the action
    successor: Int[Any, " SAO"]
    reward: Float[Any, "SAO M"]
    terminated: Bool[Any, " SAO"]
    starts: Int[Any, " k"]
    start_cumulative: Float[Any, " k"]
    ends: bool = field(metadata={"static": True})  # whether any outcome ends an episode

    @property
    def num_starts(self) -> int:
        """The number of states that an episode may start in."""
        return len(self.starts)

    def start(self, key: Key) -> Chain:
        """s ~ start, at age 0."""
        return Chain(_draw_starts(self, key, 1)[0], jnp.zeros((), jnp.int32))

    def sample(
        self, chain: Chain, policy: Policy, theta: Params, key: Key, sizes: Sampling
    ) -> tuple[Chain, Batch, Batch]:
        """The next N·D + B transitions, the critic's as [N, D] and the actor's as [B]."""
        S, A, _ = self.chances.shape
        visited, chain = _rollout(self, chain, probabilities(S, A, policy, theta), key, sizes)
        batch = _look_up(self, visited, chain.state, sizes)
        return chain, *sizes.split(jax.tree.map(lambda x: x[None], batch))  # a rollout of one chain


@dataclass(frozen=True)
class Shape:
    """The sizes of a model: all that programs know of it that are compiled for every model of these sizes."""

    num_states: int
    num_actions: int
    num_objectives: int

    @property
    def spec(self) -> Spec:
        """A model of these sizes, without names."""
        return Spec("", ("",) * self.num_objectives, StateSpec(self.num_states), self.num_actions)

    def bound(self, data: Tables) -> Tables:
        """The model that has these tables."""
        return data


@with_owner
def tables(model: FiniteMOMDP) -> Tables:
    """The model's tables. Where it always starts in one state, an ended episode's successor is that state."""
    starts = np.flatnonzero(model.start_distribution)
    successor = np.where(model.terminated, starts[0], model.next_state) if len(starts) == 1 else model.next_state
    cumulative = np.cumsum(model.start_distribution[starts])
    return Tables(
        model.probability if _jointly(model.probability.shape) else _running_chances(model.probability),
        successor.reshape(-1).astype(np.int32),
        model.reward.reshape(-1, model.num_objectives).astype(np.float32),
        model.terminated.reshape(-1),
        starts.astype(np.int32),
        (cumulative / cumulative[-1]).astype(np.float32),
        bool(model.terminated.any()),
    )


def _jointly(shape: tuple[int, ...]) -> bool:
    """Whether action and outcome are drawn at once in a model of this shape [S, A, O]."""
    num_states, width = shape[0], shape[1] * shape[2]
    return width <= _FEW and num_states * width <= _SMALL


def _running_chances(probability: Float[np.ndarray, "S A O"]) -> Float[np.ndarray, "S A O"]:
    """Cumulative chances of the outcomes of each action."""
    cumulative = np.cumsum(probability, axis=2)
    return (cumulative / cumulative[:, :, -1:]).astype(np.float32)


def probabilities(num_states: int, num_actions: int, policy: Policy, theta: Params) -> Float[Array, "S A"]:
    """π(a|s) for all states and actions; for a policy of three functions, from its log-probabilities."""
    if isinstance(policy, Tabulated):
        return policy.tabulate(theta)
    if isinstance(policy, OnHost):
        return jax.nn.softmax(policy.logits(theta, jnp.arange(num_states)))
    return jnp.exp(log_probs(policy, theta, jnp.arange(num_states), num_actions))


def _joint_choice(table: Tables, pi: Float[Array, "S A"]) -> Callable[[Any, Any], Any]:
    """The function (state, uniform number) ↦ i that draws action and outcome at once."""
    joint = (pi[:, :, None] * jnp.asarray(table.chances, pi.dtype)).reshape(len(pi), -1)
    cumulative, width = _cumulative(joint), joint.shape[1]

    def choose(state: Int[Array, ""], uniform: Float[Array, ""]) -> Int[Array, ""]:
        row = cumulative.at[state].get(mode="promise_in_bounds")
        return state * width + jnp.sum(uniform >= row, dtype=jnp.int32)

    return choose


def _choice_in_turn(table: Tables, pi: Float[Array, "S A"]) -> Callable[[Any, Any], Any]:
    """The function (state, two uniform numbers) ↦ i that draws the action, then its outcome by bisection."""
    cumulative, outcomes = _cumulative(pi), jnp.asarray(table.chances, jnp.float32).reshape(-1)
    _, A, count = table.chances.shape

    def choose(state: Int[Array, ""], uniform: Float[Array, " 2"]) -> Int[Array, ""]:
        row = cumulative.at[state].get(mode="promise_in_bounds")
        first = (state * A + jnp.sum(uniform[0] >= row, dtype=jnp.int32)) * count
        passed = jnp.zeros((), jnp.int32)  # the number of outcomes known to lie below the uniform number
        for bit in reversed(range((count - 1).bit_length())):
            further = passed + (1 << bit)
            below = outcomes.at[first + jnp.minimum(further, count) - 1].get(mode="promise_in_bounds")
            passed = jnp.where(uniform[1] >= below, further, passed)  # the last is 1, which no number reaches
        return first + passed

    return choose


def _cumulative(chances: Float[Array, "S n"]) -> Float[Array, "S n-1"]:
    """Cumulative chances in each state, without the last, which is 1."""
    cumulative = _running_sum(chances)
    # Divided by its last entry, so that rounding never lets a uniform number reach an outcome of probability zero.
    return (cumulative / cumulative[:, -1:])[:, :-1]


def _running_sum(chances: Float[Array, "S n"]) -> Float[Array, "S n"]:
    """Cumulative sums over the last axis, flat where a term is zero.

    Few columns are added one after the other, which XLA fuses; it sums long rows in blocks, whose rounding can make a
    sum rise or fall by a bit where nothing is added.
    """
    if chances.shape[1] > _FEW:
        return lax.cummax(jnp.where(chances > 0, jnp.cumsum(chances, axis=1), 0), axis=1)
    return jnp.stack(list(accumulate(chances.T, jnp.add)), axis=1)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _Visited:
    """The steps of a rollout: i = (s·A + a)·O + o of each, and its age."""

    index: Int[Array, " n"]
    age: Int[Array, " n"] | None


def _rollout(table: Tables, chain: Chain, pi: Float[Array, "S A"], key: Key, sizes: Sampling) -> tuple[_Visited, Chain]:
    jointly = _jointly(table.chances.shape)
    choose = (_joint_choice if jointly else _choice_in_turn)(table, pi)
    successor, terminated = jnp.asarray(table.successor), jnp.asarray(table.terminated)
    restarting = sizes.survival is not None
    draws_starts = (table.num_starts > 1 and table.ends) or restarting
    key_step, key_start, key_restart = jax.random.split(key, 3) if draws_starts else (key, key, key)
    inputs = (
        jax.random.uniform(key_step, (sizes.steps,) if jointly else (sizes.steps, 2)),
        _draw_starts(table, key_start, sizes.steps) if draws_starts else None,
        None if sizes.survival is None else jax.random.uniform(key_restart, (sizes.steps,)) >= sizes.survival,
    )

    def step(now: Chain, draws: tuple[Any, Any, Any]) -> tuple[Chain, _Visited]:
        uniform, start, forced = draws
        index = choose(now.state, uniform)
        after, age = successor.at[index].get(mode="promise_in_bounds"), now.age
        if start is not None:
            ends = terminated.at[index].get(mode="promise_in_bounds")
            ends = ends if forced is None else ends | forced
            after = jnp.where(ends, start, after)
            age = jnp.where(ends, 0, age + 1) if restarting else age
        return Chain(after, age), _Visited(index, now.age if restarting else None)

    chain, visited = lax.scan(step, chain, inputs)
    return visited, chain


def _look_up(table: Tables, visited: _Visited, last: Int[Array, ""], sizes: Sampling) -> Batch:
    """States, actions, rewards and successors of the visited outcomes."""
    i = visited.index
    _, num_actions, num_outcomes = table.chances.shape
    state = i // (num_actions * num_outcomes)
    if sizes.survival is None:  # the successor, restarts included, is where the next step starts
        successor = jnp.append(state[1:], last)
    else:
        successor = jnp.asarray(table.successor).at[i].get(mode="promise_in_bounds")
    ends = table.ends and not sizes.average
    return Batch(
        observation=state,
        action=i // num_outcomes % num_actions,
        reward=jnp.asarray(table.reward).at[i].get(mode="promise_in_bounds"),
        next_observation=successor,
        terminated=jnp.asarray(table.terminated).at[i].get(mode="promise_in_bounds") if ends else None,
        age=visited.age,
    )


def _draw_starts(table: Tables, key: Key, count: int) -> Int[Array, " n"]:
    if table.num_starts == 1:
        return jnp.full(count, table.starts[0])
    uniform = jax.random.uniform(key, (count,))
    which = jnp.searchsorted(jnp.asarray(table.start_cumulative[:-1]), uniform, side="right")
    return jnp.asarray(table.starts)[which]


def action_probabilities(model: FiniteMOMDP, policy: Policy, theta: Params) -> Float[np.ndarray, "K S A"]:
    """π of K policies in float64, rows summing to one.

    Blocks of one size share one compiled program, so that rounding does not depend on how many policies there are.
    """
    pi = _in_blocks(partial(_tabulated, model.num_states, model.num_actions, policy), theta)
    return pi / pi.sum(axis=2, keepdims=True)


def _in_blocks(function: Callable[..., Any], *trees: Any) -> np.ndarray[Any, Any]:
    """A function of K policies applied in float64 to blocks of one size, the last one padded."""
    count = len(jax.tree.leaves(trees)[0])
    parts: list[np.ndarray[Any, Any]] = []
    with jax.enable_x64(True):
        for first in range(0, count, oracle.BLOCK):
            picked = np.minimum(np.arange(first, first + oracle.BLOCK), count - 1)
            block = jax.tree.map(lambda x, i=picked: jnp.asarray(np.asarray(x)[i], jnp.float64), trees)
            parts.append(np.asarray(function(*block)))
    return np.concatenate(parts)[:count]


@compiling.kept_for_few(3)
def _tabulated(num_states: int, num_actions: int, policy: Policy, theta: Params) -> Any:
    return jax.vmap(partial(probabilities, num_states, num_actions, policy))(theta)


@compiling.kept_for_few(1)
def _theta_gradients(policy: Policy, theta: Params, gradient: Float[Array, "n M S A"]) -> Any:
    """∇_θ Jⁱ [n, M, P, 1] = Σ ν π Advⁱ ∇_θ log π, from the gradient with respect to the logits, which is ν π Advⁱ."""
    S, A = gradient.shape[-2:]

    def of_one(one: Params, G: Float[Array, "M S A"]) -> Any:
        def log_pi(one: Params) -> Any:
            return jnp.log(jnp.maximum(probabilities(S, A, policy, one), 1e-300))

        rows = jax.vmap(lambda g: jax.vjp(log_pi, one)[1](g)[0])(G)
        return jnp.concatenate([leaf.reshape(len(G), -1) for leaf in jax.tree.leaves(rows)], axis=1)[..., None]

    return jax.vmap(of_one)(theta, gradient)


def evaluate(model: FiniteMOMDP, policy: Policy, theta: Params, setting: Setting) -> Evaluation:
    """Exact values; NaN where the oracle has none (too many states or objectives, several recurrent classes)."""
    count = len(jax.tree.leaves(theta)[0])
    if model.num_states > oracle.MAX_STATES:
        return _evaluation(model, [{}] * count)
    pi = action_probabilities(model, policy, theta)
    # Padded to whole blocks of the oracle, so that rounding does not depend on how many policies there are.
    padded = np.concatenate([pi, np.repeat(pi[-1:], -count % oracle.BLOCK, axis=0)])
    try:
        columns = dict(_exact_fields(model, policy, theta, padded, setting))
        return Evaluation(**{name: values[:count] for name, values in columns.items()}, kind="exact")
    except ValueError:  # some policy has no such value
        return _evaluated_one_by_one(model, policy, theta, pi, setting)


def _evaluated_one_by_one(
    model: FiniteMOMDP, policy: Policy, theta: Params, pi: chains.Policies, setting: Setting
) -> Evaluation:
    """The values of each policy that exist, computed one by one.

    Policies that have all of them are evaluated again in blocks: else their last bits would depend on the others.
    """
    rows: list[dict[str, Any]] = [{} for _ in pi]
    for n, row in enumerate(rows):
        with contextlib.suppress(ValueError):  # the fields before the first one that does not exist are kept
            fields = _exact_fields(model, policy, _picked(theta, [n]), pi[n : n + 1], setting)
            row.update((name, values[0]) for name, values in fields)
    complete = np.array([len(row) == len(_FIELDS) for row in rows])
    if complete.any() and not complete.all():
        others = np.where(complete, np.arange(len(rows)), np.argmax(complete))
        blocks = evaluate(model, policy, _picked(theta, others), setting)
        for n in np.flatnonzero(complete):
            rows[n] = {name: getattr(blocks, name)[n] for name in _FIELDS}
    return _evaluation(model, rows)


def _picked(theta: Params, index: Any) -> Params:
    """The parameters of some of the policies."""
    return jax.tree.map(lambda x: np.asarray(x)[index], theta)


def zeros(policy: Policy) -> Params:
    """Parameters of zeros for one policy, leading axis 1."""
    shapes = jax.eval_shape(lambda: policy.init(jax.random.key(0)))
    return jax.tree.map(lambda leaf: np.zeros((1, *leaf.shape), leaf.dtype), shapes)


def _exact_fields(
    model: FiniteMOMDP, policy: Policy, theta: Params, pi: chains.Policies, setting: Setting
) -> Iterator[tuple[str, Any]]:
    """The fields of an evaluation, one after the other; a ValueError where one of the policies has no such value."""
    exact = oracle.of_policy(model, pi, setting)
    yield "returns", exact.returns
    known = model.num_objectives <= support.MAX_OBJECTIVES
    yield "regret", exact.regret if known else np.full(len(pi), np.nan)
    in_logits = isinstance(policy, SoftmaxTable)
    yield "gap", exact.gap if in_logits else _gap_in_theta(policy, theta, exact.gradient)
    yield "direction_gap", exact.direction_gap if in_logits else _gap_in_theta(policy, theta, exact.direction)


def _gap_in_theta(policy: Policy, theta: Params, gradient: Float[np.ndarray, "n M S A"]) -> Any:
    count = len(jax.tree.leaves(theta)[0])
    gradient = _in_blocks(partial(_theta_gradients, policy), theta, gradient[:count])
    return oracle.shortest(gradient).squared_norm


def _evaluation(model: FiniteMOMDP, rows: list[dict[str, Any]]) -> Evaluation:
    nothing = np.full(model.num_objectives, np.nan)
    columns = (np.array([row.get(name, np.nan) for row in rows]) for name in _FIELDS[1:])
    return Evaluation(np.stack([row.get("returns", nothing) for row in rows]), *columns, kind="exact")
