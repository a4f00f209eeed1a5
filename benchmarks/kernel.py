"""Compile kernel.c for one model and run it: the same algorithm with nothing between it and the machine."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from moac import momdp

FLAGS = ("-O3", "-march=native", "-ffast-math")
_FIELDS = ("next_state", "probability", "reward", "terminated", "start_state", "start")


class _Model(ctypes.Structure):
    _fields_ = [*((name, ctypes.c_void_p) for name in _FIELDS), ("num_starts", ctypes.c_int32)]


class _Settings(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int32) for name in ("iterations", "critic_steps", "critic_batch", "actor_batch")),
        *((name, ctypes.c_float) for name in ("discount", "actor_step_size", "critic_step_size")),
    ]


class Kernel:
    """kernel.c, compiled for the sizes of `model`, which must have three objectives."""

    def __init__(self, model: momdp.FiniteMOMDP) -> None:
        if model.num_objectives != 3:
            raise ValueError(f"`model` must have 3 objectives, got {model.num_objectives}.")
        self._shape = (model.num_states, model.num_actions)
        self._tables = _tables(model)
        pointers = (self._tables[name].ctypes.data for name in _FIELDS)
        self._model = _Model(*pointers, len(self._tables["start"]))
        self._run = _compile(model)

    def run(self, trials: int, seed: int = 0, **settings: float) -> tuple[np.ndarray, np.ndarray]:
        """Train; `settings` are the fields of Settings in kernel.c. Returns θ [K, S, A] and λ [K, 3] at the end."""
        theta = np.empty((trials, *self._shape), np.float32)
        lam = np.empty((trials, 3), np.float32)
        pointers = (ctypes.c_void_p(table.ctypes.data) for table in (theta, lam))
        chosen = _Settings(**settings)
        self._run(
            ctypes.byref(self._model), ctypes.byref(chosen), ctypes.c_uint64(seed), ctypes.c_int32(trials), *pointers
        )
        return theta, lam


def _tables(model: momdp.FiniteMOMDP) -> dict[str, np.ndarray]:
    """The arrays kernel.c reads; an outcome of probability 0 becomes a copy of the first, in case rounding picks it."""
    impossible = model.probability == 0
    starts = np.flatnonzero(model.start_distribution)
    tables = {
        "next_state": np.where(impossible, model.next_state[..., :1], model.next_state).astype(np.int32),
        "probability": model.probability.astype(np.float32),
        "reward": np.where(impossible[..., None], model.reward[..., :1, :], model.reward).astype(np.float32),
        "terminated": np.where(impossible, model.terminated[..., :1], model.terminated).astype(np.uint8),
        "start_state": starts.astype(np.int32),
        "start": np.cumsum(model.start_distribution[starts]).astype(np.float32),
    }
    return {name: np.ascontiguousarray(table) for name, table in tables.items()}


def _compile(model: momdp.FiniteMOMDP) -> Any:
    source = Path(__file__).with_name("kernel.c")
    sizes = (f"-DS={model.num_states}", f"-DA={model.num_actions}", f"-DO={model.num_outcomes}")
    with tempfile.TemporaryDirectory() as folder:
        library = str(Path(folder) / "kernel.so")
        subprocess.run(["cc", *FLAGS, *sizes, "-shared", "-fPIC", str(source), "-o", library, "-lm"], check=True)
        run = ctypes.CDLL(library).moac_run
    run.restype = None
    return run
