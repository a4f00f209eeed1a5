"""Properties of splits, histories and samples, whatever the log."""

import hypothesis.extra.numpy as hnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from moac.kuairand.schema import LOG, SCHEMA
from moac.logs import About, LoggedDataset, Rows, splits
from moac.logs.buckets import Views, _places, _within_reach, indexed

logs = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9), st.booleans()), min_size=1, max_size=80)


def columns(log):
    """A bucket's columns, ordered by user; time is the order given."""
    ordered = sorted(log, key=lambda row: row[0])
    user, video, random = (np.array(column) for column in zip(*ordered, strict=True))
    n = len(ordered)
    found = {name: np.zeros(n, np.int64) for name in LOG}
    found |= {"user_id": user.astype(np.int32), "video_id": video.astype(np.int32), "random": random.astype(bool)}
    found["time_ms"] = np.arange(n) * 3_600_000
    found |= {name: np.zeros(n, np.int64) for name in ("context0", "context1", "context2", "completion")}
    return found


@given(logs, st.integers(1, 6), st.sets(st.integers(0, 9), min_size=1, max_size=5))
def test_what_is_left_out_of_a_history_is_in_no_state(log, window, actions):
    """The states of the pieces are those of the whole history, for any window and any choice of actions."""
    actions = np.array(sorted(actions, key=lambda a: (a * 7) % 10), dtype=np.int32)
    table = columns(log)
    found = indexed(Views.of(table, SCHEMA), window, actions)
    rows = np.flatnonzero(np.isin(table["video_id"], actions))
    assert found["action"].tolist() == [actions.tolist().index(video) for video in table["video_id"][rows]]
    for k, row in enumerate(rows):
        user = found["user"][k]
        first, end = found["first"][user], found["end"][k]
        begin = np.flatnonzero(table["user_id"] == table["user_id"][row])[0]
        for after in (0, 1):  # before the row, and with it
            mine = found["history"][max(first, end + after - window) : end + after]
            whole = table["video_id"][max(begin, row + after - window) : row + after]
            assert mine.tolist() == whole.tolist()


@given(logs, st.integers(1, 6))
def test_reach_is_what_its_definition_says(log, window):
    table = columns(log)
    row = table["video_id"] < 3
    user = table["user_id"]
    reach = _within_reach(user, row, window)
    for k in range(len(row)):
        near = [j for j in range(k, min(k + window + 1, len(row))) if row[j] and user[j] == user[k]]
        assert reach[k] == bool(near)


@given(
    hnp.arrays(np.int32, 30, elements=st.integers(0, 20)),
    st.sets(st.integers(0, 20), min_size=1),
    st.sampled_from([(1, 0), (1, 2**31 - 21), (10**8, 0), (10**8, -(2**31))]),
)
def test_actions_are_found_whatever_their_order_and_however_far_apart(video, actions, how):
    factor, first = how
    chosen = np.array(sorted(actions, key=lambda a: (a * 13) % 21), dtype=np.int32)
    expected = [chosen.tolist().index(v) if v in actions else -1 for v in video.tolist()]
    spread = [(ids.astype(np.int64) * factor + first).astype(np.int32) for ids in (video, chosen)]
    found = _places(*spread)
    assert found.tolist() == expected and found.dtype == np.int32


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=50))
def test_a_user_falls_into_one_split_whoever_else_is_there(seed, ids):
    together = splits.split_users(np.array(ids), seed, splits.SHARES)
    alone = [int(splits.split_users(np.array([one]), seed, splits.SHARES)[0]) for one in ids]
    assert together.tolist() == alone


@given(st.integers(0, 2**32 - 1), st.floats(0.05, 0.9))
def test_splits_have_their_shares(seed, train):
    shares = (train, (1 - train) / 2, 1 - train - (1 - train) / 2)
    counts = np.bincount(splits.split_users(np.arange(20_000), seed, shares), minlength=3) / 20_000
    assert np.abs(counts - shares).max() < 5 * 0.5 / np.sqrt(20_000)


@given(logs, st.permutations(range(80)))
def test_the_order_in_which_rows_are_given_does_not_matter(log, order):
    n = len(log)
    user, action, _ = (np.array(column) for column in zip(*log, strict=True))
    reward = np.arange(2.0 * n).reshape(n, 2)
    rows = Rows(user, action, reward, time=np.arange(n))
    shuffled = np.array([k for k in order if k < n])
    about = About(shares=(1.0, 0.0, 0.0), signs=(1, -1))
    again = Rows(user[shuffled], action[shuffled], reward[shuffled], time=np.arange(n)[shuffled])
    one, other = LoggedDataset.from_numpy(rows, about), LoggedDataset.from_numpy(again, about)
    assert one.fingerprint == other.fingerprint
    assert one.truncated.sum() == one.num_users
    assert (one.reward[:, 1] <= 0).all()
