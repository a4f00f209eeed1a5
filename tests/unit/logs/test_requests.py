"""Requests from files, against the same ones asked one by one; and a log as another run sees it."""

import csv
import json
import resource
import shutil
from contextlib import contextmanager
from pathlib import Path

import duckdb
import numpy as np
import pytest

import moac
from moac import logs
from moac.cli.main import main
from moac.cli.offline import Recommend
from moac.logs import requests
from moac.logs.catalogue import Catalogue
from moac.offline.elsewhere import onto
from tests.helpers import stranger
from tests.helpers.log_runs import model_of, saved, untrained
from tests.helpers.run_folders import rewrite

TABLE = stranger.rows()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A stranger's log, its dataset, and a run on it."""
    place = tmp_path_factory.mktemp("run")
    path = stranger.write(place / "log.csv", TABLE)
    dataset = logs.build(path, **stranger.OPTIONS, out=place / "data")
    filled = dataset.with_behaviour(model_of(dataset))
    saved(untrained(filled, moac.Config()), place / "run")
    return place


@pytest.fixture(scope="module")
def dataset(folder):
    return logs.LoggedDataset.load(folder / "data")


def score(folder, requests, out, *options):
    command = ["offline", "score", folder / "run", "--requests", requests, "--out", out, "--k", "4", *options]
    assert main([str(word) for word in command]) == 0
    if out.suffix == ".parquet":
        return duckdb.sql(f"FROM '{out}'").fetchall()
    return lines(out)


def lines(path):
    with path.open(newline="") as file:
        return list(csv.reader(file))[1:]


REQUESTS = [
    ("user 5", "home", 9, ["mug", "007"], [[1, 2.5, 0], [0, 0.1, 1]], None),
    ("user 6", "search", 11, [], [], ["mug", "=cmd()", "nothing"]),
    ("nobody", "elsewhere", 10, ["nothing", *stranger.ITEMS * 5], None, None),
]


def test_requests_are_answered_as_one_by_one(folder, tmp_path, capsys):
    def text(rows):
        return "|".join(" ".join(map(str, row)) if isinstance(row, list) else row for row in rows or [])

    with (tmp_path / "requests.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["user_id", "tab", "hour", "history", "responses", "eligible"])
        for user, tab, hour, history, responses, eligible in REQUESTS:
            answers = text(responses or [[0, 0, 0]] * len(history))
            writer.writerow([user, tab, hour, text(history), answers, text(eligible) if eligible else None])
    found = score(folder, tmp_path / "requests.csv", tmp_path / "out.csv", "--exclude-seen")
    assert "unknown to the run: 1 user, 1 item, 1 context\n" in capsys.readouterr().out
    trained, expected = moac.load(folder / "run"), []
    for user, tab, hour, history, responses, eligible in REQUESTS:
        asked = {"responses": responses or [[0, 0, 0]] * len(history), "exclude_seen": True, "eligible": eligible}
        answer = trained.recommend(user, {"hour": hour, "tab": tab}, history, 4, **asked)
        expected += [(user, str(rank), name, p) for rank, (name, p) in enumerate(answer, 1)]
    assert [(row[0], row[1], row[2].removeprefix("'")) for row in found] == [row[:3] for row in expected]
    assert [float(row[3]) for row in found] == pytest.approx([row[3] for row in expected])
    assert any(row[2] == "'=cmd()" for row in found)  # no formula
    assert not any(row[2].startswith("=") for row in found)


def test_a_known_user_has_the_history_and_context_of_the_log(folder, dataset, tmp_path, capsys):
    (tmp_path / "requests.csv").write_text("user_id\nuser 5\nuser 11\n")
    found = score(folder, tmp_path / "requests.csv", tmp_path / "out.parquet")
    everyone = score_all(folder, tmp_path / "all.csv")
    assert [row[2] for row in found] == [item for user in ("user 5", "user 11") for item in everyone[user]]
    assert main(["offline", "recommend", str(folder / "run"), "--user", "user 5", "--k", "3"]) == 0
    shown = capsys.readouterr()
    assert "history: the last 12 items that log has of user user 5" in shown.err
    header, *rows = shown.out.splitlines()[-4:]
    assert header.split() == ["rank", "item", "probability"]
    shown_names = [line[6:].rsplit(maxsplit=1)[0] for line in rows]
    assert shown_names == [name if name.isprintable() else repr(name) for name in everyone["user 5"][:3]]
    last = np.flatnonzero(dataset.user_ids[dataset.user] == "user 5")[-1]
    x = np.asarray(dataset.features(dataset.next_observation(last)))
    logits = moac.load(folder / "run").logits(x[None])[0]
    assert dataset.action_ids[np.argsort(-logits)][:4].tolist() == everyone["user 5"]


def test_a_known_user_s_unknown_context_is_told(folder, capsys):
    ask = ["offline", "recommend", str(folder / "run"), "--user", "user 5", "--k", "3", "--context"]
    named = (["tab=a=b", "hour=9"], "tab=a=b"), (["a=b", "9"], "tab=a=b")  # a value may hold an equals sign
    for values, unknown in ((["HOME", "9"], "tab=HOME"), (["home", "9"], ""), *named):
        assert main([*ask, *values]) == 0
        assert (f"context {unknown or 'tab='}" in capsys.readouterr().err) is bool(unknown)


@pytest.mark.parametrize(
    ("words", "columns", "context"),
    [
        (("a=b",), ("tab",), ("a=b",)),  # a value, since no column is called a
        (("tab=a=b",), ("tab",), {"tab": "a=b"}),
        (("a=b", "c=d"), ("tab", "hour"), ("a=b", "c=d")),
        (("a=b", "hour=9"), ("tab", "hour"), {"a": "b", "hour": "9"}),  # refused: a is misspelt
        (("tab=x", "tab=y"), ("tab", "hour"), ("tab=x", "tab=y")),
        (("a=b",), ("tab", "hour"), {"a": "b"}),
        ((), ("tab",), ()),
    ],
)
def test_a_word_with_an_equals_sign_is_a_name_where_a_column_is_called_so(words, columns, context):
    assert Recommend(run_path=Path(), user="ann", context=words)._context(columns) == context


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_blocks_of_an_answer_keep_their_order_and_leave_nothing_beside_it(tmp_path, suffix):
    out = tmp_path / f"answer{suffix}"
    blocks = ({"user_id": np.arange(k, k + 3), "item_id": np.array(["=a", "b", "c"], object)} for k in range(0, 99, 3))
    requests.write(out, blocks)
    rows = duckdb.sql(f"SELECT * FROM '{out}'").fetchall()
    first = "'=a" if suffix == ".csv" else "=a"
    assert rows == [(k, (first, "b", "c")[k % 3]) for k in range(99)]
    assert list(tmp_path.iterdir()) == [out]


@contextmanager
def full_disk():
    """Files may have two thousand bytes; the system refuses more as it does where a disk is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_an_answer_that_a_disk_has_no_room_for_is_one_line_and_leaves_nothing(folder, suffix, tmp_path, capsys):
    rows = "".join(f"{k},home,9,mug\n" for k in range(600))
    (tmp_path / "requests.csv").write_text(f"user_id,tab,hour,history\n{rows}")
    out = tmp_path / f"answer{suffix}"
    ask = ["offline", "score", folder / "run", "--requests", tmp_path / "requests.csv", "--out", out, "--k", 4]
    with full_disk():
        code = main([str(word) for word in ask])
    assert code == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"moac: {out}: No space left on device."
    assert [path.name for path in tmp_path.iterdir()] == ["requests.csv"]


@pytest.fixture
def moved(folder, tmp_path):
    """Where the data was."""
    (folder / "data").rename(tmp_path / "moved")
    yield folder / "data"
    (tmp_path / "moved").rename(folder / "data")


def test_a_run_whose_data_is_not_there_says_that_it_has_no_history(folder, moved, capsys):
    ask = ["offline", "recommend", str(folder / "run"), "--user", "user 5", "--k", "3"]
    assert main(ask) == 2  # the context would be that of the user's last row
    assert capsys.readouterr().err.startswith(f"moac: {moved}, on which")
    assert main([*ask, "--context", "home", "9"]) == 0
    assert f"note: no history: {moved}, on which" in capsys.readouterr().err


@pytest.mark.parametrize("more", [(), ("--context", "home", "9", "--history", "mug")], ids=["known", "given"])
def test_what_is_not_eligible_leaves_nothing_and_says_so(folder, more, capsys):
    ask = ["offline", "recommend", str(folder / "run"), "--user", "user 5", *more, "--json", "--eligible"]
    for items, skipped, left in (
        (["mug"], [], True),
        (["mug", "nope"], ["1 of 2"], True),
        (["nope"], ["1 of 1"], False),
    ):
        assert main([*ask, *items]) == 0  # without --k, of fewer than ten actions
        recommended = json.loads(capsys.readouterr().out)
        notes = [note for note in recommended["notes"] if "eligible" in note]
        assert [note.partition(" eligible")[0] for note in notes] == skipped
        assert bool(recommended["ids"]) is left
        assert ("no action is left to recommend" not in recommended["notes"]) is left


def test_a_policy_says_itself_that_nothing_is_eligible(folder):
    found = moac.load(folder / "run").recommend("user 5", ("home", 9), ["mug"], eligible=["nope"])
    assert found.ids == ()
    assert found.notes[-2:] == ("1 of 1 eligible items are no actions: skipped", "no action is left to recommend")


def score_all(folder, out):
    assert main(["offline", "score", str(folder / "run"), "--out", str(out), "--k", "4"]) == 0
    answers = {}
    for user, _, item, _ in lines(out):
        answers.setdefault(user, []).append(item.removeprefix("'"))
    return answers


WRONG = {
    "person\nann\n": "must have the column `user_id`, which is missing",
    "user_id,tab,history\nann,home,\n": "must have the column `hour`",
    "user_id,tab,hour,history,responses\nann,home,9,mug|pen,1 0 0\n": "row 2: `responses` must hold 3 numbers for each",
    "user_id,tab,hour,history,responses\nann,home,9,mug,1 x 0\n": "3 numbers for each of 1 items, got 1 x 0",
    "user_id,tab,hour,history\n": "requests.csv must hold requests, got none",
    "user_id,tab,tab\nann,home,home\n": "row 1: must name every column once, got 'tab' in user_id,tab,tab",
    "user_id,history\nann,mug|pen\nbob,pen|té, vert\n": "row 3: Expected Number of Columns: 2 Found: 3",
}


@pytest.mark.parametrize("content", WRONG)
def test_a_wrong_file_of_requests_is_one_line(folder, tmp_path, capsys, content):
    (tmp_path / "requests.csv").write_text(content)
    out = tmp_path / "out.csv"
    command = ["offline", "score", folder / "run", "--requests", tmp_path / "requests.csv", "--out", out, "--k", 2]
    assert main([str(word) for word in command]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("moac: ") and WRONG[content] in line
    assert not out.exists()


def states(dataset):
    return np.asarray(dataset.features(dataset.observation(np.arange(dataset.num_rows))))


def test_a_log_seen_by_itself_is_itself(dataset):
    again, unknown = onto(dataset, Catalogue.of(dataset))
    assert unknown == {"users": 0, "items": 0, "views": 0}
    for name in ("action", "reward", "time", "context"):
        np.testing.assert_array_equal(getattr(again, name), getattr(dataset, name))
    np.testing.assert_array_equal(again.user_ids[again.user], dataset.user_ids[dataset.user])
    np.testing.assert_array_equal(again.row_splits, dataset.row_splits)
    assert states(again).tobytes() == states(dataset).tobytes()


def test_rows_on_the_runs_actions_count_whatever_the_other_log_s_are(dataset, tmp_path):
    """A log of the same rows with two actions of its own, one new item, one new user and another value."""

    def change(row):
        return row | {"item_id": "new"} if row["item_id"] == "mug" else row

    rows = [change(row) | {"tab": "cart" if row["hour"] == 9 else row["tab"]} for row in TABLE]
    rows = [row | {"user_id": row["user_id"].replace("user 7", "user seven")} for row in rows]
    path = stranger.write(tmp_path / "next.csv", rows)
    other = logs.build(path, **stranger.OPTIONS, out=tmp_path / "next", actions=2)
    seen, unknown = onto(other, Catalogue.of(dataset))
    known = [row for row in rows if row["item_id"] != "new"]
    assert seen.num_rows == len(known)
    assert unknown == {"users": 1, "items": 1, "views": len(rows) - len(known)}
    assert set(seen.action_ids[seen.action].tolist()) == set(stranger.ITEMS) - {"mug"}
    x = states(seen)
    assert x.shape[1] == dataset.num_features
    tab = [dataset.feature_names.index(f"tab={k}") for k in (0, 1)]
    assert (x[:, tab].sum(axis=1) == (seen.context[:, 0] >= 0)).all()
    mug = [k for k, name in enumerate(dataset.feature_names) if name.endswith("item=mug")]
    assert not x[:, mug].any()
    held, held_unknown = onto(logs.build(path, **stranger.OPTIONS, actions=2), Catalogue.of(dataset))
    assert held.num_rows < seen.num_rows  # in memory there are its own two actions only
    assert held_unknown["users"] == 1


def test_a_run_on_another_log_has_its_own_model_and_one_fitted_there(folder, tmp_path):
    """The other log has the same rows: by the run's own model it gives the numbers of its own log, bit for bit."""
    other = shutil.copytree(folder / "data", tmp_path / "next")
    rewrite(other / "manifest.json", {"content": "f" * 64})
    own, there = (moac.evaluate(folder / "run", data=data) for data in (folder / "data", other))
    assert own.unknown is None and own.carried is None
    assert there.unknown == {"users": 0, "items": 0, "views": 0}
    for name in ("MOAC", "Behavior-Clone"):
        mine, carried = (each.report.policies[name] for each in (own, there.carried))
        np.testing.assert_array_equal(carried.ncis.value, mine.ncis.value)
        drawn = [[one.mean_weight_interval for one in each.diagnostics] for each in (mine, carried)]
        np.testing.assert_array_equal(*drawn)  # the interval of `mine.ncis` has the error of a model fitted there too
    assert np.any(there.report.policies["MOAC"].ncis.value != there.carried.report.policies["MOAC"].ncis.value)
    card = there.card()
    assert card["carried"]["report"]["policies"].keys() == {"MOAC", "Behavior-Clone"}
    there.save(tmp_path / "kept")
    names = [path.name for path in sorted((tmp_path / "kept").iterdir())]
    assert names == ["card-validation-ffffffff.json", "evaluation-validation-ffffffff.html"]


def test_a_result_says_what_a_choice_would(dataset):
    filled = dataset.with_behaviour(model_of(dataset))
    config = moac.Config(num_iterations=2, num_evaluations=1, weighting="uniform")  # which compiles faster
    outcome = moac.train(filled, config, behaviour_pull=0.3)
    evaluation = outcome.evaluate(split="validation", protect=["click=-1%"])
    (expected,) = moac.choose(filled, config, pulls=(0.3,), protect=["click=-1%"], trials=1).candidates
    (found,) = evaluation.choice.candidates
    assert (found.gain, found.against) == (expected.gain, expected.against)
    assert [str(floor) for floor in evaluation.choice.protected] == ["click=-1%"]
    assert evaluation.choice.chosen is None  # too few users
    with pytest.raises(ValueError, match="`protect` must name one of click, minutes, returned, got 'Like'"):
        outcome.evaluate(protect=["Like=-1%"])


def test_other_signals_or_contexts_are_refused(dataset, tmp_path):
    path = stranger.write(tmp_path / "next.csv", TABLE)
    for options, words in (
        ({"signals": "click,minutes"}, "must have the signal `returned`, as a cost"),
        ({"signals": "click,minutes,returned"}, "must have the signal `returned`, as a cost"),
        ({"context": "tab"}, "must have the context `hour`"),
    ):
        other = logs.build(path, **(stranger.OPTIONS | options))
        with pytest.raises(ValueError, match=words):
            onto(other, Catalogue.of(dataset))
