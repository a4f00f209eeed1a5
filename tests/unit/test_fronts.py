"""The study of fronts: what is counted, on points that are known."""

import numpy as np
import pytest

from moac.config import Discounted
from moac.momdp import indicators, library
from moac.search.explore import exact
from moac_studies import spec
from moac_studies.fronts import judging, measure, peers

TABLE = {"env": "deep-sea-treasure-v0", "discount": 0.99, "preferences": 10, "iterations": 10}
KNOWN = exact.of(library.deep_sea_treasure(), Discounted(0.99))


def explored(points):
    """Three seeds that find half of some points in 5 CPU seconds and the rest in 20."""
    returns = {"returns_0": points[: len(points) // 2], "returns_1": points}
    run = {"steps": np.array([10.0, 40.0]), "cpu": np.array([5.0, 20.0]), **returns}
    return measure.Explored(KNOWN, ({**run, "wall": np.array([30.0]), "compiling": np.array([9.0, 7.0])},) * 3)


def test_a_whole_front_has_every_hull_point_and_the_exact_volume():
    found = judging.findings({"sea": TABLE}, {"sea": explored(KNOWN.front)}, {"sea": explored(KNOWN.front)}, 20.0)
    whole, _ = found.claims
    assert whole.verdict == "holds"
    assert whole.measured.startswith("10, 10, 10 of 10 points, in 37, 37, 37 s, 7 of them to compile")
    (table,) = found.tables
    volume = indicators.hypervolume(KNOWN.front, KNOWN.front.min(axis=0) - 0.1 * KNOWN.unit)
    assert f"{volume:.3g}" in table.rows[0][3]


def test_what_was_found_later_does_not_count():
    found = judging.findings({"sea": TABLE}, {"sea": explored(KNOWN.front)}, {}, 6.0)
    assert found.tables[0].rows[0][4].startswith("5 ")
    found = judging.findings({"sea": TABLE}, {"sea": explored(KNOWN.front)}, {}, 1.0)
    assert found.tables[0].rows[0][3].startswith("0 ")


@pytest.mark.parametrize("quick", [False, True])
def test_every_problem_has_peers_on_record(quick):
    parameters = spec.load("fronts", quick).parameters
    for name in parameters["measuring"]["problems"]:
        table = parameters["problems"][name]
        record = peers.of(table["env"], table["discount"])
        assert {"MPMOQLearning", "Envelope"} <= set(record)
        assert all(len(seeds) == 5 for seeds in record.values())
