"""The memory that a computation takes at least, compared with what there is, before any of it is taken."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moac.choices import shown

_LIMITS = ("memory.max", "memory/memory.limit_in_bytes")
"""Files in which the second and the first version of control groups say a limit, below their mounts."""
_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")


@dataclass(frozen=True)
class Need:
    """One thing that takes memory: surely so much, and most often more."""

    size: int  # bytes, at least
    what: str  # the thing, in words
    arguments: Mapping[str, Any]  # that make it so large, by their names


def check(needs: Sequence[Need]) -> None:
    """Refuse what cannot fit into memory, by the arguments of what takes most of it; what may fit is let through."""
    total, limit = sum(need.size for need in needs), allowed()
    if total <= limit:
        return
    most = max(needs, key=lambda need: need.size)
    names = " or ".join(f"`{name}`" for name in most.arguments)
    values = " and ".join(shown(value) for value in most.arguments.values())
    told = f"this would take at least {said(total)} of memory, most of it for {most.what}, and there are {said(limit)}"
    raise ValueError(f"{names} must be smaller, got {values}: {told}.")


def allowed() -> int:
    """Bytes that this process may use: those of the machine, of its container, or of its own limit."""
    return min(_limits(), default=sys.maxsize)


def said(size: int) -> str:
    """Bytes in words.

    >>> said(25_290_000_000), said(4_000_000_000_000 * 10**12)
    ('25.3 GB', '4,000,000 EB')
    """
    power = min((len(str(size)) - 1) // 3, len(_UNITS) - 1)
    value = size / 1000**power
    return f"{value:,.0f} {_UNITS[power]}" if value >= 1000 or not power else f"{value:.3g} {_UNITS[power]}"


def _limits() -> Iterator[int]:
    """All limits that the system tells of."""
    with contextlib.suppress(AttributeError, ValueError, OSError):
        yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        if soft != resource.RLIM_INFINITY:
            yield soft
    yield from of_groups(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))


def of_groups(groups: Path, mounted: Path) -> Iterator[int]:
    """The limits of the control groups that a process is in, and of those around them, as containers have them.

    Args:
        groups: the file that lists the groups.
        mounted: where their files are.
    """
    with contextlib.suppress(OSError):
        for line in groups.read_text().splitlines():
            place = Path(line.partition(":")[2].partition(":")[2].lstrip("/"))
            for name in _LIMITS:
                folder, file = (mounted / name).parent, Path(name).name
                for above in (place, *place.parents):
                    yield from _number(folder / above / file)


def _number(file: Path) -> Iterator[int]:
    """The number in a file, or nothing where there is none."""
    with contextlib.suppress(OSError, ValueError):
        yield int(file.read_text())
