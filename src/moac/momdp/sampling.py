"""Markovian samples of a finite model inside a compiled program.

The policy is evaluated on all states once, whatever its kind. Then every step costs one uniform number, one row of
the table of cumulative probabilities of (action, outcome), and one look-up of the successor.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float, Int

from moac.policies import OnHost, Tabulated
from moac.types import Batch, Key, Params, Policy, Sampling

if TYPE_CHECKING:
    from moac.momdp.model import FiniteMOMDP

_UNROLL = 8
_UNROLLED_COLUMNS = 32


@final
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Chain:
    """Where the chain is.

    Attributes:
        state: the state index.
        age: steps since the last start; stands still where nobody asks for it.
    """

    state: Int[Array, ""]
    age: Int[Array, ""]


@final
@dataclass(frozen=True, eq=False)
class Tables:
    """A model flattened for look-ups by i = (s·A + a)·O + o."""

    successor: Int[np.ndarray, " SAO"]
    reward: Float[np.ndarray, "SAO M"]
    terminated: Bool[np.ndarray, " SAO"]
    starts: Int[np.ndarray, " k"]
    start_cumulative: Float[np.ndarray, " k"]


@lru_cache(maxsize=8)
def tables(model: FiniteMOMDP) -> Tables:
    """The model's tables. Where it always starts in one state, an ended episode's successor is that state."""
    starts = np.flatnonzero(model.start_distribution)
    successor = np.where(model.terminated, starts[0], model.next_state) if len(starts) == 1 else model.next_state
    cumulative = np.cumsum(model.start_distribution[starts])
    return Tables(
        successor.reshape(-1).astype(np.int32),
        model.reward.reshape(-1, model.num_objectives).astype(np.float32),
        model.terminated.reshape(-1),
        starts.astype(np.int32),
        (cumulative / cumulative[-1]).astype(np.float32),
    )


def begin(model: FiniteMOMDP, key: Key) -> Chain:
    """s ~ start, at age 0."""
    return Chain(_draw_starts(tables(model), key, 1)[0], jnp.zeros((), jnp.int32))


def draw(
    model: FiniteMOMDP, chain: Chain, policy: Policy, theta: Params, key: Key, sizes: Sampling
) -> tuple[Chain, Batch, Batch]:
    """The next N·D + B transitions, the critic's as [N, D] and the actor's as [B]."""
    visited, chain = _walk(model, chain, _cumulative(model, policy, theta), key, sizes)
    batch = _look_up(model, visited, chain.state, sizes)
    critic_steps = sizes.num_critic_steps * sizes.critic_batch_size
    shape = (sizes.num_critic_steps, sizes.critic_batch_size)
    critic = jax.tree.map(lambda x: x[:critic_steps].reshape(*shape, *x.shape[1:]), batch)
    return chain, critic, jax.tree.map(lambda x: x[critic_steps:], batch)


def probabilities(model: FiniteMOMDP, policy: Policy, theta: Params) -> Float[Array, "S A"]:
    """π(a|s) for all states and actions; of a policy of three functions, from its log-probabilities."""
    if isinstance(policy, Tabulated):
        return policy.tabulate(theta)
    if isinstance(policy, OnHost):
        return jax.nn.softmax(policy.logits(theta, jnp.arange(model.num_states)))
    over_actions = jax.vmap(policy.log_prob, in_axes=(None, None, 0))
    over_states = jax.vmap(over_actions, in_axes=(None, 0, None))
    return jnp.exp(over_states(theta, jnp.arange(model.num_states), jnp.arange(model.num_actions)))


def _cumulative(model: FiniteMOMDP, policy: Policy, theta: Params) -> Float[Array, "S AO-1"]:
    """Cumulative chance of (action, outcome) in each state, without the last, which is 1."""
    pi = probabilities(model, policy, theta)
    joint = (pi[:, :, None] * jnp.asarray(model.probability, pi.dtype)).reshape(model.num_states, -1)
    cumulative = _running_sum(joint)
    # Divided by its last entry, so that rounding never lets a uniform number reach an outcome of probability zero.
    return (cumulative / cumulative[:, -1:])[:, :-1]


def _running_sum(joint: Float[Array, "S AO"]) -> Float[Array, "S AO"]:
    """Cumulative sums over the last axis, flat where a term is zero.

    Few columns are added one after the other, which XLA fuses; it sums long rows in blocks, whose rounding can make a
    sum rise or fall by a bit where nothing is added.
    """
    if joint.shape[1] > _UNROLLED_COLUMNS:
        return lax.cummax(jnp.where(joint > 0, jnp.cumsum(joint, axis=1), 0), axis=1)
    return jnp.stack(list(accumulate(joint.T, jnp.add)), axis=1)


@final
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _Visited:
    """What a walk leaves behind: i = (s·A + a)·O + o, and the age, of each step."""

    index: Int[Array, " n"]
    age: Int[Array, " n"] | None


def _walk(
    model: FiniteMOMDP, chain: Chain, cumulative: Float[Array, "S AO-1"], key: Key, sizes: Sampling
) -> tuple[_Visited, Chain]:
    table, width = tables(model), model.num_actions * model.num_outcomes
    successor, terminated = jnp.asarray(table.successor), jnp.asarray(table.terminated)
    restarting = sizes.survival is not None
    drawn = (len(table.starts) > 1 and bool(table.terminated.any())) or restarting
    key_step, key_start, key_restart = jax.random.split(key, 3) if drawn else (key, key, key)
    inputs = (
        jax.random.uniform(key_step, (sizes.steps,)),
        _draw_starts(table, key_start, sizes.steps) if drawn else None,
        None if sizes.survival is None else jax.random.uniform(key_restart, (sizes.steps,)) >= sizes.survival,
    )

    def step(now: Chain, drawn_now: tuple[Any, Any, Any]) -> tuple[Chain, _Visited]:
        uniform, start, forced = drawn_now
        row = cumulative.at[now.state].get(mode="promise_in_bounds")
        index = now.state * width + jnp.sum(uniform >= row, dtype=jnp.int32)
        after, age = successor.at[index].get(mode="promise_in_bounds"), now.age
        if start is not None:
            ends = terminated.at[index].get(mode="promise_in_bounds")
            ends = ends if forced is None else ends | forced
            after = jnp.where(ends, start, after)
            age = jnp.where(ends, 0, age + 1) if restarting else age
        return Chain(after, age), _Visited(index, now.age if restarting else None)

    chain, visited = lax.scan(step, chain, inputs, unroll=_UNROLL)
    return visited, chain


def _look_up(model: FiniteMOMDP, visited: _Visited, last: Int[Array, ""], sizes: Sampling) -> Batch:
    """States, actions, rewards and successors of the visited outcomes."""
    table, i = tables(model), visited.index
    state = i // (model.num_actions * model.num_outcomes)
    if sizes.survival is None:  # the successor, restarts included, is where the next step starts
        successor = jnp.append(state[1:], last)
    else:
        successor = jnp.asarray(table.successor).at[i].get(mode="promise_in_bounds")
    ends = table.terminated.any() and not sizes.average
    return Batch(
        observation=state,
        action=i // model.num_outcomes % model.num_actions,
        reward=jnp.asarray(table.reward).at[i].get(mode="promise_in_bounds"),
        next_observation=successor,
        terminated=jnp.asarray(table.terminated).at[i].get(mode="promise_in_bounds") if ends else None,
        age=visited.age,
    )


def _draw_starts(table: Tables, key: Key, count: int) -> Int[Array, " n"]:
    if len(table.starts) == 1:
        return jnp.full(count, table.starts[0])
    uniform = jax.random.uniform(key, (count,))
    which = jnp.searchsorted(jnp.asarray(table.start_cumulative[:-1]), uniform, side="right")
    return jnp.asarray(table.starts)[which]
