import hashlib
import itertools
import json
import mmap
import os
import struct
import tracemalloc

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save, save_file

from moac import files

HUGE = 2**50
ENOUGH = 8 * 2**20
"""Bytes; a forged size asks for petabytes, and reading the header takes little."""


def test_arrays_round_trip(tmp_path):
    arrays = {
        "a": np.arange(6.0).reshape(2, 3).T,
        "b": np.array([True, False]),
        "c": np.zeros((0, 2), np.float32),
        "d": np.array(7, np.uint32),
    }
    files.write_arrays(tmp_path / "x.safetensors", arrays, {"deep": {"n": 1, "none": None}})
    read, about = files.read_arrays(tmp_path / "x.safetensors")
    assert about == {"deep": {"n": 1, "none": None}}
    for name, array in arrays.items():
        assert read[name].dtype == array.dtype
        np.testing.assert_array_equal(read[name], array)


def test_equal_content_makes_equal_bytes(tmp_path):
    arrays = {name: np.arange(3.0) for name in "abcdef"}
    about = {str(k): k for k in range(20)}
    for name in "xy":
        files.write_arrays(tmp_path / name, arrays, about)
    assert (tmp_path / "x").read_bytes() == (tmp_path / "y").read_bytes()


def test_the_bytes_are_those_that_safetensors_writes(tmp_path):
    """Also of an array that is given in blocks."""
    types = ("?", "u1", "i1", "u2", "i2", "f2", "u4", "i4", "f4", "u8", "i8", "f8")
    arrays = {f"{name} “{t}”\n": np.arange(30).reshape(5, 3, 2).astype(t) for t in types for name in "ba"}
    arrays |= {"none": np.zeros((0, 2), np.float32), "transposed": np.arange(6.0).reshape(2, 3).T}
    blocks = {name: np.array_split(array, 7) for name, array in arrays.items()}
    for name, given in (("x", arrays), ("y", blocks), ("z", dict(reversed(blocks.items())))):
        files.write_arrays(tmp_path / name, given, {"n": "é"})
    written = (tmp_path / "x").read_bytes()
    with safe_open(tmp_path / "x", "numpy") as file:
        metadata = file.metadata()
    assert save({name: np.ascontiguousarray(array) for name, array in arrays.items()}, metadata) == written
    assert (tmp_path / "y").read_bytes() == (tmp_path / "z").read_bytes() == written


@pytest.mark.parametrize("numbers", [np.zeros(2, complex), np.zeros(2, ">f4"), np.array([None])])
def test_numbers_of_another_type_are_refused(numbers, tmp_path):
    with pytest.raises(ValueError, match=r"`a` has numbers of type .*, which cannot be written"):
        files.write_arrays(tmp_path / "x", {"a": numbers}, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("little_memory")
def test_a_large_array_is_written_without_a_copy(tmp_path):
    """A page of zeros that is never touched takes no memory."""
    with mmap.mmap(-1, 8 * ENOUGH) as zeros:
        array = np.frombuffer(zeros, np.float32)
        files.write_arrays(tmp_path / "x", {"a": [array, array]}, {})
        del array
    assert (tmp_path / "x").stat().st_size > 16 * ENOUGH


@pytest.mark.parametrize("content", [b"", b"12345678", b"\xff" * 100, b"\x80\x04K\x01."])
def test_damaged_arrays(content, tmp_path):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(files.DamagedError, match=r"/x is damaged: "):
        files.read_arrays(tmp_path / "x")


def test_every_truncation_is_noticed(tmp_path):
    path = tmp_path / "x"
    files.write_arrays(path, {"a": np.arange(5.0)}, {"n": 1})
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(files.DamagedError):
            files.read_arrays(path)


def test_every_edit_is_noticed(tmp_path):
    """In numbers, and in all that is said about them: a flipped bit is an error, or leaves what is read as it was."""
    path, about = tmp_path / "x", {"iteration": 17, "run": {"seed": 3, "deep": [0.25, None]}}
    files.write_arrays(path, {"a": np.arange(3.0)}, about)
    whole, harmless = path.read_bytes(), 0
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            arrays, told = files.read_arrays(path)
        except files.DamagedError:
            continue
        harmless += 1
        assert (told, arrays["a"].tolist()) == (about, [0, 1, 2])
    assert harmless < 16  # white space


def test_arrays_whose_hash_leaves_out_what_is_said_about_them(tmp_path):
    """As older versions wrote them: they are read; without any hash they are not."""
    path, arrays = tmp_path / "x", {"a": np.arange(3.0)}
    digest = hashlib.sha256(json.dumps(["a", "<f8", [3]]).encode() + arrays["a"].tobytes()).hexdigest()
    save_file(arrays, path, {"moac": json.dumps({"n": 1, "sha256": digest})})
    assert files.read_arrays(path)[1] == {"n": 1}
    save_file(arrays, path, {"moac": json.dumps({"n": 1})})
    with pytest.raises(files.DamagedError, match="it was changed after it was written"):
        files.read_arrays(path)


def test_arrays_of_another_program(tmp_path):
    save_file({"a": np.zeros(2)}, tmp_path / "x")
    with pytest.raises(files.DamagedError, match=r"/x is damaged: it was not written by moac.$"):
        files.read_arrays(tmp_path / "x")


def test_missing_arrays(tmp_path):
    with pytest.raises(ValueError, match=r"/x is missing.$"):
        files.read_arrays(tmp_path / "x")


def test_json_has_no_nan(tmp_path):
    data = {"a": np.array([1.0, np.nan, -np.inf]), "b": (np.float32(0.5), np.int64(2)), "c": None, 3: "text"}
    files.write_json(tmp_path / "x", data)
    assert files.read_json(tmp_path / "x") == {"a": [1.0, None, None], "b": [0.5, 2], "c": None, "3": "text"}


def test_damaged_json(tmp_path):
    (tmp_path / "x").write_text("{")
    with pytest.raises(files.DamagedError, match=r"/x is damaged: Expecting property name"):
        files.read_json(tmp_path / "x")


def test_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    files.write_json(tmp_path / "x", 1)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left"):
        files.write_json(tmp_path / "x", 2)
    assert json.loads((tmp_path / "x").read_text()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_remove_unfinished(tmp_path):
    for name in ("checkpoint", ".run.3.tmp"):  # a run that is about to take the place of another
        (tmp_path / name).mkdir()
    for name in ("checkpoint/.a.safetensors.12.tmp", ".config.json.3.tmp", "mine.tmp", ".hidden"):
        (tmp_path / name).write_text("")
    files.remove_unfinished(tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*")) == [".hidden", ".run.3.tmp", "checkpoint", "mine.tmp"]


def test_check_folder(tmp_path):
    (tmp_path / "file").write_text("")
    files.check_folder("out", tmp_path)
    files.check_folder("out", tmp_path / "new" / "deep")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ValueError, match=f"^`out` must be a folder, got {path}: {tmp_path}/file is a file.$"):
            files.check_folder("out", path)


def test_a_temporary_file_that_is_a_link_is_not_followed(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_number", itertools.count(7))
    target = tmp_path / "target"
    target.write_text("kept")
    (tmp_path / f".x.{os.getpid()}.7.tmp").symlink_to(target)
    files.write_json(tmp_path / "x", 1)
    assert target.read_text() == "kept"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["target", "x"]


def test_subfolders_are_made_and_links_refused(tmp_path):
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    assert files.subfolder(run, "figures", "small") == run / "figures" / "small"
    assert (run / "figures" / "small").is_dir()
    elsewhere.mkdir()
    for link, target in (("there", elsewhere), ("nowhere", tmp_path / "nothing")):
        (run / link).symlink_to(target)
        with pytest.raises(ValueError, match=f"^{run / link} is a symbolic link"):
            files.subfolder(run, link, "small")
    assert list(elsewhere.iterdir()) == []
    (tmp_path / "given").symlink_to(elsewhere)  # what the user names may be one
    assert files.subfolder(tmp_path / "given", "figures") == tmp_path / "given" / "figures"


@pytest.fixture
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


@pytest.mark.usefixtures("little_memory")
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
        safetensors(tensor([2], 0, 2, "F8_E4M3"), bytes(2)),
        safetensors(tensor([4], 0, 3, "F6_E2M3"), bytes(3)),
        safetensors(tensor([2], 0, 4, "BF16"), bytes(4)),
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
def test_a_header_that_lies_is_refused_before_anything_of_that_size_is_allocated(content, tmp_path):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(files.DamagedError, match=r"^[^\n]*/x is damaged: [^\n]+\.$"):
        files.read_arrays(tmp_path / "x")


@pytest.mark.parametrize("text", ["[" * 200_000, "[" * 99 + "]" * 99, f"[{10**400}]", '{"a": -9223372036854775809}'])
def test_json_beyond_bounds(text, tmp_path):
    (tmp_path / "x").write_text(text)
    with pytest.raises(files.DamagedError, match=r"/x is damaged: "):
        files.read_json(tmp_path / "x")


def test_json_within_bounds(tmp_path):
    data = {"deep": [[[[1e308, -(2**63), 2**64 - 1, None, True, "x"]]]], "wide": list(range(1000))}
    (tmp_path / "x").write_text(json.dumps(data))
    assert files.read_json(tmp_path / "x") == data


@pytest.mark.usefixtures("little_memory")
def test_json_that_is_too_large_to_read(tmp_path):
    with (tmp_path / "x").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(files.DamagedError, match=r"/x is damaged: it has 1099511627776 bytes"):
        files.read_json(tmp_path / "x")


def test_what_is_no_regular_file_is_not_replaced(tmp_path):
    """A rename would put a file in the place of a device, such as /dev/null."""
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link):
        with pytest.raises(ValueError, match="must be a regular file or a new one"):
            files.write_bytes(path, b"content")
    assert pipe.is_fifo() and link.is_symlink() and sorted(tmp_path.iterdir()) == [link, pipe]
