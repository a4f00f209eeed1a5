"""`moac explore` of an environment: one network, asked for a grid of preferences; then `moac choose`."""

import json
import re
import shlex
import shutil

import jax
import numpy as np
import pytest

import moac
from moac import files
from moac.cli import main as cli
from moac.report.page import render
from moac.report.pages import exploration as page
from moac.runs import problems
from tests.helpers.exports import assert_close, outputs, right

TINY = [
    *("explore", "minecart-deterministic-v0", "--steps", "96", "--num-envs", "4", "--evaluation-episodes", "1"),
    *("--preferences", "6", "--episodes", "3", "--actor-batch-size", "32", "--minibatch-size", "32", "--epochs", "1"),
    *("--hidden", "4", "--discount", "0.5", "--num-evaluations", "2", "--evaluation-share", "1000", "--json"),
]


@pytest.fixture(scope="module")
def explored(tmp_path_factory):
    """A folder with a very short exploration of minecart, made by the command."""
    out = tmp_path_factory.mktemp("network") / "minecart"
    assert cli.main([*TINY, "--out", str(out)]) == 0
    return out, files.read_json(out / "explore.json")


def test_one_episode_a_policy_has_no_intervals(explored, tmp_path, capsys):
    """The runs are reused; archive and page are those of the repeated command."""
    out = shutil.copytree(explored[0], tmp_path / "one")
    repeated = [part for part in TINY if part != "--json"]
    repeated[repeated.index("--episodes") + 1] = "1"
    assert cli.main([*repeated, "--out", str(out)]) == 0
    (following,) = re.findall(r"^next: moac (.*)$", capsys.readouterr().out, re.MULTILINE)
    assert cli.main(shlex.split(following)) == 0  # as it is printed
    assert cli.main(["choose", str(out), "--protect", "fuel=-100"]) == 0
    assert "nan" not in capsys.readouterr().out


def test_the_record_has_points_intervals_and_preferences(explored):
    _, told = explored
    count = len(told["archive"])
    assert told["env_steps"] == 96 and told["rules"] == ["conditioned"] and told["returns_kind"] == "episodes"
    shapes = {name: np.shape(told[name]) for name in ("points", "intervals", "preferences")}
    assert shapes == {"points": (count, 3), "intervals": (count, 3, 2), "preferences": (count, 3)}
    assert told["hypervolume"] == pytest.approx(moac.momdp.hypervolume(np.array(told["points"]), told["reference"]))
    asked = told["asked"]
    utility = (np.array(asked["preferences"]) @ np.array(told["points"]).T).max(axis=1).mean()
    assert told["expected_utility"] == pytest.approx(utility) and np.shape(asked["points"]) == (6, 3)
    assert told["curves"]["conditioned"]["steps"] == [32, 96]


def test_the_archive_comes_back_and_acts(explored):
    out, told = explored
    policy, key, shown = moac.load(out), jax.random.key(0), np.zeros(7, np.float32)
    archive = policy.archive
    assert archive.objectives == ("ore1", "ore2", "fuel") and (archive.points == np.array(told["points"])).all()
    for k in range(len(archive)):
        at = policy.at(archive.preferences[k])
        assert archive.policy(k).act(shown, key) == at.act(shown, key)
    environment = problems.environment_of_run(out)
    again = moac.evaluate(archive.policy(0), environment, episodes=3).points[0]
    assert again == pytest.approx(archive.points[0])  # the same new episodes


def test_an_exported_network_takes_the_preference_or_has_one(explored, tmp_path, capsys):
    out, _ = explored
    policy, rows = moac.load(out), np.random.default_rng(0).uniform(-1, 1, (20, 7)).astype(np.float32)
    p = np.random.default_rng(1).dirichlet((1, 1, 1), 20).astype(np.float32)
    assert cli.main(["export", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"file": str(out / "policy.onnx"), "bytes": (out / "policy.onnx").stat().st_size}
    assert_close(outputs(told["file"], observation=rows, preference=p)["logits"], right(policy, rows, p))
    one = tmp_path / "new" / "one.onnx"
    assert cli.main(["export", str(out), "--preference", "0.2", "0.3", "0.5", "--out", str(one)]) == 0
    assert capsys.readouterr().out == f"file: {one}\n"
    assert_close(outputs(one, observation=rows)["logits"], right(policy.at([0.2, 0.3, 0.5]), rows))
    for words in (["--preference", "1"], ["--trial", "1"], ["--format", "pickle"]):
        assert cli.main(["export", str(out), *words]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_the_same_command_trains_nothing_again(explored, capsys):
    out, told = explored
    assert cli.main([*TINY, "--out", str(out)]) == 0
    again = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {name: again[name] for name in told if name != "format"} == {n: told[n] for n in told if n != "format"}


def test_a_policy_is_chosen_and_the_line_loads_it(explored, capsys):
    out, told = explored
    floor = min(interval[2][0] for interval in told["intervals"]) - 1
    assert cli.main(["choose", str(out), "--protect", f"fuel={floor}", "--prefer", "ore1", "--json"]) == 0
    chosen = json.loads(capsys.readouterr().out.splitlines()[-1])
    best = int(np.argmax([point[0] for point in told["points"]]))
    assert chosen["fits"] and chosen["point"] == best
    assert chosen["preference"] == told["preferences"][best]
    assert eval(chosen["load"]).preference == pytest.approx(chosen["preference"])
    assert "--preference" in chosen["play"]
    assert chosen["chosen"] == best


def test_where_no_policy_keeps_the_floors_none_is_chosen(explored, capsys):
    out, _ = explored
    assert cli.main(["choose", str(out), "--protect", "fuel=100"]) == 1
    shown = capsys.readouterr().out
    assert "no policy qualifies with fuel=100" in shown
    assert "100, not kept" in shown
    assert cli.main(["choose", str(out), "--protect", "fuel=100", "--json"]) == 1
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (told["chosen"], told["fits"]) == (None, False)


def test_a_policy_is_chosen_by_objectives_that_there_are(explored, capsys):
    out, _ = explored
    assert cli.main(["choose", str(out), "--prefer", "gold"]) == 2
    assert "`prefer` must name one of ore1, ore2, fuel" in capsys.readouterr().err


def test_the_page_leads_from_a_preference_to_a_policy(explored):
    out, told = explored
    text = render(page.of_folder(out))
    assert ".at([" in text and "moac watch" in text and "fuel at the top" in text and "<script" not in text
    assert text.count('href="#point-') == 3 * len(told["archive"]) + 6  # three pairs of objectives, and the simplex
