"""Rows of a log drawn on the device; pure functions of the arrays, which are arguments and never constants."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, final

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from moac.logs import states
from moac.logs.states import Observation, Tables
from moac.types import Batch, Key, Sampling


@final
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Data:
    """A dataset's arrays on the device.

    Attributes:
        user, action, reward, context, end, terminated, propensity: as in `LoggedDataset`.
        last: [N] whether no row of the same user follows.
        train: [n] rows of train users: what is drawn from.
        tables: what the indices stand for.
        behaviour: weights of the network that models how the log chose; None where nothing does.
    """

    user: Int[Array, " N"]
    action: Int[Array, " N"]
    reward: Float[Array, "N M"]
    context: Int[Array, "N C"]
    end: Int[Array, " N"]
    terminated: Bool[Array, " N"]
    propensity: Float[Array, " N"] | None
    last: Bool[Array, " N"]
    train: Int[Array, " n"]
    tables: Tables
    behaviour: Any = None


def data(dataset: Any, train: Any) -> Data:
    """A dataset's arrays on the device; on a CPU they are the same memory, so that nothing is held twice."""
    names = ("user", "action", "reward", "context", "end", "terminated", "propensity")
    columns = {name: getattr(dataset, name) for name in names}
    last = dataset.terminated | dataset.truncated
    clone = None if dataset.behaviour is None else dataset.behaviour.clone
    host = Data(**columns, last=last, train=train, tables=dataset.tables, behaviour=clone)
    return jax.tree.map(jax.device_put, host)


@jax.jit
def observation(data: Data, rows: Int[Array, "..."]) -> Observation:
    """What was known when the rows were shown."""
    return Observation(data.user[rows], data.context[rows], data.end[rows])


@jax.jit
def next_observation(data: Data, rows: Int[Array, "..."]) -> Observation:
    """The observation of the user's next row; after the last row its history grows by that row, its context stays."""
    last = data.last[rows]
    following = jnp.where(last, rows, rows + 1)
    end = data.end[following] + last.astype(data.end.dtype)
    return Observation(data.user[rows], data.context[following], end)


def transitions(data: Data, rows: Int[Array, "..."], average: bool = False) -> Batch:
    """The rows as transitions; in the average setting nothing terminates."""
    known = None if data.propensity is None else jnp.log(data.propensity[rows])
    return Batch(
        observation(data, rows),
        data.action[rows].astype(jnp.int32),
        data.reward[rows],
        next_observation(data, rows),
        None if average else data.terminated[rows],
        behaviour_log_prob=known,
    )


@partial(jax.jit, static_argnames="sizes")
def draw(data: Data, key: Key, sizes: Sampling) -> tuple[Batch, Batch]:
    """The critic's batches [N, D] and the actor's [B]: rows of train users, uniformly with replacement."""
    if sizes.survival is not None:
        raise ValueError("`visitation` must be stationary on a log: its rows cannot be restarted.")
    N, D = sizes.num_critic_steps, sizes.critic_batch_size
    rows = data.train[jax.random.randint(key, (sizes.steps,), 0, len(data.train))]
    critic, actor = rows[: N * D].reshape(N, D), rows[N * D :]
    return transitions(data, critic, sizes.average), transitions(data, actor, sizes.average)


def seen(data: Data, batch: Batch) -> Batch:
    """The batch with vectors in place of indices: what policies and critics see."""
    return replace(
        batch,
        observation=states.features(data.tables, batch.observation),
        next_observation=states.features(data.tables, batch.next_observation),
    )
