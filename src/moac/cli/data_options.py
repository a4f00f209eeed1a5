"""What `moac data kuairand …` takes. Imports no JAX."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from moac.cli import mistakes
from moac.cli.sweep_options import Address, ExecutorName, Workers

GROUP = "kuairand"
OutFolder = Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(required)")]
Variant = Annotated[str, tyro.conf.arg(metavar="VARIANT", help="pure (47 MB), 1k (1.1 GB) or 27k (9.9 GB).")]
Source = Annotated[Path, tyro.conf.arg(metavar="SRC", help="A folder with KuaiRand's files, by their official names.")]
DataPath = Annotated[Path, tyro.conf.arg(metavar="DATA", help="A dataset that build made.")]
Whole = Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: one per core)")]
RandomRows = Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: a twentieth of rows)")]


@dataclass(frozen=True)
class Download:
    """Fetch KuaiRand from Zenodo, check and unpack it; a second call continues where the first stopped."""

    variant: tyro.conf.Positional[Variant]
    out: OutFolder = None
    """Folder to unpack into."""
    json: bool = False
    """End with one JSON object on stdout."""


@dataclass(frozen=True)
class Build:
    """Turn KuaiRand's files into a dataset: split by users, ordered, indexed, with a manifest."""

    source: tyro.conf.Positional[Source]
    out: OutFolder = None
    """The dataset's folder; it must not exist yet."""
    actions: int = 150
    """K, the videos that train users viewed most."""
    split_seed: int = 0
    """Of the hash that splits users."""
    shares: Annotated[tuple[float, float, float], tyro.conf.arg(metavar="FLOAT FLOAT FLOAT")] = (0.8, 0.1, 0.1)
    """Of users in train, validation and test."""
    random_log: Annotated[
        Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: the one in SRC, if any)")
    ] = None
    """A log of uniformly random exposure."""
    video_statistics: bool = False
    """Add month averages to the features of videos. They know the test period."""
    memory_limit: Annotated[str, tyro.conf.arg(metavar="SIZE")] = "2GB"
    """The most memory to use, in each process; what does not fit is spilled beside the dataset."""
    threads: Whole = None
    """Threads of DuckDB."""
    executor: ExecutorName = "serial"
    """Where buckets of users are worked on: here, in processes of this machine, or on Ray."""
    workers: Workers = None
    """Buckets at a time, one core each."""
    address: Address = None
    """Of a running Ray cluster, or auto."""
    json: bool = False
    """End with one JSON object on stdout."""


@dataclass(frozen=True)
class Describe:
    """Show what a dataset holds: signals, splits, rows per user, days; with a figure."""

    data: tyro.conf.Positional[DataPath]
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: DATA/figures)")] = None
    """Folder for the figure."""
    json: bool = False
    """End with one JSON object on stdout."""


@dataclass(frozen=True)
class Generate:
    """Write rows in KuaiRand's layout from a seeded model of users whose true policy values are known."""

    rows: int = 100_000
    """Of the standard logs."""
    out: OutFolder = None
    """Folder to write the variant's folder into."""
    variant: Annotated[str, tyro.conf.arg(metavar="{pure,1k,27k}")] = "pure"
    """Whose files."""
    seed: int = 0
    """Of the users and of everything they do."""
    random_rows: RandomRows = None
    """Of the log of random exposure."""
    json: bool = False
    """End with one JSON object on stdout."""


Command = Annotated[
    Annotated[Download, tyro.conf.subcommand("download")]
    | Annotated[Build, tyro.conf.subcommand("build")]
    | Annotated[Describe, tyro.conf.subcommand("describe")]
    | Annotated[Generate, tyro.conf.subcommand("generate")],
    tyro.conf.FlagCreatePairsOff,
]
COMMANDS = (Download, Build, Describe, Generate)
SYNTAX = {
    "download": mistakes.syntax_of(Download, "VARIANT", {}),
    "build": mistakes.syntax_of(Build, "SRC", {}),
    "describe": mistakes.syntax_of(Describe, "DATA", {}),
    "generate": mistakes.syntax_of(Generate, None, {}),
}


def check_group(arguments: list[str]) -> None:
    """Refuse what is not `kuairand`; `moac data --help` is that of the only group there is."""
    if arguments[:1] not in ([GROUP], ["--help"], ["-h"]):
        got = repr(arguments[0]) if arguments else "nothing"
        near = mistakes.did_you_mean(arguments[0], [GROUP]) if arguments else ""
        raise ValueError(f"the data must be {GROUP}, got {got}.{near or ' See moac data kuairand --help.'}")
