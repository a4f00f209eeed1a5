"""How long the command line takes to answer, each time in a fresh process."""

from __future__ import annotations

import sys
from pathlib import Path

from _recorded import keep
from _timing import measure_process

TARGET_SECONDS = 0.5
MOAC = str(Path(sys.executable).parent / "moac")


def report() -> None:
    """Print the seconds of two commands that need no JAX, beside the interpreter's own start and an import of JAX."""
    _line("python -c pass (the limit)", [sys.executable, "-c", "pass"])
    _line("python -c 'import jax'", [sys.executable, "-c", "import jax"])
    target = f"target <= {TARGET_SECONDS} s"
    asked = _line("moac --help", [MOAC, "--help"], note=target)
    mistake = _line("moac train --no-such-option", [MOAC, "train", "--no-such-option"], exit_code=2, note=target)
    keep("startup", help=asked, mistake=mistake)


def _line(name: str, command: list[str], exit_code: int = 0, note: str = "") -> float:
    timing = measure_process(command, exit_code, repeats=5)
    print(f"{name:30} best of 5: {timing.best:6.3f} s wall, {timing.best_cpu:6.3f} s CPU   {note}")
    return timing.best
