"""Numbers of our own measurements in benchmarks/recorded.json, of which tables.py makes the documents' tables."""

from __future__ import annotations

import json
from typing import Any

from _timing import ROOT

PATH = ROOT / "benchmarks" / "recorded.json"


def read() -> dict[str, Any]:
    """`speed` by what was measured; `learning` and `one_network` as rows."""
    return json.loads(PATH.read_text("utf-8"))


def keep(name: str, **numbers: Any) -> None:
    """Replace what was measured under a name of `speed`, numbers to four digits."""
    record = read()
    record["speed"][name] = {key: _short(value) for key, value in numbers.items()}
    write(record)


def write(record: dict[str, Any]) -> None:
    """One line for each row, so that a change shows what changed."""
    parts = []
    for name, rows in record.items():
        keys = [f"{json.dumps(key)}: " for key in rows] if isinstance(rows, dict) else [""] * len(rows)
        values = rows.values() if isinstance(rows, dict) else rows
        lines = [f"  {key}{json.dumps(value, ensure_ascii=False)}" for key, value in zip(keys, values, strict=True)]
        opening, closing = "{}" if isinstance(rows, dict) else "[]"
        parts.append(f'"{name}": {opening}\n' + ",\n".join(lines) + f"\n{closing}")
    PATH.write_text("{\n" + ",\n".join(parts) + "\n}\n", "utf-8")


def _short(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_short(each) for each in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value
