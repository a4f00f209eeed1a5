"""From ids to states: what a policy must know of a log to serve its users, without the log's rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int

from moac.arguments import NUMERIC
from moac.choices import counted, several, shown
from moac.logs import states
from moac.logs.features import response_numbers
from moac.logs.schema import STEPS
from moac.policies.items import Items

if TYPE_CHECKING:
    from moac.logs.dataset import LoggedDataset

_WHOLE = re.compile(r"\s*[+-]?[0-9]+\s*", re.ASCII)


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Ids and features of users, items and actions; ids are whole numbers or texts, as the log has them."""

    user_ids: np.ndarray[Any, Any]  # [U] as the log names them
    users: np.ndarray[Any, Any]  # [U, d] their features; int8 counts in steps of 1/127
    item_ids: np.ndarray[Any, Any]  # [I] as the log names them
    items: np.ndarray[Any, Any]  # [I, e] their features, likewise
    action_ids: np.ndarray[Any, Any]  # [K] as the log names them
    action_items: Int[np.ndarray, " K"]  # [K] the item of each action
    context_sizes: tuple[int, ...]  # how many codes each column of the context has
    context_names: tuple[str, ...]  # of these columns; empty where they have none
    window: int  # how many viewed items a state holds
    signal_names: tuple[str, ...]  # M of them
    signs: tuple[int, ...]  # −1 where the signal is a cost
    context_values: tuple[tuple[str, ...], ...] = ()  # of each column, in the order of its codes; none: codes are given
    response_scale: tuple[float, ...] = ()  # of each signal, where states hold responses
    taste: bool = False  # whether states hold how responses go with the features of items
    known_actions: np.ndarray[Any, Any] | None = None  # [K] whether train rows show the action; None is all of them

    @classmethod
    def of(cls, dataset: LoggedDataset) -> Catalogue:
        """The dataset's own; its arrays are shared."""
        names = ("users", "items", "context_sizes", "window", "taste")
        tables = {name: getattr(dataset.tables, name) for name in names}
        shared = {field.name: getattr(dataset, field.name) for field in fields(cls) if field.name not in tables}
        return cls(**tables, **shared)

    @cached_property
    def described(self) -> Items:
        """The actions as policies of described items take them."""
        return Items.of(states.numbers(self.items[self.action_items]), self.known_actions)

    @property
    def size(self) -> int:
        """F, the length of a feature vector."""
        return sum(states.widths(self, len(self.response_scale)))

    def same(self, other: Catalogue) -> bool:
        """Whether the other has the same users, items, actions and features."""
        pairs = ((getattr(self, field.name), getattr(other, field.name)) for field in fields(self))
        given = ((a, b) for a, b in pairs if a is not None and b is not None)
        return all(a == b if isinstance(a, tuple) else np.array_equal(a, b) for a, b in given)

    def vector(self, numbers: Any) -> Float[np.ndarray, " F"]:
        """A feature vector, checked."""
        vector = np.asarray(numbers if NUMERIC.holds(numbers) else np.nan)
        if vector.shape != (self.size,) or vector.dtype.kind not in "fiu" or not np.isfinite(vector).all():
            raise ValueError(f"`observation` must be {self.size} finite numbers, got {_shown(numbers)}.")
        return vector.astype(np.float32)

    def see(
        self, user: Any, context: Any, history: Any, responses: Any = None
    ) -> tuple[Float[np.ndarray, " F"], tuple[str, ...]]:
        """The feature vector of a request, and in words what of the request is unknown.

        Args:
            user: id as the log names it; who is unknown has zeros for features.
            context: values, or codes as the dataset has them, or a mapping from their names; what train users do not
                have is unknown: zeros.
            history: ids of viewed items, oldest first; unknown ones are skipped, as if they had not been viewed.
            responses: [n, M] to these items, signals as logged, a cost positive; NaN is unknown, None where all are.
        """
        (place,), codes = self.users_at([user]), self.codes(context)
        places = self.items_at(history)
        known = np.flatnonzero(places >= 0)[::-1][: self.window]
        items = np.append(places[known], np.full(self.window - len(known), -1))[None]
        answers = None
        if responses is not None and len(known):
            shape = (1, self.window, len(self.signs))  # beyond the items whatever there is: no item, no response
            answers = np.resize(self._answers(responses, len(places))[known], shape)
        x = self.features(np.array([place]), codes[None], items, answers)[0]
        notes = [f"user {user} is unknown: no features"] if place < 0 else []
        notes += self.unknown_context(context)
        if (places < 0).any():
            notes.append(f"{(places < 0).sum()} of {len(places)} items of the history are unknown: skipped")
        if self.response_scale and len(places) and responses is None:
            notes.append("responses to the history are unknown: zeros")
        return x, tuple(notes)

    def unknown_context(self, context: Any) -> list[str]:
        """In words, what of a context no train user has."""
        codes = self.codes(context)
        names, given = self.context_names or map(str, range(len(codes))), _values(context)
        parts = zip(names, codes, self.context_sizes, given, strict=True)
        return [f"context {name}={value} is unknown" for name, code, size, value in parts if not 0 <= code < size]

    def not_eligible(self, eligible: Any) -> tuple[Bool[np.ndarray, " K"], list[str]]:
        """Which actions are not among the eligible ids, None being all; and in words how many ids are no actions."""
        names = self.action_ids.astype(str)
        if eligible is None:
            return np.zeros(len(names), bool), []
        wanted = np.array([str(one) for one in several(eligible)], str)
        strange = len(wanted) - np.isin(wanted, names).sum()
        notes = [f"{strange} of {len(wanted)} eligible items are no actions: skipped"] if strange else []
        return ~np.isin(names, wanted), notes

    def features(self, user: Any, codes: Any, items: Any, responses: Any = None) -> Float[np.ndarray, "n F"]:
        """Feature vectors of n requests.

        Args:
            user: [n] index of the user; −1 is unknown.
            codes: [n, C] of the context; a code outside of its column is unknown.
            items: [n, W] indices of viewed items, newest first; −1 is none.
            responses: [n, W, M] as `response_numbers` makes them; −128 is unknown. None is all unknown.
        """
        x = states.assembled(np, self, np.maximum(user, 0), codes, items)
        x[user < 0, : self.users.shape[1]] = 0
        if not self.response_scale:
            return x
        shape = (*items.shape, len(self.response_scale))
        known = np.zeros(items.shape, bool) if responses is None else (items >= 0) & (responses[..., 0] >= -STEPS)
        values = np.zeros(shape, np.int8) if responses is None else responses
        return np.concatenate([x, states.responded(np, self, values, items, known)], axis=-1)

    def _answers(self, responses: Any, count: int) -> Int[np.ndarray, "n M"]:
        """Responses as logged to int8, checked; NaN is one that is not known."""
        right = (count, len(self.signal_names))
        try:
            given = np.asarray(responses, dtype=np.float64)
        except (OverflowError, TypeError, ValueError):
            given = np.full((), np.inf)
        given = given.reshape(right) if not given.size else given
        if given.shape != right or np.isinf(given).any():
            raise ValueError(f"`responses` must be finite, of shape {right}: {', '.join(self.signal_names)}.")
        unknown: Any = np.isnan(given).any(axis=1)
        numbers = np.where(unknown[:, None], 0.0, given) * np.array(self.signs)
        found = response_numbers(numbers, self.response_scale or (1.0,) * right[1])
        found[unknown] = -STEPS - 1  # in place of a response that is not known
        return found

    def users_at(self, ids: Any) -> Int[np.ndarray, " n"]:
        """The index of each user; −1 where it is unknown."""
        return _places(self.user_ids, self._user_order, _as("user", ids, self.user_ids))

    def items_at(self, ids: Any) -> Int[np.ndarray, " n"]:
        """The index of each item; −1 where it is unknown."""
        return _places(self.item_ids, self._item_order, _as("history", ids, self.item_ids))

    def actions_of(self, items: Any) -> Int[np.ndarray, " n"]:
        """The action that each item is, by its index; −1 where it is none, or unknown."""
        action = np.full(len(self.item_ids) + 1, -1)  # the last is that of −1
        action[self.action_items] = np.arange(len(self.action_ids))
        return action[items]

    def codes(self, context: Any) -> Int[np.ndarray, " C"]:
        """One code per column, from values, codes, or a mapping by name; −1 is a value that is unknown."""
        wanted = ", ".join(self.context_names) or f"{len(self.context_sizes)} codes"
        if isinstance(context, Mapping):
            if not self.context_names or set(context) != set(self.context_names):
                raise ValueError(f"`context` must hold {wanted}, got {', '.join(map(str, context)) or 'nothing'}.")
            context = [context[name] for name in self.context_names]
        given, count = _values(context), len(self.context_sizes)
        if len(given) != count:
            right = f"{counted(count, 'value')} ({wanted})" if count else "nothing, since the log has no context"
            raise ValueError(f"`context` must hold {right}, got {_shown(given)}.")
        if self.context_values:
            return np.array([code_of(codes, value) for codes, value in zip(self._codes, given, strict=True)], int)
        codes = _as("context", given, np.zeros(0, np.int64))
        if (codes < 0).any():
            raise ValueError(f"`context` must hold {count} codes of at least 0 ({wanted}), got {codes.tolist()}.")
        return codes

    @cached_property
    def _codes(self) -> list[dict[str, int]]:
        return [codes_of(values) for values in self.context_values]

    @cached_property
    def _user_order(self) -> Int[np.ndarray, " U"]:
        return np.argsort(self.user_ids, kind="stable")

    @cached_property
    def _item_order(self) -> Int[np.ndarray, " I"]:
        return np.argsort(self.item_ids, kind="stable")


def codes_of(values: Iterable[str]) -> dict[str, int]:
    """The code of each value of the context, by its text and by what the text stands for."""
    exact = {value: code for code, value in enumerate(values)}
    return {_plain(value): code for value, code in exact.items()} | exact


def code_of(codes: Mapping[str, int], value: Any) -> int:
    """The code of a value, −1 where it is unknown; a number or truth value may be written in another way."""
    return codes.get(str(value), codes.get(_plain(str(value)), -1))


def _plain(text: str) -> str:
    """One text for 1, 1.0 and 01, and for True and true."""
    try:
        return str(Decimal(text).normalize())
    except ArithmeticError:
        return text.lower() if text.lower() in ("true", "false") else text


def _values(context: Any) -> list[Any]:
    if context is None:
        return []
    given = context.values() if isinstance(context, Mapping) else np.atleast_1d(_array("context", context))
    return [value.item() if isinstance(value, np.generic) else value for value in given]


def _array(name: str, values: Any) -> np.ndarray[Any, Any]:
    """Values in an array; lists of several lengths, or in too many others, are refused."""
    try:
        return np.asarray(values)
    except (TypeError, ValueError):
        raise ValueError(f"`{name}` must be a row of values, got {_shown(values)}.") from None


def _places(ids: Any, order: Any, wanted: Any) -> Int[np.ndarray, " n"]:
    """Where each wanted id is; −1 where it is not."""
    place = order[np.minimum(np.searchsorted(ids, wanted, sorter=order), len(ids) - 1)]
    return np.where(ids[place] == wanted, place, -1)


def _as(name: str, values: Any, known: Any) -> np.ndarray[Any, Any]:
    """Ids of the kind that the log has: texts, or whole numbers, also where these are given as texts.

    Among whole numbers a text is an id that is not known; texts alone are refused.
    """
    given = _array(name, values)
    if given.ndim == 1 and not len(given):
        return known[:0]
    if given.ndim == 1 and known.dtype.kind == "U" and given.dtype.kind in "iuUO":
        return given.astype(str)
    if given.ndim == 1 and given.dtype.kind in "UO":
        given = _whole_numbers(given, known)
    if given.ndim != 1 or given.dtype.kind not in "iu":
        right = "a whole number" if name == "user" else "a row of whole numbers"
        raise ValueError(f"`{name}` must be {right}, as the log has them, got {_shown(values)}.")
    return given


def _whole_numbers(given: Any, known: Any) -> np.ndarray[Any, Any]:
    """Texts as whole numbers, one that is none as a number that is not known; as they are where that cannot be."""
    texts = [str(value) for value in given]
    whole = [-(2**63) <= int(text) < 2**63 if _WHOLE.fullmatch(text) else False for text in texts]
    if not any(whole) or not (all(whole) or len(known)):
        return given.astype(str)
    absent = 0 if all(whole) else int(known.min()) - 1 if known.min() > -(2**63) else int(known.max()) + 1
    return np.array([int(text) if right else absent for text, right in zip(texts, whole, strict=True)], np.int64)


def _shown(value: Any) -> str:
    text = shown(value[0] if isinstance(value, list) and len(value) == 1 else value)
    return text if len(text) <= 60 else f"{text[:57]}…"
