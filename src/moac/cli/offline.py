"""`moac offline train | score | recommend`: a policy learned from a log, and what it recommends."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

import moac
from moac.choices import counted
from moac.cli import options, process
from moac.cli.console import print_lines, print_paths, print_table
from moac.cli.options import Answer, Command, RunPath, config_of, group, option
from moac.cli.train import config_shown
from moac.config import Config, check_trials
from moac.progress import Progress, say

if TYPE_CHECKING:
    from moac.offline.choose import Choice

    class LogConfig:
        """What shapes a run on a log."""
else:
    _KINDS = {"policy": ("linear", "mlp", "items")}
    LogConfig = options.config_options(options.NEVER_ON_A_LOG, _KINDS, options.LOG_DEFAULTS)

_NOTHING_CHOSEN = 1
_K = "default: 10, or fewer if there are fewer"


@dataclass(frozen=True, kw_only=True)
class Train(Command):
    """Train policies close to a dataset's behaviour and further away, and choose one on validation users."""

    data: tyro.conf.Positional[options.DataPath]
    config: Annotated[LogConfig, group("")]
    protect: Annotated[tuple[str, ...], option("SIGNAL=CHANGE% [...]", "default: none")] = ()
    """Largest allowed loss of a signal, such as Like=-1%; for a cost, its largest allowed rise: Dislike=+1%."""
    pulls: Annotated[tuple[float, ...], option("FLOAT [FLOAT ...]", "default: 1 0.3 0.1 0.03")] = ()
    """Coefficients of the KL regularisation towards the behaviour, a policy for each; --behaviour-pull is one alone."""
    preferences: int = 0
    """Random preference vectors over the signals: one more policy for each, with the rule `preferred`."""
    discount: Annotated[tuple[float, ...] | None, option("FLOAT [FLOAT ...]", "default: 0.5")] = None
    """One discount factor, or one per signal."""
    trials: int = 5
    """Training seeds of each policy."""
    seed: int = 0
    """Random seed; trial i depends on (seed, i) alone."""
    show_config: options.ShowConfig = False
    out: options.Folder
    """Run directory of the chosen policy; repeating the command continues an interrupted one."""

    def answer(self) -> Answer:
        """Fit how the log chose, train the candidates, choose on validation users, and say how it went."""
        config, out, began = self._checked(), self.out, time.monotonic()
        process.use_all_cores()
        from moac import settings

        dataset: Any = moac.api.source_of(self.data)
        if self.show_config:
            filled = settings.complete(replace(config, start=config.start or "random"), dataset.spec)
            return config_shown(filled, "Adam steps from the behaviour model, with KL regularisation towards it.")
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
        if not (self.data / "manifest.json").exists():
            raise ValueError(f"{self.data} is not a dataset: it has no manifest.json. Build one with moac data build.")
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
        terms = "Behavior-Clone is the policy that made the log, pull the coefficient of the KL term towards it"
        print_lines([f"{terms}; brackets are 95 % intervals over users."])
        print_lines(f"{each.name}: not chosen, {why}" for each in choice.candidates for why in each.against)
        if choice.chosen is None:
            wanted = f" with {', '.join(self.protect)}" if self.protect else ""
            kept = f"{self.out} is no run; its candidates are in {self.out / 'menu'}"
            print_lines([f"no candidate qualifies{wanted}: keep the log's own policy (Behavior-Clone). {kept}."])
            return
        print_lines([f"chosen on validation users: {choice.chosen}; its numbers above are slightly optimistic"])
        following = shlex.join(["moac", "evaluate", str(self.out), "--data", str(self.data)])
        print_paths(report=f"{self.out}/report.html", next=following)


def _print_changes(choice: Choice) -> None:
    """A row for each signal, a column for each policy; changes to Behavior-Clone with 95 % intervals."""
    evaluation = choice.evaluation
    names = [each.name for each in choice.candidates]
    policies = [evaluation.report.policies[name] for name in names]
    columns = [[_change(line) for line in evaluation.lines(name)] for name in names]
    labels = [line.label for line in evaluation.lines(names[0])]
    shares = [f"{min(d.row_effective_share for d in policy.diagnostics):.2f}" for policy in policies]
    print_table(
        f"{evaluation.data}: change to Behavior-Clone, {evaluation.users:,} validation users",
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


@dataclass(frozen=True, kw_only=True)
class Score(Command):
    """Write recommendations to a file: for requests, or for every user of the log after their last row."""

    run_path: tyro.conf.Positional[RunPath]
    requests: Annotated[Path | None, option("FILE", "default: every user of the log")] = None
    """CSV or Parquet: user_id, the context by name, history (a|b|c), responses (1 0|0 1|0 0), eligible (a|c).

    Without a history, the user's history and last context are taken from the log.
    """
    data: options.Data = None
    out: Annotated[Path, tyro.conf.arg(metavar="FILE")]
    """Output file, .parquet or .csv: user_id, rank, item_id, probability."""
    k: Annotated[int | None, option("INT", _K)] = None
    """Recommendations per request."""
    exclude_seen: bool = False
    """Leave out items that the user has viewed."""
    trial: options.Trial = 0

    def answer(self) -> Answer:
        """Write the file, and say how many users are in it."""
        out = self.out
        if out.is_dir() or out.suffix not in (".parquet", ".csv"):
            raise ValueError(f"`out` must be a file that ends in .parquet or .csv, got {out}.")
        from moac import files
        from moac.logs import requests
        from moac.offline import recommend
        from moac.runs import log_files
        from moac.training.trained import count_of

        files.check_folder("out", out.parent)
        began, absent = time.monotonic(), 0
        dataset: Any = log_files.dataset_of(self.run_path, self.data) if self.requests is None else None
        trained = moac.load(self.run_path, self.trial)
        k = count_of(self.k, len(trained.catalogue.action_ids))
        if self.requests is None:
            blocks = recommend.all_users(trained, dataset, k, exclude_seen=self.exclude_seen)
            total = int((requests.last_rows(dataset) >= 0).sum())
            absent = dataset.num_users - total
        else:
            catalogue: Any = trained.catalogue
            known = partial(log_files.dataset_of, self.run_path, self.data)
            read = requests.read(self.requests, catalogue, known, self.exclude_seen)
            blocks, total = recommend.answered(trained, read, k), 0
        with files.making(out.parent), Progress() as progress:
            told = recommend.write(out, _shown(blocks, progress, total))
        record = {"run": str(self.run_path), "out": str(out), "users_without_rows": absent, "k": k} | told
        rest = f" ({absent:,} more have no rows)" if self.requests is None else ""
        lines, users = counted(told["lines"], "recommendation", ","), counted(told["users"], "user", ",")
        shown = f"{lines} to {users}{rest}: {out}\n"
        of = [counted(told[f"unknown_{what}"], what[:-1], ",") for what in recommend.UNKNOWN]
        shown += f"unknown to the run: {', '.join(of)}\n" if self.requests is not None else ""
        without = counted(told["without"], "request" if self.requests is not None else "user", ",")
        shown += f"no action is left to recommend: {without}\n" if told["without"] else ""
        return Answer(record | {"seconds": time.monotonic() - began}, lambda: sys.stdout.write(shown))


def _shown(blocks: Iterable[Any], progress: Any, total: int) -> Iterator[Any]:
    done = 0
    for block in blocks:
        done += len(block.user_ids)
        progress.show("scoring", done, max(done, total))
        yield block


@dataclass(frozen=True, kw_only=True)
class Recommend(Command):
    """Show recommendations for one user, by the history in the dataset or a given one."""

    run_path: tyro.conf.Positional[RunPath]
    user: Annotated[str, tyro.conf.arg(metavar="ID")]
    """User id, as in the log."""
    context: Annotated[tuple[str, ...], option("VALUE [VALUE ...]", "default: that of the user's last row")] = ()
    """Context of the request, in the log's order or as NAME=VALUE; for KuaiRand tab, hour and day of the week."""
    history: Annotated[tuple[str, ...] | None, option("ID [ID ...]", "default: as in the dataset")] = None
    """Items viewed before, oldest first."""
    eligible: Annotated[tuple[str, ...] | None, option("ID [ID ...]", "default: all")] = None
    """Items that may be recommended."""
    k: Annotated[int | None, option("INT", _K)] = None
    """Number of recommendations."""
    exclude_seen: bool = False
    """Leave out items of the history."""
    data: options.Data = None
    trial: options.Trial = 0

    def answer(self) -> Answer:
        """Print the recommendation to one user."""
        from moac.offline import recommend

        how: dict[str, Any] = {"k": self.k, "exclude_seen": self.exclude_seen, "eligible": self.eligible}
        trained = moac.load(self.run_path, self.trial)
        context = self._context(getattr(trained.catalogue, "context_names", ()))
        dataset = self._dataset(trained) if self.history is None else None
        if dataset is not None:
            recommended = recommend.known_user(trained, dataset, self.user, context, **how)
        else:
            recommended = trained.recommend(self.user, context, self.history or (), **how)
        for note in recommended.notes:
            say(f"note: {note}")
        names = [str(name) if str(name).isprintable() else repr(name) for name in recommended.ids]
        width, rows = max(map(len, ["item", *names])), zip(names, recommended.probabilities, strict=True)
        lines = [f"{rank:4d}  {name:{width}}  {p:.4g}\n" for rank, (name, p) in enumerate(rows, start=1)]
        about = {"run": str(self.run_path), "user": self.user, "notes": list(recommended.notes)}
        record = about | {"ids": recommended.ids, "probabilities": recommended.probabilities}
        return Answer(record, lambda: sys.stdout.write("".join([f"rank  {'item':{width}}  probability\n", *lines])))

    def _context(self, names: Sequence[str]) -> Any:
        """Values by name where all words are such; a value may hold an equals sign where no column has that name."""
        parts = [word.partition("=") for word in self.context]
        named = {name: value for name, equals, value in parts if equals}
        alike = len(named) == len(parts) and (len(named) != len(names) or {*named} & {*names})
        return named if named and alike else self.context

    def _dataset(self, trained: Any) -> Any:
        """The run's data, if it is there; one that is named, or whose context is needed, must be."""
        from moac.runs import log_files

        try:
            return log_files.dataset_of(self.run_path, self.data)
        except ValueError as error:
            if self.data is not None or (not self.context and trained.catalogue.context_sizes):
                raise
            say(f"note: no history: {error}")
            return None
