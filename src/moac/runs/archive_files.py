"""An archive beside its policies: `archive.safetensors` in a run directory whose trials are the archived policies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from moac import files
from moac.training.archive import Archive
from moac.training.trained import TrainedPolicy

NAME = "archive.safetensors"
_FORMAT = 1


def write(folder: Path, archive: Archive[Any]) -> None:
    """Values and origins; the policies are the run's own."""
    about = {"format": _FORMAT, "kind": archive.kind, "rules": list(archive.rules)}
    files.write_arrays(folder / NAME, archive.arrays(), about)


def joined(folder: Path, policies: TrainedPolicy) -> TrainedPolicy:
    """The policies of a run, with the archive that they are; as they were where it has none."""
    path = folder / NAME
    return replace(policies, archive=_read(path, policies)) if path.exists() else policies


def _read(path: Path, policies: TrainedPolicy) -> Archive[TrainedPolicy]:
    arrays, about = files.read_arrays(path)
    if about.get("format") != _FORMAT:
        raise files.DamagedError(path, f"its format is {about.get('format')!r} in place of {_FORMAT}")
    try:
        archive = Archive(**arrays, rules=tuple(about["rules"]), kind=str(about["kind"]), policies=policies)
    except (KeyError, TypeError) as error:
        raise files.DamagedError(path, f"{error} is missing or wrong") from None
    wanted = (policies.num_trials, archive.points.shape[-1])
    for name, array in archive.arrays().items():
        if array.shape != (wanted if name != "trials" else wanted[:1]) or len(archive.rules) != wanted[0]:
            raise files.DamagedError(path, f"`{name}` has shape {array.shape}, the run has {wanted[0]} policies")
    return archive
