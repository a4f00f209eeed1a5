"""Sweeps: what processes gain on this machine, what Ray adds to a task, and what many machines would take, on paper."""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
import time
from pathlib import Path

import ray
from _timing import ROOT
from _usage import Usage, measured

from moac import kuairand, tasks
from moac.kuairand import generate
from moac.logs.building import Options, build
from moac.runs import executors
from moac.runs.executors import Executor

TASKS, TARGET_SPEEDUP, SMALL, ROWS = 64, 1.7, 200, 1_000_000
MACHINES, MANY, BUILDERS, CORES, ROWS_27K = 32, 1_000, 8, 8, 323_464_444
"""Of the estimates on paper: machines of a sweep and its tasks; machines of a build, cores of each, rows of 27K."""
SPEC = """
env = "resource-gathering-v0"
trials = 32
[config]
num_iterations = 1500
num_evaluations = 5
[grid]
seed = [{seeds}]
"""
_MOAC = "import sys; from moac.cli.main import main; sys.exit(main())"
_PARALLEL = ("sorting users", "indexing users")


def report() -> None:
    """Everything, in a folder of its own that is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
        seconds = _report_speedup(Path(folder))
        overhead = _report_overhead()
        _report_many(seconds, overhead)
        _report_build(Path(folder))


def _report_speedup(root: Path) -> float:
    """One sweep by `moac sweep`, start included, with programs that another sweep has compiled; seconds of one task."""
    spec, first, cores = root / "seeds.toml", root / "first.toml", tasks.cores()
    spec.write_text(SPEC.format(seeds=", ".join(map(str, range(TASKS)))))
    first.write_text(SPEC.format(seeds=TASKS))
    for executor in ("serial", "process"):
        _swept(first, root / "first", executor)
    serial, process = _swept(spec, root, "serial"), _swept(spec, root, "process")
    same = all((root / "serial" / f).read_bytes() == (root / "process" / f).read_bytes() for f in ("results.csv",))
    each = serial.wall / TASKS
    print(f"  {TASKS} tasks of {each:.1f} s: serial {serial.wall:.0f} s, {cores} processes {process.wall:.0f} s")
    print(f"  speed-up of processes: {serial.wall / process.wall:.2f}   target >= {TARGET_SPEEDUP} on two idle cores")
    print(f"  CPU, processes / serial: {process.cpu / serial.cpu:.2f}; tables: {'the same' if same else 'DIFFERENT'}")
    return each


def _swept(spec: Path, root: Path, executor: str) -> Usage:
    root.mkdir(exist_ok=True)
    out, kept = root / executor, {"MOAC_CACHE": str(spec.parent / "programs"), "PYTHONPATH": str(ROOT / "src")}
    os.environ |= kept
    command = [sys.executable, "-c", _MOAC, "sweep", str(spec), "--executor", executor, "--out", str(out), "--json"]
    return measured(command)


def _report_overhead() -> float:
    """What a task costs beside itself: many that do nothing, beyond those that start the workers."""
    found: dict[str, float] = {}
    for name in ("process", "ray"):
        began = time.perf_counter()
        if name == "ray":
            ray.init(num_cpus=tasks.cores(), log_to_driver=False)
        with executors.opened(name, workers=tasks.cores()) as executor:
            _nothing(executor, tasks.cores())
            started = time.perf_counter() - began
            few, many = _nothing(executor, SMALL), _nothing(executor, 5 * SMALL)
        found[name] = (many - few) / (4 * SMALL)
        print(f"  {name:8} ready after {started:5.1f} s; {1e3 * found[name]:.2f} ms a task that does nothing")
    return found["ray"]


def _nothing(executor: Executor, count: int) -> float:
    began = time.perf_counter()
    tasks.results(executor.map(abs, list(range(count))))
    return time.perf_counter() - began


def _report_many(seconds: float, overhead: float) -> None:
    """Waves of tasks on all cores, plus what the one driver does for each of them."""
    waves = math.ceil(MANY / (MACHINES * CORES))
    print(
        f"  on paper, {MANY} tasks of {seconds:.1f} s on {MACHINES} machines of {CORES} cores: {waves} waves, "
        f"{waves * seconds:.0f} s, and {MANY * overhead:.0f} s of Ray's, mostly meanwhile; of 10 minutes each: "
        f"{waves * 10} minutes, against {MANY * 10 / 60:.0f} hours on one core"
    )


def _report_build(root: Path) -> None:
    source = generate.write(generate.Parameters(ROWS), root / "logs")
    about, stages = _built(source, root / "data-serial", executors.Serial())
    with executors.opened("process") as process:
        other, spread = _built(source, root / "data-process", process)
    whole, buckets = sum(stages.values()), sum(stages[name] for name in _PARALLEL)
    print(f"  {ROWS:,} rows built, by stage: {json.dumps({name: round(s, 1) for name, s in stages.items()})}")
    print(
        f"  buckets, serial / processes: {buckets / sum(spread[name] for name in _PARALLEL):.2f}; "
        f"content: {'the same' if about['content'] == other['content'] else 'DIFFERENT'}"
    )
    one, share = (whole - buckets) * ROWS_27K / ROWS / 60, buckets * ROWS_27K / ROWS / 60
    spread_out = share / min(256, BUILDERS * CORES)
    print(f"  on paper, {ROWS_27K / 1e6:.0f} M rows: {one + share:.0f} minutes on one core; on {BUILDERS} machines of")
    print(f"    {CORES} cores the buckets ({share:.0f} minutes) take {spread_out:.1f}, and the rest, on one, {one:.0f}")


def _built(source: Path, out: Path, executor: Executor) -> tuple[dict[str, str], dict[str, float]]:
    """The manifest, and the seconds of each stage."""
    began: dict[str, float] = {}

    def note(stage: str, done: int, total: int) -> None:
        del done, total
        began.setdefault(stage, time.perf_counter())

    about = build(kuairand.find(source), out, Options(threads=1), executor=executor, progress=note)
    times = [*began.values(), time.perf_counter()]
    return about, {name: after - before for name, before, after in zip(began, times[:-1], times[1:], strict=True)}
