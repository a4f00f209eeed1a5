"""What the commands take: tyro turns these dataclasses into options and help. Imports no JAX."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from moac.choices import CHOICES
from moac.cli import mistakes
from moac.cli.config_options import ALIASES, ConfigOptions, Discounts, Stepping, setting_of
from moac.cli.explore_options import Explore
from moac.cli.studies import installed_names
from moac.cli.sweep_options import Sweep
from moac.config import Config
from moac.runs import CHECKPOINT_SECONDS

Environment = Annotated[str, tyro.conf.arg(metavar="ENV", help="A MO-Gymnasium id, such as resource-gathering-v0.")]
Seconds = Annotated[float, tyro.conf.arg(metavar="SECONDS")]
ExperimentName = Annotated[str, tyro.conf.arg(metavar="NAME", help=f"{', '.join(installed_names())}, or all.")]
RunPaths = Annotated[tuple[Path, ...], tyro.conf.arg(metavar="RUN [RUN ...]", help="Run directories.")]
Sinks = Annotated[
    tyro.conf.UseAppendAction[tuple[str, ...]],
    tyro.conf.arg(metavar="{tensorboard,wandb}", help_behavior_hint="(default: none; may be repeated)"),
]
RunPath = Annotated[Path, tyro.conf.arg(metavar="RUN", help="A run directory.")]


@dataclass(frozen=True)
class Train:
    """Train MOAC on an environment and save the run."""

    env: tyro.conf.Positional[Environment]
    config: Annotated[ConfigOptions, tyro.conf.arg(name="")]  # pyright: ignore[reportInvalidTypeForm]
    stepping: Annotated[Stepping, tyro.conf.arg(name="")]
    setting: Literal["discounted", "average"] = "discounted"
    """Discounted return, or reward per step."""
    discount: Discounts = None
    """One discount, or one per objective."""
    trials: int = 1
    """Independent runs, trained together."""
    seed: int = 0
    """Trial i depends on (seed, i) alone."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: a new one under runs/)")] = (
        None
    )
    """Run directory; it must not exist yet."""
    checkpoint_every: Seconds = CHECKPOINT_SECONDS
    """Seconds between checkpoints; 0 is as often as possible."""
    sink: Sinks = ()
    """Where the numbers go while it trains, besides metrics.jsonl."""
    json: bool = False
    """End with one JSON object on stdout."""

    def config_of(self) -> Config:
        """The configuration that the options describe."""
        options: Any = self.config
        return Config(setting=setting_of(self.setting, self.discount), **vars(options))


@dataclass(frozen=True)
class Resume:
    """Continue a run that was stopped; it ends as if it had not been."""

    run: tyro.conf.Positional[RunPath]
    checkpoint_every: Seconds = CHECKPOINT_SECONDS
    """Seconds between checkpoints; 0 is as often as possible."""
    sink: Sinks = ()
    """Where the numbers go while it trains, besides metrics.jsonl."""
    trust: bool = False
    """Import the module that the run names, if its environment is not MO-Gymnasium's own."""
    json: bool = False
    """End with one JSON object on stdout."""


@dataclass(frozen=True)
class Front:
    """Compute the exact Pareto front of an environment's model."""

    env: tyro.conf.Positional[Environment]
    discount: Annotated[tuple[float, ...], tyro.conf.arg(metavar="FLOAT [FLOAT ...]")] = (0.9,)
    """One discount, or one per objective."""
    memory: bool = False
    """Let policies remember what they have seen."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: no figure)")] = None
    """Folder for the figure."""
    json: bool = False
    """End with one JSON object on stdout."""


@dataclass(frozen=True)
class Theory:
    """Check the theorems' assumptions, compute their constants, and plan the samples that guarantee ε."""

    env: tyro.conf.Positional[Environment]
    epsilon: Annotated[float, tyro.conf.arg(metavar="FLOAT")] = 0.01
    """Stationarity gap to be guaranteed."""
    setting: Annotated[
        Literal["discounted", "average"] | None, tyro.conf.arg(help_behavior_hint="(default: discounted)")
    ] = None
    """Discounted return, or reward per step."""
    discount: Discounts = None
    """One discount, or one per objective."""
    features: Annotated[
        str | None,
        tyro.conf.arg(metavar=f"{{{','.join(CHOICES['features'])}}}", help_behavior_hint="(default: one-hot)"),
    ] = None
    """The critic's features."""
    momentum: Annotated[str | None, tyro.conf.arg(metavar="STR", help_behavior_hint="(default: 1/t)")] = None
    """η_t, a schedule by name."""
    run: Annotated[Path | None, tyro.conf.arg(metavar="RUN", help_behavior_hint="(default: none)")] = None
    """A finished run of ENV: its settings, the worst constants along it, and what it needed in practice."""
    json: bool = False
    """End with one JSON object on stdout."""

    def config_of(self) -> Config:
        """The configuration that the options describe; with a run they must be left out."""
        named = {"discount": self.discount, "features": self.features, "momentum": self.momentum}
        given = {name: value for name, value in ({"setting": self.setting} | named).items() if value is not None}
        if self.run is not None and given:
            raise ValueError(f"`{next(iter(given))}` must be left out with --run: the run has its own.")
        chosen: Any = {name: given[name] for name in ("features", "momentum") if name in given}
        return Config(setting=setting_of(self.setting or "discounted", self.discount), **chosen)


@dataclass(frozen=True)
class Report:
    """Write the report of a run or an experiment again, from its folder alone."""

    run: tyro.conf.Positional[RunPath]
    json: bool = False
    """End with one JSON object on stdout."""


@dataclass(frozen=True)
class Evaluate:
    """Say what trained policies are worth: episodes of the real environment, or, of a run on a log, an estimate."""

    runs: tyro.conf.Positional[RunPaths]
    episodes: int = 200
    """Episodes per trial, each with a seed of its own."""
    trial: Annotated[
        int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: all; up to 16 of them)")
    ] = None
    """Which trial of each run."""
    reference: Annotated[
        tuple[float, ...] | None,
        tyro.conf.arg(metavar="FLOAT [FLOAT ...]", help_behavior_hint="(default: below all points)"),
    ] = None
    """Reference point of the hypervolume, one number per objective."""
    data: Annotated[Path | None, tyro.conf.arg(metavar="DATA", help_behavior_hint="(default: where it was)")] = None
    """Folder of the data of a run on a log."""
    split: Literal["validation", "test"] = "validation"
    """Whose users judge a run on a log; every look at test users is noted."""
    cap: float = 10.0
    """Cap of the importance weights on a log; inf is none."""
    trust: bool = False
    """Import the module that the run names, if its environment is not MO-Gymnasium's own."""
    json: bool = False
    """End with one JSON object on stdout."""


@dataclass(frozen=True)
class Watch:
    """Record episodes of a trained policy as an animated GIF."""

    run: tyro.conf.Positional[RunPath]
    episodes: int = 3
    """How many, one after the other."""
    trial: int = 0
    """Which trial."""
    seed: int = 0
    """Of the first episode."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: in RUN/figures)")] = None
    """The GIF."""
    trust: bool = False
    """Import the module that the run names, if its environment is not MO-Gymnasium's own."""
    json: bool = False
    """End with one JSON object on stdout."""


@dataclass(frozen=True)
class Reproduce:
    """Run an experiment of the paper and write its report; a second call continues what was interrupted."""

    name: tyro.conf.Positional[ExperimentName]
    quick: bool = False
    """A reduced run, for a first look."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: runs/NAME)")] = None
    """Folder of the experiment."""
    json: bool = False
    """End with one JSON object on stdout."""


@dataclass(frozen=True)
class Data:
    """Logged data, ready to learn from: moac data kuairand download | build | describe | generate."""

    rest: tyro.conf.Positional[tuple[str, ...]] = ()


@dataclass(frozen=True)
class Offline:
    """Policies that learn from a log: moac offline score | recommend."""

    rest: tyro.conf.Positional[tuple[str, ...]] = ()


Command = Annotated[
    Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Resume, tyro.conf.subcommand("resume")]
    | Annotated[Explore, tyro.conf.subcommand("explore")]
    | Annotated[Front, tyro.conf.subcommand("front")]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
    | Annotated[Watch, tyro.conf.subcommand("watch")]
    | Annotated[Theory, tyro.conf.subcommand("theory")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[Sweep, tyro.conf.subcommand("sweep")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Data, tyro.conf.subcommand("data")]
    | Annotated[Offline, tyro.conf.subcommand("offline")],
    tyro.conf.FlagCreatePairsOff,
]


SYNTAX = {
    "train": mistakes.syntax_of(Train, "ENV", ALIASES),
    "resume": mistakes.syntax_of(Resume, "RUN", ALIASES),
    "explore": mistakes.syntax_of(Explore, "ENV", ALIASES),
    "front": mistakes.syntax_of(Front, "ENV", ALIASES),
    "evaluate": mistakes.syntax_of(Evaluate, "RUN", ALIASES, several=True),
    "watch": mistakes.syntax_of(Watch, "RUN", ALIASES),
    "theory": mistakes.syntax_of(Theory, "ENV", ALIASES),
    "reproduce": mistakes.syntax_of(Reproduce, "NAME", ALIASES),
    "sweep": mistakes.syntax_of(Sweep, "SPEC", ALIASES),
    "report": mistakes.syntax_of(Report, "RUN", ALIASES),
    "data": mistakes.Syntax(None, {}),
    "offline": mistakes.Syntax(None, {}),
}
"""What each command takes, for the one sentence about a mistake."""
