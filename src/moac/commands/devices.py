"""How the command line uses the machine: one JAX device per core, and compiled programs kept between commands."""

from __future__ import annotations

import os
from pathlib import Path

import jax


def set_up() -> None:
    """One CPU device per core; compilations cached in the user's cache folder unless `MOAC_CACHE=off`."""
    jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
    folder = os.environ.get("MOAC_CACHE", str(_user_cache() / "moac"))
    if folder != "off":
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


def _user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
