"""The card of an evaluation: all that is known of it, as one JSON file beside the run."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from moac.logs import manifest
from moac.logs.dataset import LoggedDataset
from moac.offline.access_log import Book
from moac.offline.evaluation import Judged, lines

FORMAT = 1


def card(judged: Judged, dataset: LoggedDataset, policies: dict[str, str], book: Book | None) -> dict[str, Any]:
    """Everything that the evaluation found, and on what.

    Args:
        judged: what was found.
        dataset: on which.
        policies: fingerprint of each method's parameters.
        book: of looks at test users; None on other users, which may be looked at.
    """
    found = judged.as_dict()
    return {
        "format": FORMAT,
        "moac": metadata.version("moac"),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "policies": policies,
        "data": found.pop("data") | {"rows": dataset.num_rows, "users": dataset.num_users},
        "split": _split(found.pop("split"), dataset) | {"rows": found.pop("rows"), "users": found.pop("users")},
        "trust": {
            name: {"level": own.verdict.level, "reasons": [reason.text for reason in own.verdict.reasons]}
            for name, own in judged.report.policies.items()
        },
        "outcomes": {
            method: {line.signal: line.outcome for line in lines(judged, method)}
            | dict.fromkeys(judged.left_out, "never fires")
            for method in judged.methods
        },
        "test_looks": None if book is None else len(book.looks),
        "looks": None if book is None else list(book.looks),
        **found,
    }


def _split(name: str, dataset: LoggedDataset) -> dict[str, Any]:
    """Its name, and the seed and shares by which users were split, where the data's folder says them."""
    options = {} if dataset.folder is None else manifest.read(Path(dataset.folder))["options"]
    return {"name": name, "seed": options.get("split_seed"), "shares": options.get("shares")}
