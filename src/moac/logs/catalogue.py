"""What a policy must know of a log to recommend to its users: ids, and the features they stand for. NumPy only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, final

import numpy as np
from jaxtyping import Float, Int

from moac.logs.schema import STEPS

if TYPE_CHECKING:
    from moac.logs.dataset import LoggedDataset


@final
@dataclass(frozen=True, eq=False)
class Catalogue:
    """Users, items and actions of a log, without its rows.

    Attributes:
        user_ids: [U] as the log names them.
        users: [U, d] their features; int8 counts in steps of 1/127.
        item_ids: [I] as the log names them.
        items: [I, e] their features, likewise.
        action_ids: [K] as the log names them.
        action_items: [K] the item of each action.
        context_sizes: how many codes each column of the context has.
        context_names: of these columns; empty where they have none.
        window: how many viewed items a state holds.
        signal_names: M of them.
        signs: −1 where the signal is a cost.
    """

    user_ids: Int[np.ndarray, " U"]
    users: np.ndarray[Any, Any]
    item_ids: Int[np.ndarray, " I"]
    items: np.ndarray[Any, Any]
    action_ids: Int[np.ndarray, " K"]
    action_items: Int[np.ndarray, " K"]
    context_sizes: tuple[int, ...]
    context_names: tuple[str, ...]
    window: int
    signal_names: tuple[str, ...]
    signs: tuple[int, ...]

    @classmethod
    def of(cls, dataset: LoggedDataset) -> Catalogue:
        """The dataset's own; its arrays are shared."""
        tables = {name: getattr(dataset.tables, name) for name in ("users", "items", "context_sizes", "window")}
        shared = {field.name: getattr(dataset, field.name) for field in fields(cls) if field.name not in tables}
        return cls(**tables, **shared)

    @property
    def size(self) -> int:
        """F, the length of a feature vector."""
        return self.users.shape[1] + sum(self.context_sizes) + self.window * (1 + self.items.shape[1])

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
        place, items = _places(self._user_order, self.user_ids, who), _places(self._item_order, self.item_ids, viewed)
        known = items[items >= 0]
        recent = np.full(self.window, -1)
        recent[: min(len(known), self.window)] = known[::-1][: self.window]
        notes = [f"user {who[0]} is unknown: no features"] if place[0] < 0 else []
        names = self.context_names or map(str, range(len(codes)))
        parts = zip(names, codes, self.context_sizes, strict=True)
        notes += [f"context {name}={code} is unknown" for name, code, size in parts if code >= size]
        if len(known) < len(items):
            notes.append(f"{len(items) - len(known)} of {len(items)} items of the history are unknown: skipped")
        return self.vectors(place, codes[None], recent[None])[0], tuple(notes)

    def vectors(self, user: Any, context: Any, items: Any) -> Float[np.ndarray, "n F"]:
        """x = (user, one-hot context, (1, item) of the last items, newest first), as `states.features` has it.

        Args:
            user: [n] places in `users`; −1 is unknown.
            context: [n, C] codes.
            items: [n, W] places in `items`, newest first; −1 where the history is shorter.
        """
        seen, known = (items >= 0)[..., None], (user >= 0)[:, None]
        window = np.concatenate([seen, _numbers(self.items[np.maximum(items, 0)]) * seen], axis=-1, dtype=np.float32)
        one_hot = [context[:, k, None] == np.arange(size) for k, size in enumerate(self.context_sizes)]
        users = _numbers(self.users[np.maximum(user, 0)]) * known
        return np.concatenate([users, *one_hot, window.reshape(len(user), -1)], axis=1, dtype=np.float32)

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


def _places(order: Any, ids: Any, wanted: Any) -> Int[np.ndarray, " n"]:
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


def _numbers(table: Any) -> Any:
    """A table's entries as float32, bit for bit as `states.numbers` has them."""
    return table.astype(np.float32) * np.float32(1 / STEPS) if table.dtype == np.int8 else table.astype(np.float32)


def _shown(value: Any) -> str:
    text = repr(value[0] if isinstance(value, list) and len(value) == 1 else value)
    return text if len(text) <= 60 else f"{text[:57]}…"
