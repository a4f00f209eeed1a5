"""Ctrl-C and SIGTERM: acknowledged and obeyed in time, whatever the process does."""

import signal
import subprocess
import sys
import threading
import time
import warnings

import pytest

from moac.cli import process
from moac.tasks import quiet

BUSY = """
import hashlib, sys
from moac.cli.process import Interrupts
with Interrupts() as asked:
    print("ready", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)  # a quarter of an hour in which Python runs no handler
"""
IGNORING = """
import time
from moac.cli.process import Interrupts
with Interrupts() as asked:
    print("ready", flush=True)
    try:
        time.sleep(600)
    except KeyboardInterrupt:  # as in a callback of a library
        time.sleep(600)
"""


@pytest.fixture
def started():
    """Starts a process and waits until it has entered `Interrupts`."""
    processes = []

    def start(program):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        processes.append(subprocess.Popen([sys.executable, "-c", program], **pipes))
        assert processes[-1].stdout.readline() == "ready\n"
        return processes[-1]

    yield start
    for each in processes:
        each.kill()
        each.communicate()


@pytest.mark.parametrize("program", [BUSY, IGNORING], ids=["busy", "ignoring"])
@pytest.mark.parametrize("number", process._SIGNALS)
def test_the_first_signal_is_acknowledged_at_once_and_the_second_obeyed(program, number, started):
    process = started(program)
    process.send_signal(number)
    assert process.stderr.readline().startswith("stopping ")  # while it is busy
    assert process.poll() is None
    process.send_signal(number)
    assert process.wait(30) == 128 + number
    assert "stopped at once" in process.stderr.read()


def test_a_signal_that_comes_while_the_listener_starts_is_noted(monkeypatch):
    start = threading.Thread.start

    def interrupted(thread):
        start(thread)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt), process.Interrupts() as interrupts:
        interrupts.check()
    assert signal.set_wakeup_fd(-1) == -1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_is_noted_first_and_raised_the_second_time(number, code, capsys):
    with process.Interrupts() as asked:
        asked.check()
        signal.raise_signal(number)
        with pytest.raises(KeyboardInterrupt) as found:
            asked.check()
        assert process.exit_code(found.value) == code
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    time.sleep(2 * process._PATIENCE)  # the process goes on: it was obeyed
    assert capsys.readouterr().err.count("\n") == 1


def test_other_handlers_and_their_pipe_are_put_back():
    before = [signal.getsignal(number) for number in process._SIGNALS]
    with process.Interrupts():
        inside = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(inside)
        assert inside >= 0
    assert signal.set_wakeup_fd(-1) == -1
    assert [signal.getsignal(number) for number in process._SIGNALS] == before


def test_a_compiled_program_that_a_kill_cut_short_is_no_failure():
    """JAX writes its cache in place, says of a damaged entry that it compiles anew, and so it does."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with quiet():
            warnings.warn("Error reading persistent compilation cache entry for 'jit_f': error", stacklevel=1)
