"""`moac offline compare | score | recommend`: methods side by side on a log, and what a policy recommends."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

import moac
from moac.cli import process
from moac.cli.options import Answer, Command, DataPath, RequiredFolder, RunPath, check_run, option, required
from moac.cli.reproduce import begin, conclude, studies
from moac.config import check_trials
from moac.progress import Progress, say

_COMPAT_STEPS = 500
"""Of each learner, where the published ones took 240,000 to 1,000,000."""


@dataclass(frozen=True, kw_only=True)
class Compare(Command):
    """Train PDPG, TSCAC and MOAC with its ablations on a dataset, beside baselines that know items and no person."""

    data: tyro.conf.Positional[DataPath]
    trials: Annotated[int | None, option("INT", "default: 6; quick 2")] = None
    """Training seeds of each setting of each method."""
    iterations: Annotated[int | None, option("INT", "default: 1000; quick 50")] = None
    """Steps of each policy."""
    protocol: Literal["sound", "tscac-compat"] = "sound"
    """`tscac-compat` is the published protocol with its faults, each named; only iterations and seed may be set."""
    feature: Annotated[str | None, option("NAME", "default: duration, where items have it")] = None
    """Of items, for the baseline of one feature alone; a minus before it turns it round."""
    test: bool = False
    """Read test users, once, for the settings that validation users chose; it is noted."""
    quick: bool = False
    """A reduced run, for a first look."""
    seed: int = 0
    """Of all methods alike."""
    out: RequiredFolder = None
    """Folder of the comparison; the same command continues what was interrupted."""

    def answer(self) -> Answer:
        """Compare, and write the report."""
        check_trials(1 if self.trials is None else self.trials, self.seed)
        out: Path = required("out", self.out, "with a folder")
        if self.iterations is not None and self.iterations < 1:
            raise ValueError(f"`iterations` must be at least 1, got {self.iterations}.")
        process.use_all_cores()
        from moac import files, locks

        if self.protocol == "tscac-compat":
            return self._compat(out)
        study = studies().comparison_of(self.data, self)
        files.check_folder("out", out)
        with process.continued(f"the same command continues {out}"), locks.folder(out):
            began = begin(study)
            studies().run(study, out, None, say)
            concluded = conclude(study, out, began)
        return Answer({**concluded.record, "data": str(self.data)}, concluded.show)

    def _compat(self, out: Path) -> Answer:
        """The published protocol on the rows at hand; its table, and every fault of it."""
        from moac import files

        if self.trials is not None or self.feature is not None or self.test or self.quick:
            raise ValueError("`--protocol tscac-compat` takes --iterations and --seed only, got another.")
        files.check_folder("out", out)
        table = studies().published_protocol(self.data, self.iterations or _COMPAT_STEPS, self.seed)
        out.mkdir(parents=True, exist_ok=True)
        files.write_json(out / "tscac-compat.json", files.finite(table.as_dict()))
        files.write_bytes(out / "tscac-compat.txt", f"{table}\n".encode())
        return Answer(table.as_dict(), lambda: sys.stdout.write(f"{table}\n"))


@dataclass(frozen=True, kw_only=True)
class Score(Command):
    """Write what a policy recommends to requests, or to every user of its log at the state after the last row."""

    path: tyro.conf.Positional[RunPath]
    requests: Annotated[Path | None, option("FILE", "default: all users of the log")] = None
    """CSV or Parquet: user_id, the context by name, history (a|b|c), responses (1 0|0 1|0 0), eligible (a|c).

    Without a history the user's own is taken from the log, and so is its last context.
    """
    data: Annotated[Path | None, option("DATA", "default: where it was")] = None
    """The dataset that the run was trained on."""
    out: Annotated[Path | None, option("FILE", "required")] = None
    """The file, .parquet or .csv: user_id, rank, item_id, probability."""
    k: int = 10
    """Items for each request."""
    exclude_seen: bool = False
    """Leave out items that the user has viewed."""
    trial: int = 0
    """Which trial."""

    def answer(self) -> Answer:
        """Write the file, and say how many users are in it."""
        check_run(self.path)
        out: Path = required("out", self.out, "with a file")
        if out.is_dir():
            raise ValueError(f"`out` must be a file, got {out}.")
        from moac import files
        from moac.logs import requests
        from moac.offline import recommend
        from moac.runs import log_files

        files.check_folder("out", out.parent)
        began, absent = time.monotonic(), 0
        dataset = log_files.dataset_of(self.path, self.data) if self.requests is None else None
        trained = moac.load(self.path, self.trial)
        if dataset is not None:
            blocks = recommend.all_users(trained, dataset, self.k, exclude_seen=self.exclude_seen)
            total = len(recommend.last_rows(dataset))
            absent = dataset.num_users - total
        else:
            catalogue: Any = trained.catalogue
            known = partial(log_files.dataset_of, self.path, self.data)
            read = requests.read(
                required("requests", self.requests, "with a file"), catalogue, known, self.exclude_seen
            )
            blocks, total = recommend.answered(trained, read, self.k), 0
        out.parent.mkdir(parents=True, exist_ok=True)
        with Progress() as progress:
            told = recommend.write(out, _shown(blocks, progress, total))
        record = {"run": str(self.path), "out": str(out), "users_without_rows": absent, "k": self.k} | told
        rest = f" ({absent:,} more have no rows)" if self.requests is None else ""
        shown = f"{told['lines']:,} recommendations to {told['users']:,} users{rest}: {out}\n"
        unknown = f"unknown to the run: {told['unknown_users']:,} users, {told['unknown_items']:,} items of histories\n"
        shown += unknown if self.requests is not None else ""
        return Answer(record | {"seconds": time.monotonic() - began}, lambda: sys.stdout.write(shown))


def _shown(blocks: Iterable[Any], progress: Any, total: int) -> Iterator[Any]:
    done = 0
    for block in blocks:
        done += len(block.user_ids)
        progress.show("scoring", done, max(done, total))
        yield block


@dataclass(frozen=True, kw_only=True)
class Recommend(Command):
    """Show what a policy recommends to one user; where the data is at hand, by the user's history in it."""

    path: tyro.conf.Positional[RunPath]
    user: Annotated[str | None, option("ID", "required")] = None
    """As the log names users."""
    context: Annotated[tuple[str, ...], option("VALUE [VALUE ...]", "default: that of the user's last row")] = ()
    """Of the request, in order, or each as NAME=VALUE; for KuaiRand tab, hour and day of the week."""
    history: Annotated[tuple[str, ...] | None, option("ID [ID ...]", "default: the user's own, where known")] = None
    """Items viewed before, oldest first."""
    eligible: Annotated[tuple[str, ...] | None, option("ID [ID ...]", "default: all")] = None
    """Items that may be recommended."""
    k: int = 10
    """How many items."""
    exclude_seen: bool = False
    """Leave out items of the history."""
    data: Annotated[Path | None, option("DATA", "default: where it was")] = None
    """The dataset that the run was trained on."""
    trial: int = 0
    """Which trial."""

    def answer(self) -> Answer:
        """Print the recommendation to one user."""
        check_run(self.path)
        user: str = required("user", self.user, "as the log names users")
        from moac.offline import recommend

        named = dict(word.split("=", 1) for word in self.context if "=" in word)
        context: Any = named if named and len(named) == len(self.context) else self.context
        how: dict[str, Any] = {"k": self.k, "exclude_seen": self.exclude_seen, "eligible": self.eligible}
        trained, dataset = moac.load(self.path, self.trial), None if self.history is not None else self._dataset()
        if dataset is not None:
            recommended = recommend.known_user(trained, dataset, user, context, **how)
        else:
            recommended = trained.recommend(user, context, self.history or (), **how)
        for note in recommended.notes:
            say(f"note: {note}")
        names = [str(name) if str(name).isprintable() else repr(name) for name in recommended.ids]
        width, rows = max(map(len, ["item", *names])), zip(names, recommended.probabilities, strict=True)
        lines = [f"{rank:4d}  {name:{width}}  {p:.4g}\n" for rank, (name, p) in enumerate(rows, start=1)]
        about = {"run": str(self.path), "user": user, "notes": list(recommended.notes)}
        record = about | {"ids": recommended.ids, "probabilities": recommended.probabilities}
        return Answer(record, lambda: sys.stdout.write("".join([f"rank  {'item':{width}}  probability\n", *lines])))

    def _dataset(self) -> Any:
        """The run's data, if it is there; one that is named must be."""
        from moac.runs import log_files

        try:
            return log_files.dataset_of(self.path, self.data)
        except ValueError:
            if self.data is not None:
                raise
            return None
