"""The built arrays against a plain reading of the same files."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import duckdb
import numpy as np
import pytest

from moac import files, kuairand, locks, logs
from moac.kuairand.schema import LOG, SIGNALS
from moac.logs import LoggedDataset, buckets, building
from moac.logs.schema import Schema, Signal, Table
from moac.runs import executors
from tests.helpers.kuairand import REAL_PURE, REAL_RANDOM, build, generated, plain, real_rows, signals


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return generated(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def built(source, tmp_path_factory):
    out = tmp_path_factory.mktemp("built") / "data"
    return out, build(source, out, actions=30)


def windows(dataset, observation):
    """Ids of the videos in each state, newest first."""
    ids = np.asarray(dataset.item_ids)
    found = []
    for user, end in zip(np.asarray(observation.user), np.asarray(observation.end), strict=True):
        first = dataset.tables.first[user]
        found.append(ids[dataset.tables.history[max(first, end - 20) : end]][::-1].tolist())
    return found


def check_part(dataset, expected, random):
    """Every row of a part, in order, against the plain reading."""
    actions = {video: k for k, video in enumerate(expected.top)}
    rows = np.arange(dataset.num_rows)
    before, after = windows(dataset, dataset.observation(rows)), windows(dataset, dataset.next_observation(rows))
    at = 0
    for user in dataset.user_ids.tolist():
        views = expected.views[user]
        mine = [k for k, row in enumerate(views) if row["random"] == random and row["video_id"] in actions]
        for number, k in enumerate(mine):
            row, last = views[k], number == len(mine) - 1
            assert dataset.user_ids[dataset.user[at]] == user
            assert dataset.action[at] == actions[row["video_id"]]
            np.testing.assert_allclose(dataset.reward[at], signals(row), rtol=1e-6, atol=1e-6)
            assert dataset.time[at] == row["time_ms"]
            local = datetime.fromtimestamp(row["time_ms"] // 1000, UTC) + timedelta(hours=8)
            assert dataset.context[at].tolist() == [row["tab"], local.hour, local.weekday()]
            assert dataset.truncated[at] == last
            assert not dataset.terminated[at]
            assert before[at] == expected.windows(user, k)
            assert after[at] == expected.windows(user, k + 1 if last else mine[number + 1])
            at += 1
    assert at == dataset.num_rows


def test_every_row_is_what_a_plain_reading_finds(source, built):
    out, about = built
    paths = sorted((source / "data").glob("log_*.csv"))
    expected = plain(paths, 30)
    dataset = LoggedDataset.from_parquet(out)
    assert dataset.action_ids.tolist() == expected.top
    assert sum(log["rows_read"] for log in about["logs"].values()) == expected.read
    assert sum(log["rows"] for log in about["logs"].values()) == sum(map(len, expected.views.values()))
    assert about["logs"]["standard"]["duplicates"] > 0
    check_part(dataset, expected, random=False)
    check_part(dataset.random, expected, random=True)


@real_rows
def test_real_rows_are_built_bit_for_bit_as_before_where_states_hold_no_responses(tmp_path):
    found = kuairand.find(REAL_PURE)
    seven = replace(found, schema=replace(found.schema, signals=SIGNALS))  # the paper's
    about = building.build(seven, tmp_path / "data", logs.Options(actions=150, history_responses=False))
    standard = about["logs"]["standard"]
    assert (standard["rows_read"], standard["rows"], about["parts"]["rows"]["rows"]) == (205_152, 200_264, 57_459)
    assert about["absent"] == ["log_standard_4_08_to_4_21_pure.csv", "log_random_4_22_to_5_08_pure.csv"]
    assert about["content"].startswith("b31dbdfe6f8deabd")  # of rows, arrays and encoding


@pytest.mark.slow
@real_rows
def test_real_rows_are_what_a_plain_reading_finds(tmp_path):
    about = build(REAL_PURE, tmp_path / "data", random_log=REAL_RANDOM)
    standard = about["logs"]["standard"]
    assert (standard["rows_read"], standard["rows"]) == (205_152, 200_264)
    assert about["parts"]["rows"]["rows"] == 57_459
    assert about["absent"] == ["log_standard_4_08_to_4_21_pure.csv"]
    expected = plain([next((REAL_PURE / "data").glob("log_standard*")), REAL_RANDOM], 150)
    dataset = LoggedDataset.from_parquet(tmp_path / "data")
    assert dataset.action_ids.tolist() == expected.top
    check_part(dataset.random, expected, random=True)
    counted = sum(row["is_click"] for views in expected.views.values() for row in views if not row["random"])
    assert standard["signals"]["Click"]["amount"] == counted


def test_uniform_exposure_has_a_propensity_and_the_production_policy_has_none(built):
    dataset = LoggedDataset.from_parquet(built[0])
    assert dataset.propensity is None
    np.testing.assert_allclose(dataset.random.propensity, 1 / 30)


def test_manifest_says_what_the_arrays_hold(source, built):
    out, about = built
    dataset = LoggedDataset.from_parquet(out)
    assert about == json.loads((out / "manifest.json").read_text())
    assert about["parts"]["rows"]["rows"] == dataset.num_rows
    assert (about["items_in_states"], about["items_without_features"]) == (len(dataset.item_ids), 0)
    for k, (name, signal) in enumerate(about["parts"]["rows"]["signals"].items()):
        assert dataset.signal_names[k] == name
        assert signal["amount"] == np.count_nonzero(dataset.reward[:, k])
        assert signal["sum"] == pytest.approx(np.abs(dataset.reward[:, k]).sum(), rel=1e-5)
    assert sum(s["share"] for s in about["parts"]["rows"]["signals"].values()) == pytest.approx(1)
    for name, split in about["parts"]["rows"]["splits"].items():
        assert split["rows"] == len(dataset.rows(name))
    assert {entry["file"] for entry in about["sources"]} == {path.name for path in (source / "data").glob("*.csv")}
    assert not (out / "work").exists()


def test_neither_memory_nor_threads_change_the_content(source, built, tmp_path):
    again = build(source, tmp_path / "x", actions=30, memory_limit="500MB", threads=1)
    assert again["content"] == built[1]["content"]
    other = build(source, tmp_path / "y", actions=30, split_seed=1)
    assert other["content"] != built[1]["content"]


def test_processes_build_what_one_does(source, tmp_path, monkeypatch):
    monkeypatch.setattr(building, "_BYTES_PER_BUCKET", 1 << 16)
    here = build(source, tmp_path / "here", actions=30)
    with executors.opened("process", workers=1) as process:
        there = build(source, tmp_path / "there", actions=30, executor=process)
    assert len(list((tmp_path / "there" / "rows").iterdir())) > 1
    assert there["content"] == here["content"]


def test_buckets_hold_the_same_rows_however_many_there_are(source, built, tmp_path, monkeypatch):
    monkeypatch.setattr(building, "_BYTES_PER_BUCKET", 1 << 15)
    about = build(source, tmp_path / "many", actions=30)
    assert len(list((tmp_path / "many" / "rows").iterdir())) > 4
    assert {**about, "content": None} == {**built[1], "content": None}
    check_part(
        LoggedDataset.from_parquet(tmp_path / "many"), plain(sorted((source / "data").glob("log_*.csv")), 30), False
    )


def test_a_random_log_alone_is_a_log_with_propensities(source, tmp_path):
    alone = tmp_path / "alone"
    alone.mkdir()
    for path in (source / "data").iterdir():
        if "standard" not in path.name:
            (alone / path.name).write_bytes(path.read_bytes())
    about = build(alone, tmp_path / "data", actions=5)
    dataset = LoggedDataset.from_parquet(tmp_path / "data")
    assert len(about["absent"]) == 2
    assert dataset.random is None
    np.testing.assert_allclose(dataset.propensity, 1 / 5)


def test_27k_has_its_parts(tmp_path):
    source = generated(tmp_path, rows=800, variant="27k", num_users=60)
    about = build(source, tmp_path / "data", actions=10)
    assert about["name"] == "kuairand-27k"
    assert len([entry for entry in about["sources"] if entry["file"].startswith("log_standard")]) == 4
    assert LoggedDataset.from_parquet(tmp_path / "data").tables.items.shape[1] == 12


def test_description_counts_what_is_there(built):
    found = logs.describe(built[0])
    dataset = LoggedDataset.from_parquet(built[0])
    assert found.rows_per_user.sum() == dataset.num_rows
    assert found.action_views.tolist() == np.bincount(dataset.action, minlength=30).tolist()
    assert found.summary()["states"] == dataset.num_rows
    assert sum(sum(days.values()) for days in found.days.values()) == sum(
        log["rows"] for log in built[1]["logs"].values()
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"actions": 1}, "`actions` must be all or at least 2"),
        ({"actions": 251}, "`actions` must be at most"),
        ({"memory_limit": "2 sheep"}, "such as 2GB"),
        ({"memory_limit": "499MB"}, "at least 500MB"),
        ({"threads": 0}, "`threads` must be at least 1"),
        ({"shares": (0.5, 0.5, 0.5)}, "sum to 1"),
        ({"shares": (0.0, 0.5, 0.5)}, "first positive"),
        ({"split_seed": -1}, "`split_seed`"),
    ],
)
def test_options_that_cannot_be(source, tmp_path, options, words):
    with pytest.raises(ValueError, match=words):
        build(source, tmp_path / "data", **options)
    assert list(tmp_path.iterdir()) == []


def counted(function, done):
    """The function, its name noted whenever it is called."""

    def called(*given, **named):
        done.append(function.__name__)
        return function(*given, **named)

    return called


def interrupted(when):
    """Progress that ends a build in the middle of a stage."""

    def interrupt(stage, finished, total):
        if stage == when and finished >= total / 2:
            raise KeyboardInterrupt

    return interrupt


@pytest.mark.parametrize(
    ("when", "left"),
    [
        ("sorting users", (2, 4)),
        pytest.param("indexing users", (0, 2), marks=pytest.mark.slow),
        pytest.param("writing arrays", (0, 0), marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_build_goes_on_where_it_stopped(when, left, source, tmp_path, monkeypatch):
    """Four buckets, stopped in the middle of a stage: what has finished is not done again; the result is the same."""
    monkeypatch.setattr(building, "num_buckets", lambda logs: 4)
    whole, done = build(source, tmp_path / "whole", actions=5), []
    with pytest.raises(KeyboardInterrupt):
        build(source, tmp_path / "data", progress=interrupted(when), actions=5)
    (unfinished,) = tmp_path.glob(".data.building-*")
    assert {path.name for path in tmp_path.iterdir()} == {unfinished.name, "whole"}
    for name in ("order", "index"):
        monkeypatch.setattr(buckets, name, counted(getattr(buckets, name), done))
    assert build(source, tmp_path / "data", actions=5) == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "whole"]
    assert (done.count("order"), done.count("index")) == left
    files = [path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole").rglob("*") if path.is_file()]
    assert sorted(files) == sorted(
        p.relative_to(tmp_path / "data") for p in (tmp_path / "data").rglob("*") if p.is_file()
    )
    for name in files:
        assert (tmp_path / "data" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_what_another_build_has_left_is_not_used(source, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        build(source, tmp_path / "data", progress=interrupted("indexing users"), actions=5)
    again = build(source, tmp_path / "data", actions=6)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    assert len(LoggedDataset.from_parquet(tmp_path / "data").action_ids) == again["options"]["actions"] == 6


def test_left_rows_that_cannot_be_read_are_one_line_and_are_gone(source, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        build(source, tmp_path / "data", progress=interrupted("indexing users"), actions=5)
    (rows,) = tmp_path.glob(".data.building-*/rows/*")
    rows.write_bytes(rows.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"^[^\n]*work cannot be worked on: [^\n]+$"):
        build(source, tmp_path / "data", actions=5)
    assert list(tmp_path.iterdir()) == []


def test_one_build_at_a_time(source, tmp_path):
    with locks.becoming(tmp_path / "data", "x"), ThreadPoolExecutor(1) as other:
        second = other.submit(build, source, tmp_path / "data", actions=5)
        with pytest.raises(ValueError, match=r"/data is in use by process \d+: wait until it ends.$"):
            second.result()


def test_rows_are_ordered_by_all_columns_and_there_once(source, built):
    """Against a plain sort of the lines, duplicates counted."""
    rows, columns = set(), list(LOG)
    for path in (source / "data").glob("log_*.csv"):
        for line in path.read_text().splitlines()[1:]:
            fields = dict(zip(columns, map(int, line.split(",")), strict=True))
            rows.add((*fields.values(), "random" in path.name))
    first = [columns.index(name) for name in ("user_id", "time_ms", "video_id")]
    expected = sorted(rows, key=lambda row: (*(row[k] for k in first), row))
    names = ", ".join([*columns, "random"])
    (path,) = (built[0] / "rows").iterdir()
    assert duckdb.sql(f"SELECT {names} FROM '{path}'").fetchall() == expected
    copies = duckdb.sql(f"SELECT sum(copies) FROM '{path}'").fetchall()[0][0]
    assert copies == sum(log["rows_read"] for log in built[1]["logs"].values())


def test_a_log_of_another_schema_without_features(tmp_path):
    """Other names, a cost with a fraction and a gap-free text column that nothing is made of."""
    types = {"buyer": "BIGINT", "product": "INTEGER", "at": "BIGINT", "price": "DOUBLE", "shop": "VARCHAR"}
    table = Table("sales", types, {"price": (0, 1e6)}, ("buyer", "product", "at", "price"))
    signals = (Signal("Spent", "price", unit=10), Signal("Cost", "price", sign=-1))
    schema = Schema(table, "buyer", "product", "at", signals, {"weekday": ('"at" % 7', 7)}, window=2)
    large = 2**62
    lines = [f"{large},1,5,2.5,a", f'{large},2,9,0,"b,c"', "3,1,2,10,a", "3,2,3,1,a", "3,2,3,1,a"]
    path = tmp_path / "sales.csv"
    path.write_text("buyer,product,at,price,shop\n" + "\n".join(lines) + "\n")
    about = building.build(
        logs.LogFiles("sales", schema, (path,)), tmp_path / "data", logs.Options(actions=2, shares=(1.0, 0.0, 0.0))
    )
    assert about["logs"]["standard"]["duplicates"] == 1
    dataset = LoggedDataset.from_parquet(tmp_path / "data")
    order = np.lexsort((dataset.time, dataset.user_ids[dataset.user]))
    assert dataset.user_ids[dataset.user][order].tolist() == [3, 3, large, large]
    assert dataset.action_ids[dataset.action][order].tolist() == [1, 2, 1, 2]
    np.testing.assert_allclose(dataset.reward[order], [[1, -10], [0.1, -1], [0.25, -2.5], [0, 0]])
    assert dataset.context[order].tolist() == [[2], [3], [5], [2]]
    assert dataset.num_features == 7 + 2 * 1 + 2 * (1 + 2)
    assert dataset.feature_names[-6:] == ("mean Spent", "mean Cost", "Spent -1", "Cost -1", "Spent -2", "Cost -2")
    assert dataset.feature_names[0] == "weekday=0"
    path.write_text("buyer,product,at,price,shop\n7,1,5,-1,a\n")
    with pytest.raises(ValueError, match=r"sales.csv, row 2: `price` must be in \[0, 1000000.0\], got '-1"):
        building.build(logs.LogFiles("sales", schema, (path,)), tmp_path / "again")


OUTSIDE = [("shared", "history"), ("shared", "action_items"), ("shared", "split"), ("shared", "first")]
OUTSIDE += [("rows", "user"), ("rows", "action"), ("rows", "end")]


@pytest.mark.parametrize(("part", "name"), OUTSIDE)
@pytest.mark.parametrize("wrong", [-1, 10**6])
def test_indices_that_point_outside_are_refused(built, tmp_path, part, name, wrong):
    copied = shutil.copytree(built[0], tmp_path / "data")
    path = copied / "arrays" / f"{part}.safetensors"
    arrays, about = files.read_arrays(path)
    arrays = {key: np.array(value) for key, value in arrays.items()}
    arrays[name] = arrays[name].astype(np.int64)
    arrays[name][-1] = wrong
    files.write_arrays(path, arrays, about)  # with a hash that is right
    with pytest.raises(ValueError, match=f"`{name}` must be in"):
        LoggedDataset.from_parquet(copied)
