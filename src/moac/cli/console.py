"""The console that commands print tables and lines on. Imports no JAX."""

from __future__ import annotations

import sys

from rich.console import Console


def plain(width: int) -> Console:
    """A console that shows text as it is: a path or a name with brackets in it is no markup.

    Args:
        width: in characters, where stdout is no terminal.
    """
    return Console(width=None if sys.stdout.isatty() else width, markup=False, emoji=False)
