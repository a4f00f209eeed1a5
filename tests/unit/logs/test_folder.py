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


def test_what_another_has_left_is_removed_and_a_link_is_refused(tmp_path):
    (tmp_path / ".o[u]t.building-old").mkdir()
    with folder.becoming(tmp_path / "o[u]t", "new") as place:
        assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [place.name]
    (tmp_path / ".out.building-x").symlink_to(tmp_path / "o[u]t")
    with pytest.raises(ValueError, match="symbolic link"), folder.becoming(tmp_path / "out", "x"):
        pass
