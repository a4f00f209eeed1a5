"""NCIS: verdicts and their reasons, rankings that flip, plain data, and one line for each mistake."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from moac.kuairand import generate
from moac.offline import ncis
from moac.offline.ncis import sums
from tests.helpers import logs

MODEL = generate.UserModel.of(3, 60)


@pytest.fixture(scope="module")
def generated():
    return generate.log(10_000, 5, model=MODEL, num_users=1_000)


def judged(generated, policy, **options):
    found = ncis.evaluate(logs.rows_of(generated), {"p": policy}, options=ncis.Options(draws=200, **options))
    return found.policies["p"]


def rarest(generated):
    """All on the rarest video that was shown."""
    videos, rows = np.unique(generated.action, return_counts=True)
    return (generated.action == videos[rows.argmin()]).astype(float)


def measures(own, level=None):
    return {reason.measure for reason in own.verdict.reasons if level in (None, reason.level)}


def test_the_logging_policy_is_trusted(generated):
    verdict = judged(generated, generated.propensity).verdict
    assert (verdict.level, verdict.reasons) == ("trusted", ())


def test_a_collapsed_policy_is_not_trusted(generated):
    """Hardly a row stands behind it."""
    own = judged(generated, rarest(generated), cap=math.inf)
    assert own.verdict.level == "not trusted"
    assert {"row_effective_size", "row_effective_share", "user_effective_size"} <= measures(own, "not trusted")
    first = own.verdict.reasons[0]
    assert first.number <= first.limit and f"{first.number:.3g}" in first.text
    assert not own.estimable.any()


def test_a_cap_that_takes_most_of_the_weight_is_seen(generated):
    own = judged(generated, logs.chosen(logs.tilted(MODEL, 0.0), generated), cap=1.0)
    assert {"retained_mass", "capped_share"} <= measures(own)


def test_a_policy_outside_the_logs_support_has_a_mean_weight_below_one(generated):
    """Propensities twice too large halve every weight."""
    rows = logs.rows_of(generated, np.minimum(1, 2 * generated.propensity))
    own = ncis.evaluate(rows, {"p": generated.propensity}).policies["p"]
    assert "mean_weight" in measures(own, "not trusted")


def test_the_worst_seed_counts(generated):
    assert judged(generated, [generated.propensity, rarest(generated)]).verdict.level == "not trusted"


def test_few_positives_are_not_estimable(generated):
    rows = ncis.Logged.of(generated.user, generated.reward, generated.propensity)
    found = ncis.evaluate(rows, {"p": generated.propensity, "q": generated.propensity}, baseline="q").policies["p"]
    assert found.estimable.tolist() == (found.diagnostics[0].events >= 50).tolist()
    assert found.verdict.level == "with care" and measures(found) == {"weighted_positives"}
    assert not (found.change.significant & ~found.estimable).any()


def flipping():
    """Two policies that take different chances: the second's gain is all in weights above 2."""
    user = np.arange(3_000)
    action, rare = user % 3, user % 30 == 2
    propensity = np.where(rare, 0.02, 0.5)
    reward = np.where(action == 0, 0.5, np.where(rare, 5.0, 0.2)) + 0.1 * np.sin(user)
    first = np.where(action == 0, 0.6, 0.2)
    second = np.where(rare, 0.9, 0.3)
    return ncis.Logged.of(user, reward, propensity), {"first": first, "second": second}


def test_a_ranking_that_flips_with_the_cap_is_a_warning():
    report = ncis.evaluate(*flipping())
    (flip,) = report.sweep.flips
    assert (flip.better, flip.worse, flip.separated) == ("first", "second", True)
    assert flip.cap < flip.other_cap
    assert len(report.warnings) == 1 and "undecided" in report.warnings[0]
    for own in report.policies.values():
        assert "cap_sweep" in measures(own)
    assert "SNIPS" in measures(report.policies["second"])


def test_policies_that_no_cap_tells_apart_are_no_warning():
    rng = np.random.default_rng(0)
    log = ncis.Logged.of(np.arange(60), rng.random(60), np.full(60, 0.5))
    report = ncis.evaluate(log, {name: rng.random(60) for name in "abcdef"}, options=ncis.Options(draws=200))
    tied = [flip for flip in report.sweep.flips if not flip.separated]
    assert tied and len(report.warnings) == len(report.sweep.flips) - len(tied)


def test_a_report_is_plain_data(generated):
    random = logs.uniform(MODEL, 6, 4_000, 400)
    report = ncis.evaluate(
        logs.rows_of(generated),
        {"b": generated.propensity, "p": logs.chosen(logs.tilted(MODEL, 0.8), generated)},
        baseline="b",
        random=(logs.rows_of(random), {"p": logs.chosen(logs.tilted(MODEL, 0.8), random)}),
    )
    card = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert card["sweep"]["caps"][-1] == "inf"
    assert card["policies"]["p"]["verdict"]["level"] in ("trusted", "with care", "not trusted")
    assert card["policies"]["p"]["agreement"]["agrees"] == [True] * 3
    assert card["policies"]["b"]["agreement"] is None
    assert "to b" in str(report) and "Click" in str(report)


def test_the_rows_of_a_split(generated):
    dataset = generated.dataset()
    log = ncis.Logged.from_dataset(dataset, "test")
    rows = dataset.rows("test")
    np.testing.assert_array_equal(log.propensity, dataset.propensity[rows])
    np.testing.assert_array_equal(log.user, dataset.user_ids[dataset.user[rows]])
    assert log.signal_names == dataset.signal_names
    assert log.signals(["Like", "Click"]).reward.tolist() == log.reward[:, [1, 0]].tolist()
    mine = ncis.Logged.from_dataset(generated.dataset(known=False), propensity=dataset.propensity)
    np.testing.assert_array_equal(mine.propensity, dataset.propensity)


USER, REWARD, HALF = np.arange(6) // 2, np.ones((6, 2)), np.full(6, 0.5)
TABLE = np.full((6, 2), 0.5)


def with_value(values, row, value):
    changed = values.copy()
    changed[row] = value
    return changed


def run(policy=HALF, log=None, **options):
    return ncis.evaluate(ncis.Logged.of(USER, REWARD, HALF, USER % 2) if log is None else log, {"p": policy}, **options)


MISTAKES = {
    "`propensity` must be in (0, 1], got 0.0 in row 3": lambda: ncis.Logged.of(USER, REWARD, with_value(HALF, 3, 0)),
    "`propensity` must be in (0, 1], got 1.5 in row 2": lambda: ncis.Logged.of(USER, REWARD, with_value(HALF, 2, 1.5)),
    "`propensity` must be in (0, 1], got nan in row 1": lambda: ncis.Logged.of(
        USER, REWARD, with_value(HALF, 1, np.nan)
    ),
    "`propensity` must have shape [6], got [5]": lambda: ncis.Logged.of(USER, REWARD, HALF[:5]),
    "`reward` must have shape [6, M], got [5, 2]": lambda: ncis.Logged.of(USER, REWARD[:5], HALF),
    "`reward` must be finite, got inf in row 4": lambda: ncis.Logged.of(USER, with_value(REWARD, 4, np.inf), HALF),
    "`user` must have shape [N], got [6, 2]": lambda: ncis.Logged.of(REWARD, REWARD, HALF),
    "`action` must hold whole numbers, got float64": lambda: ncis.Logged.of(USER, REWARD, HALF, HALF),
    "`action` must hold indices from 0, got -1 in row 0": lambda: ncis.Logged.of(USER, REWARD, HALF, USER - 1),
    "`signal_names` must hold 2 different names, got ['a']": lambda: ncis.Logged.of(USER, REWARD, HALF, None, ["a"]),
    "the log has no rows": lambda: ncis.Logged.of([], REWARD, HALF),
    "signals must be among signal 0, signal 1, got Like": lambda: ncis.Logged.of(USER, REWARD, HALF).signals(["Like"]),
    "policy 'p' must hold probabilities in [0, 1], got -0.1 in row 5": lambda: run(with_value(HALF, 5, -0.1)),
    "policy 'p' must hold probabilities in [0, 1], got 1.1 in row 5": lambda: run(with_value(HALF, 5, 1.1)),
    "policy 'p' must hold probabilities in [0, 1], got nan in row 0": lambda: run(with_value(HALF, 0, np.nan)),
    "policy 'p' must have shape [6] or [6, K], got [4]": lambda: run(HALF[:4]),
    "policy 'p' must sum to 1 over the actions, got 0.9 in row 2": lambda: run(with_value(TABLE, (2, 1), 0.4)),
    "`action` must be below 1, the actions of policy 'p'": lambda: run(np.ones((6, 1))),
    "the log then needs `action`": lambda: run(TABLE, ncis.Logged.of(USER, REWARD, HALF)),
    "gives probability 0 to every logged action": lambda: run(np.zeros(6)),
    "signal 1 never fires in 6 rows": lambda: run(log=ncis.Logged.of(USER, REWARD * [1, 0], HALF)),
    "needs at least two of them, got 1": lambda: run(log=ncis.Logged.of(np.zeros(6), REWARD, HALF)),
    "`baseline` must be one of p, got 'b'": lambda: run(baseline="b"),
    "`policies` must name at least one": lambda: ncis.evaluate(ncis.Logged.of(USER, REWARD, HALF), {}),
    "needs all actions' probabilities [N, K] of policy 'p'": lambda: run(q=np.zeros((6, 2, 2))),
    "`q` must have shape [6, 2, 2], got [6, 2]": lambda: run(TABLE, q=np.zeros((6, 2))),
    "`q` must give shape [6, 2, 2] for 6 rows, got [1]": lambda: run(TABLE, q=lambda rows: np.zeros(1)),
    "`q` must be finite": lambda: run(TABLE, q=np.full((6, 2, 2), np.nan)),
    "`weight` must hold weights that are finite and not negative, got -1.0 in row 5": lambda: sums.of_rows(
        (np.arange(3), USER), REWARD, with_value(HALF, 5, -1), (1.0,), 1.0
    ),
    "`cap` must be positive, got 0": lambda: ncis.Options(cap=0),
    "`level` must be between 0 and 1, got 95": lambda: ncis.Options(level=95),
    "`draws` must be at least 100": lambda: ncis.Options(draws=10),
    "`seed` must not be negative": lambda: ncis.Options(seed=-1),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_a_mistake_is_one_line(message):
    with pytest.raises(ValueError) as raised:
        MISTAKES[message]()
    assert message in str(raised.value) and "\n" not in str(raised.value)


def test_mistakes_with_shards_and_datasets(generated):
    log = ncis.Logged.of(USER, REWARD, HALF)
    one = ncis.accumulate(log, {"p": HALF})
    with pytest.raises(ValueError, match="the same policies"):
        one + ncis.accumulate(log, {"q": HALF})
    with pytest.raises(ValueError, match="the same caps"):
        one + ncis.accumulate(log, {"p": HALF}, options=ncis.Options(cap=3))
    with pytest.raises(ValueError, match="`options` have others"):
        ncis.analyse(one, options=ncis.Options(cap=3))
    with pytest.raises(ValueError, match="must have some of the log's policies"):
        ncis.analyse(one, random=one)
    with pytest.raises(ValueError, match="must have the log's signals, got signal 0"):
        ncis.evaluate(log, {"p": HALF}, random=(log.signals(["signal 0"]), {"p": HALF}))
    with pytest.raises(ValueError, match="has no propensities"):
        ncis.Logged.from_dataset(generated.dataset(known=False))
    everyone = replace(generated.dataset(), split=np.zeros(generated.dataset().num_users, np.int8))
    with pytest.raises(ValueError, match="generated has no rows of test users"):
        ncis.Logged.from_dataset(everyone, "test")


def test_one_user_has_a_value_without_an_interval():
    log = ncis.Logged.of(np.zeros(6), REWARD, HALF)
    np.testing.assert_array_equal(ncis.values(ncis.accumulate(log, {"p": HALF}))["p"], [1, 1])
