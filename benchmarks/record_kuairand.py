"""Keep what `moac reproduce kuairand-comparison` measured:  python benchmarks/record_kuairand.py RUN.

Writes src/moac_studies/recorded/kuairand.json: numbers of the study's tables, and no rows of the data. A change is
[per cent, low, high], with a value before it where the table has one. Every change with an interval in the documents
about KuaiRand comes from there, which the suite checks.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from _timing import ROOT

OUTPUT = ROOT / "src" / "moac_studies" / "recorded" / "kuairand.json"
LEFT_OUT = ("The search", "Validation users")
RARE = ("Like", "Follow", "Comment", "Forward", "Dislike (cost)", "Setting")
CHECKED_ELSEWHERE = ("MOAC, fixed", "MOAC, uniform", "Uniform", "Popularity")
"""Methods whose verdict alone is kept, in the table of test users."""
_NUMBER = re.compile(r"[+-]?\d+\.?\d*(?:e[+-]\d+)?")


def main(run: Path) -> None:
    """Write the file, one line for each table."""
    data = json.loads((run / "experiment.json").read_text("utf-8"))
    about = {"format": 1, "command": "moac reproduce kuairand-comparison", "commit": data["provenance"]["commit"]}
    tables = {table["title"]: _table(table) for table in data["tables"] if table["title"] not in LEFT_OUT}
    claims = {claim["claim"]: [claim["verdict"], _cell(claim["measured"])] for claim in data["claims"] if _kept(claim)}
    parts = [f'"{name}":{_short(value)}' for name, value in (about | tables | {"claims": claims}).items()]
    OUTPUT.write_text("{" + ",\n".join(parts) + "}\n", "utf-8")
    sys.stdout.write(f"{OUTPUT.stat().st_size:,} bytes: {OUTPUT}\n")


def _kept(claim: dict[str, Any]) -> bool:
    """Whether a claim says of test users who beats the tilt, or is not of one split's users."""
    users, _, rest = claim["claim"].partition(": ")
    return "beats the tilt" in rest if users.startswith("Test") else "users" not in users and "rows" not in users


def _table(table: dict[str, Any]) -> list[list[Any]]:
    """Header and rows, without rare signals, which the paper's table has, and tilts at other shares than MOAC's."""
    by_users, checks = "Share" in table["header"], "Γ" in table["header"]
    kept = [k for k, name in enumerate(table["header"]) if not (by_users and name in RARE)]
    left_out = ("Tilt at", *(CHECKED_ELSEWHERE if checks else ()))
    rows = [row for row in table["rows"] if not str(row[0]).startswith(left_out) and row[1] != "paper"]
    return [[table["header"][k] for k in kept], *([_cell(row[k]) for k in kept] for row in rows)]


def _cell(cell: Any) -> Any:
    """Numbers of a change with its interval, or the text."""
    text = str(cell).replace("−", "-")
    if "points [" in text:
        return {
            name: [float(x) for x in _NUMBER.findall(part)] for name, part in re.findall(r"(\w+) ([+-][^;]+\])", text)
        }
    return [float(x) for x in _NUMBER.findall(text)] if re.search(r"% ?\[|%$", text) else cell


def _short(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
