"""The claims of the paper's experiments, each with histories on both sides of its verdict."""

from dataclasses import replace

import numpy as np
import pytest

from moac import momdp
from moac.training.run import History
from moac_studies import framework, training

YES, PART, NO, OPEN = "holds", "holds in part", "does not hold", "not decided"
TRAINED = [name for name in framework.names() if framework.load(name).module == "training"]
NOISE = np.tile([-1.0, 1.0], 20)
"""Of forty trials; their mean is 0."""
SCHEDULES = ("η = 1/√t", "η = 1/t", "η = 1/t²")
CONTROLS = ("η = 1 (plain MGDA)", "first-batch weights", "uniform weights")


def main_of(name):
    return framework.load(name).parameters["figure"]["main"]


def history(first, last, **quantities):
    """Forty trials whose returns [M] go from one mean to another, with ± 0.01 in the last; other quantities [40, 2]."""
    returns = np.tile(np.array([first, last], float), (40, 1, 1))
    returns[:, 1] += 0.01 * NOISE[:, None]
    flat, weights = np.ones((40, 2)), np.full(returns.shape, 1 / len(first))
    parts = dict.fromkeys(("gradient_norm_squared", "smallest_alignment", "gap", "direction_gap", "regret"), flat)
    return History(np.arange(1, 3), returns, weights, weights, **(parts | quantities), evaluation_steps=np.zeros(2))


def verdict(name, quoted, histories, objectives=("a", "b", "c"), extent=(1.0, 1.0, 1.0)):
    """The verdict of the one claim of an experiment that has these words."""
    count = len(next(iter(histories.values())).returns[0, 0])
    measured = training.Measured(main_of(name), histories, objectives[:count], np.array(extent[:count]))
    judged = training.claims_of(name, measured)
    (claim,) = [claim for claim in judged if quoted in claim.claim]
    return claim.verdict


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ([1, 1, 1], YES),
        ([1, 1, -1], PART),
        ([1, -1, 1], PART),
        ([-1, -1, -1], NO),
        ([0, 0, 0], OPEN),
        ([1, 1, 0], OPEN),
    ],
)
def test_all_objectives_improve_only_if_each_does(last, expected):
    data = {"η = 1/t": history([0, 0, 0], last)}
    assert verdict("resource-gathering-discounted", "improve together", data) == expected


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ([1, 0, 0], YES),
        ([1, 0.3, 0], PART),
        ([1, 0, -0.3], PART),
        ([-1, 0.3, -0.3], NO),
        ([0, 0, 0], OPEN),
        ([1, 0.1, 0], OPEN),
        ([-1, 0, 0], PART),
    ],
)
def test_one_objective_improves_while_two_are_steady(last, expected):
    """Steady is 5 % of an extent of 2, with an interval of ± 0.003 around each change: 0.1 lies on the edge."""
    data = {"η = 1/t²": history([0, 0, 0], last)}
    found = verdict("resource-gathering-average", "Objective 1 improves", data, extent=(2.0, 2.0, 2.0))
    assert found == expected


@pytest.mark.parametrize(
    ("last", "expected"),
    [([0, 0], YES), ([0.3, 0], PART), ([0, -0.3], PART), ([0.3, -0.3], NO), ([0.1, 0], OPEN)],
)
def test_both_objectives_are_steady_within_a_share_of_what_policies_differ_by(last, expected):
    data = {"η = 1/t": history([0, 0], last)}
    assert verdict("fishwood-discounted", "stay steady", data, extent=(2.0, 2.0)) == expected


def test_an_objective_that_no_policy_changes_is_measured_in_its_own_unit():
    np.testing.assert_array_equal(training.extent_of(np.array([[3.0, 1.0], [3.0, -1.0]])), [1.0, 2.0])


@pytest.mark.parametrize(
    ("gap", "last", "expected"),
    [(0.0, 9.0, YES), (1e-14, 9.0, YES), (2e-14, 9.0, PART), (0.0, 9.1, PART), (1e-3, 9.1, NO), (np.nan, 9.0, PART)],
)
def test_the_null_test_asks_that_nothing_can_be_gained_anywhere(gap, last, expected):
    """The gap is asked of every method, trial and iteration; 9·fish + wood is asked to stay at 9."""
    still = history([0.0, 9.0], [0.0, 9.0], gap=np.zeros((40, 2)))
    still = replace(still, returns=np.tile([0.0, 9.0], (40, 2, 1)))
    moved = replace(still, gap=np.zeros((40, 2)), returns=still.returns.copy())
    moved.gap[7, 0], moved.returns[3, 1, 1] = gap, last
    for data in ({"η = 1/t": still, "other": moved}, {"η = 1/t": moved, "other": still}):
        assert verdict("fishwood-discounted", "in conflict", data) == expected


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize(
    ("last", "expected"), [(0.01, YES), (0.5, PART), (2.0, NO), (1.0, NO), (0.1, OPEN), (0.0, YES)]
)
def test_the_norm_converges_where_it_falls_by_an_order(name, last, expected):
    norm = np.stack([1 + 0.01 * NOISE, last - 0.001 * NOISE], axis=1)
    data = {main_of(name): history([0, 0, 0], [0, 0, 0], gradient_norm_squared=norm)}
    assert verdict(name, "converges under", data) == expected


@pytest.mark.parametrize("quantity", ["gradient_norm_squared", "gap"])
@pytest.mark.parametrize(
    ("levels", "expected"),
    [((1, 2, 3), YES), ((1, 3, 2), PART), ((2, 1, 3), PART), ((3, 2, 1), NO), ((1, 1.001, 1.5), OPEN), ((1, 1, 0), NO)],
)
def test_a_larger_momentum_is_faster_trial_by_trial(quantity, levels, expected):
    """Seeds differ by far more than schedules: only the paired difference can tell."""
    seeds = 50 * np.random.default_rng(0).random((40, 1))
    noise = 0.1 * np.stack([NOISE, np.roll(NOISE, 1), 0 * NOISE], axis=1)
    data = {
        label: history([0, 0, 0], [0, 0, 0], **{quantity: seeds + levels[k] + noise[:, k, None] + np.zeros((1, 2))})
        for k, label in enumerate(SCHEDULES)
    }
    words = "‖gₜ‖² falls sooner" if quantity == "gradient_norm_squared" else "exact gap falls sooner"
    assert verdict("resource-gathering-discounted", words, data) == expected


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize(("by", "expected"), [(0.0, YES), (1e-7, YES), (1e-5, NO), (-1e-5, NO)])
def test_the_initial_weights_are_irrelevant_where_no_return_differs(name, by, expected):
    main = main_of(name)
    one = history([0, 0, 0], [1, 1, 1])
    other = replace(one, returns=one.returns.copy())
    other.returns[5, 0, 2] += by
    assert verdict(name, "initial weights irrelevant", {main: one, f"{main}, another λ₀": other}) == expected


def ascending(share):
    """A history in which that share of the logged steps lowers some objective's estimate, on average over trials."""
    alignment = np.where(np.arange(80).reshape(40, 2) < 80 * share, -1.0, 1.0)
    return history([0, 0, 0], [0, 0, 0], smallest_alignment=alignment, gradient_norm_squared=np.ones((40, 2)))


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize(
    ("shares", "expected"), [((0, 0), YES), ((0, 0.5), PART), ((0.5, 0), PART), ((0.5, 0.5), NO), ((0, 1 / 80), OPEN)]
)
def test_common_ascent_is_asked_of_every_method_but_plain_mgda(name, shares, expected):
    data = dict(zip(("η = 1/t", "uniform weights"), map(ascending, shares), strict=True))
    assert verdict(name, "improves every objective", data) == expected
    assert verdict(name, "improves every objective", data | {CONTROLS[0]: ascending(1)}) == expected


@pytest.mark.parametrize(("hurting", "expected"), [(5, YES), (15, NO)])
def test_steps_that_hurt_are_counted_as_a_share_of_the_logged_ones(hurting, expected):
    alignment = np.where(np.arange(1000) < hurting, -1.0, 1.0) * np.ones((40, 1))
    norm = np.ones((40, 1000))
    data = {"η = 1/t": history([0] * 3, [0] * 3, smallest_alignment=alignment, gradient_norm_squared=norm)}
    assert verdict("resource-gathering-discounted", "improves every", data) == expected


def test_an_alignment_within_single_precision_hurts_nobody():
    tiny = history([0] * 3, [0] * 3, smallest_alignment=np.full((40, 2), -1e-7))
    real = history([0] * 3, [0] * 3, smallest_alignment=np.full((40, 2), -1e-5))
    found = [verdict("fishwood-discounted", "improves every", {"η = 1/t": x}) for x in (tiny, real)]
    assert found == [YES, NO]


@pytest.mark.parametrize("name", ["resource-gathering-discounted", "resource-gathering-average"])
@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ((0, 0, 0), YES),
        ((0, 0, 2), PART),
        ((2, 0, 0), PART),
        ((2, 2, 2), NO),
        ((0, 0, 1), OPEN),
        ((2, 2, 1), NO),
    ],
)
def test_momentum_helps_where_it_ends_above_every_control_trial_by_trial(name, ends, expected):
    main, seeds = (
        main_of(name),
        50 * np.random.default_rng(0).random(40)[:, None, None],
    )
    steady = history([0] * 3, [1] * 3)
    data = {main: replace(steady, returns=seeds + np.ones((40, 2, 3)))}
    for control, end in zip(CONTROLS, ends, strict=True):
        data[control] = replace(steady, returns=seeds + end + 0.1 * NOISE[:, None, None] * np.ones((1, 2, 3)))
    assert verdict(name, "momentum beats", data) == expected


def test_what_an_end_is_worth_is_the_last_return_in_units_of_what_policies_differ_by():
    main = "η = 1/t"
    better = {"first": ([9, 0, 0], [0, 0, 0]), "large": ([0, 0, 0], [0, 0, 1]), "small": ([0, 0, 0], [0, 0.5, 0])}
    found = {}
    for key, (first, last) in better.items():
        data = {main: history(first, last), **dict.fromkeys(CONTROLS, history([0, 0, 0], [0.2, 0, 0]))}
        found[key] = verdict("resource-gathering-discounted", "momentum beats", data, extent=(1.0, 1.0, 100.0))
    assert found == {"first": NO, "large": NO, "small": YES}


@pytest.mark.parametrize("name", TRAINED)
def test_a_full_run_judges_every_claim(name):
    """A claim is left out only where its method was not run: never because a label is misspelt."""
    study = framework.load(name)
    model = momdp.library.for_environment(study.parameters["figure"]["env"])
    zeros = [0.0] * model.num_objectives
    data = {task.label: history(zeros, zeros) for task in training.method_tasks(study)}
    measured = training.Measured(main_of(name), data, model.objective_names, np.ones(model.num_objectives))
    assert len(training.claims_of(name, measured)) == len(training._CLAIMS[name])


def test_a_reduced_run_leaves_out_claims_on_methods_that_it_did_not_run():
    data = {"η = 1/t": history([0] * 3, [1] * 3)}
    measured = training.Measured("η = 1/t", data, ("a", "b", "c"), np.ones(3))
    assert len(training.claims_of("resource-gathering-discounted", measured)) == 3
