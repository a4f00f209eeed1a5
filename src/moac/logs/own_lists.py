"""The column of candidates in a log of one's own: lists of ids, checked, and numbered."""

from __future__ import annotations

from pathlib import Path

from moac.logs import engine
from moac.logs.engine import Check, Connection


def cast(expression: str, kind: str) -> str:
    """SQL of a sorted list of different texts, from a list or from a text such as `a|b|c`."""
    listed = expression if "[" in kind else f"string_split({expression}::VARCHAR, '|')"
    texts = f"list_transform({listed}, lambda x: x::VARCHAR)"
    return f"list_sort(list_distinct(list_filter({texts}, lambda x: x <> '')))"


def checks(column: str, text: str) -> tuple[Check, Check]:
    """A list is not empty, and holds the item that was shown."""
    some = Check(column, "len(candidates) > 0", "a list of items, such as a|b|c", text)
    return some, Check(column, "list_contains(candidates, item)", "a list with the item that was shown", text)


def write(connection: Connection, typed: str, work: Path, what: str) -> None:
    """Write the different lists, numbered in order, and which items each has; an unknown item is refused."""
    distinct = f"SELECT DISTINCT candidates FROM {typed}"
    numbered = f"SELECT candidates, (row_number() OVER (ORDER BY candidates) - 1)::INTEGER AS list FROM ({distinct})"
    engine.copy_whole(connection, numbered, work / "lists.parquet")
    lists, items = (engine.parquet([work / f"{name}.parquet"]) for name in ("lists", "items"))
    pairs = f"(SELECT list, unnest(candidates) AS name FROM {lists}) LEFT JOIN {items} USING (name)"
    unknown = connection.execute(f"SELECT name FROM {pairs} WHERE id IS NULL ORDER BY list, name LIMIT 1").fetchone()
    if unknown is not None:
        raise ValueError(f"{what} must hold items that the log shows or ITEMS describes, got {unknown[0]!r}.")
    engine.copy_whole(connection, f"SELECT list, id FROM {pairs} ORDER BY list, id", work / "candidates.parquet")
