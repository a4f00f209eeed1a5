"""What must hold for the constants of any small model."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moac import theory
from moac.config import Average, Discounted
from moac.momdp import FiniteMOMDP

SEEDS = st.integers(0, 10**6)
SETTINGS = {"discounted": Discounted(0.8), "average": Average()}
by_setting = pytest.mark.parametrize("setting", SETTINGS)
SIZES = st.tuples(st.integers(2, 5), st.integers(1, 3), st.integers(1, 3))


def draw(seed, sizes):
    """Tables of a random model, and logits."""
    (S, A, M), rng = sizes, np.random.default_rng(seed)
    P, r = rng.dirichlet(np.full(S, 0.7), (S, A)), rng.normal(size=(S, A, M))
    terminal = np.broadcast_to(0.3 * rng.integers(0, 2) * rng.random((S, A, 1)), P.shape)
    return P, r, rng.dirichlet(np.ones(S)), terminal, rng.normal(size=(S, A))


def constants(tables, setting, Phi=None, scale=1.0):
    P, r, start, terminal, logits = tables
    return theory.constants(FiniteMOMDP.from_dense(P, scale * r, start, terminal), logits, SETTINGS[setting], Phi)


def assert_same(one, other, skip=(), rel=1e-6):
    """Up to rounding; ζ of features that hold the values is rounding itself."""
    for field in fields(one):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if field.name in skip:
            continue
        if isinstance(a, theory.Mixing):
            assert b.rho == pytest.approx(a.rho, rel=rel, abs=1e-7)
        else:
            assert b == pytest.approx(a, rel=rel, abs=1e-9), field.name


@given(seed=SEEDS, sizes=SIZES)
@settings(max_examples=15)
@by_setting
def test_the_names_of_the_states_do_not_matter(setting, seed, sizes):
    P, r, start, terminal, logits = tables = draw(seed, sizes)
    Phi = np.random.default_rng(seed).normal(size=(sizes[0], 2))
    order = np.random.default_rng(seed + 1).permutation(sizes[0])
    both_ways = np.ix_(order, np.arange(sizes[1]), order)
    relabelled = P[both_ways], r[order], start[order], terminal[both_ways], logits[order]
    assert_same(constants(tables, setting), constants(relabelled, setting))
    assert_same(constants(tables, setting, Phi), constants(relabelled, setting, Phi[order]))


@given(seed=SEEDS, sizes=SIZES)
@settings(max_examples=15)
@by_setting
def test_the_names_of_actions_and_objectives_do_not_matter(setting, seed, sizes):
    P, r, start, terminal, logits = tables = draw(seed, sizes)
    rng = np.random.default_rng(seed + 1)
    a, m = rng.permutation(sizes[1]), rng.permutation(sizes[2])
    relabelled = P[:, a], r[:, a][..., m], start, terminal[:, a], logits[:, a]
    assert_same(constants(tables, setting), constants(relabelled, setting))


@given(seed=SEEDS, sizes=SIZES, exponent=st.integers(-6, 6))
@settings(max_examples=15)
@by_setting
def test_scaling_the_rewards_scales_what_is_of_their_size(setting, seed, sizes, exponent):
    tables, factor = draw(seed, sizes), 2.0**exponent
    Phi = np.random.default_rng(seed).normal(size=(sizes[0], 1))
    one, scaled = constants(tables, setting, Phi), constants(tables, setting, Phi, factor)
    linear = ("r_max", "R_w", "L_J", "L_J_bound", "C_b", "C_b_mean", "w_star")
    for name in linear:
        expected = factor * getattr(one, name)
        assert getattr(scaled, name) == pytest.approx(expected, rel=1e-9, abs=1e-13 * factor), name
    assert scaled.zeta == pytest.approx(factor**2 * one.zeta, rel=1e-9, abs=1e-13 * factor**2)
    assert_same(one, scaled, skip=(*linear, "zeta"), rel=1e-12)


@given(seed=SEEDS, sizes=SIZES)
@settings(max_examples=15)
@by_setting
def test_the_bounds_bound(setting, seed, sizes):
    c = constants(draw(seed, sizes), setting)
    assert c.w_star <= c.R_w * (1 + 1e-9)
    assert 0 <= c.L_J <= c.L_J_bound * (1 + 1e-9)
    assert c.C_psi <= c.C_psi_bound
    assert c.C_A_mean <= c.C_A <= 1 + c.gamma
    assert c.C_b_mean <= c.C_b <= (2 if c.average else 1) * c.r_max
    assert c.lambda_A <= c.lambda_A_modulo_constants
    assert 0 < c.rarest <= 1 / sizes[0] + 1e-12
    assert c.spectral.rho <= c.mixing.rho * (1 + 1e-6) + 1e-6
    assert c.zeta < 1e-9 * (1 + c.w_star**2)  # one-hot features hold the values


@given(seed=SEEDS, sizes=SIZES, epsilon=st.floats(1e-4, 10), momentum=st.sampled_from(["1/t", "1/sqrt(t)", "0"]))
@settings(max_examples=15)
@by_setting
def test_the_plan_keeps_its_promise(setting, seed, sizes, epsilon, momentum):
    c = constants(draw(seed, sizes), setting)
    for derivation in theory.DERIVATIONS:
        p = theory.plan(c, epsilon, momentum, derivation)
        assert p.bound <= epsilon * (1 + 1e-9)
        assert theory.critic_bound(c, p.N, p.D, p.beta, derivation).applies


@given(seed=SEEDS, several=st.lists(SEEDS, min_size=1, max_size=3))
@settings(max_examples=15)
@by_setting
def test_the_worst_of_several_policies_is_no_better_than_any(setting, seed, several):
    P, r, start, terminal, _ = draw(seed, (4, 2, 2))
    policies = [np.random.default_rng(s).normal(size=(4, 2)) for s in several]
    each = [constants((P, r, start, terminal, logits), setting) for logits in policies]
    worst = theory.worst(each)
    for c in each:
        for derivation in theory.DERIVATIONS:
            bad, good = (theory.critic_terms(x, derivation) for x in (worst, c))
            assert bad.largest_beta <= good.largest_beta
            assert bad.C_2 >= good.C_2
            assert bad.C_3 >= good.C_3
            assert theory.actor_terms(worst, derivation).noise >= theory.actor_terms(c, derivation).noise
