"""`moac offline`: policies that learn from a log, and what they recommend."""

from __future__ import annotations

from typing import Any

from moac.commands.offline_options import Score


def run(command: Any) -> int:
    """Do it, and say what came out."""
    from moac.commands import recommend

    return recommend.score(command) if isinstance(command, Score) else recommend.show(command)
