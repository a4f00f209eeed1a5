"""h(λ) = max_π λᵀJ(π) and the regret, against brute force over policies and an independent linear programme."""

import numpy as np
import pytest

from moac.config import Average, Discounted
from moac.momdp import FiniteMOMDP, library, oracle, support
from tests.helpers import closed_form

PROBLEMS = [
    (1, 4, 3, 0.0, Discounted(0.9)),
    (2, 4, 2, 0.1, Average()),
    (2, 3, 3, 0.0, Discounted(0.99)),
    (3, 3, 3, 0.2, Average()),
    (4, 4, 2, 0.05, Discounted(0.9)),
]
"""Objectives, states, actions, chance to end, setting."""
on_problems = pytest.mark.parametrize(("M", "S", "A", "termination", "setting"), PROBLEMS, ids=str)
stationary_settings = pytest.mark.parametrize("setting", [Discounted(0.9), Average()], ids=str)


def small(seed, M, S, A, termination):
    return library.random_ergodic(seed, S, A, M, termination=termination)


def with_rewards(model, reward):
    tables = (model.next_state, model.probability, reward, model.terminated, model.start_distribution)
    return FiniteMOMDP.from_outcomes(*tables)


def random_weights(M, n, seed=0):
    """Inside the simplex and on its faces."""
    lam = np.random.default_rng(seed).dirichlet(np.ones(M), n)
    lam[: n // 4] *= np.random.default_rng(seed + 1).random((n // 4, M)) < 0.6
    lam[lam.sum(axis=1) == 0] = np.eye(M)[0]
    return lam / lam.sum(axis=1, keepdims=True)


def height(found, lam):
    """h(λ) as the best of the support's points."""
    return np.max(lam @ found.points.T, axis=1)


def assert_knows_all(model, setting, points, rtol=1e-11):
    """The support of `model` is that of `points`: h at random λ and at its own corners, best responses, regret."""
    found, unit = support.of(model, setting), np.abs(points).max() or 1.0
    lam = np.concatenate([random_weights(points.shape[1], 60), found.corners])
    h = np.max(lam @ points.T, axis=1)
    np.testing.assert_allclose(height(found, lam), h, atol=rtol * unit)
    np.testing.assert_allclose(found.heights, h[60:], atol=rtol * unit)
    for weights, value, best in zip(lam[:15], h[:15], support.best_responses(model, lam[:15], setting), strict=True):
        np.testing.assert_allclose(weights @ best, value, atol=rtol * unit)
        assert closed_form.mixture_gain((points - best) / unit, 0 * best) > -1e-9  # no better than what exists
    np.testing.assert_allclose(height(found, found.corners), found.heights, atol=1e-9 * unit)


# --- equal discounts and average reward: deterministic stationary policies suffice


@on_problems
def test_support_is_that_of_all_deterministic_policies(M, S, A, termination, setting):
    model = small(0, M, S, A, termination)
    assert_knows_all(model, setting, closed_form.deterministic_values(model, setting))


@on_problems
def test_regret_is_what_the_best_mixture_gains_in_every_objective(M, S, A, termination, setting):
    model, rng = small(5, M, S, A, termination), np.random.default_rng(0)
    points = closed_form.deterministic_values(model, setting)
    policies = oracle.evaluate(model, rng.normal(size=(10, S, A)), setting)
    shifted = policies.returns + rng.normal(size=(10, M)) * 0.1 * np.ptp(points, axis=0)
    J = np.concatenate([policies.returns, shifted, points[:10]])
    reference = np.array([closed_form.mixture_gain(points, row) for row in J])
    scale = max(1.0, np.abs(points).max())
    np.testing.assert_allclose(support.of(model, setting).regret(J), np.maximum(reference, 0), atol=1e-9 * scale)
    np.testing.assert_allclose(policies.regret, reference[:10], atol=1e-9 * scale)
    assert reference[:10].min() > 1e-3  # random policies are not on the hull


several_settings = pytest.mark.parametrize(
    ("setting", "M"), [(Discounted(0.9), 3), (Discounted((0.3, 0.6)), 2), (Average(), 3)], ids=str
)


@several_settings
def test_regret_vanishes_on_the_hull_and_only_there(setting, M):
    found = support.of(small(0, M, 4, 2, 0.1), setting)
    assert len(found.points) >= 3
    assert found.precision <= 1e-9 * np.abs(found.points).max()
    assert np.all(found.regret(found.points) <= found.precision + 1e-12)
    middle = np.random.default_rng(0).dirichlet(np.ones(len(found.points)), 5) @ found.points
    assert np.all(found.regret(middle) > 1e-6)  # the hull is curved: a mixture of all points is inside
    np.testing.assert_allclose(found.regret(found.points - 0.25), 0.25, atol=1e-8)  # λ sums to one
    assert np.all(found.regret(found.points + 0.1) == 0)
    assert found.regret(np.zeros((2, 5, M))).shape == (2, 5)


@pytest.mark.parametrize("unit", [1e-9, 1e9])
@several_settings
def test_the_unit_of_the_rewards_does_not_matter(setting, M, unit):
    model = small(1, M, 4, 2, 0.0)
    found, scaled = (support.of(with_rewards(model, model.reward * x), setting) for x in (1.0, unit))
    lam = random_weights(M, 100)
    np.testing.assert_allclose(height(scaled, lam) / unit, height(found, lam), rtol=2e-9)
    J = found.points.min(axis=0) - np.random.default_rng(0).random((20, M))
    np.testing.assert_allclose(scaled.regret(J * unit) / unit, found.regret(J), rtol=1e-8)


@pytest.mark.parametrize(("M", "limit"), [(3, 8), (4, 12)])
def test_a_support_cut_short_says_how_much_its_regret_is_too_large(monkeypatch, M, limit):
    monkeypatch.setattr(support, "MAX_CORNERS", limit)
    model, setting = library.random_ergodic(11, 5, 3, M), Discounted(0.95)
    points = closed_form.deterministic_values(model, setting)
    found = support.of(model, setting)
    J = oracle.evaluate(model, 4 * np.random.default_rng(0).normal(size=(40, 5, 3)), setting).returns
    excess = found.regret(J) - [max(closed_form.mixture_gain(points, row), 0) for row in J]
    assert 1e-6 < found.precision < 0.1 * np.abs(points).max()
    assert np.all(excess >= -1e-11)
    assert np.all(excess <= found.precision + 1e-11)
    assert limit < len(found.corners) < 4 * limit


@stationary_settings
def test_objectives_of_different_size_and_far_from_zero(setting):
    model = small(2, 3, 4, 2, 0.0)
    for reward in (model.reward * [1, 1e-3, 1e3], model.reward + 1000.0, model.reward - [0, 5, 0]):
        changed = with_rewards(model, reward)
        assert_knows_all(changed, setting, closed_form.deterministic_values(changed, setting))


@stationary_settings
def test_degenerate_hulls(setting):
    """Equal objectives, opposite ones, none of interest, and one policy only."""
    model = small(3, 3, 4, 2, 0.0)
    r = model.reward
    opposite = np.stack([r[..., 0], -r[..., 0]], axis=-1)
    for reward in (r[..., [0, 0, 1]], r[..., [0, 0, 0]], opposite, r * [1, 0, 0], r * 0, r[..., :1] * 0 + 1):
        changed = with_rewards(model, reward)
        assert_knows_all(changed, setting, closed_form.deterministic_values(changed, setting))
    alone = small(3, 3, 4, 1, 0.1)
    assert_knows_all(alone, setting, closed_form.deterministic_values(alone, setting))


def test_fishwood_is_a_line_whose_every_policy_has_no_regret():
    model = library.fishwood()
    exact = oracle.evaluate(model, np.random.default_rng(0).normal(size=(50, 2, 2)), Average())
    np.testing.assert_allclose(exact.regret, 0, atol=1e-12)
    found = support.of(model, Average())
    np.testing.assert_allclose(found.points[np.argsort(found.points[:, 0])][[0, -1]], [[0, 0.9], [0.1, 0]], atol=1e-12)


def test_deep_sea_treasure_finds_the_treasures_on_the_hull():
    """A treasure at depth k steps is worth γ^(k−1) y and costs (1 − γᵏ)/(1 − γ)."""
    gamma, steps = 0.99, np.array([1, 3, 5, 7, 8, 9, 13, 14, 17, 19])
    worth = np.array([0.7, 8.2, 11.5, 14.0, 15.1, 16.1, 19.6, 20.3, 22.4, 23.7])
    treasures = np.column_stack([gamma ** (steps - 1) * worth, -(1 - gamma**steps) / (1 - gamma)])
    assert_knows_all(library.deep_sea_treasure(), Discounted(gamma), treasures)


def absorbing(start):
    """From state 0 actions lead to 1, 2 or 3 for good, which pay (1, 0), (0, 1) and (.4, .4)."""
    P, r = np.zeros((4, 3, 4)), np.zeros((4, 3, 2))
    P[0, [0, 1, 2], [1, 2, 3]] = 1.0
    for s, pay in ((1, (1, 0)), (2, (0, 1)), (3, (0.4, 0.4))):
        P[s, :, s], r[s] = 1.0, pay
    return FiniteMOMDP.from_dense(P, r, start=start)


def test_average_support_chooses_among_recurrent_classes():
    found = support.of(absorbing([1, 0, 0, 0]), Average())
    lam = random_weights(2, 50)
    np.testing.assert_allclose(height(found, lam), lam.max(axis=1), atol=1e-12)
    np.testing.assert_allclose(found.regret([[0.4, 0.4], [0.5, 0.5], [0, 0]]), [0.1, 0, 0.5], atol=1e-12)


def test_average_support_respects_where_the_chain_starts():
    found = support.of(absorbing([0.5, 0.25, 0, 0.25]), Average())
    lam = random_weights(2, 50)
    expected = 0.5 * lam.max(axis=1) + 0.25 * lam[:, 0] + 0.25 * 0.4
    np.testing.assert_allclose(height(found, lam), expected, atol=1e-12)


@stationary_settings
def test_no_policy_of_resource_gathering_beats_its_support(setting):
    model = library.resource_gathering()
    logits = 5 * np.random.default_rng(0).normal(size=(64, 93, 4))
    J = oracle.evaluate(model, logits, setting).returns
    found, lam = support.of(model, setting), random_weights(3, 50)
    assert np.all(height(found, lam)[:, None] >= lam @ J.T)
    regret = found.regret(J)
    h_less_J = np.sum(lam * support.best_responses(model, lam, setting), axis=1)[:, None] - lam @ J.T
    assert np.all(regret <= h_less_J.min(axis=0) + 1e-12)


# --- discounts that differ: the best policy depends on time


def one_state():
    """Each step pays (1, 0) or (0, 1)."""
    return FiniteMOMDP.from_dense([[[1.0], [1.0]]], [[[1.0, 0.0], [0.0, 1.0]]])


def test_switching_in_time_by_hand():
    """.9·.5ᵗ against .1·.9ᵗ: the first is larger for t = 0 … 3."""
    (best,) = support.best_responses(one_state(), np.array([[0.9, 0.1]]), Discounted((0.5, 0.9)))
    np.testing.assert_allclose(best, [1.875, 0.9**4 / 0.1], rtol=1e-13)
    found = support.of(one_state(), Discounted((0.5, 0.9)))
    switches = np.array([[2 * (1 - 0.5**k), 0.9**k / 0.1] for k in range(60)])
    lam = random_weights(2, 100)
    np.testing.assert_allclose(height(found, lam), np.max(lam @ switches.T, axis=1), atol=1e-8)
    stationary = closed_form.deterministic_values(one_state(), Discounted((0.5, 0.9)))
    assert np.max(height(found, lam) - np.max(lam @ stationary.T, axis=1)) > 0.3  # no stationary policy does it


def truncated_values(model, gammas, horizon):
    """J of every deterministic time-dependent policy over its first steps, nothing after: all Aˢ per step."""
    go, _, reward = closed_form.dense(model)
    policies = closed_form.deterministic_policies(model)
    P, r = np.einsum("psa,sat->pst", policies, go), np.einsum("psa,sam->psm", policies, reward)
    V = np.zeros((1, model.num_states, len(gammas)))
    for _ in range(horizon):
        V = (r[:, None] + gammas * np.einsum("pst,vtm->pvsm", P, V)).reshape(-1, *V.shape[1:])
    return np.einsum("s,vsm->vm", model.start_distribution, V)


@pytest.mark.parametrize(("seed", "termination"), [(0, 0.0), (1, 0.2)])
def test_support_is_that_of_all_time_dependent_policies(seed, termination):
    model, gammas, horizon = small(seed, 2, 2, 2, termination), (0.3, 0.1), 8
    points = truncated_values(model, np.array(gammas), horizon)
    rest = 0.3**horizon / 0.7  # rewards are in [0, 1]
    lam = random_weights(2, 40)
    h, brute = height(support.of(model, Discounted(gammas)), lam), np.max(lam @ points.T, axis=1)
    assert np.all(h >= brute)
    assert np.all(h <= brute + rest)
    assert rest < 1e-4


def long_induction(model, lam, gammas):
    """h(λ) by backward induction on dense tables over so many steps that nothing is left."""
    go, _, reward = closed_form.dense(model)
    V = np.zeros((model.num_states, len(gammas)))
    for t in range(int(-40 / np.log(gammas.max())), -1, -1):
        Q = reward + gammas * (go @ V)
        weight = lam * (gammas / gammas.max()) ** t
        V = Q[np.arange(len(Q)), np.argmax(Q @ weight, axis=1)]
    return lam @ (model.start_distribution @ V)


@pytest.mark.parametrize(("gammas", "seed"), [((0.8, 0.9, 0.95), 0), ((0.95, 0.6, 0.95), 1)])
def test_best_in_time_is_a_long_backward_induction_and_beats_other_policies(gammas, seed):
    model, setting = small(seed, 3, 4, 3, 0.05 * seed), Discounted(gammas)
    lam = random_weights(3, 12, seed)
    h = np.sum(lam * support.best_responses(model, lam, setting), axis=1)
    reference = [long_induction(model, weights, np.array(gammas)) for weights in lam]
    np.testing.assert_allclose(h, reference, rtol=1e-12)
    assert np.all(h >= np.max(lam @ closed_form.deterministic_values(model, setting).T, axis=1) - 1e-12)
    assert np.all(h[:, None] >= lam @ sampled_in_time(model, np.array(gammas), 200, seed).T - 1e-12)


def test_the_support_in_time_is_the_best_response_everywhere():
    model, setting = small(0, 2, 4, 3, 0.0), Discounted((0.6, 0.8))
    found, lam = support.of(model, setting), random_weights(2, 150)
    h = np.sum(lam * support.best_responses(model, lam, setting), axis=1)
    assert np.all(height(found, lam) <= h + 1e-12)
    np.testing.assert_allclose(height(found, lam), h, atol=found.precision + 1e-12)
    assert found.precision < 1e-8


def sampled_in_time(model, gammas, n, seed):
    """J of random deterministic policies that change from step to step, each for a random number of steps."""
    rng = np.random.default_rng(seed)
    go, _, reward = closed_form.dense(model)
    S, states = model.num_states, np.arange(model.num_states)
    V = np.zeros((n, S, len(gammas)))
    kept = rng.integers(model.num_actions, size=(n, S))
    for _ in range(int(-37 / np.log(gammas.max()))):
        fresh = rng.integers(model.num_actions, size=(n, S))
        kept = np.where(rng.random((n, 1)) < rng.random((n, 1)), fresh, kept)
        V = reward[states, kept] + gammas * np.einsum("nst,ntm->nsm", go[states, kept], V)
    return np.einsum("s,nsm->nm", model.start_distribution, V)


def test_one_discount_given_for_each_objective_is_one_discount_for_all():
    model = small(0, 2, 4, 3, 0.1)
    one, each = support.of(model, Discounted(0.9)), support.of(model, Discounted((0.9, 0.9)))
    np.testing.assert_array_equal(one.points, each.points)


def test_nearly_equal_discounts_have_nearly_the_same_support():
    model, lam = small(0, 2, 4, 3, 0.1), random_weights(2, 30)
    equal, near = support.of(model, Discounted(0.9)), support.of(model, Discounted((0.9, 0.9 + 1e-9)))
    np.testing.assert_allclose(height(near, lam), height(equal, lam), rtol=1e-7)


def test_too_many_objectives_are_refused():
    model = small(0, 7, 2, 2, 0.0)
    with pytest.raises(ValueError, match="at most 6 objectives, random-ergodic has 7"):
        support.of(model, Discounted(0.9))
    six = small(0, 6, 2, 2, 0.0)
    assert_knows_all(six, Discounted(0.9), closed_form.deterministic_values(six, Discounted(0.9)))
