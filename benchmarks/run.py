"""Measure moac beside its peers and print the report:  python benchmarks/run.py [SECTION …].

Every ratio is taken between two things measured in this one run on this one machine. What stands in tables of the
documents is kept in recorded.json; `python benchmarks/tables.py` writes them.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from importlib.metadata import version

import jax
from _timing import machine

from moac.cli import process

SECTIONS = (
    "simplex", "startup", "training", "networks", "environments", "learner", "kuairand", "offline", "offpolicy",
    "items", "sweeps",
)  # fmt: skip


def main(names: list[str]) -> None:
    """Print the named sections, or all of them."""
    unknown = set(names) - set(SECTIONS)
    if unknown:
        sys.exit(f"unknown section {', '.join(sorted(unknown))}; there are: {', '.join(SECTIONS)}")
    if len(names) != 1:  # each in a process of its own: options of JAX, caches and memory of one are not another's
        for name in names or SECTIONS:
            subprocess.run([sys.executable, __file__, name], check=True)
        return
    jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))  # as the command line does
    if names[0] in ("environments", "learner"):
        process.dispatch_synchronously()  # likewise
    versions = ", ".join(f"{name} {version(name)}" for name in ("moac", "jax", "numpy", "scipy", "duckdb"))
    print(f"\n== {names[0]} {'=' * (96 - len(names[0]))}\n{machine()}\n{versions}", flush=True)
    importlib.import_module(names[0]).report()


if __name__ == "__main__":
    main(sys.argv[1:])
