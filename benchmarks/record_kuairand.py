"""Keep what `moac reproduce kuairand-comparison` measured:  python benchmarks/record_kuairand.py RUN.

Writes src/moac_studies/recorded/kuairand.json: the tables and claims of the study's report, numbers and no rows of the
data. Every number of the documents about KuaiRand comes from it, which the suite checks.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from _timing import ROOT

OUTPUT = ROOT / "src" / "moac_studies" / "recorded" / "kuairand.json"
LEFT_OUT = ("The search",)
RARE = ("Like", "Follow", "Comment", "Forward", "Dislike (cost)")


def main(run: Path) -> None:
    """Write the file, one line for each table."""
    data = json.loads((run / "experiment.json").read_text("utf-8"))
    tables = {table["title"]: _table(table) for table in data["tables"] if table["title"] not in LEFT_OUT}
    claims = [[claim["claim"], claim["verdict"], claim["measured"]] for claim in data["claims"]]
    about = {"format": 1, "command": "moac reproduce kuairand-comparison", "commit": data["provenance"]["commit"]}
    parts = [f'"{name}":{_short(value)}' for name, value in (about | {"claims": claims, "tables": tables}).items()]
    OUTPUT.write_text("{" + ",\n".join(parts) + "}\n", "utf-8")
    sys.stdout.write(f"{OUTPUT.stat().st_size:,} bytes: {OUTPUT}\n")


def _table(table: dict[str, Any]) -> list[list[str]]:
    """Header and rows; without rare signals, which the paper's table has, and tilts at other shares than MOAC's."""
    by_users = "Share" in table["header"]
    kept = [k for k, name in enumerate(table["header"]) if not (by_users and name in RARE)]
    rows = [row for row in table["rows"] if not str(row[0]).startswith("Tilt at")]
    return [[str(row[k]) for k in kept] for row in (table["header"], *rows)]


def _short(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
