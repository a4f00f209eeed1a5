"""The study of fronts: what is counted, on points that are known."""

import numpy as np
import pytest

from moac.config import Discounted
from moac.momdp import hypervolume, library
from moac.search.measures import Yardstick
from moac_studies import framework, fronts, recorded

TABLE = {"env": "deep-sea-treasure-v0", "discount": 0.99, "preferences": 10, "iterations": 10}
KNOWN = Yardstick.exact(library.deep_sea_treasure(), Discounted(0.99))


def explored(points):
    """Three seeds that find half of some points in 5 CPU seconds and the rest in 20."""
    returns = {"returns_0": points[: len(points) // 2], "returns_1": points}
    run = {"steps": np.array([10.0, 40.0]), "cpu": np.array([5.0, 20.0]), **returns}
    return fronts.Explored(KNOWN, ({**run, "wall": np.array([30.0]), "compiling": np.array([9.0, 7.0])},) * 3)


def test_a_whole_front_has_every_hull_point_and_the_exact_volume():
    found = fronts.findings({"sea": TABLE}, {"sea": explored(KNOWN.front)}, {"sea": explored(KNOWN.front)}, 20.0)
    whole, _ = found.claims
    assert whole.verdict == "holds"
    assert whole.measured.startswith("10, 10, 10 of 10 points, in 37, 37, 37 s, 7 of them to compile")
    (table,) = found.tables
    volume = hypervolume(KNOWN.front, KNOWN.front.min(axis=0) - 0.1 * KNOWN.unit)
    assert f"{volume:.3g}" in table.rows[0][3]


def test_what_was_found_later_does_not_count():
    found = fronts.findings({"sea": TABLE}, {"sea": explored(KNOWN.front)}, {}, 6.0)
    assert found.tables[0].rows[0][4].startswith("5 ")
    found = fronts.findings({"sea": TABLE}, {"sea": explored(KNOWN.front)}, {}, 1.0)
    assert found.tables[0].rows[0][3].startswith("0 ")


@pytest.mark.parametrize(
    ("missing", "wall", "expected"), [(0, 53.0, "holds"), (0, 54.0, "does not hold"), (1, 30.0, "does not hold")]
)
def test_the_whole_hull_in_a_minute_counts_points_and_the_time_to_compile(missing, wall, expected):
    """Compiling takes 7 s."""
    one = explored(KNOWN.hull[missing:])
    runs = tuple({**run, "wall": np.array([wall])} for run in one.runs)
    claim = fronts.all_hull("sea", fronts.Explored(KNOWN, runs), 7.0, TABLE)
    assert claim.verdict == expected
    mixed = fronts.Explored(KNOWN, (*runs, *explored(KNOWN.hull).runs[:1]))
    both = fronts.all_hull("sea", mixed, 7.0, TABLE).verdict
    assert both == ("holds" if expected == "holds" else "holds in part")


def curves(*volumes, cpu=10.0):
    """Seeds that end with these volumes after so many CPU seconds."""
    end = np.array([cpu])
    return [fronts.Curve(end, end, np.array([float(volume)]), end) for volume in volumes]


@pytest.mark.parametrize(
    ("peers_of", "expected"),
    [
        ({"a": curves(1, 2, 3), "b": curves(2, 3, 4)}, "holds"),
        ({"a": curves(1, 2, 3), "b": curves(22, 23, 24)}, "holds in part"),
        ({"a": curves(21, 22, 23), "b": curves(22, 23, 24)}, "does not hold"),
        ({"a": curves(1, 2, 3), "b": curves(9, 12, 15)}, "not decided"),
        ({"a": curves(21, 22, 23), "b": curves(9, 12, 15)}, "does not hold"),
        ({"a": curves(99, 99, 99, cpu=60)}, "holds"),  # found too late
        ({}, "not measured"),
    ],
)
def test_a_volume_above_every_peer_is_shown_against_each(peers_of, expected):
    claim = fronts.above_peers("sea", {fronts.OURS: curves(10, 12, 14), **peers_of}, 10.0)
    assert claim.verdict == expected
    assert ("trials would decide it" in claim.measured) == (expected == "not decided")


@pytest.mark.parametrize("quick", [False, True])
def test_every_problem_has_peers_on_record(quick):
    parameters = framework.load("fronts", quick).parameters
    for name in parameters["measuring"]["problems"]:
        table = parameters["problems"][name]
        record = recorded.fronts(table["env"], table["discount"])
        assert {"MPMOQLearning", "Envelope"} <= set(record)
        assert all(len(seeds) == 5 for seeds in record.values())
