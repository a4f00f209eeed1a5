"""Files that are whole or not there: written beside their place, then renamed; JSON and arrays checked when read."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import os
import stat
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from safetensors import SafetensorError, safe_open

Arrays = dict[str, np.ndarray[Any, Any]]
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_number = itertools.count()  # of temporary files
_LARGEST = 2**28  # bytes of a file that is read into memory at once
_DEEPEST = 32
_WHOLE = range(-(2**63), 2**64)
"""Levels of nesting and whole numbers that data may have: beyond them Python and NumPy raise other errors."""
_ABOUT = "moac"  # the one entry of a file's metadata: safetensors writes several in random order
_DIGEST = "sha256"  # inside it, the hash of all arrays and of all else that is inside it
_Given = np.ndarray[Any, Any] | list[np.ndarray[Any, Any]]
"""An array, or its blocks one after the other along the first axis."""
_TEXTS = ":utf8"  # ends the name of an array of texts
_TYPES = {
    "<u8": "U64", "<i8": "I64", "<f8": "F64", "<f4": "F32", "<u4": "U32", "<i4": "I32", "<f2": "F16", "<u2": "U16",
    "<i2": "I16", "|i1": "I8", "|u1": "U8", "|b1": "BOOL",
}  # fmt: skip
"""The types of arrays that are ever written, in a file's order, and safetensors' names of them."""


class DamagedError(ValueError):
    """A file that is there and cannot be read as what it should be."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} is damaged: {why.removesuffix('.')}.")


@contextlib.contextmanager
def interpreting(path: Path) -> Generator[None]:
    """While entered, a missing or wrong entry of the data that `path` holds is a `DamagedError` of that file."""
    try:
        yield
    except DamagedError:
        raise
    except KeyError as error:
        raise DamagedError(path, f"{error} is missing") from None
    except (TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise DamagedError(path, " ".join(str(error).split())) from None


def nearest(path: Path) -> Path:
    """The path, or the nearest folder around it, that is there."""
    return next(each for each in (path, *path.absolute().parents) if each.exists())


def check_folder(name: str, path: Path) -> None:
    """Refuse a folder that cannot be made, or be written into, before any work is done for it."""
    there = nearest(path)
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
            raise ValueError(f"{path} is a symbolic link: files of {folder} are not written elsewhere.")
    return path


def subfolder(folder: Path, *names: str) -> Path:
    """The folder of that path, made if need be; `below` says what is refused."""
    path = below(folder, *names)
    path.mkdir(parents=True, exist_ok=True)
    return path


@contextlib.contextmanager
def making(folder: Path) -> Generator[None]:
    """Make a folder to work in; after an error, those that were made for it and hold nothing are removed again."""
    new = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise ValueError(f"{folder} exists already and is a file: choose a new folder.") from None
        except OSError as error:
            raise ValueError(f"{folder} cannot be written: {error.strerror}.") from None
        yield
    except BaseException:
        for each in new:
            with contextlib.suppress(OSError):
                each.rmdir()
        raise


def remove_unfinished(folder: Path) -> None:
    """Remove what a killed `replacing` left beside its place; the folder may hold temporary files of others."""
    for path in folder.rglob(".*.[0-9]*.tmp"):
        if not path.is_dir():
            path.unlink(missing_ok=True)


def check_regular(path: Path, descriptor: int | None = None) -> int:
    """Bytes of a regular file; a FIFO, a device, a socket or a folder is refused: some wait for ever, some act."""
    status = path.stat() if descriptor is None else os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise DamagedError(path, "it is not a regular file")
    return status.st_size


def read_bytes(path: Path) -> bytes:
    """The content of a regular file of reasonable size; whatever is there, the call does not wait for it."""
    check_regular(path)
    with open(os.open(path, os.O_RDONLY | _NO_WAIT), "rb") as file:
        if (size := check_regular(path, file.fileno())) > _LARGEST:
            raise DamagedError(path, f"it has {size} bytes, more than {_LARGEST}")
        return file.read()


def no_follow(path: str, flags: int) -> int:
    """An `opener` for `open`: what is written goes into the file of that name, never to where a link leads."""
    return os.open(path, flags | _NO_FOLLOW | _NO_WAIT, 0o666)


def temporary(path: Path) -> Path:
    """A name beside a path that no other call has, in this process or another; `remove_unfinished` knows it."""
    return path.with_name(f".{path.name}.{os.getpid()}.{next(_number)}.tmp")


def write_bytes(path: Path, content: bytes) -> None:
    """Write `path` wholly or not at all; where that fails, the error names it."""
    with replacing(path) as file:
        file.write(content)


@contextlib.contextmanager
def replacing(path: Path) -> Generator[IO[bytes]]:
    """A file to write to, which takes the place of `path` when all went well; else nothing has happened."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ValueError(f"{path} must be a regular file or a new one: it would be replaced.")
    beside = temporary(path)
    try:
        beside.unlink(missing_ok=True)  # left by a killed process of the same number, or put there as a trap
        with open(beside, "xb", opener=no_follow) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        _settle(path.parent)
    except OSError as error:
        if error.filename not in (None, str(beside)):
            raise
        raise type(error)(error.errno, error.strerror, str(path)) from None
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)


def finite(data: Any, *, name_infinities: bool = False) -> Any:
    """`data` as JSON can hold it: dataclasses as objects, arrays and tuples as lists, NaN and infinities as None.

    Fields that are not in a dataclass's representation are left out. With `name_infinities`, ±∞ are "inf" and "-inf".
    """
    inside = partial(finite, name_infinities=name_infinities)
    if is_dataclass(data) and not isinstance(data, type):
        return {field.name: inside(getattr(data, field.name)) for field in fields(data) if field.repr}
    if isinstance(data, Mapping):
        return {str(key): inside(value) for key, value in data.items()}
    if isinstance(data, np.ndarray | np.generic):
        return inside(data.tolist())
    if isinstance(data, list | tuple):
        return [inside(value) for value in data]
    if isinstance(data, float) and not math.isfinite(data):
        return str(data) if name_infinities and not math.isnan(data) else None
    return data


def write_json(path: Path, data: Any) -> None:
    """Write JSON; NaN and infinities become null."""
    write_bytes(path, (json.dumps(finite(data), indent=2) + "\n").encode())


def read_json(path: Path) -> Any:
    """Read JSON, with one clear line where the file is damaged."""
    content = read_bytes(path)
    try:
        return checked(json.loads(content.decode()))
    except (ValueError, RecursionError) as error:
        raise DamagedError(path, str(error)) from None


def checked(data: Any, levels: int = _DEEPEST) -> Any:
    """JSON or TOML data from a stranger, as it is; ValueError where it is nested too deeply or a number is huge."""
    if not levels:
        raise ValueError(f"it is nested more than {_DEEPEST} levels deep")
    if isinstance(data, int) and data not in _WHOLE:
        raise ValueError("a whole number in it needs more than 64 bits")
    for value in data.values() if isinstance(data, dict) else data if isinstance(data, list) else ():
        checked(value, levels - 1)
    return data


def write_arrays(path: Path, arrays: Mapping[str, _Given], about: Mapping[str, Any]) -> None:
    """Write arrays by name as safetensors, with a hash of it all; equal arrays and `about` make equal bytes.

    A list of arrays is written as one, joined along the first axis. Numbers go to the file from where they are in
    memory; safetensors' own `save` copies all of them twice.
    """
    laid_out, order = dict(_column(name, given) for name, given in arrays.items()), list(_TYPES)
    columns = dict(sorted(laid_out.items(), key=lambda item: (order.index(item[1].type), item[0])))
    described = {**about, _DIGEST: _digests(columns, about)[-1]}
    with replacing(path) as file:
        file.write(_header(columns, {_ABOUT: json.dumps(described, sort_keys=True)}))
        for column in columns.values():
            file.writelines(column.content())


def read_arrays(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """Read what `write_arrays` wrote; no array is larger than the file, whatever its header says."""
    try:
        check_regular(path)
        with safe_open(path, framework="numpy") as file:
            about = checked(json.loads((file.metadata() or {})[_ABOUT]))
            arrays: Arrays = {name: _tensor(file, name) for name in sorted(file.keys())}
        if not isinstance(about, dict):
            raise DamagedError(path, "it was not written by moac")
        stored = about.pop(_DIGEST, None)
        digests = _digests({name: _Column([array]) for name, array in arrays.items()}, about)
        arrays = dict(_unpacked(name, array) for name, array in arrays.items())
    except FileNotFoundError:
        raise ValueError(f"{path} is missing.") from None
    except DamagedError:
        raise
    except KeyError:
        raise DamagedError(path, "it was not written by moac") from None
    except (SafetensorError, TypeError, ValueError, RecursionError, OSError) as error:
        raise DamagedError(path, " ".join(str(error).split())) from None
    if stored not in digests:
        raise DamagedError(path, "it was changed after it was written")
    return arrays, about


def _tensor(file: Any, name: str) -> np.ndarray[Any, Any]:
    kind = file.get_slice(name).get_dtype()
    if kind not in _TYPES.values():
        raise ValueError(f"`{name}` has numbers of type {kind}, which are never written")
    return file.get_tensor(name)


def _settle(folder: Path) -> None:
    """Let the names in a folder survive a power cut too, where the system can."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@dataclass(frozen=True)
class _Column:
    """An array as it lies in a file."""

    blocks: list[np.ndarray[Any, Any]]  # one after the other along the first axis

    @property
    def type(self) -> str:
        """Of its numbers, as NumPy writes it."""
        return self.blocks[0].dtype.str

    @property
    def shape(self) -> tuple[int, ...]:
        """Of all blocks together."""
        first = self.blocks[0].shape
        return first if len(self.blocks) == 1 else (sum(map(len, self.blocks)), *first[1:])

    def content(self) -> Iterator[Any]:
        """Its bytes, as they lie in memory."""
        for block in self.blocks:
            yield np.ascontiguousarray(block).view(np.uint8).data if block.size else b""


def _column(name: str, given: _Given) -> tuple[str, _Column]:
    """An array under its name in a file; one of texts as bytes of UTF-8, all as long as the longest."""
    column = _Column([np.ascontiguousarray(block) for block in (given if isinstance(given, list) else [given])])
    if column.blocks[0].dtype.kind == "U":
        encoded = np.char.encode(np.concatenate(column.blocks), "utf-8").reshape(-1)
        column = _Column([encoded.view(np.uint8).reshape(len(encoded), encoded.dtype.itemsize)])
        name = f"{name}{_TEXTS}"
    if column.type not in _TYPES:
        raise ValueError(f"`{name}` has numbers of type {column.blocks[0].dtype}, which cannot be written.")
    return name, column


def _unpacked(name: str, array: np.ndarray[Any, Any]) -> tuple[str, np.ndarray[Any, Any]]:
    """An array under its own name, texts as such."""
    if not name.endswith(_TEXTS):
        return name, array
    if array.dtype != np.uint8 or array.ndim != 2 or not array.shape[1]:
        raise ValueError(f"`{name}` is not an array of strings")
    texts = np.ascontiguousarray(array).view(f"S{array.shape[1]}").reshape(-1)
    return name.removesuffix(_TEXTS), np.char.decode(texts, "utf-8")


def _header(laid_out: Mapping[str, _Column], metadata: Mapping[str, str]) -> bytes:
    """What a file begins with: a length, and so much JSON, which says where the numbers of each array follow."""
    entries, end = dict[str, Any]({"__metadata__": metadata}), 0
    for name, column in laid_out.items():
        begin, end = end, end + sum(block.nbytes for block in column.blocks)
        entries[name] = {"dtype": _TYPES[column.type], "shape": column.shape, "data_offsets": [begin, end]}
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _digests(laid_out: Mapping[str, _Column], about: Any) -> tuple[str, str]:
    """Hashes of names, types, shapes and numbers: without `about`, as older versions wrote it, and with it."""
    digest = hashlib.sha256()
    for name, column in sorted(laid_out.items()):
        digest.update(json.dumps([name, column.type, column.shape]).encode())
        for content in column.content():
            digest.update(content)
    arrays_only = digest.hexdigest()
    digest.update(json.dumps(about, sort_keys=True).encode())
    return arrays_only, digest.hexdigest()
