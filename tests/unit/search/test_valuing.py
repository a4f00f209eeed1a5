"""Policies valued by episodes: within their environment steps, few first, more where policies are close."""

import numpy as np
import pytest

import moac
from moac import envs
from moac.envs.evaluation import Budget, Following
from moac.search import valuing
from moac.search.valuing import Effort, Values, valued_within
from tests.helpers.counting import calls, counted

LENGTH = 20
GRID = np.stack([np.linspace(1, 0, 9), np.linspace(0, 1, 9)], axis=1)


@pytest.fixture(scope="module")
def network():
    """One network for every preference, hardly trained, and its environment."""
    environment = envs.make(counted(LENGTH), num_envs=4)
    config = moac.Config(conditioned=True, hidden=(8,), num_iterations=1, actor_batch_size=32)
    return environment, moac.train(environment, config)


def valued(network, effort, preferences=GRID):
    environment, trained = network
    before = calls()
    values = valued_within(environment, trained.policies(preferences), preferences, effort)
    assert values.steps == calls() - before == LENGTH * values.episodes.sum()
    return values


def test_without_a_limit_every_policy_plays_all_episodes(network):
    values = valued(network, Effort(most=7, first=7))
    assert (values.episodes == 7).all() and values.longest == LENGTH
    assert (values.low < values.mean).all() and (values.mean < values.high).all()


@pytest.mark.parametrize("steps", [9.5 * LENGTH, 500, 1_000, 2_000, 5_000])
def test_all_policies_play_as_much_as_fits_and_no_more(network, steps):
    values = valued(network, Effort(most=100, steps=steps, longest=LENGTH))
    assert values.known.all()
    assert 0.75 * steps < values.steps <= steps


def test_where_too_little_fits_preferences_far_apart_come_first(network):
    values = valued(network, Effort(most=100, steps=4.4 * LENGTH, longest=LENGTH))
    assert np.flatnonzero(values.known).tolist() == [0, 4, 8]  # both corners, then the middle
    assert np.isnan(values.mean[~values.known]).all()


def test_some_policies_are_valued_whatever_it_takes(network):
    assert valued(network, Effort(most=5, steps=0.0)).known.sum() == 0
    values = valued(network, Effort(most=5, steps=0.0, least=2))
    assert np.flatnonzero(values.known).tolist() == [0, 8]
    assert values.steps == 2 * LENGTH


def values_of(low, high, episodes):
    low, high = np.array(low, dtype=np.float64), np.array(high, dtype=np.float64)
    return Values((low + high) / 2, low, high, np.array(episodes), 0, LENGTH)


class Recorded:
    """Stands for a valuation: remembers who plays, until nothing fits."""

    def __init__(self, values, most):
        self.result, self.effort = values, Effort(most)
        self.budget, self.mean_lengths = Budget(1e9), np.ones(len(values.mean))
        self.played, self.fitting = [], 1

    def values(self):
        return self.result

    def play(self, k, count):
        self.played.append((k, count))
        if len(self.played) == 2:
            self.fitting = 0


def test_policies_whose_intervals_overlap_get_as_many_episodes_again():
    # 0 and 1 overlap in both objectives, 2 is better in one and worse in the other, 3 is dominated by 0
    values = values_of([[0, 0], [1, 1], [5, -5], [-9, -9]], [[3, 3], [4, 4], [6, -4], [-8, -8]], [5, 6, 5, 5])
    valuation = Recorded(values, most=10)
    valuing._play_more(valuation)
    assert valuation.played == [(0, 5), (1, 4)]  # twice as many, and ten at most


def test_where_none_is_close_all_that_may_be_archived_get_more():
    values = values_of([[0, 0], [5, -5], [-9, -9]], [[3, 3], [6, -4], [-8, -8]], [5, 5, 5])
    valuation = Recorded(values, most=10)
    valuing._play_more(valuation)
    assert [k for k, _ in valuation.played] == [0, 1]


def test_a_single_episode_leaves_everything_open():
    nan = [np.nan, np.nan]
    low, high = valuing._ends(values_of([nan, [0, 0]], [nan, [1, 1]], [1, 5]))
    assert low[0].tolist() == [-np.inf, -np.inf] and high[0].tolist() == [np.inf, np.inf]
    assert valuing._close(low, high, np.array([True, True])).tolist() == [True, True]


def test_unknown_preferences_keep_their_order():
    assert valuing._spread_out(np.full((3, 2), np.nan)) == [0, 1, 2]
    assert valuing._spread_out(GRID)[:3] == [0, 8, 4]
    assert sorted(valuing._spread_out(GRID)) == list(range(9))


def test_a_budget_asks_the_longest_episode_what_the_next_may_cost():
    assert Budget().fitting(50) > 10**6
    assert Budget(1_000).fitting(50) == 1  # nothing is known yet but the time limit
    assert Budget(49).fitting(50) == 0
    assert Budget(999).fitting(10_000) == 0  # no limit: a thousand steps
    assert Budget(1_000).fitting(10_000) == 1
    assert Budget(1_000, typical=20).fitting(10_000) == 1
    assert Budget(29, typical=20).fitting(10_000) == 0
    assert Budget(1_000, longest=20).fitting(10_000) == 33  # half as much again as the longest
    assert Budget(1_000, longest=40).fitting(50) == 20  # never more than the limit
    assert Budget(-5, longest=20).fitting(50) == 0


def test_a_budget_pays_for_what_was_played(network):
    environment, trained = network
    budget = Budget(100.0)
    with envs.evaluation.reused() as copies:
        played = envs.evaluation.play_within(
            environment, trained.policy.at([0.5, 0.5]), [1, 2, 3, 4, 5, 6, 7, 8], Following((0.9,)), budget, copies
        )
    assert (budget.taken, budget.left, budget.longest) == (played.steps, 100 - played.steps, LENGTH)
    assert len(played.lengths) == 4  # 20 steps each, and a fifth might have had 30
