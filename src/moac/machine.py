"""What a machine has, and what a process uses of it."""

from __future__ import annotations

import os
import re
import threading
import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_HARMLESS = (r"\x1b\[33mWARN", "Gym has been unmaintained", ".*pkg_resources")
"""Beginnings of the warnings that Gymnasium and pygame give about themselves."""
_changing = threading.Lock()
_ONE_CORE = "--xla_cpu_multi_thread_eigen=false"


def cores() -> int:
    """The cores that this process may use; not every system tells which."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def one_thread() -> dict[str, str]:
    """Variables that keep a process which starts with them to one core; and what this one was told about JAX."""
    flags = os.environ.get("XLA_FLAGS", "")
    pools = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC")  # the last is XLA's own
    told = {name: value for name, value in os.environ.items() if name.startswith("JAX_")}
    return told | {
        "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "cpu"),
        "XLA_FLAGS": flags if _ONE_CORE in flags else f"{flags} {_ONE_CORE}".strip(),
        **dict.fromkeys(pools, "1"),
    }


@contextmanager
def variables(values: Mapping[str, str]) -> Generator[None]:
    """Set environment variables for what is started or imported meanwhile."""
    with _changing:
        before = {name: os.environ.get(name) for name in values}
        os.environ.update(values)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def size(name: str, text: str) -> int:
    """From `2GB` to bytes."""
    matched = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*", text)
    if matched is None or matched.group(2).upper() not in _UNITS:
        raise ValueError(f"`{name}` must be a size such as 2GB, got {text!r}.")
    return int(float(matched.group(1)) * _UNITS[matched.group(2).upper()])


def resident(process: int) -> int:
    """Bytes that a process has in memory; 0 where the system does not tell."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


@contextmanager
def quiet() -> Generator[None]:
    """Without the warnings that Gymnasium and pygame give about themselves."""
    with warnings.catch_warnings():
        for start in _HARMLESS:
            warnings.filterwarnings("ignore", message=start)
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="pygame")
        yield
