"""Folders that are whole or not there."""

import pytest

from moac.logs import folder


def test_a_failure_leaves_nothing_and_a_success_everything(tmp_path):
    with pytest.raises(RuntimeError), folder.becoming(tmp_path / "out") as place:
        (place / "half").write_text("half")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with folder.becoming(tmp_path / "deep" / "out") as place:
        (place / "whole").write_text("whole")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["out"]
    assert (tmp_path / "deep" / "out" / "whole").exists()
