"""Folders that are whole or not there."""

import pytest

from moac.logs import workspace


def test_a_failure_leaves_nothing_and_a_success_everything(tmp_path):
    with pytest.raises(RuntimeError), workspace.becoming(tmp_path / "out") as folder:
        (folder / "half").write_text("half")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with workspace.becoming(tmp_path / "deep" / "out") as folder:
        (folder / "whole").write_text("whole")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["out"]
    assert (tmp_path / "deep" / "out" / "whole").exists()
