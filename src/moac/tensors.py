"""Arrays by name as a file of safetensors has them: their layout, the header before them, the hash of them.

Written here and not by safetensors' own `save`, which copies all numbers twice on their way to a file; it reads them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Given = np.ndarray[Any, Any] | list[np.ndarray[Any, Any]]
"""An array, or its blocks one after the other along the first axis."""
_TEXTS = ":utf8"
"""Ends the name of an array of texts."""
_TYPES = {
    "<u8": "U64", "<i8": "I64", "<f8": "F64", "<f4": "F32", "<u4": "U32", "<i4": "I32", "<f2": "F16", "<u2": "U16",
    "<i2": "I16", "|i1": "I8", "|u1": "U8", "|b1": "BOOL",
}  # fmt: skip
"""The types of arrays that are ever written, in a file's order, and safetensors' names of them."""
TYPES = frozenset(_TYPES.values())
"""Those names."""


@dataclass(frozen=True)
class Column:
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


def columns(arrays: Mapping[str, Given]) -> dict[str, Column]:
    """Arrays in a file's order; those of texts as bytes of UTF-8, all as long as the longest."""
    laid_out = dict(_column(name, given) for name, given in arrays.items())
    order = list(_TYPES)
    return dict(sorted(laid_out.items(), key=lambda item: (order.index(item[1].type), item[0])))


def _column(name: str, given: Given) -> tuple[str, Column]:
    column = Column([np.ascontiguousarray(block) for block in (given if isinstance(given, list) else [given])])
    if column.blocks[0].dtype.kind == "U":
        encoded = np.char.encode(np.concatenate(column.blocks), "utf-8").reshape(-1)
        name, column = f"{name}{_TEXTS}", Column([encoded.view(np.uint8).reshape(len(encoded), encoded.dtype.itemsize)])
    if column.type not in _TYPES:
        raise ValueError(f"`{name}` has numbers of type {column.blocks[0].dtype}, which cannot be written.")
    return name, column


def unpacked(name: str, array: np.ndarray[Any, Any]) -> tuple[str, np.ndarray[Any, Any]]:
    """An array under its own name, texts as such."""
    if not name.endswith(_TEXTS):
        return name, array
    if array.dtype != np.uint8 or array.ndim != 2 or not array.shape[1]:
        raise ValueError(f"`{name}` is not an array of strings")
    texts = np.ascontiguousarray(array).view(f"S{array.shape[1]}").reshape(-1)
    return name.removesuffix(_TEXTS), np.char.decode(texts, "utf-8")


def header(laid_out: Mapping[str, Column], metadata: Mapping[str, str]) -> bytes:
    """What a file begins with: a length, and so much JSON, which says where the numbers of each array follow."""
    entries, end = dict[str, Any]({"__metadata__": metadata}), 0
    for name, column in laid_out.items():
        begin, end = end, end + sum(block.nbytes for block in column.blocks)
        entries[name] = {"dtype": _TYPES[column.type], "shape": column.shape, "data_offsets": [begin, end]}
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def digests(laid_out: Mapping[str, Column], about: Any) -> tuple[str, str]:
    """Hashes of names, types, shapes and numbers: without `about`, as older versions wrote it, and with it."""
    digest = hashlib.sha256()
    for name, column in sorted(laid_out.items()):
        digest.update(json.dumps([name, column.type, column.shape]).encode())
        for content in column.content():
            digest.update(content)
    arrays_only = digest.hexdigest()
    digest.update(json.dumps(about, sort_keys=True).encode())
    return arrays_only, digest.hexdigest()
