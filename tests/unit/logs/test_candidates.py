"""Lists of candidates: from a log's column or from arrays, as arrays of a dataset, and what is said of wrong ones."""

import json

import duckdb
import numpy as np
import pytest

from moac import logs
from moac.cli.main import main
from moac.logs import About, LoggedDataset, Rows, candidates
from tests.helpers import listed

LOG = """user_id,item_id,time,click,shelf
ann,mug,1,1,mug|tea
ann,tea,2,0,tea|pen|mug
bob,tea,1,1,mug|tea
bob,pen,3,0,pen|cup
cem,pen,1,1,pen|tea|tea
cem,mug,4,1,mug
"""
ITEMS = "item_id,price\nmug,3\ntea,1\npen,2\ncup,9\nhat,7\n"
OPTIONS = {"signals": "click", "candidates": "shelf", "shares": (0.5, 0.5, 0.0), "split_seed": 1}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "log.csv").write_text(LOG)
    (tmp_path / "items.csv").write_text(ITEMS)
    return tmp_path


def names(dataset, row):
    """The candidates of a row, by their ids."""
    places = dataset.lists.padded(dataset.candidates[row])
    return sorted(dataset.action_ids[places[places >= 0]].tolist())


def test_every_row_has_its_list_and_items_that_nobody_saw_are_actions(folder):
    dataset = logs.build(folder / "log.csv", items=folder / "items.csv", out=folder / "data", **OPTIONS)
    read = {(line.split(",")[0], int(line.split(",")[2])): line.split(",")[4] for line in LOG.splitlines()[1:]}
    rows = zip(dataset.user_ids[dataset.user], dataset.time, range(6), strict=True)
    for user, time, row in rows:
        assert names(dataset, row) == sorted(set(read[user, time].split("|")))
    assert sorted(dataset.action_ids) == ["cup", "hat", "mug", "pen", "tea"]
    assert set(dataset.action_ids[dataset.known_actions]) == set(
        dataset.action_ids[dataset.action[dataset.rows("train")]]
    )
    assert len(dataset.lists.first) - 1 == 5  # `mug|tea` is there once
    again = LoggedDataset.load(dataset.save(folder / "again"))
    np.testing.assert_array_equal(again.candidates, dataset.candidates)
    np.testing.assert_array_equal(again.lists.actions, dataset.lists.actions)
    seen = dataset.data.lists.padded(dataset.data.candidates)
    np.testing.assert_array_equal(seen, dataset.lists.padded(dataset.candidates))


def test_a_list_column_of_parquet_is_the_same_as_text(folder):
    path, out = folder / "log.parquet", folder / "from-lists"
    lists = "SELECT * REPLACE (string_split(shelf, '|') AS shelf) FROM read_csv('{}')"
    duckdb.sql(f"COPY ({lists.format(folder / 'log.csv')}) TO '{path}' (FORMAT parquet)")
    from_lists = logs.build(path, items=folder / "items.csv", out=out, **OPTIONS)
    from_text = logs.build(folder / "log.csv", items=folder / "items.csv", out=folder / "from-text", **OPTIONS)
    assert from_lists.fingerprint == from_text.fingerprint
    np.testing.assert_array_equal(from_lists.lists.actions, from_text.lists.actions)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("4,1,mug\n", "4,1,\n", ("row 7", "`shelf` must be a list of items", "got nothing")),
        (
            "pen|cup",
            "tea|cup",
            ("row 5", "`shelf` must be a list such as a|b|c with the item that was shown", "tea|cup"),
        ),
        ("pen|cup", "pen|sofa", ("`shelf` must hold items that the log shows or ITEMS describes", "'sofa'")),
    ],
)
def test_wrong_lists_end_with_one_line(folder, capsys, old, new, words):
    (folder / "log.csv").write_text(LOG.replace(old, new))
    build = ["data", "build", str(folder / "log.csv"), "--signals", "click", "--candidates", "shelf"]
    assert main([*build, "--items", str(folder / "items.csv"), "--out", str(folder / "data")]) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert all(word in said for word in words), said


def test_all_items_of_a_log_and_refused_numbers_of_actions(folder, capsys):
    build = ["data", "build", str(folder / "log.csv"), "--signals", "click", "--items", str(folder / "items.csv")]
    assert main([*build, "--actions", "all", "--out", str(folder / "data"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["actions"] == 5
    dataset = LoggedDataset.load(folder / "data")
    assert dataset.lists is None and dataset.num_rows == 6
    with pytest.raises(ValueError, match="`actions` must be all where requests have candidates, got 3"):
        logs.build(folder / "log.csv", **OPTIONS, actions=3)
    with pytest.raises(ValueError, match="`actions` must be all or at least 2, got 'most'"):
        logs.build(folder / "log.csv", signals="click", actions="most")


def test_lists_of_arrays():
    dataset = listed.dataset()
    rows = listed.rows()
    order = np.lexsort((np.arange(len(rows.user)), rows.user))
    for place in (0, 17, dataset.num_rows - 1):
        padded = dataset.lists.padded(dataset.candidates[place])
        assert padded[padded >= 0].tolist() == rows.candidates[order[place]].tolist()


@pytest.mark.parametrize(
    ("lists", "words"),
    [
        ([[1], []], "at least one action, got none in row 1"),
        ([[1], [1]], "the action that was shown, 2, in row 1"),
        ([[1], [2, 5]], "actions of the log, got 5 in row 1"),
        ([[1]], "a list for each of 2 rows, got 1"),
    ],
)
def test_wrong_lists_of_arrays(lists, words):
    rows = Rows([0, 1], [1, 2], [[1.0], [0.0]], candidates=lists)
    with pytest.raises(ValueError, match=f"`candidates` must hold {words}"):
        LoggedDataset.from_numpy(rows, About(shares=(1.0, 0.0, 0.0)))


def test_lists_of_another_log_keep_what_a_run_knows():
    arrays = candidates.joined(np.array([0, 0, 1, 2, 2]), np.array([3, 1, 2, 0, 3]))
    assert arrays["candidate_first"].tolist() == [0, 2, 3, 5] and arrays["candidate_actions"].tolist() == [
        1,
        3,
        2,
        0,
        3,
    ]
    moved = candidates.mapped(arrays, np.array([-1, 5, -1, 4]))
    assert moved["candidate_first"].tolist() == [0, 2, 2, 3] and moved["candidate_actions"].tolist() == [4, 5, 4]
    assert candidates.mapped(arrays, np.array([0, 1, 2, -1]))["candidate_first"].tolist() == [0, 1, 2, 3]
    assert candidates.mapped(arrays, np.array([-1, 1, -1, -1]))["candidate_first"].tolist() == [0, 1, 1, 1]
