"""Policies that know items and no person: by hand, at a share, on permuted rewards, and as ordinary policies."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from moac.kuairand import generate
from moac.logs import About, LoggedDataset, Rows
from moac.offline import recommend
from moac.offline.baselines import tilt
from moac.offline.evaluate import evaluate, features, probabilities
from moac.policies import log_probs
from tests.helpers import personal_logs
from tests.helpers.log_policies import MODEL, modelled


@pytest.fixture(scope="module")
def log():
    return modelled(generate.log(6_000, 1, model=MODEL, num_users=900).dataset(known=False))


def shares(dataset, method, rows):
    (p,) = probabilities(dataset, *method, rows)
    w = np.minimum(p / dataset.propensity[rows], 10)
    return w.sum() ** 2 / (w @ w) / len(rows)


def test_scores_are_standardised_means_of_train_rows_shrunk_by_thirty():
    action = np.repeat([0, 1, 2], [10, 20, 70])
    reward = np.column_stack([np.repeat([1.0, 0.5, 0.0], [10, 20, 70]), np.repeat([0.0, 1.0, 1.0], [10, 20, 70])])
    about = About(signs=(1, -1), signal_names=("gain", "cost"), shares=(1.0, 0.0, 0.0))
    dataset = LoggedDataset.from_numpy(Rows(np.arange(100), action, reward), about)
    gain = np.array([(10 + 30 * 0.2) / 40, (10 + 30 * 0.2) / 50, 30 * 0.2 / 100])
    cost = -np.array([30 * 0.9 / 40, (20 + 30 * 0.9) / 50, (70 + 30 * 0.9) / 100])
    z = (gain - gain.mean()) / gain.std()
    order = np.argsort(dataset.action_ids)
    np.testing.assert_allclose(tilt.signal_scores(dataset, ["gain"])[order], z, rtol=1e-6)
    both = z + (cost - cost.mean()) / cost.std()
    np.testing.assert_allclose(tilt.signal_scores(dataset)[order], both, rtol=1e-6)
    with pytest.raises(ValueError, match="`signals` must be of gain, cost, got 'Click'"):
        tilt.signal_scores(dataset, ["Click"])


def test_a_tilt_is_the_behaviour_times_a_number_of_the_item(log):
    rows, z = log.rows("validation"), np.linspace(-1, 1, log.num_actions)
    b = log.behaviour.probabilities(log, rows)
    weighted = b * np.exp(0.7 * z)
    taken = (weighted / weighted.sum(axis=1, keepdims=True))[np.arange(len(rows)), log.action[rows]]
    np.testing.assert_allclose(probabilities(log, *tilt.tilted(log, z, 0.7), rows)[0], taken, rtol=2e-4)
    np.testing.assert_allclose(probabilities(log, *tilt.uniform(log), rows)[0], 1 / log.num_actions, rtol=1e-5)
    count = np.bincount(log.action[log.rows("train")], minlength=log.num_actions) + 1
    popular = (count / count.sum())[log.action[rows]]
    np.testing.assert_allclose(probabilities(log, *tilt.popularity(log), rows)[0], popular, rtol=1e-5)


@pytest.mark.parametrize("known", [False, True])
def test_tau_is_chosen_for_a_share_of_validation_users_and_by_no_reward_of_theirs(log, known):
    dataset = generate.log(6_000, 1, model=MODEL, num_users=900).dataset() if known else log
    z, rows = tilt.signal_scores(dataset, ["Click", "WatchTime"]), dataset.rows("validation")
    first = shares(dataset, tilt.tilted(dataset, z, 0.0), rows)
    method, tau = tilt.tilted_to(dataset, z, 0.8 * first)
    assert tau > 0.05
    assert shares(dataset, method, rows) == pytest.approx(0.8 * first, abs=0.005)
    if known:  # popularity is not the log's policy: no τ has a larger share
        assert tilt.tilted_to(dataset, z, 1.01 * first)[1] == 0
    for share in (0.0, 1.0):
        with pytest.raises(ValueError, match="`share` must be in"):
            tilt.tilted_to(dataset, z, share)
    with pytest.raises(ValueError, match="must have propensities and validation users"):
        tilt.tilted_to(replace(dataset, propensity=None), z, 0.5)


def test_permuted_rewards_keep_each_items_and_lose_each_persons(log):
    shuffled, train = tilt.permuted(log, seed=3), log.rows("train")
    others = np.setdiff1d(np.arange(log.num_rows), train)
    np.testing.assert_array_equal(shuffled.reward[others], log.reward[others])
    for action in range(log.num_actions):
        of_item = train[log.action[train] == action]
        for k in (0, -1):
            assert sorted(shuffled.reward[of_item, k]) == sorted(log.reward[of_item, k])
    assert (shuffled.reward[train] != log.reward[train]).any(axis=1).mean() > 0.5
    np.testing.assert_allclose(tilt.signal_scores(shuffled), tilt.signal_scores(log), atol=1e-6)
    assert shuffled.fingerprint != log.fingerprint
    again = tilt.permuted(log, seed=4)
    assert (again.reward != shuffled.reward).any()
    by_user = [np.bincount(log.user[train], each.reward[train, -1]) for each in (log, shuffled)]
    assert by_user[1].var() < by_user[0].var()


def test_one_feature_alone():
    features = np.array([[0.0, 1.0], [0.5, 1.0], [1.0, 1.0]])
    rows = Rows(np.arange(60) // 2, np.tile([0, 1, 2], 20), np.ones((60, 2)))
    plain = LoggedDataset.from_numpy(rows, About(actions=features))
    assert tilt.item_features(plain) == ()
    with pytest.raises(ValueError, match="the log has no item features"):
        tilt.feature_scores(plain, "duration")
    named = replace(plain, table_names=(("user",) * plain.tables.users.shape[1], ("duration", "constant")))
    z = tilt.feature_scores(named, "duration")
    np.testing.assert_allclose(z[np.argsort(named.action_ids)], [-(1.5**0.5), 0, 1.5**0.5], atol=1e-6)
    np.testing.assert_allclose(tilt.feature_scores(named, "-duration"), -z)
    assert not tilt.feature_scores(named, "constant").any()
    with pytest.raises(ValueError, match="`feature` must be one of duration, constant, got 'length'"):
        tilt.feature_scores(named, "length")


def test_every_baseline_is_an_ordinary_policy(log):
    method, _ = tilt.tilted_to(log, tilt.signal_scores(log), 0.5)
    every = {"Tilt": method, "Popularity": tilt.popularity(log), "Uniform": tilt.uniform(log)}
    evaluated = evaluate(log, every, control=None)
    assert evaluated.methods == ("Tilt", "Popularity", "Uniform")
    policy = tilt.trained(log, tilt.popularity(log))
    most = log.action_ids[np.argsort(-np.bincount(log.action[log.rows("train")]), kind="stable")[:3]]
    assert policy.recommend(17, (2,), [3, 5], k=3).ids == tuple(most.tolist())
    first = next(recommend.all_users(policy, log, k=2))
    assert (first.ids == most[:2]).all()


@pytest.mark.parametrize("hidden", [(), (4,), (4, 3)])
def test_a_personal_tilt_is_the_behaviour_times_what_the_item_is_worth_to_the_user(hidden):
    """Through further hidden units of the network, whatever its depth."""
    rng, (F, K, e) = np.random.default_rng(0), (9, 5, 2)
    widths = (F, *hidden, K)
    layers = [rng.normal(0, 0.5, (a + 1, b)) for a, b in pairwise(widths)]
    A, v, x = rng.standard_normal((F, e)), rng.standard_normal((K, e)), rng.uniform(-1, 1, (40, F))
    wider = tilt._with_product(layers, A, v.T)

    def outputs(layers):
        h = x
        for k, W in enumerate(layers):
            h = h @ W[:-1] + W[-1]
            h = np.tanh(h) if k < len(layers) - 1 else h
        return h

    expected = x @ A @ v.T
    np.testing.assert_allclose(outputs(wider) - outputs(layers), expected, atol=3e-3 * np.abs(expected).max())


def test_personal_scores_find_a_personal_effect_and_are_the_tilt_where_there_is_none():
    """On a log whose best policy is known; rewards permuted within items leave nothing personal."""
    log = personal_logs.generate(0, users=1_500)
    taken = np.take_along_axis(log.behaviour, log.dataset.action[:, None], axis=1)[:, 0]
    dataset = replace(log.dataset.with_taste(), propensity=taken.astype(np.float32))
    shuffled, rows = tilt.permuted(dataset), dataset.rows("test")

    def recovered(scores):
        method, _ = tilt.tilted_to(dataset, scores, 0.6)
        table = np.exp(np.asarray(log_probs(*_one(method), features(dataset, rows), dataset.num_actions), float))
        share = personal_logs.share_of(table, log.behaviour[rows])
        return log.gain(table, rows) / log.gain(log.best(rows, share), rows)

    plain, personal = recovered(tilt.signal_scores(dataset)), recovered(tilt.personal_scores(dataset))
    assert plain < 0.7
    assert personal >= 0.8
    assert abs(recovered(tilt.personal_scores(shuffled)) - plain) < 0.03
    with pytest.raises(ValueError, match="must have taste in its states"):
        tilt.personal_scores(log.dataset)


def _one(method):
    policy, theta = method
    return policy, tuple(layer[0] for layer in theta)
