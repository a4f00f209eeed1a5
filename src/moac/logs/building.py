"""KuaiRand's files to a dataset: a folder of Parquet, index arrays and a manifest. Needs no JAX."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np

from moac.kuairand import lines, users, videos
from moac.logs import assembly, buckets, ingest, layout, leftovers, manifest, queries, records, splits
from moac.logs.engine import Connection, Limits, connect, limits, watch
from moac.logs.ingest import Work
from moac.logs.journal import LAST, Journal
from moac.logs.layout import Sources
from moac.logs.records import File
from moac.logs.workspace import resumable
from moac.runs.executors import Executor, Serial, ended

Progress = Callable[[str, int, int], None]
"""Called with what is done, how much of it, and how much there is."""
WINDOW = 20


@final
@dataclass(frozen=True)
class Options:
    """How a dataset is built.

    Attributes:
        actions: K, the most viewed videos, by train users.
        split_seed: of the hash that splits users.
        shares: of users in train, validation and test.
        random_log: a log of uniformly random exposure; None is the one beside the others, if there is one.
        video_statistics: add month averages to the features of videos; they know the test period.
        memory_limit: the most memory the process may use.
        threads: of DuckDB; None is one per core.
        executor: where buckets are worked on, each on one core and under the same cap of its own.
    """

    actions: int = 150
    split_seed: int = 0
    shares: tuple[float, float, float] = splits.SHARES
    random_log: Path | None = None
    video_statistics: bool = False
    memory_limit: str = "2GB"
    threads: int | None = None
    executor: Executor = Serial()  # noqa: RUF009 - it holds nothing


def build(source: str | Path, out: str | Path, options: Options | None = None, progress: Progress | None = None) -> Any:
    """Build the dataset `out` from the folder `source`; its manifest.

    The result depends on the files and on `actions`, `split_seed`, `shares` and `video_statistics` alone: neither the
    memory, the threads nor the executor change a byte of what the content hash covers. A build that was interrupted or
    killed goes on where it stopped, bucket by bucket, when the same one is started again.
    """
    options, say = options or Options(), progress or (lambda what, done, total: None)
    allowed = limits(options.memory_limit, options.threads)
    splits.check(options.split_seed, options.shares)
    if options.actions < 2:
        raise ValueError(f"`actions` must be at least 2, got {options.actions}.")
    found = layout.find(Path(source), options.random_log, options.video_statistics)
    with resumable(Path(out)) as (notes, folder):
        written = _Build(found, folder, options, allowed, say).run(notes)
        shutil.rmtree(folder / "work", ignore_errors=True)
        return written


@final
class _Build:
    """One build, step by step."""

    def __init__(self, found: Sources, folder: Path, options: Options, allowed: Limits, say: Progress) -> None:
        self.found, self.folder, self.options, self.limits, self.say = found, folder, options, allowed, say
        self.random_only = not found.standard

    def run(self, notes: Path) -> Any:
        """All steps, with notes of those that are finished; the manifest."""
        files = self._inspected()
        with self._connect("leftovers") as connection:
            sound = partial(leftovers.sound, connection, leftovers.most_rows(files))
            self.journal = Journal(notes, manifest.identity(files, self.options), sound)
        return self._built(files) if self.journal.done(LAST) is None else manifest.read(self.folder)

    def _built(self, files: list[File]) -> Any:
        """All steps after the files were looked at, those that an earlier attempt has finished left out."""
        for name in ("rows", "work/views", "work/pieces"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        logs = [file for file in files if file.is_log]
        work = Work(self.folder, ingest.num_buckets(logs))
        self._ingest(work, files)
        cleaned = self._clean(work, files)
        with self._connect("actions") as connection:
            actions = self._actions(connection, work)
        self._index(work, actions)
        sizes = assembly.measure(work, self.random_only)
        self.say("writing arrays", 0, 1)
        shutil.rmtree(self.folder / "arrays", ignore_errors=True)
        (self.folder / "arrays").mkdir()
        totals = assembly.write(work, sizes, self.folder / "arrays", self.random_only)
        with self._connect("features") as connection:
            features = self._features(connection, work, sizes.items, actions)
        content = hashlib.sha256(
            json.dumps(
                [[bucket.digest for bucket in cleaned], assembly.digest(self.folder / "arrays"), features],
                sort_keys=True,
            ).encode()
        ).hexdigest()
        known = manifest.Known(self.found, files, cleaned, features, totals, content)
        written = manifest.write(self.folder, known, self.options)
        about = self.folder / manifest.NAME, self.folder / manifest.ENCODING
        self.journal.note(LAST, True, [*about, *(self.folder / "arrays").rglob("*.npy")])
        self.say("writing arrays", 1, 1)
        return written

    def _connect(self, name: str) -> Any:
        return connect(self.limits, self.folder / "work" / f"spill-{name}")

    def _inspected(self) -> list[File]:
        """Every file looked at once."""
        found: list[File] = []
        for path, kind in self.found.files:
            self.say("checking files", len(found), len(self.found.files))
            found.append(lines.inspect(path, kind))
        self.say("checking files", len(found), len(self.found.files))
        return found

    def _ingest(self, work: Work, files: list[File]) -> None:
        """Feature files to tables, logs to buckets."""
        by_path = {file.path: file for file in files}
        logs = [by_path[path] for path in self.found.logs]
        done, total = 0, sum(file.size for file in logs)
        with self._connect("ingest") as connection:
            if self.journal.done("tables") is None:
                self._tables(connection, work, by_path)
            for file in logs:
                self.say("reading logs", done, total)
                self._scatter(connection, work, file, partial(self._read, done, file.size, total))
                done += file.size
        self.say("reading logs", done, total)

    def _tables(self, connection: Connection, work: Work, by_path: dict[Path, File]) -> None:
        """Feature files to tables."""
        written: list[Path] = []
        for paths, out in (
            ((self.found.users,), work.users),
            ((self.found.videos,), work.videos),
            (self.found.statistics, work.statistics),
        ):
            if paths:
                ingest.table(connection, [by_path[path] for path in paths], out)
                written.append(out)
        self._split(connection, work, by_path[self.found.users])
        self.journal.note("tables", True, written, _until_last)

    def _scatter(self, connection: Connection, work: Work, file: File, show: Callable[[float], None]) -> None:
        """A log to the buckets."""
        random = file.path in self.found.random
        step = f"read-{queries.part_name(file, random)}"
        if self.journal.done(step) is not None:
            return
        watch(connection, partial(ingest.scatter, connection, file, random, work), show)
        self.journal.note(step, True, work.parts(queries.part_name(file, random)), _until_clean)

    def _read(self, done: int, size: int, total: int, share: float) -> None:
        self.say("reading logs", done + int(share * size), total)

    def _split(self, connection: Connection, work: Work, file: File) -> None:
        """Write each user's split beside its features."""
        source = queries.parquet(work.users)
        ids = connection.execute(queries.user_ids(source)).fetchnumpy()["user_id"]
        twice = ids[1:][ids[1:] == ids[:-1]]
        if len(twice):
            at = records.line_of(file, "user_id", int(twice[0]), 2)
            raise ValueError(f"{file.path}, line {at}: user {twice[0]} must be there once, got it again.")
        split = splits.of_users(ids, self.options.split_seed, self.options.shares)
        connection.register("splits", {"user_id": ids, "split": split})
        whole = work.users.with_name("whole.parquet")
        connection.execute(queries.copy(queries.with_splits(source), whole))
        whole.replace(work.users)

    def _task(self, work: Work, bucket: int) -> buckets.Task:
        """A bucket is too small for several threads: they cost more than they save."""
        return buckets.Task(work, bucket, replace(self.limits, threads=1), WINDOW)

    def _clean(self, work: Work, files: list[File]) -> list[buckets.Cleaned]:
        """Every bucket without duplicates, in order."""
        tasks = [self._task(work, bucket) for bucket in range(work.buckets) if work.raw(bucket)]
        open_tasks = [task for task in tasks if self.journal.done(_clean(task.bucket)) is None]
        for done, (index, found) in enumerate(ended(self.options.executor.map(buckets.clean, open_tasks))):
            self.say("sorting users", len(tasks) - len(open_tasks) + done, len(tasks))
            self._keep(open_tasks[index], found, files)
        for path in (path for task in tasks for path in task.raw):  # of those that a killed attempt had noted
            path.unlink()
        self.say("sorting users", len(tasks), len(tasks))
        noted = (self.journal.done(_clean(bucket)) for bucket in range(work.buckets))
        return [buckets.Cleaned.of(found) for found in noted if found is not None]

    def _keep(self, task: buckets.Task, found: buckets.Cleaned, files: list[File]) -> None:
        """Note what came of a bucket, and remove what was read of it; a user without features is refused."""
        if found.stranger is not None:
            self._refuse_user(found.stranger, files)
        written = task.work.rows(task.bucket), task.work.views(task.bucket)
        self.journal.note(_clean(task.bucket), vars(found), written, lambda path: None if path == written[0] else LAST)
        for path in task.raw:
            path.unlink()

    def _refuse_user(self, user: int, files: list[File]) -> None:
        """A user without features: where it stands."""
        for file in (file for file in files if file.is_log):
            at = records.line_of(file, "user_id", user)
            if at:
                raise ValueError(f"{file.path}, line {at}: user {user} must be in {self.found.users.name}, and is not.")

    def _actions(self, connection: Connection, work: Work) -> Any:
        """The K videos that train users viewed most, the most viewed first; ties by id."""
        query = queries.most_viewed(queries.parquet(*work.all_views), self.random_only, self.options.actions)
        found = connection.execute(query).fetchnumpy()["video_id"]
        if len(found) < self.options.actions:
            raise ValueError(
                f"`actions` must be at most {len(found)}, the videos that train users viewed, "
                f"got {self.options.actions}."
            )
        return found

    def _index(self, work: Work, actions: Any) -> None:
        """The index arrays of every bucket."""
        tasks = [self._task(work, bucket) for bucket in range(work.buckets) if work.rows(bucket).exists()]
        open_tasks = [task for task in tasks if self.journal.done(f"index-{task.bucket:03d}") is None]
        found = ended(self.options.executor.map(partial(buckets.index, actions=actions), open_tasks))
        for done, (index, _) in enumerate(found, 1):
            bucket = open_tasks[index].bucket
            self.journal.note(f"index-{bucket:03d}", True, [work.piece(bucket)], _until_last)
            self.say("indexing users", len(tasks) - len(open_tasks) + done, len(tasks))

    def _features(self, connection: Connection, work: Work, items: Any, actions: Any) -> dict[str, Any]:
        """Write the tables of users and items; what was fitted, and their names."""
        arrays = self.folder / "arrays"
        ids = np.load(arrays / "user_ids.npy")
        split = splits.of_users(ids, self.options.split_seed, self.options.shares)
        user_table, of_users = users.table(connection, work.users, ids, split == 0)
        of_videos = videos.fit(connection, work)
        table, missing = videos.table(connection, work, items, of_videos)
        stored = {"users": user_table, "items": table, "item_ids": items, "split": split}
        stored |= {"action_ids": actions, "action_items": np.searchsorted(items, actions).astype(np.int32)}
        assembly.save(arrays, stored)
        return {
            "users": of_users.to_json(),
            "videos": of_videos.to_json(),
            "user_names": of_users.names,
            "video_names": videos.names(of_videos, self.options.video_statistics),
            "videos_without_features": missing,
        }


def _clean(bucket: int) -> str:
    """The step that reads what was read of a bucket."""
    return f"clean-{bucket:03d}"


def _until_clean(path: Path) -> str:
    return _clean(ingest.bucket_of(path))


def _until_last(path: Path) -> str:
    del path
    return LAST
