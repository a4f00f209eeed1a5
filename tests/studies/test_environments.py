"""The study `environments`: verdicts on made-up measurements, with a case on each side."""

import numpy as np
import pytest

from moac.report.page import verdict_of
from moac_studies import environments, framework

YES, PART, NO, OPEN = "holds", "holds in part", "does not hold", "not decided"
NOISE = np.tile([-1.0, 1.0], 10)
EXTENT = np.array([1.0, 2.0, 4.0])


def alike(shift, spread=0.01, trials=20):
    """Ends of trials on the environment, shifted against those on the model."""
    model = spread * np.random.default_rng(0).normal(size=(200, 3))
    real = spread * np.random.default_rng(1).normal(size=(trials, 3))
    return {"environment": real - real.mean(axis=0) + shift, "model": model - model.mean(axis=0)}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (alike([0, 0, 0]), YES),
        (alike([0, 0, 0], spread=3.0), OPEN),
        (alike([0, 0, 0], trials=1), OPEN),
        (alike([0.2, 0, 0]), NO),
        (alike([0, 0, 1.0]), NO),
        (alike([0, 0, -1.0]), NO),
        (alike([0.03, 0, 0], spread=0.2), OPEN),
        (alike([0.03, 0, 0], spread=1e-3), NO),  # within 5 %, but told apart by their distributions
    ],
)
def test_environment_and_model_agree_only_if_that_is_shown(found, expected):
    claim = environments.agrees(found, EXTENT)
    assert claim.verdict == expected


def test_means_agree_in_units_of_what_policies_differ_by():
    assert environments.agrees(alike([0, 0, 0], spread=3.0), 100 * EXTENT).verdict == YES


def test_distributions_of_one_mean_can_be_told_apart():
    two = alike([0, 0, 0], trials=200)
    two["environment"][:, 1] = np.tile([-0.02, 0.02], 100)
    assert environments.agrees(two, EXTENT).verdict == NO


def test_the_extent_is_that_of_the_exact_front():
    extent = environments.extent(framework.load("environments").parameters["resource-gathering"])
    assert extent.shape == (3,)
    assert (extent > 0.1).all()


@pytest.mark.parametrize(
    ("ends", "expected"), [([[1, -1], [3, -3]], YES), ([[1, -1], [2, -2.5]], PART), ([[0, -2], [2, -2.5]], NO)]
)
def test_every_trial_ends_at_a_point_of_the_front(ends, expected):
    front = np.array([[1.0, -1.0], [3.0, -3.0]])
    claim = environments.on_front({"front": front, "environment": np.array(ends, float)})
    assert claim.verdict == expected
    near = [end[0] for end in ends if end in front.tolist()]
    assert claim.measured.endswith(": " + (", ".join(map(str, near)) or "none"))


def test_near_a_point_is_within_a_share_of_the_extent():
    front = np.array([[0.0, 100.0], [1.0, 0.0]])
    for end, expected in (([0.009, 100.0], YES), ([0.011, 100.0], NO), ([0.0, 99.1], YES), ([0.0, 98.9], NO)):
        assert environments.on_front({"front": front, "environment": np.array([end])}).verdict == expected


@pytest.mark.parametrize(("change", "expected"), [(1.0, YES), (-1.0, NO), (0.01, OPEN)])
def test_training_improves_the_volume_trial_by_trial(change, expected):
    seeds = np.linspace(1, 50, 20)
    random = np.stack([seeds, np.ones(20)], axis=1)
    trained = random + np.stack([change + 0.1 * NOISE, 0 * NOISE], axis=1)
    found = {"trained_discounted": trained, "random_discounted": random}
    assert environments.improves("minecart", found, [0.0, 0.0]).verdict == expected


def test_volume_is_counted_above_the_reference():
    found = {"trained_discounted": np.full((5, 2), 2.0), "random_discounted": np.full((5, 2), 1.0)}
    assert environments.improves("minecart", found, [0.0, 0.0]).verdict == YES
    assert environments.improves("minecart", found, [2.0, 2.0]).verdict == NO


def returns(first, second):
    return np.stack([first + 0.1 * NOISE, second + 0.1 * NOISE, 9 - 5 * NOISE], axis=1)


@pytest.mark.parametrize(
    ("change", "expected"), [((1, 1), YES), ((1, -1), PART), ((-1, 1), PART), ((-1, -1), NO), ((1, 0), OPEN)]
)
def test_more_of_both_ores_is_sold(change, expected):
    untrained = np.zeros((20, 3))
    _, parts = environments.sells_more_ore(returns(*change), untrained)
    assert verdict_of(part.verdict for part in parts) == expected
    found = {"trained_returns": returns(*change), "random_returns": untrained}
    assert environments.reaches("minecart", found).verdict == expected


@pytest.mark.parametrize(
    ("share", "spread", "expected"),
    [(1.0, 0, YES), (0.6, 0.1, YES), (0.5, 0.1, OPEN), (0.3, 0.1, PART), (0.01, 0.01, NO), (0.0, 0, NO)],
)
def test_the_flag_is_reached_more_often_than_not(share, spread, expected):
    ended = share + spread * NOISE
    claim = environments.reaches("mo-mountaincar", {"trained_ended": ended})
    assert claim.verdict == expected
    assert ("standing still" in claim.measured) == (share == 0)


@pytest.mark.parametrize(("outcome", "expected"), [(10, YES), (-10, NO), (0, OPEN)])
def test_a_lander_lands_more_often_than_it_crashes(outcome, expected):
    _, parts = environments.lands(outcome + NOISE)
    assert [part.verdict for part in parts] == [expected]


def test_the_findings_judge_every_environment_above_both_references():
    tables = framework.load("environments").parameters
    ends = {f"{who}_{part}": returns(1, 1) for who in ("trained", "random") for part in ("discounted", "returns")}
    ends |= {f"{who}_{part}": np.ones(20) for who in ("trained", "random") for part in ("length", "ended")}
    front = {"front": np.array([[1.0, -1.0], [3.0, -3.0]]), "environment": np.array([[1.0, -1.0]])}
    learned = {"minecart": ends, "mo-mountaincar": ends}
    found = environments.findings(tables, alike([0, 0, 0]), front, learned)
    assert len(found.claims) == 8
    for name in learned:
        for reference in ("reference", "strict_reference"):
            assert any(name in c.claim and str(tables[name][reference]) in c.claim for c in found.claims)
    assert f"{len(ends['trained_length'])} trials" in found.tables[1].caption
