"""The run directory: everything a run leaves behind, as JSON and safetensors. Nothing in it can run code."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, final

from moac import files, locks, training
from moac.config import Config
from moac.policies.encoding import ActionBox, Encoder
from moac.runs import (
    CHECKPOINT_SECONDS,
    descriptions,
    history_files,
    policies,
    provenance,
    sinks,
)
from moac.runs.checkpoints import Checkpoints, check_same_run
from moac.training import result
from moac.types import Policy, Source, SourceError

LOG_FILES = ("behaviour.safetensors", "catalogue.safetensors")
"""What a run on a log keeps beside it: see `log_files`."""


@final
@dataclass(frozen=True)
class RunDirectory:
    """A run on disk.

    Attributes:
        path: the folder.
    """

    path: Path

    @classmethod
    def create(cls, path: Path, run: training.Run, env: str | None = None, own: tuple[str, ...] = ()) -> RunDirectory:
        """A new folder with the run's configuration and provenance, or nothing; an existing one is refused."""
        if not _vacant(path):
            instead = f", or continue that run with moac resume {path}" if (path / "config.json").exists() else ""
            raise ValueError(f"{path} exists already: choose a new folder{instead}.")
        origin, description = provenance.of_this_process(run.seed), descriptions.of(run, env, own)
        try:
            files.subfolder(path, "checkpoint")
        except OSError as error:
            raise ValueError(f"{path} cannot be written: {error.strerror}.") from None
        try:
            files.write_json(path / "provenance.json", origin)
            if run.source.spec.logged:
                _log_files().write(path, run.source)
            files.write_json(path / "config.json", description)
        except BaseException:
            if not (path / "config.json").exists():  # written last: with it, the run can be continued
                shutil.rmtree(path, ignore_errors=True)
            raise
        return cls(path)

    def description(self) -> dict[str, Any]:
        """config.json, checked."""
        return descriptions.read(self.path)

    def config(self) -> Config:
        """The configuration in config.json."""
        try:
            return Config.from_json(self.description()["config"])
        except (ValueError, TypeError) as error:
            raise ValueError(f"{self.path / 'config.json'} is wrong: {error}") from None

    def encoder(self) -> Encoder | None:
        """Of what the environment shows; None for a model."""
        data = self.description()["problem"].get("encoder")
        return None if data is None else Encoder.from_json(data)

    def box(self) -> ActionBox | None:
        """Of continuous actions; None where they are indices."""
        data = self.description()["problem"].get("actions")
        return None if data is None else ActionBox.from_json(data)

    def checkpoints(self) -> Checkpoints:
        """Where the run can be continued from."""
        return Checkpoints(self.path / "checkpoint", self.description())

    def held(self) -> AbstractContextManager[None]:
        """While entered, no other process trains or resumes this run; ValueError where one does."""
        return locks.held(self.path / ".lock", self.path)

    def note_restart(self, iteration: int) -> None:
        """Note in provenance.json that chains started anew after an iteration."""
        path = self.path / "provenance.json"
        origin = files.read_json(path)
        before: Any = origin.get("chains_restarted_after", []) if isinstance(origin, dict) else None
        if not isinstance(before, list) or not all(isinstance(each, int) for each in before):
            raise files.DamagedError(path, "`chains_restarted_after` is not a list of iterations")
        files.write_json(path, origin | {"chains_restarted_after": sorted({*before, iteration})})

    def complete(
        self,
        run: training.Run,
        snapshot: training.Snapshot | None = None,
        every: float = CHECKPOINT_SECONDS,
        show: Callable[[training.Snapshot], None] | None = None,
        more: Sequence[str] = (),
    ) -> training.Snapshot:
        """Iterate to the end; a checkpoint every so many seconds, and one when interrupted.

        Args:
            run: the run.
            snapshot: where it stands.
            every: seconds between checkpoints.
            show: is shown the snapshots as they come.
            more: sinks beside `metrics.jsonl`, by name.
        """
        with self.held():
            files.remove_unfinished(self.path)
            files.subfolder(self.path, "checkpoint")
            with closing(self._feed(snapshot, more)) as feed:
                latest = self._iterated(run, snapshot, every, (feed.show, *(() if show is None else (show,))))
        if latest is None:
            raise ValueError(f"{self.path} has nothing to train.")
        return latest

    def _feed(self, snapshot: training.Snapshot | None, more: Sequence[str]) -> sinks.Feed:
        done = 0 if snapshot is None else snapshot.iteration
        history = None if snapshot is None else snapshot.history
        return sinks.feed(sinks.Place(self.path, self.description(), done), more, history)

    def _iterated(
        self, run: training.Run, snapshot: training.Snapshot | None, every: float, shown: Sequence[Callable[..., None]]
    ) -> training.Snapshot | None:
        checkpoints, saved, latest = self.checkpoints(), time.monotonic(), snapshot
        stored = None if snapshot is None else snapshot.iteration
        try:
            for latest in training.iterate(run, snapshot):
                if latest.restarted_after is not None:
                    self.note_restart(latest.restarted_after)
                for show in shown:
                    show(latest)
                if time.monotonic() - saved >= every:
                    checkpoints.write(latest)
                    saved, stored = time.monotonic(), latest.iteration
        except SourceError:
            if latest is not None:  # without its past: the source would fail again where it failed
                checkpoints.write(replace(latest, past=dict[str, Any]))
                stored = latest.iteration
            raise
        finally:
            if latest is not None and latest.iteration != stored:
                checkpoints.write(latest)
        return latest

    def finish(self, outcome: result.Result, figures: Mapping[str, bytes] | None = None) -> None:
        """Write history, metrics, the figures (contents by file name) and the policies."""
        about = {"format": descriptions.FORMAT, "kind": outcome.history.kind}
        files.write_arrays(self.path / "history.safetensors", outcome.history.arrays(), about)
        files.write_bytes(self.path / "metrics.jsonl", sinks.lines(outcome.history))
        for name, content in (figures or {}).items():
            files.write_bytes(files.subfolder(self.path, "figures") / name, content)
        about = {"format": descriptions.FORMAT, "iteration": outcome.iteration, "run": self.description()}
        files.write_arrays(self.path / "policy.safetensors", policies.arrays(outcome), about)

    @property
    def finished(self) -> bool:
        """Whether the run has ended; the policies are written last."""
        return (self.path / "policy.safetensors").exists()

    def outcome(self, run: training.Run, own: tuple[str, ...] = ()) -> result.Result:
        """The result of a run that has finished."""
        spec = run.source.spec
        history = history_files.read(self.path / "history.safetensors", (run.num_trials, spec.num_objectives))
        path = self.path / "policy.safetensors"
        arrays, about = files.read_arrays(path)
        check_same_run(self.path / "config.json", self.description(), about)
        try:
            last, random = (policies.tree(arrays, name, run.parts.policy) for name in ("theta", "theta_random"))
            spaces = (spec.observations, spec.encoder, spec.action_box, result.catalogue(run.source))
            kept = partial(_trained, spaces, run.config.setting, arrays)
            return result.Result(
                run,
                int(about["iteration"]),
                history,
                kept(run.parts.policy, last),
                kept(run.parts.policy, random),
                policies.of_each_trial(arrays, "random_iteration", run.num_trials),
                policies.of_each_trial(arrays, "stopped", run.num_trials),
                own,
            )
        except KeyError as error:
            raise files.DamagedError(path, f"{error} is missing") from None
        except (TypeError, ValueError) as error:
            raise files.DamagedError(path, str(error)) from None


def _vacant(path: Path) -> bool:
    """Whether a run may begin here: nothing, an empty folder, or what a run left that was killed as it began."""
    if not path.is_dir():
        return not path.exists()
    begun = ("checkpoint", "provenance.json", ".lock", *LOG_FILES)
    return all(p.name in begun or p.suffix == ".tmp" for p in path.iterdir()) and not any(
        (path / "checkpoint").glob("*")
    )


def _trained(
    spaces: tuple[Any, Encoder | None, ActionBox | None, Any],
    setting: Any,
    arrays: files.Arrays,
    policy: Policy,
    theta: Any,
) -> result.TrainedPolicy:
    """The policy between what the environment shows (observations, encoder or catalogue) and what it takes."""
    observations, encoder, box, catalogue = spaces
    scales = policies.scales(arrays)
    return result.TrainedPolicy(policy, theta, observations, 0, encoder, scales, setting, box, catalogue)


def save(outcome: result.Result, path: Path, figures: Mapping[str, bytes] | None = None) -> Path:
    """Write the run directory of a result, with figures by file name."""
    directory = RunDirectory.create(path, outcome.run, own=outcome.own)
    directory.finish(outcome, figures)
    return path


def load(directory: str | Path, trial: int = 0, policy: Policy | None = None) -> result.TrainedPolicy:
    """The trained policy of a run directory; `.act(observation, key)` acts on the real environment's observations.

    Args:
        directory: of a run that has finished.
        trial: which of its trials.
        policy: the object that was trained, where `train` was given one.
    """
    own = RunDirectory(Path(directory))
    description = own.description()
    if not own.finished:
        raise ValueError(f"{directory} has not finished: continue it with moac resume {directory}.")
    if ("policy" in description["own"]) != (policy is not None):
        raise ValueError(_wanted(directory, ["policy"] if "policy" in description["own"] else []))
    path = own.path / "policy.safetensors"
    arrays, about = files.read_arrays(path)
    check_same_run(own.path / "config.json", description, about)
    config = own.config()
    try:
        kind = policies.named(arrays, config) if policy is None else policy
        theta = policies.tree(arrays, "theta", kind)
    except KeyError as error:
        raise files.DamagedError(path, f"{error} is missing") from None
    except ValueError as error:
        raise files.DamagedError(path, str(error)) from None
    problem = description["problem"]
    catalogue = _log_files().catalogue_of(own.path, problem["fingerprint"]) if "log" in problem else None
    spaces = (arrays.get("observations"), own.encoder(), own.box(), catalogue)
    return _trained(spaces, config.setting, arrays, kind, theta).of_trial(trial)


def reopen(path: Path, problem: Source, own: result.Own | None = None) -> tuple[RunDirectory, training.Run]:
    """A run directory and its run, checked against the problem and the parts that replace the configuration's."""
    directory = RunDirectory(path)
    data = directory.description()
    if data["problem"]["fingerprint"] != problem.spec.fingerprint:
        raise ValueError(f"{path} was trained on another problem than {problem.spec.name}: the fingerprints differ.")
    if set(data["own"]) != set(result.given(own)):
        raise ValueError(_wanted(path, data["own"]))
    config = directory.config()
    try:
        return directory, result.prepare(problem, config, data["trials"], data["seed"], own)
    except ValueError as error:
        raise ValueError(f"{path / 'config.json'} is wrong: {error}") from None


def _wanted(path: str | Path, own: list[str]) -> str:
    if not own:
        return f"{path} was trained without parts of its own: give no policy, critic or rule."
    return f"{path} was trained with a {' and a '.join(own)} of its own: give the same, as {'=, '.join(own)}=."


def _log_files() -> Any:
    """The module, which knows run directories, and needs what runs without a log do not."""
    from moac.runs import log_files

    return log_files
