"""Run commands one after the other in one process, and watch it:  python benchmarks/soak.py [MINUTES].

Training of each kind, exploration, evaluation, certificate, report and a log of one's own take turns, each in a folder
that is removed afterwards. Prints the slope of resident memory by least squares, after a warm-up in which programs are
compiled and caches fill, and the number of open files; exits with 1 above half a MB a minute, or where files stay open.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from moac.cli.main import main as moac

LIMIT = 0.5  # MB a minute
WARM_UP = 0.3  # share of the time
SMALL = "--iterations 30 --num-evaluations 3"
COMMANDS = (
    f"train resource-gathering-v0 {SMALL} --trials 16 --out model",
    "report model",
    "resume model --iterations 60",
    "certify model --episodes 100",
    "train resource-gathering-v0 --iterations 20 --num-evaluations 2 --trials 16 --seed 1 --out other",
    "compare model other --out compared",
    "export model",
    "front fishwood-v0",
    "theory fishwood-v0",
    "explore fishwood-v0 --iterations 50 --preferences 3 --rules fixed --out archive",
    "choose archive --prefer wood",
    f"train fishwood-v0 {SMALL} --blackbox --learner paper --num-envs 4 --trials 2 --out hosted",
    "evaluate hosted --episodes 5",
    "train mo-mountaincarcontinuous-v0 --steps 4096 --num-evaluations 1 --out ppo",
    "explore four-room-v0 --steps 4096 --preferences 3 --episodes 2 --out front",
    "data build log.csv --signals click,minutes --actions 20 --out log",
    "data describe log",
    "offline train log --behaviour-pull 0.1 --iterations 20 --num-evaluations 1 --out offline",
)
"""Each in the folder that those before it have filled."""


def write_log(path: Path) -> None:
    """A log of one's own: 100 users, 30 items, two signals."""
    rng = np.random.default_rng(0)
    table = [rng.integers(100, size=3000), rng.integers(30, size=3000), np.arange(3000), rng.integers(2, size=3000)]
    np.savetxt(path, np.column_stack([*table, rng.integers(9, size=3000)]), "%d", ",",
               header="user_id,item_id,time,click,minutes", comments="")  # fmt: skip


def watched() -> tuple[float, int]:
    """MB of memory that the process has now, and how many files are open."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20, len(os.listdir("/proc/self/fd"))


def once(command: str) -> None:
    """One command, which must end well; 1 is that of offline training where no candidate may be trusted."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = moac(command.split())
    if code not in (0, 1):
        sys.exit(f"moac {command} ended with {code}:\n{said.getvalue()[-2000:]}")


def main(minutes: float) -> int:
    """Rounds until the time is over; one row of what was seen after each."""
    began, seen = time.monotonic(), list[tuple[float, float, int]]()
    while len(seen) < 3 or seen[-1][0] < minutes:
        with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
            write_log(Path("log.csv"))
            for command in COMMANDS:
                once(command)
        gc.collect()
        seen.append(((time.monotonic() - began) / 60, *watched()))
    at, megabytes, opened = np.array([row for row in seen if row[0] >= WARM_UP * minutes] or seen).T
    slope = float(np.polyfit(at, megabytes, 1)[0])
    found = {"minutes": round(seen[-1][0], 1), "commands": len(seen) * len(COMMANDS), "MB a minute": round(slope, 3)}
    found |= {"MB": [round(float(x)) for x in (megabytes[0], megabytes[-1])], "open files": opened.astype(int).tolist()}
    print(json.dumps(found))
    return int(slope > LIMIT or opened[-1] > opened[0])


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 30.0))
