"""How far apart checkpoints of a large run are, and its memory:  python benchmarks/checkpoints.py [SECONDS].

A model of 10,000 states with 4 actions, 2 objectives and 4 successors, 500 trials of the default configuration. The age
of the state in the newest complete checkpoint is what a kill at the worst moment would repeat.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import moac
from moac import momdp
from moac.cli.process import use_all_cores

STATES, ACTIONS, OBJECTIVES, SUCCESSORS, TRIALS = 10_000, 4, 2, 4, 500
FEWEST = 8  # chunks


def model() -> momdp.FiniteMOMDP:
    """From state s to s + 1 and to s + n for three other n, each as likely; random rewards."""
    rng = np.random.default_rng(0)
    shape, states = (STATES, ACTIONS, SUCCESSORS), np.arange(STATES)
    steps = np.concatenate([[1], np.sort(rng.choice(np.arange(2, STATES), SUCCESSORS - 1, replace=False))])
    return momdp.FiniteMOMDP.from_outcomes(
        next_state=np.broadcast_to((states[:, None, None] + steps) % STATES, shape),
        probability=np.full(shape, 1 / SUCCESSORS),
        reward=rng.random((*shape, OBJECTIVES)),
        terminated=np.zeros(shape, bool),
        start=np.full(STATES, 1 / STATES),
    )


def watch(folder: Path, complete: dict[int, float], ended: threading.Event) -> None:
    """Note when the checkpoint of each iteration has come to its place."""
    while not ended.wait(0.01):
        for path in folder.glob("[0-9]*.safetensors"):
            complete.setdefault(int(path.stem), time.monotonic())


def until(seconds: float, taken: dict[int, float]) -> Callable[[moac.training.Snapshot], None]:
    """A callback that notes when each iteration was reached, and interrupts so long after the first, which compiles."""

    def callback(snapshot: moac.training.Snapshot) -> None:
        taken[snapshot.iteration] = now = time.monotonic()
        if now > min(taken.values()) + seconds and len(taken) > FEWEST:
            raise KeyboardInterrupt

    return callback


def main(seconds: float) -> None:
    """Train for a while and print."""
    use_all_cores()
    taken, complete, ended = dict[int, float](), dict[int, float](), threading.Event()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        run = Path(folder) / "run"
        watcher = threading.Thread(target=watch, args=(run / "checkpoint", complete, ended))
        watcher.start()
        try:
            moac.train(model(), trials=TRIALS, out=run, callback=until(seconds, taken))
        except KeyboardInterrupt:
            pass
        finally:
            ended.set()
            watcher.join()
        report(taken, complete)


def report(taken: dict[int, float], complete: dict[int, float]) -> None:
    """Print medians and maxima, from the second checkpoint on: before the first the program is compiled."""
    whole = sorted(complete)[1:]
    reached = [taken[iteration] for iteration in sorted(taken)][1:]
    rows = {
        "from one chunk to the next": np.diff(reached),
        "from one checkpoint to the next": np.diff([complete[k] for k in whole]),
        "from a state to its checkpoint": np.array([complete[k] - taken[k] for k in whole]),
        "oldest state that a kill leaves": np.array([complete[b] - taken[a] for a, b in itertools.pairwise(whole)]),
    }
    for name, values in rows.items():
        print(f"{name:34} {np.median(values):6.2f} s, at most {values.max():6.2f} s, {len(values)} times")
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(f"{'largest resident memory':34} {int(peak.split()[1]) / 1e6:6.2f} GB")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0)
