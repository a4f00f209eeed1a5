"""The study of verdicts: its truth against simulation, its shares, its claims on both sides, its quick run."""

import numpy as np
import pytest

from moac_studies import framework, trust
from moac_studies.trust import Measured

AIMS = framework.load("trust").parameters["aims"]


@pytest.mark.parametrize(("family", "kappa"), [("hidden taste", 0.3), ("drift", 0.0), ("tiny propensities", 0.0)])
def test_the_truth_is_that_of_a_log_of_the_policy(family, kappa, monkeypatch):
    """Many users whom the policy, and not the log's, was shown to: the same tables, drawn again."""
    kept = {}
    monkeypatch.setattr(
        trust, "_drawn", lambda rng, family, users, tables, truth: kept.update(tables=tables, truth=truth)
    )
    trust.pair(family, kappa, 10, seed=5)
    shown, click, _, policy = kept["tables"]
    rng, n = np.random.default_rng(0), 400_000
    z, t = rng.integers(trust.KINDS, size=n), rng.integers(shown.shape[2], size=n)
    e = rng.choice(5, size=n, p=trust.LEVEL_SHARE)
    by_policy, by_log = ((p * click[z, e, t]).sum(axis=1).mean() for p in (policy[z], shown[z, e, t]))
    assert by_policy / by_log - 1 == pytest.approx(kept["truth"], abs=0.003)


def test_a_clean_log_has_exact_propensities_and_its_controls_are_of_the_past():
    one = trust.pair("clean", 0.0, 3000, seed=5)
    ratio = one.policy[np.arange(len(one.log.user)), one.log.action] / one.log.propensity
    assert ratio.mean() == pytest.approx(1, abs=0.02)
    mine = np.flatnonzero(one.log.user == 7)
    earlier = one.controls[0].values[mine]
    assert np.isnan(earlier[0]).all()
    np.testing.assert_allclose(earlier[3], one.log.reward[mine[:3]].mean(axis=0))


def test_exact_intervals_of_shares():
    none, half, every = (trust.share(np.arange(20) < k) for k in (0, 10, 20))
    assert (none.low, every.high) == (0, 1)
    assert (none.high, every.low) == pytest.approx((0.1684, 0.8316), abs=1e-4)  # 1 − 0.025^(1/20)
    assert (half.low, half.high) == pytest.approx((0.272, 0.728), abs=1e-3)
    assert trust.share(np.zeros(0)).trials == 0


def measured(trusted, held, pairs=100):
    """So many of a hundred are trusted, and of these so many hold the truth."""
    word = np.where(np.arange(pairs) < trusted, 0, 2)
    truth = np.broadcast_to((np.arange(pairs) < held)[:, None], (pairs, 2))
    zero = np.zeros((pairs, 2))
    return Measured(word, np.stack([word, word], axis=1), truth, zero, zero, np.zeros((pairs, 8), bool))


def verdicts(clean=(100, 95), hidden=(0, 0), drift=(100, 95), weak=(100, 100)):
    cells = {("clean", 0.0): clean, ("hidden taste", 0.1): weak, ("hidden taste", 0.15): hidden, ("drift", 0.0): drift}
    return [claim.verdict for claim in trust.claims({cell: measured(*own) for cell, own in cells.items()}, AIMS)]


def test_the_aims_on_both_sides():
    right = ["holds"] * 4
    assert verdicts() == verdicts(clean=(80, 75)) == verdicts(hidden=(10, 10)) == verdicts(drift=(100, 93)) == right
    assert verdicts(clean=(79, 79))[0] == "does not hold"
    assert verdicts(hidden=(11, 11))[1] == "does not hold"
    assert verdicts(clean=(100, 92))[2:] == ["does not hold"] * 2
    assert verdicts(drift=(100, 92)) == [*right[:3], "does not hold"]
    assert verdicts(weak=(100, 92))[3] == "does not hold"


def test_a_quick_run_from_nothing_to_findings(tmp_path):
    study = framework.load("trust", quick=True)
    found = trust.run(study, framework.Workspace(tmp_path / "tasks", lambda text: None))
    assert len(found.tables[0].rows) == 9 and len(found.claims) == 4
    assert len(list((tmp_path / "tasks").iterdir())) == 9
    hidden = next(row for row in found.tables[0].rows if row[0].startswith("hidden taste, κ = 0.3"))
    assert hidden[1].startswith("0.0%")
