"""What a fresh process uses: seconds, CPU seconds and peak memory of exactly that process.

A process starts with the peak of the one that forked it, and a benchmark that has loaded JAX is large: so a small
Python between the two starts the command and waits for it (this file, run as a script).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Usage:
    """Of one process; `answer` is the JSON object of its last line."""

    wall: float
    cpu: float
    peak: int
    answer: Any


def measured(command: Sequence[str]) -> Usage:
    """Run a command that ends with one JSON object; another exit code is an error and not a number."""
    done = subprocess.run([sys.executable, "-S", __file__, *command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:3])} failed:\n{done.stderr}")
    *_, answer, usage = done.stdout.splitlines()
    return Usage(**json.loads(usage), answer=json.loads(answer))


def main(command: Sequence[str]) -> int:
    """Run it, then print what it used."""
    began = time.perf_counter()
    process = subprocess.Popen(command)
    _, status, used = os.wait4(process.pid, 0)
    wall, unit = time.perf_counter() - began, 1 if sys.platform == "darwin" else 1024
    found = {"wall": wall, "cpu": used.ru_utime + used.ru_stime, "peak": used.ru_maxrss * unit}
    print(json.dumps(found), flush=True)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
