"""The built arrays against a plain reading of the same files."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from moac import logs
from moac.logs import buckets, building, ingest, workspace
from moac.logs.dataset import LoggedDataset
from moac.runs import executors
from tests.helpers.kuairand import REAL_PURE, REAL_RANDOM, generated, plain, real_rows, signals


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return generated(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def built(source, tmp_path_factory):
    out = tmp_path_factory.mktemp("built") / "data"
    return out, logs.build(source, out, logs.Options(actions=30))


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
            np.testing.assert_allclose(dataset.reward[at], signals(row), rtol=1e-6)
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
def test_real_rows_are_what_a_plain_reading_finds(tmp_path):
    about = logs.build(REAL_PURE, tmp_path / "data", logs.Options(random_log=REAL_RANDOM))
    standard = about["logs"]["standard"]
    assert (standard["rows_read"], standard["rows"]) == (205_152, 200_264)
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
    for k, (name, signal) in enumerate(about["parts"]["rows"]["signals"].items()):
        assert dataset.signal_names[k] == name
        assert signal["amount"] == np.count_nonzero(dataset.reward[:, k])
        assert signal["sum"] == pytest.approx(np.abs(dataset.reward[:, k]).sum(), rel=1e-5)
    assert sum(s["share"] for s in about["parts"]["rows"]["signals"].values()) == pytest.approx(1)
    for name, split in about["parts"]["rows"]["splits"].items():
        assert split["rows"] == len(dataset.rows(name))
    assert {entry["file"] for entry in about["sources"]} == {
        path.name for path in (source / "data").glob("*.csv") if "statistic" not in path.name
    }
    assert not (out / "work").exists()


def test_neither_memory_nor_threads_change_the_content(source, built, tmp_path):
    again = logs.build(source, tmp_path / "x", logs.Options(actions=30, memory_limit="500MB", threads=1))
    assert again["content"] == built[1]["content"]
    other = logs.build(source, tmp_path / "y", logs.Options(actions=30, split_seed=1))
    assert other["content"] != built[1]["content"]


def test_processes_build_what_one_does(source, tmp_path, monkeypatch):
    monkeypatch.setattr(ingest, "_BYTES_PER_BUCKET", 1 << 16)
    here = logs.build(source, tmp_path / "here", logs.Options(actions=30))
    with executors.opened("process", workers=1) as process:
        there = logs.build(source, tmp_path / "there", logs.Options(actions=30, executor=process))
    assert len(list((tmp_path / "there" / "rows").iterdir())) > 1
    assert there["content"] == here["content"]


def test_buckets_hold_the_same_rows_however_many_there_are(source, built, tmp_path, monkeypatch):
    monkeypatch.setattr(ingest, "_BYTES_PER_BUCKET", 1 << 15)
    about = logs.build(source, tmp_path / "many", logs.Options(actions=30))
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
    about = logs.build(alone, tmp_path / "data", logs.Options(actions=5))
    dataset = LoggedDataset.from_parquet(tmp_path / "data")
    assert len(about["absent"]) == 2
    assert dataset.random is None
    np.testing.assert_allclose(dataset.propensity, 1 / 5)


def test_27k_has_its_parts(tmp_path):
    source = generated(tmp_path, rows=800, variant="27k", num_users=60)
    about = logs.build(source, tmp_path / "data", logs.Options(actions=10, video_statistics=True))
    assert about["name"] == "kuairand-27k"
    assert len([entry for entry in about["sources"] if entry["file"].startswith("log_standard")]) == 4
    assert "test period" in about["warnings"][0]
    assert LoggedDataset.from_parquet(tmp_path / "data").tables.items.shape[1] == 15


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
        ({"actions": 1}, "`actions` must be at least 2"),
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
        logs.build(source, tmp_path / "data", logs.Options(**options))
    assert list(tmp_path.iterdir()) == []


def counted(function, done):
    """The function, its name noted whenever it is called."""

    def called(*given, **named):
        done.append(function.__name__)
        return function(*given, **named)

    return called


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
    monkeypatch.setattr(ingest, "num_buckets", lambda logs: 4)
    options, done = building.Options(actions=5), []
    whole = building.build(source, tmp_path / "whole", options)

    def interrupt(stage, finished, total):
        if stage == when and finished >= total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        building.build(source, tmp_path / "data", options, interrupt)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".data.building", "whole"]
    for name in ("clean", "index"):
        monkeypatch.setattr(buckets, name, counted(getattr(buckets, name), done))
    assert building.build(source, tmp_path / "data", options) == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "whole"]
    assert (done.count("clean"), done.count("index")) == left
    files = [path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole").rglob("*") if path.is_file()]
    assert sorted(files) == sorted(
        p.relative_to(tmp_path / "data") for p in (tmp_path / "data").rglob("*") if p.is_file()
    )
    for name in files:
        assert (tmp_path / "data" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


@pytest.mark.slow
@pytest.mark.parametrize("change", ["another option", "a torn bucket", "a note that is none"])
def test_what_an_interrupted_build_left_is_used_only_if_it_fits(change, source, tmp_path, monkeypatch):
    options = building.Options(actions=5)

    def interrupt(stage, finished, total):
        if stage == "indexing users":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        building.build(source, tmp_path / "data", options, interrupt)
    left = tmp_path / ".data.building"
    if change == "another option":
        options = building.Options(actions=6)
    elif change == "a torn bucket":
        torn = next((left / "dataset" / "rows").iterdir())
        torn.write_bytes(torn.read_bytes()[:-9])
    else:
        (left / "journal" / "clean-000.json").write_text("[" * 100_000)
    again = building.build(source, tmp_path / "data", options)
    assert again == building.build(source, tmp_path / "whole", options)


def test_a_mistake_leaves_nothing_behind(source, tmp_path):
    with pytest.raises(ValueError, match="`actions` must be at most"):
        building.build(source, tmp_path / "data", building.Options(actions=10_000))
    assert list(tmp_path.iterdir()) == []


def test_one_build_at_a_time(source, tmp_path):
    with workspace.resumable(tmp_path / "data"), ThreadPoolExecutor(1) as other:
        second = other.submit(building.build, source, tmp_path / "data", building.Options(actions=5))
        with pytest.raises(ValueError, match=r"/data is in use by process \d+: wait until it ends.$"):
            second.result()


def test_a_build_that_was_killed_before_it_removed_its_notes(source, tmp_path):
    """The dataset is there and whole; the next build says so, and the notes go."""
    (tmp_path / "data").mkdir()
    (tmp_path / ".data.building" / "journal").mkdir(parents=True)
    with pytest.raises(ValueError, match="`out` must not exist yet"):
        building.build(source, tmp_path / "data", building.Options(actions=5))
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_notes_outlive_the_building(source, tmp_path, monkeypatch):
    """Whatever is removed on the way to the end, what has finished is known until the dataset is in its place."""
    options, work = building.Options(actions=5), []

    def remove(path, **named):
        if path.name == ".data.building":
            assert (tmp_path / "data").exists()
            assert (path / "journal" / "manifest.json").exists()
        work.append(path.name)

    monkeypatch.setattr(building.shutil, "rmtree", remove)
    building.build(source, tmp_path / "data", options)
    assert work[-2:] == ["work", ".data.building"]
