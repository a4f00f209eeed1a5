"""Generated rows as KuaiRand's files, named, ordered and typed like the official ones, with what is odd about those."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np

from moac.kuairand import schema
from moac.kuairand.simulator import (
    DAY_MS,
    FIRST_MS,
    LAST_MS,
    RATES,
    TAB_SHARE,
    TABS,
    Block,
    Log,
    UserModel,
    Users,
    blocks,
    log,
)
from moac.logs import engine
from moac.logs.folder import becoming, check_room, refuse_existing

__all__ = ["RATES", "TABS", "Log", "Parameters", "UserModel", "Users", "log", "read_parameters", "write"]

Progress = Callable[[int, int], None]
"""Told the rows that are written, and all."""
Columns = dict[str, Any]
"""Values by name, each column an array or a sequence."""
_NUM_USERS = {"pure": 27_285, "1k": 1_000, "27k": 27_285}
_ABOUT = "generated.json"
"""Beside `data`: what it takes to make the model again."""
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

_ACTIVE = {
    "full_active": 0.65, "high_active": 0.22, "middle_active": 0.08, "2_14_day_new": 0.02, "low_active": 0.01,
    "single_low_active": 0.01, "30day_retention": 0.004, "day_new": 0.003, "UNKNOWN": 0.003,
}  # fmt: skip
_NUMBERS: dict[str, tuple[int, float, Sequence[int], str]] = {
    "follow_user_num": (150, 1.3, (1, 11, 51, 101, 151, 251, 501),
                        "0 (0,10] (10,50] (50,100] (100,150] (150,250] (250,500] 500+"),
    "fans_user_num": (50, 1.8, (1, 10, 100, 1_000, 5_000, 10_000, 100_000, 1_000_000),
                      "0 [1,10) [10,100) [100,1k) [1k,5k) [5k,1w) [1w,10w) [10w,100w) [100w,1000w)"),
    "friend_user_num": (12, 2.0, (1, 5, 30, 60, 120, 250), "0 [1,5) [5,30) [30,60) [60,120) [120,250) 250+"),
    "register_days": (1200, 0.9, (15, 31, 61, 91, 181, 366, 731),
                      "8-14 15-30 31-60 61-90 91-180 181-365 366-730 730+"),
}  # fmt: skip
"""Median, spread of the logarithm, where each range of a number begins but the first, and what they are called."""
_ONEHOT = (2, 7, 50, 1471, 15, 34, 3, 118, 454, 7, 5, 5, 2, 2, 2, 2, 2, 2)
"""How many values each has; `onehot_feat1` is the user's kind."""
_WITH_GAPS = {4: 0.032, **dict.fromkeys(range(12, 18), 0.026)}
"""Shares of users without a value; these columns are written as decimals."""
_UPLOADS = ("LongImport", "Web", "ShortImport", "Kmovie", "LongPicture", "UNKNOWN", "PictureSet", "LongCamera")


@final
@dataclass(frozen=True)
class Parameters:
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
        if self.variant not in schema.VARIANTS:
            raise ValueError(f"`variant` must be one of {', '.join(schema.VARIANTS)}, got {self.variant!r}.")
        for name in ("rows", "seed", "random_rows", "num_users", "num_videos"):
            value, least = getattr(self, name), 0 if name == "seed" else 1
            if value is not None and value < least:
                raise ValueError(f"`{name}` must be at least {least}, got {value}.")

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
    out.mkdir(parents=True, exist_ok=True)
    check_room(out, f"{target.name} with {resolved.rows:,} rows", rows * _BYTES_A_ROW)
    with becoming(target) as folder:
        (folder / "data").mkdir()
        model, seed = resolved.model(), resolved.seed
        for kind, table in (
            (schema.USER_FEATURES, _users(resolved.users(), seed)),
            (schema.VIDEO_FEATURES, _videos(model, seed)),
            (schema.VIDEO_STATISTICS, _statistics(model, seed)),
        ):
            _write_table(folder / "data", kind.file_names(resolved.variant), table)
        _write_logs(resolved, folder / "data", progress or (lambda done, total: None))
        (folder / _ABOUT).write_text(json.dumps(asdict(resolved), indent=2) + "\n")
    return target


def read_parameters(folder: Path) -> Parameters:
    """What a generated folder was made from: its model, and its people, can be made again."""
    return Parameters(**json.loads((folder / _ABOUT).read_text()))


def _write_table(folder: Path, names: Sequence[str], table: Columns) -> None:
    """One file, or as many parts of about equal length."""
    texts = [values.tolist() if isinstance(values, np.ndarray) else values for values in table.values()]
    rows = list(zip(*texts, strict=True))
    for part, name in enumerate(names):
        with (folder / name).open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(table)
            writer.writerows(rows[part * len(rows) // len(names) : (part + 1) * len(rows) // len(names)])


def _write_logs(resolved: Parameters, folder: Path, progress: Progress) -> None:
    """Both logs, block by block."""
    model, people, exposed, done = resolved.model(), resolved.users(), resolved.random_rows or 0, 0
    duration = _durations_ms(model, resolved.seed)
    random_file = {folder / name: "true" for name in schema.RANDOM_LOG.file_names(resolved.variant)}
    for random, rows, files in (
        (False, resolved.rows, _standard_files(resolved, folder)),
        (True, exposed, random_file),
    ):
        for path in files:
            path.write_text(",".join(schema.LOG) + "\n")
        policy = None if random else model.behaviour
        for block in blocks(model, policy, people, rows, resolved.seed, random):
            _append(_log_columns(block, duration, random), files)
            done += len(block.columns["user_id"])
            progress(done, resolved.rows + exposed)


def _standard_files(resolved: Parameters, folder: Path) -> dict[Path, str]:
    """Each file with the rows that belong there: a period, and in 27K half of the users."""
    half, files = (resolved.num_users or 0) // 2, dict[Path, str]()
    for kind, period in zip(schema.STANDARD_LOGS, ("date < ", "date >= "), strict=True):
        names = kind.file_names(resolved.variant)
        parts = [f"user_id < {half}", f"user_id >= {half}"] if len(names) > 1 else ["true"]
        conditions = zip(names, parts, strict=True)
        files |= {folder / name: f"{period}{_SECOND_DATE} AND {part}" for name, part in conditions}
    return files


def _append(table: Columns, files: dict[Path, str]) -> None:
    """DuckDB turns numbers into text several times as fast as Python; one thread keeps their order."""
    spill = next(iter(files)).with_suffix(".spill")
    with engine.connect(_LIMITS, spill) as connection:
        connection.register("block", table)
        for path, where in files.items():
            piece = path.with_suffix(".piece")
            rows = f"(SELECT * FROM block WHERE {where})"
            connection.execute(f"COPY {rows} TO {engine.quoted(piece)} (FORMAT csv, HEADER false)")
            with path.open("ab") as whole, piece.open("rb") as part:
                shutil.copyfileobj(part, whole, 1 << 20)
            piece.unlink()
    shutil.rmtree(spill, ignore_errors=True)


def _log_columns(block: Block, duration_ms: Any, random: bool) -> Columns:
    """The nineteen columns of a log, in the official order; the standard log has some rows twice."""
    (rows, rng), count = block, len(block.columns["user_id"])
    shown = np.minimum(rows["time_ms"] + rng.integers(0, _LAG_MS, count), LAST_MS - 1) - FIRST_MS
    length = duration_ms[rows["video_id"]]
    entered = rng.random(count) < 0.002
    columns: Columns = rows | {
        "date": _DATES[shown // DAY_MS],
        "hourmin": (shown % DAY_MS // _HOUR_MS * 100).astype(np.int16),
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
    twice = (rows["tab"] == _DOUBLED_TAB) & (rng.random(count) < _DUPLICATES / TAB_SHARE[_DOUBLED_TAB])
    return {name: np.repeat(columns[name], 1 + twice) for name in schema.LOG}


def _users(people: Users, seed: int) -> Columns:
    """`user_features`: the kind stands in `onehot_feat1`, the hidden level nowhere."""
    rng, count = np.random.default_rng([seed, 4]), len(people.kind)
    numbers = {name: _amounts(rng, name, count) for name in schema.USER_NUMBERS}
    gap = rng.random(count) < _WITH_GAPS[12]
    columns: Columns = {
        "user_id": range(count),
        "user_active_degree": rng.choice(list(_ACTIVE), size=count, p=list(_ACTIVE.values())),
        "is_lowactive_period": np.zeros(count, int),
        "is_live_streamer": np.where(rng.random(count) < 0.23, 1, -124),
        "is_video_author": (rng.random(count) < 0.82).astype(int),
        **numbers,
        **{f"{name}_range": _ranges(name, values) for name, values in numbers.items()},
    }
    for k, size in enumerate(_ONEHOT):
        values = people.kind if k == 1 else rng.integers(0, size, count)
        missing = gap if k >= 12 else rng.random(count) < _WITH_GAPS.get(k, 0.0)
        columns[f"onehot_feat{k}"] = _decimals(values, missing) if k in _WITH_GAPS else values
    return {name: columns[name] for name in schema.USERS}


def _durations_ms(model: UserModel, seed: int) -> np.ndarray[Any, Any]:
    """[V] length of each video: above 7 s, so that a click is what the dataset calls a valid play."""
    rng = np.random.default_rng([seed, 5])
    return (7_100 + np.exp(np.log(60_000) + 0.9 * rng.standard_normal(model.num_videos))).astype(np.int32)


def _videos(model: UserModel, seed: int) -> Columns:
    """`video_features_basic`: the first tag is the video's class; 2.7 % have no music, 1.3 % no tag, 24 % two."""
    rng, count = np.random.default_rng([seed, 6]), model.num_videos
    second = np.where(rng.random(count) < 0.236, rng.integers(40, 70, count), -1)
    no_tag = rng.random(count) < 0.013
    tags = zip(model.video_class.tolist(), second.tolist(), no_tag.tolist(), strict=True)
    wide = rng.random(count) < 0.2
    columns: Columns = {
        "video_id": range(count),
        "author_id": rng.integers(0, 8_900_000, count),
        "video_type": np.where(rng.random(count) < 0.01, "AD", "NORMAL"),
        "upload_dt": rng.choice(["2022-04-09", "2022-04-10", "2022-04-11"], size=count),
        "upload_type": rng.choice(_UPLOADS, size=count),
        "visible_status": ["0.0"] * count,
        "video_duration": _decimals(_durations_ms(model, seed), rng.random(count) < 0.032),
        "server_width": np.where(wide, "1280.0", "720.0"),
        "server_height": np.where(wide, "720.0", "1280.0"),
        "music_id": rng.integers(0, 9_200_000_000, count),
        "music_type": _decimals(rng.choice([9, 4, 8, 7], size=count), rng.random(count) < 0.027),
        "tag": ["" if gone else str(tag) if more < 0 else f"{tag},{more}" for tag, more, gone in tags],
    }
    return {name: columns[name] for name in schema.VIDEOS}


def _statistics(model: UserModel, seed: int) -> Columns:
    """`video_features_statistic`: positive numbers that grow with how often a video is shown."""
    rng, count = np.random.default_rng([seed, 7]), model.num_videos
    shown = np.einsum("z,zcv->v", model.row_share, model.behaviour) * 2e7 / model.behaviour.shape[1]
    columns: Columns = {"video_id": range(count), "counts": rng.integers(30, 150, count)}
    for name in list(schema.STATISTICS)[2:]:
        share = np.exp(-rng.uniform(0.5, 6)) * np.exp(0.3 * rng.standard_normal(count))
        columns[name] = (shown * share).round(6)
    columns["show_cnt"] = shown.round(6)
    columns["play_progress"] = rng.beta(2, 6, count).round(6)
    return columns


def _amounts(rng: np.random.Generator, name: str, count: int) -> np.ndarray[Any, Any]:
    median, spread, *_ = _NUMBERS[name]
    least = 14 if name == "register_days" else 0
    return np.maximum(np.exp(np.log(median) + spread * rng.standard_normal(count)).astype(np.int64), least)


def _ranges(name: str, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    *_, begins, names = _NUMBERS[name]
    return np.array(names.split())[np.searchsorted(begins, values, side="right")]


def _decimals(values: np.ndarray[Any, Any], missing: np.ndarray[Any, Any]) -> list[str]:
    """As pandas writes a column of whole numbers with gaps."""
    return ["" if gone else f"{value}.0" for value, gone in zip(values.tolist(), missing.tolist(), strict=True)]
