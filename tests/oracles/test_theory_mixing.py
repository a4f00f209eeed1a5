"""ρ and κ against the powers of the chain themselves, and Dobrushin's coefficient against all pairs of rows."""

import itertools
from functools import cache

import numpy as np
import pytest
from scipy.special import softmax

from moac import theory
from moac.config import Discounted
from moac.momdp import FiniteMOMDP, chain, library
from moac.theory import mixing
from tests.helpers import closed_form

STEPS = 400
ROUNDING = 1e-9


def random_chain(seed, S, concentration=1.0):
    return np.random.default_rng(seed).dirichlet(np.full(S, concentration), S)


def slow(coupling):
    """Two blocks of three states that exchange mass with a small chance: λ₂ = 1 − 2·coupling."""
    apart = np.kron(np.eye(2), np.full((3, 3), 1 / 3))
    return (1 - coupling) * apart + coupling * np.roll(apart, 3, axis=0)


def line(S):
    """Down to state 0, where it stays: P − 1dᵀ is nilpotent, and the distance is 1 until it is 0."""
    P = np.diag(np.ones(S - 1), -1)
    P[0, 0] = 1.0
    return P


def streak(S):
    """One further with chance 1/2, else back to 0: exactly stationary after S − 1 steps."""
    P = np.zeros((S, S))
    P[:, 0] = 0.5
    P[np.arange(S), np.minimum(np.arange(S) + 1, S - 1)] += 0.5
    return P


def jordan(S):
    """Down one state with chance 1/2, absorbed in 0: the eigenvalue 1/2 has one block of size S − 1."""
    P = 0.5 * (np.eye(S) + np.diag(np.ones(S - 1), -1))
    P[0, 0] = 1.0
    return P


def countdown(S):
    """Down one state at a time, from 0 to a random state."""
    P = np.diag(np.ones(S - 1), -1)
    P[0] = 1 / S
    return P


def gathering(scale):
    model = library.resource_gathering()
    logits = scale * np.random.default_rng(0).standard_normal((model.num_states, model.num_actions))
    return chain.induced(model, softmax(logits, axis=1)[None]).restart[0]


DIAGONALISABLE = {
    **{f"random {S}": random_chain(S, S) for S in (2, 12)},
    **{f"peaked {S}": random_chain(S, S, 0.3) for S in (9,)},
    "slow, 1e-2": slow(1e-2),
    "slow, 1e-9": slow(1e-9),
    "lazy cycle": 0.9 * np.roll(np.eye(11), 1, axis=1) + 0.1 * np.eye(11),
    "leaky cycle": 0.97 * np.roll(np.eye(20), 1, axis=1) + 0.03 / 20,
    "one state": np.ones((1, 1)),
    "independent": np.tile(random_chain(0, 5)[0], (5, 1)),
    "gathering, sharp": gathering(2.0),
}
OTHERS = {
    **{f"line {S}": line(S) for S in (3, 60)},
    **{f"streak {S}": streak(S) for S in (6,)},
    **{f"jordan {S}": jordan(S) for S in (5,)},
    "nilpotent": 1 / 3 + 0.15 * np.outer([1, -1, 0], [1, 1, -2]),
    "countdown": countdown(30),
}
CHAINS = DIAGONALISABLE | OTHERS


def law(P):
    return np.linalg.solve((np.eye(len(P)) - P + 1).T, np.ones(len(P)))


def distances(P, steps=STEPS):
    """max_s ‖Pᵗ(s, ·) − d‖_TV for t = 0, 1, …, one product after the other."""
    d, power, found = law(P), np.eye(len(P)), []
    for _ in range(steps):
        found.append(0.5 * np.abs(power - d).sum(axis=1).max())
        power = power @ P
    return np.array(found)


def assert_holds(found, P, steps=STEPS):
    bound = found.kappa * np.float64(found.rho) ** np.arange(steps)
    assert np.all(distances(P, steps) <= bound * (1 + 1e-9) + ROUNDING)


# --- certified


@cache
def measured(name):
    P = CHAINS[name]
    return mixing.spectral(P, law(P)), mixing.certified(P, law(P))


@pytest.mark.parametrize("name", CHAINS)
def test_both_bounds_hold_at_every_time(name):
    """Also for chains that cannot be diagonalised."""
    P = CHAINS[name]
    spectral, found = measured(name)
    assert 0 <= spectral.rho < 1
    assert np.isfinite(spectral.kappa)
    assert_holds(spectral, P)
    assert 0 <= found.rho < 1
    assert found.kappa >= 1
    assert found.power >= 1
    assert found.kind == "certified"
    assert_holds(found, P)
    tau = all_pairs(np.linalg.matrix_power(P, found.power))  # ρᵐ is at least τ(Pᵐ)
    assert tau <= found.rho**found.power * (1 + 1e-6) + 1e-11


@pytest.mark.parametrize(("a", "b"), [(0.1, 0.2), (0.9, 0.8), (1e-6, 1e-4)])
def test_two_states_by_hand(a, b):
    P = np.array([[1 - a, a], [b, 1 - b]])
    for found in (mixing.certified(P, law(P)), mixing.spectral(P, law(P))):
        assert found.rho == pytest.approx(abs(1 - a - b), rel=1e-9, abs=1e-10)
        assert found.kappa == pytest.approx(1, rel=1e-6)


def test_the_factor_is_the_c2_of_theorem_1():
    assert mixing.Mixing(0.5, 3.0, "certified").factor == (1 + 2 * 0.5) / 0.5
    assert mixing.Mixing(0.0, 1.0, "certified").factor == 1
    assert mixing.Mixing(1.0, 1.0, "certified").factor == np.inf


def test_independent_rows_forget_at_once():
    for name in ("one state", "independent"):
        found = mixing.certified(CHAINS[name], law(CHAINS[name]))
        assert (found.rho, found.kappa, found.factor) == (0, 1, 1)


@pytest.mark.parametrize("S", [2, 3])
def test_a_periodic_chain_does_not_mix(S):
    P = np.roll(np.eye(S), 1, axis=1)
    for found in (mixing.certified(P, np.full(S, 1 / S)), mixing.spectral(P, np.full(S, 1 / S))):
        assert (found.rho, found.factor) == (1, np.inf)


def test_a_chain_of_two_classes_does_not_mix():
    P = np.kron(np.eye(2), random_chain(0, 3))
    d = np.tile(law(random_chain(0, 3)), 2) / 2
    assert mixing.certified(P, d).rho == 1
    assert mixing.spectral(P, d).rho == 1


def test_transient_states_are_allowed():
    P = np.array([[0.2, 0.8, 0, 0], [0, 0.5, 0.5, 0], [0, 0.3, 0.7, 0], [0.9, 0, 0, 0.1]])
    assert_holds(mixing.certified(P, law(P)), P)
    assert_holds(mixing.spectral(P, law(P)), P)


# --- spectral


def test_the_spectral_rate_is_the_second_largest_eigenvalue():
    for name, P in DIAGONALISABLE.items():
        moduli = np.sort(np.abs(np.linalg.eigvals(P)))[::-1]
        second = moduli[1] if len(P) > 1 else 0.0
        found, certified = measured(name)
        assert found.rho == pytest.approx(second, rel=1e-7, abs=1e-7), name
        assert found.rho <= certified.rho * (1 + 1e-9) + 1e-10, name  # no rate is smaller


@pytest.mark.parametrize("S", [3, 8])
def test_a_defective_eigenvalue_gives_way_a_little(S):
    assert 0.5 <= mixing.spectral(jordan(S), law(jordan(S))).rho < 0.75


@pytest.mark.parametrize("S", [70, 128])
def test_a_chain_that_forgets_nothing_for_long_and_then_all(S):
    """The last distance of 1 is at t = S − 2, between two powers of two."""
    found = mixing.spectral(line(S), np.eye(S)[0])
    assert found.kappa * found.rho ** (S - 2) >= 1
    certified = mixing.certified(line(S), np.eye(S)[0])
    assert certified.kappa * certified.rho ** (S - 2) >= 1


def test_a_chain_of_many_states_that_forgets_nothing_for_long_is_certified():
    found = mixing.certified(line(300), np.eye(300)[0])
    assert found.kappa * found.rho**298 >= 1
    assert found.factor < 3000


# --- Dobrushin's coefficient


def all_pairs(P):
    return max((0.5 * np.abs(p - q).sum() for p, q in itertools.combinations(P, 2)), default=0.0)


def test_dobrushin_is_the_largest_distance_of_two_rows_and_the_bound_for_many_states_is_above_it(monkeypatch):
    exact = {name: mixing.dobrushin(P) for name, P in CHAINS.items()}
    assert exact == pytest.approx({name: all_pairs(P) for name, P in CHAINS.items()}, rel=1e-12, abs=1e-15)
    monkeypatch.setattr(mixing, "_EXACT_PAIRS", 0)
    for name, P in CHAINS.items():
        bound = mixing.dobrushin(P)
        assert exact[name] <= bound * (1 + 1e-12) + 1e-15
        assert bound <= min(1, 2 * exact[name]) + 1e-12


@pytest.mark.parametrize("name", ["random 12", "slow, 1e-2", "streak 6"])
def test_the_certificate_by_the_bound_for_many_states_holds(name, monkeypatch):
    P = CHAINS[name]
    exact = mixing.certified(P, law(P))
    monkeypatch.setattr(mixing, "_EXACT_PAIRS", 0)
    found = mixing.certified(P, law(P))
    assert exact.rho < 1
    assert found.rho < 1
    assert_holds(found, P)


def test_more_than_512_states():
    rng = np.random.default_rng(0)
    P = 0.3 * rng.dirichlet(np.ones(520), 520) + 0.7 * rng.dirichlet(np.ones(520))
    far = max(0.5 * np.abs(P[s] - P[rng.permutation(520)]).sum(axis=1).max() for s in range(0, 520, 13))
    assert far <= mixing.dobrushin(P) <= 0.3


def test_dobrushin_is_submultiplicative():
    for seed in range(5):
        P, Q = random_chain(seed, 6, 0.2), random_chain(seed + 50, 6, 0.2)
        assert mixing.dobrushin(P @ Q) <= mixing.dobrushin(P) * mixing.dobrushin(Q) + 1e-15


# --- for all policies at once


def restarting_table(model):
    go, end, _ = closed_form.dense(model)
    return go + end[..., None] * model.start_distribution


@pytest.mark.parametrize(("seed", "termination"), [(0, 0.0), (1, 0.2)])
def test_the_uniform_rate_holds_for_every_policy(seed, termination):
    model = library.random_ergodic(seed, 5, 3, termination=termination)
    table = restarting_table(model)
    found = mixing.uniform(table)
    assert found.rho < 1
    assert (found.kappa, found.power) == (1, 1)
    rng = np.random.default_rng(seed)
    sure = np.eye(3)[rng.integers(3, size=(30, 5))]
    for pi in (*rng.dirichlet(np.full(3, 0.3), (30, 5)), *sure):
        P = np.einsum("sa,sat->st", pi, table)
        assert all_pairs(P) <= found.rho + 1e-15
        assert_holds(found, P, 40)


def test_the_uniform_rate_is_what_no_policy_can_avoid():
    """Every (s, a) leads to state 0 with chance 0.3 at least and to state 2 with 0.1."""
    P = np.array([[[0.3, 0.6, 0.1], [0.5, 0, 0.5]], [[0.4, 0.1, 0.5], [0.9, 0, 0.1]], [[0.3, 0.3, 0.4], [0.3, 0, 0.7]]])
    found = mixing.uniform(P)
    assert found.rho == pytest.approx(0.6, abs=1e-15) and found.kappa == 1


def test_no_common_successor_is_no_uniform_rate():
    model = library.random_ergodic(0, 6, 3, num_successors=2)
    assert mixing.uniform(restarting_table(model)).rho == 1
    assert theory.constants(model, np.zeros((6, 3)), Discounted(0.9)).mixing.rho < 1


def test_the_constants_hold_the_mixing_of_the_restarting_chain():
    """A cycle that ends its episode with chance 1/4 per step; without restarts nothing would be forgotten."""
    P = np.roll(np.eye(4), 1, axis=1)[:, None]
    model = FiniteMOMDP.from_dense(P, np.ones((4, 1, 1)), terminal=0.25 * P)
    found = theory.constants(model, np.zeros((4, 1)), Discounted(0.9)).mixing
    assert found.rho == pytest.approx(0.75, rel=1e-9)
    assert_holds(found, 0.75 * P[:, 0] + 0.25 / 4)
