"""What cannot be evaluated on a log, and how a log gets its estimator."""

from dataclasses import replace

import numpy as np
import pytest

from moac.kuairand import generate
from moac.logs import LoggedDataset
from moac.offline import evaluate
from tests.helpers.log_policies import MODEL, tabulated
from tests.helpers.logs import tilted

FLAT = tilted(MODEL, 0.8)


@pytest.fixture(scope="module")
def dataset():
    return generate.log(3_000, 1, model=MODEL, num_users=300).dataset()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: {"split": np.zeros_like(d.split)}, "has no rows of validation users"),
        (lambda d: {"split": np.where(np.arange(d.num_users) == d.user[0], 1, 0)}, "has 1 validation user"),
        (lambda d: {"propensity": None}, "does not say how it chose"),
        (lambda d: {"propensity": np.zeros(d.num_rows)}, r"`propensity` must be in \(0, 1\], got 0.0 in row"),
        (lambda d: {"action": d.action + 12}, r"`action` of generated must be in \[0, 12\)"),
        (lambda d: {"reward": np.zeros_like(d.reward)}, "no signal of generated ever fires"),
        (lambda d: {"action_ids": np.arange(13)}, "policy 'flat' has 12 actions, generated has 13"),
    ],
)
def test_what_cannot_be_evaluated_is_one_line(dataset, change, message):
    method = tabulated(dataset, FLAT)
    with pytest.raises(ValueError, match=message) as error:
        evaluate.evaluate(replace(dataset, **change(dataset)), {"flat": method})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("names", [[], ["Behavior-Clone"]])
def test_methods_need_names_of_their_own(dataset, names):
    with pytest.raises(ValueError, match="`methods` must name"):
        evaluate.evaluate(dataset, dict.fromkeys(names, tabulated(dataset, FLAT)))


def test_a_log_is_handed_its_estimator(dataset, monkeypatch):
    policy, theta = tabulated(dataset, FLAT, FLAT)
    assert LoggedDataset.estimator is evaluate.estimate
    estimated = dataset.evaluate(policy, theta, None)
    assert (estimated.kind, estimated.returns.shape) == ("ncis", (2, dataset.num_signals))
    monkeypatch.setattr(LoggedDataset, "estimator", None)
    with pytest.raises(ValueError, match=r"import moac\.offline\.evaluate"):
        dataset.evaluate(policy, theta, None)
