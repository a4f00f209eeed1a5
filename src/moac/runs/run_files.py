"""What the folder of a finished run holds, read and checked: a run from a stranger may say anything."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Int

from moac import files
from moac.config import Config
from moac.runs import history_files, policies
from moac.runs.directory import RunDirectory
from moac.training.history import History

_NEEDED = ("num_critic_steps", "critic_batch_size", "actor_batch_size")


@final
@dataclass(frozen=True, eq=False)
class RunFiles:
    """A run that has ended.

    Attributes:
        description: config.json.
        origin: provenance.json.
        config: resolved.
        objectives: their names.
        history: what was logged, K trials at L ≥ 1 iterations.
        stopped: [K] 0, or the iteration at which the trial stopped; None where the policies are not there.
    """

    description: dict[str, Any]
    origin: dict[str, Any]
    config: Config
    objectives: tuple[str, ...]
    history: History
    stopped: Int[np.ndarray, " K"] | None

    @property
    def name(self) -> str:
        """What the problem is called."""
        return str(self.description["problem"]["name"])

    @property
    def trials(self) -> int:
        """K."""
        return self.description["trials"]

    @property
    def first(self) -> int:
        """The first logged iteration."""
        return int(self.history.iteration[0])

    @property
    def last(self) -> int:
        """The last logged iteration."""
        return int(self.history.iteration[-1])

    @property
    def versions(self) -> dict[str, str]:
        """Of the packages, by name."""
        return {str(name): str(version) for name, version in self.origin["versions"].items()}


def read(directory: Path) -> RunFiles:
    """All that a report needs; what is missing or damaged is a ValueError that names the file."""
    description = RunDirectory(directory).description()
    objectives = _objectives(directory / "config.json", description)
    config = _config(RunDirectory(directory))
    if not (directory / "history.safetensors").exists():
        raise ValueError(f"{directory} has not finished: continue it with moac resume {directory}.")
    history = history_files.read(directory / "history.safetensors", (description["trials"], len(objectives)))
    origin = _origin(directory / "provenance.json")
    return RunFiles(description, origin, config, objectives, history, _stopped(directory, description["trials"]))


def _objectives(path: Path, description: dict[str, Any]) -> tuple[str, ...]:
    names = description["problem"].get("objectives")
    if not isinstance(names, list) or not names:
        raise files.DamagedError(path, "`problem.objectives` is missing or not a list")
    return tuple(map(str, names))


def _config(directory: RunDirectory) -> Config:
    config = directory.config()
    for name in _NEEDED:
        if getattr(config, name) is None:
            raise files.DamagedError(directory.path / "config.json", f"`config.{name}` is missing")
    return config


def _origin(path: Path) -> dict[str, Any]:
    try:
        origin = files.read_json(path)
    except OSError:
        raise ValueError(f"{path} is missing.") from None
    if not isinstance(origin, dict) or not isinstance(origin.get("versions"), dict):
        raise files.DamagedError(path, "`versions` is missing or not of type dict")
    return origin


def _stopped(directory: Path, trials: int) -> Int[np.ndarray, " K"] | None:
    """When each trial stopped; a run without its policies can still be shown."""
    path = directory / "policy.safetensors"
    arrays = files.read_arrays(path)[0] if path.exists() else {}
    try:
        return policies.of_each_trial(arrays, "stopped", trials) if "stopped" in arrays else None
    except ValueError as error:
        raise files.DamagedError(path, str(error)) from None
