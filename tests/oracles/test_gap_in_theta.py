"""The gaps that training logs are with respect to θ, whatever the policy."""

import jax
import numpy as np
import pytest

import moac
from moac import momdp
from moac.policies import SoftmaxLinear, SoftmaxTable, features
from tests.helpers import reference


class Nonlinear:
    """Logits that are squares of a linear map: a policy of one's own, with the three functions only."""

    def __init__(self, table):
        self.table = table

    def logits(self, theta, s):
        return jax.numpy.asarray(self.table, theta.dtype)[s] @ theta**2

    def init(self, key):
        return jax.random.normal(key, (2, 3))

    def sample(self, theta, observation, key):
        return jax.random.categorical(key, self.logits(theta, observation))

    def log_prob(self, theta, observation, action):
        return jax.nn.log_softmax(self.logits(theta, observation))[action]


MODEL = momdp.library.random_ergodic(0, 5, 3, 2)
PHI = features.table(np.random.default_rng(0).standard_normal((5, 2)))
POLICIES = {False: SoftmaxLinear(PHI, 3), True: Nonlinear(PHI.table())}
"""One of each, so that both settings share its programs."""


@pytest.mark.parametrize("setting", [moac.Discounted((0.9, 0.5)), moac.Average()])
@pytest.mark.parametrize("own", [False, True])
def test_gaps_are_in_theta(setting, own):
    model, X = MODEL, PHI.table()
    theta = np.random.default_rng(1).standard_normal((3, 2, 3)).astype(np.float32)
    found = model.evaluate(POLICIES[own], theta, setting)
    for k, one in enumerate(theta.astype(np.float64)):
        exact = momdp.evaluate(model, X @ (one**2 if own else one), setting)
        for gap, gradient in ((found.gap, exact.gradient), (found.direction_gap, exact.direction)):
            rows = np.einsum("sk,msa->mka", X, gradient) * (2 * one if own else 1.0)
            rows = rows.reshape(2, -1)
            assert gap[k] == pytest.approx(np.sum((reference.min_norm(rows) @ rows) ** 2), rel=1e-9)
    assert found.returns.shape == (3, 2)


def test_the_gaps_of_a_table_are_those_of_its_logits():
    logits, setting = np.random.default_rng(2).standard_normal((3, 5, 3)), moac.Discounted((0.9, 0.5))
    found, exact = MODEL.evaluate(SoftmaxTable(5, 3), logits, setting), momdp.evaluate(MODEL, logits, setting)
    np.testing.assert_allclose(found.gap, exact.gap, rtol=1e-9)
    np.testing.assert_allclose(found.direction_gap, exact.direction_gap, rtol=1e-9)
    assert (np.abs(exact.gap - exact.direction_gap) > 1e-6 * exact.gap).all()
