"""What `moac sweep` takes, and what says where tasks run. Imports no JAX."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

SpecPath = Annotated[Path, tyro.conf.arg(metavar="SPEC", help="A TOML file that says what varies: docs/sweeps.md.")]
ExecutorName = Literal["serial", "process", "ray"]
Workers = Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: one per core)")]
Address = Annotated[str | None, tyro.conf.arg(metavar="ADDRESS", help_behavior_hint="(default: start Ray here)")]


@dataclass(frozen=True)
class Sweep:
    """Train over a grid or at random settings, methods, environments and seeds; a second call continues."""

    spec: tyro.conf.Positional[SpecPath]
    executor: ExecutorName = "process"
    """One task after the other; processes of this machine; or Ray."""
    workers: Workers = None
    """Tasks at a time, one core each."""
    address: Address = None
    """Of a running Ray cluster, or auto."""
    timeout: Annotated[float | None, tyro.conf.arg(metavar="SECONDS", help_behavior_hint="(default: none)")] = None
    """Limit of one task's time."""
    memory: Annotated[str | None, tyro.conf.arg(metavar="SIZE", help_behavior_hint="(default: none)")] = None
    """Limit of one task's memory, such as 2GB."""
    retries: int = 2
    """How often a task is tried again whose process or machine was lost."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: runs/SPEC)")] = None
    """Folder of the sweep; on several machines one that they share."""
    json: bool = False
    """End with one JSON object on stdout."""
