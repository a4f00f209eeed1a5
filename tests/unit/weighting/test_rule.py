import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from moac import simplex, weighting
from moac.choices import schedule_of
from moac.weighting.rule import Seen

RECORDED = Path(__file__).parents[2] / "data" / "torchjd_crmogm.json"


def gram(seed, M=3):
    G = np.random.default_rng(seed).standard_normal((M, 5)) + 0.5
    return jnp.asarray(G @ G.T, jnp.float32)


def run(rule, grams):
    state, out = rule.init(grams[0].shape[0]), []
    for t, K in enumerate(grams, start=1):
        state, lam = rule.update(state, K, t)
        out.append(np.asarray(lam))
    return np.stack(out)


def test_weights_are_kept_at_the_first_batch_in_which_every_signal_fires():
    rule = weighting.first_batch(complete=True)
    K = np.diag([1.0, 4.0]).astype(np.float32)
    state, weights = rule.init(2), []
    for rewards, scale in (([[1.0, 0.0]], 1), ([[1.0, 0.0], [0.0, 2.0]], 1), ([[1.0, 1.0]], [1, 16])):
        gram = jnp.asarray(K * np.sqrt(np.outer(scale, scale)) if np.ndim(scale) else K)
        state, lam = rule.update(state, Seen(gram, rewards=jnp.array(rewards)), len(weights) + 1)
        weights.append(np.asarray(lam))
    np.testing.assert_allclose(weights, [[0.5, 0.5], [0.8, 0.2], [0.8, 0.2]], atol=1e-6)


def test_first_batch_keeps_the_first_weights():
    lam = run(weighting.first_batch(), [gram(0), gram(1), gram(2)])
    np.testing.assert_array_equal(lam[0], simplex.min_norm_from_gram(gram(0)).weights)
    np.testing.assert_array_equal(lam, np.broadcast_to(lam[0], lam.shape))


def test_preferred_gives_orthogonal_gradients_of_one_length_the_preference():
    p = [0.2, 0.3, 0.5]
    lam = run(weighting.preferred(p), [jnp.eye(3), 4 * jnp.eye(3)])
    np.testing.assert_allclose(lam, [p, p], atol=1e-6)


def test_without_a_preference_preferred_is_min_norm():
    grams = [gram(0), gram(1)]
    np.testing.assert_allclose(run(weighting.preferred(), grams), run(weighting.min_norm(), grams), atol=1e-6)


def test_a_preference_of_nothing_counts_as_the_smallest():
    small = weighting.SMALLEST
    lam = run(weighting.preferred([0.0, 0.0, 1.0]), [jnp.eye(3)])
    np.testing.assert_allclose(lam[0], np.array([small, small, 1]) / (1 + 2 * small), atol=1e-4)


@pytest.mark.parametrize("make", [weighting.preferred, weighting.fixed])
def test_a_trial_with_a_preference_of_its_own_is_the_rule_with_it(make):
    p, q = jnp.array([0.2, 0.3, 0.5]), jnp.array([0.6, 0.3, 0.1])
    smoothed = weighting.with_momentum(make(p), "1/sqrt(t)")
    state = smoothed.init(3, q)
    expected = run(weighting.with_momentum(make(q), "1/sqrt(t)"), [gram(0)])[0]
    np.testing.assert_array_equal(smoothed.update(state, gram(0), 1)[1], expected)
    assert not weighting.with_momentum(weighting.min_norm(), "1").needs.preference


def test_momentum_follows_its_recursion():
    lam = run(weighting.with_momentum(weighting.min_norm(), "1/sqrt(t)", initial=[0.2, 0.3, 0.5]), [gram(0), gram(1)])
    hat = [np.asarray(simplex.min_norm_from_gram(gram(k)).weights) for k in (0, 1)]
    np.testing.assert_allclose(lam[0], hat[0], atol=1e-6)
    eta = 2**-0.5
    np.testing.assert_allclose(lam[1], (1 - eta) * hat[0] + eta * hat[1], atol=1e-6)


def test_momentum_zero_keeps_the_initial_weights_and_one_is_the_rule():
    initial = [0.2, 0.3, 0.5]
    frozen = run(weighting.with_momentum(weighting.min_norm(), "0", initial), [gram(0), gram(1)])
    np.testing.assert_allclose(frozen, [initial, initial], atol=1e-7)
    plain = run(weighting.with_momentum(weighting.min_norm(), "1"), [gram(0), gram(1)])
    np.testing.assert_allclose(plain, run(weighting.min_norm(), [gram(0), gram(1)]), atol=1e-7)


@pytest.mark.parametrize("M", [3, *(pytest.param(M, marks=pytest.mark.slow) for M in (2, 5))])
def test_agrees_with_torchjd(M, x64):
    """CR-MOGM with α = 1 − η is the momentum rule; TorchJD's inner solver sets the accuracy."""
    cases = [case for case in json.loads(RECORDED.read_text())["cases"] if len(case["matrices"][0]) == M]
    assert len(cases) == 2
    for case in cases:
        grams = [jnp.asarray(K) for K in case["matrices"]]
        initial = np.full(len(grams[0]), 1 / len(grams[0]))
        lam = run(weighting.with_momentum(weighting.min_norm(), f"const:{1 - case['alpha']}", initial), grams)
        accuracy = 1e-12 + max(case["inner_weights_error"])
        np.testing.assert_allclose(lam, case["weights_from_uniform"], rtol=0, atol=accuracy)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("1/t", 0.25), ("1/sqrt(t)", 0.5), ("1/t^2", 0.0625), ("0", 0.0), ("1", 1.0), ("const:0.1", 0.1)],
)
def test_schedules_by_name(name, expected):
    assert schedule_of(name)(4.0) == pytest.approx(expected)


@pytest.mark.parametrize("bad", ["2/t", "const:1.2", "const:x", "", "const:nan", 0.5, None])
def test_refuses_an_unknown_schedule(bad):
    with pytest.raises(ValueError, match="`momentum` must be"):
        schedule_of(bad)


def test_refuses_a_function_that_leaves_the_interval():
    with pytest.raises(ValueError, match=r"`momentum` must be in \[0, 1\], got 2 at t = 1"):
        schedule_of(lambda t: 2 / t)
    assert schedule_of(lambda t: 1 / t)(2.0) == 0.5


@pytest.mark.parametrize("bad", [[0.5, 0.6], [-0.1, 1.1], [np.nan, 1.0], [], [[1.0]]])
def test_refuses_weights_off_the_simplex(bad):
    with pytest.raises(ValueError, match="`weights` must be"):
        weighting.fixed(bad)


def test_refuses_the_wrong_number_of_weights():
    with pytest.raises(ValueError, match=r"one weight per objective \(3\), got 2"):
        weighting.fixed([0.5, 0.5]).init(3)
    with pytest.raises(ValueError, match=r"one weight per objective \(3\), got 2"):
        weighting.with_momentum(weighting.min_norm(), "1/t", [0.5, 0.5]).init(3)


@pytest.mark.parametrize("bad", [-0.1, 0.0, 1.5, np.nan, np.inf])
def test_refuses_a_cap_that_is_no_share(bad):
    with pytest.raises(ValueError, match=r"`cap` must be in \(0, 1\]"):
        weighting.capped(bad)


def test_only_rules_on_the_simplex_are_smoothed():
    """Weights of CAGrad have the scale of the gradients that they were found for."""
    named = weighting.by_name("cagrad:0.4", None, "1/t")
    for K in (gram(0), gram(1)):
        np.testing.assert_array_equal(run(named, [gram(2), K])[1], run(weighting.cagrad(0.4), [K])[0])
