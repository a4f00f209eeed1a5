"""How the command line uses the machine: one JAX device per core, and compiled programs kept between commands."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import jax


def set_up() -> None:
    """One CPU device per core; compilations cached in the user's cache folder unless `MOAC_CACHE=off`."""
    with contextlib.suppress(RuntimeError):  # JAX has started: a caller in Python keeps the devices it has
        jax.config.update("jax_num_cpu_devices", _cores())
    folder = os.environ.get("MOAC_CACHE", str(_user_cache() / "moac"))
    if folder != "off":
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


def for_hosted() -> None:
    """Run compiled calls in the thread that makes them: with small ones, handing them over costs as much as they do.

    Only training that samples on the host makes such calls one by one; it has no effect once JAX has started.
    """
    jax.config.update("jax_cpu_enable_async_dispatch", False)


def _cores() -> int:
    """The cores that this process may use; not every system tells which."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
