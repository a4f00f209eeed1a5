"""Command lines with hostile values among valid ones: each ends in time, well or with one line.

The commands and their options are those of the real dataclasses. A failure is told as the line that repeats it;
MOAC_FUZZ_SEED draws other lines.
"""

from __future__ import annotations

import os
import random
import shutil

import pytest

from tests.fuzz import commands
from tests.helpers.limits import THOROUGH

SEED = os.environ.get("MOAC_FUZZ_SEED", "0")
MANY = 20_000 if THOROUGH else 5_000
"""Lines of the slow suite."""
PIECES = 20
"""In which they are tried, each a test."""


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return commands.world(tmp_path_factory.mktemp("commands"))


def tried(numbers, world, tmp_path):
    """Run the commands of these numbers, each in a copy of the world."""
    failures, worked = [], 0
    for number in numbers:
        words = commands.drawn(random.Random(f"{SEED} {number}"))
        place = tmp_path / "world"
        commands.copied(world, place)
        ending = commands.ended(words, place)
        worked += ending.code == 0
        if ending.wrong:
            failures.append(f"{commands.repeated(words)}\n    {ending.wrong}")
        shutil.rmtree(place)
    assert not failures, "\n".join([f"{len(failures)} of {len(numbers)}:", *failures])
    assert len(numbers) // 5 < worked < len(numbers)  # else too few get far, or nothing is refused


def test_every_command_is_drawn_with_words_that_work():
    assert set(commands.START) == set(commands.OPTIONS)
    words = [commands.drawn(random.Random(f"{SEED} {number}")) for number in range(300)]
    assert {name for name in commands.OPTIONS if any(" ".join(line).startswith(name) for line in words)} == set(
        commands.OPTIONS
    )


def test_a_few_lines(world, tmp_path):
    tried(range(300), world, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("piece", range(PIECES))
def test_many_lines(piece, world, tmp_path):
    each = MANY // PIECES
    tried(range(300 + piece * each, 300 + (piece + 1) * each), world, tmp_path)
