"""The command line: parse and dispatch. Imports no JAX before a command runs."""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
import sys
from typing import Any

import tyro

from moac.cli import data_options, interrupts, mistakes, offline_options, options
from moac.cli.explore_options import Explore
from moac.cli.options import Evaluate, Front, Report, Reproduce, Resume, Theory, Train, Watch
from moac.cli.sweep_options import Sweep
from moac.config import Discounted, check_trials
from moac.machine import one_thread

_MISTAKE = 2
_LONGEST_WORD, _LONGEST_LINE = 400, 4000
"""Characters of a message; a list of all known environments has about 1500."""
_UNREAD = 141
"""As a shell says of a program that a closed pipe has ended."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command; a user's mistake ends with one line and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name that cannot be encoded loses no result
            stream.reconfigure(errors="backslashreplace")
    try:
        with interrupts.terminable():
            code = _dispatch(_parse(sys.argv[1:] if arguments is None else arguments))
            sys.stdout.flush()
            return code
    except ValueError as error:
        return _end(_MISTAKE, str(error))
    except BrokenPipeError:  # who reads has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _UNREAD
    except OSError as error:
        return _end(_MISTAKE, f"{error.filename}: {error.strerror}." if error.filename else str(error))
    except KeyboardInterrupt as error:
        return _end(interrupts.code(error), "interrupted.")


def _dispatch(command: Any) -> int:
    """Check what can be checked before JAX is imported, then run."""
    if isinstance(command, data_options.COMMANDS + offline_options.COMMANDS):
        return _of_logs(command)
    if isinstance(command, Evaluate | Watch):
        return _play(command)
    if isinstance(command, Reproduce):
        from moac.cli import devices

        devices.set_up()
        from moac.cli import reproduce

        return reproduce.run(reproduce.Order(command.name, command.quick, command.out, command.json))
    if isinstance(command, Sweep):
        return _sweep(command)
    if isinstance(command, Explore):
        return _explore(command)
    if isinstance(command, Report):
        from moac.cli import report

        return report.run(command.run, command.json)
    if isinstance(command, Front):
        setting = Discounted(command.discount)
        from moac.cli import front

        return front.run(front.Order(command.env, setting, command.memory, command.out, command.json))
    return _theory(command) if isinstance(command, Theory) else _train(command)


def _theory(command: Theory) -> int:
    config = command.config_of()
    if not 0 < command.epsilon < math.inf:
        raise ValueError(f"`epsilon` must be positive and finite, got {command.epsilon}.")
    from moac.cli import theory

    return theory.run(theory.Order(command.env, command.epsilon, config, command.run, command.json))


def _sweep(command: Sweep) -> int:
    """On one core, here as in every worker: set before NumPy and JAX count theirs."""
    os.environ.update(one_thread())
    from moac.cli import devices

    devices.for_tasks()
    from moac.cli import sweep

    return sweep.run(command)


def _explore(command: Explore) -> int:
    config = command.config_of()
    from moac.cli import devices

    devices.set_up()
    from moac.cli import explore

    draw = command.draw, command.preferences, command.given
    same = {name: getattr(command, name) for name in ("env", "rules", "reference", "seed", "out", "stepping", "json")}
    return explore.run(explore.Wanted(config=config, draw=draw, entropies=command.entropy, **same))


def _of_logs(command: Any) -> int:
    if isinstance(command, data_options.COMMANDS):
        from moac.cli import data

        return data.run(command)
    from moac.cli import offline

    return offline.run(command)


def _train(command: Train | Resume) -> int:
    if not command.checkpoint_every >= 0:
        raise ValueError(f"`checkpoint_every` must be at least 0 seconds, got {command.checkpoint_every}.")
    if isinstance(command, Train):
        config = command.config_of()
        check_trials(command.trials, command.seed)
        train = _training()
        order = train.Order(command.env, config, command.trials, command.seed, command.out, command.stepping)
        return train.run(order, train.Output(command.json, command.checkpoint_every, command.sink))
    train = _training()
    return train.resume(command.run, train.Output(command.json, command.checkpoint_every, command.sink), command.trust)


def _play(command: Evaluate | Watch) -> int:
    if command.episodes < 1:
        raise ValueError(f"`episodes` must be at least 1, got {command.episodes}.")
    if isinstance(command, Watch):
        from moac.cli import watch

        return watch.run(watch.Order(**vars(command)))
    if not command.runs:
        raise ValueError("`RUN` must be given: moac evaluate RUN. See moac evaluate --help.")
    from moac.cli import evaluate

    return evaluate.run(evaluate.Order(**vars(command)))


def _training() -> Any:
    """The module of `train` and `resume`, on all cores: JAX counts its devices when it starts."""
    from moac.cli import devices

    devices.set_up()
    from moac.cli import train

    return train


def _parse(arguments: list[str]) -> Any:
    """tyro, with its box of an error replaced by one sentence."""
    if arguments[:1] == ["data"]:
        data_options.check_group(arguments[1:])
        given = arguments[2:] if arguments[1] == data_options.GROUP else arguments[1:]
        return _parsed(given, data_options.Command, "moac data kuairand", data_options.SYNTAX)
    if arguments[:1] == ["offline"]:
        return _parsed(arguments[1:], offline_options.Command, "moac offline", offline_options.SYNTAX)
    return _parsed(arguments, options.Command, "moac", options.SYNTAX)


def _parsed(arguments: list[str], commands: Any, program: str, syntax: dict[str, mistakes.Syntax]) -> Any:
    box = io.StringIO()
    try:
        with contextlib.redirect_stderr(box):
            return tyro.cli(commands, prog=program, description="Multi-objective actor-critic.", args=arguments)
    except SystemExit as end:
        if end.code == 0:
            raise
        raise ValueError(mistakes.explain(arguments, syntax, program) or _unboxed(box.getvalue())) from None


def _unboxed(box: str) -> str:
    """The text inside tyro's box."""
    words = re.sub(r"[─━│┃╭╮╰╯]", " ", box).split()
    return " ".join(words) or "the options could not be parsed; see moac --help."


def _end(code: int, text: str) -> int:
    """Say how it ended, in one line that a screen can hold: of a long value, or of many, the two ends are shown."""
    line = " ".join(_shortened(word, _LONGEST_WORD) for word in text.split())
    sys.stderr.write(f"moac: {_shortened(line, _LONGEST_LINE)}\n")
    return code


def _shortened(text: str, most: int) -> str:
    half = most // 2
    return text if len(text) <= most else f"{text[:half]}…{text[-half:]}"
