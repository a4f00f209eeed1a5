"""Silence for the warnings that Gymnasium and pygame give about themselves; for the command line alone."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Generator

_HARMLESS = (r"\x1b\[33mWARN", "Gym has been unmaintained", ".*pkg_resources")
"""How they begin."""


@contextlib.contextmanager
def quiet() -> Generator[None]:
    """Without them."""
    with warnings.catch_warnings():
        for start in _HARMLESS:
            warnings.filterwarnings("ignore", message=start)
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="pygame")
        yield
