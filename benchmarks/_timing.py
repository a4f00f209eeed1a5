"""Measuring: wall and CPU seconds of a call or of a fresh process, and what machine it happened on."""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parent.parent
PEER_PYTHON = ROOT / ".venv-bench" / "bin" / "python"


@dataclass(frozen=True)
class Timing:
    """Seconds of several repeats of one thing. CPU seconds count all threads."""

    wall: tuple[float, ...]
    cpu: tuple[float, ...]

    @property
    def best(self) -> float:
        """Wall seconds of the fastest repeat."""
        return min(self.wall)

    @property
    def median(self) -> float:
        """Median wall seconds."""
        return median(self.wall)

    @property
    def best_cpu(self) -> float:
        """CPU seconds of the cheapest repeat."""
        return min(self.cpu)


def measure(function: Callable[[], Any], repeats: int = 5) -> Timing:
    """Time `function` in this process. Warm it up first if compilation is not what is asked."""
    return _repeat(function, time.process_time, repeats)


def measure_process(command: Sequence[str], exit_code: int = 0, repeats: int = 5) -> Timing:
    """Time a fresh process from start to exit. Another exit code, or a traceback, is an error and not a time."""

    def run() -> None:
        finished = subprocess.run(command, capture_output=True, text=True, check=False)
        if finished.returncode != exit_code or "Traceback" in finished.stderr:
            raise RuntimeError(f"{' '.join(command[1:])} ended with {finished.returncode}:\n{finished.stderr}")

    return _repeat(run, _children_cpu, repeats)


def run_peer(script: str, *arguments: str) -> dict[str, Any]:
    """Run benchmarks/peers/`script` in the peers' environment; its last line of output is one JSON object."""
    path = ROOT / "benchmarks" / "peers" / script
    finished = subprocess.run([str(PEER_PYTHON), str(path), *arguments], capture_output=True, text=True, check=False)
    if finished.returncode:
        raise RuntimeError(f"{script} failed:\n{finished.stderr}")
    return json.loads(finished.stdout.splitlines()[-1])


def machine() -> str:
    """The CPU, the number of cores this process may use, and how busy they are."""
    cores = len(os.sched_getaffinity(0))
    return f"{cpu_model()}, {cores} cores, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}"


def _repeat(function: Callable[[], Any], cpu_clock: Callable[[], float], repeats: int) -> Timing:
    wall, cpu = [], []
    for _ in range(repeats):
        started, started_cpu = time.perf_counter(), cpu_clock()
        function()
        wall.append(time.perf_counter() - started)
        cpu.append(cpu_clock() - started_cpu)
    return Timing(tuple(wall), tuple(cpu))


def _children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def cpu_model() -> str:
    """The CPU's name."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
