"""`moac data`: build a dataset from a log, describe it; KuaiRand's download, build, generate. None needs JAX."""

from __future__ import annotations

import os
import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from moac.choices import counted
from moac.cli import options, process
from moac.cli.console import print_lines, print_paths, print_table
from moac.cli.options import Answer, Command, option
from moac.progress import Progress, say

if TYPE_CHECKING:
    from moac.logs.folder import Description
    from moac.logs.schema import LogFiles

Variant = Annotated[str, tyro.conf.arg(metavar="VARIANT", help="pure (47 MB), 1k (1.1 GB) or 27k (9.9 GB).")]
Actions = Annotated[int | Literal["all"] | None, option("INT|all", "default: 150, or fewer if there are fewer")]
Source = Annotated[Path, tyro.conf.arg(metavar="SRC", help="A folder with KuaiRand's files, by their official names.")]


@dataclass(frozen=True, kw_only=True)
class _Writing(Command):
    """A command that writes a folder."""

    out: options.Folder
    """Output folder."""

    def answer(self) -> Answer:
        """Write, and say what came out."""
        began = time.monotonic()
        with Progress() as progress:
            summary = self.write(self.out, progress.show)
        return Answer(summary | {"seconds": time.monotonic() - began}, lambda: None)

    def write(self, out: Path, show: Any) -> dict[str, Any]:
        """Write into the folder and return the JSON object; `show(stage, done, total)` is told how far it is."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Download(_Writing):
    """Download KuaiRand from Zenodo, verify and unpack it; repeat to continue an interrupted download."""

    variant: tyro.conf.Positional[Variant]

    def write(self, out: Path, show: Any) -> dict[str, Any]:
        """Fetch and unpack."""
        from moac.kuairand import download

        folder = download.fetch(self.variant, out, progress=lambda done, total: show("download", done, total))
        say(f"unpacked: {folder}")
        return {"variant": self.variant, "folder": str(folder)}


@dataclass(frozen=True, kw_only=True)
class _Building(_Writing):
    """A command that builds a dataset."""

    actions: Actions = None
    """K, the number of actions: the items that train users viewed most; all includes items that nobody has viewed, for
    --policy items."""
    split: Annotated[str, tyro.conf.arg(metavar="RULE")] = "users"
    """Hold-out rule: users; time:DATE trains on all rows before it; unseen:DATE also holds out other users after it."""
    split_seed: int = 0
    """Seed of the hash that splits users."""
    shares: Annotated[tuple[float, float, float], tyro.conf.arg(metavar="FLOAT FLOAT FLOAT")] = (0.8, 0.1, 0.1)
    """Shares of users in train, validation and test."""
    history_responses: Literal["on", "off"] = "on"
    """Whether states include the responses to viewed items; off is the state of the paper and of the public code."""
    memory: Annotated[str, tyro.conf.arg(metavar="SIZE", aliases=["--memory-limit"])] = "2GB"
    """Memory limit of each process; what does not fit is spilled to disk beside the dataset."""
    threads: options.Workers = None
    """Threads of DuckDB."""
    executor: options.ExecutorName = "serial"
    """Process buckets of users here, in processes of this machine, or on Ray."""
    workers: options.Workers = None
    """Buckets at a time, one core each."""
    address: options.Address = None

    def write(self, out: Path, show: Any) -> dict[str, Any]:
        """Build a dataset that does not exist yet."""
        from moac import files
        from moac.logs.building import Options, build
        from moac.runs import executors

        files.check_folder("out", out.parent)
        named: dict[str, Any] = {n: getattr(self, n) for n in ("actions", "split", "split_seed", "shares", "threads")}
        chosen = Options(**named, memory_limit=self.memory, history_responses=self.history_responses == "on")
        source = self.files()
        opened = executors.opened(self.executor, workers=self.workers, address=self.address)
        with process.continued(f"the same command continues {out}"), opened as executor:
            about = build(source, out, chosen, executor=executor, progress=show)
        return self._told(about, out)

    def files(self) -> LogFiles:
        """What is built."""
        raise NotImplementedError

    def _told(self, about: dict[str, Any], out: Path) -> dict[str, Any]:
        """Say what the manifest says of the build, and return it."""
        for line in (*(f"absent: {n}" for n in about["absent"]), *(f"warning: {w}" for w in about["warnings"])):
            say(line)
        rows, logs, actions = about["parts"]["rows"], about["logs"], about["actions"]
        for split, share in zip(("validation", "test"), self.shares[1:], strict=True):
            users = rows["splits"][split]["users"]
            if share and users < 2:  # an interval needs two
                remedy = "change --shares, --split-seed or the date of --split"
                say(f"warning: {counted(users, f'{split} user')}, too few to evaluate on: {remedy}.")
        if not self.json:
            for name, log in logs.items():
                dropped = counted(log["duplicates"], "exact duplicate", ",")
                sys.stdout.write(f"{_log(name, logs)}: {counted(log['rows_read'], 'row', ',')}, {dropped} dropped\n")
            share = rows["rows"] / logs[about["primary"]]["rows"]
            of = f", {share:.1%} of all rows" if share < 1 else ""
            sys.stdout.write(f"{_size(rows)} on {counted(actions, 'item')}{of}: {out}\n")
            print_paths(next=shlex.join(["moac", "data", "describe", str(out)]))
        counts = {name: {key: log[key] for key in ("rows_read", "duplicates", "rows")} for name, log in logs.items()}
        return {
            "data": str(out), "name": about["name"], "content": about["content"], "logs": counts, "rows": rows["rows"],
            "users": rows["users"], "actions": actions, "absent": about["absent"], "warnings": about["warnings"],
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Build(_Building):
    """Build a dataset from your own log: CSV (also gzip) or Parquet, a file, a folder or a glob.

    The actions are the K items that train users were shown most.
    """

    log: tyro.conf.Positional[Annotated[tuple[str, ...], option("LOG [LOG ...]", "required")]] = ()
    """CSV or Parquet files, one row per shown item."""
    user: Annotated[str, tyro.conf.arg(metavar="COLUMN")] = "user_id"
    """Column of user ids: integers or strings."""
    item: Annotated[str, tyro.conf.arg(metavar="COLUMN")] = "item_id"
    """Column of the ids of shown items, likewise."""
    time: Annotated[str, tyro.conf.arg(metavar="COLUMN")] = "time"
    """Column of times: dates or numbers."""
    signals: Annotated[str, option("COLUMN[,…]", "required")] = ""
    """Objectives: columns, or SQL such as watch=play/duration; a minus marks a cost to minimise: -returned."""
    context: Annotated[str, option("COLUMN[,…]", "default: none")] = ""
    """Context columns of a request, such as tab,hour."""
    propensity: Annotated[str | None, option("COLUMN", "default: none")] = None
    """Column of propensities: the probability with which the log's policy chose the item."""
    candidates: Annotated[str | None, option("COLUMN", "default: all items")] = None
    """Column of the items that could be shown: a list, or a string such as a|b|c; all items are actions then."""
    users: Annotated[str | None, option("FILE", "default: none")] = None
    """File of user features: ids in a column named as --user, every other column is a feature."""
    items: Annotated[str | None, option("FILE", "default: none")] = None
    """File of item features, likewise."""
    name: Annotated[str | None, option("TEXT", "default: the name of the file")] = None
    """Name of the dataset."""

    def files(self) -> LogFiles:
        """The files, with the meaning of their columns."""
        from moac.logs import schema

        if not self.log:
            raise ValueError("`LOG` must be given: moac data build LOG. See moac data build --help.")
        row = (self.user, self.item, self.time)
        meaning = schema.declared(*row, self.signals, self.context, self.propensity, self.candidates)
        return schema.find(self.log, meaning, users=self.users, items=self.items, name=self.name)


@dataclass(frozen=True, kw_only=True)
class BuildKuaiRand(_Building):
    """Build a dataset from KuaiRand's files, whose columns and signals are known."""

    source: tyro.conf.Positional[Source]
    random: Annotated[
        Path | None,
        tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: the one in SRC, if any)", aliases=["--random-log"]),
    ] = None
    """A log of uniformly random exposure; ids are the same in all variants, so 1K's log also serves Pure."""

    def files(self) -> LogFiles:
        """The official files in the folder."""
        from moac import kuairand

        return kuairand.find(self.source, self.random)


@dataclass(frozen=True, kw_only=True)
class Generate(_Writing):
    """Simulate a log in KuaiRand's format from a seeded model of users, whose true policy values are known."""

    rows: int = 100_000
    """Rows of the standard logs."""
    variant: Annotated[str, tyro.conf.arg(metavar="{pure,1k,27k}")] = "pure"
    """Variant whose files are written."""
    seed: int = 0
    """Random seed."""
    random_rows: Annotated[int | None, option("INT", "default: 5 % of --rows")] = None
    """Rows of the log of random exposure."""

    def write(self, out: Path, show: Any) -> dict[str, Any]:
        """Write the variant's folder."""
        from moac.kuairand import generate

        parameters = generate.Parameters(self.rows, self.variant, self.seed, self.random_rows)
        folder = generate.write(parameters, out, lambda done, total: show("rows", done, total))
        say(f"written: {folder}")
        return {"variant": self.variant, "rows": self.rows, "seed": self.seed, "folder": str(folder)}


@dataclass(frozen=True, kw_only=True)
class Describe(Command):
    """Describe a dataset: signals, splits, rows per user, days; with a figure."""

    data: tyro.conf.Positional[options.DataPath]
    out: Annotated[Path | None, option("DIR", "default: DATA/figures")] = None
    """Folder for the figure."""

    def answer(self) -> Answer:
        """Compute, draw and print; a manifest that says nonsense is refused."""
        from moac.logs.folder import MANIFEST, describe

        try:
            description = describe(self.data)
            figure = self._drawn(description)
            if not self.json:
                _print(description)
                print_lines(f"• {line}" for line in _notes(description))
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise ValueError(f"{self.data / MANIFEST} is damaged: {error} is missing or wrong.") from None
        if figure is not None:
            say(f"figure: {figure}")
        say(f"next: moac offline train {shlex.quote(str(self.data))} --out RUN")
        return Answer(description.summary() | {"figure": None if figure is None else str(figure)}, lambda: None)

    def _drawn(self, description: Description) -> Path | None:
        """The figure, beside the data; where that cannot be written, none unless a folder is given."""
        from moac import files
        from moac.report import figures, log_figures

        if self.out is None and not os.access(self.data, os.W_OK):
            say(f"no figure: {self.data} is not writable. Give --out.")
            return None
        folder = files.below(self.data, "figures") if self.out is None else self.out
        files.check_folder("out", folder)
        with files.making(folder):
            figures.write(folder, "description", log_figures.description(description))
        return folder / "description.png"


def _print(description: Description) -> None:
    """Amount and share of each signal, as in the paper, and what a row has of it on average; users and rows."""
    from moac.logs.splits import SPLITS

    amounts = {name: [description.splits[split]["signals"][name]["amount"] for split in SPLITS]
               for name in description.signals}  # fmt: skip
    print_table(
        f"{description.name}: signals of the rows on its actions",
        ("signal", "mean per row", "share of amounts", "amount", *SPLITS),
        [
            (name, signal["mean"], f"{signal['share']:.3%}", signal["amount"], *amounts[name])
            for name, signal in description.signals.items()
        ],
    )
    splits = (*description.splits.items(), ("all", description.manifest["parts"]["rows"]))
    rows = [(name, part["users"], part["rows"], part["rows"] / max(part["users"], 1)) for name, part in splits]
    rule = description.manifest["options"].get("split", "users").replace("users", "hash of users")
    print_table(f"Splits, by {rule}", ("", "users", "rows", "rows per user"), rows)


def _log(name: str, logs: dict[str, Any]) -> str:
    """KuaiRand has a standard and a random log; a single one needs no name."""
    return "log" if list(logs) == ["standard"] else f"{name} log"


def _size(part: dict[str, Any]) -> str:
    return f"{counted(part['rows'], 'row', ',')} of {counted(part['users'], 'user', ',')}"


def _notes(description: Description) -> list[str]:
    about, spread = description.manifest, description.manifest["parts"]["rows"]["rows_per_user"]
    notes = [
        "the amount of a signal is the number of rows where it is not 0, also in each split; its share is of the "
        "amounts of all signals",
        f"{counted(description.num_rows, 'state', ',')} (one a row), {counted(description.num_actions, 'action')}, "
        f"{counted(len(description.signals), 'signal')}",
        f"rows per user: median {spread['median']:.0f}, 90 % up to {spread['p90']:.0f}, largest {spread['max']:.0f}",
    ]
    for name, log in about["logs"].items():
        days, read = list(log["days"]), counted(log["rows_read"], "row", ",")
        rows = f"{read}, {log['rows']:,} without exact duplicates"
        notes.append(f"{_log(name, about['logs'])}: {rows}{f'; {days[0]} to {days[-1]}' if days else ''}")
    random = about["parts"].get("random")
    if random is not None:
        notes.append(f"random exposure on these actions: {_size(random)}")
    rare = [name for name, signal in description.splits["test"]["signals"].items() if signal["amount"] < 30]
    if rare:
        notes.append(f"fewer than 30 test rows have {', '.join(rare)}: held-out averages of these are noise")
    return [*notes, *(f"absent: {name}" for name in about["absent"]), *(f"warning: {w}" for w in about["warnings"])]
