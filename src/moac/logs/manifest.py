"""`manifest.json`: what a dataset was built from, what was done to it, and what came out."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, final

import numpy as np

from moac import files
from moac.kuairand.schema import SIGNALS, SIGNS, WATCH_TIME_UNIT_MS
from moac.logs import statistics
from moac.logs.assembly import PARTS
from moac.logs.buckets import Cleaned
from moac.logs.layout import Sources
from moac.logs.records import File

FORMAT = 1
NAME = "manifest.json"
ENCODING = "encoding.json"
_PACKAGES = ("moac", "duckdb", "numpy")
LEAK = "video statistics are month averages: they cover the test period, so results on held-out users are optimistic"


@final
@dataclass(frozen=True)
class Known:
    """What a build has found out.

    Attributes:
        sources: the files, by role.
        files: the files, as they were looked at.
        cleaned: every bucket's rows, before and after duplicates were dropped.
        features: what was fitted, and the names of the numbers.
        totals: signals and days of whole logs.
        content: the content hash.
    """

    sources: Sources
    files: list[File]
    cleaned: list[Cleaned]
    features: Mapping[str, Any]
    totals: dict[str, Any]
    content: str


def write(folder: Path, known: Known, options: Any) -> dict[str, Any]:
    """Write the manifest of the arrays in `folder`, and what was fitted."""
    encoding = {name: known.features[name] for name in ("users", "videos", "user_names", "video_names")}
    (folder / ENCODING).write_text(json.dumps(encoding) + "\n")
    found = _manifest(folder, known, options)
    (folder / NAME).write_text(json.dumps(found, indent=2) + "\n")
    return found


def read(folder: Path) -> dict[str, Any]:
    """The manifest of a dataset, with one clear line where there is none or it is not ours."""
    path = folder / NAME
    if not path.is_file():
        raise ValueError(f"{folder} is no dataset: it has no {NAME}. Build one with moac data kuairand build.")
    found = read_json(path)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(f"{path} must have format {FORMAT}: build the dataset again.")
    return found


def read_json(path: Path) -> Any:
    """JSON, with one clear line where it is missing or none."""
    try:
        return files.read_json(path)
    except FileNotFoundError:
        raise ValueError(f"{path} is missing: build the dataset again.") from None


def identity(files: list[File], options: Any) -> dict[str, Any]:
    """What a dataset follows from: two builds with one identity make the same."""
    return {
        "sources": [{"file": f.path.name, "kind": f.kind.name, "bytes": f.size, "sha256": f.sha256} for f in files],
        "options": {
            "actions": options.actions, "split_seed": options.split_seed, "shares": list(options.shares),
            "video_statistics": options.video_statistics,
        },
        "versions": {"python": platform.python_version(), **{name: metadata.version(name) for name in _PACKAGES}},
    }  # fmt: skip


def _manifest(folder: Path, known: Known, options: Any) -> dict[str, Any]:
    arrays = folder / "arrays"
    split, views = np.load(arrays / "split.npy"), np.load(arrays / "views.npy")
    parts = {part: _part(arrays / part, split) for part in PARTS if (arrays / part).is_dir()}
    logs = {name: _log(known, k) for k, name in enumerate(("standard", "random"))}
    origin = identity(known.files, options)
    return {
        "format": FORMAT,
        "name": f"kuairand-{known.sources.variant}",
        "content": known.content,
        "sources": origin["sources"],
        "absent": list(known.sources.absent),
        "options": origin["options"],
        "logs": {name: log for name, log in logs.items() if log["rows_read"]},
        "users": len(split),
        "views_per_user": statistics.per_user(views),
        "videos_in_states": len(np.load(arrays / "items.npy", mmap_mode="r")),
        "videos_without_features": known.features["videos_without_features"],
        "parts": parts,
        "primary": "standard" if known.sources.standard else "random",
        "signals": {
            name: {"column": column, "sign": sign, "unit": WATCH_TIME_UNIT_MS if name == "WatchTime" else 1}
            for (name, column), sign in zip(SIGNALS.items(), SIGNS, strict=True)
        },
        "warnings": [LEAK] if options.video_statistics else [],
        "versions": origin["versions"],
    }


def _log(known: Known, part: int) -> dict[str, Any]:
    """Counts of a whole log before and after each step."""
    read, kept = (sum(getattr(bucket, step)[part] for bucket in known.cleaned) for step in ("read", "kept"))
    return {
        "rows_read": read,
        "duplicates": read - kept,
        "rows": kept,
        "signals": statistics.of_log(known.totals, part, kept),
        "days": statistics.days(known.totals, part),
    }


def _part(folder: Path, split: Any) -> dict[str, Any]:
    """Counts of the rows whose video is an action."""
    user, reward = np.load(folder / "user.npy", mmap_mode="r"), np.load(folder / "reward.npy", mmap_mode="r")
    everything = np.ones(len(user), dtype=bool)
    return {
        "rows": len(user),
        "users": len(np.unique(user)),
        "rows_per_user": statistics.per_user(np.unique(user, return_counts=True)[1]),
        "signals": statistics.of_rows(reward, everything),
        "splits": statistics.by_split(user, reward, split),
    }
