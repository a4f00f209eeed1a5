"""Rewards and contexts of a bucket's rows."""

import duckdb
import numpy as np

from moac.kuairand.schema import SCHEMA, SIGNALS
from moac.logs import buckets


def test_a_dislike_is_a_loss_and_every_other_signal_a_gain():
    columns = {name: np.eye(7, dtype=np.int32)[k] for k, name in enumerate(signal.column for signal in SIGNALS)}
    columns["play_time_ms"] *= 45_000
    found = buckets.rewards(columns, SIGNALS)
    np.testing.assert_array_equal(found, np.diag([1, 1, 1, 1, 1, -1, 4.5]).astype(np.float32))
    assert [signal.name for signal in SIGNALS[5:]] == ["Dislike", "WatchTime"]
    assert not np.signbit(found[0]).any()  # no −0 where nothing was disliked


def test_hours_and_days_are_those_of_beijing_and_a_strange_tab_is_none():
    midnight = 1_649_347_200_000  # Friday, 8 April 2022, 00:00 in Beijing
    times = (midnight - 1, midnight, midnight + 3_600_000, midnight + 3 * 86_400_000)
    rows = ", ".join(f"({time}, {tab})" for time, tab in zip(times, (-1, 0, 14, 15), strict=True))
    codes = ", ".join(code for code, _ in SCHEMA.context.values())
    found = duckdb.sql(f"SELECT {codes} FROM (VALUES {rows}) AS t(time_ms, tab)").fetchall()
    assert found == [(-1, 23, 3), (0, 0, 4), (14, 1, 4), (-1, 0, 0)]


def test_a_propensity_among_the_actions_is_at_most_1():
    found = buckets.among(np.float32([0.1, 0.4, 0.9]), 0.5)
    np.testing.assert_array_equal(found, np.float32([0.2, 0.8, 1]))
    assert found.dtype == np.float32
