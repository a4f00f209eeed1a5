"""The published protocol: its states by hand, its estimate by hand, and a run from end to end."""

import json

import numpy as np
import pytest

from moac.logs import About, LoggedDataset, Rows
from moac_studies import tscac_compat


@pytest.fixture(scope="module")
def log():
    rng = np.random.default_rng(0)
    user, action = np.repeat(np.arange(8), 25), rng.choice(3, size=200, p=[0.2, 0.5, 0.3])
    reward = np.column_stack([rng.random(200) < 0.5, rng.random(200) < 0.2, rng.uniform(0, 3, 200)])
    about = About("tiny", ("Click", "Dislike", "WatchTime"), (1, -1, 1), actions=1.0 + np.arange(3)[:, None])
    return LoggedDataset.from_numpy(Rows(user, action, reward), about)


def test_states_hold_a_ring_with_the_row_itself(log):
    train, test, lacking = tscac_compat.buffers(log)
    assert len(train.rows) == int(200 * 450_000 / 480_385)
    assert len(train.rows) + len(test.rows) == 200
    assert set(tscac_compat.VIDEO_COLUMNS) <= set(lacking)
    raw = np.asarray(test.states(test.rows)) * np.asarray(test.spread) + np.asarray(test.mean)
    assert raw.shape[1] == 24 + 3 * 6 + 20 * 6
    count = np.bincount(log.action)
    np.testing.assert_allclose(raw[:, 24:42:6], np.tile(1.0 + np.argsort(-count), (len(test.rows), 1)), atol=1e-4)
    for row, x in zip(np.asarray(test.rows), raw, strict=True):
        ring, place = np.zeros(20), row % 25
        for p in range(place + 1):
            ring[p % 20] = 1.0 + log.action[row - place + p]
        np.testing.assert_allclose(x[42::6], ring, atol=1e-4)
    scaled = np.asarray(test.states(test.rows))
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-3)


def test_the_estimate_by_hand(log):
    _, test, _ = tscac_compat.buffers(log)
    rows = np.asarray(test.rows)
    rank, reward = np.asarray(test.rank)[rows], np.trunc(log.reward[rows] * np.array([1, -1, 1]))
    mode, own = np.full(len(rows), 2.0), np.linspace(0, 3, len(rows))
    ratio = np.exp(-((rank - own) ** 2) / 1250) / np.exp(-((rank - mode) ** 2) / 1250)
    by_hand = (ratio[:, None] * reward).sum(axis=0) / ratio.sum()
    np.testing.assert_allclose(tscac_compat.estimate(test, mode, own), by_hand, rtol=1e-6)


@pytest.mark.slow
def test_it_runs_and_names_every_fault(log):
    table = tscac_compat.run(log, steps=3)
    assert tuple(table.values) == tscac_compat.METHODS
    test = log.reward[int(200 * 450_000 / 480_385) :] * np.array([1, -1, 1])
    np.testing.assert_allclose(table.values["Behavior-Clone"], np.trunc(test).mean(axis=0), rtol=1e-6)
    assert all(np.isfinite(own).all() for own in table.values.values())
    assert max(table.steps.values()) <= 3
    text, plain = str(table), json.loads(json.dumps(table.as_dict()))
    assert all(fault in text and fault in plain["faults"] for fault in tscac_compat.FAULTS)
    assert "3 actions, where 150 were published" in text
    assert plain["measured"]["test rows"] == len(test)


def test_mistakes_are_named(log):
    with pytest.raises(ValueError, match="`steps` must be at least 1"):
        tscac_compat.run(log, steps=0)
