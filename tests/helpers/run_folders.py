"""Folders of runs, as `moac train` writes them, with whatever a test wants in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import moac
from moac import files
from moac.momdp import FiniteMOMDP
from moac.runs.directory import RunDirectory
from moac.training import result

HOSTILE = "\"'><script>document.title = 'owned'</script><img src=http://127.0.0.1:9/x onerror=alert(1)>&{{ 7 * 7 }}"
CONFIG = moac.Config(
    setting=moac.Discounted(0.9),
    num_iterations=4,
    num_critic_steps=1,
    critic_batch_size=2,
    actor_batch_size=3,
    actor_step_size=0.1,
    critic_step_size=0.1,
)


SVG = "<svg xmlns='http://www.w3.org/2000/svg' width='30' height='20'><path d='M0 0h30v20z'/></svg>"


def model() -> FiniteMOMDP:
    """Two states, two actions, two objectives."""
    moved = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])
    return FiniteMOMDP.from_dense(moved, np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.0], [0.0, 0.25]]]))


def trained(folder: Path) -> Path:
    """The folder of a real run."""
    return moac.train(model(), CONFIG, trials=3, seed=7).save(folder)


def invented(folder: Path) -> Path:
    """The folder of a run that never was: 3 trials, 2 objectives, 2 logged iterations, its numbers known."""
    run = result.prepare(model(), CONFIG, trials=3, seed=7)
    RunDirectory.create(folder, run)
    arrays = dict.fromkeys(("gradient_norm_squared", "gap", "direction_gap", "regret"), np.ones((3, 2)))
    arrays |= dict.fromkeys(("weights", "min_norm_weights"), np.full((3, 2, 2), 0.5))
    arrays["iteration"] = np.array([1, 4])
    arrays["smallest_alignment"] = np.array([[1.0, 1.0], [-1e-9, 1.0], [-0.5, 1.0]])
    arrays["returns"] = np.array([[[0.0, 1.0], [1.0, 1.0]], [[0.0, 1.0], [2.0, 1.0]], [[0.0, 1.0], [3.0, 1.0]]])
    files.write_arrays(folder / "history.safetensors", arrays, {"format": 1, "kind": "exact"})
    files.write_arrays(folder / "policy.safetensors", {"stopped": np.array([0, 3, 2])}, {})
    (folder / "figures").mkdir()
    (folder / "figures" / "training.svg").write_text(SVG)
    return folder


def rewrite(path: Path, change: dict[str, Any]) -> None:
    """Change a JSON file at keys such as `problem.name`."""
    data = files.read_json(path)
    for key, value in change.items():
        *parents, last = key.split(".")
        inner = data
        for parent in parents:
            inner = inner[parent]
        inner[last] = value
    path.write_text(json.dumps(data))


def rewrite_history(folder: Path, change: dict[str, Any]) -> None:
    """Replace arrays of the history; None removes one."""
    arrays, about = files.read_arrays(folder / "history.safetensors")
    changed = {name: array for name, array in (arrays | change).items() if array is not None}
    files.write_arrays(folder / "history.safetensors", changed, about)


def make_hostile(folder: Path) -> None:
    """Names, versions and a figure that try to run, to load and to overflow."""
    names = {"problem.name": HOSTILE, "problem.objectives": [HOSTILE, "x" * 400], "problem.fingerprint": HOSTILE}
    rewrite(folder / "config.json", names)
    versions = {"versions": {HOSTILE: HOSTILE, "moac": "9" * 300, "jax": HOSTILE}, "cpu": HOSTILE, "commit": HOSTILE}
    rewrite(folder / "provenance.json", versions)
    script = "<script>parent.document.title = 'owned'; alert(1)</script><image href='http://127.0.0.1:9/y'/>"
    svg = f"<svg xmlns='http://www.w3.org/2000/svg' width='30' height='20' onload='alert(2)'>{script}</svg>"
    (folder / "figures" / "training.svg").write_text(svg)
