"""`moac offline train`: from a dataset to a run that was chosen, in one command that may be interrupted."""

import contextlib
import io
import json
from dataclasses import replace

import numpy as np
import pytest

import moac
from moac.cli.main import main
from moac.logs import LoggedDataset
from moac.search import candidates
from tests.helpers.exports import assert_close, outputs
from tests.helpers.kuairand import build, generated

SMALL = ("--iterations", "4", "--num-evaluations", "2", "--critic-batch-size", "32", "--actor-batch-size", "32",
         "--hidden", "8", "--weighting", "uniform")  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("offline")
    build(generated(folder / "rows", rows=4000), folder / "data", actions=12)
    return folder / "data"


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """The command with its folder, after it ran once; its exit code, and what it said."""
    out, told = tmp_path_factory.mktemp("runs") / "run", io.StringIO()
    order = ("offline", "train", str(data), "--out", str(out), "--trials", "2", "--pulls", "1", "0.1", *SMALL)
    with contextlib.redirect_stdout(told):
        code = main([*order, "--json"])
    return order, out, code, json.loads(told.getvalue().splitlines()[-1])


def said(capsys):
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_candidates_are_trained_and_one_of_them_is_chosen_or_none(trained, capsys):
    order, out, code, first = trained
    assert set(first["candidates"]) == {"pull 1", "pull 0.1"}
    assert code == (0 if first["chosen"] else 1)
    assert first["split"] == "validation"
    record = json.loads((out / "choice.json").read_text())
    assert record["chosen"] == first["chosen"]
    assert {each["name"] for each in record["candidates"]} == set(first["candidates"])
    runs = [out / each["run"] for each in record["candidates"]]
    assert all((run / "policy.safetensors").exists() for run in runs)
    stamps = [(run / "policy.safetensors").stat().st_mtime_ns for run in runs]
    assert main([*order, "--json"]) == code  # a second call keeps what has finished
    assert said(capsys)["candidates"] == first["candidates"]
    assert [(run / "policy.safetensors").stat().st_mtime_ns for run in runs] == stamps
    assert main(["resume", str(runs[0]), "--json"]) == 0
    assert said(capsys)["returns_kind"] == "ncis"
    policy = moac.load(runs[0])
    assert policy.num_trials == 2
    x = np.random.default_rng(0).random((5, policy.catalogue.size), np.float32)
    assert_close(outputs(moac.export(policy, runs[0] / "policy.onnx"), observation=x)["logits"], policy.logits(x))
    (user, *_) = moac.load(runs[0]).catalogue.user_ids
    assert len(policy.recommend(int(user), (1, 12, 3), [], k=3).ids) == 3


def test_python_gives_the_choice_of_the_command(trained, data):
    sizes = {"num_iterations": 4, "num_evaluations": 2, "critic_batch_size": 32, "actor_batch_size": 32}
    choice = moac.choose(data, pulls=[1, 0.1], trials=2, hidden=(8,), weighting="uniform", **sizes)
    recorded = json.loads((trained[1] / "choice.json").read_text())
    assert choice.chosen == recorded["chosen"]
    gains = {each["name"]: each["gain"] for each in recorded["candidates"]}
    assert {each.name: each.gain for each in choice.candidates} == gains


def test_preferences_add_candidates(trained, data, tmp_path, capsys):
    _, out, *_ = trained
    filled = candidates.with_behaviour(LoggedDataset.from_parquet(data), out, None)
    p = tuple(1 / filled.num_signals for _ in filled.signal_names)
    wanted = candidates.Plan(0, 2, moac.Config(), (1.0,), (), (p,))
    assert list(candidates.directories(filled, wanted, out)) == ["pull 1", "preference 1"]
    assert main(["offline", "train", str(data), "--preferences", "-1", "--out", str(tmp_path / "other")]) == 2
    assert "`preferences` must be a whole number of at least 0, got -1." in capsys.readouterr().err


def test_what_is_chosen_becomes_the_run(trained, data):
    _, out, *_ = trained
    filled = candidates.with_behaviour(LoggedDataset.from_parquet(data), out, None)
    sizes = {"critic_batch_size": 32, "actor_batch_size": 32, "hidden": (8,)}
    small = moac.Config(num_iterations=4, num_evaluations=2, weighting="uniform", **sizes)
    wanted = candidates.Plan(0, 2, small, (1.0, 0.1))
    choice = candidates.choose(filled, wanted, out, lambda *task: pytest.fail("trained again"))
    runs = candidates.directories(filled, wanted, out)
    candidates.keep(replace(choice, chosen="pull 0.1"), out, runs)
    assert json.loads((out / "choice.json").read_text())["chosen"] == "pull 0.1"
    assert (out / "policy.safetensors").read_bytes() == (runs["pull 0.1"] / "policy.safetensors").read_bytes()
    for ours, theirs in zip(moac.load(out).theta, moac.load(runs["pull 0.1"]).theta, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert not list(out.glob("*.tmp"))


def test_a_floor_that_nothing_keeps_leaves_behavior_clone(trained, capsys):
    order, *_ = trained
    assert main([*order, "--protect", "Click=+900%"]) == 1
    told = capsys.readouterr().out
    assert "beyond Click=+900%" in " ".join(told.split())
    assert "no candidate qualifies with Click=+900%: keep the log's own policy" in " ".join(told.split())


def test_another_choice_leaves_nothing_of_the_policy_before(tmp_path):
    """Where no candidate qualifies any more the folder is no run; what was said of the old policy is gone."""

    class Chosen:
        def __init__(self, name):
            self.chosen = name

        def save(self, folder, runs):
            (folder / "choice.json").write_text(f"{self.chosen} {runs}")

    runs = {name: tmp_path / "menu" / name for name in ("a", "b")}
    for name, run in runs.items():
        run.mkdir(parents=True)
        for file in ("config.json", "policy.safetensors"):
            (run / file).write_text(name)
    candidates.keep(Chosen("a"), tmp_path, runs)
    for said in ("card-test.json", "evaluation-test.html", "looks.jsonl", "mine.csv"):
        (tmp_path / said).write_text("a")
    candidates.keep(Chosen("a"), tmp_path, runs)
    assert (tmp_path / "card-test.json").exists()
    candidates.keep(Chosen("b"), tmp_path, runs)
    assert (tmp_path / "policy.safetensors").read_text() == "b" and not (tmp_path / "card-test.json").exists()
    candidates.keep(Chosen(None), tmp_path, runs)
    assert {path.name for path in tmp_path.iterdir()} == {"menu", "choice.json", "looks.jsonl", "mine.csv"}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--protect", "Likes=-1%"], "`protect` must name one of Click"),
        (["--protect", "Like"], "`protect` must be a signal and a change in per cent"),
        (["--pulls", "1", "1"], "`pulls` must be different numbers of at least 0"),
        (["--pulls", "1", "--behaviour-pull", "2"], "must not both be given"),
        (["--gae", "0.5"], "`--gae` is not an option"),
        (["--trials", "0"], "`trials` must be a whole number of at least 1"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(data, tmp_path, capsys, more, message):
    out = tmp_path / "out"
    assert main(["offline", "train", str(data), "--out", str(out), *more]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_a_folder_with_something_else_is_refused(data, tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    assert main(["offline", "train", str(data), "--out", str(tmp_path)]) == 2
    assert "exists already and does not hold candidates" in capsys.readouterr().err
    assert main(["offline", "train", str(data)]) == 2
    assert "`--out` must be given" in capsys.readouterr().err
