"""`moac offline train`: several policies from a log, and the one that validation users choose."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import tyro

import moac
from moac.cli import process
from moac.cli.console import print_lines, print_paths, print_table
from moac.cli.options import (
    NEVER_ON_A_LOG,
    Answer,
    Command,
    DataPath,
    Discounts,
    RequiredFolder,
    ShowConfig,
    check_data,
    config_of,
    config_options,
    group,
    option,
    required,
)  # fmt: skip
from moac.cli.train import config_shown
from moac.config import Config, check_trials
from moac.progress import say

if TYPE_CHECKING:
    from moac.offline.choose import Choice

    class LogConfig:
        """What shapes a run on a log."""
else:
    LogConfig = config_options(NEVER_ON_A_LOG, {"policy": ("linear", "mlp")})

_NOTHING_CHOSEN = 1


@dataclass(frozen=True, kw_only=True)
class Train(Command):
    """Train policies on a dataset, from close to its behaviour to far from it, and choose one on validation users."""

    data: tyro.conf.Positional[DataPath]
    config: Annotated[LogConfig, group("")]
    protect: Annotated[tuple[str, ...], option("SIGNAL=CHANGE% [...]", "default: none")] = ()
    """Signals that must not change for the worse by more than this, such as Like=-1%; of a cost, Dislike=+1%."""
    pulls: Annotated[tuple[float, ...], option("FLOAT [FLOAT ...]", "default: 1 0.3 0.1 0.03")] = ()
    """Pulls to the behaviour, a policy for each; --behaviour-pull is one alone."""
    preferences: int = 0
    """Preference vectors over the signals, drawn at random: a policy of the rule `preferred` for each, too."""
    discount: Discounts = None
    """One discount, or one per signal."""
    trials: int = 5
    """Training seeds of each policy."""
    seed: int = 0
    """Trial i depends on (seed, i) alone."""
    show_config: ShowConfig = False
    out: RequiredFolder = None
    """Run directory of the policy that is chosen; the same command continues what was interrupted."""

    def answer(self) -> Answer:
        """Fit how the log chose, train the candidates, choose on validation users, and say how it went."""
        config, out, began = self._checked(), required("out", self.out, "with a folder"), time.monotonic()
        process.use_all_cores()
        from moac import settings

        dataset: Any = moac.api.source_of(self.data)
        if self.show_config:
            filled = settings.complete(replace(config, start=config.start or "random"), dataset.spec)
            return config_shown(filled, "Steps by Adam from the behaviour model, pulled back to it.")
        if dataset.propensity is None:
            say(f"{dataset.name} has no propensities: a behaviour model is fitted on train users")
        if (out / "choice.json").exists():
            say(f"{out} holds a choice: its runs are kept and used again, what is chosen is replaced.")
        with process.continued(f"the same command continues {out}"), process.Interrupts() as interrupts:
            choice = moac.choose(
                dataset, config, protect=self.protect, pulls=self.pulls, preferences=self.preferences,
                trials=self.trials, seed=self.seed, out=out, progress=True, check=interrupts.check,
            )  # fmt: skip
        record = self._summary(choice) | {"seconds": time.monotonic() - began}
        return Answer(record, lambda: self._print(choice), 0 if choice.chosen is not None else _NOTHING_CHOSEN)

    def _checked(self) -> Config:
        """The configuration, with all that can be checked before JAX is imported."""
        config = config_of(self.config, "discounted", self.discount)
        check_trials(self.trials, self.seed)
        check_data(self.data)
        if self.pulls and config.behaviour_pull is not None:
            raise ValueError("`--pulls` and `--behaviour-pull` must not both be given: several policies, or one.")
        if len(set(self.pulls)) < len(self.pulls) or any(not pull >= 0 for pull in self.pulls):
            raise ValueError(f"`pulls` must be different numbers of at least 0, got {list(self.pulls)}.")
        if self.preferences < 0:
            raise ValueError(f"`preferences` must be at least 0, got {self.preferences}.")
        return config

    def _summary(self, choice: Choice) -> dict[str, Any]:
        evaluation = choice.evaluation
        return {
            "data": str(self.data),
            "chosen": choice.chosen,
            "protected": list(self.protect),
            "candidates": {c.name: {"gain": c.gain, "against": list(c.against)} for c in choice.candidates},
            "signals": [] if choice.chosen is None else [vars(line) for line in evaluation.lines(choice.chosen)],
            "split": evaluation.split,
            "run_dir": str(self.out) if choice.chosen is not None else None,
        }

    def _print(self, choice: Choice) -> None:
        _print_changes(choice)
        print_lines(f"{each.name}: not chosen, {why}" for each in choice.candidates for why in each.against)
        if choice.chosen is None:
            wanted = f" with {', '.join(self.protect)}" if self.protect else ""
            print_lines([f"no candidate can be chosen{wanted}: Behavior-Clone stays"])
            return
        print_lines([f"chosen on validation users: {choice.chosen}; their numbers are a little too good"])
        print_paths(report=f"{self.out}/report.html", next=f"moac evaluate {self.out} --data {self.data}")


def _print_changes(choice: Choice) -> None:
    """A row for each signal, a column for each policy; changes to Behavior-Clone with 95 % intervals."""
    evaluation = choice.evaluation
    names = [each.name for each in choice.candidates]
    policies = [evaluation.report.policies[name] for name in names]
    columns = [[_change(line) for line in evaluation.lines(name)] for name in names]
    labels = [line.label for line in evaluation.lines(names[0])]
    shares = [f"{min(d.row_effective_share for d in policy.diagnostics):.2f}" for policy in policies]
    print_table(
        f"{evaluation.data}: change to Behavior-Clone on {evaluation.users:,} validation users",
        ["", *(f"{name} *" if name == choice.chosen else name for name in names)],
        [
            *([label, *(column[i] for column in columns)] for i, label in enumerate(labels)),
            None,
            ["effective share", *shares],
            ["verdict", *(policy.verdict.level for policy in policies)],
        ],
    )


def _change(line: Any) -> str:
    from moac.report.numbers import change

    if line.outcome == "not estimable":
        return line.outcome
    return change(line.relative, line.relative_interval)
