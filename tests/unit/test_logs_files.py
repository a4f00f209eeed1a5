"""Finding files, looking at them, and the limits of the engine."""

import csv
import io
import shutil

import numpy as np
import pytest

from moac.kuairand import lines, schema
from moac.logs import engine, ingest, layout, queries, records, workspace
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
    records.complain(lines.inspect(path, schema.RANDOM_LOG), None)  # finds nothing wrong


LOG, USERS, VIDEOS = "log_standard_4_22_to_5_08_pure.csv", "user_features_pure.csv", "video_features_basic_pure.csv"
KINDS = {LOG: schema.STANDARD_LOGS[1], USERS: schema.USER_FEATURES, VIDEOS: schema.VIDEO_FEATURES}


def with_field(content, column, value, line=5):
    """The file with another value, as it stands, in one place."""
    rows = list(csv.reader(io.StringIO(content.decode())))
    rows[line - 1][rows[0].index(column)] = "HERE"
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode().replace(b"HERE", value)


def read(folder, tmp_path, name, content):
    """Look at a spoilt file and read it, as a build does; the rows."""
    path = tmp_path / name
    path.write_bytes(content)
    file = lines.inspect(path, KINDS[name])
    work = ingest.Work(tmp_path, 2)
    work.all_raw.mkdir(parents=True, exist_ok=True)
    with engine.connect(engine.limits("600MB", 1), tmp_path / "spill") as connection:
        if file.is_log:
            ingest.scatter(connection, file, False, work)
            return connection.execute(queries.rows(queries.parquet(*work.parts("standard")))).fetchnumpy()
        ingest.table(connection, [file], tmp_path / "table.parquet")
        return connection.execute(queries.rows(queries.parquet(tmp_path / "table.parquet"))).fetchnumpy()


LARGEST = 2**31 - 1
FROM, TO = 946_684_800_000, 4_102_444_800_000
WRONG = [
    *[(LOG, "is_click", v, f"whole number in [0, 1], got {v!r}") for v in ("0x1", "0b1", "+1", "1_0", "2", "-1")],
    *[(LOG, "is_hate", v, f"whole number in [0, 1], got {v!r}") for v in ("2", "-1")],
    *[(LOG, "play_time_ms", v, f"[0, {LARGEST}], got {v!r}") for v in ("-1", "1e5", '"1"', " 1", "1\r")],
    *[(LOG, "play_time_ms", v, f"[0, {LARGEST}], got {v!r}") for v in ("1\0", "-", "\u0661", "NaN")],
    *[(LOG, name, "-1", f"[0, {LARGEST}], got '-1'") for name in ("user_id", "video_id", "duration_ms")],
    *[(LOG, "time_ms", str(v), f"[{FROM}, {TO}], got '{v}'") for v in (FROM - 1, TO + 1, 1_650_000_000, 2**63 - 1)],
    *[(LOG, "hourmin", v, f"[-32768, 32767], got {v!r}") for v in ("32768", "-32769")],
    *[(USERS, "user_id", v, f"[0, {LARGEST}], got {v!r}") for v in ("0x1", "1.5", "1e1", "-1", "")],
    *[(USERS, "fans_user_num", v, f"whole number in [{-(2**63)}, {2**63 - 1}], got {v!r}") for v in ("0x1", "1.5")],
    (USERS, "user_active_degree", "a\0b", "text in UTF-8 without NUL"),
    (USERS, "user_active_degree", b"\xe9", "text in UTF-8 without NUL"),
    *[(VIDEOS, "video_duration", v, f"number in [0, {LARGEST}], got {v!r}") for v in ("nan", "inf", "-5", "1e400")],
    (VIDEOS, "visible_status", "inf", "number in [-1e+300, 1e+300], got 'inf'"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "column", "value", "rule"), WRONG)
def test_nonsense_is_refused_with_line_and_column(folder, tmp_path, name, column, value, rule):
    content = with_field(
        (folder / "data" / name).read_bytes(), column, value if isinstance(value, bytes) else value.encode()
    )
    with pytest.raises(ValueError) as raised:
        read(folder, tmp_path, name, content)
    assert f"{name}, line 5: `{column}` must be " in str(raised.value)
    assert rule in str(raised.value)


@pytest.mark.parametrize(
    ("name", "column", "value", "kept"),
    [
        (LOG, "is_click", "1", 1), (LOG, "is_hate", "0", 0), (LOG, "play_time_ms", str(LARGEST), LARGEST),
        (LOG, "play_time_ms", "007", 7), (LOG, "video_id", "0", 0), (LOG, "time_ms", str(FROM), FROM),
        (LOG, "time_ms", str(TO), TO), (LOG, "tab", "-1", -1), (USERS, "fans_user_num", "-124", -124),
        (USERS, "user_active_degree", '"a,""b"', 'a,"b'), (VIDEOS, "video_duration", "0", 0),
        (VIDEOS, "video_duration", "1e5", 1e5), (VIDEOS, "author_id", "12.0", "12.0"),
        (VIDEOS, "server_width", "", None),
    ],
)  # fmt: skip
def test_what_is_unusual_and_right_is_read(folder, tmp_path, name, column, value, kept):
    found = read(folder, tmp_path, name, with_field((folder / "data" / name).read_bytes(), column, value.encode()))
    assert kept in np.ma.MaskedArray(found[column]).tolist()


@pytest.mark.parametrize("name", [LOG, USERS, VIDEOS])
def test_a_mark_of_byte_order_and_an_empty_line_change_nothing(folder, tmp_path, name):
    content = (folder / "data" / name).read_bytes()
    expected = read(folder, tmp_path, name, content)
    shutil.rmtree(tmp_path / "work")
    found = read(folder, tmp_path, name, b"\xef\xbb\xbf" + content + b"\n")
    assert list(found) == list(expected)
    assert all(found[column].tolist() == expected[column].tolist() for column in expected)


@pytest.mark.parametrize("block", [1000, lines.LONGEST - 1, lines.LONGEST, lines.LONGEST + 1, 1 << 22])
@pytest.mark.parametrize("at", [1, 2, 5])
def test_a_line_is_as_long_as_it_may_be_and_no_longer(folder, tmp_path, monkeypatch, at, block):
    """Whichever line it is, and wherever the blocks that are read at a time begin."""
    monkeypatch.setattr(lines, "_BLOCK", block)
    path, rows = tmp_path / LOG, (folder / "data" / LOG).read_bytes().splitlines(keepends=True)[:9]
    rows[at - 1] = (rows[at - 1].rstrip() + b",").ljust(lines.LONGEST - 1, b"0") + b"\n"
    path.write_bytes(b"".join(rows))
    assert lines.inspect(path, KINDS[LOG]).rows == 8
    rows[at - 1] = b"0" + rows[at - 1]
    path.write_bytes(b"".join(rows))
    with pytest.raises(ValueError, match=f"{LOG}, line {at}: must have at most 131072 bytes, got more"):
        lines.inspect(path, KINDS[LOG])


def test_rows_that_the_engine_does_not_find_are_missed(folder, tmp_path, monkeypatch):
    """It leaves out a line of 50 MB without a word."""
    monkeypatch.setattr(lines, "LONGEST", 1 << 30)
    header = (folder / "data" / LOG).read_bytes().partition(b"\n")[0]
    with pytest.raises(ValueError, match="it has 1 rows, and only 0 of them were found"):
        read(folder, tmp_path, LOG, header + b"\n" + b"1" * 50_000_000 + b"\n")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace(b"\n", b"\r"), "line 1: must end with a line feed, got a carriage return alone"),
        (lambda text: text[:-1] + b"\r\n", "line 168: `tab` must be a whole number"),
        (lambda text: text.replace(b"\n", b"\r\n", 4), "line 5: must end with carriage return and line feed"),
        (
            lambda text: text.replace(b"\n", b",tab\n", 1),
            "line 1: must name every column, each once, got `tab` 2 times",
        ),
        (lambda text: text.replace(b"\n", b",\n", 1), "line 1: must name every column, each once, got `` 1 times"),
        (lambda text: text.decode().encode("utf-16"), "line 1: must name the column `user_id`"),
        (lambda text: text.replace(b"\n", b"\n   \n", 1), "line 2: must have 19 fields, got 1"),
        (lambda text: with_field(text, "tab", b"x" * 9_999), f"got '{'x' * 40}…'."),
    ],
)
def test_a_log_of_another_form_is_refused(folder, tmp_path, change, words):
    with pytest.raises(ValueError) as raised:
        read(folder, tmp_path, LOG, change((folder / "data" / LOG).read_bytes()))
    assert words in str(raised.value)


def test_a_record_over_several_lines_does_not_hide_what_is_wrong(folder, tmp_path):
    content = with_field((folder / "data" / USERS).read_bytes(), "user_active_degree", b'"two\nlines"', line=3)
    assert "two\nlines" in read(folder, tmp_path, USERS, content)["user_active_degree"].tolist()
    rows = content.splitlines(keepends=True)
    rows[8] = b"0x" + rows[8]
    with pytest.raises(ValueError, match="line 9: `user_id` must be a whole number"):
        read(folder, tmp_path, USERS, b"".join(rows))


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
