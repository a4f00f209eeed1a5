"""`moac offline compare | score | recommend`: methods side by side on a log, and what a policy recommends."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, final

import tyro

import moac
from moac.cli import process
from moac.cli.options import Answer, Command, DataPath, RequiredFolder, RunPath, check_run, option, required
from moac.cli.reproduce import begin, conclude, studies
from moac.config import check_trials
from moac.progress import Progress, say

_COMPAT_STEPS = 500
"""Of each learner, where the published ones took 240,000 to 1,000,000."""
Codes = Annotated[tuple[int, ...], option("INT [INT ...]", "default: none")]


@final
@dataclass(frozen=True, kw_only=True)
class Compare(Command):
    """Train Behavior-Clone, PDPG, TSCAC and MOAC with its ablations on a dataset; a table with intervals and trust."""

    data: tyro.conf.Positional[DataPath]
    trials: Annotated[int | None, option("INT", "default: 6; quick 2")] = None
    """Training seeds of each setting of each method."""
    iterations: Annotated[int | None, option("INT", "default: 1000; quick 50")] = None
    """Steps of each policy."""
    protocol: Literal["sound", "tscac-compat"] = "sound"
    """`tscac-compat` is the published protocol with its faults, each named; only iterations and seed may be set."""
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

        if self.trials is not None or self.test or self.quick:
            raise ValueError("`--protocol tscac-compat` takes --iterations and --seed only, got another.")
        files.check_folder("out", out)
        table = studies().published_protocol(self.data, self.iterations or _COMPAT_STEPS, self.seed)
        out.mkdir(parents=True, exist_ok=True)
        files.write_json(out / "tscac-compat.json", files.finite(table.as_dict()))
        files.write_bytes(out / "tscac-compat.txt", f"{table}\n".encode())
        return Answer(table.as_dict(), lambda: sys.stdout.write(f"{table}\n"))


@final
@dataclass(frozen=True, kw_only=True)
class Score(Command):
    """Write what a policy recommends to every user of a log, at the state after the user's last row, as CSV."""

    path: tyro.conf.Positional[RunPath]
    data: Annotated[Path | None, option("DATA", "default: where it was")] = None
    """The dataset that the run was trained on."""
    out: Annotated[Path | None, option("FILE", "required")] = None
    """The CSV file: user_id, rank, video_id, probability."""
    k: int = 10
    """Videos for each user."""
    exclude_seen: bool = False
    """Leave out videos that the user has viewed."""
    trial: int = 0
    """Which trial."""

    def answer(self) -> Answer:
        """Write the CSV file, and say how many users are in it."""
        check_run(self.path)
        out: Path = required("out", self.out, "with a file")
        if out.is_dir():
            raise ValueError(f"`out` must be a file, got {out}.")
        from moac import files
        from moac.offline import recommend
        from moac.runs import log_files

        files.check_folder("out", out.parent)
        began = time.monotonic()
        dataset = log_files.dataset_of(self.path, self.data)
        blocks = recommend.all_users(moac.load(self.path, self.trial), dataset, self.k, exclude_seen=self.exclude_seen)
        out.parent.mkdir(parents=True, exist_ok=True)
        with Progress() as progress:
            users, lines = recommend.write_csv(out, _shown(blocks, progress, len(recommend.last_rows(dataset))))
        absent = dataset.num_users - users
        record = {
            "run": str(self.path), "out": str(out), "users": users, "users_without_rows": absent, "lines": lines,
            "k": self.k, "seconds": time.monotonic() - began,
        }  # fmt: skip
        shown = f"{lines:,} recommendations to {users:,} users ({absent:,} more have no rows): {out}\n"
        return Answer(record, lambda: sys.stdout.write(shown))


def _shown(blocks: Iterable[Any], progress: Any, total: int) -> Iterator[Any]:
    done = 0
    for block in blocks:
        done += len(block.user_ids)
        progress.show("scoring", done, total)
        yield block


@final
@dataclass(frozen=True, kw_only=True)
class Recommend(Command):
    """Show what a policy recommends to one user; the run alone is needed, not its data."""

    path: tyro.conf.Positional[RunPath]
    user: Annotated[int | None, option("ID", "required")] = None
    """As the log names users."""
    context: Codes = ()
    """Codes of the request; for KuaiRand tab, hour and day of the week."""
    history: Codes = ()
    """Videos viewed before, by id, oldest first."""
    k: int = 10
    """How many videos."""
    exclude_seen: bool = False
    """Leave out videos of the history."""
    trial: int = 0
    """Which trial."""

    def answer(self) -> Answer:
        """Print the recommendation to one user."""
        check_run(self.path)
        user: int = required("user", self.user, "as the log names users")

        trained = moac.load(self.path, self.trial)
        recommended = trained.recommend(user, self.context, self.history, self.k, exclude_seen=self.exclude_seen)
        for note in recommended.notes:
            say(f"note: {note}")
        lines = [f"{rank:4d}  {name}  {p:.4g}\n" for rank, (name, p) in enumerate(recommended, start=1)]
        about = {"run": str(self.path), "user": user, "notes": list(recommended.notes)}
        record = about | {"ids": recommended.ids, "probabilities": recommended.probabilities}
        return Answer(record, lambda: sys.stdout.write("".join(["rank  id  probability\n", *lines])))
