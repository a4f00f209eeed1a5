"""The page of a run: what it says, and what it makes of damaged or hostile folders."""

import base64
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import moac
from moac.cli.report import Report
from moac.momdp import FiniteMOMDP
from moac.report import figures, pages
from moac.report.page import render
from moac.report.pages import run as run_page
from tests.helpers.outline import Outline, assert_stands_alone
from tests.helpers.run_folders import CONFIG, HOSTILE, SVG, invented, make_hostile, rewrite, rewrite_history


@pytest.fixture
def folder(tmp_path):
    return invented(tmp_path / "run")


def test_a_hostile_folder_is_shown_and_makes_no_tag(folder):
    tags = Outline(render(run_page.of_run(folder))).tags
    make_hostile(folder)
    outline = assert_stands_alone(render(run_page.of_run(folder)))
    assert sorted(set(outline.tags)) == sorted(set(tags))
    assert outline.text.count(HOSTILE) >= 8


def test_the_drawing_is_carried_as_an_image(folder):
    (source,) = Outline(render(run_page.of_run(folder))).values("img", "src")
    assert source.startswith("data:image/svg+xml;base64,")
    assert base64.b64decode(source.partition(",")[2]).decode() == SVG


def test_halves_of_surrogate_pairs_can_be_written(folder):
    content = (folder / "config.json").read_text().replace('"name": "model"', '"name": "a\\ud800b"')
    (folder / "config.json").write_text(content)
    pages.write(folder)
    assert "<h1>a?b</h1>" in (folder / "report.html").read_text()


def test_the_page_of_a_run_says_what_was_run_and_came_out(folder):
    page = run_page.of_run(folder)
    facts = dict(page.facts)
    assert page.title == "model"
    assert "momentum η = 1/t trained 3 independent policies for 4 iterations, discounted, γ = 0.9." in page.summary
    assert "return of objective 1 and objective 2 did not change significantly." in page.summary
    assert (facts["Trials"], facts["Iterations"], facts["Seed"]) == (3, 4, "7")
    assert facts["Environment steps"] == 3 * 4 * (1 * 2 + 3)
    assert facts["Steps that hurt an objective"] == "16.7 % (1 of 6 logged)"
    assert facts["Stopped trials"] == "2 of 3"
    assert page.notice is not None
    assert "2 of 3 trials stopped, the first at iteration 2" in page.notice
    assert dict(page.details)["momentum"] == "1/t"


@pytest.mark.parametrize(
    ("trials", "told"),
    [
        ([0.9, 1.0, 1.1], "objective 1 rose; that of objective 2 did not change significantly"),
        ([-0.9, -1.0, -1.1], "objective 1 fell; that of objective 2 did not change significantly"),
    ],
)
def test_a_return_rose_where_its_interval_is_above_zero(folder, trials, told):
    returns = np.zeros((3, 2, 2))
    returns[:, 1, 0] = trials
    rewrite_history(folder, {"returns": returns})
    assert f"From iteration 1 to 4 the return of {told}." in run_page.of_run(folder).summary


@pytest.mark.parametrize("kind", ["ncis", "exact"])
def test_the_costs_of_a_log_are_named(folder, monkeypatch, kind):
    run = run_page.read(folder)
    monkeypatch.setattr(run_page, "read", lambda _: replace(run, history=replace(run.history, kind=kind)))
    monkeypatch.setattr(run_page.log_files, "catalogue_of", lambda _: SimpleNamespace(signs=(1, -1)))
    (folder / "catalogue.safetensors").touch()
    page, of_log = run_page.of_run(folder), kind == "ncis"
    assert page.tables[0].rows[0][0] == "objective 1"
    assert page.tables[0].rows[1][0] == "objective 2" + " (cost)" * of_log
    assert ("That of a cost is negative" in page.summary) is of_log
    assert ("Rows drawn" in dict(page.facts)) is of_log


@pytest.mark.parametrize("names, told", [("a", "a"), ("ab", "a and b"), ("abc", "a, b and c")])
def test_names_are_listed(names, told):
    assert run_page.listed(list(names)) == told


def test_of_one_evaluation_no_change_is_told(folder):
    every = {"iteration": np.array([4]), "returns": np.ones((3, 1, 2)), "smallest_alignment": np.ones((3, 1))}
    every |= dict.fromkeys(("weights", "min_norm_weights"), np.full((3, 1, 2), 0.5))
    every |= dict.fromkeys(("gradient_norm_squared", "gap", "direction_gap", "regret"), np.ones((3, 1)))
    rewrite_history(folder, every)
    page = run_page.of_run(folder)
    assert page.summary.endswith("Returns were evaluated once, at the end, so that no change is known.")
    returns, signals = page.tables
    assert returns.header == ("Objective", "Iteration 4", "Mean weight λ", "Last weight λ")
    assert signals.header == ("Signal", "Iteration 4") and "Change" not in returns.caption
    assert {len(row) for row in returns.rows} == {4} and {len(row) for row in signals.rows} == {2}


def test_the_table_of_returns_holds_students_interval(folder):
    returns, signals = run_page.of_run(folder).tables
    half = 4.302652729911275 / np.sqrt(3)  # 95 % of Student's t with 2 degrees of freedom; the trials end at 1, 2 and 3
    assert returns.header == ("Objective", "Iteration 1", "Iteration 4", "Change", "Mean weight λ", "Last weight λ")
    assert returns.rows[0][2] == f"2.0 ± {half:.1f}"
    assert returns.rows[0][3] == f"2.0 ± {half:.1f}"
    assert returns.rows[1][3] == "0.000 ± 0.000"
    assert [row[0] for row in signals.rows][:2] == [
        "Stationarity gap, true gradient",
        "Stationarity gap, stationary-law direction",
    ]


def test_what_a_run_does_not_know_is_left_out_or_a_dash(folder):
    rewrite_history(folder, {"gap": np.full((3, 2), np.nan), "smallest_alignment": np.full((3, 2), np.nan)})
    (folder / "policy.safetensors").unlink()
    page = run_page.of_run(folder)
    assert "Stationarity gap, true gradient" not in [row[0] for row in page.tables[1].rows]
    assert "moac certify" in page.tables[1].caption
    assert dict(page.facts)["Steps that hurt an objective"] == "–"
    assert dict(page.facts)["Stopped trials"] == "–"
    assert page.notice is None


@pytest.mark.parametrize("damage", ["missing", "cut off", "not a text"])
def test_a_figure_that_cannot_be_used_is_drawn_again(folder, damage, monkeypatch):
    monkeypatch.setattr(figures, "training", lambda history, objectives, title: figures.grid(1, 1, (1, 1))[0])
    path = folder / "figures" / "training.svg"
    {
        "missing": path.unlink,
        "cut off": lambda: path.write_text(SVG[:-8]),
        "not a text": lambda: path.write_bytes(b"\xff\xfe<svg></svg>"),
    }[damage]()
    (figure,) = run_page.of_run(folder).figures
    assert len(figure.svg) > 2_000 and figure.svg != SVG
    assert figure.svg == run_page.of_run(folder).figures[0].svg


def damaged(name, content):
    return lambda folder: (folder / name).write_text(content)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damaged("config.json", "{"), r"config\.json is damaged"),
        (damaged("config.json", "[]"), r"config\.json is damaged: it has no format number"),
        (lambda f: rewrite(f / "config.json", {"problem.objectives": 3}), r"`problem\.objectives` is missing"),
        (lambda f: rewrite(f / "config.json", {"config.momentum": "often"}), r"config\.json is wrong: `momentum`"),
        (
            lambda f: rewrite(f / "config.json", {"config.actor_batch_size": None}),
            r"config.json is wrong: `actor_batch_size` must",
        ),
        (lambda f: rewrite(f / "config.json", {"trials": 5}), r"history\.safetensors is damaged: `returns` has shape"),
        (lambda f: rewrite_history(f, {"gap": None}), r"history\.safetensors is damaged: 'gap' is missing"),
        (lambda f: rewrite_history(f, {"iteration": np.zeros(0, int)}), r"`iteration` has shape \(0,\)"),
        (damaged("history.safetensors", "x"), r"history\.safetensors is damaged"),
        (lambda f: (f / "history.safetensors").unlink(), r"has not finished: continue it with moac resume"),
        (lambda f: (f / "provenance.json").unlink(), r"provenance\.json is missing"),
        (damaged("provenance.json", '{"versions": 3}'), r"provenance\.json is damaged: `versions`"),
        (damaged("policy.safetensors", "x"), r"policy\.safetensors is damaged"),
        (lambda f: (f / "config.json").unlink(), r"neither a run nor an experiment"),
    ],
)
def test_what_is_missing_or_damaged_is_named_in_one_line(folder, damage, message):
    damage(folder)
    with pytest.raises(ValueError, match=message) as caught:
        Report(run_path=folder, json=False).run()
    assert "\n" not in str(caught.value)
    assert not (folder / "report.html").exists()


def test_a_path_that_is_no_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="nowhere is not a"):
        Report(run_path=tmp_path / "nowhere", json=False).run()


def test_the_command_writes_the_page_again_and_says_where(folder, capsys):
    (folder / "report.html").write_text("old")
    assert Report(run_path=folder, json=True).run() == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"report": str(folder / "report.html")}
    content = (folder / "report.html").read_text()
    assert content.startswith("<!doctype html>")
    assert Report(run_path=folder, json=False).run() == 0
    assert capsys.readouterr().out == f"report: {folder / 'report.html'}\n"
    assert (folder / "report.html").read_text() == content
    assert not list(folder.glob(".*"))


@pytest.mark.parametrize(("weight", "told"), [(0.81, True), (0.79, False)])
@pytest.mark.parametrize("weighting", ["min-norm", "uniform"])
def test_a_weight_that_one_objective_kept_is_told(folder, weight, told, weighting):
    rewrite_history(folder, {"weights": np.full((3, 2, 2), [weight, 1 - weight])})
    rewrite(folder / "config.json", {"config.weighting": weighting})
    (folder / "policy.safetensors").unlink()
    notice = run_page.of_run(folder).notice
    if told and weighting == "min-norm":
        assert notice is not None
        assert "objective 1 had more than 0.8 of the weight for 100 % of the run" in notice
        assert "capped:0.7" in notice
    else:
        assert notice is None


def test_the_only_objective_has_all_the_weight_and_no_notice(tmp_path):
    alone = FiniteMOMDP.from_dense(np.full((2, 2, 2), 0.5), np.ones((2, 2, 1)))
    folder = moac.train(alone, CONFIG, trials=1).save(tmp_path / "run")
    assert run_page.of_run(folder).notice is None


def test_a_weight_kept_for_half_of_the_run_is_not(folder):
    rewrite_history(folder, {"weights": np.array([[[0.9, 0.1], [0.5, 0.5]]] * 3)})
    (folder / "policy.safetensors").unlink()
    assert run_page.of_run(folder).notice is None
