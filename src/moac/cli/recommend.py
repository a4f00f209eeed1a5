"""`moac offline score` and `moac offline recommend`: what a trained policy recommends to users of its log."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

from moac import files
from moac.cli.offline_options import Recommend, Score
from moac.cli.stages import Stages
from moac.offline import recommend
from moac.runs import log_files, scores
from moac.runs.directory import load


def score(command: Score) -> int:
    """Write the CSV file, and say how many users are in it."""
    out = command.out
    if out is None or out.is_dir():
        raise ValueError("`--out` must be given, with a file." if out is None else f"`out` must be a file, got {out}.")
    files.check_folder("out", out.parent)
    began = time.monotonic()
    dataset = log_files.dataset_of(command.run, command.data)
    blocks = recommend.all_users(
        load(command.run, command.trial), dataset, command.k, exclude_seen=command.exclude_seen
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    with Stages() as stages:
        users, lines = scores.write_csv(out, _shown(blocks, stages, len(recommend.last_rows(dataset))))
    absent = dataset.num_users - users
    summary = {"run": str(command.run), "out": str(out), "users": users, "users_without_rows": absent, "lines": lines}
    if command.json:
        sys.stdout.write(json.dumps(summary | {"k": command.k, "seconds": time.monotonic() - began}) + "\n")
    else:
        sys.stdout.write(f"{lines:,} recommendations to {users:,} users ({absent:,} more have no rows): {out}\n")
    return 0


def _shown(blocks: Iterable[Any], stages: Stages, total: int) -> Iterator[Any]:
    done = 0
    for block in blocks:
        done += len(block.user_ids)
        stages.show("scoring", done, total)
        yield block


def show(command: Recommend) -> int:
    """Print the recommendation to one user."""
    if command.user is None:
        raise ValueError("`--user` must be given, as the log names users.")
    trained, asked = load(command.run, command.trial), (command.user, command.context, command.history)
    found = trained.recommend(*asked, command.k, exclude_seen=command.exclude_seen)
    for note in found.notes:
        sys.stderr.write(f"note: {note}\n")
    if command.json:
        about = {"run": str(command.run), "user": command.user, "notes": list(found.notes)}
        sys.stdout.write(json.dumps(about | {"ids": found.ids, "probabilities": found.probabilities}) + "\n")
        return 0
    for rank, (name, p) in enumerate(found, start=1):
        sys.stdout.write(f"{rank:4d}  {name}  {p:.4g}\n")
    return 0
