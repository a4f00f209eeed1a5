"""How long the command line takes to answer, in fresh processes; and how long until training shows its first result."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _recorded import keep
from _timing import measure_process

TARGET_SECONDS, TARGET_FIRST_RESULT = 0.5, 4.0
MOAC = str(Path(sys.executable).parent / "moac")


def report() -> None:
    """Print the seconds of two commands that need no JAX, beside the interpreter's own start and an import of JAX."""
    _line("python -c pass (the limit)", [sys.executable, "-c", "pass"])
    _line("python -c 'import jax'", [sys.executable, "-c", "import jax"])
    target = f"target <= {TARGET_SECONDS} s"
    asked = _line("moac --help", [MOAC, "--help"], note=target)
    mistake = _line("moac train --no-such-option", [MOAC, "train", "--no-such-option"], exit_code=2, note=target)
    first = min(_first_result("resource-gathering-v0") for _ in range(3))
    name = "moac train resource-gathering-v0, its first result"
    print(f"{name:50} best of 3: {first:6.3f} s wall, nothing compiled before   target <= {TARGET_FIRST_RESULT} s")
    keep("startup", help=asked, mistake=mistake, first_result=first)


def _first_result(env: str) -> float:
    """Seconds from the start of the process to the line of the first evaluated iteration, with an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        command = [MOAC, "train", env, "--out", f"{folder}/run"]
        environment, started = {**os.environ, "MOAC_CACHE": f"{folder}/programs"}, time.perf_counter()
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as training:
            for line in training.stderr or ():
                if line.startswith("iteration "):
                    seconds = time.perf_counter() - started
                    training.kill()
                    return seconds
    raise RuntimeError(f"{' '.join(command[1:])} showed no result.")


def _line(name: str, command: list[str], exit_code: int = 0, note: str = "") -> float:
    timing = measure_process(command, exit_code, repeats=5)
    print(f"{name:30} best of 5: {timing.best:6.3f} s wall, {timing.best_cpu:6.3f} s CPU   {note}")
    return timing.best
