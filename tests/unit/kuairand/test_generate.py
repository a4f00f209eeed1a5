"""Generated logs: what is promised of their truth, their rates and their layout."""

import csv
import hashlib

import duckdb
import numpy as np
import pytest

from moac.kuairand import generate, schema
from moac.kuairand.simulator import (
    FIRST_MS,
    LAST_MS,
    LEVEL_SHARE,
    LEVELS,
    NUM_KINDS,
    SECOND_MS,
    SIGNS,
    TAB_SHARE,
    blocks,
)  # fmt: skip
from tests.helpers.kuairand import REAL_PURE, real_rows

MODEL = generate.UserModel.of(3, num_videos=60)
ROWS = 20_000


def another_policy(model, seed=0):
    """Away from the logging policy, by kind and tab."""
    noise = np.exp(np.random.default_rng(seed).standard_normal(model.behaviour.shape))
    policy = np.sqrt(model.behaviour) * noise
    return policy / policy.sum(axis=-1, keepdims=True)


def cluster_error(log, values):
    """Standard error of the mean of [N, M] values whose rows are correlated within a user."""
    sums = np.zeros((len(log.users.kind), values.shape[1]))
    np.add.at(sums, log.user, values - values.mean(axis=0))
    return np.sqrt((sums**2).sum(axis=0)) / len(values)


def counted_values(model, policy, videos):
    """The definition of the true values, one probability after another."""
    total, mass = np.zeros(7), 0.0
    for z in range(NUM_KINDS):
        for c, tab_share in enumerate(TAB_SHARE):
            kept = model.row_share[z] * tab_share * model.behaviour[z, c, videos].sum()
            mass += kept
            for a, video in enumerate(videos):
                for e, level_share in enumerate(LEVEL_SHARE):
                    reward = model.reward[z, c, model.video_class[video], e]
                    total += kept * policy[z, c, a] * level_share * reward
    return total / mass


def test_probabilities_are_probabilities():
    np.testing.assert_allclose(MODEL.behaviour.sum(axis=-1), 1, rtol=1e-12)
    np.testing.assert_allclose(MODEL.logging_policy([3, 5, 8]).sum(axis=-1), 1, rtol=1e-12)
    assert MODEL.behaviour.min() > 0
    assert ((MODEL.chance > 0) & (MODEL.chance < 1)).all()
    assert LEVELS @ LEVEL_SHARE == 0
    assert (LEVELS**2) @ LEVEL_SHARE == 1


def test_the_logging_policy_reaches_the_published_rates_exactly():
    values = MODEL.true_values(MODEL.behaviour)
    np.testing.assert_allclose(values[:6] * SIGNS[:6], list(generate.RATES.values()), rtol=1e-9)


def test_a_model_is_a_function_of_its_seed():
    again, other = generate.UserModel.of(3, num_videos=60), generate.UserModel.of(4, num_videos=60)
    np.testing.assert_array_equal(MODEL.behaviour, again.behaviour)
    np.testing.assert_array_equal(MODEL.reward, again.reward)
    assert abs(MODEL.behaviour - other.behaviour).max() > 0.01


@pytest.mark.parametrize("videos", [list(range(60)), [7, 1, 40, 22]])
def test_true_values_are_the_sum_over_all_that_can_happen(videos):
    policy = another_policy(MODEL)[..., videos]
    policy /= policy.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(
        MODEL.true_values(policy, videos), counted_values(MODEL, policy, videos), rtol=1e-10, atol=0
    )
    flat = policy[:, 0]
    by_tab = np.repeat(flat[:, None], len(TAB_SHARE), axis=1)
    np.testing.assert_allclose(MODEL.true_values(flat, videos), MODEL.true_values(by_tab, videos), rtol=1e-12)


def test_rows_under_another_policy_have_its_true_values():
    policy = another_policy(MODEL)
    log = generate.log(200_000, 1, model=MODEL, num_users=20_000, policy=policy)
    error = (log.reward.mean(axis=0) - MODEL.true_values(policy)) / cluster_error(log, log.reward)
    assert abs(error).max() < 4
    of_these = MODEL.true_values(policy[log.users.kind], users=log.users)
    error = (log.reward.mean(axis=0) - of_these) / (log.reward.std(axis=0) / np.sqrt(len(log.reward)))
    assert abs(error).max() < 4


def test_weighting_by_the_propensities_gives_another_policys_true_values():
    policy = another_policy(MODEL)
    log = generate.log(200_000, 2, model=MODEL, num_users=20_000)
    ratio = policy[log.kind, log.tab, log.action] / log.propensity
    error = (ratio[:, None] * log.reward).mean(axis=0) - MODEL.true_values(policy)
    assert abs(error / cluster_error(log, ratio[:, None] * log.reward)).max() < 4
    assert abs(ratio.mean() - 1) < 4 * ratio.std() / np.sqrt(len(ratio))


def test_rows_on_some_videos_alone_have_the_values_and_propensities_given_those():
    videos = np.array([4, 9, 30, 31, 55])
    policy = another_policy(MODEL)[..., videos]
    policy /= policy.sum(axis=-1, keepdims=True)
    log = generate.log(300_000, 5, model=MODEL, num_users=20_000)
    kept = np.isin(log.action, videos)
    place = np.searchsorted(videos, log.action[kept])
    logging = MODEL.logging_policy(videos)[log.kind[kept], log.tab[kept], place]
    ratio = policy[log.kind[kept], log.tab[kept], place] / logging
    estimate = (ratio[:, None] * log.reward[kept]).sum(axis=0) / ratio.sum()
    influence = np.zeros((len(kept), 7))
    influence[kept] = ratio[:, None] * (log.reward[kept] - estimate)
    error = cluster_error(log, influence) * len(kept) / kept.sum()
    assert abs((estimate - MODEL.true_values(policy, videos)) / error).max() < 4


def test_intervals_over_users_cover_the_truth_and_intervals_over_rows_do_not():
    truth, covered = MODEL.true_values(MODEL.behaviour)[0], {"rows": 0, "users": 0}
    for seed in range(100):
        log = generate.log(4000, 100 + seed, model=MODEL, num_users=150)
        click = log.reward[:, :1]
        error = {"rows": click.std() / np.sqrt(len(click)), "users": cluster_error(log, click)[0]}
        for name in covered:
            covered[name] += int(abs(click.mean() - truth) < 1.96 * error[name])
    assert 88 <= covered["users"] <= 100
    assert covered["rows"] < 75


def test_the_random_log_is_uniform():
    users = MODEL.draw_users(500, 0)
    (block,) = blocks(MODEL, None, users, 60_000, 0, random=True)
    counts = np.bincount(block.video, minlength=60)
    statistic = ((counts - 1000) ** 2 / 1000).sum()
    assert statistic < 112  # chi-squared with 59 degrees of freedom: 0.9999 quantile 110
    assert block.time_ms.min() >= SECOND_MS
    assert block.time_ms.max() < LAST_MS


def test_people_rows_and_times_are_in_order_and_do_not_depend_on_the_rest():
    users = MODEL.draw_users(3000, 0)
    drawn = list(blocks(MODEL, MODEL.behaviour, users, 700_000, 0))
    assert len(drawn) == 3
    user, time = (np.concatenate([getattr(block, name) for block in drawn]) for name in ("user", "time_ms"))
    assert len(user) == 700_000
    assert (np.diff(user) >= 0).all()
    assert (np.diff(time)[np.diff(user) == 0] >= 0).all()
    assert time.min() >= FIRST_MS
    counts = np.bincount(user, minlength=3000)
    expected = 700_000 * users.share
    assert abs((counts - expected) / np.sqrt(expected)).max() < 5
    alone = list(blocks(MODEL, MODEL.behaviour, users, 700_000, 0))[1]
    np.testing.assert_array_equal(alone.video, drawn[1].video)


def test_a_log_becomes_a_dataset_with_the_same_numbers():
    log = generate.log(2000, 8, model=MODEL)
    dataset = log.dataset()
    assert dataset.signal_names == tuple(signal.name for signal in schema.SIGNALS)
    np.testing.assert_allclose(dataset.reward.mean(axis=0), log.reward.mean(axis=0), rtol=1e-5, atol=1e-9)
    np.testing.assert_array_equal(np.sort(dataset.action_ids[dataset.action]), np.sort(log.action))
    np.testing.assert_allclose(np.sort(dataset.propensity), np.sort(log.propensity), rtol=1e-6)
    assert log.dataset(known=False).propensity is None


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Files by variant, with a small pool so that every part has rows."""
    root = tmp_path_factory.mktemp("generated")
    return {
        variant: generate.write(generate.Parameters(ROWS, variant, 7, num_users=2000), root / variant)
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


@real_rows
def test_headers_and_quoting_are_those_of_the_real_files(written):
    for real in (REAL_PURE / "data").glob("*.csv"):
        generated = written["pure"] / "data" / real.name
        with real.open(newline="") as a, generated.open(newline="") as b:
            assert a.readline() == b.readline()
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
    users, videos, statistics = (
        table(written["pure"], kind, "pure")
        for kind in (schema.USER_FEATURES, schema.VIDEO_FEATURES, schema.VIDEO_STATISTICS)
    )
    assert [len(t.fetchall()) for t in (users, videos, statistics)] == [2000, 7583, 7583]
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
    again = generate.write(generate.Parameters(ROWS, "pure", 7, num_users=2000), tmp_path)
    assert digests(again) == digests(written["pure"])
    other = generate.write(generate.Parameters(ROWS, "pure", 8, num_users=2000), tmp_path / "other")
    differing = {name for name, digest in digests(other).items() if digest != digests(again)[name]}
    assert differing == set(digests(again))


def test_an_existing_folder_a_full_disk_and_wrong_numbers_are_said(written, tmp_path):
    with pytest.raises(ValueError, match="KuaiRand-Pure exists already"):
        generate.write(generate.Parameters(10), written["pure"].parent)
    with pytest.raises(ValueError, match="the disk is too full"):
        generate.write(generate.Parameters(10**16), tmp_path)
    assert list(tmp_path.iterdir()) == []
    for wrong in ({"rows": 0}, {"rows": 5, "seed": -1}, {"rows": 5, "num_users": 0}, {"rows": 5, "random_rows": 0}):
        with pytest.raises(ValueError, match=r"must be at least [01], got"):
            generate.Parameters(**wrong)
    with pytest.raises(ValueError, match="`variant` must be one of pure, 1k, 27k, got 'x'"):
        generate.Parameters(5, "x")
    with pytest.raises(ValueError, match=r"`policy` must have shape \(7, 60\) or \(7, 5, 60\), got \(3, 60\)"):
        MODEL.true_values(np.ones((3, 60)))
    with pytest.raises(ValueError, match="sum to 1"):
        MODEL.true_values(np.ones((7, 60)))
    with pytest.raises(ValueError, match=r"`videos` must be ids from 0 to 59"):
        MODEL.true_values(np.ones((7, 1)), [60])


def test_a_generator_that_is_stopped_leaves_nothing(tmp_path):
    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate.write(generate.Parameters(100), tmp_path, stop)
    assert list(tmp_path.iterdir()) == []


def test_a_single_row_is_enough(tmp_path):
    told = []
    folder = generate.write(generate.Parameters(1), tmp_path, lambda done, total: told.append((done, total)))
    assert told == [(1, 2), (2, 2)]
    rows = sum(len(table(folder, kind, "pure").fetchall()) for kind in schema.STANDARD_LOGS)
    assert rows in (1, 2)
