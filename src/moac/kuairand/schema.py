"""KuaiRand's files: their names, what their columns hold and mean (Gao et al., CIKM 2022, and the files themselves).

All logs of a variant have the same nineteen whole numbers a row. Feature files quote text that holds commas, and leave
a field empty where a value is missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from moac.arguments import checked
from moac.logs.schema import Feature, LogFiles, Schema, Signal, Table

VARIANTS = ("pure", "1k", "27k")
FOLDERS = {"pure": "KuaiRand-Pure", "1k": "KuaiRand-1K", "27k": "KuaiRand-27K"}
"""The folder that a variant's archive unpacks into; the files are in its `data`."""

LOG = {
    "user_id": "INTEGER", "video_id": "INTEGER", "date": "INTEGER", "hourmin": "SMALLINT", "time_ms": "BIGINT",
    "is_click": "TINYINT", "is_like": "TINYINT", "is_follow": "TINYINT", "is_comment": "TINYINT",
    "is_forward": "TINYINT", "is_hate": "TINYINT", "long_view": "TINYINT", "play_time_ms": "INTEGER",
    "duration_ms": "INTEGER", "profile_stay_time": "INTEGER", "comment_stay_time": "INTEGER",
    "is_profile_enter": "TINYINT", "is_rand": "TINYINT", "tab": "TINYINT",
}  # fmt: skip
"""Columns of a log in the official order, with the type each is stored as."""

USER_NUMBERS = ("follow_user_num", "fans_user_num", "friend_user_num", "register_days")
_USER_CATEGORIES = (
    "user_active_degree", "is_lowactive_period", "is_live_streamer", "is_video_author", "follow_user_num_range",
    "fans_user_num_range", "friend_user_num_range", "register_days_range", *(f"onehot_feat{k}" for k in range(18)),
)  # fmt: skip
USERS = {"user_id": "INTEGER", **dict.fromkeys(USER_NUMBERS, "BIGINT"), **dict.fromkeys(_USER_CATEGORIES, "VARCHAR")}
"""Columns of the user features; categories stay text. An empty field is a value of its own, `?`."""

VIDEOS = {
    "video_id": "INTEGER", "video_type": "VARCHAR", "upload_dt": "VARCHAR", "upload_type": "VARCHAR",
    "video_duration": "DOUBLE", "server_width": "DOUBLE", "server_height": "DOUBLE", "music_type": "VARCHAR",
    "tag": "VARCHAR",
}  # fmt: skip
"""Columns of the basic video features that are read. The statistics of videos are not: they are means over the whole
month, which is the test period too."""

_FROM_ZERO = ("user_id", "video_id", "play_time_ms", "duration_ms", "video_duration", "server_width", "server_height")
_EVENTS = ("is_click", "is_like", "is_follow", "is_comment", "is_forward", "is_hate", "long_view")
_RANGES = {
    **dict.fromkeys(_FROM_ZERO, (0, 2**31 - 1)),
    **dict.fromkeys(_EVENTS, (0, 1)),
    "time_ms": (946_684_800_000, 4_102_444_800_000),
}
"""Columns that states and rewards are made of, and what they can hold; times are of the years 2000 to 2100."""


@dataclass(frozen=True)
class Kind:
    """A kind of file."""

    table: Table  # its columns
    stem: str  # its file name up to the variant
    parts: int = 1  # into how many files 27K splits it

    def file_names(self, variant: str) -> tuple[str, ...]:
        """The official names, one per part, such as `log_standard_4_08_to_4_21_27k_part1.csv`."""
        base = f"{self.stem}_{variant}"
        if variant != "27k" or self.parts == 1:
            return (f"{base}.csv",)
        return tuple(f"{base}_part{part}.csv" for part in range(1, self.parts + 1))


def _table(name: str, columns: dict[str, str]) -> Table:
    ranges = {column: _RANGES[column] for column in columns if column in _RANGES}
    return Table(name, columns, ranges, tuple(columns) if columns is LOG else ("user_id", "video_id"))


LOG_TABLE = _table("log", LOG)
STANDARD_LOGS = (Kind(LOG_TABLE, "log_standard_4_08_to_4_21", 2), Kind(LOG_TABLE, "log_standard_4_22_to_5_08", 2))
RANDOM_LOG = Kind(LOG_TABLE, "log_random_4_22_to_5_08")
USER_FEATURES = Kind(_table("user features", USERS), "user_features")
VIDEO_FEATURES = Kind(_table("basic video features", VIDEOS), "video_features_basic")
KINDS = (*STANDARD_LOGS, RANDOM_LOG, USER_FEATURES, VIDEO_FEATURES)

WATCH_TIME_UNIT_MS = 10_000
"""WatchTime counts tens of seconds, as TSCAC does; not truncated."""
SIGNALS = (
    Signal("Click", "is_click"), Signal("Like", "is_like"), Signal("Follow", "is_follow"),
    Signal("Comment", "is_comment"), Signal("Forward", "is_forward"), Signal("Dislike", "is_hate", -1),
    Signal("WatchTime", "play_time_ms", unit=WATCH_TIME_UNIT_MS),
)  # fmt: skip
"""The paper's seven signals, in its order; Dislike is a cost."""
_MILLIONTHS = 1_000_000
_COMPLETION = f"(least(play_time_ms / greatest(duration_ms, 1), 1) * {_MILLIONTHS})::INTEGER"
DURATION_FREE = (
    Signal("Completion", "completion", unit=_MILLIONTHS, expression=_COMPLETION),
    Signal("LongView", "long_view"),
)
"""Signals that a longer video does not raise by itself: the share that was played, at most 1 (and 1 of a video whose
duration is not known, once it is played), and whether it was played to the end or for 18 s. Whole millionths have the
same sum in any order."""
_LOCAL = "(time_ms + 28800000)"
"""Hours and days are Beijing's."""
_AGE = "greatest(coalesce(date_diff('day', try_cast(upload_dt AS DATE), DATE '2022-05-09'), 0), 0)"
"""Days of a video when the log ends."""
_DURATION = "(log10(greatest(video_duration, 1)) - 4.5) / 1.5"
_VIDEO_FEATURES = (
    Feature("duration", f"CASE WHEN video_duration > 0 THEN greatest(-1, least(1, {_DURATION})) END", "scaled"),
    Feature("portrait", "sign(server_height - server_width)", "scaled"),
    Feature("advert", "(video_type = 'AD')::INTEGER", "scaled"),
    Feature("age", f"least(1, log10(1 + {_AGE}) / 3.6)", "scaled"),
    Feature("tag", "split_part(tag, ',', 1)", "category", 4, one_hot=False),
    Feature("upload_type", "upload_type", "category", 2, one_hot=False),
    Feature("music_type", "music_type", "category", 2, one_hot=False),
)
"""log₁₀ of the duration in ms around 30 s, of the age up to ten years: scales that need no fit."""
SCHEMA = Schema(
    LOG_TABLE,
    "user_id",
    "video_id",
    "time_ms",
    (*SIGNALS, *DURATION_FREE),
    {
        "tab": ("CASE WHEN tab BETWEEN 0 AND 14 THEN tab ELSE -1 END", 15),
        "hour": (f"{_LOCAL} // 3600000 % 24", 24),
        "day": (f"({_LOCAL} // 86400000 + 3) % 7", 7),
    },
    USER_FEATURES.table,
    (
        *(Feature(name, name, "number") for name in USER_NUMBERS),
        *(Feature(name, f"coalesce({name}, '?')", "category") for name in _USER_CATEGORIES),
    ),
    VIDEO_FEATURES.table,
    _VIDEO_FEATURES,
    f"{_LOCAL} // 86400000",
)
"""The day of the week counts from Monday: 1 January 1970 was a Thursday."""
ABOUT_GENERATED = "generated.json"
"""Beside the `data` of generated files: what it takes to make their model again."""
GENERATED = "these rows are generated, not KuaiRand's own"


@checked
def find(folder: str | Path, random_log: str | Path | None = None) -> LogFiles:
    """The files of the one variant that `folder` holds, by their official names: itself, or a few folders down.

    `random_log` is a log of uniformly random exposure; None is the one beside the others, if there is one.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"`folder` must be a folder with KuaiRand's files, got {folder}.")
    random_log = None if random_log is None else Path(random_log)
    if random_log is not None and not random_log.is_file():
        raise ValueError(f"`random_log` must be a file, got {random_log}.")
    there = _by_name(folder)
    variant = _variant(there, folder, random_log is not None)
    standard = tuple(path for kind in STANDARD_LOGS for path in _parts(there, kind, variant))
    random = _parts(there, RANDOM_LOG, variant) if random_log is None else (random_log,)
    expected = (*STANDARD_LOGS, *(() if random else (RANDOM_LOG,)))
    absent = tuple(name for kind in expected for name in kind.file_names(variant) if name not in there)
    (users,), items = (_parts(there, kind, variant) for kind in (USER_FEATURES, VIDEO_FEATURES))
    warnings = (GENERATED,) if (users.parent.parent / ABOUT_GENERATED).exists() else ()
    return LogFiles(f"kuairand-{variant}", SCHEMA, standard, random, users, items, absent, warnings)


def _by_name(folder: Path) -> dict[str, Path]:
    """Files with official names, in the folder and three levels below it."""
    known = {name for kind in KINDS for variant in VARIANTS for name in kind.file_names(variant)}
    there: dict[str, Path] = {}
    for pattern in ("*.csv", "*/*.csv", "*/*/*.csv", "*/*/*/*.csv"):
        for path in sorted(path for path in folder.glob(pattern) if path.name in known):
            if path.name in there:
                raise ValueError(f"{path.name} must be there once, got {there[path.name]} and {path}.")
            there[path.name] = path
    return there


def _variant(there: dict[str, Path], folder: Path, log_given: bool) -> str:
    """The variant that is there with a log and with all tables of features."""
    logs = () if log_given else ((STANDARD_LOGS[1], STANDARD_LOGS[0], RANDOM_LOG),)
    needed = (*logs, (USER_FEATURES,), (VIDEO_FEATURES,))
    missing = dict[str, list[Kind]]()
    for variant in VARIANTS:
        names = [{name for kind in kinds for name in kind.file_names(variant)} for kinds in needed]
        missing[variant] = [needed[k][0] for k, known in enumerate(names) if not known & there.keys()]
    complete = [variant for variant in VARIANTS if not missing[variant]]
    if len(complete) == 1:
        return complete[0]
    if complete:
        raise ValueError(f"{folder} holds several variants ({', '.join(complete)}): point at the folder of one.")
    if not there:
        raise ValueError(f"{folder} holds no file of KuaiRand, such as {STANDARD_LOGS[1].file_names('pure')[0]}.")
    nearest = min(VARIANTS, key=lambda variant: len(missing[variant]))
    kind = missing[nearest][0]
    raise ValueError(f"{kind.file_names(nearest)[0]} ({kind.table.name}) is missing in {folder}.")


def _parts(there: dict[str, Path], kind: Kind, variant: str) -> tuple[Path, ...]:
    """All parts of a file, or none; some without the others is a mistake."""
    names = kind.file_names(variant)
    held = [name for name in names if name in there]
    for name in names:
        if held and name not in there:
            raise ValueError(f"{name} is missing beside {there[held[0]]}: the parts belong together.")
    return tuple(there[name] for name in held)
