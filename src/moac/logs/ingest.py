"""CSV to typed tables: features in one Parquet file each, logs in one pass into buckets of users."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

from moac.logs import queries, records
from moac.logs.engine import Connection, Unreadable
from moac.logs.records import File

_BYTES_PER_BUCKET = 1 << 26
_MOST_BUCKETS = 256


@final
@dataclass(frozen=True)
class Work:
    """The folder in which a dataset is built, and how many buckets it has."""

    folder: Path
    buckets: int

    @property
    def scratch(self) -> Path:
        """What the dataset does not keep."""
        return self.folder / "work"

    @property
    def users(self) -> Path:
        """User features, with the split of each."""
        return self.scratch / "users.parquet"

    @property
    def videos(self) -> Path:
        """Basic video features."""
        return self.scratch / "videos.parquet"

    @property
    def statistics(self) -> Path:
        """Video statistics, where they are wanted."""
        return self.scratch / "statistics.parquet"

    @property
    def all_raw(self) -> Path:
        """Rows as they were read, one folder per bucket."""
        return self.scratch / "raw"

    def raw(self, bucket: int) -> list[Path]:
        """Rows of a bucket as they were read."""
        return sorted((self.all_raw / f"bucket={bucket}").glob("*.parquet"))

    def parts(self, name: str) -> list[Path]:
        """Rows of a log as they were read, in all buckets; `name` is how the names of its parts begin."""
        return sorted(self.all_raw.glob(f"*/{name}-*"))

    def rows(self, bucket: int) -> Path:
        """Rows of a bucket without duplicates, in order."""
        return self.folder / "rows" / f"bucket-{bucket:03d}.parquet"

    def views(self, bucket: int) -> Path:
        """How often train users of a bucket viewed each video."""
        return self.scratch / "views" / f"bucket-{bucket:03d}.parquet"

    @property
    def all_views(self) -> list[Path]:
        """Of every bucket that has rows."""
        return [path for path in map(self.views, range(self.buckets)) if path.exists()]

    def piece(self, bucket: int) -> Path:
        """Index arrays of a bucket."""
        return self.scratch / "pieces" / f"bucket-{bucket:03d}.npz"


def bucket_of(raw: Path) -> int:
    """The bucket of rows as they were read."""
    return int(raw.parent.name.partition("=")[2])


def num_buckets(logs: list[File]) -> int:
    """A power of two, by the size of the logs alone, so that the result depends on neither memory nor threads."""
    wanted = sum(file.size for file in logs) // _BYTES_PER_BUCKET + 1
    return min(1 << (wanted - 1).bit_length(), _MOST_BUCKETS)


def table(connection: Connection, files: list[File], out: Path) -> None:
    """Feature files to one Parquet file."""
    _execute(connection, queries.copy(queries.table(files), out), files)


def scatter(connection: Connection, file: File, random: bool, work: Work) -> None:
    """The rows of a log to the buckets of their users; each of its lines that is not empty must be there."""
    for setting in queries.buffers(work.buckets):
        connection.execute(setting)
    written = _execute(connection, queries.scatter(file, random, work.buckets, work.all_raw), [file])
    if written != file.rows and written != (rows := sum(1 for _ in records.read(file))):
        raise ValueError(f"{file.path} cannot be read: it has {rows} rows, and only {written} of them were found.")


def _execute(connection: Connection, query: str, files: list[File]) -> int:
    """Run; the number of rows written. Where a file cannot be read, the error names its line."""
    try:
        (written,) = connection.execute(query).fetchone() or (0,)
        return int(written)
    except Unreadable as error:
        for file in files:
            records.complain(file, error if len(files) == 1 else None)
        raise ValueError(f"{files[0].path} cannot be read: {str(error).splitlines()[0]}.") from None
