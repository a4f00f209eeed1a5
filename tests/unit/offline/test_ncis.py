"""NCIS from rows to a report: verdicts and their reasons, rankings that flip, plain data, and what it refuses."""

import json
import math

import numpy as np
import pytest

from moac.kuairand import generate
from moac.offline import ncis
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
    assert str(report).splitlines()[-1] == report.warnings[0]
    assert "SNIPS" in measures(report.policies["second"])


def test_policies_that_no_cap_tells_apart_are_no_warning():
    rng = np.random.default_rng(0)
    log = ncis.Logged.of(np.arange(60), rng.random(60), np.full(60, 0.5))
    report = ncis.evaluate(log, {name: rng.random(60) for name in "abcdef"}, options=ncis.Options(draws=200))
    tied = [flip for flip in report.sweep.flips if not flip.separated]
    assert tied and len(report.warnings) == len(report.sweep.flips) - len(tied)


def test_a_report_is_plain_data(generated):
    rows, policies = (
        logs.rows_of(generated),
        {"b": generated.propensity, "p": logs.chosen(logs.tilted(MODEL, 0.8), generated)},
    )
    control = ncis.Control("earlier", np.where(generated.user[:, None] % 2, np.nan, rows.reward), logs.SIGNALS)
    evidence = ncis.evidence_of(rows, policies, [control], {"tab": generated.tab})
    report = ncis.evaluate(rows, policies, baseline="b", evidence=evidence)
    card = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert card["sweep"]["caps"][-1] == "inf"
    assert card["policies"]["p"]["verdict"]["level"] in ("trusted", "with care", "not trusted")
    checks = card["policies"]["p"]["checks"]
    assert [one["name"] for one in checks["controls"]] == ["earlier"]
    assert len(checks["sensitivity"]["point"]) == len(checks["tails"]["pareto_k"]) == 3
    assert card["policies"]["b"]["checks"] is None
    assert "to b" in str(report) and "Click" in str(report)


def test_what_cannot_be_analysed_is_one_line():
    user, reward, half = np.arange(6) // 2, np.ones((6, 2)), np.full(6, 0.5)
    log = ncis.Logged.of(user, reward, half)
    shard = ncis.accumulate(log, {"p": half})
    with pytest.raises(ValueError, match="signal 1 never occurs in 6 rows"):
        ncis.evaluate(ncis.Logged.of(user, reward * [1, 0], half), {"p": half})
    with pytest.raises(ValueError, match="at least two of them, got 1"):
        ncis.evaluate(ncis.Logged.of(np.zeros(6), reward, half), {"p": half})
    with pytest.raises(ValueError, match="`baseline` must be one of p, got 'b'"):
        ncis.evaluate(log, {"p": half}, baseline="b")
    with pytest.raises(ValueError, match="`options` have others"):
        ncis.analyse(shard, options=ncis.Options(cap=3))
