"""The limits of DuckDB, its progress and its errors; CSV files: what is wrong is said with row and column."""

import csv
import gc
import io
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from moac.cli import process
from moac.kuairand import schema
from moac.logs import engine, source_files
from moac.logs.connection import Connection
from tests.helpers.kuairand import generated

LOG, USERS, VIDEOS = "log_standard_4_22_to_5_08_pure.csv", "user_features_pure.csv", "video_features_basic_pure.csv"
MANY = "SELECT sum(a.i * b.i) FROM range(1000000) a(i), range(1000000) b(i)"
TABLES = {LOG: schema.LOG_TABLE, USERS: schema.USER_FEATURES.table, VIDEOS: schema.VIDEO_FEATURES.table}


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
            connection.execute(MANY).fetchall()

    with engine.connect(engine.limits("600MB", 1), tmp_path) as connection:
        with pytest.raises(KeyboardInterrupt):
            engine.watch(connection, work, stop)
        done = []
        engine.watch(connection, lambda: done.append(connection.execute("SELECT 7").fetchone()), stop)
    assert done == [(7,)]
    assert all(0 <= share <= 1 for share in shown)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("query", [MANY, f"COPY ({MANY}) TO '/dev/null' (FORMAT csv)"], ids=["select", "copy"])
def test_a_signal_during_a_query_ends_it_and_nothing_else(query, number, tmp_path):
    """DuckDB alone raises a RuntimeError, after its other threads have gone through a million times a million rows."""

    def interrupt():
        while not connection.progress > 0:
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    with engine.connect(engine.limits("600MB", 2), tmp_path) as connection, ThreadPoolExecutor(1) as pool:
        with pytest.raises(KeyboardInterrupt) as found, process.terminable():
            pool.submit(interrupt)
            connection.execute(query)
        assert process.exit_code(found.value) == 128 + number
        assert connection.execute("SELECT 7").fetchone() == (7,)


def test_a_connection_that_is_left_open_is_closed_with_what_holds_it():
    """The collector takes the thread of a connection away before the generator that uses it is closed."""

    def rows(holder):
        with Connection() as connection:
            holder.append(connection)
            yield connection.execute("SELECT 7").fetchone()

    cycle = []
    cycle.append(rows(cycle))
    assert next(cycle[0]) == (7,)
    before = threading.active_count()
    del cycle
    gc.collect()
    assert threading.active_count() < before


def test_an_error_in_a_watched_query_comes_out(tmp_path):
    def fail():
        raise ValueError("as it is")

    with engine.connect(engine.limits("600MB", 1), tmp_path) as connection, pytest.raises(ValueError, match="as it is"):
        engine.watch(connection, fail, lambda share: None)


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    """The bytes of each file."""
    folder = generated(tmp_path_factory.mktemp("files"), rows=300, num_users=30, num_videos=30)
    return {name: (folder / "data" / name).read_bytes() for name in TABLES}


@pytest.fixture(scope="module")
def connection(tmp_path_factory):
    with engine.connect(engine.limits("600MB", 1), tmp_path_factory.mktemp("spill")) as opened:
        yield opened


def with_field(content, column, value, row=5):
    """The file with another value, as it stands, in one place."""
    rows = list(csv.reader(io.StringIO(content.decode())))
    rows[row - 1][rows[0].index(column)] = "HERE"
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode().replace(b"HERE", value)


def read(connection, folder, name, content):
    """Look at a spoilt file and read it, as a build does; the rows."""
    path, out = folder / name, folder / "table.parquet"
    path.write_bytes(content)
    source_files.hashed(path, TABLES[name])
    source = engine.source(connection, path, TABLES[name])
    engine.copy_checked(connection, f"SELECT * FROM {source.table}", [source], out)
    return connection.execute(f"SELECT * FROM {engine.parquet([out])}").fetchnumpy()


LARGEST = 2**31 - 1
FROM, TO = 946_684_800_000, 4_102_444_800_000
WRONG = [
    *[(LOG, "is_click", v, f"`is_click` must be in [0, 1], got '{v}'") for v in ("2", "-1")],
    *[(LOG, name, "-1", f"`{name}` must be in [0, {LARGEST}], got '-1'") for name in ("user_id", "duration_ms")],
    *[(LOG, "time_ms", str(v), f"`time_ms` must be in [{FROM}, {TO}], got '{v}'") for v in (FROM - 1, TO + 1)],
    *[(LOG, "hourmin", v, 'converting column "hourmin"') for v in ("32768", "", "-", "x" * 9_999, "1\0", "\u0661")],
    (USERS, "user_id", "", 'converting column "user_id"'),
    (USERS, "fans_user_num", "9" * 30, 'converting column "fans_user_num"'),
    *[(VIDEOS, "video_duration", v, f"`video_duration` must be in [0, {LARGEST}]") for v in ("nan", "inf", "-5")],
    (VIDEOS, "server_width", "wide", 'converting column "server_width"'),
]  # fmt: skip


@pytest.mark.parametrize(("name", "column", "value", "rule"), WRONG)
def test_nonsense_is_refused_with_row_and_column(content, connection, tmp_path, name, column, value, rule):
    with pytest.raises(ValueError, match=r"^[^\n]*$") as raised:
        read(connection, tmp_path, name, with_field(content[name], column, value.encode()))
    assert f"{name}, row 5: " in str(raised.value)
    assert rule in str(raised.value)


UNUSUAL = [
    (LOG, "is_click", "1", 1), (LOG, "is_hate", "0", 0), (LOG, "play_time_ms", str(LARGEST), LARGEST),
    (LOG, "play_time_ms", "007", 7), (LOG, "video_id", "0", 0), (LOG, "time_ms", str(FROM), FROM),
    (LOG, "time_ms", str(TO), TO), (LOG, "tab", "-1", -1), (USERS, "fans_user_num", "-124", -124),
    (USERS, "user_active_degree", '"a,""b"', 'a,"b'), (USERS, "user_active_degree", '"two\nlines"', "two\nlines"),
    (VIDEOS, "video_duration", "0", 0), (VIDEOS, "video_duration", "1e5", 1e5), (VIDEOS, "music_type", "12.0", "12.0"),
    (VIDEOS, "server_width", "", None),
]  # fmt: skip


def test_what_is_unusual_and_right_is_read(content, connection, tmp_path):
    for name, column, value, kept in UNUSUAL:
        rows = read(connection, tmp_path, name, with_field(content[name], column, value.encode()))
        assert kept in np.ma.MaskedArray(rows[column]).tolist(), (name, column)


ALIKE = {
    "a mark of byte order": lambda text: b"\xef\xbb\xbf" + text,
    "empty lines": lambda text: text.replace(b"\n", b"\n\n", 5) + b"\n",
    "ends of lines of DOS": lambda text: text.replace(b"\n", b"\r\n"),
    "ends of lines of old Macs": lambda text: text.replace(b"\n", b"\r"),
    "a column more": lambda text: b"".join(b"more," + line for line in text.splitlines(keepends=True)),
}


@pytest.mark.parametrize("change", ALIKE.values(), ids=ALIKE)
def test_what_changes_no_row(content, connection, tmp_path, change):
    for name in TABLES:
        expected = read(connection, tmp_path, name, content[name])
        same = read(connection, tmp_path, name, change(content[name]))
        assert list(same) == list(expected)
        assert all(same[column].tolist() == expected[column].tolist() for column in expected)


OTHER_FORMS = {
    "mixed ends of lines": (lambda text: text.replace(b"\n", b"\r\n", 4), "cannot be read"),
    "a column twice": (lambda text: text.replace(b"\n", b",tab\n", 1), "row 1: must name every column once"),
    "a column without a name": (lambda text: text.replace(b"\n", b",\n", 1), "row 1: must name every column once"),
    "a missing column": (lambda text: text.replace(b"tab", b"tap", 1), "must have the column `tab`, which is missing"),
    "UTF-16": (lambda text: text.decode().encode("utf-16"), "got UTF-16"),
    "an empty file": (lambda text: b"", "must hold rows, got an empty file"),
    "blanks": (lambda text: text.replace(b"\n", b"\n   \n", 1), "row 2: Error when converting column"),
    "a short row": (lambda text: text.replace(b",0\n", b"\n", 1), "Expected Number of Columns: 19 Found: 18"),
    "a long line": (lambda text: text + b"1" * 3_000_000 + b"\n", "must have lines of at most"),
    "no end": (lambda text: text[:-1], "must end with a new line"),
}


@pytest.mark.parametrize(("change", "words"), OTHER_FORMS.values(), ids=OTHER_FORMS)
def test_a_log_of_another_form_is_refused(content, connection, tmp_path, change, words):
    with pytest.raises(ValueError) as raised:
        read(connection, tmp_path, LOG, change(content[LOG]))
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_text_that_is_no_utf8_is_refused(content, connection, tmp_path):
    with pytest.raises(ValueError, match="row 5: Invalid unicode"):
        read(connection, tmp_path, USERS, with_field(content[USERS], "user_active_degree", b"\xe9"))
