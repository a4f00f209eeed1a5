"""A built dataset, read from its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from moac.kuairand.schema import NUM_TABS, SIGNALS
from moac.logs import manifest, stored
from moac.logs.assembly import PARTS
from moac.logs.dataset import LoggedDataset
from moac.logs.states import WINDOW, Tables

CONTEXT_SIZES = (NUM_TABS, 24, 7)
_CONTEXT_NAMES = tuple(
    f"{name}={code}" for name, size in zip(("tab", "hour", "day"), CONTEXT_SIZES, strict=True) for code in range(size)
)


def load(folder: Path) -> LoggedDataset:
    """The dataset; its arrays stay on disk until they are used."""
    about = manifest.read(folder)
    try:
        return _loaded(folder, about)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{folder / manifest.NAME} is damaged: {error} is missing or wrong.") from None


def _loaded(folder: Path, about: dict[str, Any]) -> LoggedDataset:
    shared: dict[str, Any] = stored.shared(folder)
    tables = Tables(shared["users"], shared["items"], shared["history"], shared["first"], CONTEXT_SIZES)
    common: dict[str, Any] = {
        "tables": tables,
        **{name: shared[name] for name in ("split", "user_ids", "action_ids", "action_items", "item_ids")},
        "signal_names": tuple(about["signals"]),
        "signs": tuple(signal["sign"] for signal in about["signals"].values()),
        "feature_names": _names(folder),
    }
    if common["signal_names"] != tuple(SIGNALS) or len(common["feature_names"]) != tables.size:
        raise ValueError(f"{folder} is damaged: its signals or features are not those of its arrays.")
    known = {part: part == "random" or about["primary"] == "random" for part in PARTS if part in about["parts"]}
    parts = {part: _columns(stored.rows(folder, part, shared), len(shared["action_ids"]) if uniform else None)
             for part, uniform in known.items()}  # fmt: skip
    random = None
    if "random" in parts:
        name, fingerprint = f"{about['name']}-random", f"{about['content'][:16]}:random"
        random = LoggedDataset(name, **parts["random"], **common, fingerprint=fingerprint)
    own: dict[str, Any] = {"fingerprint": about["content"][:16], "random": random, "folder": str(folder.resolve())}
    return LoggedDataset(about["name"], **parts["rows"], **common, **own)


def _columns(columns: stored.Arrays, num_actions: int | None) -> dict[str, Any]:
    """Rows of one log; where exposure was uniform the propensity, given that the video is an action, is 1/K."""
    count = len(columns["user"])
    propensity = None if num_actions is None else np.full(count, 1 / num_actions, dtype=np.float32)
    return columns | {"terminated": np.zeros(count, dtype=bool), "propensity": propensity}


def _names(folder: Path) -> tuple[str, ...]:
    """Of all numbers of a state, in the order of `states.features`."""
    names = manifest.read_json(folder / manifest.ENCODING)
    videos = ("seen", *names["video_names"])
    window = (f"video -{k}: {name}" for k in range(1, WINDOW + 1) for name in videos)
    return (*names["user_names"], *_CONTEXT_NAMES, *window)
