"""`moac explore`: every point of a known hull, archived with its policy; the same command continues."""

import json

import jax
import numpy as np
import pytest

import moac
from moac import cli, momdp
from moac.experiments import files
from moac.experiments.explore import exact, finding, folder, page, results, running
from moac.experiments.explore.preferences import random
from moac.experiments.sweep.running import _unseen
from moac.report import html

SETTING = moac.Discounted(0.5)
ARMS = np.array([[1.0, 0.0], [0.7, 0.7], [0.0, 1.0], [0.3, 0.3]])
"""A bandit: for ever one of four arms. The hull is the first three, each worth twice its reward at γ = 0.5."""


@pytest.fixture(scope="module")
def explored(tmp_path_factory):
    """A folder with the exploration of the bandit, its results and its runs."""
    out = tmp_path_factory.mktemp("explore") / "bandit"
    model = momdp.FiniteMOMDP.from_dense(np.ones((1, 4, 1)), ARMS[None])
    config = moac.Config(
        setting=SETTING,
        num_iterations=300,
        num_critic_steps=1,
        critic_batch_size=8,
        actor_batch_size=64,
        actor_step_size=1.0,
        num_evaluations=4,
    )
    order = running.Order("bandit", 0, moac.components.resolved(config, model), ("fixed",), (0.1, 1e-6), random(9, 2, 0))
    outcomes = running.run(order, model, out, _unseen)
    last = {rule: done[-1] for rule, done in outcomes.items()}
    found = results.of(order, outcomes, finding.found(last, order, print), exact.of(model, SETTING), None)
    folder.write(out, finding.merged(last, found.archive), found.archive, order.env, results.record(found))
    page.write(found, out)
    return out, found, order, model


def test_every_point_of_the_hull_is_found(explored):
    numbers = explored[1].numbers
    assert (numbers["hull_found"], numbers["hull_points"]) == (3, 3)
    assert numbers["preferences_served"]["archive"] == 1.0 and numbers["most_below_hull"] < 0.02


def test_the_archive_comes_back_with_policies_worth_what_it_says(explored):
    out, found, _, model = explored
    archive = moac.load(out).archive
    assert archive is not None and archive.rules == ("fixed",) * len(archive)
    logits = np.asarray(moac.load(out))
    assert momdp.evaluate(model, logits, SETTING).returns == pytest.approx(archive.points, abs=1e-9)
    best = archive.best_for([0.5, 0.5])
    assert archive.points[best] == pytest.approx([1.4, 1.4], abs=0.02)
    assert archive.policy(best).act(0, jax.random.key(0)) == 1 == moac.load(out, trial=best).act(0, jax.random.key(1))
    assert (archive.points == found.archive.points).all()


def test_a_stage_begins_where_the_one_before_it_ended(explored):
    out, _, order, model = explored
    first, second = (out / "rules" / running.runner.key(task, order, model) for task in running.stages(order, "fixed"))
    ended, _ = files.read_arrays(sorted((first / "checkpoint").glob("*.safetensors"))[-1])
    begun, about = files.read_arrays(second / "checkpoint" / "0000000000.safetensors")
    assert about["iteration"] == 0
    assert (ended["trials.state.theta"] == begun["trials.state.theta"]).all() and not begun["trials.state.t"].any()


def test_the_page_leads_from_a_mark_to_a_policy(explored):
    out, found, *_ = explored
    text = html.render(page.of_folder(out))
    for k in range(len(found.archive)):
        assert f'href="#point-{k}"' in text and f'id="point-{k}"' in text and f"trial={k})" in text
    assert "<script" not in text and "3 of 3" in text


def test_damaged_files_are_named(explored, tmp_path):
    out, *_ = explored
    for name in ("config.json", "policy.safetensors", "archive.safetensors"):
        (tmp_path / name).write_bytes((out / name).read_bytes())
    arrays, about = files.read_arrays(out / "archive.safetensors")
    files.write_arrays(tmp_path / "archive.safetensors", arrays | {"low": arrays["low"][:1, :1]}, about)
    with pytest.raises(ValueError, match=r"archive\.safetensors is damaged: `low` has shape"):
        moac.load(tmp_path)
    (tmp_path / "explore.json").write_text('{"format": 1}')
    with pytest.raises(ValueError, match=r"explore\.json is damaged"):
        page.of_folder(tmp_path)


TINY = [
    *("explore", "fishwood-v0", "--preferences", "3", "--iterations", "4", "--num-critic-steps", "1", "--json"),
    *("--critic-batch-size", "4", "--actor-batch-size", "4", "--num-evaluations", "4", "--discount", "0.9"),
]


def test_the_command_says_all_and_is_done_once(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("MOAC_CACHE", "off")
    arguments = [*TINY, "--entropy", "0.1", "0.01", "--out", str(tmp_path / "out")]
    assert cli.main(arguments) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    runs = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "rules").rglob("*.safetensors")}
    assert told["entropies"] == [0.1, 0.01] and len(runs) == 8  # history, policy and two checkpoints of both stages
    assert len(told["archive"]) == told["numbers"]["points"] == len(moac.load(told["run_dir"]).archive)
    assert cli.main(arguments) == 0
    again = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {path: path.stat().st_mtime_ns for path in runs} == runs
    assert {key: again[key] for key in again if key != "seconds"} == {k: told[k] for k in told if k != "seconds"}


@pytest.mark.parametrize(
    "more, said",
    [
        (["--rules", "prefered"], "`rules` must be some of"),
        (["--rules", "fixed", "fixed"], "`rules` must name each rule once"),
        (["--entropy", "-1"], "`entropy` must be at least 0"),
        (["--preferences", "0"], "must be a whole number of at least 1"),
        (["--preferences", "1", "--draw", "grid"], "`preferences` must be at least 2 on a grid"),
        (["--draw", "spiral"], "`--draw` must be one of random, grid"),
        (["--reference", "1"], "`reference` must hold one number per objective (2)"),
        (["--entropy", "1", "1", "1", "1", "1"], "`iterations` must be at least one per entropy (5)"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(tmp_path, capsys, more, said):
    arguments = [part for part in TINY if part not in ("--preferences", "3")] if "--preferences" in more else TINY
    assert cli.main([*arguments, *more, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1 and not (tmp_path / "out").exists()


def test_an_occupied_folder_and_wrong_preferences_are_refused(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("dear diary")
    assert cli.main([*TINY, "--out", str(tmp_path)]) == 2
    assert "is no exploration" in capsys.readouterr().err
    given = [part for part in TINY if part not in ("--preferences", "3")]
    for text in ("0.5,0.6", "1", "a,b"):
        assert cli.main([*given, "--given", text, "--out", str(tmp_path / "out")]) == 2
        assert "`given` must be" in capsys.readouterr().err
    assert cli.main([*TINY, "--given", "0.5,0.5", "--out", str(tmp_path / "out")]) == 2
    assert "`preferences` must be left out with --given" in capsys.readouterr().err
