"""config.json and provenance.json, and what is said of a run by them."""

import pytest

from moac.runs import problems
from tests.helpers.run_folders import invented, model, rewrite


def test_commit_is_of_these_sources_only(monkeypatch, tmp_path):
    assert problems.provenance(3)["seed"] == 3
    monkeypatch.setattr(problems, "__file__", str(tmp_path / "a/b/c/d.py"))
    assert problems.provenance(3)["commit"] is None


@pytest.mark.parametrize(
    ("name", "told"),
    [("report.html", " It holds several runs, each a folder in "), ("else", " It is an experiment that was stopped: ")],
)
def test_of_several_runs_it_is_told_where_they_are_or_that_they_were_stopped(name, told, tmp_path):
    assert problems.unfinished(tmp_path) == ""
    (tmp_path / "tasks").mkdir()
    (tmp_path / name).touch()
    assert problems.unfinished(tmp_path).startswith(told)


@pytest.mark.parametrize(("env", "more"), [(None, ""), ("fishwood-v0", ""), ("mine.envs:Mine-v0", " --trust")])
def test_a_command_is_typed_so_that_it_runs(env, more, tmp_path):
    folder = invented(tmp_path / "my run")
    rewrite(folder / "config.json", {"problem.env": env})
    assert problems.typed("evaluate", folder) == f"moac evaluate '{folder}'{more}"
    assert problems.typed("resume", tmp_path / "none") == f"moac resume {tmp_path / 'none'}"


def test_a_model_that_stands_for_no_environment_has_no_episodes():
    with pytest.raises(ValueError, match=r"^`problem` must be an environment to play episodes in, got FiniteMOMDP\("):
        problems.real(model())
