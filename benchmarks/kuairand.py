"""Building a dataset from generated logs: memory under a cap, time beside pandas, and what a batch costs afterwards."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
from _kuairand_batch import report_batch, report_memory
from _recorded import keep
from _timing import PEER_PYTHON, ROOT, measure
from _usage import Usage, measured

from moac.kuairand import generate
from moac.logs import LoggedDataset

SMALL, MIDDLE, LARGE, DENSE = 1_000_000, 3_000_000, 6_000_000, 1_460_000
"""Rows; the last give about 500,000 on 150 videos."""
REPEATS = 2
TARGET_PEAK, TARGET_CPU, TARGET_MEMORY, TARGET_LINEAR = 0.9e9, 0.7, 1 / 3, 1.2
ROWS_27K, ACTION_ROWS_27K, VIDEOS_27K = 323_464_444, 2_300_000, 32_038_725
"""All logs together; what 150 videos take of them, by the share in the published set; videos."""
_BUILD = """
import json, sys
from moac import kuairand
from moac.logs.building import Options, build
print(json.dumps(build(kuairand.find(sys.argv[1]), sys.argv[2], Options(memory_limit=sys.argv[3]))))
"""


def report() -> None:
    """Everything, in a folder of its own that is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for rows in (SMALL, MIDDLE, LARGE, DENSE):
            generated = measure(
                lambda rows=rows: generate.write(generate.Parameters(rows), root / f"{rows}"), repeats=1
            )
            print(f"  generated {rows:,} rows: {generated.best:.1f} s", flush=True)
        runs = _builds(root)
        _report_peers(root, runs)
        build(root, DENSE, "2GB")
        report_batch(_data(root, DENSE, "2GB"))
        report_memory(_data(root, DENSE, "2GB"))
        _report_estimate(root, runs)


def build(root: Path, rows: int, limit: str) -> Usage:
    """One build in a process of its own."""
    out = _data(root, rows, limit)
    shutil.rmtree(out, ignore_errors=True)
    return measured([sys.executable, "-c", _BUILD, str(root / f"{rows}"), str(out), limit])


def pandas(root: Path, rows: int) -> Usage:
    """The same steps by pandas."""
    script, out = ROOT / "benchmarks" / "peers" / "kuairand_pandas.py", root / "pandas"
    shutil.rmtree(out, ignore_errors=True)
    return measured([str(PEER_PYTHON), str(script), str(root / f"{rows}"), str(out)])


def _data(root: Path, rows: int, limit: str) -> Path:
    return root / f"data-{rows}-{limit}"


def _builds(root: Path) -> dict[str, list[Usage]]:
    """Every repeat runs all that is compared, since the machine's speed drifts; the cheapest of each comes first."""
    runs: dict[str, list[Usage]] = {"capped": [], "pandas": [], "middle": [], "small": []}
    for _ in range(REPEATS):
        runs["capped"].append(build(root, LARGE, "1GB"))
        runs["pandas"].append(pandas(root, LARGE))
        runs["middle"].append(build(root, MIDDLE, "1GB"))
        runs["small"].append(build(root, SMALL, "1GB"))
    runs["uncapped"] = [build(root, LARGE, "8GB")]
    for name, found in runs.items():
        found.sort(key=lambda usage: usage.cpu)
        print(f"  {name:8} {found[0].wall:6.1f} s, {found[0].cpu:6.1f} CPU s, {found[0].peak / 1e9:.2f} GB peak")
    return runs


def _report_peers(root: Path, runs: dict[str, list[Usage]]) -> None:
    ours, theirs = runs["capped"][0], runs["pandas"][0]
    peak = max(usage.peak for usage in runs["capped"])
    print(f"  {LARGE:,} rows under a cap of 1 GB: peak {peak / 1e9:.2f} GB   target < {TARGET_PEAK / 1e9:.1f}")
    contents = {usage.answer["content"] for name in ("capped", "uncapped") for usage in runs[name]}
    print(f"  content hash, capped and uncapped: {'the same' if len(contents) == 1 else 'DIFFERENT'}")
    print(f"  the rows, actions and rewards of pandas {theirs.answer['pandas']}: {_agreement(root, ours, theirs)}")
    print(f"  CPU, moac / pandas: {ours.cpu / theirs.cpu:.2f}   target <= {TARGET_CPU}")
    print(f"  peak memory, moac / pandas: {peak / theirs.peak:.2f}   target <= {TARGET_MEMORY:.2f}")
    keep("kuairand", cpu=ours.cpu, gb=peak / 1e9, peer_cpu=theirs.cpu, peer_gb=theirs.peak / 1e9,
         peer=f"pandas {theirs.answer['pandas']}")  # fmt: skip
    _report_growth(*(runs[name][0].cpu for name in ("small", "middle", "capped")))


def _report_growth(small: float, middle: float, large: float) -> None:
    """A straight line has one slope; what it costs before the first row is said apart."""
    slopes = (middle - small) / (MIDDLE - SMALL), (large - middle) / (LARGE - MIDDLE)
    first, growth = small - SMALL * (large - small) / (LARGE - SMALL), slopes[1] / slopes[0]
    print(
        f"  CPU of one more row, 3 to 6 M / 1 to 3 M rows: {growth:.2f}   target <= {TARGET_LINEAR}; before the first "
        f"row {first:.1f} CPU s; per row in all, 6 M / 1 M: {large / small * SMALL / LARGE:.2f}"
    )


def _agreement(root: Path, ours: Usage, theirs: Usage) -> str:
    """Whether both kept the same rows of the same videos, with the same sums."""
    dataset, found = LoggedDataset.from_parquet(_data(root, LARGE, "1GB")), theirs.answer
    sums = dataset.reward.sum(axis=0, dtype=np.float64)
    same = (
        sum(log["rows"] for log in ours.answer["logs"].values()) == found["rows_kept"]
        and dataset.num_rows == found["rows"]
        and dataset.action_ids.tolist() == found["actions"]
        and np.allclose(sums, found["reward"], rtol=1e-5)
    )
    return "the same" if same else "DIFFERENT"


def _report_estimate(root: Path, runs: dict[str, list[Usage]]) -> None:
    """27K by the slope between the two sizes, its Parquet by the row and its arrays by the row on an action."""
    large, small = runs["capped"][0], runs["small"][0]
    folder, kept = _data(root, LARGE, "1GB"), sum(log["rows"] for log in large.answer["logs"].values())
    minutes = ROWS_27K * (large.cpu - small.cpu) / (LARGE - SMALL) / 60
    parquet = ROWS_27K / kept * _size(folder / "rows")
    arrays = ACTION_ROWS_27K / large.answer["parts"]["rows"]["rows"] * _size(folder / "arrays")
    item = LoggedDataset.from_parquet(folder).tables.items.shape[1]
    print(
        f"  27K on paper, {ROWS_27K / 1e6:.0f} M rows: {minutes:.0f} CPU minutes; {parquet / 1e9:.1f} GB of Parquet, "
        f"{arrays / 1e9:.2f} GB of arrays;\n    memory: a bucket of {ROWS_27K / 256 / 1e6:.1f} M rows at a time under "
        f"the cap; at most {item * VIDEOS_27K / 1e9:.1f} GB more, were all {VIDEOS_27K / 1e6:.0f} M videos in states"
    )


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else sum(map(_size, path.iterdir()))
