"""What `moac offline …` takes. Imports no JAX."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from moac.cli import mistakes
from moac.cli.config_options import ALIASES, ConfigOptions, Discounts
from moac.cli.data_options import DataPath
from moac.cli.options import RunPath
from moac.config import Config, Discounted

Codes = Annotated[tuple[int, ...], tyro.conf.arg(metavar="INT [INT ...]", help_behavior_hint="(default: none)")]


@dataclass(frozen=True)
class Train:
    """Train policies on a dataset, from close to its behaviour to far from it, and choose one on validation users."""

    data: tyro.conf.Positional[DataPath]
    config: Annotated[ConfigOptions, tyro.conf.arg(name="")]  # pyright: ignore[reportInvalidTypeForm]
    protect: Annotated[
        tuple[str, ...], tyro.conf.arg(metavar="SIGNAL=CHANGE% [...]", help_behavior_hint="(default: none)")
    ] = ()
    """Signals that must not change for the worse by more than this, such as Like=-1%; of a cost, Dislike=+1%."""
    pulls: Annotated[
        tuple[float, ...], tyro.conf.arg(metavar="FLOAT [FLOAT ...]", help_behavior_hint="(default: 1 0.3 0.1 0.03)")
    ] = ()
    """Pulls to the behaviour, a policy for each; --behaviour-pull is one alone."""
    preferences: int = 0
    """Preference vectors over the signals, drawn at random: a policy of the rule `preferred` for each, too."""
    discount: Discounts = None
    """One discount, or one per signal."""
    trials: int = 5
    """Training seeds of each policy."""
    seed: int = 0
    """Trial i depends on (seed, i) alone."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(required)")] = None
    """Run directory of the policy that is chosen; the same command continues what was interrupted."""
    json: bool = False
    """End with one JSON object on stdout."""

    def config_of(self) -> Config:
        """The configuration that the options describe."""
        options: Any = self.config
        return Config(setting=None if self.discount is None else Discounted(self.discount), **vars(options))


@dataclass(frozen=True)
class Compare:
    """Train Behavior-Clone, PDPG, TSCAC and MOAC with its ablations on a dataset; a table with intervals and trust."""

    data: tyro.conf.Positional[DataPath]
    trials: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: 6; quick 2)")] = None
    """Training seeds of each setting of each method."""
    iterations: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: 1000; quick 50)")] = (
        None
    )
    """Steps of each policy."""
    protocol: Literal["sound", "tscac-compat"] = "sound"
    """`tscac-compat` is the published protocol with its faults, each named; only iterations and seed may be set."""
    test: bool = False
    """Read test users, once, for the settings that validation users chose; it is noted."""
    quick: bool = False
    """A reduced run, for a first look."""
    seed: int = 0
    """Of all methods alike."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(required)")] = None
    """Folder of the comparison; the same command continues what was interrupted."""
    json: bool = False
    """End with one JSON object on stdout."""


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
    Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Compare, tyro.conf.subcommand("compare")]
    | Annotated[Score, tyro.conf.subcommand("score")]
    | Annotated[Recommend, tyro.conf.subcommand("recommend")],
    tyro.conf.FlagCreatePairsOff,
]
COMMANDS = (Train, Compare, Score, Recommend)
SYNTAX = {
    "train": mistakes.syntax_of(Train, "DATA", ALIASES),
    "compare": mistakes.syntax_of(Compare, "DATA", {}),
    "score": mistakes.syntax_of(Score, "RUN", {}),
    "recommend": mistakes.syntax_of(Recommend, "RUN", {}),
}
