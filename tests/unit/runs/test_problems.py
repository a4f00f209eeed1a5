"""config.json and provenance.json."""

from moac.runs import problems


def test_commit_is_of_these_sources_only(monkeypatch, tmp_path):
    assert problems.provenance(3)["seed"] == 3
    monkeypatch.setattr(problems, "__file__", str(tmp_path / "a/b/c/d.py"))
    assert problems.provenance(3)["commit"] is None
