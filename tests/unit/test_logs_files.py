"""Finding files, looking at them, and the limits of the engine."""

import numpy as np
import pytest

from moac.kuairand import lines, schema
from moac.logs import engine, layout, workspace
from moac.logs.statistics import per_user, signals
from tests.helpers.kuairand import generated


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return generated(tmp_path_factory.mktemp("files"), rows=300, num_users=30, num_videos=30)


def test_a_variant_is_found_from_any_of_its_folders(folder):
    found = [layout.find(place) for place in (folder.parent, folder, folder / "data")]
    assert found[0] == found[1] == found[2]
    assert found[0].variant == "pure"
    assert [path.name for path in found[0].logs] == [
        "log_standard_4_08_to_4_21_pure.csv", "log_standard_4_22_to_5_08_pure.csv", "log_random_4_22_to_5_08_pure.csv",
    ]  # fmt: skip
    assert found[0].statistics == ()
    assert len(layout.find(folder, statistics=True).statistics) == 1


def test_a_random_log_that_is_given_takes_the_place_of_the_one_beside(folder, tmp_path):
    given = tmp_path / "mine.csv"
    given.write_bytes((folder / "data" / "log_random_4_22_to_5_08_pure.csv").read_bytes())
    found = layout.find(folder, given)
    assert found.random == (given,)
    assert found.files[-1] == (given, schema.RANDOM_LOG)


def test_a_file_that_is_there_twice_is_ambiguous(folder, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "user_features_pure.csv").write_text("user_id\n")
    with pytest.raises(ValueError, match=r"user_features_pure.csv must be there once, got .*/a/.* and .*/b/"):
        layout.find(tmp_path)


def test_every_official_name_is_that_of_one_kind():
    names = [name for kind in schema.KINDS for variant in schema.VARIANTS for name in kind.file_names(variant)]
    assert len(names) == len(set(names))
    assert schema.VIDEO_STATISTICS.file_names("27k")[2] == "video_features_statistic_27k_part3.csv"
    assert len(schema.STATISTICS) == 52
    assert len(schema.USERS) == 31


def test_columns_in_another_order_and_columns_more_are_read_by_name(folder, tmp_path):
    kind = schema.USER_FEATURES
    rows = [line.split(",") for line in (folder / "data" / "user_features_pure.csv").read_text().splitlines()]
    path = tmp_path / "user_features_pure.csv"
    path.write_text("\n".join(",".join(["more", *row]) for row in rows) + "\n")
    assert lines.inspect(path, kind).header[:2] == ("more", "user_id")


def test_a_line_that_ends_like_dos_is_a_line(folder, tmp_path):
    path = tmp_path / "log.csv"
    text = (folder / "data" / "log_standard_4_22_to_5_08_pure.csv").read_bytes()
    path.write_bytes(text.replace(b"\n", b"\r\n"))
    lines.complain(lines.inspect(path, schema.RANDOM_LOG), None)  # finds nothing wrong


@pytest.mark.parametrize(
    ("text", "size"),
    [("2GB", 2 * 10**9), ("1.5gib", 3 * 2**29), (" 700 MB ", 700 * 10**6), ("1TB", 10**12)],
)
def test_sizes_are_read(text, size):
    assert engine.limits(text, None).memory == size


def test_a_cap_too_small_for_the_data_is_said(tmp_path):
    limits = engine.Limits(engine._RESERVED + 2_000_000, 1)
    with (
        pytest.raises(ValueError, match="`memory_limit` of 402MB is too small for this data"),
        engine.connect(limits, tmp_path / "spill") as connection,
    ):
        connection.execute("SELECT list(i) FROM range(10000000) AS t(i)").fetchall()


def test_a_long_query_shows_how_far_it_is_and_can_be_interrupted(tmp_path):
    shown = []

    def stop(share):
        shown.append(share)
        if len(shown) == 2:
            raise KeyboardInterrupt

    def work():
        with pytest.raises(Exception, match="INTERRUPT"):
            connection.execute("SELECT sum(a.i * b.i) FROM range(1000000) a(i), range(1000000) b(i)").fetchall()

    with engine.connect(engine.limits("600MB", 1), tmp_path) as connection:
        with pytest.raises(KeyboardInterrupt):
            engine.watch(connection, work, stop)
        done = []
        engine.watch(connection, lambda: done.append(connection.execute("SELECT 7").fetchone()), stop)
    assert done == [(7,)]
    assert all(0 <= share <= 1 for share in shown)


def test_an_error_in_a_watched_query_comes_out(tmp_path):
    def fail():
        raise ValueError("as it is")

    with engine.connect(engine.limits("600MB", 1), tmp_path) as connection, pytest.raises(ValueError, match="as it is"):
        engine.watch(connection, fail, lambda share: None)


def test_a_failure_leaves_nothing_and_a_success_everything(tmp_path):
    with pytest.raises(RuntimeError), workspace.building(tmp_path / "out") as folder:
        (folder / "half").write_text("half")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with workspace.building(tmp_path / "deep" / "out") as folder:
        (folder / "whole").write_text("whole")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["out"]
    assert (tmp_path / "deep" / "out" / "whole").exists()


def test_shares_are_of_all_amounts_as_in_the_papers_table():
    """The printed amounts give the printed shares."""
    amounts = [254_940, 5_190, 203, 1_438, 349, 213, 199_122]
    found = signals(amounts, amounts, 480_385)
    shares = [round(100 * signal["share"], 3) for signal in found.values()]
    np.testing.assert_allclose(shares, [55.25, 1.125, 0.044, 0.312, 0.076, 0.046, 43.15], atol=5e-3)


def test_quantiles_of_a_number_per_user():
    found = per_user([1, 2, 3, 4, 100])
    assert (found["min"], found["median"], found["max"], found["mean"]) == (1, 3, 100, 22)
    assert per_user([])["mean"] == 0
