"""Where and with what a run was made."""

from __future__ import annotations

import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

_PACKAGES = ("moac", "jax", "jaxlib", "numpy", "scipy", "mo-gymnasium")


def of_this_process(seed: int) -> dict[str, Any]:
    """Versions, commit, CPU, devices and seed."""
    return {
        "versions": {"python": platform.python_version(), **{name: metadata.version(name) for name in _PACKAGES}},
        "commit": _commit(),
        "cpu": _cpu(),
        "devices": [str(device) for device in jax.local_devices()],
        "seed": seed,
    }


def _commit() -> str | None:
    """The commit of the sources; None for an installed package, whatever repository its folder happens to be in."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return None
    try:
        answer = subprocess.run(
            ["git", "rev-parse", "HEAD"],  # noqa: S607
            cwd=root,
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
