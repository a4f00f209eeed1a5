"""The book of looks: nothing that was noted is ever lost, and no look goes unnoted."""

from pathlib import Path

import numpy as np
import pytest

from moac.offline import access_log as looks

METHODS = {"MOAC": (None, (np.zeros((1, 2)), np.ones(3)))}


def look(run="run"):
    return looks.look(Path(run), "test", {"cap": float("inf"), "draws": 1000}, "abc", METHODS)


def test_looks_are_appended_in_both_books(tmp_path):
    run, data = tmp_path / "run", tmp_path / "data"
    run.mkdir()
    data.mkdir()
    first = looks.note(look(), run, data)
    assert str(first) == "test users were looked at once"
    before = (run / looks.NAME).read_bytes()
    second = looks.note(look(), run, data)
    assert (run / looks.NAME).read_bytes().startswith(before)
    assert (data / looks.NAME).read_bytes() == (run / looks.NAME).read_bytes()
    assert str(second) == "test users were looked at 2 times"
    assert [one["split"] for one in second.looks] == ["test", "test"]
    assert second.looks[0]["options"]["cap"] is None
    assert second.missing is None


def test_looks_of_other_runs_at_the_same_data_count(tmp_path):
    for name in ("one", "two", "data"):
        (tmp_path / name).mkdir()
    looks.note(look("one"), tmp_path / "one", tmp_path / "data")
    book = looks.note(look("two"), tmp_path / "two", tmp_path / "data")
    assert str(book) == "test users were looked at 2 times, 1 of them for this run"


def test_a_damaged_line_still_counts_and_the_next_look_has_its_own(tmp_path):
    (tmp_path / looks.NAME).write_bytes(b'{"id": "a", "time": "2026"}\n{"id": "b", "ti')
    book = looks.note(look(), tmp_path, None)
    assert len(book.looks) == 3
    assert book.missing == "the data has no folder"
    assert sum("damaged" in one for one in book.looks) == 1


def test_a_look_that_cannot_be_noted_in_the_run_is_refused(tmp_path):
    (tmp_path / looks.NAME).mkdir()
    with pytest.raises(ValueError, match="no look goes unnoted"):
        looks.note(look(), tmp_path, None)


def test_data_that_cannot_be_written_is_said(tmp_path):
    book = looks.note(look(), tmp_path, tmp_path / "nowhere")
    assert len(book.looks) == 1
    assert "cannot be written" in str(book.missing)


def test_fingerprints_are_of_the_parameters():
    (same,) = looks.fingerprints(METHODS).values()
    (other,) = looks.fingerprints({"MOAC": (None, (np.zeros((1, 2)), np.ones(3) * 2))}).values()
    assert same == looks.fingerprints(METHODS)["MOAC"] != other


def test_a_book_that_is_a_link_is_not_followed(tmp_path):
    run, target = tmp_path / "run", tmp_path / "target"
    run.mkdir()
    target.write_text("kept")
    (run / looks.NAME).symlink_to(target)
    with pytest.raises(ValueError, match="no look goes unnoted"):
        looks.note(look(), run, None)
    assert target.read_text() == "kept"


def test_a_line_that_is_nested_deeply_still_counts(tmp_path):
    (tmp_path / looks.NAME).write_text("[" * 100_000 + "\n")
    assert [one.get("damaged") for one in looks.read(tmp_path, None).looks] == [True]
