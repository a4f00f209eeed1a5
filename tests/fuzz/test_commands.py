"""Command lines with hostile values among valid ones: each ends in time, well or with one line.

The commands and their options are those of the real dataclasses. A failure is told as the line that repeats it;
MOAC_FUZZ_SEED draws other lines.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess

import pytest

from tests.fuzz import commands
from tests.helpers.limits import THOROUGH

SEED = os.environ.get("MOAC_FUZZ_SEED", "0")
FEW, EACH = 300, 50
"""Lines of the fast suite, and of one of its tests."""
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


def test_every_command_is_drawn():
    assert set(commands.START) == set(commands.OPTIONS)
    lines = [commands.drawn(random.Random(f"{SEED} {number}")) for number in range(3000)]
    typed = [" ".join(words) for words in lines]
    for name in commands.OPTIONS:
        assert any(line.startswith(name) for line in typed), name


def test_a_failure_is_told_as_a_line_of_a_shell():
    words = ["docs", "a b", "it's", "\x01\n", "\udcff", "☃"]
    line = commands.repeated(words).replace("python -m tests.fuzz.commands", "printf '%s\\0'")
    told = subprocess.run(["bash", "-c", line], capture_output=True, check=True).stdout
    assert [os.fsdecode(word) for word in told.split(b"\0")[:-1]] == words


@pytest.mark.parametrize("piece", range(FEW // EACH))
def test_a_few_lines(piece, world, tmp_path):
    tried(range(piece * EACH, (piece + 1) * EACH), world, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("piece", range(PIECES))
def test_many_lines(piece, world, tmp_path):
    each, first = MANY // PIECES, FEW
    tried(range(first + piece * each, first + (piece + 1) * each), world, tmp_path)
