"""Lists of candidates: the actions that a request could be answered with, where a log says so. Needs no JAX.

Those of a log of one's own are read by DuckDB, checked, and numbered; only that needs the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool

from moac.files import Arrays

if TYPE_CHECKING:
    from moac.logs.connection import Connection
    from moac.logs.engine import Check

FIRST, ACTIONS = "candidate_first", "candidate_actions"


def joined(index: Any, actions: Any) -> Arrays:
    """`candidate_first` [L + 1] and `candidate_actions` [T], from the list that each action belongs to."""
    order = np.lexsort((actions, index))
    first = np.append(0, np.cumsum(np.bincount(index)))
    return {FIRST: first.astype(np.int32), ACTIONS: np.asarray(actions)[order].astype(np.int32)}


def of_rows(lists: Sequence[Any], taken: Any, action_ids: Any) -> tuple[Any, Arrays]:
    """The list of each row [N], and the arrays of all that differ; each row's own action must be in its list.

    `taken` [N] are the indices of the rows' actions in `action_ids` [K], which ascend; `lists` hold ids.
    """
    if len(lists) != len(taken):
        raise ValueError(f"`candidates` must hold a list for each of {len(taken)} rows, got {len(lists)}.")
    known: dict[bytes, int] = {}
    rows, parts = np.empty(len(lists), np.int32), list[Any]()
    for row, each in enumerate(lists):
        ids = np.unique(np.asarray(each))
        if not ids.size:
            raise ValueError(f"`candidates` must hold at least one action, got none in row {row}.")
        places = np.minimum(np.searchsorted(action_ids, ids), len(action_ids) - 1)
        for name in ids[action_ids[places] != ids][:1]:
            raise ValueError(f"`candidates` must hold actions of the log, got {name} in row {row}.")
        if taken[row] not in places:
            shown = action_ids[taken[row]]
            raise ValueError(f"`candidates` must hold the action that was shown, {shown}, in row {row}.")
        rows[row] = known.setdefault(places.tobytes(), len(parts))
        if rows[row] == len(parts):
            parts.append(places)
    return rows, joined(np.repeat(np.arange(len(parts)), [len(part) for part in parts]), np.concatenate(parts))


def mapped(arrays: Arrays, place: Any) -> Arrays:
    """The same lists with `place` of each action in its stead; those of −1 are left out."""
    index = np.repeat(np.arange(len(arrays[FIRST]) - 1), np.diff(arrays[FIRST]))
    moved = place[arrays[ACTIONS]]
    kept = joined(index[moved >= 0], moved[moved >= 0])
    length = len(arrays[FIRST])  # the last lists may have lost all
    return kept | {FIRST: np.append(kept[FIRST], np.full(length - len(kept[FIRST]), kept[FIRST][-1], np.int32))}


def known_actions(taken: Any, num_actions: int) -> Bool[np.ndarray, " K"] | None:
    """Which actions some rows show; None where they show all."""
    known = np.bincount(taken, minlength=num_actions) > 0
    return None if known.all() else known


def cast_lists(expression: str, kind: str) -> str:
    """SQL of a sorted list of different texts, from a list or from a text such as `a|b|c`."""
    listed = expression if "[" in kind else f"string_split({expression}::VARCHAR, '|')"
    texts = f"list_transform({listed}, lambda x: x::VARCHAR)"
    return f"list_sort(list_distinct(list_filter({texts}, lambda x: x <> '')))"


def checks(column: str, text: str) -> tuple[Check, Check]:
    """A list is not empty, and holds the item that was shown."""
    from moac.logs.engine import Check

    some = Check(column, "len(candidates) > 0", "a list of items, such as a|b|c", text)
    return some, Check(
        column, "list_contains(candidates, item)", "a list such as a|b|c with the item that was shown", text
    )


def write(connection: Connection, typed: str, work: Path, what: str) -> None:
    """Write the different lists, numbered in order, and which items each has; an unknown item is refused."""
    from moac.logs import engine

    distinct = f"SELECT DISTINCT candidates FROM {typed}"
    numbered = f"SELECT candidates, (row_number() OVER (ORDER BY candidates) - 1)::INTEGER AS list FROM ({distinct})"
    engine.copy_whole(connection, numbered, work / "lists.parquet")
    lists, items = (engine.parquet([work / f"{name}.parquet"]) for name in ("lists", "items"))
    pairs = f"(SELECT list, unnest(candidates) AS name FROM {lists}) LEFT JOIN {items} USING (name)"
    unknown = connection.execute(f"SELECT name FROM {pairs} WHERE id IS NULL ORDER BY list, name LIMIT 1").fetchone()
    if unknown is not None:
        raise ValueError(f"{what} must hold items that the log shows or ITEMS describes, got {unknown[0]!r}.")
    engine.copy_whole(connection, f"SELECT list, id FROM {pairs} ORDER BY list, id", work / "candidates.parquet")
