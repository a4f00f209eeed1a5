"""A population whose truth is known, and logs of it."""

from dataclasses import replace

import numpy as np
import pytest

from moac.kuairand import generate, schema, simulator
from moac.kuairand.simulator import (
    FIRST_MS,
    LAST_MS,
    LEVEL_SHARE,
    LEVELS,
    NUM_KINDS,
    SECOND_MS,
    SIGNS,
    TAB_SHARE,
    blocks,
)  # fmt: skip

MODEL = generate.UserModel.of(3, num_videos=60)


def another_policy(model, seed=0):
    """Away from the logging policy, by kind and tab."""
    noise = np.exp(np.random.default_rng(seed).standard_normal(model.behaviour.shape))
    policy = np.sqrt(model.behaviour) * noise
    return policy / policy.sum(axis=-1, keepdims=True)


def cluster_error(log, values):
    """Standard error of the mean of [N, M] values whose rows are correlated within a user."""
    sums = np.zeros((len(log.users.kind), values.shape[1]))
    np.add.at(sums, log.user, values - values.mean(axis=0))
    return np.sqrt((sums**2).sum(axis=0)) / len(values)


def counted_values(model, policy, videos):
    """The definition of the true values, one probability after another."""
    total, mass = np.zeros(7), 0.0
    for z in range(NUM_KINDS):
        for c, tab_share in enumerate(TAB_SHARE):
            kept = model.row_share[z] * tab_share * model.behaviour[z, c, videos].sum()
            mass += kept
            for a, video in enumerate(videos):
                for e, level_share in enumerate(LEVEL_SHARE):
                    reward = model.reward[z, c, model.video_class[video], e]
                    total += kept * policy[z, c, a] * level_share * reward
    return total / mass


def test_probabilities_are_probabilities():
    np.testing.assert_allclose(MODEL.behaviour.sum(axis=-1), 1, rtol=1e-12)
    np.testing.assert_allclose(MODEL.logging_policy([3, 5, 8]).sum(axis=-1), 1, rtol=1e-12)
    assert MODEL.behaviour.min() > 0
    assert ((MODEL.chance > 0) & (MODEL.chance < 1)).all()
    assert LEVELS @ LEVEL_SHARE == 0
    assert (LEVELS**2) @ LEVEL_SHARE == 1


def test_the_logging_policy_reaches_the_published_rates_exactly():
    values = MODEL.true_values(MODEL.behaviour)
    np.testing.assert_allclose(values[:6] * SIGNS[:6], list(generate.RATES.values()), rtol=1e-9)


def test_a_model_is_a_function_of_its_seed():
    again, other = generate.UserModel.of(3, num_videos=60), generate.UserModel.of(4, num_videos=60)
    np.testing.assert_array_equal(MODEL.behaviour, again.behaviour)
    np.testing.assert_array_equal(MODEL.reward, again.reward)
    assert abs(MODEL.behaviour - other.behaviour).max() > 0.01


@pytest.mark.parametrize("videos", [list(range(60)), [7, 1, 40, 22]])
def test_true_values_are_the_sum_over_all_that_can_happen(videos):
    policy = another_policy(MODEL)[..., videos]
    policy /= policy.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(
        MODEL.true_values(policy, videos), counted_values(MODEL, policy, videos), rtol=1e-10, atol=0
    )
    flat = policy[:, 0]
    by_tab = np.repeat(flat[:, None], len(TAB_SHARE), axis=1)
    np.testing.assert_allclose(MODEL.true_values(flat, videos), MODEL.true_values(by_tab, videos), rtol=1e-12)


def test_rows_under_another_policy_have_its_true_values():
    policy = another_policy(MODEL)
    log = generate.log(60_000, 1, model=MODEL, num_users=6_000, policy=policy)
    error = (log.reward.mean(axis=0) - MODEL.true_values(policy)) / cluster_error(log, log.reward)
    assert abs(error).max() < 4


def test_people_are_one_for_ten_rows_or_as_many_as_asked_for():
    assert len(generate.log(200, 1, model=MODEL).users.kind) == 20
    assert len(generate.log(5, 1, model=MODEL).users.kind) == 1
    assert len(generate.log(200, 1, model=MODEL, num_users=7).users.kind) == 7


def test_weighting_by_the_propensities_gives_another_policys_true_values():
    policy = another_policy(MODEL)
    log = generate.log(60_000, 2, model=MODEL, num_users=6_000)
    ratio = policy[log.kind, log.tab, log.action] / log.propensity
    error = (ratio[:, None] * log.reward).mean(axis=0) - MODEL.true_values(policy)
    assert abs(error / cluster_error(log, ratio[:, None] * log.reward)).max() < 4
    assert abs(ratio.mean() - 1) < 4 * ratio.std() / np.sqrt(len(ratio))


def test_rows_on_some_videos_alone_have_the_values_and_propensities_given_those():
    videos = np.array([4, 9, 30, 31, 55])
    policy = another_policy(MODEL)[..., videos]
    policy /= policy.sum(axis=-1, keepdims=True)
    log = generate.log(300_000, 5, model=MODEL, num_users=20_000)
    kept = np.isin(log.action, videos)
    place = np.searchsorted(videos, log.action[kept])
    logging = MODEL.logging_policy(videos)[log.kind[kept], log.tab[kept], place]
    ratio = policy[log.kind[kept], log.tab[kept], place] / logging
    estimate = (ratio[:, None] * log.reward[kept]).sum(axis=0) / ratio.sum()
    influence = np.zeros((len(kept), 7))
    influence[kept] = ratio[:, None] * (log.reward[kept] - estimate)
    error = cluster_error(log, influence) * len(kept) / kept.sum()
    assert abs((estimate - MODEL.true_values(policy, videos)) / error).max() < 4


def test_intervals_over_users_cover_the_truth_and_intervals_over_rows_do_not():
    truth, covered = MODEL.true_values(MODEL.behaviour)[0], {"rows": 0, "users": 0}
    for seed in range(100):
        log = generate.log(4000, 100 + seed, model=MODEL, num_users=150)
        click = log.reward[:, :1]
        error = {"rows": click.std() / np.sqrt(len(click)), "users": cluster_error(log, click)[0]}
        for name in covered:
            covered[name] += int(abs(click.mean() - truth) < 1.96 * error[name])
    assert 88 <= covered["users"] <= 100
    assert covered["rows"] < 75


def test_the_random_log_is_uniform():
    users = MODEL.draw_users(500, 0)
    (block,) = blocks(MODEL, None, users, 60_000, 0, random=True)
    counts = np.bincount(block.columns["video_id"], minlength=60)
    statistic = ((counts - 1000) ** 2 / 1000).sum()
    assert statistic < 112  # chi-squared with 59 degrees of freedom: 0.9999 quantile 110
    assert block.columns["time_ms"].min() >= SECOND_MS
    assert block.columns["time_ms"].max() < LAST_MS


def test_people_rows_and_times_are_in_order_and_do_not_depend_on_the_rest(monkeypatch):
    monkeypatch.setattr(simulator, "_BLOCK_ROWS", 1 << 14)
    users = MODEL.draw_users(400, 0)
    drawn = list(blocks(MODEL, MODEL.behaviour, users, 40_000, 0))
    assert len(drawn) == 3
    user, time = (np.concatenate([block.columns[name] for block in drawn]) for name in ("user_id", "time_ms"))
    assert len(user) == 40_000
    assert (np.diff(user) >= 0).all()
    assert (np.diff(time)[np.diff(user) == 0] >= 0).all()
    assert time.min() >= FIRST_MS
    counts = np.bincount(user, minlength=400)
    expected = 40_000 * users.share
    assert abs((counts - expected) / np.sqrt(expected)).max() < 5
    alone = list(blocks(MODEL, MODEL.behaviour, users, 40_000, 0))[1]
    np.testing.assert_array_equal(alone.columns["video_id"], drawn[1].columns["video_id"])


def test_all_days_are_equally_busy_and_hours_as_they_are_said_to_be():
    time = simulator._times(FIRST_MS, (np.arange(310_000) + 0.5) / 310_000)
    days, hours = (time - FIRST_MS) // simulator.DAY_MS, (time - FIRST_MS) // 3_600_000 % 24
    np.testing.assert_allclose(np.bincount(days), 10_000, atol=2)
    np.testing.assert_allclose(np.bincount(hours) / 310_000, simulator._BY_HOUR / simulator._BY_HOUR.sum(), atol=1e-3)


def test_a_log_becomes_a_dataset_with_the_same_numbers():
    log = generate.log(2000, 8, model=MODEL)
    dataset = log.dataset()
    assert dataset.signal_names == tuple(signal.name for signal in schema.SIGNALS)
    np.testing.assert_allclose(dataset.reward.mean(axis=0), log.reward.mean(axis=0), rtol=1e-5, atol=1e-9)
    np.testing.assert_array_equal(np.sort(dataset.action_ids[dataset.action]), np.sort(log.action))
    np.testing.assert_allclose(np.sort(dataset.propensity), np.sort(log.propensity), rtol=1e-6)
    assert log.dataset(known=False).propensity is None


@pytest.mark.parametrize("videos", [[-1, 3], [3, 60], []])
def test_videos_that_are_none_are_refused(videos):
    with pytest.raises(ValueError, match="`videos` must be ids from 0 to 59"):
        MODEL.true_values(another_policy(MODEL)[..., :2], videos)


def test_a_policy_that_is_none_is_refused():
    with pytest.raises(ValueError, match=r"`policy` must have shape \(7, 60\) or \(7, 5, 60\), got \(3, 60\)"):
        MODEL.true_values(np.ones((3, 60)))
    with pytest.raises(ValueError, match="sum to 1"):
        MODEL.true_values(np.ones((7, 60)))
    with pytest.raises(ValueError, match=r"`videos` must be ids from 0 to 59"):
        MODEL.true_values(np.ones((7, 1)), [60])


def test_a_click_is_watched_for_a_millisecond_longer_than_a_glance_at_least():
    """The truth to the millisecond, where nothing beyond is drawn."""
    certain = np.ones_like(MODEL.chance)
    short = replace(MODEL, chance=certain, scale_ms=np.full_like(MODEL.scale_ms, 0.05))
    np.testing.assert_allclose(short.reward[..., -1] * schema.WATCH_TIME_UNIT_MS, 7_001, rtol=1e-9)
