"""`moac train` and `moac resume`: a run trained to its end in its directory, and what is said of it."""

from __future__ import annotations

import re
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

import moac
from moac.cli import options, process
from moac.cli.console import print_lines, print_paths, print_table, print_tables
from moac.cli.options import Answer, Command, RunPath, config_of, group, option
from moac.config import Average, Config, check_trials
from moac.progress import say
from moac.runs import CHECKPOINT_SECONDS

if TYPE_CHECKING:
    from moac.training import Snapshot
    from moac.training.result import Result

Sinks = Annotated[
    tyro.conf.UseAppendAction[tuple[str, ...]], option("{tensorboard,wandb}", "default: none; may be repeated")
]


@dataclass(frozen=True, kw_only=True)
class Saving:
    """What is saved during training."""

    checkpoint_every: Annotated[float, tyro.conf.arg(metavar="SECONDS")] = CHECKPOINT_SECONDS
    """Seconds between checkpoints; 0 saves as often as possible."""
    sink: Sinks = ()
    """Also log the metrics there during training; metrics.jsonl always has them."""

    @property
    def arguments(self) -> dict[str, Any]:
        """As `moac.train` and `moac.resume` take them."""
        return {"checkpoint_every": self.checkpoint_every, "sinks": self.sink, "progress": True}


@dataclass(frozen=True, kw_only=True)
class Running(Saving):
    """Length of the training and what is saved."""

    steps: Annotated[int | None, option("INT", "default: set by --iterations")] = None
    """Environment steps of each trial, instead of --iterations."""
    trials: int = 1
    """Independent runs, trained together."""
    seed: int = 0
    """Random seed; trial i depends on (seed, i) alone."""
    out: Annotated[Path | None, option("DIR", "default: a new one under runs/")] = None
    """Run directory; it must not exist yet."""
    keep_every: Annotated[int | None, option("INT", "default: none")] = None
    """Keep the policy of every n-th iteration, for moac.load(RUN, iteration=…)."""
    certify: bool = False
    """Run moac certify on the first trial at the end."""


@dataclass(frozen=True, kw_only=True)
class Train(Command):
    """Train MOAC on an environment and save the run."""

    env: tyro.conf.Positional[options.Environment]
    running: Annotated[Running, group("run")]
    problem: Annotated[options.Problem, group("problem")]
    config: Annotated[options.TrainConfig, group("")]
    show_config: options.ShowConfig = False

    def answer(self) -> Answer:
        """Train, save, and say how it went."""
        config = config_of(self.config, self.problem.setting, self.problem.discount)
        running, trials, seed = self.running, self.running.trials, self.running.seed
        check_trials(trials, seed)
        options.check_environment(self.env)
        if running.certify and self.problem.setting == "average":
            raise ValueError("`--certify` must be left out in the average setting: there is no certificate for it yet.")
        saving = running.arguments
        process.use_all_cores()
        from moac import default_config, settings
        from moac.runs import problems

        problem = problems.problem_of(self.env, **self.problem.stepping)
        if self.show_config:
            return config_shown(settings.complete(config, problem.spec), default_config.reasons(problem, config))
        if not problem.compiled:
            process.dispatch_synchronously()
            say(f"{self.env}: {default_config.reasons(problem, config)}")
        out = running.out or _unused(self.env, seed)
        with completing(out) as meter:
            outcome = moac.train(
                problem, config, trials=trials, seed=seed, steps=running.steps, out=out, callback=meter,
                keep_every=running.keep_every, **saving,
            )  # fmt: skip
        if running.certify:
            moac.certify(outcome, out=out, progress=True)
        return told(out, outcome, meter)


@dataclass(frozen=True, kw_only=True)
class Resume(Command):
    """Continue a stopped run, or train a finished one longer. On models and logs the result is bit for bit the same."""

    run_path: tyro.conf.Positional[RunPath]
    saving: Annotated[Saving, group("")]
    iterations: Annotated[int | None, option("INT", "default: as before")] = None
    """Total number of iterations, to train the run longer."""
    trust: options.Trust = False

    def answer(self) -> Answer:
        """Continue a run; of one that has finished, show the summary again."""
        saving = self.saving.arguments
        process.use_all_cores()
        from moac.runs import problems

        problem = problems.problem_of_run(self.run_path, self.trust)
        if not problem.compiled:
            process.dispatch_synchronously()
        with completing(self.run_path) as meter:
            outcome = moac.resume(self.run_path, problem, iterations=self.iterations, callback=meter, **saving)
        if meter.first is None:
            say(f"{self.run_path} has finished: nothing to resume. --iterations T trains it longer.")
        return told(self.run_path, outcome, meter)


class Meter:
    """Is shown the snapshots of a run: counts its iterations and seconds, and heeds a request to stop."""

    def __init__(self, interrupts: process.Interrupts) -> None:
        self._interrupts, self._began = interrupts, time.monotonic()
        self.first: int | None = None  # iterations done before this command; None before anything was done
        self.seconds = 0.0

    def __call__(self, snapshot: Snapshot) -> None:
        """One more snapshot."""
        if self.first is None:
            self.first = snapshot.iteration - 1  # a first chunk has one iteration: `training.Pace`
        self.seconds = time.monotonic() - self._began
        self._interrupts.check()


@contextmanager
def completing(path: Path) -> Generator[Meter]:
    """While entered, Ctrl-C, SIGTERM and a full disk end the command with a line that says how to go on."""
    from moac.runs.problems import typed
    from moac.types import SourceError

    interrupts = process.Interrupts()
    try:
        with interrupts:
            yield Meter(interrupts)
    except SourceError as error:
        interrupts.check()  # its worker processes were stopped with us
        raise ValueError(f"{error} {_kept(path)}: {typed('resume', path)}") from error
    except (KeyboardInterrupt, OSError) as error:
        if not (path / "config.json").exists():  # nothing has begun
            raise
        if isinstance(error, KeyboardInterrupt):
            raise type(error)(f"stopped; continue with: {typed('resume', path)}") from error
        said = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        raise ValueError(f"{said}. {_kept(path)}: {typed('resume', path)}") from error


def _kept(path: Path) -> str:
    begun = any(path.glob("checkpoint/*.safetensors"))
    return "What was trained is kept" if begun else "Nothing was trained yet; try again with"


def config_shown(config: Config, reasons: str) -> Answer:
    """A configuration with all its defaults; what was picked for the problem, and why."""
    record = config.to_json()
    texts = record | {"setting": " ".join(str(value) for value in record["setting"].values())}
    rows = [(name, str(value)) for name, value in texts.items()]

    def show() -> None:
        print_table("Configuration", ("field", "value"), rows, ("value",))
        print_lines([reasons])

    return Answer(record, show)


def told(path: Path, outcome: Result, meter: Meter) -> Answer:
    """The summary of a run, and where its figure and report are."""

    def show() -> None:
        from moac.report.pages import run as run_page
        from moac.runs.problems import typed

        page, figure = run_page.of_run(path), path / "figures" / "training.png"
        print_lines([page.title, page.summary])
        print_tables(page.tables)
        print_lines([] if page.notice is None else [page.notice])
        print_lines(_steps(path, outcome))
        print_paths(**({"figure": figure} if figure.exists() else {}), report=path / "report.html")
        print_paths(next=typed("evaluate", path))

    trained = 0 if meter.first is None else outcome.iteration - meter.first
    return Answer(summary(path, outcome, meter.seconds, trained), show)


def summary(path: Path, outcome: Result, seconds: float, iterations: int) -> dict[str, Any]:
    """The JSON object of `train` and `resume`; seconds and speed are this command's alone."""
    from moac.runs.directory import RunDirectory
    from moac.theory import certificate
    from moac.training import mean_over_trials as mean

    history, certified = outcome.history, certificate.read(path).get(0)
    return {
        "env": RunDirectory(path).description["problem"]["env"],
        "setting": "average" if isinstance(outcome.config.setting, Average) else "discounted",
        "objectives": list(outcome.run.source.spec.objective_names),
        "trials": outcome.run.num_trials,
        "iterations": outcome.iteration,
        "env_steps": outcome.env_steps,
        "seconds": seconds,
        "env_steps_per_second": iterations * outcome.run.env_steps_per_iteration / max(seconds, 1e-9),
        "returns": mean(outcome.returns),
        "returns_kind": history.kind,
        "returns_interval": interval(outcome.returns),
        "stationarity_gap": mean(history.gap[:, -1]),
        **({"certificate": {name: certified[name] for name in certificate.SHORT}} if certified else {}),
        "regret": mean(history.regret[:, -1]),
        "weights": mean(history.weights[:, -1]),
        "evaluation_steps": _evaluation_steps(path, outcome),
        "stopped_trials": int((outcome.stopped > 0).sum()),
        "run_dir": str(path),
    }


def _steps(path: Path, outcome: Result) -> list[str]:
    """How often an environment was stepped, and what for; nothing of a model or a log."""
    evaluation_steps = _evaluation_steps(path, outcome)
    if outcome.history.kind != "episodes" or evaluation_steps is None:
        return []
    return [f"Environment steps: {outcome.env_steps:,} of the training, {evaluation_steps:,} of evaluations."]


def _evaluation_steps(path: Path, outcome: Result) -> int | None:
    """Environment steps besides those of the training: of evaluations, and of the run's certificates."""
    from moac.theory import certificate

    if outcome.evaluation_steps is None:
        return None
    return outcome.evaluation_steps + certificate.steps_taken(path)


def interval(values: Any) -> list[list[float]] | None:
    """The 95 % interval of the mean over trials [K, M], one pair per objective; None for a single trial."""
    import numpy as np

    from moac import statistics

    known = values[np.isfinite(values).all(axis=1)]
    if len(known) < 2:
        return None
    return [[mean.low, mean.high] for mean in map(statistics.mean, np.ascontiguousarray(known.T))]


def _unused(env: str, seed: int) -> Path:
    """A new folder under runs/."""
    name = f"{re.sub(r'[^A-Za-z0-9.-]+', '-', env)}-seed{seed}"
    candidates = (Path("runs") / (name if k == 1 else f"{name}-{k}") for k in range(1, 1_000_000))
    return next(path for path in candidates if not path.exists())
