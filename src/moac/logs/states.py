"""States of a log's rows, drawn and assembled on the device.

An observation is a handful of whole numbers; its features, a few hundred floats, are assembled where they are needed.
The same user's history serves all of its rows, so that nothing is stored twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int

from moac.compiling import kept_for_few
from moac.logs import candidates
from moac.logs.schema import RECENT, STEPS, WINDOW
from moac.types import Batch, Key, Request, Sampling

_SHRINKAGE = 3
"""Views without a taste that are added to each history's: one or two responses say little."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Observation:
    """What is known when an item is about to be shown."""

    user: Int[Array, "..."]  # index into the user table
    context: Int[Array, "... C"]  # of the request, one code per column, such as the hour
    end: Int[Array, "..."]  # the user's history up to here, this position not included, has been seen
    # responses to it are known up to here: what is shown at the same time has none yet; None where states have none
    answered: Int[Array, "..."] | None = None
    candidates: Int[Array, "..."] | None = None  # index of the request's list; None where all actions are candidates


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CandidateLists:
    """Lists of actions that could be chosen, one after the other; each once, however many requests bring it."""

    first: Any  # [L + 1] where each list begins, and where the last one ends
    actions: Any  # [T] indices of actions, ascending within a list
    most: int = field(metadata={"static": True})  # C, the length of the longest

    def padded(self, lists: Any) -> Any:
        """The lists of some indices [..., C], in the namespace of their arrays; −1 fills up."""
        xp = self.first.__array_namespace__()
        at = self.first[lists][..., None] + xp.arange(self.most)
        there = at < self.first[lists + 1][..., None]
        return xp.where(there, self.actions[xp.minimum(at, len(self.actions) - 1)], -1)


def lists_of(arrays: Mapping[str, Any]) -> CandidateLists | None:
    """The lists that a dataset's arrays hold; None where there are none."""
    if candidates.FIRST not in arrays:
        return None
    first = arrays[candidates.FIRST]
    return CandidateLists(first, arrays[candidates.ACTIONS], int(np.diff(first).max(initial=1)))


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
    # [H, M] what the user's responses to each view were, in steps of 1/127 of their scale; None where states have none
    responses: Int[Array, "H M"] | None = None
    # whether a state also holds how responses go with the features of items: see `tasted`
    taste: bool = field(default=False, metadata={"static": True})

    @property
    def size(self) -> int:
        """Length of a feature vector."""
        return sum(widths(self, 0 if self.responses is None else self.responses.shape[1]))


def widths(tables: Any, num_responses: int) -> tuple[int, ...]:
    """Numbers of each part of a state: a user, each column of the context, viewed items, responses to them, taste."""
    e, views = tables.items.shape[1], tables.window * (1 + tables.items.shape[1])
    responses, taste = num_responses * (1 + min(RECENT, tables.window)), num_responses * e * tables.taste
    return (tables.users.shape[1], *tables.context_sizes, views, responses, taste)


@kept_for_few()
def features(tables: Tables, observation: Observation) -> Float[Array, "... F"]:
    """x = (user, one-hot context, (1, item) of the last items, newest first); zeros where the history is shorter.

    Where responses are part of states: then the mean response to these items, and the last few responses; and how
    they go with the items, where `tables.taste` says so.
    """
    place = observation.end[..., None] - 1 - jnp.arange(tables.window, dtype=observation.end.dtype)
    seen = place >= tables.first[observation.user][..., None]
    items = jnp.where(seen, tables.history[jnp.maximum(place, 0)], -1)
    x = assembled(jnp, tables, observation.user, observation.context, items)
    if tables.responses is None or observation.answered is None:
        return x
    known = seen & (place < observation.answered[..., None])
    return jnp.concatenate([x, responded(jnp, tables, tables.responses[jnp.maximum(place, 0)], items, known)], axis=-1)


def responded(xp: Any, tables: Any, responses: Any, items: Any, known: Any) -> Any:
    """What states hold of the responses [..., W, M], int8, to viewed items [..., W] where they are known."""
    x = answers(xp, responses, known)
    return xp.concatenate([x, tasted(xp, tables, responses, items, known)], axis=-1) if tables.taste else x


def answers(xp: Any, responses: Any, known: Any) -> Any:
    """The mean of the known responses [..., W, M], int8, and the newest of them; zeros where there are none.

    The sum is of whole numbers, and times a number from a table: the same in NumPy and on any device, bit for bit.
    """
    kept = xp.where(known[..., None], responses, xp.int8(0))
    weight = (1 / (STEPS * np.maximum(np.arange(known.shape[-1] + 1), 1))).astype(np.float32)
    mean = kept.sum(axis=-2, dtype=np.int32).astype(np.float32) * xp.asarray(weight)[known.sum(axis=-1)][..., None]
    recent = numbers(kept[..., :RECENT, :])
    return xp.concatenate([mean, recent.reshape(*recent.shape[:-2], -1)], axis=-1)


def tasted(xp: Any, tables: Any, responses: Any, items: Any, known: Any) -> Any:
    """Which responses go with which features v of the n viewed items: Σ_k (r_k − r̄) v_k / (n + 3), [..., M·e].

    Of int8 tables the sums are of whole numbers below 2²⁴, and so the same everywhere, as above.
    """
    n, unit = known.sum(axis=-1), STEPS * (STEPS if tables.items.dtype == np.int8 else 1)
    r = xp.where(known[..., None], responses, xp.int8(0)).astype(np.float32)
    v = xp.where(known[..., None], tables.items[xp.maximum(items, 0)], tables.items.dtype.type(0)).astype(np.float32)
    both = n[..., None, None].astype(np.float32) * (xp.swapaxes(r, -1, -2) @ v)
    together = both - r.sum(axis=-2)[..., :, None] * v.sum(axis=-2)[..., None, :]
    count = np.maximum(np.arange(known.shape[-1] + 1), 1)
    weight = xp.asarray((1 / (unit * count * (count + _SHRINKAGE))).astype(np.float32))[n]
    return (together * weight[..., None, None]).reshape(*n.shape, -1)


def assembled(xp: Any, tables: Any, user: Any, context: Any, items: Any) -> Any:
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


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Data:
    """A dataset's arrays on the device."""

    # user, action, reward, context, end, terminated, propensity, answered: as in `LoggedDataset`
    user: Int[Array, " N"]
    action: Int[Array, " N"]
    reward: Float[Array, "N M"]
    context: Int[Array, "N C"]
    end: Int[Array, " N"]
    terminated: Bool[Array, " N"]
    propensity: Float[Array, " N"] | None
    answered: Int[Array, " N"] | None
    last: Bool[Array, " N"]  # [N] whether no row of the same user follows
    train: Int[Array, " n"]  # [n] rows of train users: what is drawn from
    tables: Tables  # what the indices stand for
    candidates: Int[Array, " N"] | None = None  # index of each request's list
    lists: CandidateLists | None = None  # the lists
    behaviour: Any = None  # weights of the network that models how the log chose; None where nothing does


def on_device(dataset: Any) -> Data:
    """A dataset's arrays on the device; on a CPU they are the same memory, so that nothing is held twice."""
    made = {"last": dataset.terminated | dataset.truncated, "train": dataset.rows("train").astype(np.int32)}
    made["behaviour"] = None if dataset.behaviour is None else dataset.behaviour.clone
    shared = {each.name: getattr(dataset, each.name) for each in fields(Data) if each.name not in made}
    return jax.tree.map(jax.device_put, Data(**shared, **made))


@kept_for_few()
def observation(data: Data, rows: Int[Array, "..."]) -> Observation:
    """What was known when the rows were shown."""
    answered, candidates = (None if x is None else x[rows] for x in (data.answered, data.candidates))
    return Observation(data.user[rows], data.context[rows], data.end[rows], answered, candidates)


@kept_for_few()
def of_rows(data: Data, rows: Int[Array, "..."]) -> Float[Array, "... F"]:
    """The features of rows: what critics see of them."""
    return features(data.tables, observation(data, rows))


def seen(data: Data, observation: Observation) -> Any:
    """What policies see: features, and where requests bring them, their candidates."""
    x = features(data.tables, observation)
    if data.lists is None or observation.candidates is None:
        return x
    return Request(x, data.lists.padded(observation.candidates))


@kept_for_few()
def requests(data: Data, rows: Int[Array, "..."]) -> Any:
    """What policies see of rows."""
    return seen(data, observation(data, rows))


@kept_for_few()
def next_observation(data: Data, rows: Int[Array, "..."]) -> Observation:
    """The observation of the user's next row; after the last row its history grows by that row, its context stays."""
    last = data.last[rows]
    following = jnp.where(last, rows, rows + 1)
    end = data.end[following] + last.astype(data.end.dtype)
    answered = None if data.answered is None else jnp.where(last, end, data.answered[following])
    candidates = None if data.candidates is None else data.candidates[following]
    return Observation(data.user[rows], data.context[following], end, answered, candidates)


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


@kept_for_few(1)
def draw(sizes: Sampling, data: Data, key: Key) -> tuple[Batch, Batch]:
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
        observation=seen(data, batch.observation),
        next_observation=seen(data, batch.next_observation),
    )
