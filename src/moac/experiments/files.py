"""Atomic files: written beside their place, flushed to disk, then renamed."""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

Arrays = dict[str, np.ndarray[Any, Any]]
_ABOUT = "moac"
"""The one entry of a file's metadata: safetensors writes several in random order."""


class DamagedError(ValueError):
    """A file that is there and cannot be read as what it should be."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} is damaged: {why}.")


def write_bytes(path: Path, content: bytes) -> None:
    """Write `path` wholly or not at all."""
    with replacing(path) as file:
        file.write(content)


@contextmanager
def replacing(path: Path) -> Generator[IO[bytes]]:
    """A file to write to, which takes the place of `path` when all went well; else nothing has happened."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def check_folder(name: str, path: Path) -> None:
    """Refuse a folder that cannot be made, or be written into, before any work is done for it."""
    there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not there.is_dir():
        raise ValueError(f"`{name}` must be a folder, got {path}: {there} is a file.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ValueError(f"`{name}` must be a folder that can be written, got {path}: {there} cannot.")


def remove_unfinished(folder: Path) -> None:
    """Remove what a killed `write_bytes` left beside its place."""
    for path in folder.rglob(".*.tmp"):
        path.unlink(missing_ok=True)


def write_json(path: Path, data: Any) -> None:
    """Write JSON; NaN and infinities become null."""
    write_bytes(path, (json.dumps(finite(data), indent=2) + "\n").encode())


def read_json(path: Path) -> Any:
    """Read JSON, with one clear line where the file is missing or damaged."""
    try:
        return json.loads(path.read_text())
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DamagedError(path, str(error)) from None


def write_arrays(path: Path, arrays: Arrays, about: Mapping[str, Any]) -> None:
    """Write arrays by name as safetensors; equal arrays and `about` make equal bytes."""
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    write_bytes(path, save(contiguous, metadata={_ABOUT: json.dumps(about, sort_keys=True)}))


def read_arrays(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """Read what `write_arrays` wrote."""
    try:
        with safe_open(path, framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return arrays, json.loads((file.metadata() or {})[_ABOUT])
    except FileNotFoundError:
        raise ValueError(f"{path} is missing.") from None
    except KeyError:
        raise DamagedError(path, "it was not written by moac") from None
    except (SafetensorError, TypeError, IsADirectoryError, json.JSONDecodeError) as error:
        raise DamagedError(path, str(error)) from None


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
