"""The Markov chain of a policy: stationary law, bias, classes, discounted visitation."""

import numpy as np
import pytest
from scipy.special import softmax

from moac import Average, Config, Discounted
from moac.momdp import FiniteMOMDP, chain, library, oracle
from moac.training import result
from tests.helpers import closed_form


def chain_model(P, reward=None):
    """A model with one action, whose chain is P."""
    S = len(P)
    return FiniteMOMDP.from_dense(np.asarray(P)[:, None], np.zeros((S, 1, 1)) if reward is None else reward)


def law_of(P):
    return chain.stationary_distribution(chain_model(P), np.ones((1, len(P), 1)))[0]


def random_policies(model, n, seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(model.num_actions), (n, model.num_states))


def restarting(model, pi):
    go, end, _ = closed_form.dense(model)
    return np.einsum("sa,sat->st", pi, go) + np.einsum("sa,sa->s", pi, end)[:, None] * model.start_distribution


@pytest.mark.parametrize("S", [1, 2, 3, 7, 11, 12, 13, 23, 24, 25, 36, 37, 40])
@pytest.mark.parametrize("termination", [0.0, 0.2])
def test_law_is_the_eigenvector_of_the_restarting_chain(S, termination):
    model = library.random_ergodic(S, S, 3, termination=termination, num_successors=min(S, 4))
    pi = random_policies(model, 5)
    law = chain.stationary_distribution(model, pi)
    assert law.shape == (5, S)
    for d, policy in zip(law, pi, strict=True):
        value, vector = np.linalg.eig(restarting(model, policy).T)
        reference = np.real(vector[:, np.argmin(np.abs(value - 1))])
        np.testing.assert_allclose(d, reference / reference.sum(), rtol=1e-10)


@pytest.mark.parametrize("coupling", [1e-9, 1e-12, 1e-14, 1e-30])
@pytest.mark.parametrize("S", [4, 13, 26])
def test_law_of_nearly_separate_blocks_keeps_full_relative_accuracy(coupling, S):
    rng = np.random.default_rng(S)
    P = rng.dirichlet(np.ones(S), S)
    block = np.arange(S) % 3  # interleaved, so that elimination meets them in turn
    strangers = block[:, None] != block
    P = np.where(strangers, coupling * rng.random((S, S)), P)
    P /= P.sum(axis=1, keepdims=True)
    exact = np.array([float(x) for x in closed_form.rational_law(P)])
    np.testing.assert_allclose(law_of(P), exact, rtol=1e-12)
    assert exact.min() > 1e-4  # the blocks all count, whatever the coupling


@pytest.mark.parametrize("rare_end", [0, 19])
def test_law_spans_the_range_of_floats_without_loss(rare_end):
    up, down, S = 5e-21, 0.5, 20  # a birth and death process: d_k ∝ (up/down)ᵏ
    P = np.diag(np.full(S - 1, up), 1) + np.diag(np.full(S - 1, down), -1)
    P += np.diag(1 - P.sum(axis=1))
    order = np.arange(S) if rare_end else np.arange(S)[::-1]
    law = law_of(P[np.ix_(order, order)])[order]
    np.testing.assert_allclose(law, [1e-20**k for k in range(S)], rtol=1e-12, atol=1e-305)


def test_transient_states_have_no_mass():
    P = [[0.2, 0.3, 0.5, 0], [0, 0, 1, 0], [0, 0.5, 0.5, 0], [0.1, 0.2, 0.3, 0.4]]
    np.testing.assert_allclose(law_of(P), [0, 1 / 3, 2 / 3, 0], rtol=1e-15)


def test_a_transient_state_that_leaves_through_other_transient_states_is_no_trouble():
    P = [[0, 1, 0, 0], [0, 0, 0, 1], [0.5, 0, 0.5, 0], [0, 0, 0, 1]]
    np.testing.assert_array_equal(law_of(P), [0, 0, 0, 1])


@pytest.mark.parametrize("S", [2, 5, 12, 30])
def test_a_cycle_is_uniform_although_periodic(S):
    np.testing.assert_allclose(law_of(np.roll(np.eye(S), 1, axis=1)), 1 / S, rtol=1e-14)


def test_policies_with_different_classes_may_share_a_batch():
    stay, swap = np.eye(2), np.eye(2)[::-1]
    model = FiniteMOMDP.from_dense(np.stack([swap, [[0, 1], [0, 1]]], axis=1), np.zeros((2, 2, 1)))
    pi = np.array([stay[[0, 0]], stay[[1, 1]], [[0.5, 0.5]] * 2, stay[[0, 1]]])
    expected = [[0.5, 0.5], [0, 1], [1 / 3, 2 / 3], [0, 1]]
    np.testing.assert_allclose(chain.stationary_distribution(model, pi), expected, rtol=1e-15)


def test_several_recurrent_classes_are_named():
    P = np.eye(4)
    P[3] = [0.5, 0.5, 0, 0]
    with pytest.raises(ValueError, match=r"one recurrent class.*got 3: states \{0\}; \{1\}; \{2\}\."):
        law_of(P)
    with pytest.raises(ValueError, match=r"got 9: states .*\{5\}; and 3 more\."):
        law_of(np.eye(9))
    with pytest.raises(ValueError, match=r"\{0, 1, 2, 3, 4, 5, 6, 7, …\}; \{9\}\."):
        law_of(np.kron(np.diag([1.0, 0]), np.roll(np.eye(9), 1, axis=1))[:10, :10] + np.diag([0.0] * 9 + [1]))


def ladder(S, tiny):
    """One step up with a tiny chance, from the top to state 0; else back to state 1."""
    P = np.diag(np.full(S - 1, tiny), 1)
    P[-1, 0] = tiny
    P[1:, 1] += 1 - tiny
    P[0, 1] = 1
    return P


@pytest.mark.parametrize("order", [[1, 2, 3, 4, 0], [3, 1, 2, 4, 0], [4, 3, 2, 1, 0]])
def test_states_too_rare_for_a_float_get_no_mass(order):
    law = law_of(ladder(5, 1e-100)[np.ix_(order, order)])
    np.testing.assert_allclose(law[np.argsort(order)], [0, 1, 1e-100, 1e-200, 1e-300], rtol=1e-12)


def test_a_chance_that_underflows_is_refused_not_turned_into_nan():
    with pytest.raises(ValueError, match=r"must connect its states .* underflows"):
        law_of(ladder(5, 1e-100))


def sparse(key):
    """A random model where each state has one successor, so that many have several classes; some steps may end."""
    rng, S = np.random.default_rng(key), 8
    ends = rng.random((S, 1, 1)) < rng.choice([0, 0.1, 0.5])
    start = np.bincount(rng.integers(0, S, 2), minlength=S) / 2
    table = rng.integers(0, S, (S, 1, 1)), np.ones((S, 1, 1)), np.zeros((S, 1, 1, 1)), ends
    return FiniteMOMDP.from_outcomes(*table, start=start)


def test_classes_of_a_model_are_those_of_its_uniform_policy():
    told = []
    for key in range(200):
        model = sparse(key)
        restart = chain.induced(model, np.ones((1, 8, 1))).restart[0]
        classes = chain.recurrent_classes(restart)
        told.append(chain.several_classes(model))
        assert bool(told[-1]) == (len(classes) > 1)
        if told[-1]:
            names = "; ".join("{" + ", ".join(map(str, members)) + "}" for members in classes)
            assert told[-1].endswith(f"got {len(classes)}: states {names}.")
    assert 20 < sum(map(bool, told)) < 180


ABSORBING = [
    pytest.param(FiniteMOMDP.from_dense(np.repeat(np.eye(3)[:, None], 2, axis=1), np.ones((3, 2, 1))), id="3 states"),
    pytest.param(FiniteMOMDP.from_outcomes(
        np.minimum(np.arange(10_000), 9998)[:, None, None] * np.ones((1, 2, 1), int),
        np.ones((10_000, 2, 1)), np.ones((10_000, 2, 1, 1)), np.zeros((10_000, 2, 1), bool),
    ), id="more than the oracle takes"),
]  # fmt: skip


@pytest.mark.parametrize("model", ABSORBING)
def test_a_model_without_an_average_reward_is_refused_before_it_is_trained(model):
    with pytest.raises(
        ValueError, match=r"^`setting` must be discounted, .*one recurrent class, got \d+: states \{0\}"
    ):
        result.prepare(model, Config(setting=Average()), 1, 0)
    assert result.prepare(model, Config(setting=Discounted(0.9)), 1, 0).num_trials == 1


def test_recurrent_classes_of_a_chain_with_two():
    P = np.array([[0.5, 0.5, 0, 0, 0], [1, 0, 0, 0, 0], [0.1, 0, 0, 0.9, 0], [0, 0, 0, 0, 1], [0, 0, 0, 1, 0.0]])
    assert [c.tolist() for c in chain.recurrent_classes(P)] == [[0, 1], [3, 4]]


@pytest.mark.parametrize("termination", [0.0, 0.3])
@pytest.mark.parametrize("gamma", [0.05, 0.9, 0.99])
def test_discounted_visitation_is_the_sum_of_its_series(gamma, termination):
    model = library.random_ergodic(3, 6, 2, termination=termination)
    pi = random_policies(model, 3)
    go, _, _ = closed_form.dense(model)
    P = np.einsum("nsa,sat->nst", pi, go)
    term, total = np.tile(model.start_distribution, (3, 1)), np.zeros((3, 6))
    for _ in range(int(np.log(1e-16) / np.log(gamma)) + 1):
        total += term
        term = gamma * np.einsum("ns,nst->nt", term, P)
    found = chain.visitation(chain.induced(model, pi).proceed, model.start_distribution, gamma)
    np.testing.assert_allclose(found, total, rtol=1e-11)
    mass = 1 / (1 - gamma * (1 - termination))
    np.testing.assert_allclose(total.sum(axis=1), mass, rtol=1e-12)


@pytest.mark.parametrize("termination", [0.0, 0.2])
@pytest.mark.parametrize("S", [1, 2, 13, 30])
def test_bias_solves_the_poisson_equation_and_has_mean_zero(S, termination):
    model = library.random_ergodic(S, S, 3, 2, termination=termination)
    pi = random_policies(model, 4)
    J, h, d = chain.average_reward(model, pi)
    _, _, reward = closed_form.dense(model)
    for n in range(4):
        r = np.einsum("sa,sam->sm", pi[n], reward)
        np.testing.assert_allclose(J[n], d[n] @ r, rtol=1e-14)
        np.testing.assert_allclose(h[n] - restarting(model, pi[n]) @ h[n], r - J[n], atol=1e-13)
        np.testing.assert_allclose(d[n] @ h[n], 0, atol=1e-14)
        ahead = chain.bias_differences(model, pi[n])
        np.testing.assert_allclose(ahead, h[n][:, None] - h[n][None], atol=1e-13)


def test_bias_of_transient_states_counts_what_they_earn_on_the_way():
    P = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 1.0]])
    model = chain_model(P, np.array([[[5.0]], [[7.0]], [[1.0]]]))
    J, h, d = chain.average_reward(model, np.ones((1, 3, 1)))
    assert J.item() == 1
    np.testing.assert_array_equal(d, [[0, 0, 1]])
    np.testing.assert_allclose(h[0, :, 0], [4 + 6, 6, 0], rtol=1e-15)
    np.testing.assert_allclose(chain.bias_differences(model, np.ones((3, 1)))[0, :, 0], [0, 4, 10], rtol=1e-15)


def test_any_finite_logits_are_a_policy():
    model = FiniteMOMDP.from_dense(np.full((2, 2, 2), 0.5), np.ones((2, 2, 1)))
    found = oracle.evaluate(model, [[1e308, 0], [-1e308, -1e308]], Discounted(0.9))
    np.testing.assert_array_equal(found.policy, [[1, 0], [0.5, 0.5]])
    np.testing.assert_allclose(found.returns, 10, rtol=1e-14)
    with pytest.raises(ValueError, match=r"^`setting` must be Average\(\) or Discounted\(discount\), got 0.9"):
        oracle.evaluate(model, np.zeros((2, 2)), 0.9)


@pytest.mark.parametrize("scale", [1.0, 5.0, 30.0])
def test_the_law_by_visits_per_episode_is_the_stationary_law(scale):
    model = library.resource_gathering()
    logits = scale * np.random.default_rng(3).standard_normal((20, model.num_states, model.num_actions))
    pi = softmax(logits, axis=-1)
    np.testing.assert_allclose(chain.episodic_law(model, pi), chain.stationary_distribution(model, pi), atol=1e-12)


def test_without_ends_the_law_by_visits_is_eliminated():
    model = library.random_ergodic(4, num_states=6)
    pi = np.full((2, 6, 3), 1 / 3)
    np.testing.assert_array_equal(chain.episodic_law(model, pi), chain.stationary_distribution(model, pi))
