"""What recommendations cost: to one user after the other, and to many at once."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from _timing import measure

from moac.config import Config
from moac.logs import About, LoggedDataset, Rows, requests
from moac.offline import recommend
from moac.training.result import prepare
from moac.training.trained import TrainedPolicy

USERS, VIDEOS, HIDDEN, ASKED, REQUESTS = 10_000, 150, 128, 1_000, 50_000
CONTEXT = (15, 24, 7)


def report() -> None:
    """States as large as KuaiRand's, a network with weights by chance, the ten best videos."""
    dataset, rng = _log(), np.random.default_rng(0)
    trained = _policy(dataset)
    asked = [(user, rng.integers(CONTEXT), rng.integers(VIDEOS, size=20)) for user in range(ASKED)]
    trained.recommend(*asked[0])
    one = measure(lambda: [trained.recommend(*request) for request in asked], repeats=3)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "scores.csv"
        many = measure(lambda: recommend.write(out, recommend.all_users(trained, dataset)), repeats=3)
        asking = _requests(Path(folder) / "requests.csv", rng)
        catalogue = trained.catalogue

        def score() -> None:
            read = requests.read(asking, catalogue, lambda: dataset)
            recommend.write(Path(folder) / "scores.parquet", recommend.answered(trained, read, 20))

        file = measure(score, repeats=3)
    print(f"  recommend 10 of {VIDEOS} videos, {dataset.num_features} features, hidden {HIDDEN}:")
    print(f"    one user:              {one.best / ASKED * 1e3:.2f} ms, {one.best_cpu / ASKED * 1e3:.2f} CPU ms")
    print(f"    {USERS:,} users to CSV:   {many.best:.2f} s, {many.best_cpu:.2f} CPU s")
    rate = f"{REQUESTS / file.best:,.0f} a second, {REQUESTS / file.best_cpu:,.0f} a CPU second"
    print(f"    {REQUESTS:,} requests with histories, CSV to Parquet, 20 each: {rate}")


def _requests(path: Path, rng: np.random.Generator) -> Path:
    """A user, codes of the context and twenty items in each line."""
    history = rng.integers(VIDEOS, size=(REQUESTS, 20)).astype(str)
    lines = (f"{k % USERS},{k % 15},{k % 24},{k % 7},{'|'.join(row)}\n" for k, row in enumerate(history))
    path.write_text("user_id,tab,hour,day,history\n" + "".join(lines))
    return path


def _log() -> LoggedDataset:
    """Ten rows of each user; features as many as KuaiRand's."""
    rng, count = np.random.default_rng(1), 10 * USERS
    rows = Rows(
        np.repeat(np.arange(USERS), 10),
        rng.integers(VIDEOS, size=count),
        rng.random((count, 7)),
        context=rng.integers(CONTEXT, size=(count, 3)),
        propensity=np.full(count, 1 / VIDEOS),
    )
    about = About(users=rng.random((USERS, 133)), actions=rng.random((VIDEOS, 12)))
    return replace(LoggedDataset.from_numpy(rows, about), context_names=("tab", "hour", "day"))


def _policy(dataset: LoggedDataset) -> TrainedPolicy:
    policy = prepare(dataset, Config(hidden=(HIDDEN,)), 1, 0).parts.policy
    rng, widths = np.random.default_rng(2), (dataset.num_features, HIDDEN, VIDEOS)
    theta = tuple(rng.normal(0, n**-0.5, (1, n + 1, m)).astype(np.float32) for n, m in pairwise(widths))
    return TrainedPolicy(policy, theta, dataset.spec.observations)
