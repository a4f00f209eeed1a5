"""A stranger's log against a plain reading of it, and what is said of one that cannot be read."""

import csv
import gzip
import io
import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import duckdb
import numpy as np
import pytest

from moac import kuairand, logs
from moac.cli.main import main
from moac.logs import LoggedDataset, own, splits
from tests.helpers import stranger

TABLE = stranger.rows()
GZIP = gzip.compress(stranger.text(TABLE).encode(), mtime=0)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    return logs.build(stranger.write(folder / "log.csv", TABLE), **stranger.OPTIONS, out=folder / "data")


def changed(folder, change, **options):
    """The dataset after `change` of the rows."""
    path = stranger.write(folder / "changed.csv", change([dict(row) for row in TABLE]))
    return logs.build(path, **(stranger.OPTIONS | options))


def when(row):
    return int(datetime.fromisoformat(row["ts"]).replace(tzinfo=UTC).timestamp() * 1000)


def states(dataset, rows=None):
    return np.asarray(dataset.features(dataset.observation(np.arange(dataset.num_rows) if rows is None else rows)))


def test_every_row_is_what_a_plain_reading_finds(built):
    expected = sorted(TABLE, key=lambda row: (row["user_id"], when(row), row["item_id"]))
    assert built.user_ids[built.user].tolist() == [row["user_id"] for row in expected]
    assert built.action_ids[built.action].tolist() == [row["item_id"] for row in expected]
    assert built.time.tolist() == [when(row) for row in expected]
    signals = [[row["click"], row["minutes"], -row["returned"]] for row in expected]
    np.testing.assert_allclose(built.reward, signals, rtol=1e-6)
    values = [
        [v[code] for v, code in zip(built.context_values, codes, strict=True)] for codes in built.context.tolist()
    ]
    assert values == [[row["tab"], str(row["hour"])] for row in expected]
    assert built.signs == (1, 1, -1)
    assert sorted(built.item_ids.tolist()) == sorted(stranger.ITEMS)
    views = [sum(row["item_id"] == item for row in train_rows(built)) for item in built.action_ids]
    assert views == sorted(views, reverse=True)


def train_rows(dataset):
    train = set(dataset.user_ids[dataset.split == 0].tolist())
    return [row for row in TABLE if row["user_id"] in train]


def test_a_state_is_the_last_items_and_the_responses_to_them(built):
    """Number by number, of the rows of one user."""
    x, names = states(built), built.feature_names
    rows = np.flatnonzero(built.user_ids[built.user] == "user 7")
    scale = np.array(built.response_scale)
    assert scale[[0, 2]].tolist() == [1, 1]
    train = np.array([row["minutes"] for row in train_rows(built)])
    assert scale[1] == float(f"{3 * np.sqrt((train**2).mean()):.2g}")
    for k, row in enumerate(rows):
        found = dict(zip(names, x[row], strict=True))
        past = built.reward[rows[:k]] / scale
        past = np.rint(np.clip(past, -1, 1) * 127) / 127
        for m, signal in enumerate(built.signal_names):
            assert found[f"mean {signal}"] == pytest.approx(past[:, m].mean() if k else 0, abs=1e-6)
            for back in range(1, 6):
                assert found[f"{signal} -{back}"] == pytest.approx(past[-back, m] if back <= k else 0, abs=1e-6)
        for back in range(1, 21):
            shown = [name for name in stranger.ITEMS if found[f"item -{back}: item={name}"] == 1]
            assert shown == ([built.action_ids[built.action[rows[k - back]]]] if back <= k else [])


def outcome_of_one_row(rows):
    """Of the eighth row of a user, another outcome; of an earlier one the same numbers, so that no scale moves."""
    mine = sorted((row for row in rows if row["user_id"] == "user 9"), key=lambda row: row["ts"])
    for name in ("click", "minutes", "returned"):
        mine[7][name], mine[11][name] = mine[11][name], mine[7][name]
    mine[7]["click"], mine[11]["click"] = 1 - mine[11]["click"], 1 - mine[7]["click"]
    return rows


def test_a_state_knows_nothing_of_its_own_row_s_outcome(built, tmp_path):
    moved = changed(tmp_path, outcome_of_one_row)
    mine = np.flatnonzero(built.user_ids[built.user] == "user 9")
    assert np.any(moved.reward[mine[7]] != built.reward[mine[7]])
    others = np.setdiff1d(np.arange(built.num_rows), mine[8:])
    assert states(moved, others).tobytes() == states(built, others).tobytes()
    assert np.any(states(moved, mine[8:9]) != states(built, mine[8:9]))


def test_what_is_shown_at_one_time_does_not_know_the_responses_to_each_other(tmp_path):
    """A user's first six rows are one request: another outcome of some moves the states of the second request alone."""

    def requests(rows):
        for row in rows:
            row["ts"] = "2022-05-01" if row["ts"] < "2022-05-12" else "2022-05-20"
        return rows

    def other_outcomes(rows):
        for row in requests(rows):
            row["click"] = 1 - row["click"] if row["ts"] == "2022-05-01" else row["click"]
        return rows

    first, second = (changed(tmp_path, change) for change in (requests, other_outcomes))
    early = np.flatnonzero(first.time == when({"ts": "2022-05-01"}))
    late = np.setdiff1d(np.arange(first.num_rows), early)
    assert len(early) == len(late) == 240
    clicks = [k for k, name in enumerate(first.feature_names) if "click" in name]
    assert not states(first, early)[:, clicks].any()
    past = first.reward[early].reshape(40, 6, 3)[..., 0].mean(axis=1)
    np.testing.assert_allclose(states(first, late)[:, clicks[0]], np.repeat(past, 6), atol=1e-6)
    assert states(first, early)[:, clicks].tobytes() == states(second, early)[:, clicks].tobytes()
    assert np.any(states(first, late)[:, clicks] != states(second, late)[:, clicks])


def test_without_responses_a_state_is_the_items_alone(built, tmp_path):
    plain = changed(tmp_path, lambda rows: rows, history_responses=False)
    assert plain.tables.responses is None
    assert plain.num_features == built.num_features - 3 * 6
    assert states(plain).tobytes() == np.ascontiguousarray(states(built)[:, : plain.num_features]).tobytes()


def as_frame(folder):
    del folder
    texts = ("user_id", "item_id", "ts", "tab")
    return {n: np.array([row[n] for row in TABLE], object if n in texts else None) for n in stranger.COLUMNS}


INDEXED = stranger.text([{"": k, **row} for k, row in enumerate(TABLE)], columns=("", *stranger.COLUMNS))
FORMS = {
    "LF, no BOM": lambda f: stranger.write(f / "a.csv", TABLE, newline="\n", bom=False),
    "an index without a name": lambda f: _write(f / "a.csv", INDEXED.encode()),
    "CR": lambda f: stranger.write(f / "a.csv", TABLE, newline="\r"),
    "other order, no last line end": lambda f: _write(f / "a.csv", stranger.text(TABLE[::-1]).rstrip().encode()),
    "gzip": lambda f: _write(f / "a.csv.gz", GZIP),
    "a folder": lambda f: [stranger.write(f / f"{k}.csv", TABLE[k::2]) for k in (0, 1)] and f,
    "a glob": lambda f: [stranger.write(f / f"{k}.csv", TABLE[k::2]) for k in (0, 1)] and f"{f}/*.csv",
    "Parquet": lambda f: own.as_parquet(as_frame(f), f / "a.parquet"),
    "arrays": as_frame,
    "lists": lambda f: {name: column.tolist() for name, column in as_frame(f).items()},
    "a relation": lambda f: duckdb.read_csv(str(stranger.write(f / "a.csv", TABLE))),
}


def _write(path, content):
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("form", FORMS)
def test_the_same_rows_are_the_same_dataset_in_any_form(built, tmp_path, form):
    assert logs.build(FORMS[form](tmp_path), **stranger.OPTIONS).fingerprint == built.fingerprint


def _with_times(folder, change, name="a.csv", rows=TABLE):
    return stranger.write(folder / name, [row | {"ts": change(when(row))} for row in rows])


def _in_berlin(row):
    return str(datetime.fromtimestamp(when(row) / 1000, timezone(timedelta(hours=2))))


TIMES = {
    "milliseconds": lambda f: _with_times(f, lambda ms: ms),
    "seconds with a fraction and dates": lambda f: (
        _with_times(f, lambda ms: ms / 1000 + 1e-5, "a.csv", TABLE[::2]),
        stranger.write(f / "b.csv", TABLE[1::2]),
    ),
    "another zone": lambda f: stranger.write(f / "a.csv", [row | {"ts": _in_berlin(row)} for row in TABLE]),
    "texts of another zone in Parquet": lambda f: (
        as_frame(f) | {"ts": np.array([_in_berlin(row) for row in TABLE], object)}
    ),
    "seconds and dates": lambda f: (
        _with_times(f, lambda ms: ms // 1000, "a.csv", TABLE[::2]),
        stranger.write(f / "b.csv", TABLE[1::2]),
    ),
}


@pytest.mark.parametrize("times", TIMES)
def test_the_same_moments_are_the_same_dataset_in_any_unit_and_zone(built, tmp_path, monkeypatch, times):
    monkeypatch.setenv("TZ", "America/New_York")
    assert logs.build(TIMES[times](tmp_path), **stranger.OPTIONS).fingerprint == built.fingerprint


@pytest.mark.parametrize("kind", [float, str])
@pytest.mark.parametrize(("moment", "train"), [("20", 14), ("12.5", 6), ("12.75", 7)])
def test_times_with_fractions_keep_their_unit(tmp_path, kind, moment, train):
    """A file of whole numbers beside one with fractions, as numbers or, in Parquet, as texts."""
    times = np.arange(6, 24) + 0.5 * (np.arange(18) % 3 == 0)
    made = {"user_id": np.arange(18) % 5, "item_id": np.arange(18) % 2, "click": np.arange(18) % 2}
    paths, whole = list[Path](), times == np.floor(times)
    for k, chosen in enumerate((whole, ~whole)):
        values = times[chosen].astype(np.int64 if k == 0 else kind)
        frame = {name: column[chosen] for name, column in made.items()} | {"time": values}
        paths.append(own.as_parquet(frame, tmp_path / f"{k}.parquet"))
    dataset = logs.build(paths, signals="click", split=f"time:{moment}", out=tmp_path / "data")
    assert sorted(dataset.time.tolist()) == sorted(times.tolist())
    assert np.sum(dataset.row_splits == 0) == train
    assert LoggedDataset.load(tmp_path / "data").fingerprint == dataset.fingerprint


def test_digits_of_a_date_are_times_but_no_dates(tmp_path):
    """20220504093000 in milliseconds would be a day of the year 2610."""
    times = 20220504093000 + np.arange(40)
    frame = {"user_id": np.arange(40) % 8, "item_id": np.arange(40) % 3, "click": np.arange(40) % 2, "time": times}
    logs.build(frame, signals="click", split="time:20220504093020", out=tmp_path / "data")
    assert not logs.describe(tmp_path / "data").manifest["logs"]["standard"]["days"]
    with pytest.raises(ValueError, match="`split` must have a number as the log's times are, such as 2022050409"):
        logs.build(frame, signals="click", split="time:2022-05-04")


def test_whole_times_are_the_same_with_and_without_a_point(tmp_path):
    frame = {"user_id": np.arange(18) % 5, "item_id": np.arange(18) % 2, "click": np.arange(18) % 2}
    built = [logs.build(frame | {"time": np.arange(18, dtype=kind)}, signals="click") for kind in (int, float)]
    assert built[0].fingerprint == built[1].fingerprint
    assert built[1].time.max() == 17


def test_booleans_are_signals_and_a_folder_s_name_is_no_column(built, tmp_path):
    (tmp_path / "tab=other").mkdir()
    path = stranger.write(tmp_path / "tab=other" / "a.csv", [row | {"click": bool(row["click"])} for row in TABLE])
    assert logs.build(path, **stranger.OPTIONS).fingerprint == built.fingerprint


def test_an_empty_text_is_a_gap_in_csv_and_in_parquet(tmp_path):
    frame = as_frame(tmp_path)
    frame["tab"][::3] = ""
    rows = [row | {"tab": tab} for row, tab in zip(TABLE, frame["tab"], strict=True)]
    built = logs.build(frame, **stranger.OPTIONS)
    assert built.context_values[0] == ("home", "search") and (built.context[:, 0] == -1).sum() == len(TABLE) / 3
    assert logs.build(stranger.write(tmp_path / "a.csv", rows), **stranger.OPTIONS).fingerprint == built.fingerprint


def test_a_dataframe_of_pandas_is_a_log(built):
    pandas = pytest.importorskip("pandas")
    assert logs.build(pandas.DataFrame(TABLE), **stranger.OPTIONS).fingerprint == built.fingerprint


def test_an_option_that_is_none_is_named(tmp_path):
    with pytest.raises(TypeError, match=r"no option `action`: .* Did you mean actions\?"):
        changed(tmp_path, lambda rows: rows, action=3)


@pytest.mark.parametrize(("actions", "share"), [(2, r", \d\d\.\d% of all rows: "), (6, ": ")])
def test_how_much_of_a_log_the_actions_have_is_said(tmp_path, capsys, actions, share):
    path = stranger.write(tmp_path / "log.csv", TABLE)
    more = ["--time", "ts", "--signals", "click", "--actions", str(actions), "--out", str(tmp_path / "data")]
    assert main(["data", "build", str(path), *more]) == 0
    assert re.search(rf"users on {actions} items{share}", capsys.readouterr().out)


def test_duplicates_are_counted_and_said(built, tmp_path, capsys):
    path = stranger.write(tmp_path / "log.csv", [*TABLE, *TABLE[:5]])
    options = ["--time", "ts", "--signals", "click,minutes,-returned", "--context", "tab,hour"]
    assert main(["data", "build", str(path), *options, "--out", str(tmp_path / "data")]) == 0
    assert "485 rows, 5 exact duplicates dropped" in capsys.readouterr().out
    assert states(LoggedDataset.load(tmp_path / "data")).tobytes() == states(built).tobytes()
    assert main(["data", "describe", str(tmp_path / "data")]) == 0
    assert "2022-05-01 to 2022-05-23" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ([], []),
        (["--shares", "0.998", "0.001", "0.001"], ["0 validation users", "0 test users"]),
        (["--shares", "0.8", "0.2", "0"], []),
        (["--split", "time:2023-01-01"], ["0 validation users", "0 test users"]),
    ],
)
def test_a_split_that_is_too_small_to_evaluate_on_is_said(tmp_path, capsys, more, told):
    build = ["data", "build", str(stranger.write(tmp_path / "log.csv", TABLE)), "--time", "ts", "--signals", "click"]
    assert main([*build, *more, "--out", str(tmp_path / "data")]) == 0
    warnings = [line for line in capsys.readouterr().err.splitlines() if "too few to evaluate on: change" in line]
    assert [line.partition("warning: ")[2].partition(",")[0] for line in warnings] == told


def test_a_log_of_a_few_days_is_drawn_without_a_warning(tmp_path):
    rows = [row | {"ts": f"2022-05-0{1 + k % 5} 09:00"} for k, row in enumerate(TABLE[:40])]
    path = stranger.write(tmp_path / "log.csv", rows)
    logs.build(path, **stranger.OPTIONS, out=tmp_path / "data")
    assert main(["data", "describe", str(tmp_path / "data")]) == 0


def test_signals_may_be_expressions_and_whole_numbers_are_ids(tmp_path):
    rows = "user,item,t,play,len\n7,10,1,2,4\n7,9,2,3,3\n11,10,1,0,5\n11,9,2,,5\n"
    (tmp_path / "log.csv").write_text(rows)
    options = {"user": "user", "item": "item", "time": "t", "signals": "watch=coalesce(play, 0)/len,-cost=len * 2"}
    dataset = logs.build(tmp_path / "log.csv", **options, shares=(1.0, 0.0, 0.0))
    assert dataset.user_ids.tolist() == [7, 11]
    assert dataset.item_ids.tolist() == [9, 10]
    np.testing.assert_allclose(dataset.reward, [[0.5, -8], [1, -6], [0, -10], [0, -10]])


@pytest.mark.parametrize("actions", [3, 6])
def test_propensities_are_among_the_actions(tmp_path, actions):
    """Of six items three are actions: the weights of any policy on these have mean 1, as with all six."""
    rng, p = np.random.default_rng(0), np.array([0.4, 0.25, 0.15, 0.1, 0.06, 0.04])
    item = rng.choice(6, 4_000, p=p)
    frame = {"user_id": np.arange(4_000) % 200, "item_id": item, "time": np.arange(4_000), "p": p[item]}
    dataset = logs.build(
        frame | {"click": item % 2}, signals="click", propensity="p", actions=actions, out=tmp_path / "data"
    )
    train = np.isin(frame["user_id"], dataset.user_ids[dataset.split == 0])
    share = np.isin(item[train], dataset.action_ids).mean()
    np.testing.assert_allclose(dataset.propensity, p[dataset.action_ids][dataset.action] / share, rtol=1e-6)
    policy = rng.dirichlet(np.ones(actions))
    assert np.mean(policy[dataset.action] / dataset.propensity) == pytest.approx(1, abs=0.05)
    warnings = logs.describe(tmp_path / "data").manifest["warnings"]
    assert [f"divided by {share:.1%}" in warning for warning in warnings] == [True] * (actions < 6)


def test_features_of_users_and_items_are_numbers_and_categories(tmp_path):
    path = stranger.write(tmp_path / "log.csv", TABLE)
    users = [{"user_id": f"user {k}", "age": 20 + k, "change": k - 20, "town": "ab"[k % 2]} for k in range(40)]
    items = [{"item_id": name, "price": k * 1.5} for k, name in enumerate(stranger.ITEMS[1:])]
    stranger.write(tmp_path / "users.csv", users, columns=tuple(users[0]))
    stranger.write(tmp_path / "items.csv", items, columns=tuple(items[0]))
    dataset = logs.build(path, **stranger.OPTIONS, users=tmp_path / "users.csv", items=tmp_path / "items.csv")
    assert dataset.feature_names[:5] == ("age", "change", "-change", "town=a", "town=b")
    place = {name: k for k, name in enumerate(dataset.user_ids.tolist())}
    towns = np.asarray(dataset.tables.users)[[place[f"user {k}"] for k in range(40)], 3:5]
    np.testing.assert_array_equal(towns, np.eye(2)[np.arange(40) % 2] * 127)
    prices = dataset.tables.items[:, -1].tolist()
    mug = dataset.item_ids.tolist().index("mug")
    assert prices[mug] == 0  # not described
    assert len(set(prices)) == 6


def test_a_feature_may_be_called_name_or_id(tmp_path):
    items = {"item_id": stranger.ITEMS, "name": [*"ababab"], "id": [*range(6)], "whole": [True, False] * 3}
    dataset = logs.build(stranger.write(tmp_path / "log.csv", TABLE), **stranger.OPTIONS, items=items)
    assert {"item -1: name=a", "item -1: name=b", "item -1: id", "item -1: whole"} <= {*dataset.feature_names}
    mug = dataset.item_ids.tolist().index(stranger.ITEMS[0])
    assert dataset.tables.items[mug, -4:].tolist() == [127, 0, dataset.tables.items[mug, -2], 127]


def test_features_of_several_files_have_the_type_of_all(tmp_path):
    files = {"a.csv": "item_id,size,price\nmug,7,1\n", "b.csv": "item_id,size,weight\n007,large,-3\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    dataset = logs.build(
        stranger.write(tmp_path / "log.csv", TABLE), **stranger.OPTIONS, items=[tmp_path / name for name in files]
    )
    names = {name.removeprefix("item -1: ") for name in dataset.feature_names if name.startswith("item -1: ")}
    assert {"size=7", "size=large", "price", "weight", "-weight"} <= names


@pytest.mark.parametrize("actions", ["all", None])
def test_features_of_nobody_are_refused(tmp_path, actions):
    (tmp_path / "items.csv").write_text("item_id,price\nmug,1\n,2\n")
    with pytest.raises(ValueError, match=r"items\.csv: `item_id` must be an id in every row, got nothing"):
        changed(tmp_path, lambda rows: rows, items=tmp_path / "items.csv", actions=actions)


def test_what_programs_keep_in_a_folder_is_left_out(tmp_path):
    log = "user_id,item_id,time,click\n" + "".join(f"u{k},i{k % 3},{k},1\n" for k in range(20))
    for name in ("day=1/part-0.csv", ".ipynb_checkpoints/part-0.csv", "_delta_log/1.csv", "day=1/._part-0.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(log if name[0] == "d" and "._" not in name else log.replace(",1\n", ",0\n"))
    dataset = logs.build(tmp_path, signals="click", shares=(1.0, 0.0, 0.0))
    assert dataset.reward.tolist() == [[1.0]] * 20


def test_a_folder_gives_a_column_that_its_files_do_not_have(built, tmp_path):
    """As Spark writes partitions: the folder's name has the value, escaped, or none."""
    for name, tab in {"tab=home": "home", "tab=se%61rch": "search", "tab=__HIVE_DEFAULT_PARTITION__": None}.items():
        (tmp_path / "log" / name).mkdir(parents=True)
        columns = tuple(name for name in TABLE[0] if name != "tab")
        rows = [row for row in TABLE if row["tab"] == tab] or TABLE[:1]
        stranger.write(tmp_path / "log" / name / "a.csv", rows, columns=columns)
    dataset = logs.build(tmp_path / "log" / "**" / "*.csv", **stranger.OPTIONS)
    assert dataset.num_rows == built.num_rows + 1  # the first row also without a tab
    assert dataset.context_values == built.context_values and (dataset.context[:, 0] == -1).sum() == 1
    with pytest.raises(ValueError, match="must have the column `shop`"):
        logs.build(tmp_path / "log", **(stranger.OPTIONS | {"context": "shop"}))


def test_what_is_left_out_of_a_folder_is_said(built, tmp_path):
    (tmp_path / "log").mkdir()
    stranger.write(tmp_path / "log" / "A.CSV", TABLE[::2])
    own.as_parquet(dict(as_frame(tmp_path)), tmp_path / "log" / "b.Parquet")
    for name in ("c.jsonl", "d.csv.zst", "_SUCCESS"):
        (tmp_path / "log" / name).write_text("{}")
    assert logs.build(tmp_path / "log", **stranger.OPTIONS, out=tmp_path / "data").num_rows == built.num_rows
    (said,) = logs.describe(tmp_path / "data").manifest["warnings"]
    assert said.startswith("2 files left out, c.jsonl among them")


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("log.jsonl", b'\n {"user_id": 1}\n', "JSON"),
        ("log.json.gz", gzip.compress(b'[{"user_id": 1}]', mtime=0), "JSON"),
        ("log.xlsx", b"PK\x03\x04 sheet", "a zip archive or an Excel file"),
        ("log.csv", GZIP, "gzip"),
        ("log.csv.zst", b"\x28\xb5\x2f\xfd ...", "zstd"),
        ("log.arrow", b"ARROW1", "Arrow"),
    ],
)
def test_another_format_is_named(tmp_path, name, content, kind):
    with pytest.raises(ValueError, match=rf"{name} must be CSV in UTF-8, also with gzip, or Parquet, got {kind}"):
        logs.build(_write(tmp_path / name, content), **stranger.OPTIONS)


@pytest.mark.parametrize("name", ["part-0000", "log.PARQUET", "log.pq"])
def test_parquet_is_known_by_its_content(built, tmp_path, name):
    path = own.as_parquet(dict(as_frame(tmp_path)), tmp_path / name)
    assert logs.build(path, **stranger.OPTIONS).fingerprint == built.fingerprint


@pytest.mark.parametrize(
    ("prices", "said"),
    [
        ("1 2.5 NA 4 5 6", ["the feature `price` is a category: 5 of its 6 values are numbers, but 'NA' is none"]),
        ("1 2.5  4 5 6", []),
        ("a b c 4 5 6", []),  # no more than half
        ("a b c d e f", []),
    ],
)
def test_a_text_among_the_numbers_of_a_feature_is_said(tmp_path, prices, said):
    items = {"item_id": stranger.ITEMS, "price": prices.split(" ")}
    stranger.write(tmp_path / "items.csv", _dicts(items), columns=tuple(items))
    changed(tmp_path, lambda rows: rows, items=tmp_path / "items.csv", out=tmp_path / "data")
    warnings = logs.describe(tmp_path / "data").manifest["warnings"]
    assert [warning.partition(";")[0] for warning in warnings] == said


def test_who_has_no_features_is_said(tmp_path):
    users = {"user_id": [f"user {k}" for k in range(30)] + ["nobody"], "age": range(31)}
    changed(tmp_path, lambda rows: rows, users=users, out=tmp_path / "data")
    (said,) = logs.describe(tmp_path / "data").manifest["warnings"]
    assert said.startswith("`users` describes 30 of the 40 users of the log")


@pytest.mark.parametrize("ids", [("1.0", "2.0", "3.0"), ("-1.0",) * 3])
def test_whole_numbers_that_are_written_as_decimals_are_refused(tmp_path, ids):
    """As pandas writes them where one is missing: they would be other users than those of the next file."""
    rows = "".join(f"u{k % 5},{ids[k % 3]},{k},1\n" for k in range(20))
    (tmp_path / "a.csv").write_text(f"user_id,item_id,time,click\n{rows}")
    with pytest.raises(ValueError, match=rf"a.csv: `item_id` must hold .*, got '{ids[0]}': write {ids[0][:-2]}\."):
        logs.build(tmp_path / "a.csv", signals="click")
    (tmp_path / "a.csv").write_text(f"user_id,item_id,time,click\n{rows.replace(ids[0], '1.0.1')}u1,x,50,1\n")
    assert "x" in logs.build(tmp_path / "a.csv", signals="click", shares=(1.0, 0.0, 0.0)).item_ids


def _dicts(columns):
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def test_a_signal_that_never_varies_is_named(tmp_path):
    """Also one that varies only on items that are no actions."""
    frame = {"user_id": np.arange(60) % 5, "item_id": np.minimum(np.arange(60) % 6, 4) // 2, "time": np.arange(60)}
    frame |= {"click": np.arange(60) % 7, "never": np.zeros(60), "fee": np.full(60, 2.5), "rare": frame["item_id"] == 2}
    logs.build(frame, signals="click,never,-fee,rare", shares=(1.0, 0.0, 0.0), actions=2, out=tmp_path / "data")
    warnings = logs.describe(tmp_path / "data").manifest["warnings"]
    assert [warning.partition(" in all")[0] for warning in warnings] == ["never is 0", "fee is 2.5", "rare is 0"]


def test_names_of_columns_may_hold_commas_and_brackets(tmp_path):
    frame = {"user_id": np.arange(20) % 5, "item_id": np.arange(20) % 3, "time": np.arange(20)}
    frame |= {"a, b (c": np.ones(20), "d": np.full(20, 2), "text": ["x,(y"] * 20}
    signals = """one="a, b (c",d,-same=(text = 'x,(y')::INT * greatest(d, 3)"""
    dataset = logs.build(frame, signals=signals, shares=(1.0, 0.0, 0.0))
    assert dict(zip(dataset.signal_names, dataset.reward[0].tolist(), strict=True)) == {"one": 1, "d": 2, "same": -3}


def test_a_number_of_the_context_is_one_value_in_all_files(tmp_path):
    """A gap makes it a float where pandas writes the file."""
    for name, hours in {"a.csv": (9, 10), "b.csv": ("9.0", "10.5")}.items():
        rows = (f"u{k},i{k % 3},{k},1,{hours[k % 2]}\n" for k in range(20))
        (tmp_path / name).write_text("".join(["user_id,item_id,time,click,hour\n", *rows]))
    dataset = logs.build(tmp_path, signals="click", context="hour", shares=(1.0, 0.0, 0.0))
    assert dataset.context_values == (("10", "10.5", "9"),)


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ({"item_id": np.array([1.0, 2.0])}, "`items`: `item_id` must hold whole numbers or texts, got DOUBLE"),
        ({"item_id": ["x1", "x2"]}, "`items` must describe ids of the log, such as '007', got none of them: 'x1'."),
        ({"item_id": ["mug"], "price": [1, 2]}, "`items` must hold columns of one length"),
    ],
)
def test_features_of_other_ids_are_refused(tmp_path, items, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        changed(tmp_path, lambda rows: rows, items={"price": [1, 2]} | items)


MISTAKES = {
    "a missing column": ({"item": "itemid"}, "must have the column `itemid`, which is missing. Did you mean item_id?"),
    "another case": ({"item": "ITEM_ID"}, "must have the column `ITEM_ID`, which is missing. Did you mean item_id?"),
    "no column like it": ({"user": "buyer"}, "returned, tiny. Name the right one with `user`."),
    "in an expression": ({"signals": "x=clik*2"}, "must have the column `clik`, which is missing. Did you mean click?"),
    "no expression": ({"signals": "x=click+*"}, 'log.csv: syntax error at or near "AS"'),
    "a signal of text": ({"signals": "tab"}, "row 2: `tab` must be a finite number, got"),
    "times that are none": (
        {"time": "tab"},
        "row 2: `tab` must be a number or a date such as 2022-05-04, before 2200, got",
    ),
    "propensities": ({"propensity": "minutes"}, "`minutes` must be in (0, 1], got"),
    "a column twice": ({"item": "user_id"}, "`user`, `item` and `time` must be three columns, got user_id, user_id"),
    "no such propensity": ({"propensity": "tiny"}, "row 2: `tiny` must be at least 1e-37, got '1e-50'"),
    "no signal": ({"signals": ""}, "`signals` must name what is maximised"),
    "a signal twice": ({"signals": "click,-click"}, "`signals` must name each once, got 'click' twice"),
    "a cost as context": ({"context": "-tab"}, "`context` must be columns, got -tab"),
    "a rule": ({"split": "days"}, "`split` must be users, time:DATE or unseen:DATE, got 'days'"),
    "a date": ({"split": "time:soon"}, "`split` must have a date such as 2022-05-04"),
    "no rows to train on": ({"split": "time:2000-01-01"}, "train on, got 'time:2000-01-01': times are 16"),
    "nobody to train on": ({"shares": (1e-9, 0.5, 1 - 0.5 - 1e-9)}, "`shares` must leave users to train on"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_cannot_be_is_one_line_and_leaves_nothing(built, tmp_path, mistake):
    options, words = MISTAKES[mistake]
    rows = [row | {"tiny": "1e-50"} for row in TABLE[:40]]
    path = stranger.write(tmp_path / "log.csv", rows, columns=tuple(rows[0]))
    with pytest.raises(ValueError, match=r"^[^\n]*$") as error:
        logs.build(path, **(stranger.OPTIONS | options), out=tmp_path / "data")
    assert words in str(error.value)
    assert list(tmp_path.iterdir()) == [path]


FILES = {
    "": "must hold rows, got an empty file",
    "user_id,item_id,time,click\n": "must hold rows, got none",
    "user_id,item_id,time,click\na,x,1,0\na,y,2,1\n": "must have rows of at least two users, got one",
    "user_id,item_id,time,click\na,x,1,0\nb,y,2,yes\n": "row 3: `click` must be a finite number, got 'yes'",
    "user_id,item_id,time,click\na,x,05/04/2022,0\nb,y,05/12/2022,1\n": "before 2200, got '05/04/2022'",
    "user_id,item_id,time,click\na,x,2022-05-04,0\nb,y,9999-12-31,1\n": "before 2200, got '9999-12-31'",
    "user_id,item_id,time,click\na,x,1.5e19,0\nb,y,2.5e19,1\n": "row 2: `time` must be a number or a date",
    "user_id,item_id,time,click\na,x,1,0\nb,,2,1\n": "row 3: `item_id` must be an id, got nothing",
    "user_id,item_id,time,click\na,x,1,\nb,y,2,1\n": "must be a finite number, got nothing: click=coalesce",
    "user_id,item_id,time,click\na,x,1,0\nb,y,soon,1\n": "row 3: `time` must be a number or a date",
    "user_id,item_id,time,click,click\na,x,1,0,1\nb,y,2,1,0\n": "name every column once, got 'click' in user_id",
    "user_id,item_id,time,click\na,x,1,0\nb,y,2,1e30\n": "row 3: `click` must be within ±1e+15, got '1e",
    "user_id,item_id,time,click\na,x,1,0\nb,y\n": "row 3: Expected Number of Columns: 4 Found: 2",
}


def test_the_advice_on_gaps_can_be_typed(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(
        "user_id,item_id,time,dwell sec\n" + "".join(f"u{k % 8},x{k % 3},{k},{k % 5 or ''}\n" for k in range(40))
    )
    with pytest.raises(ValueError, match="got nothing") as error:
        logs.build(path, signals='dwell="dwell sec"', out=tmp_path / "data")
    advice = str(error.value).partition("got nothing: ")[2].removesuffix(" makes a gap 0.")
    assert advice == 'dwell=coalesce("dwell sec", 0)'
    assert logs.build(path, signals=advice, out=tmp_path / "data").num_rows == 40


@pytest.mark.parametrize("content", FILES)
def test_a_file_that_is_none_is_one_line(tmp_path, capsys, content):
    (tmp_path / "log.csv").write_text(content)
    build = ["data", "build", str(tmp_path / "log.csv"), "--signals", "click", "--out", str(tmp_path / "data")]
    assert main(build) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("moac: ") and FILES[content] in line
    assert [path.name for path in tmp_path.iterdir()] == ["log.csv"]


DAMAGED = {
    "cut": (GZIP[:-100], "ended before the end-of-stream marker"),
    "changed": (GZIP[:400] + bytes([GZIP[400] ^ 255]) + GZIP[401:], "cannot be read: "),
    "none": (stranger.text(TABLE).encode(), "Not a gzipped file"),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_gzip_file_is_one_line(tmp_path, damage):
    content, words = DAMAGED[damage]
    with pytest.raises(ValueError, match=f"log.csv.gz cannot be read: .*{words.removeprefix('cannot be read: ')}"):
        logs.build(_write(tmp_path / "log.csv.gz", content), **stranger.OPTIONS)


def test_ids_of_mixed_types_and_nan_are_refused(tmp_path):
    frame = {
        "user_id": np.array([1.0, 2.5]),
        "item_id": np.array([1, 2]),
        "time": np.array([1, 2]),
        "click": np.array([0, 1]),
    }
    with pytest.raises(ValueError, match=r"^`log`: `user_id` must hold whole numbers or texts, got DOUBLE"):
        logs.build(frame, signals="click")
    with pytest.raises(ValueError, match=r"^`log`, row 2: `click` must be a finite number, got"):
        logs.build(frame | {"user_id": np.array([1, 2]), "click": np.array([0, np.nan])}, signals="click")
    with pytest.raises(ValueError, match=r"^`users` must have the column `user_id`, which is missing"):
        logs.build(frame | {"user_id": np.array([1, 2])}, signals="click", users={"id": np.array([1, 2])})
    with pytest.raises(ValueError, match=r"`log` must hold columns of one length, got .*'click': \(1,\)"):
        logs.build(frame | {"click": [1]}, signals="click")
    for wrong in (None, 5, [{"user_id": 1}]):
        with pytest.raises(ValueError, match="`log` must be a path or a dataframe, got"):
            logs.build(wrong, signals="click")
    frame["user_id"] = np.array([1, "a"], object)
    with pytest.raises(ValueError, match="`user_id` must hold values of one type, got int, str"):
        logs.build(frame, signals="click")


@pytest.mark.parametrize("rule", ["time:2022-05-12", "unseen:2022-05-12", f"time:{1652313600000}"])
def test_rows_are_split_by_a_date(built, tmp_path, rule):
    dataset = changed(tmp_path, lambda rows: rows, split=rule)
    early = dataset.time < when({"ts": "2022-05-12"})
    held = splits.split_users(dataset.user_ids, 0, splits.SHARES)[dataset.user]
    if rule.startswith("unseen"):
        expected = np.where(early & (held == 0), 0, np.where(~early & (held > 0), held, -1))
    else:
        later = splits.split_users(dataset.user_ids, 0, (0, 0.5, 0.5))[dataset.user]
        expected = np.where(early, 0, later)
    np.testing.assert_array_equal(dataset.row_splits, expected)
    assert (dataset.how_split, built.how_split) == (rule, "users")
    assert sum(len(dataset.rows(name)) for name in splits.SPLITS) == (expected >= 0).sum()
    subset = dataset.subset("validation")
    assert subset.num_rows == len(dataset.rows("validation")) == len(subset.rows("validation"))


def test_what_is_fitted_does_not_see_rows_after_the_date(tmp_path):
    def later(rows):
        for row in rows:
            if row["ts"] >= "2022-05-12":
                row |= {"item_id": "late", "tab": "late", "minutes": 10_000}
        return rows

    moved, plain = (changed(tmp_path, change, split="time:2022-05-12") for change in (later, lambda rows: rows))
    assert moved.action_ids.tolist() == plain.action_ids.tolist()
    assert moved.context_values == plain.context_values
    assert moved.response_scale == plain.response_scale
    train = states(plain, plain.rows("train"))
    np.testing.assert_array_equal(states(moved, moved.rows("train")), train)


def test_a_dataset_is_saved_and_loaded(built, tmp_path):
    again = LoggedDataset.load(built.save(tmp_path / "saved"))
    assert (again.fingerprint, again.feature_names) == (built.fingerprint, built.feature_names)
    assert (again.context_values, again.response_scale) == (built.context_values, built.response_scale)
    assert states(again).tobytes() == states(built).tobytes()
    assert logs.describe(tmp_path / "saved").signals == logs.describe(built.folder).signals
    with pytest.raises(ValueError, match="`directory` must not exist yet"):
        built.save(tmp_path / "saved")


def test_arrays_of_one_s_own_are_saved_too(tmp_path):
    rng = np.random.default_rng(0)
    rows = logs.Rows(np.repeat(["a", "b", "c"], 4), rng.choice(["x", "y"], 12), rng.random((12, 2)), context=[[0]] * 12)
    dataset = logs.LoggedDataset.from_numpy(rows, logs.About(shares=(1.0, 0.0, 0.0)))
    again = LoggedDataset.load(dataset.save(tmp_path / "saved"))
    assert again.user_ids.tolist() == ["a", "b", "c"]
    assert again.context_names == ()
    assert states(again).tobytes() == states(dataset).tobytes()
    assert logs.describe(tmp_path / "saved").num_rows == 12


def test_kuairand_is_a_preset(tmp_path):
    from moac.kuairand import generate

    source = generate.write(generate.Parameters(400, num_users=40, num_videos=20), tmp_path)
    dataset = logs.build(kuairand.find(source), out=tmp_path / "data", actions=5)
    assert dataset.signal_names[0] == "Click"
    assert dataset.feature_names[-1] == "LongView -5"


def test_texts_with_line_breaks_come_back(built):
    file = io.StringIO(stranger.text(TABLE))
    assert "pen\ncase" in {row["item_id"] for row in csv.DictReader(file)}
    assert "pen\ncase" in built.item_ids


def test_who_is_in_which_split_never_changes():
    """The first numbers of SplitMix64 from state 0, as its authors print them, and folds that do not follow splits."""
    first = [0xE220A8397B1DCDAF / 2**64, 0x6E789E6AA1B965F4 / 2**64]
    gamma = np.array([0, 0x9E3779B97F4A7C15], np.uint64)
    np.testing.assert_allclose(splits._uniform(gamma, 0), first, rtol=1e-15)
    ids = np.arange(12)
    assert splits.split_users(ids, 3, (0.5, 0.3, 0.2)).tolist() == [0, 0, 0, 2, 0, 2, 2, 0, 0, 2, 1, 1]
    assert splits.fold_users(ids, 3, 2).tolist() == [1, 0, 0, 0, 1, 1, 0, 1, 0, 1, 0, 0]
    names = np.array([f"u{k}" for k in ids])
    assert splits.split_users(names, 3, (0.5, 0.3, 0.2)).tolist() == [0, 2, 1, 1, 0, 0, 0, 2, 1, 1, 0, 0]


def test_a_whole_number_is_in_the_same_split_beside_texts():
    """Next week's log may have a guest: the users that both logs have stay where they are."""
    ids = np.array([-(2**63), -5, 0, *range(1, 40), 2**63 - 1])
    both = np.append(ids.astype(str), ["guest", "007", "-0", str(2**63)])
    assert splits._uniform(both, 3)[: len(ids)].tolist() == splits._uniform(ids, 3).tolist()
    assert len(set(splits._uniform(both, 3))) == len(both)  # 007 is not 7
