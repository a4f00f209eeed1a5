"""What an exploration counts, with answers known by hand."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

import moac
from moac import momdp
from moac.search import measures
from moac.search.measures import Yardstick
from tests.helpers.archives import archive

FRONT = np.array([[0.0, 1.0], [0.7, 0.7], [1.0, 0.0]])


YARDSTICK = Yardstick.of(FRONT, hull=FRONT)


def test_the_reference_lies_below_the_front_and_volumes_add_up():
    own = YARDSTICK
    assert own.reference.tolist() == pytest.approx([-0.1, -0.1])
    assert own.volume(FRONT) == pytest.approx(0.1 * 1.1 + 0.7 * 0.8 + 0.3 * 0.1)
    assert own.distance(FRONT) == 0
    assert Yardstick.of(FRONT, [-1, -1]).volume([[0, 0]]) == pytest.approx(1)


def test_what_was_found_over_steps_never_gets_worse():
    returns = np.array([[[0.0, 0.0], [0.7, 0.7], [0.1, 0.1]], [[1.0, 0.0], [0.0, 0.0], [np.nan, 9.0]]])
    curve = measures.over_evaluations(returns, YARDSTICK)
    assert curve["hypervolume"].tolist() == pytest.approx([1.1 * 0.1, *[0.8 * 0.8 + 0.3 * 0.1] * 2])
    assert curve["igd_plus"][1] == pytest.approx(0.3 / 3) and curve["igd_plus"][0] > curve["igd_plus"][1]


def test_ranges_that_differ_are_units_of_their_objectives():
    wide = Yardstick.of(FRONT * [1, 100], hull=FRONT * [1, 100])
    assert wide.reference.tolist() == pytest.approx([-0.1, -10])
    assert wide.shortfalls(FRONT[:1] * [1, 100]).tolist() == pytest.approx([0, 0.7, 1])
    assert wide.distance(FRONT[:1] * [1, 100]) == pytest.approx(YARDSTICK.distance(FRONT[:1]))


def test_nothing_is_found_before_the_first_evaluation():
    below = Yardstick.of(FRONT - 2, [-3, -3])
    curve = measures.over_evaluations((FRONT - 2)[:, None], below)
    assert curve["hypervolume"].tolist() == [pytest.approx(below.volume(FRONT - 2))]
    assert curve["igd_plus"].tolist() == [0]


def test_stages_go_on_where_the_one_before_ended_and_rules_train_side_by_side():
    def stage(*returns, every):
        history = SimpleNamespace(iteration=np.array([1, 2]), returns=np.array([returns]))
        return SimpleNamespace(history=history, run=SimpleNamespace(env_steps_per_iteration=every), env_steps=2 * every)

    first, second = stage(FRONT[0], FRONT[0], every=10), stage(FRONT[1], FRONT[2], every=100)
    curve = measures._over_steps([[first, second]], YARDSTICK)
    assert curve["steps"].tolist() == [10, 20, 120, 220]
    assert curve["hypervolume"].tolist() == pytest.approx([YARDSTICK.volume(FRONT[:n]) for n in (1, 1, 2, 3)])
    both = measures._over_steps([[first, second], [first, first]], YARDSTICK)
    assert both["steps"].tolist() == [20, 40, 150, 260]


def test_only_a_model_of_few_objectives_knows_the_largest_value_for_every_preference():
    few, many = (momdp.library.random_ergodic(jax.random.key(0), num_objectives=M, num_states=2) for M in (2, 5))
    yardstick = Yardstick.exact(few, moac.Discounted(0.5))
    assert yardstick is not None and yardstick.is_exact and yardstick.support is not None
    worse = yardstick.hull[:1] - [[0.1, 0.2]]
    found = archive(np.concatenate([yardstick.hull, worse]))
    numbers = measures.measured({}, found, found, yardstick)["numbers"]
    assert numbers["most_below_hull"] == pytest.approx(float(yardstick.support.regret(worse[0]))) != 0
    yardstick = Yardstick.exact(many, moac.Discounted(0.5))
    assert yardstick is not None and yardstick.is_exact and yardstick.support is None


def test_preferences_are_served_by_the_own_policy_or_by_the_archive():
    p = [[0.9, 0.1], [0.5, 0.5], [0.1, 0.9], [0.1, 0.9]]
    found = archive([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]], p=p)
    served = measures.served(found, found, YARDSTICK)
    assert served["own"] == served["archive"] == 2 / 3  # nobody has (0.7, 0.7); one of two own policies is enough
    assert np.isnan(measures.served(archive(FRONT), archive(FRONT), YARDSTICK)["own"])
    some = archive([*found.points, [0.7, 0.7]], p=[*p, [np.nan, np.nan]])  # one that was trained for none
    assert measures.served(some, found, YARDSTICK) == served
    wide = Yardstick.of(100 * FRONT, hull=100 * FRONT)
    near = archive([[99.5, 0.0], [98.0, 0.0], [0.0, 99.5]], p=[[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    assert measures.served(near, near, wide)["own"] == 2 / 3  # 1 % of a range of 100


def test_expected_utility_and_sparsity_are_their_definitions():
    points = np.array([[1.0, 5.0], [3.0, 2.0], [0.0, 0.0]])  # the last is dominated
    p = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0], [np.nan, np.nan]])
    assert measures.expected_utility(points, p) == pytest.approx((3 + 3 + 5) / 3)
    assert measures.expected_utility(points, p[[0, 0, 0, 1, 2]]) == pytest.approx((3 + 3 + 5) / 3)  # each once
    assert measures.sparsity(points) == pytest.approx((3 - 1) ** 2 + (5 - 2) ** 2)
    third = np.concatenate([points, [[7.0, 1.0]]])
    assert measures.sparsity(third) == pytest.approx(((2**2 + 4**2) + (3**2 + 1**2)) / 2)
    assert measures.sparsity(points[:1]) == 0 and np.isnan(measures.expected_utility(points, p[3:]))


def test_one_network_has_a_curve_of_what_it_was_worth_and_its_archive_is_counted():
    p = [[0.9, 0.1], [0.5, 0.5], [0.1, 0.9]]
    found = archive([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]], p=p)
    stage = SimpleNamespace(run=SimpleNamespace(num_trials=1), env_steps=40, stopped=np.array([0, 3, 5]))
    before = SimpleNamespace(run=SimpleNamespace(num_trials=2), env_steps=40, stopped=np.array([0, 0, 0]))
    growth = {40: FRONT, 20: FRONT[:1]}
    counted = measures.measured({"r": [before, stage]}, found, found.picked([0, 2]), YARDSTICK, growth)
    curve = counted["curves"]["r"]
    assert curve["steps"] == [20, 40] and curve["hypervolume"] == [YARDSTICK.volume(FRONT[:1]), YARDSTICK.volume(FRONT)]
    assert curve["igd_plus"] == [YARDSTICK.distance(FRONT[:1]), 0] and list(counted["curves"]) == ["r"]
    own, numbers = counted["by_rule"]["r"], counted["numbers"]
    assert (own["trials"], own["policies"], own["archived"], own["env_steps"], own["stopped_trials"]) == (
        1,
        3,
        2,
        80,
        2,
    )
    assert (numbers["points"], numbers["env_steps"], numbers["hull_points"], numbers["hull_found"]) == (2, 80, 3, 2)
    assert numbers["hull_missed"].tolist() == [[0.7, 0.7]] and np.isnan(numbers["most_below_hull"])
    assert own["hypervolume"] == YARDSTICK.volume(found.points) > numbers["hypervolume"]
