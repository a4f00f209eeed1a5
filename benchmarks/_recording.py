"""What the records of peers share: where they were made, with what, and how they are written."""

from __future__ import annotations

import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from _timing import cpu_model, run_peer

_OF_PEERS = ("morl-baselines", "mo-gymnasium", "torch")
_versions: dict[str, str] = {}
"""Of the peers' packages, as their processes tell them."""


def peer_run(script: str, *arguments: Any) -> dict[str, Any]:
    """What one process of a peer answers, without its versions, which are kept for `about`."""
    run = run_peer(script, *map(json.dumps, arguments))
    _versions.update({name: run.pop(name) for name in _OF_PEERS})
    shown = " ".join(str(argument) for argument in arguments if not isinstance(argument, list))
    print(f"{script} {shown}: {run['cpu']:.1f} CPU s", flush=True)
    return run


def about(command: str) -> dict[str, Any]:
    """The beginning of a record: how it was made, where and with what versions."""
    return {
        "format": 1,
        "command": command,
        "machine": {"cpu": cpu_model(), "cores": len(os.sched_getaffinity(0)), "load": round(os.getloadavg()[0], 1)},
        "versions": {
            **{name: version(name) for name in ("moac", "jax", "numpy")},
            **_versions,
            "python": platform.python_version(),
        },
    }


def write(path: Path, content: dict[str, Any]) -> None:
    """As JSON on one line."""
    path.write_text(json.dumps(content, separators=(",", ":"), ensure_ascii=False) + "\n")
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")
