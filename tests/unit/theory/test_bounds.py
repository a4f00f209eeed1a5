"""Theorems 1 and 2, the corollaries and the plan: numbers worked out by hand, directions, refusals."""

import functools
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from moac import theory
from moac.config import Average, Discounted
from moac.momdp import FiniteMOMDP, library
from moac.theory import Mixing, bounds, planning

SCHEDULES = {
    "1/t": lambda t: 1 / t,
    "1/sqrt(t)": lambda t: t**-0.5,
    "1/t^2": lambda t: t**-2.0,
    "0": lambda t: 0.0,
    "1": lambda t: 1.0,
    "const:0.25": lambda t: 0.25,
}
both = pytest.mark.parametrize("derivation", theory.DERIVATIONS)


@functools.cache
def case(name):
    """Constants of a model at a policy."""
    rng = np.random.default_rng(0)
    match name:
        case "three":
            reward = np.array([[[1.0]], [[0.0]], [[0.0]]])
            model = FiniteMOMDP.from_dense(np.full((3, 1, 3), 1 / 3), reward)
            return theory.constants(model, np.zeros((3, 1)), Discounted(0.5))
        case "gathering":
            return theory.constants(library.resource_gathering(), np.zeros((93, 4)), Discounted(0.9))
        case "features":
            Phi = rng.normal(size=(5, 2)) / 4
            return theory.constants(library.random_ergodic(1), rng.normal(size=(5, 3)), Discounted(0.8), Phi)
    setting = Average() if name == "average" else Discounted(0.9)
    return theory.constants(library.random_ergodic(0), rng.normal(size=(5, 3)), setting)


CASES = ("three", "discounted", "average", "gathering", "features")
SPREAD = [
    ("three", 1e-6, "1/t", "printed"),
    ("discounted", 0.01, "1/sqrt(t)", "derived"),
    ("average", 1.0, "1/t^2", "printed"),
    ("gathering", 1e3, "0", "derived"),
    ("features", 0.01, "1/t", "derived"),
    ("average", 1e-6, "1/t", "derived"),
]
"""Every case, size of ε, momentum and derivation at least once."""


def plain(**changes):
    """Constants that are easy to calculate with."""
    easy = {"gamma": 0.5, "r_max": 2.0, "R_w": 3.0, "L_J": 0.5, "C_psi_bound": math.sqrt(2), "zeta": 0.1}
    return replace(case("three"), **(easy | changes), mixing=Mixing(0.5, 2.0, "certified"))


# --- Theorem 1


def test_the_critic_of_three_uniform_states_as_printed():
    terms = theory.critic_terms(case("three"), "printed")
    assert terms.largest_beta == pytest.approx(1 / 6, rel=1e-12)  # λ/(8C²) = (1/3)/2
    assert terms.C_2 == 1
    np.testing.assert_allclose(terms.C_3, 192 * (0.25 * 36 + 1 / 9), rtol=1e-12)
    assert terms.smallest_batch(1 / 6) == pytest.approx(912, rel=1e-12)
    assert terms.per_batch(1 / 6) == pytest.approx(192 * (9 + 1 / 9) * (6 + 1 / 3) * 3, rel=1e-12)


def test_the_critic_of_three_uniform_states_as_derived():
    terms = theory.critic_terms(case("three"))
    assert terms.largest_beta == pytest.approx(1 / 30, rel=1e-12)
    np.testing.assert_allclose(terms.C_3, 192 * (1.25 * 36 + 1), rtol=1e-12)
    assert terms.smallest_batch(1 / 30) == pytest.approx(4368, rel=1e-12)
    bound = theory.critic_bound(case("three"), 100, 5000, 1 / 30)
    assert bound.transient == pytest.approx(2 * (1 - 1 / 720) ** 100, rel=1e-12)
    assert bound.floor == pytest.approx(8832 * (6 + 1 / 15) * 3 / 5000, rel=1e-12)
    assert bound.total == bound.transient + bound.floor


def test_the_other_limit_on_beta():
    c = replace(case("three"), lambda_A=2.0, lambda_A_modulo_constants=2.0, C_A=0.1)
    assert theory.critic_terms(c).largest_beta == 2  # 4/λ < λ/(8C²) = 25


def test_slow_mixing_multiplies_floor_and_batch():
    fast, slow = (theory.critic_terms(replace(case("three"), mixing=m)) for m in (Mixing(0, 1, "certified"), MIXING))
    for of in (bounds.CriticTerms.per_batch, bounds.CriticTerms.smallest_batch):
        assert of(slow, 0.01) == pytest.approx(of(fast, 0.01) * (1 + 2 * 0.75) / 0.25, rel=1e-12)


MIXING = Mixing(0.75, 3.0, "certified")


@pytest.mark.parametrize(("name", "derivation"), [("three", "printed"), ("average", "derived")])
def test_the_critic_bound_falls_with_steps_and_batch(name, derivation):
    c = case(name)
    beta = theory.critic_terms(c, derivation).largest_beta
    by_steps = [theory.critic_bound(c, n, 100, beta, derivation) for n in (0, 1, 10, 1000, 10**7)]
    assert by_steps[0].transient == pytest.approx(c.w_star**2)
    assert all(a.transient > b.transient for a, b in itertools.pairwise(by_steps))
    assert len({b.floor for b in by_steps}) == 1
    by_batch = [theory.critic_bound(c, 10, n, beta, derivation) for n in (1, 2, 50, 10**6)]
    assert all(a.floor > b.floor for a, b in itertools.pairwise(by_batch))
    assert by_batch[1].floor * 2 == pytest.approx(by_batch[0].floor, rel=1e-12)


@both
def test_the_theorem_applies_from_the_smallest_batch_on(derivation):
    for c in map(case, CASES):
        terms = theory.critic_terms(c, derivation)
        beta = terms.largest_beta / 2
        smallest = math.ceil(terms.smallest_batch(beta) * (1 - 1e-12))
        assert theory.critic_bound(c, 1, smallest, beta, derivation).applies
        assert not theory.critic_bound(c, 1, math.floor(smallest * 0.998) - 1, beta, derivation).applies


def test_the_bound_begins_at_the_distance_of_zero():
    c = case("three")
    assert theory.critic_bound(c, 0, 1, 0.01).transient == c.w_star**2


@both
def test_a_beta_out_of_range_is_refused(derivation):
    c = case("average")
    largest = theory.critic_terms(c, derivation).largest_beta
    for factor in (0.0, -1.0, 1.001, math.nan, math.inf):
        with pytest.raises(ValueError, match=r"`beta` must be in \(0, .*\] for Theorem 1, got"):
            theory.critic_bound(c, 10, 10, factor * largest, derivation)
    assert theory.critic_bound(c, 10, 10, largest, derivation).total > 0


def test_without_contraction_there_is_no_theorem():
    c = replace(case("three"), lambda_A=0.0, lambda_A_modulo_constants=0.0)
    for function in (theory.critic_terms, lambda c: theory.plan(c, 0.1), lambda c: theory.corollaries(c, 0.1)):
        with pytest.raises(ValueError, match="`lambda_A` must be positive for Theorem 1, got 0: see the assumptions"):
            function(c)


def test_without_mixing_there_is_no_theorem():
    c = replace(case("three"), mixing=Mixing(1.0, 1.0, "certified"))
    with pytest.raises(ValueError, match="`rho` must be below 1 for the theorems, got 1"):
        theory.critic_terms(c)
    with pytest.raises(ValueError, match="`rho` must be below 1 for the theorems, got 1"):
        theory.actor_terms(c)


def test_features_that_span_the_constants_use_the_contraction_without_them():
    c = case("average")
    assert c.lambda_A == 0
    assert theory.critic_terms(c).lambda_A == c.lambda_A_modulo_constants > 0


# --- Theorem 2


def test_the_actor_as_printed_by_hand():
    terms = theory.actor_terms(plain(), "printed")
    assert terms.alpha == pytest.approx(2 / 3)
    assert terms.ascent == pytest.approx(18 * 0.5 * 2 / 0.5)
    assert (terms.ends, terms.critic) == (1, 12)
    assert terms.noise == pytest.approx(12 * (2 + 2 * 3) ** 2 * (0.5 + 4 * 2 * 0.5) / 0.5)
    assert terms.approximation == pytest.approx(1.2)


def test_the_actor_as_derived_by_hand():
    terms = theory.actor_terms(plain())
    assert terms.ascent == pytest.approx(36)
    assert (terms.ends, terms.critic) == (1, pytest.approx(120))
    assert terms.noise == pytest.approx(60 * 2 * 64 * (0.5 + 2 * 2) / 0.5)
    assert terms.approximation == pytest.approx(12)


def test_the_actor_on_average_by_hand():
    c = plain(average=True)
    assert theory.actor_terms(c).ascent == theory.actor_terms(c, "printed").ascent == pytest.approx(18)
    assert theory.actor_terms(c, "printed").noise == pytest.approx(48 * 25 * 4.5 / 0.5)
    assert theory.actor_terms(c).noise == pytest.approx(240 * 2 * 25 * 4.5 / 0.5)


@pytest.mark.parametrize("average", [False, True])
def test_what_was_dropped_is_a_factor_of_five(average):
    """With C_ψ = 1, as the paper silently takes it, and independent samples but for the next state."""
    c = plain(C_psi_bound=1.0, average=average)
    printed, derived = (theory.actor_terms(c, kind) for kind in ("printed", "derived"))
    assert derived.critic == pytest.approx(5 * printed.critic)
    assert derived.approximation == pytest.approx(5 * printed.approximation)
    assert derived.noise == pytest.approx(5 * printed.noise)  # 2κ = 4κρ at ρ = 1/2
    still = replace(c, mixing=Mixing(0.0, 1.0, "certified"))
    printed, derived = (theory.actor_terms(still, kind).noise for kind in ("printed", "derived"))
    assert derived == pytest.approx(15 * printed)  # 1 + 2κ against 1


def test_the_largest_error_of_several_objectives_costs_a_factor_as_derived_only():
    """E max_i ≤ M max_i E, of the critic's error, of the noise and of ζ; the ascent has no maximum in it."""
    one, four = plain(), plain(num_objectives=4)
    terms = [theory.actor_terms(c) for c in (one, four)]
    for name in ("critic", "noise", "approximation"):
        assert getattr(terms[1], name) == pytest.approx(4 * getattr(terms[0], name))
    assert (terms[1].ascent, terms[1].ends) == (terms[0].ascent, terms[0].ends)
    assert theory.actor_terms(one, "printed") == theory.actor_terms(four, "printed")
    assert case("gathering").num_objectives == 3


def test_negative_rewards_cost_one_more_end_as_derived_only():
    c = plain(non_negative=False)
    assert theory.actor_terms(c).ends == 2
    assert theory.actor_terms(c, "printed").ends == 1


def test_a_return_that_no_policy_changes_needs_no_ascent():
    terms = theory.actor_terms(case("three"))
    assert terms.alpha == math.inf
    assert terms.ascent == 0
    assert theory.plan(case("three"), 0.1).T == 1


def test_the_actor_bound_is_the_sum_of_its_terms():
    bound = theory.actor_bound(plain(), 4, 10, "1/t", critic_error=0.5)
    harmonic = 1 + 1 / 2 + 1 / 3 + 1 / 4
    assert bound.ascent == pytest.approx(36 * (1 + 2 * harmonic) / 4)
    assert bound.critic == pytest.approx(60)
    assert bound.noise == pytest.approx(69120 / 10)
    assert bound.approximation == pytest.approx(12)
    assert bound.total == pytest.approx(sum((bound.ascent, bound.critic, bound.noise, bound.approximation)))


@pytest.mark.parametrize(("momentum", "derivation"), [("1/t", "printed"), ("1/sqrt(t)", "derived"), ("1", "derived")])
def test_the_actor_bound_falls_with_iterations_and_batch(momentum, derivation):
    c = plain(non_negative=False)
    by_time = [theory.actor_bound(c, T, 10, momentum, derivation=derivation) for T in (1, 2, 10, 999, 1001, 1e6, 1e9)]
    assert all(a.ascent > b.ascent for a, b in itertools.pairwise(by_time))
    by_batch = [theory.actor_bound(c, 10, B, momentum, derivation=derivation) for B in (1, 2, 1000, 1e12)]
    assert all(a.noise > b.noise for a, b in itertools.pairwise(by_batch))
    assert len({b.approximation for b in (*by_time, *by_batch)}) == 1


# --- Ση


def test_the_sum_of_momenta_is_a_direct_sum():
    """Summed up to T = 1000, beyond that by a formula."""
    for momentum, T in itertools.product(SCHEDULES, (0, 1, 17, 1000, 1001, 100_000)):
        direct = math.fsum(SCHEDULES[momentum](t) for t in range(1, T + 1))
        assert bounds.total(momentum, T) == pytest.approx(direct, rel=1e-10, abs=1e-12)
        step = bounds.total(momentum, T + 1) - bounds.total(momentum, T)
        assert step == pytest.approx(SCHEDULES[momentum](T + 1), abs=1e-9)


def test_sums_of_very_many_momenta():
    assert bounds.total("1/t", 1e300) == pytest.approx(math.log(1e300) + 0.5772156649015329, rel=1e-14)
    assert bounds.total("1/sqrt(t)", 1e20) == pytest.approx(2e10, rel=1e-9)
    assert bounds.total("1/t^2", 1e20) == pytest.approx(math.pi**2 / 6, rel=1e-15)
    assert bounds.total("1", 1e20) == 1e20
    assert bounds.total("0", 1e20) == 0
    assert bounds.total("1/t", 7.9) == bounds.total("1/t", 7)
    assert bounds.total("1/t^2", 1e300) == pytest.approx(math.pi**2 / 6, rel=1e-15)  # T³ overflows


def test_a_tiny_epsilon_has_a_plan():
    for momentum in ("1/t", "0"):
        p = theory.plan(case("discounted"), 1e-140, momentum)
        assert math.isfinite(p.T)
        assert p.bound <= 1e-140 * (1 + 1e-9)


def test_an_unknown_momentum_is_refused():
    for momentum in ("1/t^3", "const:2", ""):
        with pytest.raises(ValueError, match="`momentum` must be"):
            bounds.total(momentum, 10)
        with pytest.raises(ValueError, match="`momentum` must be"):
            theory.plan(case("three"), 0.1, momentum)


# --- the plan


def reassembled(c, p):
    """The bound of Theorem 2 at the plan's sizes, from Theorem 1's at its own."""
    error = theory.critic_bound(c, p.N, p.D, p.beta, p.derivation)
    return error, theory.actor_bound(c, p.T, p.B, p.momentum, error.total, p.derivation)


@pytest.mark.parametrize(("name", "epsilon", "momentum", "derivation"), SPREAD)
def test_the_plan_keeps_its_promise(name, epsilon, momentum, derivation):
    c = case(name)
    p = theory.plan(c, epsilon, momentum, derivation)
    assert p.bound <= epsilon * (1 + 1e-9)
    error, actor = reassembled(c, p)
    assert error.applies
    assert actor.total - actor.approximation == pytest.approx(p.bound, rel=1e-9, abs=1e-9 * actor.total)
    assert p.approximation == actor.approximation
    assert p.shares == pytest.approx((actor.ascent, actor.critic, actor.noise), rel=1e-9)
    assert all(size >= 1 and size == math.floor(size) for size in (p.N, p.D, p.B, p.T))
    assert p.samples == pytest.approx((p.B + p.N * p.D) * p.T, rel=1e-12)
    assert (p.epsilon, p.momentum, p.derivation) == (epsilon, momentum, derivation)
    terms = theory.critic_terms(c, derivation)
    assert p.beta == terms.largest_beta
    assert p.alpha == theory.actor_terms(c, derivation).alpha


def equal_split(c, epsilon, momentum, derivation):
    """Samples when ascent, transient, floor and noise get a quarter of ε each."""
    actor, critic = theory.actor_terms(c, derivation), theory.critic_terms(c, derivation)
    quarter, beta = epsilon / 4, critic.largest_beta
    N, T, total = 1, 1, SCHEDULES[momentum](1)
    shrink = -math.log1p(-beta * critic.lambda_A / 8)
    N = max(1, math.ceil(math.log(max(actor.critic * c.w_star**2 / quarter, 1.0)) / shrink))
    D = max(1, math.ceil(actor.critic * critic.per_batch(beta) / quarter), math.ceil(critic.smallest_batch(beta)))
    B = max(1, math.ceil(actor.noise / quarter))
    while actor.ascent * (actor.ends + 2 * total) / T > quarter:
        T += 1
        total += SCHEDULES[momentum](T)
    return (B + N * D) * T


@pytest.mark.parametrize(
    ("name", "epsilon", "momentum", "derivation"),
    [
        ("discounted", 0.1, "1/t", "printed"),
        ("average", 10.0, "1/t^2", "derived"),
        ("gathering", 10.0, "0", "printed"),
        ("features", 0.1, "1/t", "derived"),
    ],
)
def test_the_plan_is_never_dearer_than_an_equal_split(name, epsilon, momentum, derivation):
    p = theory.plan(case(name), epsilon, momentum, derivation)
    assert p.samples <= equal_split(case(name), epsilon, momentum, derivation) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("name", "momentum", "epsilon"), [("discounted", "1/t", 0.01), ("average", "1/t", 1.0), ("average", "0", 0.1)]
)
def test_no_split_of_a_grid_is_much_cheaper(name, momentum, epsilon):
    """The sizes are whole numbers, so a few iterations more or less may cost a quarter."""
    c = case(name)
    terms, axis = (theory.actor_terms(c), theory.critic_terms(c)), np.linspace(-5, 5, 9)
    cheapest = min(
        planning._sizes(*terms, c.w_star**2, epsilon * planning._split(np.array(x)), momentum)[-1]
        for x in itertools.product(axis, axis, axis)
    )
    assert theory.plan(c, epsilon, momentum).samples <= 1.3 * cheapest


def test_a_smaller_epsilon_costs_more():
    for name in CASES:
        samples = [theory.plan(case(name), epsilon).samples for epsilon in (1e-4, 1e-2, 1.0)]
        assert samples[0] > samples[1] > samples[2], name


def test_the_derived_plan_costs_more_than_the_printed_one():
    for name in CASES:
        assert theory.plan(case(name), 0.1).samples > theory.plan(case(name), 0.1, derivation="printed").samples


@pytest.mark.parametrize("make", [theory.plan, theory.corollaries])
def test_a_plan_counts_the_samples_of_its_sizes(make):
    p = make(case("discounted"), 1e-3)
    assert p.D > 1 and p.samples == p.T * (p.B + p.N * p.D)


@pytest.mark.parametrize("name", ["discounted", "average"])
def test_plain_mgda_has_no_plan(name):
    p = theory.plan(case(name), 1e-3, "1")
    assert p.T == p.samples == p.bound == p.shares[0] == math.inf
    assert all(math.isfinite(x) for x in (p.N, p.D, p.B, *p.shares[1:]))
    assert math.isinf(theory.corollaries(case(name), 1e-3, "1").T)


@pytest.mark.parametrize("of_epsilon", [0.2, 0.999])
def test_a_constant_momentum_has_a_plan_while_its_limit_is_below_epsilon(of_epsilon):
    """The ascent tends to 2η·ascent, here a part of ε that an equal split would not grant it."""
    c = case("discounted")
    eta = of_epsilon * 0.1 / (2 * theory.actor_terms(c).ascent)
    p = theory.plan(c, 0.1, f"const:{eta!r}")
    assert math.isfinite(p.T)
    assert p.bound <= 0.1 * (1 + 1e-9)
    assert math.isinf(theory.plan(c, 0.1, f"const:{1.01 / of_epsilon * eta!r}").T)


@pytest.mark.parametrize("function", [theory.plan, theory.corollaries])
def test_a_bad_epsilon_is_refused(function):
    for epsilon in (0, -1.0, math.nan, math.inf, "0.1", None):
        with pytest.raises(ValueError, match=r"`epsilon` must be (positive and finite|a number), got"):
            function(case("three"), epsilon)


def test_numbers_of_numpy_are_numbers():
    assert theory.plan(case("three"), np.float64(0.1)) == theory.plan(case("three"), 0.1)
    assert theory.plan(case("three"), 1).epsilon == 1


# --- the corollaries


@pytest.mark.parametrize(
    ("name", "epsilon", "momentum"),
    [
        ("discounted", 1e-4, "1/t"),
        ("average", 1e-2, "1/sqrt(t)"),
        ("features", 1e-4, "1/t^2"),
        ("discounted", 1e-2, "0"),
    ],
)
def test_the_corollaries_promise_epsilon_and_give_up_to_four_and_a_half(name, epsilon, momentum):
    p = theory.corollaries(case(name), epsilon, momentum)
    assert p.derivation == "printed"
    assert epsilon < p.bound <= 4.5 * epsilon
    ascent, critic, noise = p.shares
    assert 0.9 * epsilon < ascent <= 2 * epsilon
    assert 0.9 * epsilon < critic <= 1.5 * epsilon * (1 + 1e-9)
    assert 0.9 * epsilon < noise <= epsilon * (1 + 1e-9)


def test_the_corollaries_by_hand():
    c = plain()
    p = theory.corollaries(c, 0.12)
    beta, lam, C_1 = p.beta, c.lambda_A, c.w_star**2
    assert math.ceil(8 / (beta * lam) * math.log(2 * C_1 / 0.01)) == p.N
    floor = c.mixing.factor * 192 * (0.25 * 9 + 1 / 9) * (2 / lam + 2 * beta) / (0.01 * lam)
    assert pytest.approx(math.ceil(floor), abs=1) == p.D
    assert pytest.approx(6912 / 0.12, abs=1) == p.B
    T = int(p.T)
    assert 36 * 2 * bounds.total("1/t", T) / T <= 0.12 < 36 * 2 * bounds.total("1/t", T - 1) / (T - 1)
    assert p.samples == (p.B + p.N * p.D) * p.T


def test_a_plan_that_keeps_epsilon_costs_more_than_the_corollaries():
    for name in ("discounted", "average", "features"):
        assert (
            theory.plan(case(name), 0.01, derivation="printed").samples > theory.corollaries(case(name), 0.01).samples
        )


def test_sizes_and_names_that_mean_nothing_are_refused():
    c = case("discounted")
    for call, words in (
        (lambda: theory.critic_bound(c, 10, 0, 1e-3), "`batch` must be at least 1, got 0"),
        (lambda: theory.actor_bound(c, 0, 8), "`iterations` must be at least 1, got 0"),
        (lambda: theory.critic_terms(c, "typo"), "`derivation` must be one of printed, derived, got 'typo'"),
        (lambda: theory.actor_terms(c, "typo"), "`derivation` must be one of printed, derived, got 'typo'"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
