"""Whether a task itself is learned, and not only its costs avoided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from moac import statistics
from moac_studies import compare
from moac_studies.compare import Part

Finding = tuple[str, Sequence[Part]]
"""What was measured, and what it decides."""
OFTEN, SOMETIMES = 0.5, 0.01
"""Shares of episodes: a flag that is reached more often than the first is reached, than the second, in part."""


def sells_more_ore(trained: Any, untrained: Any) -> Finding:
    """Minecart, by returns [K, M] in the same episodes: whether more of both ores is sold than without training."""
    ores = trained[:, :2], untrained[:, :2]
    changes = [compare.paired(after, before) for after, before in zip(ores[0].T, ores[1].T, strict=True)]
    return f"change of the ore sold per episode: {changes[0]} and {changes[1]}.", compare.dominates(*ores)


def reaches_the_flag(ended: Any) -> Finding:
    """Mountain car, by the share of episodes [K] that end before the time limit."""
    share = statistics.mean(ended)
    parts = [compare.above(share, bound) for bound in (SOMETIMES, OFTEN)]
    never = "; it learns to save fuel by standing still" if parts[0].verdict == "does not hold" else ""
    return f"share of episodes that reach the flag: {share}{never}.", parts


def lands(outcome: Any) -> Finding:
    """Lunar lander, by the first return [K] of whole episodes: 100 for a landing, −100 for a crash."""
    mean = statistics.mean(outcome)
    return f"mean of 100 for a landing and −100 for a crash: {mean}.", [compare.above(mean)]
