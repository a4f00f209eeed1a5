"""Recommendations to all users as a CSV file, written as they are computed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from moac import files

HEADER = "user_id,rank,video_id,probability\n"


def write_csv(path: Path, blocks: Iterable[Any]) -> tuple[int, int]:
    """Write blocks of `moac.offline.recommend.all_users` wholly or not at all; how many users, and how many lines.

    A line for each recommendation; rank 1 is the most probable. Nothing but the block at hand is in memory.
    """
    users = lines = 0
    with files.replacing(path) as file:
        file.write(HEADER.encode())
        for block in blocks:
            file.write("".join(_lines(block)).encode())
            users, lines = users + len(block.user_ids), lines + int(block.counts.sum())
    return users, lines


def _lines(block: Any) -> Iterator[str]:
    parts = (block.user_ids, block.counts, block.ids, block.probabilities)
    for user, count, ids, probabilities in zip(*(part.tolist() for part in parts), strict=True):
        for place in range(count):
            yield f"{user},{place + 1},{ids[place]},{probabilities[place]:.9g}\n"
