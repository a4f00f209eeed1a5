"""Exact fronts against brute force over all deterministic policies, closed forms and MO-Gymnasium's own fronts."""

import itertools
import warnings

import mo_gymnasium
import numpy as np
import pytest

from moac.config import Average, Discounted
from moac.momdp import front, library, value_sets
from moac.momdp.front import hypervolume, on_hull, pareto_front
from moac.momdp.model import FiniteMOMDP


def transitions(model):
    """P(s' | s, a) without the ends of episodes, and the expected reward."""
    S, A = model.next_state.shape[:2]
    P = np.zeros((S, A, S))
    s, a, _ = np.indices(model.next_state.shape)
    np.add.at(P, (s, a, model.next_state), model.probability * ~model.terminated)
    return P, np.einsum("sao,saom->sam", model.probability, model.reward)


def values(model, policies, discounts):
    P, r = transitions(model)
    states = np.arange(model.num_states)
    P, r = P[states, policies], r[states, policies]
    solved = [np.linalg.solve(np.eye(len(states)) - g * P, r[..., i, None])[..., 0] for i, g in enumerate(discounts)]
    return np.stack(solved, axis=-1).transpose(0, 2, 1) @ model.start_distribution


def brute_force(model, discounts):
    every = np.array(list(itertools.product(range(model.num_actions), repeat=model.num_states)))
    points = np.unique(values(model, every, discounts).round(9), axis=0)
    at_least = (points[None] >= points[:, None]).all(axis=2)
    return points[at_least.sum(axis=1) == 1]


def random_model(seed):
    rng = np.random.default_rng(seed)
    S, A, M, num_outcomes = rng.integers(1, 6), rng.integers(1, 4), rng.integers(1, 5), rng.integers(1, 4)
    chance = (
        rng.dirichlet(np.ones(num_outcomes), size=(S, A))
        if rng.random() < 0.5
        else np.eye(num_outcomes)[np.zeros((S, A), int)]
    )
    real = rng.random() < 0.6
    reward = (
        rng.normal(size=(S, A, num_outcomes, M))
        if real
        else rng.integers(-1, 2, size=(S, A, num_outcomes, M)).astype(float)
    )
    start = rng.dirichlet(np.ones(S)) if rng.random() < 0.5 else np.eye(S)[rng.integers(S)]
    ends = rng.random((S, A, num_outcomes)) < rng.choice([0.0, 0.3])
    model = FiniteMOMDP.from_outcomes(rng.integers(0, S, size=(S, A, num_outcomes)), chance, reward, ends, start)
    one = float(rng.choice([0.5, 0.9, 0.99]))
    return model, tuple(rng.uniform(0.3, 0.95, size=M)) if rng.random() < 0.5 else (one,) * M


def small_random_model(seed):
    """Few enough policies that the search without enumeration is quick."""
    seeds = itertools.count(1_000 * seed)
    return next(m for m in map(random_model, seeds) if 3 < m[0].num_actions ** m[0].num_states < 40)


def check(model, discounts):
    found = pareto_front(model, Discounted(discounts))
    np.testing.assert_allclose(found.points, brute_force(model, discounts), atol=1e-8)
    np.testing.assert_allclose(found.points, values(model, found.policies, discounts), atol=1e-12, rtol=1e-12)
    assert found.points.dtype == np.float64 and found.hull.any()


@pytest.mark.parametrize("block", range(2))
def test_equals_brute_force(block):
    for seed in range(40 * block, 40 * block + 40):
        check(*random_model(seed))


@pytest.mark.parametrize("seed", range(13, 19))
def test_search_equals_brute_force(seed, monkeypatch):
    monkeypatch.setattr(front, "MAX_SOLVED", 0)
    check(*small_random_model(seed))


@pytest.mark.parametrize("limit", [1, 3])
def test_search_with_crude_bounds_equals_brute_force(limit, monkeypatch):
    monkeypatch.setattr(front, "MAX_SOLVED", 0)
    monkeypatch.setattr(front, "BOUND_SIZE", limit)
    for seed in range(100, 106):
        check(*small_random_model(seed))


def detour():
    """State 0: end with (0, 4), end with (1, 3), or earn (2, 0) and come back by way of state 1."""
    next_state = np.array([[0, 0, 1], [0, 0, 0]])[..., None]
    reward = np.array([[[0, 4], [1, 3], [2, 0]], [[0, 0]] * 3])[:, :, None, :]
    ends = np.array([[True, True, False], [False] * 3])[..., None]
    return FiniteMOMDP.from_outcomes(next_state, np.ones((2, 3, 1)), reward, ends, [1, 0])


@pytest.mark.parametrize("solved", [0, 1_000_000])
def test_finds_a_stationary_point_that_only_memory_dominates(solved, monkeypatch):
    monkeypatch.setattr(front, "MAX_SOLVED", solved)
    found = pareto_front(detour(), Discounted(0.9))
    np.testing.assert_allclose(found.points, [[0, 4], [1, 3], [2 / 0.19, 0]], atol=1e-12)
    np.testing.assert_array_equal(found.policies[:, 0], [0, 1, 2])
    np.testing.assert_array_equal(found.hull, [True, False, True])


def test_memory_counts_rounds():
    found = pareto_front(detour(), Discounted(0.9), memory=True)
    rounds = 0.81 ** np.arange(30)[:, None]
    expected = np.hstack([2 * (1 - rounds) / 0.19, 4 * rounds])
    np.testing.assert_allclose(found.points[:30], expected, atol=2e-10)
    assert found.policies is None and found.memory


@pytest.mark.parametrize("seed", range(2))
def test_one_objective_is_the_optimal_value(seed):
    model = library.random_ergodic(seed, num_states=6, num_actions=3, num_objectives=1)
    optimum = brute_force(model, (0.9,))
    for memory in (False, True):
        found = pareto_front(model, Discounted(0.9), memory=memory)
        np.testing.assert_allclose(found.points, optimum, atol=1e-8)
        assert found.hull.tolist() == [True]


RESOURCE_GATHERING = [
    [-0.14005, 0.38742, 0],
    [-0.09189, 0.25419, 0.25419],
    [-0.05314, 0.22877, 0.22877],
    [-0.05314, 0.34868, 0],
    [-0.04783, 0.20589, 0.20589],
    [-0.02824, 0.1853, 0.1853],
    [0, 0, 0.38742],
    [0, 0.16677, 0.16677],
    [0, 0.31381, 0],
]


def test_resource_gathering():
    model = library.resource_gathering()
    nine = pareto_front(model, Discounted(0.9), memory=True)
    np.testing.assert_allclose(nine.points, RESOURCE_GATHERING, atol=6e-6)
    assert hypervolume(nine.points, (-1, -1, -2)) == pytest.approx(3.2101, abs=5e-5)
    eight = pareto_front(model, Discounted(0.9))
    np.testing.assert_allclose(eight.points, np.delete(RESOURCE_GATHERING, 4, axis=0), atol=6e-6)
    np.testing.assert_allclose(eight.points, values(model, eight.policies, (0.9,) * 3), atol=1e-14)
    np.testing.assert_array_equal(eight.hull, [True, True, True, True, False, True, False, True])
    three = pareto_front(model, Discounted(0.99))
    np.testing.assert_allclose(three.points, [[0, 0, 0.91352], [0, 0.84294, 0.84294], [0, 0.89534, 0]], atol=6e-6)
    assert hypervolume(three.points, (-1, -1, -2)) == pytest.approx(5.4147, abs=5e-5)


@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize("variant, suffix", [("convex", ""), ("concave", "-concave"), ("mirrored", "-mirrored")])
def test_deep_sea_treasure(variant, suffix, memory):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        env = mo_gymnasium.make(f"deep-sea-treasure{suffix}-v0").unwrapped
    known = np.unique(np.array(env.pareto_front(0.99)), axis=0)
    found = pareto_front(library.deep_sea_treasure(variant), Discounted(0.99), memory=memory)
    np.testing.assert_allclose(found.points, known, atol=1e-10)
    assert len(known) == 10


def test_fishwood_has_three_stationary_values_and_no_end_with_memory():
    model = library.fishwood()
    found = pareto_front(model, Discounted(0.9))
    np.testing.assert_allclose(found.points, [[0, 9], [0.09 / 0.19, 0.9 / 0.19], [0.9, 0.9]], atol=1e-12)
    assert found.hull.all()
    with pytest.raises(ValueError, match=r"without bound or past the limit: \d+ points .* is 2000"):
        pareto_front(model, Discounted(0.9), memory=True)


def test_sums_over_outcomes_are_refused_before_they_are_made(monkeypatch):
    monkeypatch.setattr(value_sets, "MAX_SUMS", 50)
    model = library.random_ergodic(0, num_states=4, num_actions=2, num_objectives=2)
    with pytest.raises(ValueError, match="sums over random outcomes, the limit is 50"):
        pareto_front(model, Discounted(0.9), memory=True)


@pytest.mark.parametrize(
    "module, limit, message",
    [
        (front, "MAX_STATES", "at most 2 states for an exact front, got 4"),
        (front, "MAX_LOTTERIES", "at most 2 pairs of a state and an action for an exact front, got 8"),
        (front, "MAX_TABLE", "at most 2 rewards in its table"),
        (front, "MAX_NODES", "within 2 nodes"),
    ],
)
def test_limits(module, limit, message, monkeypatch):
    monkeypatch.setattr(front, "MAX_SOLVED", 0)
    monkeypatch.setattr(module, limit, 2)
    model = library.random_ergodic(0, num_states=4, num_actions=2, num_objectives=2)
    with pytest.raises(ValueError, match=message):
        pareto_front(model, Discounted(0.9))


@pytest.mark.parametrize(("limit", "size"), [("MAX_STATES", 3), ("MAX_LOTTERIES", 6), ("MAX_TABLE", 36)])
def test_a_model_may_be_as_large_as_the_limit(limit, size, monkeypatch):
    """Of 3 states, 2 actions, 3 outcomes and 2 objectives."""
    model = library.random_ergodic(0, num_states=3, num_actions=2, num_objectives=2, num_successors=3)
    assert model.reward.size == 36
    monkeypatch.setattr(front, limit, size)
    assert len(pareto_front(model, Discounted(0.9)).points) > 0
    monkeypatch.setattr(front, limit, size - 1)
    with pytest.raises(ValueError, match=f"at most {size - 1} .* got {size}"):
        pareto_front(model, Discounted(0.9))


def test_one_point_is_its_hull_and_zero_has_no_sign():
    found = pareto_front(FiniteMOMDP.from_dense([[[1.0]]], [[[-0.0, 1.0]]]), Discounted(0.5))
    np.testing.assert_allclose(found.points, [[0.0, 2.0]])
    assert not np.signbit(found.points).any()
    assert found.hull.tolist() == [True]


def test_work_with_memory_is_limited(monkeypatch):
    monkeypatch.setattr(front, "MAX_WORK", 100)
    with pytest.raises(ValueError, match="within 100 points computed"):
        pareto_front(library.resource_gathering(), Discounted(0.9), memory=True)


@pytest.mark.parametrize(
    "setting, options, message",
    [
        (Average(), {}, "`setting` must be Discounted"),
        (Discounted((0.9, 0.9)), {}, "`discount` must be one value or one per objective"),
        (Discounted(0.9), {"tolerance": 0.0}, "`tolerance` must be"),
        (Discounted(0.9), {"max_points": 0}, "`max_points` must be a whole number of at least 1"),
        (Discounted(0.9), {"max_points": 5}, "at most `max_points` = 5 points, got 6"),
        (Discounted(0.9), {"max_points": 5, "memory": True}, "`max_points` is 5"),
    ],
)
def test_refusals(setting, options, message):
    with pytest.raises(ValueError, match=message):
        pareto_front(library.resource_gathering(), setting, **options)


@pytest.mark.parametrize("M", [2, 3, 7])
def test_hull(M):
    corners = np.eye(M)
    inside, outside, between = np.full(M, 0.9 / M), np.full(M, 1.1 / M), np.full(M, 1.0 / M)
    assert on_hull(np.vstack([corners, inside])).tolist() == [True] * M + [False]
    assert on_hull(np.vstack([corners, outside])).tolist() == [True] * (M + 1)
    assert on_hull(np.vstack([corners, between]) * 1e4 - 5).tolist() == [True] * (M + 1)


def test_hull_of_points_that_almost_coincide():
    rng = np.random.default_rng(0)
    for M in (2, 3, 7):
        sphere = np.abs(rng.normal(size=(30, M)))
        sphere /= np.linalg.norm(sphere, axis=1, keepdims=True)
        close = np.vstack([sphere, sphere + 1e-10 * rng.normal(size=sphere.shape)])
        assert on_hull(close).all()
        assert not on_hull(np.vstack([close, 0.9 * sphere.mean(axis=0)]))[-1]


@pytest.mark.parametrize("M", [1, 2, 3, 7])
def test_coarse_sets_dominate(M):
    points = np.random.default_rng(M).normal(size=(500, M))
    for limit in (1, 10, 100):
        rough = value_sets.coarse(points, limit)
        assert len(rough) <= limit
        assert value_sets.excess(points, rough).max() <= 0
