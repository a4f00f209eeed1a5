"""The study `learning`: its file, what it measures, how it judges, and the record of the peers."""

from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from moac.report.page import Page, render
from moac_studies import environments, framework, learning, recorded
from moac_studies.framework import Workspace

NAME, ENV = "mo-mountaincar", "mo-mountaincar-v0"
TABLES = learning.tables(framework.load("learning"))
CONTINUOUS = ("mo-mountaincarcontinuous", "mo-hopper-2obj", "mo-halfcheetah")
COSTS = {"minecart-deterministic": [2], "mo-lunar-lander": [2, 3], "mo-hopper-2obj": [], "mo-halfcheetah": [1]}
"""Objectives that are never above 0, where not all are."""
TINY = """
title = "Tiny"
study = "learning"
seed = 3
summary = "Small."
why = "Fast."
[parameters.shared]
num_envs = 2
trials = 2
evaluation_episodes = 1
episodes = 2
[parameters.shared.config]
setting = { name = "discounted", discount = 0.9 }
policy = "linear"
features = "raw"
num_critic_steps = 1
critic_batch_size = 8
actor_batch_size = 8
critic_step_size = 0.1
num_evaluations = 2
[parameters.methods]
"MOAC" = { momentum = "1/t" }
"uniform weights" = { weighting = "uniform" }
[parameters.mo-mountaincar]
env = "mo-mountaincar-v0"
steps = 100
reference = [-100.0, -100.0, -100.0]
own = { all = { actor_step_size = 1.0 } }
[parameters.nowhere]
env = "nowhere-v0"
steps = 100
reference = [0.0]
[quick]
"""


def constant(point, steps=None, ended=0.0):
    """What measuring finds where every one of five trials earns the same."""
    points = np.tile(np.array(point, dtype=float), (5, 1)) + 1e-6 * np.arange(5)[:, None]
    found = {"discounted": points, "returns": points, "ended": np.full(5, ended), "length": np.full(5, 200.0)}
    return found if steps is None else found | {"steps": np.array(steps), "over_steps": np.stack([points, points], 1)}


def verdicts(methods):
    found = learning.findings(TABLES, {NAME: methods}, {})
    return [claim.verdict for claim in found.claims], found


def test_every_environment_gets_what_all_share_and_its_own():
    methods = framework.load("learning").parameters["methods"]
    assert {table["trials"] for table in TABLES.values()} == {10}
    assert len(TABLES) == 9 and set(learning.tables(framework.load("learning", quick=True))) == {
        "mo-mountaincarcontinuous", "four-room", "mo-halfcheetah"
    }  # fmt: skip
    assert learning.methods_of(TABLES["minecart-deterministic"], methods) == methods
    found = learning.methods_of(TABLES["mo-mountaincarcontinuous"], methods)
    assert found["MOAC"] == {"action_spread": 2.0, "entropy": 0.1, **methods["MOAC"]}
    assert found["uniform weights, raw"] == {"action_spread": 2.0, **methods["uniform weights, raw"]}
    assert {key for key in found if key.endswith(learning.DEFAULTS)} == {
        "MOAC, defaults",
        "uniform weights, raw, defaults",
    }


def test_methods_have_the_defaults_and_as_many_iterations_as_the_steps_allow():
    config = learning.config_of(TABLES[NAME], {"weighting": "uniform"})
    assert config.num_iterations == 100_000 // 1024
    assert config.learner is None  # the environment decides


@pytest.mark.parametrize(
    ("of", "reached"), [("hypervolume", 2.0), ("sum", 3.0), ("mean", 1.5), ("smallest", 1.0), ("first", 7.0)]
)
def test_a_target_is_met_by_the_mean_over_trials(of, reached):
    points = np.array([[1.0, 2.0], [1.0, 2.0]]) + np.array([[0.1], [-0.1]]) * (of != "hypervolume")
    methods = {"MOAC": {"discounted": points, "returns": np.array([[8.0, 0.0], [6.0, 0.0]])}}
    table = {"reference": [0.0, 0.0]}
    for least, verdict in ((reached - 1e-6, "holds"), (reached + 1e-6, "does not hold")):
        target = {"method": "MOAC", "of": of, "least": least}
        assert learning.target_claim("here", table, methods, target).verdict == verdict


def test_the_whole_study_on_one_small_environment(tmp_path, monkeypatch):
    monkeypatch.setattr("moac.tasks.cores", lambda: 1)
    study, said = framework.parse("tiny", TINY), []
    found = learning.run(study, Workspace(tmp_path, said.append))
    assert said[0].startswith("nowhere is left out: `env` must be one of")
    assert len(said) == 4  # and the untrained policy, and two methods
    assert [claim.verdict for claim in found.claims[:1]] == ["not measured"]
    assert [row[0] for row in found.tables[0].rows] == ["untrained", "MOAC", "uniform weights", "NLMOPPO"]
    assert [row[1] for row in found.tables[0].rows[:3]] == [0, 96, 96]
    assert [shown.file for shown in found.figures] == [NAME]
    again = learning.run(study, Workspace(tmp_path, said.append))
    assert (again.claims, again.tables) == (found.claims, found.tables)
    assert said[4:] == said[:1]  # nothing was measured again


def test_an_environment_with_a_method_that_failed_is_not_judged(tmp_path, monkeypatch):
    def measure(job):
        if job.get("changes", {}).get("weighting") == "uniform":
            raise ValueError("no weights")
        return constant((-1.0, -1.0, -1.0))

    monkeypatch.setattr("moac.tasks.cores", lambda: 1)
    monkeypatch.setattr(learning, "measured_row", measure)
    said = []
    found = learning.run(framework.parse("tiny", TINY), Workspace(tmp_path, said.append))
    assert said[-1] == "mo-mountaincar-v0-uniform-weights failed: ValueError: no weights (3 of 3)"
    assert [(claim.verdict, claim.measured) for claim in found.claims][1:] == [
        ("not measured", "uniform weights failed")
    ]
    assert len(list(tmp_path.iterdir())) == 2  # what ended is kept


def test_rows_have_files_of_their_own():
    study = framework.load("learning")
    rows = [row for name, table in TABLES.items() for row in learning.rows_of(name, table, study)]
    assert len(rows) == 9 * 6 + 5  # and five methods once more with the defaults
    work = Workspace(Path(), print)
    assert len({work._path(label, job) for *_, label, job in rows}) == len(rows)


def test_an_untrained_softmax_policy_plays_at_random():
    found = learning.start({**TABLES[NAME], "trials": 1, "episodes": 20, "seed": 0})
    time, reverse, forward = found["returns"][0]
    assert time == -200
    assert found["ended"][0] == 0
    np.testing.assert_allclose([reverse, forward], -200 / 3, rtol=0.1)


def test_methods_are_judged_by_the_volume_of_their_points():
    weak, strong = (-80.0, -20.0, -20.0), (-50.0, -10.0, -10.0)
    ours, other = constant(strong, (1, 2), ended=1.0), constant(weak, (1, 2))
    methods = {"untrained": constant(weak), "MOAC": ours, "other": other}
    claims, shown = verdicts(methods)
    assert claims == ["holds"] * 5
    assert shown.tables[0].rows[1][-2].startswith("4.05e+05")  # 50 · 90 · 90
    assert [row[-1] for row in shown.tables[0].rows] == [0, 1, 0, None]
    content = render(Page("Title", "Summary.", claims=shown.claims, tables=shown.tables))
    assert "NLMOPPO" in content
    swapped = methods | {"MOAC": other, "other": ours}
    assert verdicts(swapped)[0] == ["does not hold"] * 5
    assert "after 2 steps" in shown.claims[3].claim
    assert "(smaller)" in verdicts(swapped)[1].claims[2].measured
    same = methods | {"second": ours}
    assert verdicts(same)[0][2] == "holds in part"
    assert "not told apart" in verdicts(same)[1].claims[2].measured


def shaken(point, scale, steps=(1, 2)):
    """Five trials around a point."""
    found = constant(point, steps)
    return found | {"discounted": found["discounted"] + scale * np.array([[-2.0], [-1], [0], [1], [2]])}


def test_what_five_trials_cannot_tell_is_not_decided():
    peer = recorded.network_peer(ENV)
    near = peer.discounted.mean(axis=0)
    methods = {"untrained": constant(near), "MOAC": shaken(near, 3.0), "other": constant(near, (1, 2))}
    claims, shown = verdicts(methods)
    assert [claims[k] for k in (0, 2, 3)] == ["not decided"] * 3
    assert all("trials would decide it" in shown.claims[k].measured for k in (0, 2, 3))


def test_controls_are_compared_trial_by_trial_and_peers_are_not():
    """Trials that differ by much from each other and by little from their own control, or from a peer's seed."""
    point = np.array((-50.0, -10.0, -10.0))
    ours, other = shaken(point + 0.5, 3.0), shaken(point, 3.0)
    methods = {"untrained": other, "MOAC": ours, "other": other}
    peer = recorded.NetworkPeer("peer", "as it is", 7, other["discounted"], 1.0)
    claims, _ = verdicts(methods)
    assert [claims[k] for k in (0, 2)] == ["holds", "holds"]
    assert learning.beats_peer(NAME, TABLES[NAME], methods, peer).verdict == "not decided"


def test_the_sum_of_returns_is_judged_apart_from_the_hypervolume():
    """One method is better in the sum and worse in volume, the other worse in both."""
    peer = recorded.NetworkPeer("peer", "as it is", 7, constant((-30.0, -30.0, -30.0))["discounted"], 1.0)
    methods = {"MOAC": constant((-10.0, -70.0, -8.0), (1, 2)), learning.SUM: constant((-30.0, -30.0, -32.0), (1, 2))}
    judged = {
        (key, of): learning.beats_peer(NAME, TABLES[NAME], methods, peer, key, of).verdict
        for key in methods
        for of in ("hypervolume", "sum")
    }
    assert judged["MOAC", "hypervolume"] == "does not hold"
    assert judged["MOAC", "sum"] == "holds"
    assert judged[learning.SUM, "sum"] == "does not hold"


def test_the_untrained_policy_is_no_control():
    weak, strong = constant((-80.0, -20.0, -20.0), (1, 2)), constant((-50.0, -10.0, -10.0), (1, 2))
    best = constant((-10.0, -10.0, -10.0))
    claims, _ = verdicts({"untrained": best, "MOAC": strong, "other": weak})
    assert [claims[k] for k in (0, 2)] == ["does not hold", "holds"]


@pytest.mark.parametrize(
    ("name", "quantity", "levels"),
    [
        ("minecart-deterministic", "returns", (1.0, -1.0)),
        ("mo-lunar-lander", "returns", (9.0, -9.0)),
        ("mo-mountaincarcontinuous", "ended", (1.0, 0.0)),
    ],
)
def test_every_environment_asks_for_its_own_task(name, quantity, levels):
    start = constant((0.0,) * len(TABLES[name]["reference"]))
    for level, expected in zip(levels, ("holds", "does not hold"), strict=True):
        ours = start | {quantity: level + 0 * start[quantity]}
        assert learning.task_claim(name, {"untrained": start, "MOAC": ours}).verdict == expected


def test_volumes_are_those_of_boxes_and_never_negative():
    points = np.array([[[1.0, 2.0], [3.0, 4.0]], [[-1.0, 5.0], [0.5, 0.5]]])
    np.testing.assert_allclose(environments.volumes(points, [0.0, 0.0]), [[2.0, 12.0], [0.0, 0.25]])


def test_an_environment_that_cannot_be_made_is_said_so():
    assert learning.unavailable({"env": "no-such-env-v0", "num_envs": 2}).startswith("`env` must be one of")
    assert learning.unavailable({"env": ENV, "num_envs": 2}) == ""


def test_the_record_of_the_peers_is_whole_and_small():
    data = recorded.record("networks")
    assert data["format"] == 1
    assert {"moac", "morl-baselines", "mo-gymnasium", "torch", "python"} <= set(data["versions"])
    assert data["machine"]["cpu"]
    assert len((resources.files("moac_studies") / "recorded" / "networks.json").read_bytes()) < 10_000
    assert set(data["environments"]) <= {table["env"] for table in TABLES.values()}
    assert recorded.network_peer("four-room-v0") is None


@pytest.mark.parametrize("name", [name for name, table in TABLES.items() if recorded.network_peer(table["env"])])
def test_a_peer_had_the_same_steps_and_earned_what_can_be_earned(name):
    table = TABLES[name]
    peer = recorded.network_peer(table["env"])
    assert peer is not None
    assert 0.95 * table["steps"] <= peer.steps <= 1.03 * table["steps"]
    assert len(peer.discounted) >= 3
    assert peer.name == ("MOPPO" if name in CONTINUOUS else "NLMOPPO")
    earned = peer.discounted[:, list(COSTS.get(name, range(len(table["reference"]))))]
    most = 6 if name == "mo-halfcheetah" else 1  # a step costs at most the squares of six numbers in [-1, 1]
    assert (earned <= 0).all()
    assert (earned >= -100.001 * most).all()
    assert recorded.record("networks")["episodes"] >= table["episodes"]


def test_episodes_are_seeded_by_the_trial_alone():
    assert environments.episode_seeds(1, 3) == environments.episode_seeds(1, 5)[:3]
    assert set(environments.episode_seeds(0, 50)).isdisjoint(environments.episode_seeds(1, 50))
