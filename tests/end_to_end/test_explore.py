"""`moac explore`: every point of a known hull, archived with its policy; the same command continues."""

import json
import shutil

import jax
import numpy as np
import pytest

import moac
from moac import files, momdp
from moac.cli import main as cli
from moac.report.page import render
from moac.report.pages import exploration as page
from moac.search import archive as archives
from tests.helpers.damage import damaged
from tests.helpers.kuairand import build, generated

TINY = [
    *("explore", "fishwood-v0", "--preferences", "5", "--iterations", "400", "--num-critic-steps", "1", "--json"),
    *("--critic-batch-size", "8", "--actor-batch-size", "32", "--num-evaluations", "4", "--discount", "0.9"),
    *("--actor-step-size", "20", "--gae", "0", "--rules", "fixed", "--entropy", "0.01", "1e-6"),
]


@pytest.fixture(scope="module")
def explored(tmp_path_factory):
    """A folder with an exploration of fishwood, made by the command."""
    out = tmp_path_factory.mktemp("explore") / "fishwood"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOAC_CACHE", "off")
        assert cli.main([*TINY, "--out", str(out)]) == 0
    return out, files.read_json(out / "explore.json")


def test_the_ends_of_the_hull_are_found(explored):
    """Its three points are on one line, so that no p asks for the middle one alone."""
    numbers = explored[1]["numbers"]
    assert numbers["hull_points"] == 3 and numbers["hull_found"] >= 2
    for missed in numbers["hull_missed"]:
        assert missed == pytest.approx([0.474, 4.737], abs=1e-3)
    assert numbers["preferences_served"]["archive"] == 1.0 and numbers["most_below_hull"] < 0.05


def test_a_damaged_record_ends_in_a_page_or_one_line(explored):
    path, told = explored[0] / "explore.json", explored[1]
    whole, refused = path.read_text(), 0
    try:
        for place, data in damaged(told, ([1], "x")):
            path.write_text(json.dumps(data))
            try:
                render(page.of_folder(explored[0]))
            except ValueError as error:
                refused += 1
                assert str(explored[0]) in str(error) and "\n" not in str(error), place
    finally:
        path.write_text(whole)
    assert refused > 10


def test_the_archive_comes_back_with_policies_worth_what_it_says(explored):
    out, told = explored
    model, setting = momdp.library.fishwood(), moac.Discounted(0.9)
    policies = moac.load(out)
    archive = policies.archive
    assert archive is not None
    assert set(archive.rules) <= {"fixed", "fixed, stage 1", "fixed, greedy", "fixed, stage 1, greedy"}
    assert len(archive) == len(told["archive"])
    assert momdp.evaluate(model, np.asarray(policies), setting).returns == pytest.approx(archive.points, abs=1e-9)
    assert archive.points == pytest.approx(np.array([point["returns"] for point in told["archive"]]))
    for i in range(2):
        best, shown = archive.best_for(np.eye(2)[i]), model.observations[0]
        assert best == np.argmax(archive.points[:, i])
        key = jax.random.key(i)
        assert archive.policy(best).act(shown, key) == moac.load(out, trial=best).act(shown, key)


def test_an_exploration_in_memory_is_that_of_a_folder_bit_for_bit(explored, tmp_path):
    archive = moac.load(explored[0]).archive
    sizes = {"num_critic_steps": 1, "critic_batch_size": 8, "actor_batch_size": 32, "num_evaluations": 4}
    config = moac.Config(setting=moac.Discounted(0.9), num_iterations=400, actor_step_size=20.0, **sizes)
    ours = moac.explore("fishwood-v0", config, preferences=5, rules=("fixed",), entropies=(0.01, 1e-6))
    assert ours.rules == archive.rules and (np.asarray(ours.policies) == np.asarray(archive.policies)).all()
    assert all((array == archive.arrays()[name]).all() for name, array in ours.arrays().items())
    assert repr(ours) == f"Archive({len(ours)} policies, 2 objectives, values: exact)"
    saved = moac.load(ours.save(tmp_path / "saved")).archive
    assert saved.rules == archive.rules and (saved.points == archive.points).all()
    assert (tmp_path / "saved" / "report.html").exists() and not (tmp_path / "saved" / "rules").exists()
    with pytest.raises(ValueError, match="`exploration`"):
        saved.save(tmp_path / "again")


def test_greedy_policies_are_archived_for_what_their_likeliest_actions_earn(explored):
    out, told = explored
    model, setting = momdp.library.fishwood(), moac.Discounted(0.9)
    policies = moac.load(out)
    greedy = [k for k, rule in enumerate(policies.archive.rules) if rule.endswith("greedy")]
    logits = np.asarray(policies)[greedy]
    likeliest = np.eye(model.num_actions)[logits.argmax(axis=2)]
    earned = momdp.oracle.of_policy(model, likeliest, setting).returns
    assert greedy and earned == pytest.approx(policies.archive.points[greedy], abs=1e-9)
    own = told["by_rule"]["fixed"]
    assert (own["trials"], own["policies"], own["archived"]) == (5, 20, len(policies.archive))
    assert own["env_steps"] == told["numbers"]["env_steps"]


def test_a_killed_exploration_keeps_its_finished_stages_and_ends_the_same(explored, tmp_path, capsys):
    out, told = explored
    shutil.copytree(out / "rules", tmp_path / "out" / "rules")
    (last,) = (path for path in (tmp_path / "out" / "rules").iterdir() if "1e-06" in path.name)
    shutil.rmtree(last)
    assert cli.main([*TINY, "--out", str(tmp_path / "out")]) == 0
    again = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {key: again[key] for key in told if key != "format"} == {key: told[key] for key in told if key != "format"}
    name = f"rules/{last.name}/policy.safetensors"
    assert (out / name).read_bytes() == (tmp_path / "out" / name).read_bytes()


def test_the_same_command_changes_nothing(explored, capsys):
    out, told = explored
    runs = {path: path.stat().st_mtime_ns for path in (out / "rules").rglob("*.safetensors")}
    assert cli.main([*TINY, "--out", str(out)]) == 0
    again = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {path: path.stat().st_mtime_ns for path in (out / "rules").rglob("*.safetensors")} == runs
    assert {key: again[key] for key in told if key != "format"} == {key: told[key] for key in told if key != "format"}


def test_the_page_leads_from_a_mark_to_a_policy(explored):
    out, told = explored
    text = render(page.of_folder(out))
    for k in range(len(told["archive"])):
        assert f'href="#point-{k}"' in text and f'id="point-{k}"' in text and f"trial={k})" in text
    assert "<script" not in text


def test_damaged_files_are_named(explored, tmp_path):
    out, _ = explored
    for name in ("config.json", "policy.safetensors"):
        shutil.copy(out / name, tmp_path)
    arrays, about = files.read_arrays(out / "archive.safetensors")
    files.write_arrays(tmp_path / "archive.safetensors", arrays | {"low": arrays["low"][:1, :1]}, about)
    with pytest.raises(ValueError, match=r"archive\.safetensors is damaged: `low` has shape"):
        moac.load(tmp_path)
    (tmp_path / "explore.json").write_text('{"format": 1}')
    with pytest.raises(ValueError, match=r"explore\.json is damaged"):
        page.of_folder(tmp_path)


@pytest.mark.parametrize(
    "more, said",
    [
        (["--rules", "prefered"], "`rules` must be some of"),
        (["--rules", "fixed", "fixed"], "`rules` must name each rule once"),
        (["--entropy", "-1"], "`entropy` must be at least 0"),
        (["--preferences", "0"], "`preferences` must be a whole number of at least 1"),
        (["--preferences", "1", "--draw", "grid"], "`preferences` must be at least 2 on a grid"),
        (["--draw", "spiral"], "`--draw` must be one of grid, random"),
        (["--reference", "1"], "`reference` must hold one number per objective (2)"),
        (["--iterations", "1"], "`num_iterations` must be at least 2, one per stage"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(tmp_path, capsys, more, said):
    arguments = [part for part in TINY if part not in ("--preferences", "5")] if "--preferences" in more else TINY
    assert cli.main([*arguments, *more, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1 and not (tmp_path / "out").exists()


def test_an_occupied_folder_and_wrong_preferences_are_refused(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("dear diary")
    assert cli.main([*TINY, "--out", str(tmp_path)]) == 2
    assert "is not an exploration" in capsys.readouterr().err
    given = [part for part in TINY if part not in ("--preferences", "5")]
    for text in ("0.5,0.6", "0.5", "a,b"):
        assert cli.main([*given, "--preferences", text, "--out", str(tmp_path / "out")]) == 2
        assert "`preferences` must be a number, or vectors of 2" in capsys.readouterr().err


@pytest.mark.slow
def test_an_environment_is_explored_by_episodes_with_intervals(tmp_path, capsys):
    order = [*TINY, "--blackbox", "--num-envs", "4", "--evaluation-episodes", "2", "--rules", "fixed", "preferred"]
    order += ["--iterations", "6", "--num-evaluations", "2", "--evaluation-share", "1000"]
    assert cli.main([*order, "--out", str(tmp_path / "out")]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    archive = moac.load(tmp_path / "out").archive
    assert told["returns_kind"] == archive.kind == "episodes" and told["by_rule"].keys() == {"fixed", "preferred"}
    assert (archive.low < archive.high).any() and (archive.low <= archive.points).all()
    assert not archives.surely_dominated(archive.low, archive.high).any()


@pytest.mark.slow
def test_a_log_is_explored_on_validation_users(tmp_path, capsys):
    build(generated(tmp_path / "rows", rows=4000), tmp_path / "data", actions=12)
    sizes = ("--iterations", "4", "--num-evaluations", "2", "--critic-batch-size", "32", "--actor-batch-size", "32")
    out = tmp_path / "out"
    assert cli.main(["explore", str(tmp_path / "data"), "--preferences", "3", *sizes, "--json", "--out", str(out)]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    policies = moac.load(out)
    assert told["returns_kind"] == policies.archive.kind == "ncis" and len(policies.archive) == len(told["archive"])
    assert len(policies.recommend(1, (1, 12, 3), [], k=3).ids) == 3
