"""Properties of NCIS, whatever the log: shards, names, orders and scales."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from moac.offline import ncis
from tests.helpers import logs

OPTIONS = ncis.Options(cap=2.0, caps=(1.0, 5.0), draws=100)
seeds = st.integers(0, 10_000)
few = settings(max_examples=12)
"""Each example of a log of 60 rows draws its users 100 times, for each policy."""


def logs_and_policies(seed):
    log, policy = logs.small(seed)
    _, other = logs.small(seed + 1)
    return log, {"one": policy, "seeds": [policy, other]}


def part(policies, rows):
    return {
        name: [one[rows] for one in given] if isinstance(given, list) else given[rows]
        for name, given in policies.items()
    }


def summed(log, policies, shard, q):
    """All shards added up, in the order of their numbers."""
    total = None
    for k in np.unique(shard):
        rows = np.flatnonzero(shard == k)
        one = ncis.accumulate(log.rows(rows), part(policies, rows), q[rows], OPTIONS)
        total = one if total is None else total + one
    return total


def same(one, other, **tolerance):
    for name, sums in one.policies.items():
        for mine, theirs in zip(sums, other.policies[name], strict=True):
            for field, array in vars(mine).items():
                if array is not None:
                    np.testing.assert_allclose(array, getattr(theirs, field), err_msg=field, **tolerance)


@few
@given(seeds, st.integers(1, 5))
def test_shards_of_whole_users_merge_to_one_pass_bit_for_bit(seed, shards):
    log, policies = logs_and_policies(seed)
    q = np.random.default_rng(seed).random((60, 4, 2))
    merged = summed(log, policies, log.user % shards, q)
    whole = ncis.accumulate(log, policies, q, OPTIONS)
    same(merged, whole, rtol=0, atol=0)
    reports = [ncis.analyse(shard, baseline="one", options=OPTIONS).as_dict() for shard in (merged, whole)]
    assert reports[0] == reports[1]


@few
@given(seeds, st.integers(1, 5))
def test_any_shards_merge_to_one_pass_up_to_rounding(seed, shards):
    log, policies = logs_and_policies(seed)
    rng = np.random.default_rng(seed)
    q = rng.random((60, 4, 2))
    merged = summed(log, policies, rng.integers(shards, size=60), q)
    same(merged, ncis.accumulate(log, policies, q, OPTIONS), rtol=1e-12, atol=1e-12)


@few
@given(seeds)
def test_adding_shards_does_not_depend_on_the_order(seed):
    log, policies = logs_and_policies(seed)
    a, b, c = (
        ncis.accumulate(log.rows(rows), part(policies, rows), options=OPTIONS)
        for rows in np.array_split(np.random.default_rng(seed).permutation(60), 3)
    )
    same((a + b) + c, a + (c + b), rtol=1e-12, atol=1e-12)


@few
@given(seeds, st.permutations(range(4)))
def test_relabelling_actions_changes_nothing(seed, order):
    log, policies = logs_and_policies(seed)
    renamed = ncis.Logged.of(log.user, log.reward, log.propensity, np.argsort(order)[log.action])
    again = {
        name: [one[:, order] for one in given] if isinstance(given, list) else given[:, order]
        for name, given in policies.items()
    }
    reports = [ncis.evaluate(rows, p, options=OPTIONS).as_dict() for rows, p in ((log, policies), (renamed, again))]
    assert reports[0] == reports[1]


@few
@given(seeds)
def test_order_of_rows_and_names_of_users_do_not_matter(seed):
    """Names that keep the order of users, so that the draws are of the same people."""
    log, policies = logs_and_policies(seed)
    order = np.random.default_rng(seed).permutation(60)
    named = np.array([f"user {who}" for who in log.user])
    shuffled = ncis.Logged.of(named, log.reward, log.propensity, log.action).rows(order)
    one = ncis.evaluate(log, policies, options=OPTIONS).policies["seeds"]
    other = ncis.evaluate(shuffled, part(policies, order), options=OPTIONS).policies["seeds"]
    np.testing.assert_allclose(one.ncis.value, other.ncis.value, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(one.ncis.interval, other.ncis.interval, rtol=1e-9, atol=1e-12)


@few
@given(seeds, st.floats(0.1, 100), st.floats(-5, 5))
def test_scaled_and_shifted_rewards_give_scaled_and_shifted_values(seed, scale, shift):
    log, policies = logs_and_policies(seed)
    moved = ncis.Logged.of(log.user, scale * log.reward + shift, log.propensity, log.action)
    one, other = (ncis.evaluate(rows, policies, options=OPTIONS).policies["one"] for rows in (log, moved))
    np.testing.assert_allclose(other.ncis.value, scale * one.ncis.value + shift, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(other.ncis.interval, scale * one.ncis.interval + shift, rtol=1e-9, atol=1e-9)


@few
@given(seeds, st.floats(0.05, 1))
def test_without_a_cap_a_constant_in_the_propensities_cancels(seed, factor):
    log, policies = logs_and_policies(seed)
    scaled = ncis.Logged.of(log.user, log.reward, factor * log.propensity, log.action)
    free = ncis.Options(cap=math.inf, caps=(), draws=100)
    one, other = (ncis.evaluate(rows, policies, options=free).policies["one"] for rows in (log, scaled))
    np.testing.assert_allclose(one.ncis.value, other.ncis.value, rtol=1e-9)
    np.testing.assert_allclose(one.ncis.interval, other.ncis.interval, rtol=1e-9)
    np.testing.assert_allclose(other.diagnostics[0].mean_weight * factor, one.diagnostics[0].mean_weight, rtol=1e-9)


@few
@given(seeds)
def test_values_lie_between_the_smallest_and_largest_reward(seed):
    log, policies = logs_and_policies(seed)
    found = ncis.evaluate(log, policies, options=OPTIONS)
    for own in found.policies.values():
        for values in (own.ncis.value, *own.ncis.interval.T, own.snips.value):
            assert (values >= log.reward.min(axis=0) - 1e-9).all()
            assert (values <= log.reward.max(axis=0) + 1e-9).all()
        for one in own.diagnostics:
            assert 1 - 1e-9 <= one.row_effective_size <= one.rows + 1e-9
            assert 1 - 1e-9 <= one.user_effective_size <= one.users + 1e-9
            assert 0 < one.retained_mass <= 1 + 1e-12


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_keeps_the_order_and_lies_between_p_and_bonferroni(p):
    p = np.array(p)
    adjusted = ncis.holm(p)
    assert (adjusted >= p).all()
    assert (adjusted <= np.minimum(1, len(p) * p)).all()
    assert (np.diff(adjusted[np.argsort(p, kind="stable")]) >= 0).all()
