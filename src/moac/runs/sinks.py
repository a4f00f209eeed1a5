"""Where the numbers of a run go while it trains: `metrics.jsonl` always, TensorBoard and Weights & Biases if asked.

A sink cannot stop a run: one that fails is named once and left out from then on. Seconds go to `timing.jsonl`, so that
equal runs have equal `metrics.jsonl`.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from moac import files, training
from moac.choices import shown
from moac.training.run import History

Row = Mapping[str, Any]
"""`iteration`, `env_steps` and `evaluation_steps` of a trial, and the mean over trials of all else that was logged
there; a number, or a list of one per objective."""


class Sink(NamedTuple):
    """Takes the numbers of a run: `write` one logged iteration after the other, then `close`."""

    write: Callable[[Row], Any]
    close: Callable[[], Any]


@dataclass(frozen=True)
class Place:
    """The run that a sink is opened for.

    A trial takes so many environment `steps` in an iteration; a run that is not new goes on after `iteration`.
    """

    path: Path
    description: Mapping[str, Any]
    steps: int = 1
    iteration: int = 0

    def flat(self, row: Row) -> dict[str, float]:
        """The numbers of a row by name, as curves are called."""
        return flat(row, self.description["problem"]["objectives"])


def rows(history: History, steps: int) -> Iterator[Row]:
    """All logged iterations, in order, where a trial takes so many environment steps in each."""
    for index, iteration in enumerate(history.iteration.tolist()):
        row: dict[str, Any] = {"iteration": iteration, "env_steps": iteration * steps}
        row["evaluation_steps"] = history.evaluation_steps[index] / len(history.returns)
        for name, array in history.arrays_per_trial().items():
            row[name] = training.mean_over_trials(array[:, index])
        yield files.finite(row)


def lines(logged: Iterable[Row]) -> bytes:
    """Rows as JSON, one a line."""
    return "".join(f"{json.dumps(row)}\n" for row in logged).encode()


def _jsonl(path: Path, before: bytes | None, told: Callable[[Row], Row] = dict) -> Sink:
    """A file of JSON, a line for each row, after what is given; None leaves what is there."""
    if before is not None:
        files.write_bytes(path, before)
    file = os.fdopen(files.no_follow(str(path), os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")
    return Sink(lambda row: (file.write(lines([told(row)])), file.flush()), file.close)


def tensorboard(place: Place) -> Sink:
    """Event files in `tensorboard/`, by environment steps; what a kill left beyond the checkpoint is struck out."""
    folder = str(files.subfolder(place.path, "tensorboard"))
    purged = place.iteration * place.steps + 1
    writer: Any = importlib.import_module("tensorboardX").SummaryWriter(folder, purge_step=purged)

    def write(row: Row) -> None:
        for name, value in place.flat(row).items():
            if name != "env_steps":
                writer.add_scalar(name, value, row["env_steps"])

    return Sink(write, writer.close)


def wandb(place: Place) -> Sink:
    """A run of Weights & Biases; `WANDB_MODE=offline` keeps it in the run's folder. A resumed run goes on there."""
    files.subfolder(place.path, "wandb")
    config = {**place.description.get("config", {}), "num_iterations": None}  # a run that is lengthened stays itself
    identity = json.dumps([str(place.path.absolute()), {**place.description, "config": config}], sort_keys=True)
    told = {"id": hashlib.sha256(identity.encode()).hexdigest()[:16], "config": dict(place.description)}
    run: Any = importlib.import_module("wandb").init(project="moac", dir=str(place.path), resume="allow", **told)
    run.define_metric("*", step_metric="env_steps")
    return Sink(lambda row: run.log(place.flat(row), step=row["iteration"]), run.finish)


_KINDS: Mapping[str, tuple[str, Callable[[Place], Sink]]] = {
    "tensorboard": ("tensorboardX", tensorboard),
    "wandb": ("wandb", wandb),
}
"""The package that each sink needs, and what opens it."""


def check(names: Sequence[str]) -> None:
    """Refuse an unknown sink, and one whose package is missing, before anything is trained."""
    for name in names:
        if name not in _KINDS:
            raise ValueError(f"`sinks` must be some of {', '.join(_KINDS)}, got {shown(name)}.")
        if importlib.util.find_spec(_KINDS[name][0]) is None:
            raise ValueError(f"`sink` {name} needs {_KINDS[name][0]}: pip install 'moac[{name}]'.")


def flat(row: Row, objectives: Sequence[str]) -> dict[str, float]:
    """Numbers by name, `returns/gold` for one of an objective; those that are not known are left out."""
    numbers: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, list):
            numbers |= {f"{name}/{objective}": x for objective, x in zip(objectives, value, strict=True)}
        elif name != "iteration":
            numbers[name] = value
    return {name: float(value) for name, value in numbers.items() if value is not None and math.isfinite(value)}


@dataclass(eq=False)
class Feed:
    """Hands what a run logs to its sinks, each iteration once."""

    steps: int = 1
    done: int = 0  # logged iterations that the sinks have, or that came before them
    warn: Callable[[str], Any] = lambda text: sys.stderr.write(f"warning: {text}\n")
    _open: dict[str, Any] = field(default_factory=dict[str, Any])

    def add(self, name: str, make: Callable[[], Any]) -> None:
        """Open one more: whatever has `write(row)` and `close()`."""
        self._guarded(name, lambda: self._open.update({name: make()}))

    def show(self, snapshot: training.Snapshot) -> None:
        """Hand on what this snapshot has logged beyond the last."""
        logged = len(snapshot.history.iteration)
        new = [] if logged == self.done else list(rows(snapshot.history, self.steps))[self.done :]
        for name, sink in list(self._open.items()):
            self._guarded(name, lambda sink=sink: [sink.write(row) for row in new])
        self.done = logged

    def close(self) -> None:
        """Close them all."""
        for name, sink in list(self._open.items()):
            self._guarded(name, sink.close)

    def _guarded(self, name: str, work: Callable[[], Any]) -> None:
        try:
            work()
        except Exception as error:  # whatever goes wrong in there, the run is worth more
            self._open.pop(name, None)
            said = " ".join(str(error).split())
            self.warn(f"{name} gets no more metrics of this run: {type(error).__name__}: {said}")


def feed(place: Place, names: Sequence[str], history: History | None = None) -> Feed:
    """The sinks of a run: `metrics.jsonl`, `timing.jsonl` (seconds that this process has trained), and those named."""
    began = time.monotonic()

    def timed(row: Row) -> Row:
        return {"iteration": row["iteration"], "seconds": round(time.monotonic() - began, 3)}

    known = History.empty() if history is None else history
    opened = Feed(place.steps, len(known.iteration))
    opened.add("metrics.jsonl", lambda: _jsonl(place.path / "metrics.jsonl", lines(rows(known, place.steps))))
    opened.add("timing.jsonl", lambda: _jsonl(place.path / "timing.jsonl", None if place.iteration else b"", timed))
    for name in names:
        opened.add(name, lambda make=_KINDS[name][1]: make(place))
    return opened
