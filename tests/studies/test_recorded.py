"""The record of the peers: that it is whole, agrees with itself and with the exact front, and can be shown."""

from importlib import resources

import numpy as np
import pytest

from moac import momdp, statistics
from moac.config import Discounted
from moac.momdp import hypervolume
from moac.report.page import Page, render
from moac_studies import recorded

METHODS = {
    "resource-gathering-v0": ["MOQLearning", "NLMOPPO", "MOAC", "MOAC, default length"],
    "fishwood-v0": ["EUPG", "MOAC", "MOAC, default length"],
}
RECORD = recorded.record("training")
CASES = [(env, method) for env, data in RECORD["environments"].items() for method in data["methods"]]
SIMULATION_ERROR = 0.2
"""Of 0.9 fish + 0.1 wood, which has a deviation of at most 0.6 in one episode, as a mean of 200."""


def test_the_record_is_small_and_names_what_made_it():
    data = RECORD
    assert data["format"] == 1
    assert {"moac", "jax", "morl-baselines", "mo-gymnasium", "torch", "python"} <= set(data["versions"])
    assert data["machine"]["cpu"]
    assert data["seeds"] == [0, 1, 2, 3, 4]
    assert len((resources.files("moac_studies") / "recorded" / "training.json").read_bytes()) < 30_000
    assert {env: [m["name"] for m in found["methods"]] for env, found in data["environments"].items()} == METHODS


@pytest.mark.parametrize(("env", "method"), CASES, ids=lambda x: x["name"] if isinstance(x, dict) else x)
def test_an_entry_agrees_with_itself(env, method):
    data, found = RECORD, RECORD["environments"][env]
    returns = np.array(method["returns"])
    assert returns.shape == (len(data["seeds"]), len(found["objectives"]))
    means = [statistics.mean(column) for column in returns.T]
    np.testing.assert_allclose(method["mean"], [m.value for m in means], atol=1e-12)
    np.testing.assert_allclose(method["interval"], [(m.low, m.high) for m in means], atol=1e-12)
    assert method["hypervolume"] == pytest.approx(hypervolume(returns, found["reference"]))
    assert len(method["cpu_seconds"]) == len(data["seeds"])
    assert method["steps_per_cpu_second"] == pytest.approx(method["steps"] / np.mean(method["cpu_seconds"]))
    within = method["steps"] <= data["budget"]
    assert within == ("default length" not in method["name"])


@pytest.mark.parametrize("env", METHODS)
def test_the_front_is_the_exact_one_and_no_seed_is_beyond_it(env):
    found, setting = (
        RECORD["environments"][env],
        Discounted(RECORD["discount"]),
    )
    model = momdp.library.for_environment(env)
    points = momdp.pareto_front(model, setting).points
    assert found["objectives"] == list(model.objective_names)
    assert found["front"]["points"] == len(points)
    assert found["front"]["hypervolume"] == pytest.approx(hypervolume(points, found["reference"]))
    support = momdp.support_of(model, setting)
    for method in found["methods"]:
        slack = SIMULATION_ERROR if method["evaluation"] == "simulated" else 1e-6
        assert (np.array(method["returns"]) @ support.corners.T <= support.heights + slack).all()


@pytest.mark.parametrize("env", METHODS)
def test_the_table_can_be_shown_and_says_where_it_is_from(env):
    table = recorded.training_table(env)
    assert table is not None
    assert [row[0] for row in table.rows[:-1]] == METHODS[env]
    assert "not measured in this run" in table.caption
    assert "morl-baselines 1.3.0" in table.caption
    assert ("simulated" in table.caption) == (env == "fishwood-v0")
    content = render(Page("Title", "Summary.", tables=(table,)))
    for name in METHODS[env]:
        assert f">{name}</th>" in content


def test_the_record_bears_out_what_the_captions_say():
    gathering, fishing = (
        {method["name"]: method for method in found["methods"]} for found in RECORD["environments"].values()
    )
    assert gathering["MOQLearning"]["hypervolume"] > gathering["MOAC"]["hypervolume"] + 0.5
    assert np.abs(gathering["MOAC"]["returns"]).max() < 0.05
    diamond_alone = (0.0, 0.0, 0.9**9)
    np.testing.assert_allclose(gathering["MOAC, default length"]["returns"], [diamond_alone] * 5, atol=0.01)
    assert (np.ptp(fishing["MOAC"]["returns"], axis=0) > np.ptp(fishing["EUPG"]["returns"], axis=0)).all()
    for method in fishing.values():
        np.testing.assert_allclose(np.array(method["returns"]) @ (0.9, 0.1), 0.9, atol=SIMULATION_ERROR)


def test_an_environment_without_a_record_has_no_table():
    assert recorded.training_table("deep-sea-treasure-v0") is None
