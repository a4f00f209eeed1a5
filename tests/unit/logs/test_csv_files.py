"""CSV files looked at and read: what is wrong is said with line and column."""

import csv
import io

import numpy as np
import pytest

from moac.kuairand import schema
from moac.logs import csv_files, engine
from moac.logs.csv_files import LONGEST
from tests.helpers.kuairand import generated


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return generated(tmp_path_factory.mktemp("files"), rows=300, num_users=30, num_videos=30)


def test_columns_in_another_order_and_columns_more_are_read_by_name(folder, tmp_path):
    rows = [line.split(",") for line in (folder / "data" / "user_features_pure.csv").read_text().splitlines()]
    path = tmp_path / "user_features_pure.csv"
    path.write_text("\n".join(",".join(["more", *row]) for row in rows) + "\n")
    assert csv_files.inspect(path, TABLES[USERS]).header[:2] == ("more", "user_id")


def test_a_line_that_ends_like_dos_is_a_line(folder, tmp_path):
    path = tmp_path / "log.csv"
    text = (folder / "data" / "log_standard_4_22_to_5_08_pure.csv").read_bytes()
    path.write_bytes(text.replace(b"\n", b"\r\n"))
    csv_files.complain(csv_files.inspect(path, schema.LOG_TABLE), None)  # finds nothing wrong


LOG, USERS, VIDEOS = "log_standard_4_22_to_5_08_pure.csv", "user_features_pure.csv", "video_features_basic_pure.csv"
TABLES = {LOG: schema.LOG_TABLE, USERS: schema.USER_FEATURES.table, VIDEOS: schema.VIDEO_FEATURES.table}


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
    file = csv_files.inspect(path, TABLES[name])
    out = tmp_path / "table.parquet"
    with engine.connect(engine.limits("600MB", 1), tmp_path / "spill") as connection:
        engine.copy_csv(connection, f"SELECT * FROM {engine.csv_table(file)}", [file], out)
        return connection.execute(f"SELECT * FROM {engine.parquet([out])}").fetchnumpy()


LARGEST = 2**31 - 1
FROM, TO = 946_684_800_000, 4_102_444_800_000
WRONG = [
    *[(LOG, "is_click", v, f"whole number in [0, 1], got {v!r}") for v in ("0x1", "+1", "1_0", "2", "-1")],
    (LOG, "is_hate", "2", "whole number in [0, 1], got '2'"),
    *[(LOG, "play_time_ms", v, f"[0, {LARGEST}], got {v!r}") for v in ("-1", "1e5", '"1"', " 1")],
    *[(LOG, "play_time_ms", v, f"[0, {LARGEST}], got {v!r}") for v in ("1\0", "-", "\u0661")],
    *[(LOG, name, "-1", f"[0, {LARGEST}], got '-1'") for name in ("user_id", "duration_ms")],
    *[(LOG, "time_ms", str(v), f"[{FROM}, {TO}], got '{v}'") for v in (FROM - 1, TO + 1)],
    *[(LOG, "hourmin", v, f"[-32768, 32767], got {v!r}") for v in ("32768",)],
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
    found = read(folder, tmp_path, name, b"\xef\xbb\xbf" + content + b"\n")
    assert list(found) == list(expected)
    assert all(found[column].tolist() == expected[column].tolist() for column in expected)


@pytest.mark.parametrize("block", [1000, LONGEST, 1 << 22])
@pytest.mark.parametrize("at", [1, 5])
def test_a_line_is_as_long_as_it_may_be_and_no_longer(folder, tmp_path, monkeypatch, at, block):
    """Whichever line it is, and wherever the blocks that are read at a time begin."""
    monkeypatch.setattr(csv_files, "_BLOCK", block)
    path, rows = tmp_path / LOG, (folder / "data" / LOG).read_bytes().splitlines(keepends=True)[:9]
    rows[at - 1] = (rows[at - 1].rstrip() + b",").ljust(LONGEST - 1, b"0") + b"\n"
    path.write_bytes(b"".join(rows))
    assert csv_files.inspect(path, TABLES[LOG]).rows == 8
    rows[at - 1] = b"0" + rows[at - 1]
    path.write_bytes(b"".join(rows))
    with pytest.raises(ValueError, match=f"{LOG}, line {at}: must have at most 131072 bytes, got more"):
        csv_files.inspect(path, TABLES[LOG])


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
