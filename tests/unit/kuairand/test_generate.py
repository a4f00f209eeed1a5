"""Generated files: KuaiRand's layout, types and oddities."""

import csv
import hashlib

import duckdb
import numpy as np
import pytest

from moac.kuairand import generate, schema
from tests.helpers.kuairand import REAL_PURE, real_rows

ROWS = 8_000


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Files by variant, with a small pool so that every part has rows."""
    root = tmp_path_factory.mktemp("generated")
    return {
        variant: generate.write(generate.Parameters(ROWS, variant, 7, num_users=2000, num_videos=1000), root / variant)
        for variant in schema.VARIANTS
    }


def table(folder, kind, variant):
    names = [str(folder / "data" / name) for name in kind.file_names(variant)]
    return duckdb.sql(f"SELECT * FROM read_csv({names}, header = true, auto_detect = true)")


@pytest.mark.parametrize("variant", schema.VARIANTS)
def test_the_layout_is_the_official_one(written, variant):
    names = {name for kind in schema.KINDS for name in kind.file_names(variant)}
    assert {path.name for path in (written[variant] / "data").iterdir()} == names
    for kind in schema.KINDS:
        for name in kind.file_names(variant):
            raw = (written[variant] / "data" / name).read_bytes()
            assert raw.split(b"\n")[0].decode().split(",") == list(kind.table.columns)
            assert b"\r" not in raw
            assert raw.endswith(b"\n")
            if kind.table is schema.LOG_TABLE:
                assert raw.count(b",") == 18 * raw.count(b"\n")


def test_a_seed_may_have_any_number_of_digits(tmp_path):
    seed = 10**400
    folder = generate.write(generate.Parameters(50, seed=seed, num_users=5, num_videos=5), tmp_path)
    assert generate.read_parameters(folder).seed == seed


@pytest.mark.parametrize("wrong", [{"rows": 1.5}, {"seed": 0.5}, {"rows": float("nan")}, {"seed": -1}])
def test_counts_and_seeds_are_whole_numbers(wrong):
    with pytest.raises(ValueError, match="must be a whole number of at least"):
        generate.Parameters(**({"rows": 50} | wrong))


@real_rows
def test_headers_and_quoting_are_those_of_the_real_files(written):
    read = {name for kind in schema.KINDS for name in kind.file_names("pure")}
    present = [real for real in (REAL_PURE / "data").glob("*.csv") if real.name in read]
    assert len(present) >= 3  # a log, users, videos; the statistics of videos are never read
    for real in present:
        generated = written["pure"] / "data" / real.name
        with real.open(newline="") as a, generated.open(newline="") as b:
            official, columns = (next(csv.reader(file)) for file in (a, b))
        assert set(columns) <= set(official)
        assert columns == official or not real.name.startswith("log")
        with real.open(newline="") as a, generated.open(newline="") as b:
            quoted = ['"' in file.read() for file in (a, b)]
        assert quoted[0] == quoted[1]


@pytest.mark.parametrize("variant", schema.VARIANTS)
def test_logs_hold_whole_numbers_of_the_schemas_types_in_order(written, variant):
    for kind in (*schema.STANDARD_LOGS, schema.RANDOM_LOG):
        for name in kind.file_names(variant):
            columns = ", ".join(f"'{column}': '{dtype}'" for column, dtype in kind.table.columns.items())
            path = written[variant] / "data" / name
            rows = duckdb.sql(f"SELECT * FROM read_csv('{path}', header = true, columns = {{{columns}}})").fetchnumpy()
            assert len(rows["user_id"]) > 100
            assert (np.diff(rows["user_id"]) >= 0).all()
            assert (np.diff(rows["time_ms"])[np.diff(rows["user_id"]) == 0] >= 0).all()
            assert set(rows["tab"]) == set(generate.TABS)
            assert set(rows["is_rand"]) == {int(kind is schema.RANDOM_LOG)}
            late = "4_22" in name
            assert rows["date"].min() == (20220422 if late else 20220408)
            assert rows["date"].max() == (20220508 if late else 20220421)


def test_feature_files_read_as_the_official_ones_do(written):
    users, videos = (table(written["pure"], kind, "pure") for kind in (schema.USER_FEATURES, schema.VIDEO_FEATURES))
    assert [len(t.fetchall()) for t in (users, videos)] == [2000, 1000]
    types = dict(zip(users.columns, map(str, users.types), strict=True))
    decimals = {name for name, dtype in types.items() if dtype == "DOUBLE"}
    assert decimals == {f"onehot_feat{k}" for k in (4, *range(12, 18))}
    assert {name for name, dtype in types.items() if dtype == "VARCHAR"} == {
        "user_active_degree", *(f"{name}_range" for name in schema.USER_NUMBERS)
    }  # fmt: skip
    order = generate.read_parameters(written["pure"])
    kinds = users.order("user_id").fetchnumpy()["onehot_feat1"]
    np.testing.assert_array_equal(kinds, order.users().kind)
    assert str(videos.types[videos.columns.index("tag")]) == "VARCHAR"


def test_the_quirks_are_there(written):
    folder = written["pure"] / "data"
    count = (
        "SELECT count(*), count(*) FILTER (duration_ms = 0), (SELECT count(*) FROM (SELECT DISTINCT * FROM t)) FROM t"
    )
    standard = duckdb.sql(f"WITH t AS (FROM read_csv('{folder}/log_standard_*.csv')) {count}").fetchall()[0]
    assert standard[2] == ROWS
    assert 0.015 < standard[0] / ROWS - 1 < 0.03
    assert abs(standard[1] / standard[0] - 0.016) < 0.005
    agree = "avg((((time_ms + 28800000) // 3600000 % 24) * 100 = hourmin)::INT)"
    (hours,) = duckdb.sql(f"SELECT {agree} FROM read_csv('{folder}/log_standard_*.csv')").fetchall()[0]
    assert abs(hours - 0.82) < 0.02
    doubled = duckdb.sql(
        f"SELECT DISTINCT tab FROM (SELECT *, count(*) AS n FROM read_csv('{folder}/log_standard_*.csv') GROUP BY ALL) "
        "WHERE n > 1"
    ).fetchall()
    assert doubled == [(6,)]
    text = (folder / "user_features_pure.csv").read_text()
    assert '"[100,1k)"' in text
    with (folder / "user_features_pure.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert 0 < sum(row["onehot_feat4"] == "" for row in rows) < 0.06 * len(rows)
    assert 0 < sum(row["onehot_feat17"] == "" for row in rows) < 0.06 * len(rows)
    with (folder / "video_features_basic_pure.csv").open(newline="") as file:
        videos = list(csv.DictReader(file))
    assert 0.2 < np.mean(["," in video["tag"] for video in videos]) < 0.27
    for name in ("tag", "video_duration", "music_type"):
        assert 0.005 < np.mean([video[name] == "" for video in videos]) < 0.05


def test_a_click_is_a_valid_play_and_a_long_view_a_long_one(written):
    rows = table(written["1k"], schema.STANDARD_LOGS[0], "1k").fetchnumpy()
    np.testing.assert_array_equal(rows["is_click"] == 1, rows["play_time_ms"] > 7000)
    known = rows["duration_ms"] > 0
    assert rows["duration_ms"][known].min() > 7000
    long = rows["play_time_ms"] >= np.minimum(rows["duration_ms"], 18_000)
    np.testing.assert_array_equal(rows["long_view"][known] == 1, long[known])


def test_the_files_hold_the_rows_of_the_log_in_memory(written):
    order = generate.read_parameters(written["27k"])
    log = generate.log(order.rows, order.seed, model=order.model(), num_users=order.num_users)
    names = [str(written["27k"] / "data" / name) for kind in schema.STANDARD_LOGS for name in kind.file_names("27k")]
    rows = duckdb.sql(f"SELECT DISTINCT * FROM read_csv({names}) ORDER BY user_id, time_ms, video_id").fetchnumpy()
    by_time = np.lexsort((log.action, log.time_ms, log.user))
    np.testing.assert_array_equal(rows["user_id"], log.user[by_time])
    np.testing.assert_array_equal(rows["video_id"], log.action[by_time])
    np.testing.assert_allclose(rows["play_time_ms"] / 10_000, log.reward[by_time, 6])
    np.testing.assert_array_equal(-rows["is_hate"], log.reward[by_time, 5])


def digests(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.rglob("*.*"))}


def test_a_seed_makes_the_same_bytes_again_and_another_other_bytes(written, tmp_path):
    again = generate.write(generate.Parameters(ROWS, "pure", 7, num_users=2000, num_videos=1000), tmp_path)
    assert digests(again) == digests(written["pure"])
    other = generate.write(generate.Parameters(ROWS, "pure", 8, num_users=2000, num_videos=1000), tmp_path / "other")
    differing = {name for name, digest in digests(other).items() if digest != digests(again)[name]}
    assert differing == set(digests(again))


def test_an_existing_folder_a_full_disk_and_wrong_numbers_are_said(written, tmp_path):
    with pytest.raises(ValueError, match="KuaiRand-Pure exists already"):
        generate.write(generate.Parameters(10), written["pure"].parent)
    with pytest.raises(ValueError, match="the disk is too full"):
        generate.write(generate.Parameters(10**16), tmp_path)
    assert list(tmp_path.iterdir()) == []
    for wrong in ({"rows": 0}, {"rows": 5, "seed": -1}, {"rows": 5, "num_users": 0}, {"rows": 5, "random_rows": 0}):
        with pytest.raises(ValueError, match=r"must be a whole number of at least [01], got"):
            generate.Parameters(**wrong)
    with pytest.raises(ValueError, match="`variant` must be one of pure, 1k, 27k, got 'x'"):
        generate.Parameters(5, "x")


def test_a_generator_that_is_stopped_leaves_nothing(tmp_path):
    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate.write(generate.Parameters(100, num_videos=50), tmp_path, stop)
    assert list(tmp_path.iterdir()) == []


def test_a_single_row_is_enough(tmp_path):
    told = []
    folder = generate.write(
        generate.Parameters(1, num_videos=50), tmp_path, lambda done, total: told.append((done, total))
    )
    assert told == [(1, 2), (2, 2)]
    rows = sum(len(table(folder, kind, "pure").fetchall()) for kind in schema.STANDARD_LOGS)
    assert rows in (1, 2)
