"""Verdicts of the critic's study on made-up measurements, with a case on each side."""

import numpy as np
import pytest

from moac.statistics import Mean
from moac_studies import critic_error, critic_rate
from moac_studies.critic_error import DISCOUNTED, EXACT, OURS, PAPER, VARIANTS, Plan

YES, PART, NO, OPEN = "holds", "holds in part", "does not hold", "not decided"
NOISE = np.tile([-1.0, 1.0], 20)


def around(value, half=0.01):
    return Mean(value, value - half, value + half, 16)


ONE = around(1.0)


class Named:
    """All that a claim asks of a problem."""

    name = "made up"


def fit(straight=0.99, orders=2.0, agreement=1.0, half=0.005):
    return critic_error.Fit(around(orders, half), around(straight, half), around(0.1 * agreement, half / 10), 0.1, 0.1)


class Fitted:
    """A decay whose fits are given."""

    def __init__(self, *several):
        self.fits = several
        self.worst = 0


def measured(*several):
    decays = {DISCOUNTED: Fitted(fit()), EXACT: Fitted(*several)}
    return critic_error.Measured(Named(), 0.5, critic_error.Floors(np.array([8.0]), {}, {}), decays)


@pytest.mark.parametrize(
    ("several", "expected"),
    [
        ([fit()], YES),
        ([fit(straight=0.9)], PART),
        ([fit(orders=0.5)], PART),
        ([fit(straight=0.981)], OPEN),
        ([fit(orders=1.001)], OPEN),
        ([fit(), fit(straight=0.9, orders=0.5)], PART),
    ],
)
def test_a_decay_is_geometric_where_it_is_straight_over_an_order(several, expected):
    assert critic_rate.decay_claims(measured(*several))[0].verdict == expected


@pytest.mark.parametrize(("agreement", "expected"), [(1.0, YES), (1.2, PART), (0.8, PART), (1.1, OPEN), (0.9, OPEN)])
def test_a_rate_is_the_expected_one_within_a_tenth(agreement, expected):
    assert critic_rate.decay_claims(measured(fit(agreement=agreement)))[1].verdict == expected


def test_a_decay_with_too_few_points_is_not_decided():
    unknown = critic_error.Fit(critic_error.UNKNOWN, critic_error.UNKNOWN, critic_error.UNKNOWN, np.nan, 0.1)
    for claim in critic_rate.decay_claims(measured(unknown)):
        assert claim.verdict == OPEN
        assert "too few" in claim.measured


def floors(powers, noise=0.01):
    """Floors of two objectives that fall as these powers of D, with and without the paper's μ."""
    sizes, shake = np.array([8.0, 16.0, 32.0]), np.random.default_rng(1).normal(1, noise, (50, 3, 2))
    values = {v: shake * sizes[:, None] ** np.array(powers[v == PAPER]) for v in VARIANTS}
    return critic_error.Measured(Named(), 0.5, critic_error.Floors(sizes, values, dict.fromkeys(VARIANTS, 0.0)), {})


@pytest.mark.parametrize(
    ("ours", "paper", "expected"),
    [
        ([-1, -1], [0, 0], [YES, YES]),
        ([-1, -0.5], [0, -1.0], [PART, PART]),
        ([-0.5, -1.5], [-1.2, -1.0], [NO, NO]),
        ([-1, -0.85], [0, -0.85], [OPEN, OPEN]),
    ],
)
def test_floors_fall_as_one_over_d_in_every_objective(ours, paper, expected):
    found = floors((ours, paper))
    for variant in (DISCOUNTED, EXACT, OURS):
        assert critic_rate.floor_claim(found, variant).verdict == expected[0]
    assert critic_rate.papers_mu(found).verdict == expected[1]


def beside(errors, bound, per_batch=1e6, measured=ONE, derivation="printed"):
    """A bound of constant height beside errors [K, L, M] at three checkpoints."""
    plan = Plan(0.1, 4, 3, 4, len(errors), 0, from_zero=True)
    decay = critic_error.Decay(plan, errors, np.full(errors.shape[2], 0.1), errors[0], np.zeros(errors.shape[2]))
    said = critic_rate.Guarantee("made up", "discounted", derivation, 0.1, 0.1, 4, per_batch, measured, own=True)
    steps = np.arange(1.0, 5.0)
    return critic_rate.Tested(said, decay, steps, np.full(4, bound / 2), bound / 2)


def shaken(level, at=None, value=0.0):
    errors = level + 0.1 * NOISE[:, None, None] * np.ones((1, 3, 2))
    if at is not None:
        errors[:, at[0], at[1]] += value
    return errors


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        (shaken(1.0), YES),
        (shaken(3.0), NO),
        (shaken(1.0, (2, 1), 2.0), NO),
        (shaken(1.0, (0, 0), 2.0), NO),
        (shaken(1.0, (1, 0), 1.0), OPEN),
    ],
)
def test_the_bound_is_not_violated_only_if_every_error_is_below_it(errors, expected):
    assert critic_rate.bound_holds([beside(errors, 2.0)]).verdict == expected


@pytest.mark.parametrize(
    ("per_batch", "measured", "expected"),
    [
        (5.0, around(1.0), YES),
        (1e6, around(1.0), NO),
        (0.01, around(1.0), NO),
        (10.0, around(1.0, 0.1), OPEN),
    ],
)
def test_a_bound_is_near_within_an_order_on_either_side(per_batch, measured, expected):
    one = beside(shaken(1.0), 2.0, per_batch, measured)
    object.__setattr__(one, "decay", Fitted(fit()))
    assert critic_rate.bound_is_near([one]).verdict == expected


def test_the_measured_floor_is_that_of_the_worst_objective_times_the_batch():
    floors = np.array([[1.0, 3.0, 2.0], [1.2, 3.4, 2.0]])
    assert critic_rate._largest(floors, 10).value == pytest.approx(32)


def test_the_theorem_applies_where_its_batch_can_be_paid():
    asked = [
        critic_rate.Guarantee("made up", "average", "printed", 1, 1, D, 1, around(1.0), own=False) for D in (1e6, 1.1e6)
    ]
    assert [critic_rate.bound_applies([g]).verdict for g in asked] == [YES, NO]
    assert critic_rate.bound_applies(asked).verdict == PART


@pytest.mark.parametrize("derivations", [("printed",), ("printed", "derived")])
def test_a_caption_names_the_bounds_that_were_run(derivations, monkeypatch):
    monkeypatch.setattr(critic_rate.drawings, "curves", lambda panels: panels)
    shown = critic_rate.figures((), [beside(shaken(1.0), 2.0, derivation=d) for d in derivations], ())
    words = [word for word in ("printed", "derived") if word in shown[-1].caption]
    assert words == list(derivations)
