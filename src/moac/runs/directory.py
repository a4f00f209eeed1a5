"""The run directory: everything a run leaves behind, as JSON and safetensors. Nothing in it can run code."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
from jaxtyping import Int

from moac import files, locks, training
from moac.config import Config
from moac.files import Arrays
from moac.policies.observations import LogSpec
from moac.runs import checkpoints, problems, sinks
from moac.runs.checkpoints import Checkpoints, check_same_run
from moac.settings import Settings
from moac.training import result
from moac.training.run import History
from moac.training.trained import TrainedPolicy
from moac.types import Policy, Source, SourceError

_MOST_NAMED = 10


@dataclass(frozen=True, eq=False)
class RunDirectory:
    """The folder of a run; config.json is read once."""

    path: Path

    @classmethod
    def create(cls, path: Path, run: training.Run, keep_every: int | None = None) -> RunDirectory:
        """A folder with the run's configuration and provenance, or nothing in it; one that holds anything is refused.

        The caller holds it: with `locks.folder`, which makes it, or with all that it is in.
        Policies of every `keep_every` iterations are kept for `load(…, iteration=…)`.
        """
        problems.check_vacant(path)
        origin, description = problems.provenance(run.seed), problems.described(run, keep_every)
        try:
            files.subfolder(path, "checkpoint")
        except OSError as error:
            raise ValueError(f"{path} cannot be written: {error.strerror}.") from None
        try:
            files.write_json(path / "provenance.json", origin)
            if isinstance(run.source.spec.observations, LogSpec):
                from moac.runs import log_files  # which knows run directories

                log_files.write(path, cast(Any, run.source))
            files.write_json(path / "config.json", description)
        except BaseException:
            if not (path / "config.json").exists():  # written last: with it, the run can be continued
                locks.clear(path)
            raise
        return cls(path)

    @cached_property
    def description(self) -> dict[str, Any]:
        """config.json, checked."""
        return problems.description(self.path)

    @cached_property
    def config(self) -> Config:
        """The configuration in config.json, complete."""
        try:
            config = Config.from_json(self.description["config"])
            Settings.of(config)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{self.path / 'config.json'} is wrong: {error}") from None
        return config

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

    @contextmanager
    def begun(self) -> Generator[None]:
        """While entered, a mistake that shows before the first iteration leaves nothing in the folder, which is new.

        An environment that fails, or a full disk, is no mistake of the run's: it can be tried again.
        """
        try:
            yield
        except Exception as error:
            later = isinstance(error, SourceError | OSError)
            if not later and not any((self.path / "checkpoint").iterdir()):
                locks.clear(self.path)
            raise

    def finish(self, outcome: result.Result) -> None:
        """Write the history and, last, the policies."""
        about = {"format": problems.FORMAT, "kind": outcome.history.kind}
        files.write_arrays(self.path / "history.safetensors", outcome.history.arrays(), about)
        if not (self.path / "metrics.jsonl").exists():  # training writes it line by line
            rows = sinks.rows(outcome.history, outcome.run.settings.samples_per_iteration)
            files.write_bytes(self.path / "metrics.jsonl", sinks.lines(rows))
        self._write_policies(self.path / "policy.safetensors", outcome)

    def keep(self, outcome: result.Result) -> None:
        """Keep the policies that a run has now, beside those of its end."""
        files.subfolder(self.path, "policies")
        self._write_policies(self.kept_path(outcome.iteration), outcome)

    def _write_policies(self, path: Path, outcome: result.Result) -> None:
        about = {"format": problems.FORMAT, "iteration": outcome.iteration, "run": self.description}
        files.write_arrays(path, checkpoints.policy_arrays(outcome), about)

    def kept_path(self, iteration: int) -> Path:
        """Where the policies of an iteration are kept."""
        return files.below(self.path, "policies") / f"{iteration:010d}.safetensors"

    def policy_path(self, iteration: int | None = None) -> Path:
        """The file with the policies of the end, or with those kept at an iteration; ValueError where it is missing."""
        if iteration is None:
            if not self.finished:
                raise ValueError(f"{self.path} has not finished: continue it with moac resume {self.path}.")
            return self.path / "policy.safetensors"
        kept = sorted(int(path.stem) for path in self.kept_path(0).parent.glob("[0-9]*.safetensors"))
        if iteration not in kept:
            shown = [*map(str, kept[:_MOST_NAMED]), *(["…", str(kept[-1])] if len(kept) > _MOST_NAMED else [])]
            known = (
                f"one of {', '.join(shown)}" if kept else "left out: no policies were kept on the way (`keep_every`)"
            )
            raise ValueError(f"`iteration` must be {known}, got {iteration}.")
        return self.kept_path(iteration)

    def policy_arrays(self, iteration: int | None = None) -> tuple[Arrays, dict[str, Any]]:
        """Policies of the end, or those kept at an iteration; they are refused where config.json was edited since."""
        arrays, about = files.read_arrays(self.policy_path(iteration))
        check_same_run(self.path / "config.json", self.description, about, longer=iteration is not None)
        return arrays, about

    def outcome(self, run: training.Run) -> result.Result:
        """The result of a run that has finished."""
        spec, rest = run.source.spec, (run.num_trials, run.parts.policy, run.source.spec, run.config.setting)
        history = checkpoints.read_history(self.path / "history.safetensors", (run.num_trials, spec.num_objectives))
        arrays, about = self.policy_arrays()
        with files.interpreting(self.path / "policy.safetensors"):
            return result.Result(
                run,
                int(about["iteration"]),
                history,
                checkpoints.trained(arrays, "theta", *rest),
                checkpoints.trained(arrays, "theta_random", *rest),
                checkpoints.per_trial(arrays, "random_iteration", run.num_trials),
                checkpoints.per_trial(arrays, "stopped", run.num_trials),
            )


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """All that a report needs of a run that has ended."""

    description: dict[str, Any]  # config.json
    origin: dict[str, Any]  # provenance.json; empty in memory
    config: Config  # resolved
    objectives: tuple[str, ...]  # their names
    history: History  # what was logged, K trials at L ≥ 1 iterations
    # [K] 0, or the iteration at which the trial stopped; None where the policies are not there
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


def read(run: str | Path | result.Result) -> FinishedRun:
    """What a finished run has left, in memory or in its folder, where a missing or damaged file is a ValueError."""
    if isinstance(run, result.Result):
        objectives = run.run.source.spec.objective_names
        return FinishedRun(problems.described(run.run), {}, run.config, objectives, run.history, run.stopped)
    path, directory = Path(run), RunDirectory(Path(run))
    description, config = directory.description, directory.config
    objectives, trials = tuple(description["problem"]["objectives"]), description["trials"]
    if not (path / "history.safetensors").exists():
        raise ValueError(f"{path} has not finished: continue it with moac resume {path}.")
    history = checkpoints.read_history(path / "history.safetensors", (trials, len(objectives)))
    stopped = None
    if directory.finished:  # a run without its policies can still be shown
        arrays = files.read_arrays(path / "policy.safetensors")[0]
        with files.interpreting(path / "policy.safetensors"):
            stopped = checkpoints.per_trial(arrays, "stopped", trials) if "stopped" in arrays else None
    return FinishedRun(description, problems.origin(path), config, objectives, history, stopped)


def save(outcome: result.Result, path: Path, overwrite: bool = False) -> Path:
    """Write the run directory of a result; `overwrite` replaces a run that is there."""
    if overwrite and problems.is_run(path):
        real = path.resolve()
        beside, before = files.temporary(real), files.temporary(real)
        with RunDirectory(real).held():
            save(outcome, beside)
            real.rename(before)
            beside.rename(real)
            shutil.rmtree(before)
        return path
    with locks.folder(path):
        directory = RunDirectory.create(path, outcome.run)
        if outcome.snapshot is not None:
            directory.checkpoints().write(outcome.snapshot)  # so that the run can be lengthened
        directory.finish(outcome)
    return path


def load(
    directory: str | Path, trial: int = 0, policy: Policy | None = None, iteration: int | None = None
) -> TrainedPolicy:
    """`moac.load`, but for the archive of an exploration."""
    opened = RunDirectory(Path(directory))
    problem, given = opened.description["problem"], opened.description["own"]
    path = opened.policy_path(iteration)
    if ("policy" in given) != (policy is not None):
        raise ValueError(_parts_wanted(directory, ["policy"] if "policy" in given else []))
    arrays, _ = opened.policy_arrays(iteration)
    chosen = Settings.of(opened.config)
    catalogue = None
    if "log" in problem:
        from moac.runs import log_files

        catalogue = log_files.catalogue_of(opened.path, problem["fingerprint"])
    spec = problems.spec_of(problem, arrays.get("observations"), catalogue)
    with files.interpreting(path):
        kind = checkpoints.policy(arrays, chosen, spec) if policy is None else policy
        trained = checkpoints.trained(arrays, "theta", opened.description["trials"], kind, spec, chosen.setting)
    return trained.of_trial(trial)


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
