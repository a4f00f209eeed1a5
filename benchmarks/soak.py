"""Train and report without end in one process, and watch its memory: `python benchmarks/soak.py --minutes 30`.

Runs of a model, of a real environment and of its checkpoints take turns, each written, reported, opened again and
removed. Prints the slope of resident memory after a warm-up, by least squares, and exits with 1 above 1 MB a minute.
"""

import argparse
import gc
import itertools
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import moac
from moac import api, envs, momdp
from moac.machine import quiet
from moac.report import pages
from moac.runs import runner
from moac.runs.directory import RunDirectory, load
from moac.training import result

LIMIT = 1.0
"""MB a minute."""
WARM_UP = 0.2
"""Share of the time in which programs are compiled and caches fill."""


def resident():
    """MB of memory that the process has now."""
    count = int(Path("/proc/self/statm").read_text().split()[1])
    return count * os.sysconf("SC_PAGE_SIZE") / 2**20


def problems():
    """A model, and a real environment that is stepped on the host."""
    sizes = {"num_critic_steps": 2, "critic_batch_size": 32, "actor_batch_size": 64, "num_evaluations": 10}
    yield momdp.library.resource_gathering(), moac.Config(num_iterations=500, **sizes), 64
    yield envs.make("fishwood-v0", num_envs=4, evaluation_episodes=2), moac.Config(num_iterations=100, **sizes), 2


def one_run(problem, config, trials, folder):
    """Train with checkpoints, write everything, open it again, remove it."""
    run = result.prepare(problem, config, trials, 0)
    directory = RunDirectory.create(folder, run)
    outcome = result.Result.of(run, runner.train(directory, run, every=0.1))
    directory.finish(outcome, api.training_figures(outcome))
    pages.write(folder)
    load(folder)
    shutil.rmtree(folder)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=30.0)
    minutes = parser.parse_args().minutes
    began, seen, runs = time.monotonic(), [], 0
    with quiet(), tempfile.TemporaryDirectory() as place:
        for problem, config, trials in itertools.cycle(list(problems())):
            one_run(problem, config, trials, Path(place) / "run")
            runs += 1
            gc.collect()
            seen.append(((time.monotonic() - began) / 60, resident()))
            if seen[-1][0] >= minutes:
                break
    at, megabytes = np.array([row for row in seen if row[0] >= WARM_UP * minutes]).T
    slope = float(np.polyfit(at, megabytes, 1)[0])
    found = {"minutes": seen[-1][0], "runs": runs, "slope_mb_per_minute": slope}
    print(json.dumps(found | {"resident_mb": [float(megabytes[0]), float(megabytes[-1]), float(megabytes.max())]}))
    return int(slope > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
