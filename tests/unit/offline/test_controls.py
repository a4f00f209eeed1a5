"""Controls of a dataset by loops over its rows; what a refitted b may not know; a secret is found, no secret is not."""

from dataclasses import replace

import numpy as np
import pytest

from moac.logs import About, LoggedDataset, Rows
from moac.offline import behaviour, controls, evaluate, ncis, reward_model
from moac.policies import SoftmaxMLP
from moac.policies.networks import Plain
from moac_studies import trust

OPTIONS = behaviour.Options(hidden=(), step_size=0.02, max_rounds=8, patience=2)


def logged(family="clean", kappa=0.0, users=60, **about):
    """A log of the study as a dataset without propensities; two rows of a user share their time."""
    one = trust.pair(family, kappa, users, seed=71_000)
    position = np.arange(len(one.log.user)) - np.searchsorted(one.log.user, one.log.user)
    context = np.stack([one.covariates[f"kind={k}"] for k in range(trust.KINDS)]).argmax(axis=0)[:, None]
    rows = Rows(one.log.user, one.log.action, one.log.reward, position // 2, context)
    return LoggedDataset.from_numpy(rows, About("study", trust.SIGNALS, **about)), one


def by_loops(values, dataset, row, places):
    kept = [values[j] for j in range(dataset.num_rows) if dataset.user[j] == dataset.user[row] and places(j)]
    return np.mean(kept, axis=0) if kept else np.full(2, np.nan)


def test_earlier_and_later_rewards_are_those_of_other_times():
    dataset, _ = logged(history_responses=False)
    rows = np.arange(7, 40)
    earlier, later = controls.of_rewards(dataset, rows, trust.SIGNALS, None)
    for k, row in enumerate(rows):
        before = by_loops(dataset.reward, dataset, row, lambda j, row=row: dataset.time[j] < dataset.time[row])
        after = by_loops(dataset.reward, dataset, row, lambda j, row=row: j > row)
        np.testing.assert_allclose(earlier.values[k], before, rtol=1e-6)
        np.testing.assert_allclose(later.values[k], after, rtol=1e-6)
    assert (earlier.no_power, earlier.soft, later.soft) == (None, False, True)


def test_with_past_responses_in_states_only_held_out_ones_are_a_control():
    dataset, _ = logged()
    rows, held = np.arange(7, 40), controls.held_out(dataset)
    first = np.searchsorted(dataset.user, dataset.user)
    np.testing.assert_array_equal(held, (np.arange(dataset.num_rows) - first) % 2 == 0)
    earlier, _ = controls.of_rewards(dataset, rows, trust.SIGNALS, {})
    for k, row in enumerate(rows):
        known = by_loops(
            dataset.tables.responses, dataset, row, lambda j, row=row: held[j] and dataset.time[j] < dataset.time[row]
        )
        np.testing.assert_allclose(earlier.values[k], known, rtol=1e-6)
    filled = dataset.with_behaviour(behaviour.fit(dataset, OPTIONS))
    assert controls.of_rewards(filled, rows, trust.SIGNALS, None)[0].no_power == controls.IN_STATE
    assert controls.refits(filled, "train") == {} == controls.refits(dataset, "test")
    refitted = controls.refits(filled, "validation")
    assert controls.refits(filled, "validation")["half"] is refitted["half"]  # fitted once
    half, none = (refitted[recipe].tables.responses for recipe in ("half", "none"))
    assert not half[held].any() and not none.any()
    np.testing.assert_array_equal(half[~held], dataset.tables.responses[~held])


def test_named_columns():
    dataset, _ = logged()
    rows = dataset.rows("validation")
    time, context = controls.of_columns(dataset, rows, ["time", "context 0"])
    np.testing.assert_array_equal(time.values[:, 0], dataset.time[rows])
    np.testing.assert_array_equal(context.values[:, 0], dataset.context[rows, 0])
    assert (time.no_power, context.no_power, time.relative) == (None, None, False)
    filled = dataset.with_behaviour(behaviour.fit(dataset, OPTIONS))
    assert [each.no_power for each in controls.of_columns(filled, rows, ["time", "context 0"])] == [
        None,
        controls.IN_STATE,
    ]
    with pytest.raises(ValueError, match="`control` must be one of context 0, time, got 'age'"):
        controls.of_columns(dataset, rows, ["age"])


def test_covariates_are_all_of_a_state_but_viewed_items():
    dataset, _ = logged()
    places, named = controls.places_in_state(dataset), controls.covariates(dataset)
    assert sum(place.stop - place.start for place in places.values()) == dataset.num_features
    x = evaluate.features(dataset, np.arange(30))
    np.testing.assert_array_equal(x[:, named["context 0=2"]], dataset.context[:30, 0] == 2)
    assert named["Watch -1"] == places["past responses"].start + 3
    views = places["viewed items"]
    assert not set(named.values()) & set(range(views.start, views.stop))
    tenths = np.stack([*controls.tenths_of_time(dataset, np.arange(dataset.num_rows)).values()])
    assert (tenths.sum(axis=0) == 1).all()


def test_a_state_has_all_responses_also_where_fewer_rewards_are_learned_from():
    dataset = logged()[0].with_taste()
    fewer = replace(dataset, reward=dataset.reward[:, :1], signal_names=("Click",), signs=(1,))
    places = controls.places_in_state(fewer)
    assert places == controls.places_in_state(dataset)
    assert places["past responses"].stop == places["taste"].start
    assert places["taste"].stop == fewer.num_features
    assert len(reward_model.fit_rewards(fewer, ["Click"]).taste) == places["taste"].stop - places["taste"].start


def test_tenths_of_time_hold_as_many_rows_each():
    rows = Rows(np.repeat(np.arange(4), 10), np.tile([0, 1], 20), np.ones((40, 1)), np.arange(40))
    dataset = LoggedDataset.from_numpy(rows, About())
    tenths = controls.tenths_of_time(dataset, np.arange(40))
    assert next(iter(tenths)) == "time, tenth 1"
    np.testing.assert_array_equal(np.stack([*tenths.values()]).argmax(axis=0), np.arange(40) // 4)


@pytest.mark.parametrize(("family", "kappa", "refuted"), [("clean", 0.0, False), ("hidden taste", 0.6, True)])
def test_a_fitted_b_with_past_responses_leaves_the_control_its_power(family, kappa, refuted):
    dataset, one = logged(family, kappa, users=2500, shares=(0.3, 0.7, 0.0), window=6)
    filled = dataset.with_behaviour(behaviour.fit(dataset, OPTIONS))
    policy = SoftmaxMLP(Plain(dataset.num_features), (), trust.ITEMS)
    theta = np.zeros((1, dataset.num_features + 1, trust.ITEMS), np.float32)
    kinds = controls.places_in_state(dataset)["context 0"]
    of_kind = [np.flatnonzero(one.covariates[f"kind={k}"])[0] for k in range(trust.KINDS)]
    theta[0, kinds] = np.log(one.policy[of_kind])
    found = evaluate.evaluate(filled, {"p": (policy, (theta,))}, options=ncis.Options(draws=200), control=["context 0"])
    card = found.card()
    own = card["signals"]["Click"]
    assert own["controls"]["earlier rewards"]["power"] and not own["controls"]["context 0"]["power"]
    assert (own["controls"]["earlier rewards"]["p"] < 0.05) is refuted
    assert (card["verdict"] == "not trusted") is refuted, card["reasons"]
    assert own["without_past_responses"]["change"] == pytest.approx(own["change"], abs=0.1)
    assert 1 < own["sensitivity"]["strongest_covariate"][1] < 20
    assert len(own["balance"]["names"]) == 10 and own["tails"]["pareto_k"] < 0.4
