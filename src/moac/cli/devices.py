"""How the command line uses the machine: one JAX device per core, and compiled programs kept between commands."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import jax

from moac.machine import cores


def set_up() -> None:
    """One CPU device per core; compilations cached in the user's cache folder unless `MOAC_CACHE=off`."""
    with contextlib.suppress(RuntimeError):  # JAX has started: a caller in Python keeps the devices it has
        jax.config.update("jax_num_cpu_devices", cores())
    _keep_programs()


def for_tasks() -> None:
    """Compilations cached here and in the processes that this one starts; the number of devices stays one."""
    for name, value in _keep_programs().items():
        os.environ.setdefault(name.upper(), str(value))


def for_hosted() -> None:
    """Run compiled calls in the thread that makes them: with small ones, handing them over costs as much as they do.

    Only training that samples on the host makes such calls one by one; it has no effect once JAX has started.
    """
    jax.config.update("jax_cpu_enable_async_dispatch", False)


def _keep_programs() -> dict[str, Any]:
    """What tells JAX where to keep them, by the name of the setting; nothing where it should not."""
    folder = os.environ.get("MOAC_CACHE", str(_user_cache() / "moac"))
    if folder == "off":
        return {}
    settings = {"jax_compilation_cache_dir": folder, "jax_persistent_cache_min_compile_time_secs": 0.3}
    for name, value in settings.items():
        jax.config.update(name, value)
    return settings


def _user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
