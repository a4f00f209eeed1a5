"""The framework of the studies: a study as TOML, a workspace that measures once and keeps, and the report.

Every study is a module of this package with a function `run(study, work) -> Findings`.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moac.choices import did_you_mean

if TYPE_CHECKING:  # a command's help lists the studies: it must not wait for NumPy and Matplotlib
    from moac.files import Arrays
    from moac.report.pages.experiment import Findings

_KEYS = ("title", "study", "seed", "summary", "why", "parameters", "quick")

Table = Mapping[str, Any]  # One table of a study's file
Tables = Mapping[str, Table]
Job = tuple[str, Table]  # The label of a measurement, and what it depends on
Say = Callable[[str], None]  # Called with one line for each measurement


@dataclass(frozen=True)
class Study:
    """A study as data."""

    name: str  # of its file
    title: str  # of its report
    module: str  # of this package, which measures it
    seed: int  # of all randomness
    summary: str  # what is shown
    why: str  # how the parameters were chosen
    parameters: Tables  # tables by name, each with its own keys
    quick: bool  # whether this is the reduced run


@dataclass(frozen=True)
class Workspace:
    """A folder of finished measurements, so that an interrupted study goes on where it stopped."""

    folder: Path  # one file for each measurement
    say: Say  # tells the user what was measured and how long it took
    show: Any = None  # how training runs are displayed, as `moac.runs.runner.Show`; None displays nothing

    def keep(self, label: str, parameters: Table, measure: Callable[[], Arrays]) -> Arrays:
        """The arrays that `measure` returns, from the file of an earlier call where label and parameters agree."""
        done = self.finished(label, parameters)
        if done is not None:
            return done
        began = time.monotonic()
        arrays = measure()
        self._write((label, parameters), arrays)
        self.say(f"{label}: {time.monotonic() - began:.1f} s")
        return arrays

    def side_by_side(self, measure: Callable[[Table], Arrays], jobs: Sequence[Job]) -> list[Arrays | None]:
        """What `measure` finds of each job's parameters, one process for each core; what is finished is kept.

        A job that fails is said so, has None, and ends no other.
        """
        from moac import tasks
        from moac.runs import executors

        missing = [job for job in jobs if not self._path(*job).exists()]
        with executors.opened("process" if missing and tasks.cores() > 1 else "serial") as executor:
            outcomes = executor.map(partial(_quietly, measure), [parameters for _, parameters in missing])
            for count, outcome in enumerate(outcomes, 1):
                job, told = missing[outcome.index], "measured"
                if outcome.value is None:
                    told = f"failed: {outcome.failure and outcome.failure.message}"
                else:
                    self._write(job, outcome.value)
                self.say(f"{job[0]} {told} ({count} of {len(missing)})")
        return [self.finished(*job) for job in jobs]

    def finished(self, label: str, parameters: Table) -> Arrays | None:
        """What an earlier call has measured; None where none has."""
        from moac import files

        path = self._path(label, parameters)
        return files.read_arrays(path)[0] if path.exists() else None

    def _write(self, job: Job, arrays: Arrays) -> None:
        from moac import files

        with files.making(files.below(self.folder.parent, self.folder.name)):
            files.write_arrays(self._path(*job), arrays, dict(job[1]))

    def _path(self, label: str, parameters: Table) -> Path:
        identity = json.dumps([label, parameters], sort_keys=True)
        return self.folder / f"{label}-{hashlib.sha256(identity.encode()).hexdigest()[:10]}.safetensors"


def _quietly(measure: Callable[[Table], Arrays], parameters: Table) -> Arrays:
    """In a process of its own, which has its own warnings."""
    from moac.tasks import quiet

    with quiet():
        return measure(parameters)


def run(study: Study, out: Path, show: Any = None, say: Say = print) -> None:
    """Measure, judge and draw, in a folder of the measurements, figures and verdicts.

    What an earlier call has finished is kept. `show` and `say` as in `Workspace`.
    """
    from moac.report.pages import experiment as page
    from moac.tasks import quiet

    began, work = time.monotonic(), Workspace(out / ("tasks-quick" if study.quick else "tasks"), say, show)
    with quiet():
        module = importlib.import_module(f"moac_studies.{study.module}")
        findings: Findings = module.run(study, work)
    keys = {f"{table}: {key}": value for table, keys in study.parameters.items() for key, value in keys.items()}
    facts, settings = module.about(study) if hasattr(module, "about") else ({}, keys)
    told = (study.name, study.title, study.seed, study.summary, study.why)
    about = page.About(*told, facts, settings, study.quick, time.monotonic() - began)
    page.write(about, findings, out)


def names() -> tuple[str, ...]:
    """The studies that come with the package."""
    specs = resources.files("moac_studies") / "specs"
    return tuple(sorted(path.name.removesuffix(".toml") for path in specs.iterdir() if path.name.endswith(".toml")))


def load(name: str, quick: bool = False) -> Study:
    """The study of that name; `quick` is its reduced version."""
    if name not in names():
        known = (*names(), "all")
        raise ValueError(f"`NAME` must be one of {', '.join(known)}, got {name!r}.{did_you_mean(name, known)}")
    return parse(name, (resources.files("moac_studies") / "specs" / f"{name}.toml").read_text(), quick)


def parse(name: str, text: str, quick: bool = False) -> Study:
    """A study from its TOML; an unknown or missing key is an error.

    `[quick]` holds the tables of `[parameters]` again, with what the reduced run changes in them.
    """
    data = tomllib.loads(text)
    for key in (*(key for key in data if key not in _KEYS), *(key for key in _KEYS if key not in data)):
        raise ValueError(f"{name}.toml must have the keys {', '.join(_KEYS)}; {key!r} is unknown or missing.")
    full: dict[str, Table] = data["parameters"]
    for table in (table for table in data["quick"] if table not in full):
        raise ValueError(f"{name}.toml: [quick.{table}] must name one of {', '.join(full)}.")
    changes: Tables = data["quick"] if quick else {}
    tables = {table: {**values, **changes.get(table, {})} for table, values in full.items()}
    why = f"Of the full run: {_text(data['why'], full)}" if quick else _text(data["why"], full)
    summary = _text(data["summary"], tables)
    return Study(name, data["title"], data["study"], int(data["seed"]), summary, why, tables, quick)


def _text(text: str, tables: Tables) -> str:
    """A text in one line, in which `{table[key]}` is replaced by its value."""
    facts = {
        table: {key: "; ".join(map(str, value)) if isinstance(value, list) else value for key, value in values.items()}
        for table, values in tables.items()
    }
    return " ".join(text.split()).format_map(facts)
