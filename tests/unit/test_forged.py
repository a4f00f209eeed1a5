"""Headers that lie about sizes: refused before anything of that size is allocated."""

import json
import struct
import tarfile
import tracemalloc

import numpy as np
import pytest

from moac import files
from moac.kuairand.download import unpack

HUGE = 2**50
ENOUGH = 8 * 2**20
"""Bytes; a forged size asks for petabytes, and reading the header takes little."""


@pytest.fixture(autouse=True)
def little_memory():
    """What Python and NumPy allocate in a test stays small."""
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < ENOUGH


def safetensors(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def tensor(shape, begin, end, dtype="F32"):
    return {"a": {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}, "__metadata__": {"moac": "{}"}}


@pytest.mark.parametrize(
    "content",
    [
        struct.pack("<Q", HUGE) + b"{}",
        struct.pack("<Q", 2**64 - 1) + b"{}",
        safetensors(tensor([HUGE], 0, 4 * HUGE)),
        safetensors(tensor([HUGE], 0, 8), b"12345678"),
        safetensors(tensor([2**33, 2**33], 0, 0)),
        safetensors(tensor([2], 0, 8) | {"b": tensor([2], 4, 12)["a"]}, bytes(12)),
        safetensors(tensor([2], 8, 0), bytes(8)),
        safetensors(tensor([2], 0, 8, "OBJECT"), bytes(8)),
        *(safetensors(tensor([2], 0, 2, kind), bytes(2)) for kind in ("F8_E4M3", "F8_E5M2", "F8_E8M0")),
        safetensors(tensor([2], 0, 1, "F4"), bytes(1)),
        safetensors(tensor([4], 0, 3, "F6_E2M3"), bytes(3)),
        safetensors(tensor([2], 0, 4, "BF16"), bytes(4)),
        safetensors(tensor([2], 0, 16, "C64"), bytes(16)),
        safetensors(tensor([-2], 0, 8), bytes(8)),
        safetensors({"__metadata__": {"moac": "[" * 100_000}}),
        safetensors({"__metadata__": {"moac": "[1, 2]"}}),
        safetensors({"__metadata__": {"moac": "9" * 10_000}}),
        safetensors({"__metadata__": {"moac": json.dumps({"iteration": 10**400})}}),
        safetensors({"__metadata__": {"moac": '{"run": ' + "[" * 99 + "]" * 99 + "}"}}),
        safetensors({"__metadata__": {"moac": 5}}),
        safetensors({"__metadata__": [1]}),
        safetensors(b"[" * 100_000),
    ],
)
def test_safetensors(content, tmp_path):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(files.DamagedError, match=r"^[^\n]*/x is damaged: [^\n]+\.$"):
        files.read_arrays(tmp_path / "x")


def test_an_archive_that_unpacks_to_more_than_it_may(tmp_path):
    member = tarfile.TarInfo("top/data.csv")
    member.size = HUGE
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as bundle:
        bundle.fileobj.write(member.tobuf(tarfile.PAX_FORMAT))
    with pytest.raises(ValueError, match=r"unpacks to more than 1,000 bytes or 1000 members: not unpacked."):
        unpack(tmp_path / "x.tar.gz", tmp_path / "top", 1000)
    assert [path.name for path in tmp_path.iterdir()] == ["x.tar.gz"]


def test_an_edited_number_is_noticed(tmp_path):
    path = tmp_path / "x"
    files.write_arrays(path, {"a": np.arange(50.0), "b": np.array(7)}, {"n": 1})
    whole = path.read_bytes()
    for place in (-1, -200, len(whole) - 8):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place:][1:])
        with pytest.raises(files.DamagedError, match="it was changed after it was written"):
            files.read_arrays(path)
    path.write_bytes(whole)
    assert files.read_arrays(path)[1] == {"n": 1}


@pytest.mark.parametrize("text", ["[" * 200_000, "[" * 99 + "]" * 99, f"[{10**400}]", '{"a": -9223372036854775809}'])
def test_json_beyond_bounds(text, tmp_path):
    (tmp_path / "x").write_text(text)
    with pytest.raises(files.DamagedError, match=r"/x is damaged: "):
        files.read_json(tmp_path / "x")


def test_json_within_bounds(tmp_path):
    data = {"deep": [[[[1e308, -(2**63), 2**64 - 1, None, True, "x"]]]], "wide": list(range(1000))}
    (tmp_path / "x").write_text(json.dumps(data))
    assert files.read_json(tmp_path / "x") == data


def test_json_that_is_too_large_to_read(tmp_path):
    with (tmp_path / "x").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(files.DamagedError, match=r"/x is damaged: it has 1099511627776 bytes"):
        files.read_json(tmp_path / "x")
