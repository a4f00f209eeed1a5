"""Checkpoints: a snapshot as arrays by name, and which run it belongs to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import jax
import numpy as np

from moac import files, training
from moac.training.history import History

_KEPT = 2


@final
@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one run.

    Attributes:
        folder: where they are.
        description: of the run, as config.json has it; a checkpoint of another is refused.
    """

    folder: Path
    description: Mapping[str, Any]

    def write(self, snapshot: training.Snapshot) -> None:
        """Store all that is needed to go on; the last two are kept."""
        arrays = {f"trials{name}": np.asarray(leaf) for name, leaf in _named_leaves(snapshot.trials)}
        arrays |= {f"history.{name}": array for name, array in snapshot.history.arrays().items()}
        about = {"iteration": snapshot.iteration, "kind": snapshot.history.kind, "run": self.description}
        path = self.folder / f"{snapshot.iteration:010d}.safetensors"
        with ThreadPoolExecutor(1) as pool:  # a thread that waits for a disk hears of no signal: it is not the main one
            pool.submit(files.write_arrays, path, arrays, about).result()
        for old in self._paths()[:-_KEPT]:
            old.unlink(missing_ok=True)

    def newest(self, run: training.Run) -> training.Snapshot | None:
        """The newest checkpoint that can be read, or None where there is none yet."""
        damaged: ValueError | None = None
        for path in reversed(self._paths()):
            try:
                return self._read(path, run)
            except files.DamagedError as error:
                damaged = damaged or error
        if damaged is not None:
            raise ValueError(f"{damaged} Delete {self.folder}/*.safetensors to start the run over.") from None
        return None

    def _paths(self) -> list[Path]:
        return sorted(self.folder.glob("[0-9]*.safetensors"))

    def _read(self, path: Path, run: training.Run) -> training.Snapshot:
        arrays, about = files.read_arrays(path)
        check_same_run(self.folder.parent / "config.json", self.description, about)
        template = training.template(run)
        leaves: list[Any] = []
        for name, expected in _named_leaves(template):
            found = arrays.get(f"trials{name}")
            if found is None or found.shape != expected.shape or found.dtype != expected.dtype:
                raise files.DamagedError(path, f"array {name} is missing or has another shape")
            leaves.append(found)
        trials = jax.tree.unflatten(jax.tree.structure(template), leaves)
        try:
            history = History.of_arrays(_under("history.", arrays), about["kind"])
            return training.Snapshot.of(int(about["iteration"]), trials, history)
        except (KeyError, TypeError, ValueError) as error:
            raise files.DamagedError(path, f"{error} is missing or wrong") from None


def check_same_run(config: Path, description: Mapping[str, Any], about: Mapping[str, Any]) -> None:
    """Refuse to mix a configuration with arrays that another one made."""
    made_by = about.get("run")
    before, now = _flat(made_by if isinstance(made_by, Mapping) else {}), _flat(description)
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            raise ValueError(
                f"{config} was edited after the run began: `{name}` is {json.dumps(now.get(name))}, "
                f"was {json.dumps(before.get(name))}. Put it back, or start a new run."
            )


def _under(prefix: str, arrays: files.Arrays) -> files.Arrays:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in data.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def _named_leaves(tree: Any) -> list[tuple[str, Any]]:
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)]
