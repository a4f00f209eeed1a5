"""JSON and arrays as files that are whole or not there, and that say what is wrong with them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from moac.atomic import DamagedError, check_regular, checked, write_bytes
from moac.atomic import read_json as read_json
from moac.atomic import replacing as replacing

Arrays = dict[str, np.ndarray[Any, Any]]
_ABOUT = "moac"
"""The one entry of a file's metadata: safetensors writes several in random order."""
_DIGEST = "sha256"
"""Inside it, the hash of all arrays and of all else that is inside it."""
_TYPES = {"BOOL", "F16", "F32", "F64", *(f"{sign}{bits}" for sign in "IU" for bits in (8, 16, 32, 64))}
"""Of arrays, as safetensors names them: those that are ever written."""


def check_folder(name: str, path: Path) -> None:
    """Refuse a folder that cannot be made, or be written into, before any work is done for it."""
    there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not there.is_dir():
        raise ValueError(f"`{name}` must be a folder, got {path}: {there} is a file.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ValueError(f"`{name}` must be a folder that can be written, got {path}: {there} cannot.")


def below(folder: Path, *names: str) -> Path:
    """A path below a folder that somebody gave; a symbolic link on the way is refused, since it leads elsewhere."""
    path = folder
    for name in names:
        path /= name
        if path.is_symlink():
            raise ValueError(f"{path} is a symbolic link: nothing of {folder} is written elsewhere.")
    return path


def subfolder(folder: Path, *names: str) -> Path:
    """The folder of that path, made if need be; `below` says what is refused."""
    path = below(folder, *names)
    path.mkdir(parents=True, exist_ok=True)
    return path


def remove_unfinished(folder: Path) -> None:
    """Remove what a killed `write_bytes` left beside its place."""
    for path in folder.rglob(".*.tmp"):
        path.unlink(missing_ok=True)


def write_json(path: Path, data: Any) -> None:
    """Write JSON; NaN and infinities become null."""
    write_bytes(path, (json.dumps(finite(data), indent=2) + "\n").encode())


def write_arrays(path: Path, arrays: Arrays, about: Mapping[str, Any]) -> None:
    """Write arrays by name as safetensors, with a hash of it all; equal arrays and `about` make equal bytes."""
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    described = {**about, _DIGEST: _digests(contiguous, about)[-1]}
    write_bytes(path, save(contiguous, metadata={_ABOUT: json.dumps(described, sort_keys=True)}))


def read_arrays(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """Read what `write_arrays` wrote; no array is larger than the file, whatever its header says."""
    try:
        check_regular(path)
        with safe_open(path, framework="numpy") as file:
            about = checked(json.loads((file.metadata() or {})[_ABOUT]))
            arrays: Arrays = {name: _tensor(file, name) for name in file.keys()}  # noqa: SIM118
        stored = about.pop(_DIGEST, None) if isinstance(about, dict) else None
        digests = _digests(arrays, about)
    except FileNotFoundError:
        raise ValueError(f"{path} is missing.") from None
    except DamagedError:
        raise
    except KeyError:
        raise DamagedError(path, "it was not written by moac") from None
    except (SafetensorError, TypeError, ValueError, RecursionError, OSError) as error:
        raise DamagedError(path, " ".join(str(error).split())) from None
    if not isinstance(about, dict):
        raise DamagedError(path, "it was not written by moac")
    if stored not in digests:
        raise DamagedError(path, "it was changed after it was written")
    return arrays, about


def _tensor(file: Any, name: str) -> np.ndarray[Any, Any]:
    kind = file.get_slice(name).get_dtype()
    if kind not in _TYPES:
        raise ValueError(f"`{name}` has numbers of type {kind}, which are never written")
    return file.get_tensor(name)


def _digests(arrays: Arrays, about: Any) -> tuple[str, str]:
    """Hashes of names, types, shapes and numbers: without `about`, as older versions wrote it, and with it."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"")
    arrays_only = digest.hexdigest()
    digest.update(json.dumps(about, sort_keys=True).encode())
    return arrays_only, digest.hexdigest()


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
