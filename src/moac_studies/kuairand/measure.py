"""The data at hand, built and counted."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Float

from moac import statistics
from moac.kuairand import generate
from moac.logs import LoggedDataset, Options, build, describe
from moac.logs.description import Description
from moac.statistics import Mean
from moac_studies.studies import Workspace

VARIABLE = "MOAC_KUAIRAND_DIR"
_BESIDE = Path(__file__).parents[5] / "shared" / "data" / "kuairand"
"""Beside the project."""


@final
@dataclass(frozen=True, eq=False)
class Counted:
    """A dataset in the numbers of the paper's table.

    Attributes:
        real: whether the rows are KuaiRand's.
        description: of the dataset.
        signals: [N, M] as they were logged, a cost positive.
        rates: mean per row of each signal, with intervals over users.
        state: numbers of a state.
    """

    real: bool
    description: Description
    signals: Float[np.ndarray, "N M"]
    rates: dict[str, Mean]
    state: int


def source() -> Path | None:
    """The folder with real rows; None where there is none. One that is named must be there."""
    named = os.environ.get(VARIABLE)
    if named is None:
        return _BESIDE if _BESIDE.is_dir() else None
    if not Path(named).is_dir():
        raise ValueError(f"{VARIABLE} must be a folder with KuaiRand's files, got {named}.")
    return Path(named)


def built(table: Mapping[str, Any], seed: int, work: Workspace, files: Path | None) -> Path:
    """A dataset from `files`, or from generated rows; what an earlier call has built of the same is taken."""
    made = {} if files else {"seed": seed, "rows": table["generated_rows"]}
    options = Options(table["actions"], table["split_seed"], memory_limit=table["memory_limit"])
    identity = json.dumps([str(files), _sizes(files), made, options.actions, options.split_seed])
    folder = work.folder / f"data-{hashlib.sha256(identity.encode()).hexdigest()[:10]}"
    if not folder.exists():
        work.folder.mkdir(parents=True, exist_ok=True)
        _built(files, folder, options, generate.Order(table["generated_rows"], seed=seed), work)
    return folder


def counted(table: Mapping[str, Any], seed: int, work: Workspace, files: Path | None) -> Counted:
    """Build, then count."""
    folder = built(table, seed, work, files)
    dataset = LoggedDataset.from_parquet(folder)
    signals = dataset.reward * np.array(dataset.signs)
    rates = dict(zip(dataset.signal_names, _rates(dataset.user, signals), strict=True))
    return Counted(files is not None, describe(folder), signals, rates, dataset.num_features)


def _sizes(files: Path | None) -> list[Any]:
    """Names, sizes and times of the files, so that other files are another dataset."""
    found = sorted(files.rglob("*.csv")) if files else []
    return [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in found]


def _built(files: Path | None, folder: Path, options: Options, order: generate.Order, work: Workspace) -> None:
    """From real rows, or from generated ones that are gone afterwards."""
    if files is not None:
        work.say(f"building from {files}")
        build(files, folder, options)
        return
    work.say(f"no real rows ({VARIABLE} is not set): generating {order.rows:,}")
    with tempfile.TemporaryDirectory(dir=work.folder) as rows:
        generate.write(order, Path(rows))
        build(rows, folder, options)


def _rates(user: Any, signals: Any) -> list[Mean]:
    """Mean per row with the interval of a ratio of two means over users (delta method): rows of a user are alike."""
    _, place, rows = np.unique(user, return_inverse=True, return_counts=True)
    sums = np.zeros((len(rows), signals.shape[1]))
    np.add.at(sums, place, signals)
    rate = sums.sum(axis=0) / rows.sum()
    linear: Any = rate + (sums - rate * rows[:, None]) / rows.mean()
    return [statistics.mean(column) for column in linear.T]
