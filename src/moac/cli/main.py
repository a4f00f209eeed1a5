"""The command line: find the command, parse its options, run it, and say in one line what went wrong.

Imports no JAX: a command does so when it runs.
"""

from __future__ import annotations

import contextlib
import gc
import io
import itertools
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any, get_type_hints

import moac
from moac.choices import did_you_mean, shown
from moac.cli import process
from moac.tasks import quiet

COMMANDS = {
    "train": "train:Train",
    "resume": "train:Resume",
    "explore": "explore:Explore",
    "choose": "explore:Choose",
    "front": "theory:Front",
    "evaluate": "evaluate:Evaluate",
    "certify": "evaluate:Certify",
    "compare": "report:Compare",
    "watch": "report:Watch",
    "export": "report:Export",
    "theory": "theory:Theory",
    "reproduce": "sweep:Reproduce",
    "sweep": "sweep:Sweep",
    "report": "report:Report",
    "envs": "listing:Envs",
    "docs": "listing:Docs",
    "data build": "data:Build",
    "data describe": "data:Describe",
    "data kuairand download": "data:Download",
    "data kuairand build": "data:BuildKuaiRand",
    "data kuairand generate": "data:Generate",
    "offline train": "offline:Train",
    "offline compare": "sweep:Compare",
    "offline score": "offline:Score",
    "offline recommend": "offline:Recommend",
}
"""Module and class of each command, by what is typed."""
_HEADINGS = {
    "": "Multi-objective reinforcement learning: train policies on several rewards at once.",
    "data": "Build datasets from logs, and describe them.",
    "data kuairand": "Download, build or simulate the KuaiRand logs.",
    "offline": "Learn policies from logs, and recommend with them.",
}
_MISTAKE = 2
_EXHAUSTED = "RESOURCE_EXHAUSTED"
"""In errors of XLA where memory is exhausted."""
_LONGEST_WORD, _LONGEST_LINE = 400, 4000  # characters of a message; a list of all known environments has about 1500
_CLOSED_PIPE = 141  # 128 + SIGPIPE


def main(arguments: list[str] | None = None) -> int:
    """Run one command; a user's mistake ends with one line and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name that cannot be encoded loses no result
            stream.reconfigure(errors="backslashreplace")
    gc.set_threshold(100_000)  # new objects: a command makes a million as it starts, nearly all to stay
    try:
        with process.terminable(), quiet():
            code = parse(sys.argv[1:] if arguments is None else arguments).run()
            sys.stdout.flush()
            return code
    except ValueError as error:
        return _end(_MISTAKE, str(error))
    except BrokenPipeError:  # who reads has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _CLOSED_PIPE
    except OSError as error:
        return _end(_MISTAKE, f"{error.filename}: {error.strerror}." if error.filename else str(error))
    except (MemoryError, RuntimeError) as error:
        return _end(_MISTAKE, _too_little_memory(error))
    except KeyboardInterrupt as error:
        return _end(process.exit_code(error), str(error) or "interrupted.")


def parse(arguments: list[str]) -> Any:
    """The command with its options; tyro's box of an error is replaced by one sentence."""
    name, rest = _split(arguments)
    import tyro

    shape = (tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes)
    command, box = _class_of(name), io.StringIO()
    try:
        with contextlib.redirect_stderr(box):
            return tyro.cli(command, prog=f"moac {name}", args=rest, config=shape)
    except SystemExit as end:
        if end.code == 0:
            raise
        text = " ".join(re.sub(r"[─━│┃╭╮╰╯]|-{3,}", " ", box.getvalue()).split())
        raise ValueError(_explained(text, f"moac {name}", command, rest)) from None


def _class_of(name: str) -> Any:
    module, _, attribute = COMMANDS[name].partition(":")
    return getattr(import_module(f"moac.cli.{module}"), attribute)


def _split(arguments: list[str]) -> tuple[str, list[str]]:
    """The name of the command, which may have several words, and what follows; `--help` in place of it lists them."""
    typed: list[str] = []
    for word in (*arguments, ""):
        group = " ".join(typed)
        if group in COMMANDS:
            return group, arguments[len(typed) :]
        below = [name for name in COMMANDS if name.startswith(f"{group} " if group else "")]
        if word in ("-h", "--help"):
            sys.stdout.write(_listed(below, group))
            raise SystemExit(0)
        if word == "--version" and not group:
            sys.stdout.write(f"moac {moac.__version__}\n")
            raise SystemExit(0)
        known = list(dict.fromkeys(name.split()[len(typed)] for name in below))
        if word not in known:
            program = f"moac {group}".strip()
            got = repr(word) if len(arguments) > len(typed) else "nothing"
            near = did_you_mean(word, known) or f" See {program} --help."
            raise ValueError(f"the command must be one of {', '.join(known)}, got {got}.{near}")
        typed.append(word)
    raise AssertionError  # the empty word is no command


def _listed(names: list[str], group: str) -> str:
    """The commands of a group, each with the first line of its help."""
    import shutil
    import textwrap

    width, screen = max(map(len, names)), min(shutil.get_terminal_size((110, 24)).columns, 110)
    rows = [f"  moac {name:{width}}  {(_class_of(name).__doc__ or '').splitlines()[0]}" for name in names]
    wrapped = [textwrap.fill(row, screen, subsequent_indent=" " * (width + 9)) for row in rows]
    usage = f"usage: moac {group} COMMAND ...".replace("  ", " ")
    return "\n".join([usage, "", _HEADINGS[group], "", *wrapped, "", "Options: moac COMMAND --help", ""])


def _explained(text: str, program: str, command: type, arguments: list[str]) -> str:
    """Tyro's words about the first mistake in ours; its own where they are of another kind."""
    if named := _named(program, command, arguments):
        return named
    if found := re.search(r"Unrecognized options: (.+?)(?:, | Perhaps | For full |$)", text):
        return _unrecognised(found[1], program, command, arguments)
    if found := re.search(r"Missing from .+?: (\S+)", text):
        return f"`{found[1]}` must be given: {program} {found[1]}. See {program} --help."
    if found := re.search(r"Missing value for argument '(\S+)'. Expected (\d+) values", text):
        return f"`{found[1]}` must be followed by {_values(found[1], int(found[2]), arguments)}."
    if found := re.search(r"invalid choice (.+?) for argument '(\S+)'. Expected one of \((.+?)\)", text):
        choices = found[3].replace("'", "").removesuffix(",").split(", ")
        if "None" in choices:  # of an option that may be left out, in no order
            choices = sorted(set(choices) - {"None"})
        return f"`{found[2]}` must be one of {', '.join(choices)}, got {found[1]}."
    if found := re.search(r"Error parsing (\S+?):? ", text):
        name, values = _typed(found[1].split("/"), arguments)
        kind = str(_options(command).get(name.replace("_", "-"), ""))
        convert, what = (int, "whole number") if "int" in kind else (float, "number")
        wrong = [value for value in values if not _converts(convert, value)]
        right = f"{what}s" if "tuple" in kind else f"a {what}"
        return f"`{name}` must be {right}, got {wrong[0]!r}." if wrong else text
    return text or f"the options could not be parsed; see {program} --help."


def _values(name: str, count: int, arguments: list[str]) -> str:
    """What must follow an option; a first value with a minus, which looks like an option, needs an equals sign."""
    after = dict(itertools.pairwise(arguments)).get(name, "")
    minus = f"; one that begins with a minus needs an equals sign: {name}={after}"
    return ("a value" if count == 1 else f"{count} values") + minus * bool(re.match("-[^-]", after))


def _unrecognised(token: str, program: str, command: type, arguments: list[str]) -> str:
    if token.startswith("-"):
        near = did_you_mean(token, _options(command)) or f" See {program} --help."
        return f"`{token}` is not an option of {program}.{near}"
    for argument in arguments:
        if argument.startswith("-") and argument.endswith(f"={token}"):
            return f"`{argument.partition('=')[0]}` must be given without a value, got {shown(token)}."
    return f"{token!r} is one argument too many for {program}. See {program} --help."


def _named(program: str, command: type, arguments: list[str]) -> str | None:
    """The advice where somebody has named what a command takes by its place."""
    for argument in arguments:
        name = argument.partition("=")[0]
        place = _positional(command, name) if name.startswith("--") else None
        if place is not None:
            return f"`{name}` is not an option of {program}: give {place} without a name before it."
    return None


def _positional(command: type, token: str) -> str | None:
    """The word for what a command takes without a name, where somebody has named it as its field is."""
    name = token.lstrip("-").replace("-", "_")
    marks = getattr(get_type_hints(command, include_extras=True).get(name), "__metadata__", ())
    words = [mark.metavar for mark in marks if hasattr(mark, "metavar")]
    return words[0] if _is_positional(marks) and words else None


def _is_positional(marks: Iterable[Any]) -> bool:
    import tyro

    return any(mark in marks for mark in tyro.conf.Positional[Any].__metadata__)


def _options(command: type) -> dict[str, Any]:
    """The type of each option, by its name as typed."""
    from moac.cli.options import ALIASES

    hints, options = get_type_hints(command), dict[str, Any]()
    marked = get_type_hints(command, include_extras=True)
    for field in fields(command):
        if is_dataclass(hints[field.name]):
            options |= _options(hints[field.name])
        elif not _is_positional(getattr(marked[field.name], "__metadata__", ())):
            names = (f"--{field.name.replace('_', '-')}", *ALIASES.get(field.name, ()))
            options |= dict.fromkeys(names, hints[field.name])
    return options


def _typed(names: list[str], arguments: list[str]) -> tuple[str, list[str]]:
    """An option as it was typed, by one of its names, and the values that follow it."""
    for k, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name.replace("_", "-") in names:
            after = itertools.takewhile(lambda word: not word.startswith("--"), arguments[k + 1 :])
            return name, [value] if equals else list(after)
    return names[0], []


def _converts(convert: Any, text: str) -> bool:
    with contextlib.suppress(ValueError):
        convert(text)
        return True
    return False


def _too_little_memory(error: Exception) -> str:
    """A sentence on memory that is exhausted, by Python, NumPy or XLA; any other error is raised."""
    if isinstance(error, RuntimeError) and _EXHAUSTED not in str(error):
        raise error
    return f"there is too little memory: {str(error).rstrip('.') or 'nothing is left'}."


def _end(code: int, text: str) -> int:
    """Say how it ended, in one line that a screen can hold: of a long value, or of many, the two ends are shown."""
    line = " ".join(_shortened(word, _LONGEST_WORD) for word in text.split())
    sys.stderr.write(f"moac: {_shortened(line, _LONGEST_LINE)}\n")
    return code


def _shortened(text: str, most: int) -> str:
    half = most // 2
    return text if len(text) <= most else f"{text[:half]}…{text[-half:]}"
