"""The access log of test users: nothing that was recorded is ever lost, and no access goes unrecorded."""

from types import SimpleNamespace

import numpy as np
import pytest

from moac.offline.access_log import ACCESS_LOG, read_accesses, record_access
from moac.offline.evaluation import fingerprints

METHODS = {"MOAC": (None, (np.zeros((1, 2)), np.ones(3)))}


def record(run, data=None):
    """Record an access of the run in `run` to the data in `data`."""
    dataset = SimpleNamespace(fingerprint="abc", folder=None if data is None else str(data))
    return record_access(run, dataset, {"cap": float("inf"), "draws": 1000}, fingerprints(METHODS))


def test_accesses_are_appended_in_both_logs(tmp_path):
    run, data = tmp_path / "run", tmp_path / "data"
    run.mkdir()
    data.mkdir()
    assert str(record(run, data)) == "test users were accessed once"
    before = (run / ACCESS_LOG).read_bytes()
    second = record(run, data)
    assert (run / ACCESS_LOG).read_bytes().startswith(before)
    assert (data / ACCESS_LOG).read_bytes() == (run / ACCESS_LOG).read_bytes()
    assert str(second) == "test users were accessed 2 times"
    assert [entry["split"] for entry in second.entries] == ["test", "test"]
    assert second.entries[0]["options"]["cap"] is None
    assert second.missing is None


def test_accesses_of_other_runs_to_the_same_data_count(tmp_path):
    for name in ("one", "two", "data"):
        (tmp_path / name).mkdir()
    record(tmp_path / "one", tmp_path / "data")
    both = record(tmp_path / "two", tmp_path / "data")
    assert str(both) == "test users were accessed 2 times, 1 of them for this run"


def test_a_damaged_line_still_counts_and_the_next_access_has_its_own(tmp_path):
    (tmp_path / ACCESS_LOG).write_bytes(b'{"id": "a", "time": "2026"}\n{"id": "b", "ti')
    log = record(tmp_path)
    assert len(log.entries) == 3
    assert log.missing == "the data has no folder"
    assert sum("damaged" in entry for entry in log.entries) == 1


def test_an_access_that_cannot_be_recorded_in_the_run_is_refused(tmp_path):
    (tmp_path / ACCESS_LOG).mkdir()
    with pytest.raises(ValueError, match="every access must be recorded"):
        record(tmp_path)


def test_data_that_cannot_be_written_is_said(tmp_path):
    log = record(tmp_path, tmp_path / "nowhere")
    assert len(log.entries) == 1
    assert "cannot be written" in str(log.missing)


def test_an_evaluation_in_memory_is_recorded_beside_the_data_alone(tmp_path):
    log = record(None, tmp_path)
    assert (len(log.entries), log.here, log.missing) == (1, 0, None)
    assert log.entries[0]["run"] is None
    assert record(None).entries == ()


def test_fingerprints_are_of_the_parameters():
    (same,) = fingerprints(METHODS).values()
    (other,) = fingerprints({"MOAC": (None, (np.zeros((1, 2)), np.ones(3) * 2))}).values()
    assert same == fingerprints(METHODS)["MOAC"] != other


def test_a_log_that_is_a_link_is_not_followed(tmp_path):
    run, target = tmp_path / "run", tmp_path / "target"
    run.mkdir()
    target.write_text("kept")
    (run / ACCESS_LOG).symlink_to(target)
    with pytest.raises(ValueError, match="every access must be recorded"):
        record(run)
    assert target.read_text() == "kept"


def test_a_line_that_is_nested_deeply_still_counts(tmp_path):
    (tmp_path / ACCESS_LOG).write_text("[" * 100_000 + "\n")
    assert [entry.get("damaged") for entry in read_accesses(tmp_path, None).entries] == [True]
