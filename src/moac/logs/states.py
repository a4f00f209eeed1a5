"""States of logged rows, drawn and assembled on the device by pure functions of arrays that are arguments.

An observation is a handful of whole numbers; its features, a few hundred floats, are assembled where they are needed.
The same user's history serves all of its rows, so that nothing is stored twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int

from moac.logs.schema import STEPS, WINDOW
from moac.types import Batch, Key, Sampling


@final
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Observation:
    """What is known when an item is about to be shown.

    Attributes:
        user: index into the user table.
        context: of the request, one code per column, such as the hour.
        end: the user's history up to here, this position not included, has been seen.
    """

    user: Int[Array, "..."]
    context: Int[Array, "... C"]
    end: Int[Array, "..."]


@final
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Tables:
    """What the indices of an observation stand for; a pytree, so that a compiled program takes it as an argument.

    Attributes:
        users: [U, d] features of each user; int8 counts in steps of 1/127.
        items: [I, e] features of each item that anyone has viewed, likewise.
        history: [H] items in the order in which they were viewed; a user's stand together.
        first: [U] where each user's history begins.
        context_sizes: how many codes each column of the context has; a code beyond is unknown.
        window: how many viewed items a state holds.
    """

    users: Array
    items: Array
    history: Int[Array, " H"]
    first: Int[Array, " U"]
    context_sizes: tuple[int, ...] = field(metadata={"static": True})
    window: int = field(default=WINDOW, metadata={"static": True})

    @property
    def size(self) -> int:
        """Length of a feature vector."""
        return self.users.shape[1] + sum(self.context_sizes) + self.window * (1 + self.items.shape[1])


@jax.jit
def features(tables: Tables, observation: Observation) -> Float[Array, "... F"]:
    """x = (user, one-hot context, (1, item) of the last items, newest first); zeros where the history is shorter."""
    items, seen = _viewed(tables, observation)
    window = jnp.concatenate([seen[..., None].astype(jnp.float32), items * seen[..., None]], axis=-1)
    context = [
        jax.nn.one_hot(observation.context[..., k], size, dtype=jnp.float32)
        for k, size in enumerate(tables.context_sizes)
    ]
    flat = window.reshape(*window.shape[:-2], -1)
    return jnp.concatenate([numbers(tables.users[observation.user]), *context, flat], axis=-1)


def _viewed(tables: Tables, observation: Observation) -> tuple[Float[Array, "... W e"], Bool[Array, "... W"]]:
    """Features of the last items before `end`, newest first, and which of them there are."""
    place = observation.end[..., None] - 1 - jnp.arange(tables.window, dtype=observation.end.dtype)
    seen = place >= tables.first[observation.user][..., None]
    return numbers(tables.items[tables.history[jnp.maximum(place, 0)]]), seen


def numbers(table: Any) -> Any:
    """A table's entries as float32; a product, since compilers differ in how they divide by a constant."""
    return table.astype(jnp.float32) * (1 / STEPS) if table.dtype == jnp.int8 else table.astype(jnp.float32)


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


def on_device(dataset: Any) -> Data:
    """A dataset's arrays on the device; on a CPU they are the same memory, so that nothing is held twice."""
    train = dataset.rows("train").astype(np.int32)
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


def with_features(data: Data, batch: Batch) -> Batch:
    """The batch with vectors in place of indices: what policies and critics see."""
    return replace(
        batch,
        observation=features(data.tables, batch.observation),
        next_observation=features(data.tables, batch.next_observation),
    )
