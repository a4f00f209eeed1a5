"""`moac train` and `moac resume`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, final

import tyro

from moac.cli import process
from moac.cli.options import (
    Command,
    ConfigOptions,
    Discounts,
    Environment,
    RunPath,
    SettingName,
    Stepping,
    config_of,
    option,
)  # fmt: skip
from moac.config import check_trials
from moac.runs import CHECKPOINT_SECONDS

Sinks = Annotated[
    tyro.conf.UseAppendAction[tuple[str, ...]],
    option("{tensorboard,wandb}", "default: none; may be repeated"),
]


@dataclass(frozen=True, kw_only=True)
class Training(Command):
    """What `train` and `resume` share."""

    checkpoint_every: Annotated[float, tyro.conf.arg(metavar="SECONDS")] = CHECKPOINT_SECONDS
    """Seconds between checkpoints; 0 is as often as possible."""
    sink: Sinks = ()
    """Where the numbers go while it trains, besides metrics.jsonl."""

    def begin(self) -> None:
        """Check the options and set up JAX."""
        if not self.checkpoint_every >= 0:
            raise ValueError(f"`checkpoint_every` must be at least 0 seconds, got {self.checkpoint_every}.")
        process.use_all_cores()
        from moac.runs import sinks

        sinks.check(self.sink)


@final
@dataclass(frozen=True, kw_only=True)
class Train(Training):
    """Train MOAC on an environment and save the run."""

    env: tyro.conf.Positional[Environment]
    config: Annotated[ConfigOptions, tyro.conf.arg(name="")]
    stepping: Annotated[Stepping, tyro.conf.arg(name="")]
    setting: SettingName = "discounted"
    """Discounted return, or reward per step."""
    discount: Discounts = None
    """One discount, or one per objective."""
    trials: int = 1
    """Independent runs, trained together."""
    seed: int = 0
    """Trial i depends on (seed, i) alone."""
    out: Annotated[Path | None, option("DIR", "default: a new one under runs/")] = None
    """Run directory; it must not exist yet."""

    def run(self) -> int:
        """Train, save, and say how it went."""
        config = config_of(self.config, self.setting, self.discount)
        check_trials(self.trials, self.seed)
        self.begin()
        from moac import settings
        from moac.cli.console import say
        from moac.cli.running import complete
        from moac.envs.make import quiet
        from moac.runs import problems
        from moac.runs.directory import RunDirectory
        from moac.training import result

        with quiet():
            problem = problems.problem_of(self.env, **self.stepping.given)
            if not problem.compiled:
                process.dispatch_synchronously()
            prepared = result.prepare(problem, config, self.trials, self.seed)
            directory = RunDirectory.create(self.out or _unused(self.env, self.seed), prepared, self.env)
            if not problem.compiled:
                say(f"{self.env}: {settings.reasons(problem, config)}")
            with directory.held():
                return complete(directory, prepared, None, self)


@final
@dataclass(frozen=True, kw_only=True)
class Resume(Training):
    """Continue a run that was stopped: as if it had not been on a model or a log, in new episodes on an environment."""

    path: tyro.conf.Positional[RunPath]
    trust: bool = False
    """Import the module that the run names, if its environment is not MO-Gymnasium's own."""

    def run(self) -> int:
        """Continue a stopped run; of a finished one, show the summary again."""
        self.begin()
        from moac.envs.make import quiet

        with quiet():
            return self._resume(self.path)

    def _resume(self, path: Path) -> int:
        from moac import files
        from moac.cli.console import say
        from moac.cli.running import complete, tell
        from moac.report import pages
        from moac.runs import problems
        from moac.runs.directory import reopen

        problem = problems.problem_of_run(path, self.trust)
        if not problem.compiled:
            process.dispatch_synchronously()
        directory, prepared = reopen(path, problem)
        if directory.finished:
            outcome = directory.outcome(prepared)
            if (path / "figures" / "training.svg").exists() and not (path / "report.html").exists():
                with directory.held():  # it was killed just before
                    files.remove_unfinished(path)
                    pages.write(path)
            say(f"{path} has finished: nothing to resume.")
            tell(directory, outcome, self.json)
            return 0
        with directory.held():
            snapshot = directory.checkpoints().newest(prepared)
            done = 0 if snapshot is None else snapshot.iteration
            episodes = "" if prepared.source.compiled or snapshot is None else ", in new episodes of its environments"
            say(f"{path} continues after iteration {done} of {prepared.settings.num_iterations}{episodes}.")
            return complete(directory, prepared, snapshot, self)


def _unused(env: str, seed: int) -> Path:
    """A new folder under runs/."""
    name = f"{re.sub(r'[^A-Za-z0-9.-]+', '-', env)}-seed{seed}"
    candidates = (Path("runs") / (name if k == 1 else f"{name}-{k}") for k in range(1, 1_000_000))
    return next(path for path in candidates if not path.exists())
