"""The behaviour model against generated logs, whose propensities are known, and against numbers by hand."""

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from scipy.special import logsumexp

from moac.kuairand import generate
from moac.logs import About, LoggedDataset, Rows
from moac.offline import behaviour, ncis

MODEL = generate.UserModel.of(seed=0, num_videos=12)
QUICK = behaviour.Options(hidden=(32,), max_rounds=2)
"""Of the shapes that a thorough fit has, so that both are the same programs."""


@pytest.fixture(scope="module")
def log():
    return generate.log(15_000, 1, model=MODEL)


@pytest.fixture(scope="module")
def dataset(log):
    return log.dataset(known=False)


@pytest.fixture(scope="module")
def fitted(dataset):
    return behaviour.fit(dataset, behaviour.Options(hidden=(32,)))


@pytest.fixture(scope="module")
def small(dataset):
    """The same log: programs that were compiled for it serve every test."""
    return dataset


@pytest.fixture(scope="module")
def quick(small):
    return behaviour.fit(small, QUICK)


def one_user_each(actions, users=40, **about):
    """A log in which user u takes action u mod `actions` once."""
    who = np.arange(users)
    return LoggedDataset.from_numpy(Rows(who, who % actions, np.ones((users, 1))), About(window=1, **about))


@pytest.mark.parametrize("split", ["train", "validation"])
def test_fitted_propensities_approach_the_true_ones(log, dataset, fitted, split):
    rows = dataset.rows(split)
    true = -np.log(log.dataset().propensity[rows].astype(np.float64)).mean()
    found = behaviour.calibration(fitted, dataset, split)
    assert found.log_loss < true + 0.05  # popularity is 0.1 above it
    assert found.log_loss < found.popularity - 0.04
    assert found.log_loss < found.popularity_by_context - 0.03
    assert found.calibration_error < 0.05
    correlation = np.corrcoef(np.log(log.propensity[rows]), np.log(fitted.propensities(dataset)[rows]))[0, 1]
    assert correlation > 0.93


def test_a_temperature_is_positive_and_keeps_or_improves_the_log_loss(dataset, fitted):
    for member in fitted.members:
        before, after = member.log_loss
        assert member.temperature > 0
        assert after <= before
    assert behaviour.calibration(fitted, dataset).log_loss == pytest.approx(fitted.members[0].log_loss[1], abs=1e-12)


def test_a_temperature_undoes_a_factor_of_the_logits():
    rng = np.random.default_rng(0)
    logits = 2 * rng.standard_normal((2_000, 5))
    action = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)

    def log_loss(factor):
        def at(T):
            return (logsumexp(factor * logits / T, axis=1) - factor * logits[np.arange(2_000), action] / T).mean()

        return behaviour.temperature(at, at(1.0))

    (plain, loss), (sharp, same), (flat, also) = (log_loss(factor) for factor in (1, 4, 0.25))
    assert plain == pytest.approx(1, abs=0.1)
    np.testing.assert_allclose([sharp, flat], [4 * plain, plain / 4], rtol=0.01)
    np.testing.assert_allclose([same, also], loss, atol=1e-5)
    assert behaviour.temperature(lambda T: abs(T - 1), 0.0) == (1.0, 0.0)


def test_probabilities_sum_to_one_and_hold_the_propensities(small, quick):
    rows = np.array([7, 3, 1_200, 7])
    p = quick.probabilities(small, rows)
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(p[np.arange(4), small.action[rows]], quick.propensities(small)[rows], rtol=1e-5)


def test_a_train_users_rows_do_not_touch_its_own_propensities(small, quick):
    user = small.user[small.rows("train")[0]]
    own = np.flatnonzero(small.user == user)
    action = small.action.copy()
    action[own] = (action[own] + 1) % small.num_actions
    other = behaviour.fit(replace(small, action=action), QUICK)
    np.testing.assert_array_equal(other.probabilities(small, own), quick.probabilities(small, own))
    changed = [
        not np.array_equal(mine.weights[-1], its.weights[-1])
        for mine, its in zip(quick.members, other.members, strict=True)
    ]
    assert sum(changed) == 2  # that of all train users, and that of the other fold
    assert changed[0]


def test_validation_and_test_rows_are_judged_by_the_model_of_all_train_users(small, quick):
    alone = replace(quick, members=(quick.members[0],) * 3)
    held_out = np.concatenate([small.rows("validation"), small.rows("test")])
    np.testing.assert_array_equal(alone.propensities(small)[held_out], quick.propensities(small)[held_out])
    train = small.rows("train")
    assert (alone.propensities(small)[train] != quick.propensities(small)[train]).mean() > 0.9


def test_rows_of_test_users_change_nothing(small, quick):
    rows, action = small.rows("test"), small.action.copy()
    action[rows] = (action[rows] + 1) % small.num_actions
    again = behaviour.fit(replace(small, action=action), QUICK)
    np.testing.assert_array_equal(again.probabilities(small, rows), quick.probabilities(small, rows))


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(small, quick):
    np.testing.assert_array_equal(behaviour.fit(small, QUICK).propensities(small), quick.propensities(small))
    other = behaviour.fit(small, replace(QUICK, seed=1))
    assert not np.array_equal(other.propensities(small), quick.propensities(small))


def test_the_behaviour_policy_is_worth_the_logged_mean(small, quick):
    filled, rows = small.with_behaviour(quick), small.rows("test")
    logged = ncis.Logged.from_dataset(filled, "test").signals(["Click", "WatchTime"])
    report = ncis.evaluate(logged, {"Behavior-Clone": filled.propensity[rows]})
    mean = small.reward[rows][:, [0, 6]].mean(axis=0, dtype=np.float64)
    np.testing.assert_allclose(report.policies["Behavior-Clone"].ncis.value, mean, atol=1e-12, rtol=0)


def test_the_mean_weight_of_the_true_policy_is_closer_to_one_than_with_popularity(log, dataset, fitted):
    train, rows = dataset.rows("train"), dataset.rows("validation")
    policy = MODEL.logging_policy()[log.kind[rows], log.tab[rows]]
    own = ncis.Logged.from_dataset(dataset.with_behaviour(fitted), "validation")
    true, uniform = (own.importance_ratio("p", p).mean() for p in (policy, np.full(len(rows), 1 / 12)))
    share = np.bincount(dataset.action[train], minlength=12) / len(train)
    with_popularity = (log.propensity[rows] / share[dataset.action[rows]]).mean()
    assert 1 < true < 1.1 < with_popularity
    assert uniform == pytest.approx(1, abs=0.15)
    found = behaviour.calibration(fitted, dataset)
    assert found.uniform == pytest.approx(math.log(12))
    assert found.perplexity == pytest.approx(math.exp(found.log_loss))
    assert found.smallest_propensity == fitted.propensities(dataset)[rows].min()
    assert json.loads(json.dumps(asdict(found)))["rows"] == len(rows)


def test_popularity_by_hand(small, quick):
    train, rows = small.rows("train"), small.rows("validation")
    found = behaviour.calibration(quick, small)
    losses, by_tab = [], []
    for row in rows:
        same = train[small.context[train, 0] == small.context[row, 0]]
        for shown, into in ((train, losses), (same, by_tab)):
            into.append(-math.log(((small.action[shown] == small.action[row]).sum() + 1) / (len(shown) + 12)))
    assert found.popularity == pytest.approx(np.mean(losses))
    assert found.popularity_by_context == pytest.approx(np.mean(by_tab))
    bare = replace(small, context=np.zeros_like(small.context))
    assert behaviour.calibration(quick, bare).popularity_by_context == found.popularity


def test_calibration_error_by_hand():
    confidence, hit = np.array([0.5, 0.5, 0.9, 1.0]), np.array([1, 0, 1, 0])
    assert behaviour.calibration_error(confidence, hit) == pytest.approx((0 + 0.1 + 1.0) / 4)


def test_with_behaviour_fills_in_what_is_not_known(small, quick):
    filled = small.with_behaviour(quick)
    np.testing.assert_allclose(filled.propensity, quick.propensities(small), rtol=1e-6)
    assert filled.propensity.dtype == np.float32
    assert filled.fingerprint != small.fingerprint
    assert small.propensity is None
    with pytest.raises(ValueError, match="knows its propensities already"):
        filled.with_behaviour(quick)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (lambda n: np.full(n, 0.5)[1:], "must have shape"),
        (lambda n: np.zeros(n), r"must be in \(0, 1\], got 0.0 in row 0"),
        (lambda n: np.full(n, 1.5), r"must be in \(0, 1\]"),
        (lambda n: np.full(n, np.nan), "must be finite"),
    ],
)
def test_with_behaviour_refuses_what_is_no_propensity(small, values, message):
    class Given:
        def propensities(self, dataset):
            return values(dataset.num_rows)

    with pytest.raises(ValueError, match=message):
        small.with_behaviour(Given())


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: one_user_each(1), "one action only"),
        (lambda: one_user_each(3).subset("validation"), "no rows of train users"),
        (lambda: one_user_each(3).subset("train"), "no rows of validation users"),
        (lambda: one_user_each(3, users=2, shares=(0.9, 0.05, 0.05)), "no rows of validation users"),
    ],
)
def test_a_log_that_cannot_be_fitted_is_refused(made, message):
    with pytest.raises(ValueError, match=message):
        behaviour.fit(made(), QUICK)


def test_more_folds_than_users_are_refused():
    with pytest.raises(ValueError, match="`folds` must leave train users on both sides"):
        behaviour.fit(one_user_each(3), replace(QUICK, folds=100))


def test_another_log_is_refused(quick):
    other = one_user_each(3)
    for use in (quick.propensities, lambda it: behaviour.calibration(quick, it)):
        with pytest.raises(ValueError, match="other users, actions or tables"):
            use(other)


def test_calibration_needs_rows(small, quick):
    with pytest.raises(ValueError, match="nothing to measure"):
        behaviour.calibration(quick, small.subset("train"))


@pytest.mark.parametrize(
    "wrong",
    [{"folds": 1}, {"batch_size": 0}, {"step_size": 0.0}, {"weight_decay": -1.0}, {"hidden": (0,)}, {"seed": -1}],
)
def test_options_that_are_none_are_refused(wrong):
    with pytest.raises(ValueError, match=f"`{next(iter(wrong))}`"):
        behaviour.Options(**wrong)
