"""config.json and provenance.json."""

from moac.runs import description


def test_commit_is_of_these_sources_only(monkeypatch, tmp_path):
    assert description.provenance(3)["seed"] == 3
    monkeypatch.setattr(description, "__file__", str(tmp_path / "a/b/c/d.py"))
    assert description.provenance(3)["commit"] is None
