"""The run directory: everything a run leaves behind, as JSON and safetensors. Nothing in it can run code."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

import jax
import numpy as np
from jaxtyping import Int

from moac import files, locks, parts, training
from moac.config import Config
from moac.files import Arrays
from moac.policies import features, observations
from moac.runs import checkpoints, sinks
from moac.runs import description as descriptions
from moac.runs.checkpoints import Checkpoints, check_same_run
from moac.settings import Settings
from moac.training import result
from moac.training.history import History
from moac.training.trained import TrainedPolicy
from moac.types import Policy, Source, Spec

LOG_FILES = ("behaviour.safetensors", "catalogue.safetensors")
"""Files of a run on a log: see `log_files`."""
_NEEDED = ("num_critic_steps", "critic_batch_size", "actor_batch_size")
"""Fields of a configuration that a report shows."""


@final
@dataclass(frozen=True, eq=False)
class RunDirectory:
    """A run on disk; config.json is read once.

    Attributes:
        path: the folder.
    """

    path: Path

    @classmethod
    def create(cls, path: Path, run: training.Run, env: str | None = None) -> RunDirectory:
        """A new folder with the run's configuration and provenance, or nothing; an existing one is refused."""
        if not _vacant(path):
            instead = f", or continue that run with moac resume {path}" if (path / "config.json").exists() else ""
            raise ValueError(f"{path} exists already: choose a new folder{instead}.")
        origin, description = descriptions.provenance(run.seed), descriptions.of(run, env)
        try:
            files.subfolder(path, "checkpoint")
        except OSError as error:
            raise ValueError(f"{path} cannot be written: {error.strerror}.") from None
        try:
            files.write_json(path / "provenance.json", origin)
            if isinstance(run.source.spec.observations, observations.LogSpec):
                _log_files().write(path, run.source)
            files.write_json(path / "config.json", description)
        except BaseException:
            if not (path / "config.json").exists():  # written last: with it, the run can be continued
                shutil.rmtree(path, ignore_errors=True)
            raise
        return cls(path)

    @cached_property
    def description(self) -> dict[str, Any]:
        """config.json, checked."""
        return descriptions.read(self.path)

    @cached_property
    def config(self) -> Config:
        """The configuration in config.json."""
        try:
            return Config.from_json(self.description["config"])
        except (ValueError, TypeError) as error:
            raise ValueError(f"{self.path / 'config.json'} is wrong: {error}") from None

    @property
    def finished(self) -> bool:
        """Whether the run has ended; the policies are written last."""
        return (self.path / "policy.safetensors").exists()

    def checkpoints(self) -> Checkpoints:
        """Where the run can be continued from."""
        return Checkpoints(self.path / "checkpoint", self.description)

    def held(self) -> AbstractContextManager[None]:
        """While entered, no other process trains or resumes this run; ValueError where one does."""
        return locks.held(self.path / ".lock", self.path)

    def finish(self, outcome: result.Result, figures: Mapping[str, bytes] | None = None) -> None:
        """Write the history, the figures (contents by file name) and, last, the policies."""
        about = {"format": descriptions.FORMAT, "kind": outcome.history.kind}
        files.write_arrays(self.path / "history.safetensors", outcome.history.arrays(), about)
        if not (self.path / "metrics.jsonl").exists():  # training writes it line by line
            files.write_bytes(self.path / "metrics.jsonl", sinks.lines(outcome.history))
        for name, content in (figures or {}).items():
            files.write_bytes(files.subfolder(self.path, "figures") / name, content)
        about = {"format": descriptions.FORMAT, "iteration": outcome.iteration, "run": self.description}
        files.write_arrays(self.path / "policy.safetensors", checkpoints.policy_arrays(outcome), about)

    def outcome(self, run: training.Run) -> result.Result:
        """The result of a run that has finished."""
        spec, policy, setting = run.source.spec, run.parts.policy, run.config.setting
        history = checkpoints.read_history(self.path / "history.safetensors", (run.num_trials, spec.num_objectives))
        arrays, about = self.policy_arrays()
        with files.interpreting(self.path / "policy.safetensors"):
            return result.Result(
                run,
                int(about["iteration"]),
                history,
                _trained(arrays, "theta", policy, spec, setting),
                _trained(arrays, "theta_random", policy, spec, setting),
                checkpoints.per_trial(arrays, "random_iteration", run.num_trials),
                checkpoints.per_trial(arrays, "stopped", run.num_trials),
            )

    def policy_arrays(self) -> tuple[Arrays, dict[str, Any]]:
        """What policy.safetensors holds; it is refused where config.json was edited since."""
        arrays, about = files.read_arrays(self.path / "policy.safetensors")
        check_same_run(self.path / "config.json", self.description, about)
        return arrays, about


@final
@dataclass(frozen=True, eq=False)
class FinishedRun:
    """All that a report needs of a run that has ended.

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


def read(path: Path) -> FinishedRun:
    """What a finished run has left; what is missing or damaged is a ValueError that names the file."""
    directory = RunDirectory(path)
    description, config = directory.description, directory.config
    objectives, trials = tuple(description["problem"]["objectives"]), description["trials"]
    for name in _NEEDED:
        if getattr(config, name) is None:
            raise files.DamagedError(path / "config.json", f"`config.{name}` is missing")
    if not (path / "history.safetensors").exists():
        raise ValueError(f"{path} has not finished: continue it with moac resume {path}.")
    history = checkpoints.read_history(path / "history.safetensors", (trials, len(objectives)))
    stopped = None
    if directory.finished:  # a run without its policies can still be shown
        arrays = files.read_arrays(path / "policy.safetensors")[0]
        with files.interpreting(path / "policy.safetensors"):
            stopped = checkpoints.per_trial(arrays, "stopped", trials) if "stopped" in arrays else None
    return FinishedRun(description, _origin(path / "provenance.json"), config, objectives, history, stopped)


def _origin(path: Path) -> dict[str, Any]:
    try:
        origin = files.read_json(path)
    except OSError:
        raise ValueError(f"{path} is missing.") from None
    if not isinstance(origin, dict) or not isinstance(origin.get("versions"), dict):
        raise files.DamagedError(path, "`versions` is missing or not of type dict")
    return origin


def save(outcome: result.Result, path: Path, figures: Mapping[str, bytes] | None = None) -> Path:
    """Write the run directory of a result, with figures by file name."""
    RunDirectory.create(path, outcome.run).finish(outcome, figures)
    return path


def load(directory: str | Path, trial: int = 0, policy: Policy | None = None) -> TrainedPolicy:
    """The trained policy of a run directory; `.act(observation, key)` acts on the real environment's observations.

    Args:
        directory: of a run that has finished.
        trial: which of its trials.
        policy: the object that was trained, where `train` was given one.
    """
    opened = RunDirectory(Path(directory))
    problem, given = opened.description["problem"], opened.description["own"]
    if not opened.finished:
        raise ValueError(f"{directory} has not finished: continue it with moac resume {directory}.")
    if ("policy" in given) != (policy is not None):
        raise ValueError(_parts_wanted(directory, ["policy"] if "policy" in given else []))
    arrays, _ = opened.policy_arrays()
    settings = _settings(opened)
    catalogue = _log_files().catalogue_of(opened.path, problem["fingerprint"]) if "log" in problem else None
    spec = descriptions.spec_of(problem, arrays.get("observations"), catalogue)
    with files.interpreting(opened.path / "policy.safetensors"):
        kind = _policy(arrays, settings, spec) if policy is None else policy
        trained = _trained(arrays, "theta", kind, spec, settings.setting)
    return trained.of_trial(trial)


def _settings(directory: RunDirectory) -> Settings:
    try:
        return Settings.of(directory.config)
    except ValueError as error:
        raise ValueError(f"{directory.path / 'config.json'} is wrong: {error}") from None


def _policy(arrays: Arrays, settings: Settings, spec: Spec) -> Policy:
    """The policy that the settings name; features that were drawn at random are those that the run keeps."""
    if "features" in arrays:
        table = arrays["features"]
        if table.ndim != 2 or table.dtype.kind != "f":
            raise ValueError(f"`features` has shape {table.shape} and type {table.dtype}")
        return parts.policy(settings, spec, features.Table(table))
    return parts.policy(settings, spec, features.by_name(settings.features, spec, parts.run_key(0)))


def _trained(arrays: Arrays, name: str, policy: Policy, spec: Spec, setting: Any) -> TrainedPolicy:
    theta = checkpoints.parameters(arrays, name, policy)
    shape = len(jax.tree.leaves(theta)[0]), spec.observation_size
    scales = checkpoints.scales(arrays, shape, isinstance(spec.observations, observations.VectorSpec))
    return TrainedPolicy(policy, theta, observations.scaled(spec.observations, scales), 0, setting, spec.action_box)


def reopen(path: Path, problem: Source, given: result.GivenParts | None = None) -> tuple[RunDirectory, training.Run]:
    """A run directory and its run, checked against the problem and the parts that replace the configuration's."""
    directory = RunDirectory(path)
    data = directory.description
    if data["problem"]["fingerprint"] != problem.spec.fingerprint:
        raise ValueError(f"{path} was trained on another problem than {problem.spec.name}: the fingerprints differ.")
    if set(data["own"]) != {name for name, part in (given or {}).items() if part is not None}:
        raise ValueError(_parts_wanted(path, data["own"]))
    config = directory.config
    try:
        return directory, result.prepare(problem, config, data["trials"], data["seed"], given)
    except ValueError as error:
        raise ValueError(f"{path / 'config.json'} is wrong: {error}") from None


def _parts_wanted(path: str | Path, names: list[str]) -> str:
    if not names:
        return f"{path} was trained without parts of its own: give no policy, critic or rule."
    return f"{path} was trained with a {' and a '.join(names)} of its own: give the same, as {'=, '.join(names)}=."


def _vacant(path: Path) -> bool:
    """Whether a run may begin here: nothing, an empty folder, or what a run left that was killed as it began."""
    if not path.is_dir():
        return not path.exists()
    begun = ("checkpoint", "provenance.json", ".lock", *LOG_FILES)
    return all(p.name in begun or p.suffix == ".tmp" for p in path.iterdir()) and not any(
        (path / "checkpoint").glob("*")
    )


def _log_files() -> Any:
    """The module, which knows run directories, and needs what runs without a log do not."""
    from moac.runs import log_files

    return log_files
