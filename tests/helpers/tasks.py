"""Functions that executors run in other processes. What is heavy is imported by those who need it."""

import os
import signal
import sys
import time
from pathlib import Path

THREADS = ("JAX_PLATFORMS", "XLA_FLAGS", "OMP_NUM_THREADS", "NPROC")


def square(x):
    return x * x


def process(_):
    return os.getpid()


def variables(_):
    return {name: os.environ.get(name) for name in THREADS}


def forever(path):
    """Say who runs, then never end."""
    Path(path).write_text(str(os.getpid()))
    time.sleep(1000)


def refuses(path):
    """An error with its parts."""
    raise FileNotFoundError(2, "No such file or directory", str(path))


class AwkwardError(Exception):
    """Cannot be made again from what pickle keeps of it."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def misbehave(how):
    """As it is told, or nothing wrong."""
    if how == "raises":
        raise ZeroDivisionError("no road")
    if how == "awkward":
        raise AwkwardError(1, 2)
    if how in _ACTS:
        _ACTS[how]()
    return how


def misbehave_or_wait(how):
    """A path is waited beside, for ever."""
    return forever(how) if isinstance(how, Path) else misbehave(how)


def interrupted(path):
    """Ends with a checkpoint when it is interrupted; one that is called rude does not end."""
    if path is None:
        return
    try:
        forever(path)
    except KeyboardInterrupt:
        if path.name == "rude":
            time.sleep(1000)
        path.write_text("checkpoint")
        raise


def eat():
    """Take memory until there is none, in few large steps: on a busy machine each waits for its turn."""
    kept = []
    while True:
        kept.append(b"1" * 128_000_000)
        time.sleep(0.01)


_ACTS = {
    "hangs": lambda: time.sleep(1000),
    "eats": eat,
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exits": lambda: os._exit(3),
    "leaves": lambda: sys.exit(4),
    "prints": lambda: print("not for standard output"),
}


def killed_once(path):
    """Dies the first time, as a lost machine's task does, and succeeds the second."""
    mark = Path(path)
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "second"


def sums_of_part(path):
    """The sums of one part of a log, which is a file."""
    import numpy as np

    from moac.offline import ncis

    with np.load(path) as part:
        log = ncis.Logged.of(part["user"], part["reward"], part["propensity"])
        return ncis.accumulate(log, {"mine": part["policy"]})
