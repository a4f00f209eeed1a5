"""A built dataset, read from its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from moac.logs import manifest
from moac.logs.assembly import COLUMNS, PARTS
from moac.logs.dataset import LoggedDataset
from moac.logs.schema import NUM_TABS
from moac.logs.states import WINDOW, Tables

CONTEXT_SIZES = (NUM_TABS, 24, 7)
_CONTEXT_NAMES = tuple(
    f"{name}={code}" for name, size in zip(("tab", "hour", "day"), CONTEXT_SIZES, strict=True) for code in range(size)
)


def load(folder: Path) -> LoggedDataset:
    """The dataset; its arrays stay on disk until they are used."""
    about = manifest.read(folder)
    shared = {name: _array(folder, name) for name in _SHARED}
    tables = Tables(shared["users"], shared["items"], shared["history"], shared["first"], CONTEXT_SIZES)
    common: dict[str, Any] = {
        "tables": tables,
        **{name: shared[name] for name in ("split", "user_ids", "action_ids", "action_items", "item_ids")},
        "signal_names": tuple(about["signals"]),
        "signs": tuple(signal["sign"] for signal in about["signals"].values()),
        "feature_names": _names(folder),
    }
    known = {part: part == "random" or about["primary"] == "random" for part in PARTS if part in about["parts"]}
    parts = {part: _columns(folder, part, len(shared["action_ids"]) if uniform else None)
             for part, uniform in known.items()}  # fmt: skip
    random = None
    if "random" in parts:
        name, fingerprint = f"{about['name']}-random", f"{about['content'][:16]}:random"
        random = LoggedDataset(name, **parts["random"], **common, fingerprint=fingerprint)
    own: dict[str, Any] = {"fingerprint": about["content"][:16], "random": random, "folder": str(folder.resolve())}
    return LoggedDataset(about["name"], **parts["rows"], **common, **own)


_SHARED = ("users", "items", "history", "first", "split", "user_ids", "action_ids", "action_items", "item_ids")


def _columns(folder: Path, part: str, num_actions: int | None) -> dict[str, Any]:
    """Rows of one log; where exposure was uniform the propensity, given that the video is an action, is 1/K."""
    columns = {name: _array(folder, f"{part}/{name}") for name in COLUMNS}
    count = len(columns["user"])
    propensity = None if num_actions is None else np.full(count, 1 / num_actions, dtype=np.float32)
    return columns | {"terminated": np.zeros(count, dtype=bool), "propensity": propensity}


def _array(folder: Path, name: str) -> Any:
    path = folder / "arrays" / f"{name}.npy"
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise ValueError(f"{path} is missing: build the dataset again.") from None
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}.") from None


def _names(folder: Path) -> tuple[str, ...]:
    """Of all numbers of a state, in the order of `states.features`."""
    stored = json.loads((folder / manifest.ENCODING).read_text())
    videos = ("seen", *stored["video_names"])
    window = (f"video -{k}: {name}" for k in range(1, WINDOW + 1) for name in videos)
    return (*stored["user_names"], *_CONTEXT_NAMES, *window)
