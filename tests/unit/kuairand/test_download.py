"""Downloads from a real HTTP server on this machine, well-behaved and not."""

import gzip
import hashlib
import io
import os
import re
import stat
import tarfile
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from moac.kuairand.download import ARCHIVES, Archive, fetch, unpack

CONTENT = {
    "KuaiRand-Pure/data/log.csv": np.random.default_rng(0).bytes(300_000),  # does not compress: the archive is as long
    "KuaiRand-Pure/LICENSE": b"terms\n",
}


def tarred(members):
    """A tar.gz of (name, content) or of ready-made members."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as bundle:
        for name, content in members:
            entry = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            entry.size = len(content)
            bundle.addfile(entry, io.BytesIO(content))
    return gzip.compress(raw.getvalue(), mtime=0)


ARCHIVE = tarred(CONTENT.items())


def listed(content=ARCHIVE, unpacked=400_000):
    """The table of one archive with this content."""
    md5 = hashlib.md5(content).hexdigest()
    return {"pure": Archive("KuaiRand-Pure", len(content), md5, unpacked)}


class Served:
    """What a server sends and how it misbehaves; `requests` are the Range headers it saw."""

    def __init__(self, content=ARCHIVE, ranges=True, cut=None, until=None, status=None):
        self.content, self.ranges, self.cut, self.until, self.status = content, ranges, cut, until, status
        self.requests = []
        self.url = ""


@contextmanager
def serving(served):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            wanted = self.headers.get("Range")
            served.requests.append((self.path, wanted))
            if served.status:
                self.send_error(served.status)
                return
            begin = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1]) if wanted and served.ranges else 0
            self.send_response(206 if wanted and served.ranges else 200)
            self.send_header("Content-Length", str(len(served.content) - begin))
            if wanted and served.ranges:
                self.send_header("Content-Range", f"bytes {begin}-{len(served.content) - 1}/{len(served.content)}")
            self.end_headers()
            answer = served.content[begin : served.until]
            self.wfile.write(answer[: served.cut])

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    served.url = f"http://127.0.0.1:{server.server_port}/files"
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def check(folder):
    assert {str(p.relative_to(folder.parent)): p.read_bytes() for p in folder.rglob("*") if p.is_file()} == CONTENT
    assert sorted(path.name for path in folder.parent.iterdir()) == ["KuaiRand-Pure", "KuaiRand-Pure.tar.gz"]


def test_a_download_is_checked_unpacked_and_tells_its_progress(tmp_path):
    told = []
    with serving(Served()) as served:
        found = fetch(
            "pure",
            tmp_path / "new",
            base_url=served.url,
            archives=listed(),
            progress=lambda done, total: told.append((done, total)),
        )
    assert found == tmp_path / "new" / "KuaiRand-Pure"
    check(found)
    assert served.requests == [("/files/KuaiRand-Pure.tar.gz", None)]
    assert told[-1] == (len(ARCHIVE), len(ARCHIVE))
    assert told == sorted(told)


def test_an_interrupted_download_keeps_its_bytes_and_goes_on_there(tmp_path):
    def interrupt(done, total):
        raise KeyboardInterrupt

    part = tmp_path / "KuaiRand-Pure.tar.gz.part"
    with serving(Served(cut=100_000)) as served:
        with pytest.raises(KeyboardInterrupt):
            fetch("pure", tmp_path, base_url=served.url, archives=listed(), progress=interrupt)
        kept = part.read_bytes()
        assert 0 < len(kept) <= 100_000
        assert ARCHIVE.startswith(kept)
        served.cut = None
        check(fetch("pure", tmp_path, base_url=served.url, archives=listed()))
    assert served.requests[-1][1] == f"bytes={len(kept)}-"


def test_a_connection_that_breaks_is_taken_up_again_by_itself(tmp_path):
    with serving(Served(cut=100_000)) as served:
        check(fetch("pure", tmp_path, base_url=served.url, archives=listed()))
    assert [wanted for _, wanted in served.requests] == [None, "bytes=100000-", "bytes=200000-", "bytes=300000-"]


@pytest.mark.parametrize("ranges", [True, False])
def test_an_answer_that_ends_early_every_time_is_said_and_kept(tmp_path, ranges):
    with serving(Served(until=1000, ranges=ranges)) as served:
        with pytest.raises(ValueError, match=r"ended after 1,000 of 300,\d+ bytes. They are kept: repeat the command"):
            fetch("pure", tmp_path, base_url=served.url, archives=listed())
        assert (tmp_path / "KuaiRand-Pure.tar.gz.part").read_bytes() == ARCHIVE[:1000]
        assert not (tmp_path / "KuaiRand-Pure").exists()
        served.until = None
        check(fetch("pure", tmp_path, base_url=served.url, archives=listed()))


def test_a_server_without_ranges_starts_anew(tmp_path):
    (tmp_path / "KuaiRand-Pure.tar.gz.part").write_bytes(b"other bytes")
    with serving(Served(ranges=False)) as served:
        check(fetch("pure", tmp_path, base_url=served.url, archives=listed()))
    assert len(served.requests) == 1


def test_a_wrong_checksum_is_said_with_what_to_do(tmp_path):
    corrupted = ARCHIVE[:500] + bytes([ARCHIVE[500] ^ 1]) + ARCHIVE[501:]
    with (
        serving(Served(content=corrupted)) as served,
        pytest.raises(ValueError, match=r"KuaiRand-Pure.tar.gz.part must have the md5 \w+, got \w+: delete it"),
    ):
        fetch("pure", tmp_path, base_url=served.url, archives=listed())
    assert [path.name for path in tmp_path.iterdir()] == ["KuaiRand-Pure.tar.gz.part"]


def test_an_archive_that_is_there_needs_no_network_but_is_checked(tmp_path):
    whole = tmp_path / "KuaiRand-Pure.tar.gz"
    whole.write_bytes(ARCHIVE[:-1])
    with pytest.raises(ValueError, match=r"must have .* bytes, got"):
        fetch("pure", tmp_path, base_url="http://127.0.0.1:9", archives=listed())
    whole.write_bytes(ARCHIVE)
    check(fetch("pure", tmp_path, base_url="http://127.0.0.1:9", archives=listed()))


def test_a_part_longer_than_the_archive_is_refused(tmp_path):
    (tmp_path / "KuaiRand-Pure.tar.gz.part").write_bytes(ARCHIVE + b"?")
    with pytest.raises(ValueError, match=r"part must have 300,\d+ bytes, got .* delete it"):
        fetch("pure", tmp_path, base_url="http://127.0.0.1:9", archives=listed())


def test_a_missing_file_and_a_missing_network_are_told_apart(tmp_path):
    with (
        serving(Served(status=404)) as served,
        pytest.raises(ValueError, match="the server answered 404"),
    ):
        fetch("pure", tmp_path, base_url=served.url, archives=listed())
    with serving(Served(status=503)) as served, pytest.raises(ValueError, match=r"cannot be downloaded: .* 503"):
        fetch("pure", tmp_path, base_url=served.url, archives=listed())
    with pytest.raises(ValueError, match=r"cannot be reached: .*refused"):
        fetch("pure", tmp_path, base_url=served.url, archives=listed())
    with pytest.raises(ValueError, match="must begin with https"):
        fetch("pure", tmp_path, base_url="file:///etc", archives=listed())
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_left_alone_and_nothing_is_asked(tmp_path):
    (tmp_path / "KuaiRand-Pure").mkdir()
    (tmp_path / "KuaiRand-Pure" / "mine").write_text("mine")
    with pytest.raises(ValueError, match="KuaiRand-Pure exists already"):
        fetch("pure", tmp_path, base_url="http://127.0.0.1:9", archives=listed())
    assert (tmp_path / "KuaiRand-Pure" / "mine").read_text() == "mine"
    with pytest.raises(ValueError, match=r"`variant` must be one of pure, 1k, 27k, got '2k'"):
        fetch("2k", tmp_path)


def test_a_disk_that_is_too_small_is_said_before_the_download(tmp_path):
    with pytest.raises(ValueError, match="the disk is too full"):
        fetch("pure", tmp_path, base_url="http://127.0.0.1:9", archives=listed(unpacked=10**18))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_disk_that_fills_up_is_said(tmp_path):
    try:
        os.mknod(tmp_path / "KuaiRand-Pure.tar.gz.part", stat.S_IFCHR | 0o600, os.makedev(1, 7))  # /dev/full itself
    except PermissionError:
        pytest.skip("only root makes a device that is always full")
    with serving(Served()) as served, pytest.raises(OSError, match="No space left"):
        fetch("pure", tmp_path, base_url=served.url, archives=listed())


def member(name, kind, link=""):
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, link
    return entry


HOSTILE = {
    "a parent": "../x",
    "a parent further down": "KuaiRand-Pure/../../x",
    "a symbolic link that leads outside": member("x", tarfile.SYMTYPE, "/etc/passwd"),
    "a hard link that leads outside": member("x", tarfile.LNKTYPE, "../x"),
    "a device": member("x", tarfile.CHRTYPE),
    "a pipe": member("x", tarfile.FIFOTYPE),
}


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_hostile_members_leave_nothing_behind(tmp_path, name):
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "a.tar.gz").write_bytes(tarred([("KuaiRand-Pure/data/log.csv", b"rows"), (name, b"")]))
    with pytest.raises(ValueError, match=r"a\.tar\.gz cannot be unpacked"):
        unpack(inside / "a.tar.gz", inside / "KuaiRand-Pure")
    assert [path.name for path in tmp_path.iterdir()] == ["inside"]
    assert [path.name for path in inside.iterdir()] == ["a.tar.gz"]


CUT = {"torn": ARCHIVE[:5000], "text": b"no archive", "packed text": gzip.compress(b"no archive" * 100, mtime=0)}


@pytest.mark.parametrize("content", CUT.values(), ids=CUT)
def test_what_is_no_whole_archive_is_said(tmp_path, content):
    (tmp_path / "a.tar.gz").write_bytes(content)
    with pytest.raises(ValueError, match="cannot be unpacked"):
        unpack(tmp_path / "a.tar.gz", tmp_path / "data")
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar.gz"]


def test_members_outside_the_top_folder_stay_beside_its_content(tmp_path):
    (tmp_path / "a.tar.gz").write_bytes(tarred([("data/x/log.csv", b"rows"), ("README", b"text"), ("./data/y", b"1")]))
    unpack(tmp_path / "a.tar.gz", tmp_path / "data")
    found = {
        str(p.relative_to(tmp_path / "data")): p.read_bytes() for p in (tmp_path / "data").rglob("*") if p.is_file()
    }
    assert found == {"x/log.csv": b"rows", "README": b"text", "y": b"1"}


def test_the_record_has_every_variant():
    assert list(ARCHIVES) == ["pure", "1k", "27k"]
    assert all(re.fullmatch("[0-9a-f]{32}", archive.md5) for archive in ARCHIVES.values())
    assert all(archive.size < archive.unpacked for archive in ARCHIVES.values())
