"""States of a log: of its rows, drawn and assembled on the device, and of requests, from a catalogue of its ids.

An observation is a handful of whole numbers; its features, a few hundred floats, are assembled where they are needed.
The same user's history serves all of its rows, so that nothing is stored twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int

from moac.logs.schema import STEPS, WINDOW
from moac.types import Batch, Key, Sampling

if TYPE_CHECKING:
    from moac.logs.dataset import LoggedDataset


@final
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Observation:
    """What is known when an item is about to be shown."""

    user: Int[Array, "..."]  # index into the user table
    context: Int[Array, "... C"]  # of the request, one code per column, such as the hour
    end: Int[Array, "..."]  # the user's history up to here, this position not included, has been seen


@final
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Tables:
    """What the indices of an observation stand for; a pytree, so that a compiled program takes it as an argument."""

    users: Array  # [U, d] features of each user; int8 counts in steps of 1/127
    items: Array  # [I, e] features of each item that anyone has viewed, likewise
    history: Int[Array, " H"]  # [H] items in the order in which they were viewed; a user's stand together
    first: Int[Array, " U"]  # [U] where each user's history begins
    # how many codes each column of the context has; a code beyond is unknown
    context_sizes: tuple[int, ...] = field(metadata={"static": True})
    window: int = field(default=WINDOW, metadata={"static": True})  # how many viewed items a state holds

    @property
    def size(self) -> int:
        """Length of a feature vector."""
        return _size(self)


def _size(tables: Tables | Catalogue) -> int:
    return tables.users.shape[1] + sum(tables.context_sizes) + tables.window * (1 + tables.items.shape[1])


@jax.jit
def features(tables: Tables, observation: Observation) -> Float[Array, "... F"]:
    """x = (user, one-hot context, (1, item) of the last items, newest first); zeros where the history is shorter."""
    place = observation.end[..., None] - 1 - jnp.arange(tables.window, dtype=observation.end.dtype)
    seen = place >= tables.first[observation.user][..., None]
    items = jnp.where(seen, tables.history[jnp.maximum(place, 0)], -1)
    return _assembled(jnp, tables, observation.user, observation.context, items)


def _assembled(xp: Any, tables: Any, user: Any, context: Any, items: Any) -> Any:
    """The feature vectors of users [...], contexts [..., C] and viewed items [..., W], −1 where there is none."""
    seen = (items >= 0)[..., None]
    window = xp.concatenate([seen.astype(np.float32), numbers(tables.items[xp.maximum(items, 0)]) * seen], axis=-1)
    one_hot = [
        (context[..., k, None] == xp.arange(size)).astype(np.float32) for k, size in enumerate(tables.context_sizes)
    ]
    return xp.concatenate([numbers(tables.users[user]), *one_hot, window.reshape(*window.shape[:-2], -1)], axis=-1)


def numbers(table: Any) -> Any:
    """A table's entries as float32; a product, since compilers differ in how they divide by a constant."""
    return table.astype(np.float32) * np.float32(1 / STEPS) if table.dtype == np.int8 else table.astype(np.float32)


@final
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Data:
    """A dataset's arrays on the device."""

    # user, action, reward, context, end, terminated, propensity: as in `LoggedDataset`
    user: Int[Array, " N"]
    action: Int[Array, " N"]
    reward: Float[Array, "N M"]
    context: Int[Array, "N C"]
    end: Int[Array, " N"]
    terminated: Bool[Array, " N"]
    propensity: Float[Array, " N"] | None
    last: Bool[Array, " N"]  # [N] whether no row of the same user follows
    train: Int[Array, " n"]  # [n] rows of train users: what is drawn from
    tables: Tables  # what the indices stand for
    behaviour: Any = None  # weights of the network that models how the log chose; None where nothing does


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


@final
@dataclass(frozen=True, eq=False)
class Catalogue:
    """What a policy must know of a log to recommend to its users: ids and their features, without its rows."""

    user_ids: Int[np.ndarray, " U"]  # [U] as the log names them
    users: np.ndarray[Any, Any]  # [U, d] their features; int8 counts in steps of 1/127
    item_ids: Int[np.ndarray, " I"]  # [I] as the log names them
    items: np.ndarray[Any, Any]  # [I, e] their features, likewise
    action_ids: Int[np.ndarray, " K"]  # [K] as the log names them
    action_items: Int[np.ndarray, " K"]  # [K] the item of each action
    context_sizes: tuple[int, ...]  # how many codes each column of the context has
    context_names: tuple[str, ...]  # of these columns; empty where they have none
    window: int  # how many viewed items a state holds
    signal_names: tuple[str, ...]  # M of them
    signs: tuple[int, ...]  # −1 where the signal is a cost

    @classmethod
    def of(cls, dataset: LoggedDataset) -> Catalogue:
        """The dataset's own; its arrays are shared."""
        tables = {name: getattr(dataset.tables, name) for name in ("users", "items", "context_sizes", "window")}
        shared = {field.name: getattr(dataset, field.name) for field in fields(cls) if field.name not in tables}
        return cls(**tables, **shared)

    @property
    def size(self) -> int:
        """F, the length of a feature vector."""
        return _size(self)

    def same(self, other: Catalogue) -> bool:
        """Whether the other has the same users, items, actions and features."""
        return all(np.array_equal(getattr(self, field.name), getattr(other, field.name)) for field in fields(self))

    def vector(self, numbers: Any) -> Float[np.ndarray, " F"]:
        """A feature vector, checked."""
        vector = np.asarray(numbers)
        if vector.shape != (self.size,) or vector.dtype.kind not in "fiu" or not np.isfinite(vector).all():
            raise ValueError(f"`observation` must be {self.size} finite numbers, got {_shown(vector)}.")
        return vector.astype(np.float32)

    def see(self, user: Any, context: Any, history: Any) -> tuple[Float[np.ndarray, " F"], tuple[str, ...]]:
        """The feature vector of a request, and in words what of the request is unknown.

        Args:
            user: id as the log names it; who is unknown has zeros for features.
            context: codes as the dataset has them, or a mapping from their names; a code beyond those of train users
                is unknown: zeros.
            history: ids of viewed items, oldest first; unknown ones are skipped, as if they had not been viewed.
        """
        who, codes, viewed = _whole("user", [user]), self._codes(context), _whole("history", history)
        (place,) = _places(self.user_ids, self._user_order, who)
        items = _places(self.item_ids, self._item_order, viewed)
        known = items[items >= 0]
        recent = np.append(known[::-1], np.full(self.window, -1))[: self.window]
        x, notes = _assembled(np, self, max(place, 0), codes, recent), list[str]()
        if place < 0:
            x[: self.users.shape[1]] = 0
            notes.append(f"user {who[0]} is unknown: no features")
        names = self.context_names or map(str, range(len(codes)))
        parts = zip(names, codes, self.context_sizes, strict=True)
        notes += [f"context {name}={code} is unknown" for name, code, size in parts if code >= size]
        if len(known) < len(items):
            notes.append(f"{len(items) - len(known)} of {len(items)} items of the history are unknown: skipped")
        return x, tuple(notes)

    def _codes(self, context: Any) -> Int[np.ndarray, " C"]:
        """One code per column, from codes or from a mapping by name."""
        wanted = ", ".join(self.context_names) or f"{len(self.context_sizes)} codes"
        if isinstance(context, Mapping):
            if not self.context_names or set(context) != set(self.context_names):
                raise ValueError(f"`context` must hold {wanted}, got {', '.join(map(str, context)) or 'nothing'}.")
            context = [context[name] for name in self.context_names]
        codes = _whole("context", () if context is None else context)
        if len(codes) != len(self.context_sizes) or (codes < 0).any():
            count = len(self.context_sizes)
            raise ValueError(f"`context` must hold {count} codes of at least 0 ({wanted}), got {codes.tolist()}.")
        return codes

    @cached_property
    def _user_order(self) -> Int[np.ndarray, " U"]:
        return np.argsort(self.user_ids, kind="stable")

    @cached_property
    def _item_order(self) -> Int[np.ndarray, " I"]:
        return np.argsort(self.item_ids, kind="stable")


def _places(ids: Any, order: Any, wanted: Any) -> Int[np.ndarray, " n"]:
    """Where each wanted id is; −1 where it is not."""
    place = order[np.minimum(np.searchsorted(ids, wanted, sorter=order), len(ids) - 1)]
    return np.where(ids[place] == wanted, place, -1)


def _whole(name: str, values: Any) -> Int[np.ndarray, " n"]:
    numbers = np.asarray(values)
    if numbers.ndim == 1 and not len(numbers):
        return np.zeros(0, dtype=np.int64)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        right = "a whole number" if name == "user" else "a row of whole numbers"
        raise ValueError(f"`{name}` must be {right}, as the log has them, got {_shown(values)}.")
    return numbers


def _shown(value: Any) -> str:
    text = repr(value[0] if isinstance(value, list) and len(value) == 1 else value)
    return text if len(text) <= 60 else f"{text[:57]}…"
