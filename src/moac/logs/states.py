"""What a policy sees of a logged row: indices, and the numbers they stand for.

An observation is a handful of whole numbers; its features, a few hundred floats, are assembled on the device where
they are needed. The same user's history serves all of its rows, so that nothing is stored twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, final

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from moac.logs.schema import STEPS, WINDOW


@final
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Observation:
    """What is known when a video is about to be shown.

    Attributes:
        user: index into the user table.
        context: of the request, one code per column: for KuaiRand tab, hour and day of the week.
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
        items: [I, e] features of each video that anyone has seen, likewise.
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
    """x = (user, one-hot context, (1, item) of the last videos, newest first); zeros where the history is shorter."""
    items, seen = _viewed(tables, observation)
    window = jnp.concatenate([seen[..., None].astype(jnp.float32), items * seen[..., None]], axis=-1)
    context = [
        jax.nn.one_hot(observation.context[..., k], size, dtype=jnp.float32)
        for k, size in enumerate(tables.context_sizes)
    ]
    flat = window.reshape(*window.shape[:-2], -1)
    return jnp.concatenate([numbers(tables.users[observation.user]), *context, flat], axis=-1)


def _viewed(tables: Tables, observation: Observation) -> tuple[Float[Array, "... W e"], Bool[Array, "... W"]]:
    """Features of the last videos before `end`, newest first, and which of them there are."""
    place = observation.end[..., None] - 1 - jnp.arange(tables.window, dtype=observation.end.dtype)
    seen = place >= tables.first[observation.user][..., None]
    return numbers(tables.items[tables.history[jnp.maximum(place, 0)]]), seen


def numbers(table: Any) -> Any:
    """A table's entries as float32; a product, since compilers differ in how they divide by a constant."""
    return table.astype(jnp.float32) * (1 / STEPS) if table.dtype == jnp.int8 else table.astype(jnp.float32)
