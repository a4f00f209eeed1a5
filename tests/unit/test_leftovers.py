"""What a killed build has left is used only where it is what it was; else all is built anew."""

import hashlib
import json
import shutil
import struct
import zipfile
from functools import partial

import duckdb
import numpy as np
import pytest

from moac.logs import building, leftovers, stored
from moac.logs.journal import Journal
from tests.helpers.kuairand import generated

OPTIONS = building.Options(actions=5, threads=1)
STAGES = {"read": ("sorting users", 0), "cleaned": ("indexing users", 1), "written": ("writing arrays", 1)}
"""A build stops here, with rows in buckets, with a bucket indexed, or just before it is given its name."""
MANY = 10**12


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return generated(tmp_path_factory.mktemp("source"), rows=400, num_users=40, num_videos=20, random_rows=40)


@pytest.fixture(scope="module")
def whole(source, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "data"
    building.build(source, out, OPTIONS)
    return contents(out)


@pytest.fixture(scope="module")
def unfinished(source, tmp_path_factory):
    """Unfinished builds, by how far they came."""

    def stop(where):
        def progress(stage, done, total):
            if (stage, done) == STAGES[where]:
                raise KeyboardInterrupt

        folder = tmp_path_factory.mktemp(where)
        with pytest.raises(KeyboardInterrupt):
            building.build(source, folder / "data", OPTIONS, progress)
        return folder / ".data.building"

    return {where: stop(where) for where in STAGES}


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def varint(number):
    """A whole number as Thrift's compact protocol has it in a footer."""
    left, found = 2 * number, bytearray()
    while left > 127:
        found.append(left & 127 | 128)
        left >>= 7
    return bytes([*found, left])


def table_that_claims(path, rows, claimed):
    """A Parquet file of few bytes whose footer speaks of other rows than it has."""
    duckdb.execute(f"COPY (SELECT 1 AS user_id FROM range({rows})) TO '{path}' (FORMAT parquet)")
    content = path.read_bytes()
    start = len(content) - 8 - struct.unpack("<I", content[-8:-4])[0]
    footer = content[start:-8].replace(varint(rows), varint(claimed))
    path.write_bytes(content[:start] + footer + struct.pack("<I", len(footer)) + b"PAR1")


def piece_that_claims(path, header="{'descr': '<i8', 'fortran_order': False, 'shape': (%d,), }"):
    text = (header % MANY).ljust(117).encode() + b"\n"
    with zipfile.ZipFile(path, "w") as bundle:
        bundle.writestr("user_ids.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text)


def compressed(path):
    np.savez_compressed(path, user_ids=np.zeros(10**5))


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def edited(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def note_again(folder, path):
    """A stranger who changes a file can change what was noted of it."""
    name = str(path.relative_to(folder))
    for note in (folder / "journal").glob("*.json"):
        data = json.loads(note.read_text())
        if name in data["files"]:
            data["files"][name][0] = hashlib.sha256(path.read_bytes()).hexdigest()
            note.write_text(json.dumps(data))


def used(left, tmp_path, change):
    """Whether the next build would use what there is after a change."""
    folder = shutil.copytree(left, tmp_path / "left")
    change(folder)
    identity = json.loads((folder / "journal" / "identity.json").read_text())["found"]
    with duckdb.connect() as connection:
        Journal(folder, identity, partial(leftovers.sound, connection, 100_000))
    return [path.name for path in folder.iterdir()] != ["journal"]


def rebuilt(source, left, tmp_path, change):
    folder = shutil.copytree(left, tmp_path / ".data.building")
    change(folder)
    building.build(source, tmp_path / "data", OPTIONS)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    return contents(tmp_path / "data")


@pytest.mark.parametrize("where", STAGES)
def test_what_fits_is_used(where, source, whole, unfinished, tmp_path):
    assert used(unfinished[where], tmp_path, lambda folder: None)
    shutil.rmtree(tmp_path / "left")
    assert rebuilt(source, unfinished[where], tmp_path, lambda folder: None) == whole


def test_what_does_not_fit_is_built_anew(source, whole, unfinished, tmp_path):
    def change(folder):
        cut(next((folder / "dataset").glob("work/raw/*/*.parquet")))

    assert rebuilt(source, unfinished["read"], tmp_path, change) == whole


@pytest.mark.parametrize("change", [cut, edited, lambda path: path.unlink()])
@pytest.mark.parametrize(
    ("where", "pattern"),
    [
        ("read", "work/raw/*/*.parquet"),
        ("read", "work/users.parquet"),
        ("cleaned", "rows/*.parquet"),
        ("cleaned", "work/views/*.parquet"),
        ("cleaned", "work/pieces/*.npz"),
        ("written", "arrays/rows/reward.npy"),
        ("written", "rows/*.parquet"),
        ("written", "manifest.json"),
    ],
)
def test_a_file_that_was_changed_is_noticed(where, pattern, change, unfinished, tmp_path):
    assert not used(unfinished[where], tmp_path, lambda folder: change(next((folder / "dataset").glob(pattern))))


@pytest.mark.parametrize(
    ("where", "pattern", "forge"),
    [
        ("read", "work/raw/*/*.parquet", lambda path: table_that_claims(path, 123_457, MANY)),
        ("cleaned", "rows/*.parquet", lambda path: table_that_claims(path, 123_457, MANY)),
        ("cleaned", "work/views/*.parquet", cut),
        ("cleaned", "work/pieces/*.npz", piece_that_claims),
        ("cleaned", "work/pieces/*.npz", compressed),
        ("cleaned", "work/pieces/*.npz", cut),
        ("written", "arrays/rows/user.npy", cut),
    ],
)
def test_a_forged_header_is_noticed_where_the_note_was_forged_too(where, pattern, forge, unfinished, tmp_path):
    def change(folder):
        path = next((folder / "dataset").glob(pattern))
        forge(path)
        note_again(folder, path)

    assert not used(unfinished[where], tmp_path, change)


def test_a_file_that_nobody_noted_is_removed(source, whole, unfinished, tmp_path):
    def change(folder):
        for name in ("rows/bucket-007.parquet", "work/views/bucket-000.parquet.tmp", "arrays/more.npy", "notes.txt"):
            path = folder / "dataset" / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(b"PAR1")

    assert rebuilt(source, unfinished["cleaned"], tmp_path, change) == whole


@pytest.mark.parametrize(
    "note",
    [
        {"found": True, "files": {"../../etc/passwd": ["", None]}},
        {"found": True, "files": {"/etc/passwd": ["", None]}},
        {"found": True, "files": ["rows"]},
        {"found": True, "files": {"rows": "x"}},
        {"found": True, "files": {"rows": [1, 2]}},
        {"found": True},
        [],
        7,
    ],
)
def test_a_note_that_is_none(note, unfinished, tmp_path):
    def change(folder):
        (folder / "journal" / "index-000.json").write_text(json.dumps(note))

    assert not used(unfinished["cleaned"], tmp_path, change)


def test_rows_that_cannot_be_read_are_one_line_and_leave_nothing(source, unfinished, tmp_path):
    """A footer that is right, pages that are not."""

    def change(folder):
        (folder / "journal" / "clean-000.json").unlink(missing_ok=True)
        path = next((folder / "dataset").glob("work/raw/*/*.parquet"))
        content = path.read_bytes()
        start = len(content) - 8 - struct.unpack("<I", content[-8:-4])[0]
        path.write_bytes(b"PAR1" + bytes(start - 4) + content[start:])
        note_again(folder, path)

    with pytest.raises(ValueError, match=r"^[^\n]*work cannot be worked on: [^\n]+$"):
        rebuilt(source, unfinished["read"], tmp_path, change)
    assert list(tmp_path.iterdir()) == []


def test_claims_of_a_footer(tmp_path):
    path = tmp_path / "x.parquet"
    with duckdb.connect() as connection:
        table_that_claims(path, 123_457, 123_457)
        assert leftovers.sound(connection, 123_457, path)
        assert not leftovers.sound(connection, 123_456, path)
        for claimed in (MANY, 2**62, 123_458):
            table_that_claims(path, 123_457, claimed)
            assert not leftovers.sound(connection, 123_457, path)


def test_a_bundle_is_what_was_saved(tmp_path):
    arrays = {"a": np.arange(6).reshape(2, 3), "b": np.zeros((0, 3), np.float32), "c": np.array([True])}
    np.savez(tmp_path / "x.npz", **arrays)
    found = stored.bundle(tmp_path / "x.npz")
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
