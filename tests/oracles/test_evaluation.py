"""Trained policies evaluated on logs whose truth is known, and against the estimator on plain arrays."""

import json
from dataclasses import replace

import numpy as np
import pytest

from moac.kuairand import generate
from moac.logs import About, LoggedDataset, Rows, splits
from moac.offline import evaluate, ncis, reward_model
from tests.helpers.log_policies import MODEL, modelled, moved, tabulated, without
from tests.helpers.logs import tilted

FLAT, SHARP = tilted(MODEL, 0.8), tilted(MODEL, 1.2)


@pytest.fixture(scope="module")
def log():
    return generate.log(20_000, 1, model=MODEL, num_users=4_000)


@pytest.fixture(scope="module")
def dataset(log):
    return log.dataset()


@pytest.fixture(scope="module")
def judged(dataset):
    return evaluate.evaluate(dataset, {"flat": tabulated(dataset, FLAT), "both": tabulated(dataset, FLAT, SHARP)})


@pytest.fixture(scope="module")
def filled():
    """A log whose propensities are a model's."""
    rng, n = np.random.default_rng(3), 2_000
    columns = (rng.integers(0, 200, n), rng.integers(0, 4, n), rng.random((n, 2)) < 0.4)
    rows = Rows(*columns, context=rng.integers(0, 3, (n, 1)))
    plain = LoggedDataset.from_numpy(rows, About(users=rng.random((200, 2)), window=1))
    return modelled(plain)


def users_rows(log, dataset, split="validation"):
    """The split's rows as plain arrays, in the order of the log."""
    return np.isin(log.user, dataset.user_ids[dataset.split == ("train", "validation", "test").index(split)])


def test_a_policy_on_a_dataset_is_worth_what_plain_arrays_say(log, dataset, judged):
    chosen = users_rows(log, dataset)
    arrays = ncis.Logged.of(log.user[chosen], log.reward[chosen], log.propensity[chosen])
    policies = {
        "Behavior-Clone": log.propensity[chosen],
        "flat": FLAT[log.kind, log.tab, log.action][chosen],
        "sharp": SHARP[log.kind, log.tab, log.action][chosen],
    }
    kept = list(judged.report.signal_names)
    arrays = replace(arrays, signal_names=dataset.signal_names).signals(kept)
    plain = ncis.evaluate(arrays, policies, baseline="Behavior-Clone")
    own, expected = judged.report.policies["flat"], plain.policies["flat"]
    np.testing.assert_allclose(own.ncis.value, expected.ncis.value, rtol=1e-5)
    np.testing.assert_allclose(own.change.relative_interval, expected.change.relative_interval, rtol=1e-3, atol=1e-5)
    mean = (plain.policies["flat"].ncis.value + plain.policies["sharp"].ncis.value) / 2
    np.testing.assert_allclose(judged.report.policies["both"].ncis.value, mean, rtol=1e-5)
    assert judged.seeds == {"flat": 1, "both": 2}


@pytest.mark.parametrize("signal", ["Click", "WatchTime"])
def test_the_interval_holds_the_truth(dataset, judged, signal):
    low, high = judged.report.policies["flat"].ncis.interval[judged.report.signal_names.index(signal)]
    assert low <= MODEL.true_values(FLAT)[dataset.signal_names.index(signal)] <= high


def test_behavior_clone_weighs_every_row_by_one(dataset, judged):
    own = judged.report.policies["Behavior-Clone"]
    rows = dataset.rows("validation")
    kept = [dataset.signal_names.index(name) for name in judged.report.signal_names]
    expected = np.asarray(dataset.reward, np.float64)[rows][:, kept].mean(axis=0)
    np.testing.assert_allclose(own.ncis.value, expected, rtol=1e-12)
    assert own.diagnostics[0].row_effective_share == 1.0
    assert own.diagnostics[0].mean_weight == 1.0
    assert judged.weights.shares["Behavior-Clone"].max() == 1.0
    assert (judged.rows, judged.users) == (len(rows), len(np.unique(dataset.user[rows])))
    assert judged.calibration is None  # the log says how it chose
    assert judged.reward_model is None


def test_blocks_add_up_to_one_pass(dataset, judged, monkeypatch):
    monkeypatch.setattr(evaluate, "_NUMBERS", 1)
    again = evaluate.evaluate(dataset, {"flat": tabulated(dataset, FLAT)})
    one, other = (found.report.policies["flat"] for found in (judged, again))
    np.testing.assert_allclose(other.ncis.interval, one.ncis.interval, rtol=1e-9)
    np.testing.assert_array_equal(again.weights.shares["flat"], judged.weights.shares["flat"])


def test_the_model_as_a_policy_changes_nothing(filled):
    found = evaluate.evaluate(filled, {"clone": moved(filled, 0.0)})
    own, base = found.report.policies["clone"], found.report.policies["Behavior-Clone"]
    assert base.diagnostics[0].mean_weight == 1.0
    np.testing.assert_allclose(own.ncis.value, base.ncis.value, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(own.doubly_robust.value, base.doubly_robust.value, rtol=1e-4, atol=1e-6)
    assert found.calibration.mean_weight == pytest.approx({"Behavior-Clone": 1.0, "clone": 1.0}, abs=1e-5)
    assert [line.outcome for line in found.lines("clone")] == ["no difference"] * 2
    json.dumps(found.card(), allow_nan=False)


def test_a_signal_that_never_fires_is_left_out_and_the_others_stay(dataset, judged):
    silent = without(dataset, "Like")
    found = evaluate.evaluate(silent, {"flat": tabulated(silent, FLAT)})
    assert "Like" in found.left_out
    assert "Like" not in found.report.signal_names
    k = found.report.signal_names.index("Click")
    at = judged.report.signal_names.index("Click")
    assert found.report.policies["flat"].ncis.value[k] == judged.report.policies["flat"].ncis.value[at]


def test_a_cost_is_told_in_its_own_units(dataset):
    costly = replace(dataset, reward=-dataset.reward, signs=tuple(-sign for sign in dataset.signs))
    found = evaluate.evaluate(costly, {"flat": tabulated(dataset, FLAT)})
    line = found.lines("flat")[0]
    assert line.label == "Click (cost)"
    assert line.value == -found.report.policies["flat"].ncis.value[0] > 0
    assert line.outcome == ("better" if line.difference < 0 else "worse")
    assert line.interval[0] <= line.value <= line.interval[1]
    assert line.difference == pytest.approx(line.value - line.baseline)
    assert line.relative == pytest.approx(line.value / line.baseline - 1)


def test_a_reward_model_finds_linear_rewards():
    rng, n = np.random.default_rng(0), 4_000
    user, action = rng.integers(0, 400, n), rng.integers(0, 5, n)
    people = rng.random((400, 3)).astype(np.float32)
    gamma = np.array([0.0, 1.0, -1.0, 0.5, 2.0])
    reward = people[user] @ np.array([1.0, -2.0, 0.5]) + gamma[action]
    noise = rng.standard_normal(n)
    dataset = LoggedDataset.from_numpy(
        Rows(user, action, np.column_stack([reward, noise]), propensity=np.full(n, 0.2)),
        About(users=people, window=0, signal_names=("linear", "noise")),
    )
    model = reward_model.fit_rewards(dataset, ["linear", "noise"])
    x = evaluate.features(dataset, np.arange(n))
    own = model.values(x)[np.arange(n), dataset.action]
    np.testing.assert_allclose(own[:, 0], dataset.reward[:, 0], atol=0.05)
    assert model.explained[0] > 0.999
    assert abs(model.explained[1]) < 0.02
    assert model.penalty[1] > model.penalty[0]


def test_a_reward_model_finds_what_history_and_item_say_together_and_drops_it_where_it_says_nothing():
    """q with t(s)ᵀ B v_a, beside a signal that is the same but for permuting it within items."""
    rng, n = np.random.default_rng(1), 6_000
    user, action = np.repeat(np.arange(600), 10), rng.integers(0, 6, n)
    v = rng.standard_normal((6, 2)).astype(np.float32)
    liked = (rng.standard_normal((600, 2))[user] * v[action]).sum(axis=1) + 0.5 * action
    permuted = np.empty(n)
    for k in range(6):
        permuted[action == k] = rng.permutation(liked[action == k])
    rows = Rows(user, action, np.column_stack([liked, permuted]), propensity=np.full(n, 1 / 6))
    dataset = LoggedDataset.from_numpy(rows, About(actions=v, signal_names=("liked", "permuted"))).with_taste()
    model = reward_model.fit_rewards(dataset, ["liked", "permuted"])
    assert model.personal[0] > 0.3
    assert model.personal[1] == 0
    assert not model.taste[..., 1].any()
    x = evaluate.features(dataset, np.arange(50))
    items = (v - v.mean(axis=0)) / v.std(axis=0)
    by_hand = [
        model.mean + one @ model.state + model.action[k] + np.einsum("t,tem,e->m", one[-4:], model.taste, items[k])
        for one in x
        for k in range(6)
    ]
    np.testing.assert_allclose(model.values(x).reshape(-1, 2), by_hand, rtol=1e-5, atol=1e-6)
    assert model.as_dict()["liked"]["personal"] == model.personal[0]
    one_fold = replace(dataset, split=np.where(splits.fold_users(dataset.user_ids, 0, 2) == 0, dataset.split, 2))
    assert np.isfinite(reward_model.fit_rewards(one_fold, ["liked"]).values(x)).all()
