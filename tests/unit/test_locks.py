import fcntl
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from moac import locks
from moac.cli import process

HOLD = """
import sys, time
from pathlib import Path
from moac import locks
with locks.held(Path(sys.argv[1]) / ".lock", Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def taken(folder):
    with locks.held(folder / ".lock", folder):
        return True


def raised(function):
    with pytest.raises(locks.InUseError) as caught:
        function()
    return caught.value


def test_nothing_is_left(tmp_path):
    with locks.held(tmp_path / ".lock", tmp_path):
        assert (tmp_path / ".lock").read_text() == str(os.getpid())
    assert list(tmp_path.iterdir()) == []


def test_this_process_is_refused_in_any_thread(tmp_path):
    with locks.held(tmp_path / ".lock", tmp_path), ThreadPoolExecutor(1) as other:
        for error in (other.submit(taken, tmp_path).exception(), raised(lambda: taken(tmp_path))):
            assert str(error) == f"{tmp_path} is in use by process {os.getpid()}: wait until it ends."
    assert taken(tmp_path)


def test_another_process_is_refused_until_it_is_killed(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    with pytest.raises(ValueError, match=f"^{tmp_path} is in use by process {process.pid}: wait until it ends.$"):
        taken(tmp_path)
    process.kill()
    process.communicate()
    assert (tmp_path / ".lock").exists()
    assert taken(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_was_removed_meanwhile_is_not_the_lock(tmp_path, monkeypatch):
    """Between opening and locking, its holder ends and removes it: the file that is then locked is nobody's."""
    real, tries = fcntl.flock, []

    def late(descriptor, how):
        if not tries:
            (tmp_path / ".lock").unlink()
        if how & fcntl.LOCK_EX:
            tries.append(descriptor)
        real(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with locks.held(tmp_path / ".lock", tmp_path):
        assert (tmp_path / ".lock").exists()
    assert len(tries) == 2


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match=r"/no cannot be written: [^\n]*/no is not a folder.$"):
        taken(tmp_path / "no")
    assert list(tmp_path.iterdir()) == []


def symbolic(lock, target):
    lock.symlink_to(target)


def broken(lock, target):
    lock.symlink_to(target.with_name("nothing"))


def hard(lock, target):
    os.link(target, lock)


def foreign(lock, target):
    lock.write_text("somebody's notes")


def folder(lock, target):
    lock.mkdir()


def fifo(lock, target):
    os.mkfifo(lock)


@pytest.mark.parametrize("trap", [symbolic, broken, hard, foreign, folder, fifo], ids=lambda trap: trap.__name__)
def test_what_is_no_lock_is_refused_and_left_alone(trap, tmp_path):
    target, lock = tmp_path / "target", tmp_path / "run" / ".lock"
    target.write_text("42")  # as a lock would say, and yet not one
    lock.parent.mkdir()
    trap(lock, target)
    before = lock.lstat()
    with pytest.raises(ValueError, match=f"^{lock.parent} cannot be "):
        taken(lock.parent)
    assert target.read_text() == "42"
    assert (lock.lstat().st_ino, lock.lstat().st_size) == (before.st_ino, before.st_size)
    assert sorted(path.name for path in tmp_path.rglob("*")) == [".lock", "run", "target"]


def test_the_number_of_a_killed_holder_is_written_over(tmp_path):
    (tmp_path / ".lock").write_text("1234567")
    with locks.held(tmp_path / ".lock", tmp_path):
        assert (tmp_path / ".lock").read_text() == str(os.getpid())


def test_what_a_killed_holder_left_unfinished_is_removed_and_files_of_others_stay(tmp_path):
    (tmp_path / "figures").mkdir()
    for name in ("figures/.changes.svg.19421.tmp", ".report.html.7.tmp", ".mine.tmp", "mine.7.tmp"):
        (tmp_path / name).touch()
    with locks.folder(tmp_path):
        left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.tmp")}
    assert left == {".mine.tmp", "mine.7.tmp"}


def test_elsewhere_sigterm_ends_a_command_in_order():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(process.Terminated), process.terminable():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("error", [ValueError, KeyError, OSError, KeyboardInterrupt])
def test_folders_that_were_made_and_hold_nothing_are_removed_after_any_error(error, tmp_path):
    (tmp_path / "mine").mkdir()
    with pytest.raises(error), locks.folder(tmp_path / "mine" / "a" / "b"):
        (tmp_path / "mine" / "a" / "theirs").touch()
        raise error
    assert [path.name for path in (tmp_path / "mine").rglob("*")] == ["a", "theirs"]
    with pytest.raises(error), locks.folder(tmp_path / "mine" / "c" / "d"):
        raise error
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["a"]
    for working in (locks.becoming(tmp_path / "e" / "f" / "g"), locks.becoming(tmp_path / "e" / "f" / "g", "same")):
        with pytest.raises(error), working as place:
            (place / "half").touch()
            raise error
    assert (tmp_path / "e").exists() is (error is KeyboardInterrupt)  # which keeps what is made of the same


def test_a_folder_that_cannot_be_made_is_said_and_those_around_it_are_removed(tmp_path):
    with (
        pytest.raises(ValueError, match="cannot be written: File name too long"),
        locks.folder(tmp_path / "a" / ("b" * 300)),
    ):
        raise AssertionError
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_a_mistake_leaves_empty_is_removed(tmp_path):
    (tmp_path / "mine").mkdir()
    for name in ("new", "mine"):
        with pytest.raises(ValueError, match="wrong"), locks.folder(tmp_path / name):
            raise ValueError("wrong")
    with pytest.raises(ValueError, match="wrong"), locks.folder(tmp_path / "used"):
        (tmp_path / "used" / "file").touch()
        raise ValueError("wrong")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "used"]
    (tmp_path / "mine" / ".lock").touch()
    assert locks.is_empty(tmp_path / "mine") and not locks.is_empty(tmp_path / "used")


def test_a_failure_leaves_nothing_and_a_success_everything(tmp_path):
    with pytest.raises(RuntimeError), locks.becoming(tmp_path / "out") as place:
        (place / "half").write_text("half")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with locks.becoming(tmp_path / "deep" / "out") as place:
        (place / "whole").write_text("whole")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["out"]
    assert (tmp_path / "deep" / "out" / "whole").exists()


def test_what_another_has_left_is_removed_and_a_link_is_refused(tmp_path):
    (tmp_path / ".o[u]t.building-old").mkdir()
    with locks.becoming(tmp_path / "o[u]t", "new") as place:
        assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [place.name]
    (tmp_path / ".out.building-x").symlink_to(tmp_path / "o[u]t")
    with pytest.raises(ValueError, match="symbolic link"), locks.becoming(tmp_path / "out", "x"):
        pass
