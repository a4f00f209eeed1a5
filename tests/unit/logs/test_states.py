"""What a state holds, and what it must not know."""

import json
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from moac.logs import About, LoggedDataset, Rows
from moac.logs.catalogue import Catalogue
from moac.logs.splits import split_users
from tests.helpers.kuairand import build, changed, generated


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return generated(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def dataset(source, tmp_path_factory):
    return built(source, tmp_path_factory.mktemp("built"))


def built(source, folder, **options):
    build(source, folder / "data", actions=30, **options)
    return LoggedDataset.from_parquet(folder / "data")


def by_hand(dataset, row, end):
    """A state's numbers, one by one."""
    tables, user = dataset.tables, int(dataset.user[row])
    parts = [np.asarray(tables.users[user], float) / 127]
    for code, size in zip(dataset.context[row], tables.context_sizes, strict=True):
        parts.append([float(code == k) for k in range(size)])
    for back in range(1, 21):
        place = end - back
        if place < tables.first[user]:
            parts.append(np.zeros(1 + tables.items.shape[1]))
        else:
            parts.append([1.0, *np.asarray(tables.items[tables.history[place]], float) / 127])
    first, known = tables.first[user], min(end, dataset.answered[row])
    answers = np.asarray(tables.responses[max(first, end - 20) : known], float)[::-1] / 127
    parts.append(answers.mean(axis=0) if len(answers) else np.zeros(dataset.num_signals))
    late = np.zeros((end - max(known, max(first, end - 20)), dataset.num_signals))  # shown at the row's own time
    parts.append(np.concatenate([late, answers, np.zeros((5, dataset.num_signals))])[:5].ravel())
    return np.concatenate(parts)


def test_features_are_those_assembled_by_hand(dataset):
    rows = np.array([0, 1, 2, 50, 51, dataset.num_rows - 1])
    x = dataset.features(dataset.observation(rows))
    assert x.shape == (6, dataset.num_features) == (6, len(dataset.feature_names))
    for k, row in enumerate(rows):
        np.testing.assert_allclose(x[k], by_hand(dataset, row, int(dataset.end[row])), atol=1e-6)
    assert np.abs(x).max() <= 1


def test_taste_is_how_responses_go_with_features_and_the_rest_of_a_state_stays(dataset):
    """By a covariance in float64, on the device and in a catalogue, bit for bit."""
    tasteful, rows = dataset.with_taste(), np.array([0, 1, 2, 50, 51, dataset.num_rows - 1])
    x, plain = (np.asarray(each.features(each.observation(rows))) for each in (tasteful, dataset))
    M, e, F = dataset.num_signals, dataset.tables.items.shape[1], dataset.num_features
    assert x.shape == (6, F + M * e) == (6, len(tasteful.feature_names))
    assert tasteful.feature_names[F] == f"Click with {dataset.table_names[1][0]}"
    np.testing.assert_array_equal(x[:, :F], plain)
    tables = dataset.tables
    for k, row in enumerate(rows):
        first, end = tables.first[dataset.user[row]], int(dataset.end[row])
        seen = np.arange(max(first, end - 20), min(end, dataset.answered[row]))
        r, v = tables.responses[seen] / 127, tables.items[tables.history[seen]] / 127
        t = (r - r.mean(axis=0)).T @ v / (len(seen) + 3) if len(seen) else np.zeros((M, e))
        np.testing.assert_allclose(x[k, F:], t.ravel(), atol=1e-6)
    assert np.abs(x[:, F:]).max() > 0.01
    place = dataset.end[rows][:, None] - 1 - np.arange(20)
    there = place >= tables.first[dataset.user[rows]][:, None]
    items = np.where(there, tables.history[np.maximum(place, 0)], -1)
    answers = np.where(
        (place < dataset.answered[rows][:, None])[..., None], tables.responses[np.maximum(place, 0)], np.int8(-128)
    )
    served = Catalogue.of(tasteful).features(dataset.user[rows], dataset.context[rows], items, answers)
    assert served.tobytes() == x.tobytes()


def test_taste_comes_after_responses_and_before_a_behaviour_model(dataset):
    for wrong in (
        replace(dataset, tables=replace(dataset.tables, responses=None)),
        replace(dataset, behaviour=object()),
    ):
        with pytest.raises(ValueError, match="must have past responses in its states, and no behaviour model"):
            wrong.with_taste()


def test_the_last_row_of_a_user_keeps_its_context_and_its_history_grows_by_it(dataset):
    last = np.flatnonzero(dataset.truncated)[:5]
    now, after = dataset.observation(last), dataset.next_observation(last)
    np.testing.assert_array_equal(now.context, after.context)
    np.testing.assert_array_equal(now.end + 1, after.end)
    for row, end in zip(last, np.asarray(after.end), strict=True):
        assert dataset.tables.history[end - 1] == dataset.action_items[dataset.action[row]]


def test_within_a_user_the_next_observation_is_that_of_the_next_row(dataset):
    rows = np.flatnonzero(~dataset.truncated)
    following = jax.tree.map(np.asarray, dataset.observation(rows + 1))
    jax.tree.map(np.testing.assert_array_equal, jax.tree.map(np.asarray, dataset.next_observation(rows)), following)


def test_a_state_does_not_know_the_action_taken_in_it(source, dataset, tmp_path):
    """Another video in one row, with other signals: its state stays, and every earlier one; the next one moves."""
    row = int(np.flatnonzero(~dataset.truncated & (np.arange(dataset.num_rows) > 40))[0])
    other = int(dataset.action_ids[(dataset.action[row] + 1) % 30])
    user, time = int(dataset.user_ids[dataset.user[row]]), int(dataset.time[row])
    shown = int(dataset.action_ids[dataset.action[row]])

    def change(name, rows):
        for line in rows if name.startswith("log_standard") else ():
            if (line["user_id"], line["time_ms"], line["video_id"]) == (str(user), str(time), str(shown)):
                line |= {"video_id": str(other), "is_click": "1", "play_time_ms": "123456"}
        return rows

    moved = built(changed(source, tmp_path / "changed", change), tmp_path)
    same = [int(np.flatnonzero(moved.action_ids == video)[0]) for video in dataset.action_ids]
    assert moved.action[row] == same[(int(dataset.action[row]) + 1) % 30]
    rows = np.arange(row + 1)
    before = dataset.features(dataset.observation(rows))
    np.testing.assert_array_equal(moved.features(moved.observation(rows)), before)
    after = dataset.features(dataset.next_observation(rows))  # the same shape: no second program
    assert np.abs(moved.features(moved.next_observation(rows)) - after)[row].max() > 0


def test_no_user_outside_train_enters_a_fit(source, dataset, tmp_path):
    """Everything that validation and test users are and did is changed; what is fitted stays as it was."""

    outside = set(np.flatnonzero(split_users(np.arange(300), 0, (0.8, 0.1, 0.1)) > 0).tolist())

    def held_out(row):
        return int(row["user_id"]) in outside

    def change(name, rows):
        for row in rows if name.startswith(("log", "user")) else ():
            if held_out(row) and name.startswith("log"):
                row |= {"video_id": "249", "tab": "3", "is_click": "1", "play_time_ms": "899999"}
            elif held_out(row):
                row |= {"user_active_degree": "elsewhere", "onehot_feat3": "99999", "fans_user_num": "987654321"}
        return rows

    (tmp_path / "x").mkdir()
    moved = built(changed(source, tmp_path / "changed", change), tmp_path / "x")
    np.testing.assert_array_equal(moved.action_ids, dataset.action_ids)
    np.testing.assert_array_equal(moved.split, dataset.split)
    train = dataset.split == 0
    np.testing.assert_array_equal(moved.tables.users[train], dataset.tables.users[train])
    assert np.any(moved.tables.users[~train] != dataset.tables.users[~train])
    assert moved.spec.reward_bound == dataset.spec.reward_bound
    assert moved.feature_names == dataset.feature_names
    both = np.intersect1d(moved.item_ids, dataset.item_ids)
    tables = [d.tables.items[np.searchsorted(d.item_ids, both)] for d in (moved, dataset)]
    np.testing.assert_array_equal(*tables)
    mine = moved.features(moved.observation(moved.rows("train")))
    np.testing.assert_array_equal(mine, dataset.features(dataset.observation(dataset.rows("train"))))


def test_the_fit_is_written_down(dataset):
    stored = json.loads((Path(dataset.folder) / "encoding.json").read_text())
    values = {part["name"]: part["values"] for part in stored["users"] if part["values"]}
    assert "full_active" in values["user_active_degree"]
    assert {part["name"] for part in stored["users"] if part["mean"] is not None} == {
        "follow_user_num", "fans_user_num", "friend_user_num", "register_days",
    }  # fmt: skip


def test_assembling_is_one_program_for_any_leading_axes(dataset):
    rows = np.arange(6).reshape(2, 3)
    whole, flat = (dataset.features(dataset.observation(each)) for each in (rows, rows.ravel()))
    np.testing.assert_array_equal(whole.reshape(6, -1), flat)


def test_arrays_of_ones_own_know_nothing_of_the_present_row_s_outcome():
    """Outcomes of two rows are exchanged: states up to the first, and of other users, keep their bytes."""
    rng = np.random.default_rng(0)
    user, reward = np.repeat(np.arange(5), 6), rng.exponential(2.0, (30, 2))
    action, time = rng.integers(4, size=30), np.tile([1, 2, 2, 3, 4, 4], 5)
    exchanged = reward.copy()
    exchanged[[8, 10]] = reward[[10, 8]]
    one, other = (
        LoggedDataset.from_numpy(Rows(user, action, each, time), About(shares=(1.0, 0.0, 0.0)))
        for each in (reward, exchanged)
    )
    x, y = (np.asarray(each.features(each.observation(np.arange(30)))) for each in (one, other))
    kept = np.array([k for k in range(30) if k not in (9, 10, 11)])
    assert x[kept].tobytes() == y[kept].tobytes()
    assert np.any(x[9] != y[9])  # the second of two at one time is known to the next request alone
    np.testing.assert_array_equal(one.answered[6:12], [6, 7, 7, 9, 10, 10])


def test_a_log_of_ones_own_has_the_same_rule():
    rows = Rows(user=[1, 1, 1, 2], action=[5, 6, 7, 5], reward=np.ones((4, 1)), context=[[0], [1], [2], [1]])
    shares = (1.0, 0.0, 0.0)
    dataset = LoggedDataset.from_numpy(rows, About(shares=shares))
    moved = LoggedDataset.from_numpy(
        Rows(rows.user, [5, 7, 7, 5], rows.reward, context=rows.context), About(shares=shares)
    )
    assert dataset.action_ids.tolist() == [5, 6, 7]
    first = dataset.features(dataset.observation([0, 1]))
    again = LoggedDataset.from_numpy(
        Rows(rows.user, [5, 7, 6, 5], rows.reward, context=rows.context), About(shares=shares)
    )
    np.testing.assert_array_equal(again.features(again.observation([0, 1])), first)
    assert np.any(again.features(again.next_observation([1])) != dataset.features(dataset.next_observation([1])))
    assert moved.action_ids.tolist() == [5, 7]
