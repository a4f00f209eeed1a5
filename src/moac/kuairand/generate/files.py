"""Generated rows as KuaiRand's files, named and ordered like the official ones."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np

from moac.kuairand.generate import features
from moac.kuairand.generate.columns import columns
from moac.kuairand.generate.drawing import Exposure, blocks, draw_users
from moac.kuairand.generate.model import UserModel, Users
from moac.kuairand.schema import (
    FOLDERS,
    LOG,
    RANDOM_LOG,
    STANDARD_LOGS,
    USER_FEATURES,
    VARIANTS,
    VIDEO_FEATURES,
    VIDEO_STATISTICS,
)
from moac.logs.disk import check_room, full_disk_said, refuse_existing
from moac.logs.engine import connect, limits
from moac.logs.workspace import building

Progress = Callable[[int, int], None]
"""Told the rows that are written, and all."""
NUM_USERS = {"pure": 27_285, "1k": 1_000, "27k": 27_285}
ABOUT = "generated.json"
"""Beside `data`: what it takes to make the model again."""
_BYTES_A_ROW, _ROWS_PER_USER, _ROWS_PER_RANDOM = 90, 10, 20
_SECOND_DATE = 20220422
_LIMITS = limits("1GB", threads=1)


@final
@dataclass(frozen=True)
class Order:
    """What to generate.

    Attributes:
        rows: of the standard logs, duplicates not counted.
        variant: whose files and users.
        seed: of the population, its people and their rows.
        random_rows: of the random log; None is one for every twenty.
        num_users: None is the variant's number, or one for ten rows where that is less.
        num_videos: the pool.
    """

    rows: int
    variant: str = "pure"
    seed: int = 0
    random_rows: int | None = None
    num_users: int | None = None
    num_videos: int = 7_583

    def __post_init__(self) -> None:
        if self.variant not in VARIANTS:
            raise ValueError(f"`variant` must be one of {', '.join(VARIANTS)}, got {self.variant!r}.")
        least = {"rows": 1, "seed": 0, "random_rows": 1, "num_users": 1, "num_videos": 1}
        for name, bound in least.items():
            value = getattr(self, name)
            if value is not None and value < bound:
                raise ValueError(f"`{name}` must be at least {bound}, got {value}.")

    def resolved(self) -> Order:
        """With a number in place of every None."""
        users = min(NUM_USERS[self.variant], max(1, self.rows // _ROWS_PER_USER))
        random_rows = max(1, self.rows // _ROWS_PER_RANDOM)
        return replace(self, num_users=self.num_users or users, random_rows=self.random_rows or random_rows)

    def model(self) -> UserModel:
        """The population, with its true values."""
        return UserModel.of(self.seed, self.num_videos)

    def users(self) -> Users:
        """The people; their `user_id` is their index."""
        return draw_users(self.model(), self.resolved().num_users or 1, self.seed)


def write(order: Order, out: Path, progress: Progress | None = None) -> Path:
    """Write the variant's folder into `out`, wholly or not at all; returns the folder."""
    order, target = order.resolved(), out / FOLDERS[order.variant]
    refuse_existing(target)
    out.mkdir(parents=True, exist_ok=True)
    check_room(out, f"{target.name} with {order.rows:,} rows", (order.rows + (order.random_rows or 0)) * _BYTES_A_ROW)
    with full_disk_said(out, "Free some space and run it again."), building(target) as folder:
        (folder / "data").mkdir()
        _write_features(order, folder / "data")
        _write_logs(order, folder / "data", progress or _silent)
        (folder / ABOUT).write_text(json.dumps(asdict(order), indent=2) + "\n")
    return target


def read_order(folder: Path) -> Order:
    """What a generated folder was made from: its model, and its people, can be made again."""
    return Order(**json.loads((folder / ABOUT).read_text()))


def _silent(done: int, total: int) -> None:
    del done, total


def _write_features(order: Order, folder: Path) -> None:
    model = order.model()
    for kind, table in (
        (USER_FEATURES, features.users(order.users(), order.seed)),
        (VIDEO_FEATURES, features.videos(model, order.seed)),
        (VIDEO_STATISTICS, features.statistics(model, order.seed)),
    ):
        _write_table(folder, kind.file_names(order.variant), table)


def _write_table(folder: Path, names: Sequence[str], table: features.Columns) -> None:
    """One file, or as many parts of about equal length."""
    texts = [values.tolist() if isinstance(values, np.ndarray) else values for values in table.values()]
    rows = list(zip(*texts, strict=True))
    for part, name in enumerate(names):
        with (folder / name).open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(table)
            writer.writerows(rows[part * len(rows) // len(names) : (part + 1) * len(rows) // len(names)])


def _write_logs(order: Order, folder: Path, progress: Progress) -> None:
    """Both logs, block by block."""
    model, people = order.model(), order.users()
    duration, exposed, done = features.durations_ms(model, order.seed), order.random_rows or 0, 0
    for exposure, rows, random in (
        (Exposure.standard(model), order.rows, False),
        (Exposure.uniform(model), exposed, True),
    ):
        files = _random_file(order, folder) if random else _standard_files(order, folder)
        for path in files:
            path.write_text(",".join(LOG) + "\n")
        for block in blocks(exposure, people, rows, order.seed):
            _append(columns(block, duration, random), files)
            done += len(block.user)
            progress(done, order.rows + exposed)


def _standard_files(order: Order, folder: Path) -> dict[Path, str]:
    """Each file with the rows that belong there: a period, and in 27K half of the users."""
    early, late = (kind.file_names(order.variant) for kind in STANDARD_LOGS)
    half = (order.num_users or 0) // 2
    found: dict[Path, str] = {}
    for names, period in ((early, f"date < {_SECOND_DATE}"), (late, f"date >= {_SECOND_DATE}")):
        parts = [f"user_id < {half}", f"user_id >= {half}"] if len(names) > 1 else ["true"]
        found |= {folder / name: f"{period} AND {part}" for name, part in zip(names, parts, strict=True)}
    return found


def _random_file(order: Order, folder: Path) -> dict[Path, str]:
    return {folder / name: "true" for name in RANDOM_LOG.file_names(order.variant)}


def _append(table: dict[str, Any], files: dict[Path, str]) -> None:
    """DuckDB turns numbers into text several times as fast as Python; one thread keeps their order."""
    spill = next(iter(files)).with_suffix(".spill")
    with connect(_LIMITS, spill) as connection:
        connection.register("block", table)
        for path, where in files.items():
            piece = path.with_suffix(".piece")
            quoted = str(piece).replace("'", "''")
            connection.execute(f"COPY (SELECT * FROM block WHERE {where}) TO '{quoted}' (FORMAT csv, HEADER false)")  # noqa: S608
            with path.open("ab") as whole, piece.open("rb") as part:
                shutil.copyfileobj(part, whole, 1 << 20)
            piece.unlink()
    shutil.rmtree(spill, ignore_errors=True)
