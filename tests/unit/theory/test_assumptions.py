"""Each assumption: its verdict, its number, the words that say where it fails and what to change."""

import itertools
import math

import numpy as np
import pytest

from moac import theory
from moac.config import Average, Discounted
from moac.momdp import FiniteMOMDP, library
from moac.theory import assumptions

NAMES = (
    "the chain is irreducible",
    "the chain is aperiodic",
    "rewards are bounded",
    "rewards are not negative",
    "‖φ(s)‖ ≤ 1",
    "Φ has full column rank",
    "no u with Φu = 1",
    "λ_A > 0",
)
IRREDUCIBLE, APERIODIC, BOUNDED, NON_NEGATIVE, NORMALISED, FULL_RANK, NO_CONSTANT, CONTRACTING = NAMES


def chain_model(P, reward=None):
    """A model with one action, whose chain is P."""
    P = np.asarray(P, float)
    return FiniteMOMDP.from_dense(P[:, None], np.ones((len(P), 1, 1)) if reward is None else reward)


def verdicts(model, setting=None, features=None, logits=None):
    logits = np.zeros((model.num_states, model.num_actions)) if logits is None else logits
    found = theory.check(theory.ground(model, logits, setting or Discounted(0.9), features))
    assert tuple(a.name for a in found) == NAMES
    for a in found:
        assert bool(a.reason) == (a.status != "holds")
        assert bool(a.remedy) == (a.status == "fails")
        assert (a.number is None) == (a.status == "not applicable")
        assert a.number is None or math.isfinite(a.number)
        assert a.measure
    return {a.name: a for a in found}


def failing(found):
    return [name for name, a in found.items() if a.status == "fails"]


# --- all together


def test_a_random_ergodic_model_satisfies_all_of_them():
    found = verdicts(library.random_ergodic(0))
    assert failing(found) == []
    assert found[NO_CONSTANT].status == "not applicable"
    assert found[CONTRACTING].status == "holds"


def test_a_reference_state_satisfies_all_of_them_on_average():
    found = verdicts(library.random_ergodic(0), Average(), np.eye(5)[:, 1:])
    assert [a.status for a in found.values()] == ["holds"] * 8
    assert found[NO_CONSTANT].number == pytest.approx(1)  # state 0 is all that is missing


def test_one_hot_features_on_average_fail_in_two_and_say_what_to_do():
    model = library.random_ergodic(0)
    found = verdicts(model, Average())
    assert failing(found) == [NO_CONSTANT, CONTRACTING]
    assert found[NO_CONSTANT].number == pytest.approx(0, abs=1e-12)
    assert "unique up to a constant" in found[NO_CONSTANT].reason
    assert "one-hot-reference" in found[NO_CONSTANT].remedy
    modulo = theory.constants(model, np.zeros((5, 3)), Average()).lambda_A_modulo_constants
    assert found[CONTRACTING].number == 0
    assert f"modulo constants λ_A is {modulo:.3g}" in found[CONTRACTING].reason
    assert "one-hot-reference" in found[CONTRACTING].remedy


def test_resource_gathering_pays_less_than_nothing():
    found = verdicts(library.resource_gathering())
    assert failing(found) == [NON_NEGATIVE]
    assert found[NON_NEGATIVE].number == -1
    assert found[NON_NEGATIVE].reason == "objective 'death' has a reward of -1"
    assert "2 + Σ2η" in found[NON_NEGATIVE].remedy


# --- irreducible


@pytest.mark.parametrize("setting", [Discounted(0.9), Average()], ids=["discounted", "average"])
def test_two_classes_are_named_and_the_rest_is_still_checked(setting):
    P = [[0.5, 0.5, 0, 0, 0], [1, 0, 0, 0, 0], [0.1, 0, 0, 0.9, 0], [0, 0, 0, 0.2, 0.8], [0, 0, 0, 1, 0]]
    found = verdicts(chain_model(P), setting)
    assert found[IRREDUCIBLE].status == "fails"
    assert found[IRREDUCIBLE].number == 3  # with the transient state 2
    assert found[IRREDUCIBLE].reason == "2 sets of states cannot reach each other: {0, 1}; {3, 4}"
    assert "restarts" in found[IRREDUCIBLE].remedy
    assert found[CONTRACTING].status == "not applicable"
    assert found[CONTRACTING].reason == "there is no unique stationary law"
    for name in (APERIODIC, BOUNDED, NON_NEGATIVE, NORMALISED, FULL_RANK):
        assert found[name].status == "holds"


def test_transient_states_are_named():
    found = verdicts(chain_model([[0, 1, 0], [0, 0.5, 0.5], [0, 0.5, 0.5]]))
    assert found[IRREDUCIBLE].status == "fails"
    assert found[IRREDUCIBLE].number == 2
    assert found[IRREDUCIBLE].reason == "states {0} are never visited again once left"
    assert "drop them" in found[IRREDUCIBLE].remedy
    assert found[CONTRACTING].status == "fails"
    assert "the rarest state is 0 with d = 0" in found[CONTRACTING].reason


def test_many_states_are_named_in_part():
    P = np.zeros((12, 12))
    P[:, 11] = 1.0
    assert verdicts(chain_model(P))[IRREDUCIBLE].reason == (
        "states {0, 1, 2, 3, 4, 5, 6, 7, … 11 in all} are never visited again once left"
    )


def test_episodes_that_end_connect_the_states():
    P = np.eye(3)[:, None]
    apart = FiniteMOMDP.from_dense(P, np.ones((3, 1, 1)))
    ending = FiniteMOMDP.from_dense(P, np.ones((3, 1, 1)), terminal=0.1 * np.ones((3, 1, 3)))
    assert verdicts(apart)[IRREDUCIBLE].status == "fails"
    assert failing(verdicts(ending)) == []


def test_a_policy_may_lose_what_the_model_connects():
    model = FiniteMOMDP.from_dense([[[1, 0], [0, 1]], [[0, 1], [1, 0]]], np.ones((2, 2, 1)))
    assert verdicts(model)[IRREDUCIBLE].status == "holds"
    stuck = verdicts(model, logits=[[0.0, -1000], [0, -1000]])
    assert "{0}; {1}" in stuck[IRREDUCIBLE].reason


# --- aperiodic


@pytest.mark.parametrize(("S", "setting"), [(2, Discounted(0.9)), (7, Average())], ids=["discounted", "average"])
def test_a_cycle_has_the_period_of_its_length(S, setting):
    found = verdicts(chain_model(np.roll(np.eye(S), 1, axis=1)), setting)
    assert found[APERIODIC].status == "fails"
    assert found[APERIODIC].number == S
    assert found[APERIODIC].reason == f"every return takes a multiple of {S} steps"
    assert "stay in place" in found[APERIODIC].remedy
    assert found[IRREDUCIBLE].status == "holds"


def loops(*lengths):
    """State 0 starts one of several cycles of these lengths at random."""
    S = 1 + sum(n - 1 for n in lengths)
    P, first = np.zeros((S, S)), 1
    for n in lengths:
        path = [0, *range(first, first + n - 1), 0]
        for s, t in itertools.pairwise(path):
            P[s, t] += 1 / len(lengths) if s == 0 else 1.0
        first += n - 1
    return P


@pytest.mark.parametrize(("lengths", "period"), [((4, 6), 2), ((6, 10, 15), 1), ((6, 9), 3), ((1, 8), 1)])
def test_the_period_is_the_common_divisor_of_all_ways_back(lengths, period):
    P = loops(*lengths)
    assert assumptions.period(P, np.arange(len(P))) == period
    back = [t for t in range(1, 80) if np.linalg.matrix_power(P, t)[0, 0] > 0]
    assert math.gcd(*back) == period
    order = np.random.default_rng(0).permutation(len(P))
    assert assumptions.period(P[np.ix_(order, order)], np.arange(len(P))) == period


def test_of_several_classes_the_longest_period_counts():
    P = np.zeros((5, 5))
    P[0, 1] = P[1, 0] = P[2, 3] = P[3, 4] = P[4, 2] = 1.0
    assert verdicts(chain_model(P))[APERIODIC].number == 3


def test_a_chance_to_stay_ends_the_period():
    P = 0.99 * np.roll(np.eye(4), 1, axis=1)
    P[2, 2] += 0.01
    P[[0, 1, 3]] /= 0.99
    assert verdicts(chain_model(P))[APERIODIC].status == "holds"


def test_a_periodic_chain_has_constants_but_the_theorems_refuse_it():
    model = chain_model(np.roll(np.eye(3), 1, axis=1))
    c = theory.constants(model, np.zeros((3, 1)), Discounted(0.9))
    for terms in (theory.critic_terms, theory.actor_terms):
        with pytest.raises(ValueError, match=r"`rho` must be below 1 .*, got 1: the chain is periodic"):
            terms(c)
    for plan in (theory.plan, theory.corollaries):
        with pytest.raises(ValueError, match="the chain is periodic or reducible"):
            plan(c, 0.1)


# --- rewards


def test_the_bound_on_rewards_counts_what_can_happen_only():
    model = FiniteMOMDP.from_outcomes(
        next_state=[[[0, 0]]], probability=[[[1, 0]]], reward=[[[[2.0, -0.5], [99.0, -99.0]]]], terminated=[[[0, 0]]]
    )
    found = verdicts(model)
    assert found[BOUNDED].status == "holds"
    assert found[BOUNDED].number == 2
    assert found[NON_NEGATIVE].number == -0.5
    assert found[NON_NEGATIVE].reason == "objective 'objective 2' has a reward of -0.5"


def test_rewards_of_zero_are_not_negative():
    found = verdicts(chain_model([[1.0]], np.zeros((1, 1, 2))))
    assert found[NON_NEGATIVE].status == "holds"
    assert found[NON_NEGATIVE].number == 0


# --- features


def test_long_features_are_named_with_the_divisor():
    Phi = np.eye(5)
    Phi[3] *= 2.5
    found = verdicts(library.random_ergodic(0), features=Phi)
    assert failing(found) == [NORMALISED]
    assert found[NORMALISED].number == 2.5
    assert found[NORMALISED].reason == "states {3}"
    assert found[NORMALISED].remedy == "divide the features by 2.5"
    assert verdicts(library.random_ergodic(0), features=Phi / 2.5)[NORMALISED].status == "holds"


def test_a_length_of_one_up_to_rounding_is_one():
    Phi = np.full((5, 3), np.sqrt(1 / 3) * (1 + 1e-12))
    assert verdicts(library.random_ergodic(0), features=Phi)[NORMALISED].status == "holds"


def test_dependent_columns_are_counted():
    Phi = np.random.default_rng(0).normal(size=(5, 2)) / 5
    found = verdicts(library.random_ergodic(0), features=np.column_stack([Phi, Phi.sum(axis=1), Phi[:, 0]]))
    assert failing(found) == [FULL_RANK, CONTRACTING]
    assert found[FULL_RANK].number == pytest.approx(0, abs=1e-12)
    assert found[FULL_RANK].reason == "4 features of 5 states have rank 2: 2 of the singular values are zero"
    assert found[FULL_RANK].remedy == "keep 2 independent columns"
    assert "never corrected" in found[CONTRACTING].reason
    assert "dependent features" in found[CONTRACTING].remedy


def test_more_features_than_states_are_dependent():
    Phi = np.random.default_rng(0).normal(size=(5, 7)) / 10
    found = verdicts(library.random_ergodic(0), features=Phi)
    assert found[FULL_RANK].status == "fails"
    assert found[FULL_RANK].number == 0
    assert "7 features of 5 states have rank 5" in found[FULL_RANK].reason


def test_features_of_zero_have_no_rank():
    found = verdicts(library.random_ergodic(0), features=np.zeros((5, 2)))
    assert found[FULL_RANK].status == "fails"
    assert "rank 0" in found[FULL_RANK].reason


def test_the_smallest_singular_value_is_the_number():
    Phi = np.diag([1.0, 0.5, 0.25, 0.125, 0.0625])
    assert verdicts(library.random_ergodic(0), features=Phi)[FULL_RANK].number == pytest.approx(0.0625)


def test_a_hidden_constant_is_found():
    rng = np.random.default_rng(1)
    Phi = np.column_stack([np.ones(5), rng.normal(size=5)]) @ rng.normal(size=(2, 2)) / 10
    found = verdicts(library.random_ergodic(0), Average(), Phi)
    assert found[NO_CONSTANT].status == "fails"
    other = verdicts(library.random_ergodic(0), Average(), rng.normal(size=(5, 2)) / 10)
    assert other[NO_CONSTANT].status == "holds"
    assert 0 < other[NO_CONSTANT].number <= math.sqrt(5)
    nearly = verdicts(library.random_ergodic(0), Average(), np.linspace(0.99, 1.0, 5)[:, None])
    assert nearly[NO_CONSTANT].status == "holds"
    assert 1e-4 < nearly[NO_CONSTANT].number < 0.02


def test_contraction_is_the_number_of_the_constants():
    model = library.random_ergodic(3)
    c = theory.constants(model, np.zeros((5, 3)), Discounted(0.9))
    assert verdicts(model)[CONTRACTING].number == c.lambda_A > 0
