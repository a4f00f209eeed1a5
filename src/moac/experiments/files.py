"""Atomic files: written beside their place, flushed to disk, then renamed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

Arrays = dict[str, np.ndarray[Any, Any]]


def write_bytes(path: Path, content: bytes) -> None:
    """Write `path` wholly or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, data: Any) -> None:
    """Write JSON; NaN and infinities become null."""
    write_bytes(path, (json.dumps(finite(data), indent=2) + "\n").encode())


def read_json(path: Path) -> Any:
    """Read JSON, with one clear line where the file is missing or damaged."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise ValueError(f"{path} is missing: {path.parent} is not a run directory.") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is damaged: {error}.") from None


def write_arrays(path: Path, arrays: Arrays, metadata: Mapping[str, str]) -> None:
    """Write arrays by name as safetensors."""
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    write_bytes(path, save(contiguous, metadata=dict(metadata)))


def read_arrays(path: Path) -> tuple[Arrays, dict[str, str]]:
    """Read what `write_arrays` wrote, and its metadata."""
    try:
        with safe_open(path, framework="numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except FileNotFoundError:
        raise ValueError(f"{path} is missing.") from None
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged: {error}.") from None


def finite(data: Any) -> Any:
    """`data` as JSON can hold it: arrays as lists, what is not finite as None."""
    if isinstance(data, Mapping):
        return {str(key): finite(value) for key, value in data.items()}
    if isinstance(data, np.ndarray):
        return finite(data.tolist())
    if isinstance(data, list | tuple):
        return [finite(value) for value in data]
    if isinstance(data, float | np.floating):
        return float(data) if np.isfinite(data) else None
    return int(data) if isinstance(data, np.integer) else data
