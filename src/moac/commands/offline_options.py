"""What `moac offline …` takes. Imports no JAX."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from moac.commands import mistakes
from moac.commands.options import RunPath

Codes = Annotated[tuple[int, ...], tyro.conf.arg(metavar="INT [INT ...]", help_behavior_hint="(default: none)")]


@dataclass(frozen=True)
class Score:
    """Write what a policy recommends to every user of a log, at the state after the user's last row, as CSV."""

    run: tyro.conf.Positional[RunPath]
    data: Annotated[Path | None, tyro.conf.arg(metavar="DATA", help_behavior_hint="(default: where it was)")] = None
    """The dataset that the run was trained on."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(required)")] = None
    """The CSV file: user_id, rank, video_id, probability."""
    k: int = 10
    """Videos for each user."""
    exclude_seen: bool = False
    """Leave out videos that the user has viewed."""
    trial: int = 0
    """Which trial."""
    json: bool = False
    """End with one JSON object on stdout."""


@dataclass(frozen=True)
class Recommend:
    """Show what a policy recommends to one user; the run alone is needed, not its data."""

    run: tyro.conf.Positional[RunPath]
    user: Annotated[int | None, tyro.conf.arg(metavar="ID", help_behavior_hint="(required)")] = None
    """As the log names users."""
    context: Codes = ()
    """Codes of the request; for KuaiRand tab, hour and day of the week."""
    history: Codes = ()
    """Videos viewed before, by id, oldest first."""
    k: int = 10
    """How many videos."""
    exclude_seen: bool = False
    """Leave out videos of the history."""
    trial: int = 0
    """Which trial."""
    json: bool = False
    """End with one JSON object on stdout."""


Command = Annotated[
    Annotated[Score, tyro.conf.subcommand("score")] | Annotated[Recommend, tyro.conf.subcommand("recommend")],
    tyro.conf.FlagCreatePairsOff,
]
COMMANDS = (Score, Recommend)
SYNTAX = {"score": mistakes.syntax_of(Score, "RUN", {}), "recommend": mistakes.syntax_of(Recommend, "RUN", {})}
