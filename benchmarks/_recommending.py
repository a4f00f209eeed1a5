"""What recommendations cost: to one user after the other, and to many at once."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
from _timing import measure

from moac.config import Config
from moac.logs import About, LoggedDataset, Rows
from moac.offline import recommend
from moac.training.result import prepare
from moac.training.trained import TrainedPolicy

USERS, VIDEOS, HIDDEN, ASKED = 10_000, 150, 128, 1_000
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
        many = measure(lambda: recommend.write_csv(out, recommend.all_users(trained, dataset)), repeats=3)
    print(f"  recommend 10 of {VIDEOS} videos, {dataset.num_features} features, hidden {HIDDEN}:")
    print(f"    one user:              {one.best / ASKED * 1e3:.2f} ms, {one.best_cpu / ASKED * 1e3:.2f} CPU ms")
    print(f"    {USERS:,} users to CSV:   {many.best:.2f} s, {many.best_cpu:.2f} CPU s")


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
    return LoggedDataset.from_numpy(rows, About(users=rng.random((USERS, 133)), actions=rng.random((VIDEOS, 12))))


def _policy(dataset: LoggedDataset) -> TrainedPolicy:
    policy = prepare(dataset, Config(hidden=(HIDDEN,)), 1, 0).parts.policy
    rng, widths = np.random.default_rng(2), (dataset.num_features, HIDDEN, VIDEOS)
    theta = tuple(rng.normal(0, n**-0.5, (1, n + 1, m)).astype(np.float32) for n, m in pairwise(widths))
    return TrainedPolicy(policy, theta, dataset.spec.observations)
