"""KuaiRand's files for tests: real rows where they are, generated ones, and a plain reading of both."""

import csv
import os
import shutil
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from moac import kuairand, logs
from moac.kuairand import generate
from moac.kuairand.schema import LOG, SIGNALS
from moac.logs import building
from moac.logs.splits import split_users

_ROOT = Path(__file__).parents[2]
_REAL = Path(os.environ.get("MOAC_KUAIRAND_DIR", _ROOT.parent / "shared" / "data" / "kuairand"))
real_rows = pytest.mark.skipif(not (_REAL / "KuaiRand-Pure").is_dir(), reason="no rows of KuaiRand here")
REAL_PURE = _REAL / "KuaiRand-Pure"
REAL_RANDOM = _REAL / "KuaiRand-1K" / "data" / "log_random_4_22_to_5_08_1k.csv"
COLUMNS = list(LOG)


def generated(folder, rows=3000, variant="pure", **options):
    """A small folder in the official layout."""
    options = {"num_users": 300, "num_videos": 250, "random_rows": 300} | options
    return generate.write(generate.Parameters(rows, variant, **options), Path(folder))


def build(source, out, executor=None, progress=None, **options):
    """A dataset from such a folder; its manifest."""
    files = kuairand.find(source, options.pop("random_log", None))
    return building.build(files, out, logs.Options(**options), executor=executor, progress=progress)


def changed(folder, copy, change):
    """A copy of a folder, each CSV's rows, as dicts, through `change(name, rows)`."""
    shutil.copytree(folder, copy)
    for path in (copy / "data").glob("*.csv"):
        with path.open(newline="") as file:
            reader = csv.DictReader(file)
            rows, names = list(reader), reader.fieldnames
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, names, lineterminator="\n")
            writer.writeheader()
            writer.writerows(change(path.name, rows))
    return copy


@dataclass
class Plain:
    """What a plain reading of the logs finds."""

    read: int
    views: dict  # user -> rows without duplicates, in order; each a dict with `random`
    top: list

    def windows(self, user, video_rows_before):
        return [row["video_id"] for row in self.views[user][:video_rows_before]][-20:][::-1]


def plain(paths, actions, seed=0, shares=(0.8, 0.1, 0.1)):
    """Read, drop duplicates, order, split, count: with sets, lists and dicts."""
    rows, read = set(), 0
    for path in paths:
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                read += 1
                rows.add((*(int(row[name]) for name in COLUMNS), "random" in path.name))
    first = [COLUMNS.index(name) for name in ("user_id", "time_ms", "video_id")]
    views = defaultdict(list)
    for row in sorted(rows, key=lambda row: (*(row[k] for k in first), row)):
        views[row[0]].append(dict(zip([*COLUMNS, "random"], row, strict=True)))
    users = sorted(views)
    train = {user for user, split in zip(users, split_users(np.array(users), seed, shares), strict=True) if split == 0}
    seen = Counter(row["video_id"] for user in train for row in views[user] if not row["random"])
    top = [video for video, _ in sorted(seen.items(), key=lambda item: (-item[1], item[0]))[:actions]]
    return Plain(read, dict(views), top)


def signals(row):
    """The nine of a row, Dislike as a cost, WatchTime in tens of seconds, Completion as a share of the duration."""
    values = [row[signal.column] for signal in SIGNALS]
    completion = min(1, row["play_time_ms"] / max(row["duration_ms"], 1))
    return [*values[:5], -values[5], values[6] / 10_000, completion, row["long_view"]]
