"""What a person sees: tables and lines on stdout, one JSON object where it is asked for.

What takes long to import is imported when it is used, here and in `moac.progress`: the command line starts at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from moac.report import page
    from moac.report.numbers import Value

_STDOUT, _STDERR = 1, 2
WIDTH = 120
"""Characters of a line, where stdout is no terminal."""


@contextlib.contextmanager
def only_for_json() -> Generator[None]:
    """While entered, what anybody else prints goes to stderr, be it a library in C or a child process."""
    sys.stdout.flush()
    with contextlib.ExitStack() as undone:
        undone.enter_context(contextlib.redirect_stdout(sys.stderr))
        with contextlib.suppress(OSError):  # a process may have neither of the two
            kept = os.dup(_STDOUT)
            undone.callback(os.close, kept)
            os.dup2(_STDERR, _STDOUT)
            undone.callback(os.dup2, kept, _STDOUT)
        yield


def plain() -> Console:
    """A console that shows text as it is: a path or a name with brackets in it is no markup."""
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else WIDTH, markup=False, emoji=False)
    console.on_broken_pipe = _left_to_the_caller
    return console


def _left_to_the_caller() -> None:
    """In place of Rich's way to end, which is exit code 1."""
    raise BrokenPipeError


def print_lines(lines: Iterable[str]) -> None:
    """Lines, wrapped at words."""
    for line in lines:
        plain().print(line, highlight=False)


def print_paths(**paths: Any) -> None:
    """Where things are, each on one line that can be copied."""
    for name, path in paths.items():
        plain().print(f"{name}: {path}", highlight=False, soft_wrap=True)


def print_table(
    title: str, header: Sequence[str], rows: Iterable[Sequence[Value] | None], left: Sequence[str] = ()
) -> None:
    """A table; numbers have four digits, None among the rows is a line, columns in `left` are aligned to the left."""
    from rich.table import Table

    from moac.report.numbers import text

    table = Table(title=title, title_justify="left")
    for k, name in enumerate(header):
        table.add_column(name, justify="left" if k == 0 or name in left else "right")
    for row in rows:
        if row is None:
            table.add_section()
        else:
            table.add_row(*map(text, row))
    plain().print(table)


def print_tables(tables: Iterable[page.Table]) -> None:
    """Tables of a report, each with its caption below."""
    for table in tables:
        print_table(table.title, table.header, table.rows)
        print_lines([table.caption] if table.caption else [])


def print_json(summary: Any) -> None:
    """The last line of stdout; what is not finite is null."""
    from moac import files

    sys.stdout.write(json.dumps(files.finite(summary)) + "\n")
