"""Whether a task itself is learned, and not only its costs avoided."""

from __future__ import annotations

from typing import Any

from moac import statistics
from moac.report.page import Verdict, verdict_of

Finding = tuple[str, Verdict]
"""What was measured, and the verdict."""


def sells_more_ore(trained: Any, untrained: Any) -> Finding:
    """Minecart, by returns [K, M] in the same episodes: whether more of both ores is sold than without training."""
    ore = [statistics.mean((trained - untrained)[:, i]) for i in (0, 1)]
    measured = f"change of the ore sold per episode: {ore[0]} and {ore[1]}"
    return measured, verdict_of([change.is_positive for change in ore])


def reaches_the_flag(ended: Any) -> Finding:
    """Mountain car, by the share of episodes [K] that end before the time limit."""
    share = statistics.mean(ended).value
    measured = f"share of episodes that reach the flag: {share:.3g}"
    if share <= 0.01:
        return f"{measured}; it learns to save fuel by standing still", "does not hold"
    return measured, "holds" if share > 0.5 else "holds in part"


def lands(outcome: Any) -> Finding:
    """Lunar lander, by the first return [K] of whole episodes: 100 for a landing, −100 for a crash."""
    mean = statistics.mean(outcome)
    return f"mean of 100 for a landing and −100 for a crash: {mean}", "holds" if mean.is_positive else "does not hold"
