"""Generated rows as KuaiRand's files, with their names, types and oddities, and the columns that are read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from moac.choices import COUNT, at_least, check_fields, one_of
from moac.kuairand import schema, simulator
from moac.kuairand.schema import Kind
from moac.kuairand.simulator import RATES, TABS, Block, Log, UserModel, Users, log
from moac.locks import becoming, check_room, refuse_existing
from moac.logs import engine
from moac.logs.connection import Connection

__all__ = ["RATES", "TABS", "Log", "Parameters", "UserModel", "Users", "log", "read_parameters", "write"]

Progress = Callable[[int, int], None]
"""Told the rows that are written, and all."""
Columns = dict[str, Any]
"""Arrays by name."""
_NUM_USERS = {"pure": 27_285, "1k": 1_000, "27k": 27_285}
_BYTES_A_ROW, _ROWS_PER_USER, _ROWS_PER_RANDOM = 90, 10, 20
_SECOND_DATE = 20220422
_LIMITS = engine.limits("1GB", threads=1)

_DUPLICATES, _DOUBLED_TAB = 0.024, TABS.index(6)
"""Share of rows that the standard log holds twice, all of them in this tab."""
_NO_DURATION = {False: 0.016, True: 0.03}
"""Share of rows whose duration is 0: in the standard log, and in the random one."""
_LAG_MS = 1_300_000
"""date and hourmin are up to this much later than time_ms, whose hour so agrees with hourmin's in 82 % of rows."""
_LONG_VIEW_MS, _HOUR_MS = 18_000, 3_600_000
_DATES = np.array([*range(20220408, 20220431), *range(20220501, 20220509)], np.int32)
_RANGES = np.array(["0", "[1,10)", "[10,100)", "[100,1k)", "1k+"], object)
_ONEHOT = (2, 7, 50, 1471, 15, 34, 3, 118, 454, 7, 5, 5, 2, 2, 2, 2, 2, 2)
"""How many values each has; `onehot_feat1` is the user's kind."""
_WITH_GAPS = (4, *range(12, 18))
"""Features that some users do not have; their columns are written as decimals."""


@dataclass(frozen=True)
class Parameters:
    """What to generate."""

    rows: int  # of the standard logs, duplicates not counted
    variant: str = "pure"  # whose files and users
    seed: int = 0  # of the population, its people and their rows
    random_rows: int | None = None  # of the random log; None is one for every twenty
    num_users: int | None = None  # None is the variant's number, or one for ten rows where that is less
    num_videos: int = 7_583  # the pool

    def __post_init__(self) -> None:
        one_of("variant", self.variant, schema.VARIANTS)
        counts = dict.fromkeys(("rows", "random_rows", "num_users", "num_videos"), COUNT)
        check_fields(self, counts | {"seed": at_least(0, int)})

    def resolved(self) -> Parameters:
        """With a number in place of every None."""
        users = min(_NUM_USERS[self.variant], max(1, self.rows // _ROWS_PER_USER))
        random_rows = max(1, self.rows // _ROWS_PER_RANDOM)
        return replace(self, num_users=self.num_users or users, random_rows=self.random_rows or random_rows)

    def model(self) -> UserModel:
        """The population, with its true values."""
        return UserModel.of(self.seed, self.num_videos)

    def users(self) -> Users:
        """The people; their `user_id` is their index."""
        return self.model().draw_users(self.resolved().num_users or 1, self.seed)


def write(parameters: Parameters, out: Path, progress: Progress | None = None) -> Path:
    """Write the variant's folder into `out`, wholly or not at all; returns the folder."""
    resolved, target = parameters.resolved(), out / schema.FOLDERS[parameters.variant]
    rows = resolved.rows + (resolved.random_rows or 0)
    refuse_existing(target)
    check_room(out, f"{target.name} with {resolved.rows:,} rows", rows * _BYTES_A_ROW)
    with becoming(target) as folder:
        (folder / "data").mkdir()
        with engine.connect(_LIMITS, folder / "spill") as connection:
            _write_features(connection, resolved, folder / "data")
            _write_logs(connection, resolved, folder / "data", progress or (lambda done, total: None))
        shutil.rmtree(folder / "spill", ignore_errors=True)
        (folder / schema.ABOUT_GENERATED).write_text(json.dumps(asdict(resolved), indent=2) + "\n")
    return target


def read_parameters(folder: Path) -> Parameters:
    """What a generated folder was made from: its model, and its people, can be made again."""
    return Parameters(**json.loads((folder / schema.ABOUT_GENERATED).read_text()))


def _append(connection: Connection, table: Columns, files: dict[Path, str]) -> None:
    """Add the rows that belong to each file, in order: DuckDB writes text several times as fast as Python."""
    connection.register("block", table)
    for path, where in files.items():
        piece, header = path.with_suffix(".piece"), not path.exists()
        rows = f"(SELECT * FROM block WHERE {where})"
        connection.execute(f"COPY {rows} TO {engine.quoted(piece)} (FORMAT csv, HEADER {header})")
        with path.open("ab") as whole, piece.open("rb") as part:
            shutil.copyfileobj(part, whole, 1 << 20)
        piece.unlink()


def _parts(folder: Path, kind: Kind, variant: str, ids: str, where: str = "true") -> dict[Path, str]:
    """The files of a kind, each with the condition on its rows; `ids` is SQL for an id as a share of all."""
    names = kind.file_names(variant)
    return {folder / name: f"{where} AND floor({len(names)} * {ids}) = {k}" for k, name in enumerate(names)}


def _write_features(connection: Connection, resolved: Parameters, folder: Path) -> None:
    model, seed = resolved.model(), resolved.seed
    users, videos = f"user_id / {resolved.num_users}", f"video_id / {resolved.num_videos}"
    for kind, ids, table in (
        (schema.USER_FEATURES, users, _users(resolved.users(), seed)),
        (schema.VIDEO_FEATURES, videos, _videos(model, seed)),
    ):
        ordered = {name: table[name] for name in kind.table.columns}
        _append(connection, ordered, _parts(folder, kind, resolved.variant, ids))


def _write_logs(connection: Connection, resolved: Parameters, folder: Path, progress: Progress) -> None:
    """Both logs, block by block; the standard one in two periods, of which 27K has each in halves of the users."""
    model, people, exposed, done = resolved.model(), resolved.users(), resolved.random_rows or 0, 0
    duration, ids = _durations_ms(model, resolved.seed), f"user_id / {resolved.num_users}"
    early, late = schema.STANDARD_LOGS
    standard = _parts(folder, early, resolved.variant, ids, f"date < {_SECOND_DATE}")
    standard |= _parts(folder, late, resolved.variant, ids, f"date >= {_SECOND_DATE}")
    random = _parts(folder, schema.RANDOM_LOG, resolved.variant, ids)
    for is_random, rows, files in ((False, resolved.rows, standard), (True, exposed, random)):
        policy = None if is_random else model.behaviour
        for block in simulator.blocks(model, policy, people, rows, resolved.seed, is_random):
            _append(connection, _log_columns(block, duration, is_random), files)
            done += len(block.columns["user_id"])
            progress(done, resolved.rows + exposed)


def _log_columns(block: Block, duration_ms: Any, random: bool) -> Columns:
    """The nineteen columns of a log, in the official order; the standard log has some rows twice."""
    (rows, rng), count = block, len(block.columns["user_id"])
    shown = np.minimum(rows["time_ms"] + rng.integers(0, _LAG_MS, count), simulator.LAST_MS - 1) - simulator.FIRST_MS
    length = duration_ms[rows["video_id"]]
    entered = rng.random(count) < 0.002
    columns: Columns = rows | {
        "date": _DATES[shown // simulator.DAY_MS],
        "hourmin": (shown % simulator.DAY_MS // _HOUR_MS * 100).astype(np.int16),
        "long_view": (rows["play_time_ms"] >= np.minimum(length, _LONG_VIEW_MS)).astype(np.int8),
        "duration_ms": np.where(rng.random(count) < _NO_DURATION[random], 0, length).astype(np.int32),
        "profile_stay_time": np.where(entered, rng.integers(500, 60_000, count), 0).astype(np.int32),
        "comment_stay_time": np.where(rng.random(count) < 0.05, rng.integers(500, 60_000, count), 0).astype(np.int32),
        "is_profile_enter": entered.astype(np.int8),
        "is_rand": np.full(count, random, np.int8),
        "tab": np.array(TABS, np.int8)[rows["tab"]],
    }
    if random:
        return {name: columns[name] for name in schema.LOG}
    twice = (rows["tab"] == _DOUBLED_TAB) & (rng.random(count) < _DUPLICATES / simulator.TAB_SHARE[_DOUBLED_TAB])
    return {name: np.repeat(columns[name], 1 + twice) for name in schema.LOG}


def _users(people: Users, seed: int) -> Columns:
    """`user_features`: the kind stands in `onehot_feat1`, the hidden level nowhere."""
    rng, count = np.random.default_rng([seed, 4]), len(people.kind)
    numbers = {name: np.exp(rng.normal(4, 1.5, count)).astype(np.int64) for name in schema.USER_NUMBERS}
    columns: Columns = {
        "user_id": np.arange(count),
        "user_active_degree": _chosen(rng, count, "full_active", "high_active", "middle_active", "UNKNOWN"),
        "is_lowactive_period": np.zeros(count, int),
        "is_live_streamer": np.where(rng.random(count) < 0.23, 1, -124),
        "is_video_author": (rng.random(count) < 0.82).astype(int),
        **numbers,
        **{f"{name}_range": _RANGES[np.digitize(x, (1, 10, 100, 1_000))] for name, x in numbers.items()},
    }
    for k, size in enumerate(_ONEHOT):
        values = people.kind if k == 1 else rng.integers(0, size, count)
        columns[f"onehot_feat{k}"] = _decimals(rng, values, 0.03) if k in _WITH_GAPS else values
    return columns


def _durations_ms(model: UserModel, seed: int) -> np.ndarray[Any, Any]:
    """[V] length of each video: above 7 s, so that a click is what the dataset calls a valid play."""
    rng = np.random.default_rng([seed, 5])
    return (7_100 + np.exp(np.log(60_000) + 0.9 * rng.standard_normal(model.num_videos))).astype(np.int32)


def _videos(model: UserModel, seed: int) -> Columns:
    """`video_features_basic`: the first tag is the video's class; some have no music, no tag, or two tags."""
    rng, count = np.random.default_rng([seed, 6]), model.num_videos
    second = np.where(rng.random(count) < 0.236, rng.integers(40, 70, count), -1)
    tags = [f"{tag}" if more < 0 else f"{tag},{more}" for tag, more in zip(model.video_class, second, strict=True)]
    return {
        "video_id": np.arange(count),
        "video_type": np.where(rng.random(count) < 0.01, "AD", "NORMAL").astype(object),
        "upload_dt": _chosen(rng, count, "2022-04-09", "2022-04-10", "2022-04-11"),
        "upload_type": _chosen(rng, count, "LongImport", "Web", "ShortImport", "Kmovie", "UNKNOWN"),
        "video_duration": _decimals(rng, _durations_ms(model, seed), 0.032),
        "server_width": _decimals(rng, np.full(count, 720), 0),
        "server_height": _decimals(rng, rng.choice([480, 1280], size=count, p=[0.2, 0.8]), 0),
        "music_type": _decimals(rng, rng.choice([9, 4, 8, 7], size=count), 0.027),
        "tag": _with_gaps(rng, tags, 0.013),
    }


def _chosen(rng: np.random.Generator, count: int, *names: str) -> np.ndarray[Any, Any]:
    return np.array(names, object)[rng.integers(0, len(names), count)]


def _decimals(rng: np.random.Generator, values: np.ndarray[Any, Any], gaps: float) -> np.ndarray[Any, Any]:
    """As pandas writes a column of whole numbers with gaps, where a share of the rows has no value."""
    return _with_gaps(rng, [f"{value}.0" for value in values.tolist()], gaps)


def _with_gaps(rng: np.random.Generator, texts: list[str], gaps: float) -> np.ndarray[Any, Any]:
    column = np.array(texts, object)
    column[rng.random(len(texts)) < gaps] = None
    return column
