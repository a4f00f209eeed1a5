"""Tasks, what came of them, who runs them, and the process and machine that they run in.

A task is a function of a module and one picklable item. It may be run again, anywhere: what it writes, it writes
atomically, and what is large it is told by path.
"""

from __future__ import annotations

import os
import pickle
import re
import threading
import traceback
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar, cast, runtime_checkable

from moac.choices import NOT_NEGATIVE, POSITIVE, check_fields, shown

T = TypeVar("T")
R = TypeVar("R")
Kind = Literal["raised", "timeout", "memory", "lost"]
_UNITS = {f"{prefix}B": 10 ** (3 * k) for k, prefix in enumerate(["", "K", "M", "G", "T"])}
_UNITS |= {f"{prefix}IB": 2 ** (10 * k) for k, prefix in enumerate("KMGT", 1)}
_ONE_CORE = "--xla_cpu_multi_thread_eigen=false"
_changing = threading.Lock()
_HARMLESS = (r"\x1b\[33mWARN", "Gym has been unmaintained", ".*pkg_resources", "Error reading persistent compilation")
"""Beginnings of warnings that Gymnasium and pygame give about themselves, and JAX about a program that a kill has cut
short in its cache: it compiles that anew."""


class TaskFailedError(ValueError):
    """A task that failed for a reason that cannot be raised here as it was."""


@dataclass(frozen=True)
class Limits:
    """What a task may use."""

    timeout: float | None = None  # seconds; None is no limit
    memory: int | None = None  # bytes of its process; None is no limit
    # how often a task is tried again whose process or machine was lost. One that raised, or reached a limit, is not
    retries: int = 2

    def __post_init__(self) -> None:
        check_fields(self, {"timeout": POSITIVE, "memory": POSITIVE, "retries": NOT_NEGATIVE})


@dataclass(frozen=True)
class Failure:
    """Why a task has no value."""

    kind: Kind  # it raised, ran past its time or its memory, or its process was lost
    message: str  # one line, the same from every executor
    trace: str = ""  # where it was raised
    error: Exception | None = None  # what was raised; None where it does not come whole out of another process

    @classmethod
    def raised(cls, error: Exception) -> Failure:
        """Of an error that a task raised."""
        message = " ".join(f"{type(error).__name__}: {error}".split())
        try:
            unpickled(pickle.dumps(error))
            whole = error
        except Exception:  # what cannot be read of it must not hide the rest
            whole = None
        return cls("raised", message, "".join(traceback.format_exception(error)), whole)


def unpickled(content: bytes) -> Any:
    """What a process of ours has pickled; nothing else is ever unpickled."""
    return pickle.loads(content)  # noqa: S301


@dataclass(frozen=True)
class Outcome(Generic[R]):
    """What came of the item of that index: the value of the function, or why there is none."""

    index: int
    value: R | None
    failure: Failure | None = None


@runtime_checkable
class Executor(Protocol):
    """Runs a function on items."""

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> Iterator[Outcome[R]]:
        """An outcome for each item, as they end: in any order, a failure among them.

        Where the caller leaves early, what still runs is stopped by the next `map` or by `close`.
        """
        ...

    def close(self) -> None:
        """Stop what `map` has left running, and leave what it has joined or started."""


class Serial:
    """One task after the other, in this process: easy to debug, and what the other executors are compared with."""

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> Iterator[Outcome[R]]:
        """An outcome for each item, in order."""
        for index, item in enumerate(items):
            try:
                value = function(item)
            except Exception as error:
                yield Outcome(index, None, Failure.raised(error))
            else:
                yield Outcome(index, value)

    def close(self) -> None:
        """Nothing is kept."""


def ended(outcomes: Iterable[Outcome[R]]) -> Iterator[tuple[int, R]]:
    """Index and value of each outcome as it comes; the first failure is raised."""
    for outcome in outcomes:
        if outcome.failure is not None:
            raise outcome.failure.error or TaskFailedError(outcome.failure.message)
        yield outcome.index, cast(R, outcome.value)


def results(outcomes: Iterable[Outcome[R]]) -> list[R]:
    """The values in the order of the items; the first failure is raised."""
    return [value for _, value in sorted(ended(outcomes), key=lambda pair: pair[0])]


def cores() -> int:
    """The cores that this process may use; not every system tells which."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def one_thread() -> dict[str, str]:
    """Variables that keep a process which starts with them to one core; and what this one was told about JAX."""
    flags = os.environ.get("XLA_FLAGS", "")
    pools = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC")  # the last is XLA's own
    told = {name: value for name, value in os.environ.items() if name.startswith("JAX_")}
    return {"JAX_PLATFORMS": "cpu"} | told | {
        "XLA_FLAGS": flags if _ONE_CORE in flags else f"{flags} {_ONE_CORE}".strip(),
        **dict.fromkeys(pools, "1"),
    }  # fmt: skip


@contextmanager
def variables(values: Mapping[str, str]) -> Generator[None]:
    """Set environment variables for what is started or imported meanwhile."""
    with _changing:
        before = {name: os.environ[name] for name in values if name in os.environ}
        os.environ.update(values)
        try:
            yield
        finally:
            for name in values.keys() - before.keys():
                os.environ.pop(name, None)
            os.environ.update(before)


def size(name: str, text: str) -> int:
    """From `2GB` to bytes."""
    matched = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*", text)
    if matched is None or matched.group(2).upper() not in _UNITS:
        raise ValueError(f"`{name}` must be a size such as 2GB, got {shown(text)}.")
    return int(float(matched.group(1)) * _UNITS[matched.group(2).upper()])


def resident(process: int) -> int:
    """Bytes that a process has in memory; 0 where the system does not tell."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


@contextmanager
def quiet() -> Generator[None]:
    """Without warnings that a user can do nothing about."""
    with warnings.catch_warnings():
        for start in _HARMLESS:
            warnings.filterwarnings("ignore", message=start)
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="pygame")
        yield
