"""The networks' part of the study of fronts: bars on both sides, references and peers, on points that are known."""

import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from moac.cli import main
from moac.cli.options import config_of
from moac.config import Config
from moac.momdp import hypervolume, library
from moac.search import EXPLORING
from moac.search.plan import ASKED
from moac_studies import framework, one_network, recorded
from moac_studies.one_network import Measured

ROW = {"env": "mo-mountaincarcontinuous-v0", "config": {}, "reference": [0.0, 0.0], "steps": 1000, "preferences": 36}
SEA = {"env": "deep-sea-treasure-v0", "config": {"setting": {"name": "discounted", "discount": 0.99}}}


def run(*points, archived=1):
    about = {"archived": np.arange(archived), "cpu": np.array([4.0]), "steps": np.array([1000])}
    about["evaluation_steps"] = np.array([400])
    return {"points": np.array(points, dtype=float), "first": np.array(points[0][:1], dtype=float), **about}


def verdicts(table, *runs):
    return [claim.verdict for claim in one_network.claims({"row": Measured(runs, {**ROW, **table})})]


TWO = (run((1, 2)), run((2, 2)))  # volumes of 2 and 4


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({}, []),
        ({"least": 3}, ["holds"]),
        ({"least": 3.1}, ["does not hold"]),
        ({"least": 3, "smallest": 2}, ["holds", "holds"]),
        ({"least": 3, "smallest": 2.1}, ["holds", "does not hold"]),
        ({"first": 1}, ["holds"]),
        ({"first": 1.1}, ["does not hold"]),
    ],
)
def test_a_bar_asks_the_mean_or_every_seed(table, expected):
    assert verdicts(table, *TWO) == expected


def test_one_seed_decides_nothing():
    assert verdicts({"least": 1, "smallest": 9}, TWO[0]) == ["not decided", "not decided"]


@pytest.mark.parametrize(("archived", "expected"), [((3, 1), "holds"), ((2, 2), "does not hold")])
def test_half_of_the_seeds_must_have_points_apart(archived, expected):
    assert verdicts({"apart": 3}, *(run((1, 1), archived=count) for count in archived)) == [expected]


def test_the_reference_lies_below_the_exact_front_unless_it_is_given():
    front = Measured((), SEA).known.front
    whole = Measured((run(*front),), SEA)
    assert whole.volumes() == pytest.approx(hypervolume(front, front.min(axis=0) - 0.1 * np.ptp(front, axis=0)))
    assert whole.volumes([0.0, -25.0]) == pytest.approx(360.4009, abs=1e-3)
    bars = {**SEA, "hull": 9}
    for points, expected in ((front[:9], "holds"), (front[:8], "does not hold")):
        (claim,) = one_network.claims({"sea": Measured((run(*points),) * 2, bars)})
        assert claim.verdict == expected


def test_a_peer_is_the_best_on_record_above_the_same_reference(monkeypatch):
    def peer(method, *points):
        about = {"method": method, "env": ROW["env"], "discount": 0.9, "settings": "", "steps": 500, "cpu": 7.0}
        return about | {"points": points}

    runs = [peer("A", (1, 1)), peer("A", (1, 3)), peer("B", (5, 0.1))]
    content = {
        "points": [[9, 1], [3, 3], [30, 30]],
        "runs": [],
        "one_front": runs,
        "command": "it",
        "versions": {"morl-baselines": "1", "torch": "2"},
    }
    monkeypatch.setattr(recorded, "record", lambda study: content)
    (row,) = one_network.table({"row": Measured(TWO, {**ROW, "published": "C 9 (published)"})}).rows
    assert row[7].startswith("A 2") and "2 seeds, 500 steps in 7 CPU s" in row[7] and "C 9 (published)" in row[7]
    seen = [{"steps": 900, "cpu": 1.0, "returns": [0]}, {"steps": 1000, "cpu": 2.0, "returns": [1]}]
    longer = [{"steps": 1001, "cpu": 2.0, "returns": [2]}]
    about = {"env": ROW["env"], "discount": 0.9}
    content["runs"] = [about | {"method": "D", "seen": seen}, about | {"method": "E", "seen": longer}]
    (row,) = one_network.table({"row": Measured(TWO, ROW)}).rows
    assert row[7].startswith("D 9")  # what it had in the end; E has had more steps
    content["one_front"], content["runs"] = [], []
    (row,) = one_network.table({"row": Measured(TWO, {**ROW, "config": {"entropy": 0.3}})}).rows
    assert row[7] is None and "--entropy 0.3" in row[1]


def test_a_row_says_what_both_kinds_of_steps_were():
    (row,) = one_network.table({"row": Measured(TWO, ROW)}).rows
    assert row[5] == "1,000 + 400"


@pytest.mark.parametrize("name", framework.load("fronts").parameters["measuring"]["networks"])
def test_the_command_of_a_row_explores_as_its_seeds_did(name):
    parameters = framework.load("fronts").parameters
    table = {**parameters["shared"], **parameters["networks"][name]}
    if "options" in table:
        assert one_network.command(table).startswith('moac.explore(moac.envs.make("water-reservoir-v0", normalized')
        return
    _, command, *words = shlex.split(one_network.command(table))
    asked = main.parse([command, *words])
    measured = Config.from_json({**EXPLORING, **table["config"]})
    given = config_of(asked.config, asked.problem.setting, asked.problem.discount)
    entropy = None if asked.entropy is None else asked.entropy[0]
    assert replace(given, entropy=entropy) == measured
    assert (asked.steps, asked.preferences or ASKED) == (table["steps"], table["preferences"])
    assert list(asked.reference or ()) == table.get("reference", [])
    assert asked.problem.blackbox == (library.for_environment(table["env"]) is not None)


def test_bars_and_peers_may_change_after_measuring_but_not_what_was_measured(tmp_path):
    table = {**ROW, "preferences": 3, "episodes": 2}
    work = framework.Workspace(Path(tmp_path) / "tasks", lambda line: None)
    work.keep("row-7", one_network.job(table, 7), lambda: run((1, 1)))
    measuring = {"networks": ["row"], "network_seed": 7, "network_seeds": 1}
    changed = {"networks": {"row": {**table, "least": 5}}, "shared": {}, "measuring": measuring}
    study = framework.Study("fronts", "", "fronts", 0, "", "", changed, quick=False)
    assert one_network.measure(study, work)["row"].volumes() == [1.0]
    assert work.finished("row-7", one_network.job({**table, "steps": 2000}, 7)) is None


def test_the_preference_that_lands_is_looked_for_among_the_best(monkeypatch):
    """By undiscounted returns of the five whose discounted ones are highest; the sixth would be best of all."""
    discounted, undiscounted = [1.0, 6.0, 5.0, 4.0, 3.0, 2.0], [99.0, 10.0, 30.0, 20.0, 0.0, 5.0]
    found = {"points": np.array(discounted)[:, None], "preferences": np.arange(6)}
    network = SimpleNamespace(at=lambda p: SimpleNamespace(trial=0, p=p))

    def by_episodes(source, policy, trials, count):
        assert (source, trials, count) == ("env", (0,), 20)
        return SimpleNamespace(returns=[SimpleNamespace(value=undiscounted[policy.p])])

    monkeypatch.setattr(one_network.values, "by_episodes", by_episodes)
    assert one_network._best_at_the_first("env", network, found, 20).p == 2
