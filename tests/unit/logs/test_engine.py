"""The limits of DuckDB, its progress and its errors."""

import pytest

from moac.logs import engine


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
