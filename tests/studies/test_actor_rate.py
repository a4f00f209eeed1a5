"""Verdicts of the actor's study on made-up measurements, with a case on each side."""

import numpy as np
import pytest

from moac.statistics import Mean
from moac_studies import actor_law, actor_momentum, actor_noise, actor_rate, compare
from moac_studies.actor_momentum import LABELS as WEIGHTS
from moac_studies.actor_rate import LABELS

YES, PART, NO, OPEN, NONE = "holds", "holds in part", "does not hold", "not decided", "not measured"
NOISE = np.tile([-1.0, 1.0], 20)


def around(value, half=0.01):
    return Mean(value, value - half, value + half, 16)


# --- fits


def test_the_slope_of_a_power_is_its_exponent_and_differences_are_paired():
    x, models = np.array([1.0, 2.0, 4.0]), np.random.default_rng(0).uniform(0.1, 10, (30, 1))
    steep, flat = models * x**-1.5, models * x**-0.5
    assert compare.slope(x, steep).value == pytest.approx(-1.5)
    assert compare.slope(x, steep).trials == 30
    difference = compare.slope_difference(x, steep, flat)
    assert (difference.value, difference.low, difference.high) == pytest.approx((-1.0, -1.0, -1.0))


def test_a_line_is_straight_and_a_step_is_not():
    x = np.arange(6.0)
    rows = np.stack([3 - 2 * x, (x > 2).astype(float)])
    expected = [np.corrcoef(x, row)[0, 1] ** 2 for row in rows]
    np.testing.assert_allclose(compare.straightness(x, rows), expected)


# --- the gap against T


def paths(exponents, spread=0.0):
    """Mean gaps [E, 8, L] that fall as T to these exponents, which differ by model."""
    grid = np.unique(np.geomspace(1, 1000, 40).astype(int))
    own = np.array(exponents)[:, None, None] + spread * np.linspace(-1, 1, 8)[:, None]
    return grid, (grid / grid[-1]) ** own


def horizon_verdicts(**measured):
    slopes = {name: actor_rate.slopes_of(*found) for name, found in measured.items()}
    return [claim.verdict for claim in actor_rate.claims_of(slopes, measured)]


@pytest.mark.parametrize(
    ("exponents", "spread", "expected"),
    [
        ([-1.0] * 5, 0.0, [YES, NO]),
        ([-0.5] * 5, 0.0, [NO, NO]),
        ([-1.5] * 5, 0.0, [NO, NO]),
        ([0.0, -0.5, -1.0, -1.0, -1.0], 0.0, [PART, YES]),
        ([-1.0, -1.0, -1.0, -1.0, -0.5], 0.0, [PART, NO]),
        ([-1.0, -1.0, -1.0, -0.5, -1.0], 0.0, [PART, YES]),
        ([-1.0] * 5, 0.3, [OPEN, NO]),
    ],
)
def test_slopes_in_t_are_near_minus_one_with_their_whole_interval(exponents, spread, expected):
    assert horizon_verdicts(exact=paths(exponents, spread)) == [*expected, NONE]


def test_schedules_whose_slopes_differ_by_the_tolerance_are_not_told_apart():
    grid, values = paths([-0.9, -1.0, -1.0, -1.0, -1.0])
    shaken = values * (grid / grid[-1]) ** (0.02 * np.array([[1], [-1]] * 4) * np.arange(5)[:, None, None])
    assert horizon_verdicts(exact=(grid, shaken))[1] == OPEN


def test_learned_critics_are_judged_by_themselves():
    good, flat = paths([-1.0] * 5), paths([-0.2] * 5)
    assert horizon_verdicts(exact=good, **{"discounted, learned critics": flat}) == [YES, NO, NO]
    assert horizon_verdicts(exact=flat, **{"discounted, learned critics": good}) == [NO, NO, YES]
    assert LABELS[0] == "η = 1"


def test_only_the_end_of_the_ascent_counts():
    grid, values = paths([-1.0] * 5)
    late = actor_rate.late(grid)
    assert grid[late][0] == pytest.approx(grid[-1] / 10**0.5, rel=0.2)
    assert horizon_verdicts(exact=(grid, np.where(late, values, values[..., late][..., :1])))[0] == YES


# --- the gradient's error against B


def noise_verdicts(slope, floor, large=None):
    """Errors [C, W, K, L] over three B: with the exact critic as a power of B, with learned ones down to a floor."""
    B, critics = np.array([8.0, 16.0, 32.0]), (actor_noise._EXACT, "learned, D = 1", "learned, D = 16")
    exact = B**slope
    rows = [exact, np.full(3, floor * exact[-1])] + ([] if large is None else [np.full(3, large * exact[-1])])
    shake = 1 + 0.1 * NOISE * np.array([1, -1, 1])[: len(rows), None]
    error = np.stack(rows)[:, None, None] * shake[:, None, :, None] * np.ones((1, 2, 1, 1))
    named = critics[: len(rows)]
    errors = {
        ("average", critic, way): error[c, w]
        for c, critic in enumerate(named)
        for w, way in enumerate(actor_noise.WEIGHTS)
    }
    slopes = {key: compare.slope(B, values) for key, values in errors.items()}
    claims = actor_noise.claims_of(slopes, errors, named)
    return [claim.verdict for claim in claims]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((-1.0, 5.0, 1.5), [YES, YES, YES]),
        ((-0.5, 5.0, 1.5), [NO, YES, YES]),
        ((-1.0, 1.5, 0.5), [YES, NO, YES]),
        ((-1.0, 2.01, 1.1), [YES, OPEN, NO]),
        ((-1.0, 5.0, 4.0), [YES, YES, NO]),
        ((-1.0, 5.0, 2.51), [YES, YES, OPEN]),
        ((-1.0, 5.0), [YES, YES, NONE]),
    ],
)
def test_the_gradients_error_and_its_floors(arguments, expected):
    assert noise_verdicts(*arguments) == expected


def test_weights_of_the_same_batch_are_judged_too():
    fixed, chosen = actor_noise.WEIGHTS
    slopes = {("average", actor_noise._EXACT, way): around(s) for way, s in ((fixed, -1), (chosen, -0.5))}
    critics = (actor_noise._EXACT, "learned")
    errors = {("average", critic, way): np.ones((4, 3)) for critic in critics for way in actor_noise.WEIGHTS}
    claims = actor_noise.claims_of(slopes, errors, critics)
    assert claims[0].verdict == PART


# --- the number of objectives


def objective_claims(slopes):
    kinds = (actor_law._NOISE, actor_law._RANDOM)
    return [actor_law._claim(kind, {k: s for k, s in slopes.items() if k[0].startswith(kind)}) for kind in kinds]


@pytest.mark.parametrize(
    ("slopes", "expected"),
    [
        ((around(0.0), around(-0.5)), YES),
        ((around(0.0), around(0.5)), PART),
        ((around(0.5), around(0.5)), NO),
        ((around(0.0), around(0.05, 0.3)), OPEN),
        ((Mean(0.0, -2.0, 2.0, 4), around(0.5)), NO),
    ],
)
def test_that_the_gap_does_not_grow_with_m_must_be_shown(slopes, expected):
    keys = [(f"{actor_law._NOISE}, α = 0.5", label) for label in ("η = 1/t", "η = 1")]
    noise, models = objective_claims(dict(zip(keys, slopes, strict=True)))
    assert (noise.verdict, models.verdict) == (expected, NONE)
    grows = [label for (_, label), slope in zip(keys, slopes, strict=True) if slope.low > 0.1]
    assert f"grows with M for: {', '.join(grows) or 'none'}." in noise.measured


def test_random_models_are_judged_by_themselves():
    slopes = {(f"{kind}, α = 1", "η = 1"): around(s) for kind, s in ((actor_law._NOISE, 0), (actor_law._RANDOM, 1))}
    assert [claim.verdict for claim in objective_claims(slopes)] == [YES, NO]


# --- momentum


def trials(levels):
    """Values [3, E, K, 1] of three examples by weighing; trials differ by far more than the noise of each."""
    seeds = np.linspace(0.5, 1.5, 40)
    return np.stack([[levels[k][label] * seeds for label in WEIGHTS] for k in range(3)])[..., None]


def gaps(plain, smooth, fixed, examples=3):
    """The named gaps in the first examples; elsewhere momentum wins by far."""
    best = dict.fromkeys(WEIGHTS, 1.0) | {"η = 1/t": 1e-3}
    own = best | {"η = 1": plain, "η = 1/t": smooth, "η = 0": fixed}
    return trials([own if k < examples else best for k in range(3)])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (gaps(1.0, 0.01, 0.02), [YES, YES]),
        (gaps(1.0, 0.01, 0.005), [YES, NO]),
        (gaps(1.0, 0.2, 0.3), [NO, YES]),
        (gaps(0.1, 1.0, 0.1), [NO, NO]),
        (gaps(1.0, 0.2, 0.1, examples=1), [PART, PART]),
        (gaps(1.0, 0.2, 0.1, examples=2), [PART, PART]),
    ],
)
def test_momentum_is_compared_trial_by_trial(given, expected):
    assert [claim.verdict for claim in actor_momentum._gap_claims(given, "Gap")] == expected


def test_a_gap_that_is_as_small_on_average_is_not_decided():
    given = gaps(1.0, 0.01, 0.01)
    given[:, WEIGHTS.index("η = 0"), :, 0] += 0.001 * NOISE
    assert actor_momentum._gap_claims(given, "Gap")[1].verdict == OPEN


@pytest.mark.parametrize(
    ("bias", "gap", "expected"),
    [
        ([3.0, 2.0, 1.0], [1e-3] * 3, YES),
        ([3.0, 2.0, 2.5], [1e-3] * 3, PART),
        ([3.0, 2.0, 1.0], [1e-3, 0.0, 1e-3], PART),
        ([1.0, 2.0, 3.0], [0.0] * 3, NO),
    ],
)
def test_the_bias_of_the_expected_step_is_enumerated(bias, gap, expected):
    found = {"bias": np.array(bias), "gap": np.array(gap)}
    assert actor_momentum._bias_claim(found, {"expected_batches": [1, 2, 4]}).verdict == expected


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ({"η = 1/t": 0.5}, YES),
        ({"η = 1/t": -0.5}, NO),
        ({"η = 1/t": 0.5, "η = 0": 0.6}, NO),
        ({"η = 1/t": 0.5, "η = 1": 0.6}, NO),
        ({"η = 1/t": 0.5, "η = 1/t²": 0.6}, NO),
    ],
)
def test_nobody_is_sacrificed_only_if_the_worst_off_gains_most(levels, expected):
    others = dict.fromkeys(WEIGHTS, -1.0)
    change = trials([others, others, others | levels])
    assert actor_momentum._kept(change, "B = 1").verdict == expected


def test_a_worst_change_that_may_be_a_loss_is_not_decided():
    change = trials([dict.fromkeys(WEIGHTS, -1.0)] * 3)
    change[2, WEIGHTS.index("η = 1/t"), :, 0] = 0.1 * NOISE + 0.01
    assert actor_momentum._kept(change, "B = 1").verdict == OPEN


# --- the wrong law


def law(vanished, gap):
    """Where ascent along H ended on two models under three schedules; the second is of no use."""
    direction = np.where([vanished, [False] * 3], 1e-30, 1e-3)
    gaps = np.array([gap, [0.0] * 3])
    two = np.stack([direction[..., None], direction[..., None]])
    found = {"direction_gap": two, "gap": np.stack([gaps[..., None], gaps[..., None]]), "grid": np.array([9])}
    return found | {"rarest": np.full((2, 3), 0.2), "theta": np.zeros((2, 3, 2))}


@pytest.mark.parametrize(
    ("vanished", "gap", "expected"),
    [
        ([True] * 3, [0.02] * 3, NO),
        ([True] * 3, [0.02, 0.02, 0.001], OPEN),
        ([True, True, False], [0.02] * 3, OPEN),
    ],
)
def test_one_counterexample_refutes_and_none_decides_nothing(vanished, gap, expected):
    found = law(vanished, gap)
    claim = actor_law._law_claim(found, actor_law.pick(found), {"first": 0, "large": 0.01, "iterations": 9}, {})
    assert claim.verdict == expected
    assert ("more models" in claim.measured) == (expected == OPEN)


def test_a_caption_says_that_laws_were_sampled_only_if_they_were():
    found = law([True] * 3, [0.02] * 3)
    sampled = {"stationary": {"iteration": np.array([1, 9]), "gap": np.ones((3, 4, 2))}}
    assert "Algorithm 2" not in actor_law._law_figure(found, 0, {}).caption
    assert "Algorithm 2" in actor_law._law_figure(found, 0, sampled).caption
