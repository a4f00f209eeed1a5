"""All SQL of this package, as functions of files and names; nothing a user types reaches it unquoted."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from moac.kuairand.schema import LOG, RANGES, range_of
from moac.logs.records import File

_HASH = 2_654_435_761
"""Knuth's multiplicative hash: neighbouring users fall into different buckets."""
_BUFFERED = 1 << 19
_END = "DATE '2022-05-09'"
"""The day after the log: a video's age counts back from it."""


def quoted(text: Any) -> str:
    """A string."""
    return "'" + str(text).replace("'", "''") + "'"


def parquet(*paths: Path) -> str:
    """Parquet files as one table."""
    return f"read_parquet({_listed(paths)}, hive_partitioning = false)"


def csv(file: File) -> str:
    """A CSV file as a table of its official columns, with nothing left to guess; a value out of its range is an error.

    DuckDB rounds fractions and reads 0x1 on its way to a whole number. A log was searched for such bytes before; whole
    numbers among features are read as text and checked.
    """
    columns = file.kind.columns
    raw = {name: "VARCHAR" if _is_checked(file, name) else columns.get(name, "VARCHAR") for name in file.header}
    types = ", ".join(f"{quoted(name)}: {quoted(kind)}" for name, kind in raw.items())
    marks = "quote = '', escape = ''" if file.is_log else "quote = '\"', escape = '\"'"
    rows = (
        f"read_csv({quoted(file.path)}, columns = {{{types}}}, auto_detect = false, header = true, delim = ',', "
        f"{marks}, force_not_null = {_listed(file.needed)})"
    )
    typed = ", ".join(_whole(name, columns[name]) if _is_checked(file, name) else name for name in columns)
    return f"(SELECT * FROM (SELECT {typed} FROM {rows}) WHERE {_in_range(columns)})"


def _is_checked(file: File, name: str) -> bool:
    return not file.is_log and file.kind.columns.get(name, "") in ("INTEGER", "BIGINT")


def _whole(name: str, kind: str) -> str:
    """A column of text as whole numbers."""
    right = f"coalesce(regexp_full_match({name}, '-?[0-9]+'), true)"
    return f"(CASE WHEN {right} THEN {name} ELSE error('{name} is no whole number') END)::{kind} AS {name}"


def _in_range(columns: dict[str, str]) -> str:
    """A condition that is true or an error; a gap is in any range, NaN and infinity in none."""
    bounds = {name: range_of(name, kind) for name, kind in columns.items() if name in RANGES or kind == "DOUBLE"}
    right = " AND ".join(f"coalesce({name} BETWEEN {low} AND {high}, true)" for name, (low, high) in bounds.items())
    return f"CASE WHEN {right} THEN true ELSE error('a number is out of its range') END"


def copy(query: str, out: Path, options: str = "") -> str:
    """Write the answer of a query to a Parquet file."""
    return f"COPY ({query}) TO {quoted(out)} (FORMAT parquet{options})"


def table(files: Iterable[File]) -> str:
    """The rows of feature files, one after the other."""
    return " UNION ALL ".join(f"SELECT * FROM {csv(file)}" for file in files)


def buffers(buckets: int) -> tuple[str, ...]:
    """Settings for `scatter`: every bucket's file stays open, and all of them together buffer about 2¹⁹ rows a thread.

    Of DuckDB's own, half a million rows of each bucket, 256 buckets would not fit into memory.
    """
    rows = max(_BUFFERED // buckets, 4096)
    return f"SET partitioned_write_flush_threshold = {rows}", f"SET partitioned_write_max_open_files = {buckets + 1}"


def scatter(file: File, random: bool, buckets: int, out: Path) -> str:
    """Write the rows of a log to one folder per bucket of users."""
    bucket = f"((user_id::BIGINT * {_HASH}) & 4294967295) >> {33 - buckets.bit_length()}"
    rows = f"SELECT {', '.join(LOG)}, {random} AS random, {bucket} AS bucket FROM {csv(file)}"
    pattern = quoted(f"{part_name(file, random)}-{{i}}")
    return copy(rows, out, f", PARTITION_BY (bucket), OVERWRITE_OR_IGNORE, FILENAME_PATTERN {pattern}")


def part_name(file: File, random: bool) -> str:
    """How the names of a log's parts begin."""
    return f"{'random' if random else 'standard'}-{file.path.stem}"


def views(rows: str, users: str) -> str:
    """How often train users viewed each video, by log."""
    train = f"SELECT user_id FROM {users} WHERE split = 0"
    return (
        f"SELECT video_id, random, count(*) AS views FROM {rows} WHERE user_id IN ({train}) "
        "GROUP BY video_id, random ORDER BY video_id, random"
    )


def strangers(rows: str, users: str) -> str:
    """The first user without features."""
    return f"SELECT min(user_id) FROM {rows} WHERE user_id NOT IN (SELECT user_id FROM {users})"


def most_viewed(views: str, random: bool, count: int) -> str:
    """The videos that train users viewed most; ties by id."""
    return (
        f"SELECT video_id, sum(views) AS views FROM {views} WHERE random = {random} "
        f"GROUP BY video_id ORDER BY views DESC, video_id LIMIT {count}"
    )


def user_ids(users: str) -> str:
    """All of them, ascending."""
    return f"SELECT user_id FROM {users} ORDER BY user_id"


def with_splits(users: str) -> str:
    """User features with the split of each, from the table `splits`."""
    return f"SELECT * FROM {users} JOIN splits USING (user_id) ORDER BY user_id"


def user_column(column: str, users: str) -> str:
    """A column of the users of the table `wanted`, in its order."""
    return f"SELECT {column} FROM wanted JOIN {users} USING (user_id) ORDER BY place"


def categories(column: str, videos: str, views: str) -> str:
    """The values of a column among the videos that train users have viewed."""
    return f"SELECT DISTINCT {column} FROM {videos} WHERE video_id IN (SELECT video_id FROM {views})"


def video_features(videos: str, codes: dict[str, str], statistics: str | None, chosen: tuple[str, ...]) -> str:
    """Features of the videos of the table `wanted`, in its order; categories by the tables `codes_<name>`."""
    coded = "".join(f", coalesce({name}_codes.code, 0) AS {name}" for name in codes)
    joined = " ".join(
        f"LEFT JOIN codes_{name} AS {name}_codes ON {name}_codes.value = {column}" for name, column in codes.items()
    )
    counted = "".join(f", coalesce({name}, 0) AS {name}" for name in chosen) if statistics else ""
    more = f"LEFT JOIN {statistics} AS s ON s.video_id = wanted.video_id" if statistics else ""
    return (
        "SELECT wanted.video_id AS video_id, v.video_id IS NOT NULL AS known, coalesce(video_duration, 0) AS duration, "
        "coalesce(sign(server_height - server_width), 0) AS portrait, coalesce(video_type = 'AD', false) AS advert, "
        f"coalesce(date_diff('day', try_cast(upload_dt AS DATE), {_END}), 0) AS age{coded}{counted} "
        f"FROM wanted LEFT JOIN {videos} AS v ON v.video_id = wanted.video_id {joined} {more} ORDER BY place"
    )


def rows(table: str, columns: Iterable[str] = ("*",)) -> str:
    """Everything, or some columns of it, as it stands."""
    return f"SELECT {', '.join(columns)} FROM {table}"


def claimed_rows(path: Path) -> str:
    """The most rows that a Parquet file says it has: as a whole, or its groups together."""
    groups = f"SELECT DISTINCT row_group_id, row_group_num_rows AS n FROM parquet_metadata({quoted(path)})"
    return (
        f"SELECT greatest(max(num_rows), (SELECT coalesce(sum(n), 0) FROM ({groups}))) "
        f"FROM parquet_file_metadata({quoted(path)})"
    )


def _listed(texts: Iterable[Any]) -> str:
    return "[" + ", ".join(quoted(text) for text in texts) + "]"
