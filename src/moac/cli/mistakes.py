"""What is wrong with a command line that could not be parsed, in one sentence. Imports no JAX."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, Literal, final, get_args, get_origin, get_type_hints


@final
@dataclass(frozen=True)
class Syntax:
    """What a command takes.

    Attributes:
        positional: name of the one argument that must be given; None where there is none.
        options: the type of each option, by its name as typed.
        several: whether there may be more than one.
    """

    positional: str | None
    options: Mapping[str, Any]
    several: bool = False


def syntax_of(
    command: type, positional: str | None, aliases: Mapping[str, Iterable[str]], several: bool = False
) -> Syntax:
    """The syntax that a dataclass of options describes."""
    return Syntax(positional, dict(_options(command, aliases)), several)


def explain(arguments: list[str], commands: Mapping[str, Syntax], program: str = "moac") -> str | None:
    """The first mistake, where it is, and what would be right; None where none is found."""
    if not arguments or arguments[0] not in commands:
        got = repr(arguments[0]) if arguments else "nothing"
        near = did_you_mean(arguments[0], commands) if arguments else ""
        return f"the command must be one of {', '.join(commands)}, got {got}.{near or f' See {program} --help.'}"
    name, syntax = f"{program} {arguments[0]}", commands[arguments[0]]
    loose: list[str] = []
    for option, attached, values in _grouped(arguments[1:]):
        if option is None:
            loose += values
            continue
        spelled = option.replace("_", "-")
        if spelled not in syntax.options:
            near = did_you_mean(spelled, syntax.options)
            return f"`{option}` is not an option of {name}.{near or f' See {name} --help.'}"
        own, rest = _taken(syntax.options[spelled], values, attached)
        wrong = _wrong(syntax.options[spelled], own)
        if wrong is not None:
            return f"`{option}` must be {wrong}."
        loose += rest
    return _about_positional(name, syntax.positional, loose[:1] if syntax.several else loose)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint at the known word that is nearest, or nothing."""
    bare = {name.lstrip("-"): name for name in known}
    near = difflib.get_close_matches(word.lstrip("-"), list(bare), n=1)
    return f" Did you mean {bare[near[0]]}?" if near else ""


def _options(command: type, aliases: Mapping[str, Iterable[str]]) -> Iterable[tuple[str, Any]]:
    hints = get_type_hints(command)
    for field in fields(command):
        hint = hints[field.name]
        if isinstance(hint, type) and is_dataclass(hint):
            yield from _options(hint, aliases)
        elif field.default is not MISSING:
            for name in (f"--{field.name.replace('_', '-')}", *aliases.get(field.name, ())):
                yield name, hint


def _grouped(arguments: list[str]) -> Iterable[tuple[str | None, bool, list[str]]]:
    """Each option, whether a value is attached by `=`, and all that follows; first, what stands before any option."""
    groups: list[tuple[str | None, bool, list[str]]] = [(None, False, [])]
    for token in arguments:
        if token.startswith("-") and not _is(float, token):
            name, equals, value = token.partition("=")
            groups.append((name, bool(equals), [value] if equals else []))
        else:
            groups[-1][2].append(token)
    return groups


def _taken(hint: Any, values: list[str], attached: bool) -> tuple[list[str], list[str]]:
    """The values that belong to an option of that type, and the others."""
    count = int(attached) if hint is bool else (_length(hint) or len(values)) if _kind(hint)[2] else 1
    return values[:count], values[count:]


def _length(hint: Any) -> int | None:
    """How many values a tuple of fixed length takes."""
    parts = get_args(hint)
    return len(parts) if get_origin(hint) is tuple and Ellipsis not in parts else None


def _wrong(hint: Any, values: list[str]) -> str | None:
    """What the values should be, and are not."""
    if hint is bool:
        return f"given without a value, got {values[0]!r}" if values else None
    if values == ["None"]:
        return None
    convert, right, several = _kind(hint)
    if not values:
        return None if several else f"followed by {right}, got nothing"
    bad = [value for value in values if not _is(convert, value)]
    if bad:
        return f"{right}, got {bad[0]!r}"
    count = _length(hint)
    return f"{count} {right}, got {len(values)}" if count and count != len(values) else None


def _kind(hint: Any) -> tuple[Callable[[str], Any], str, bool]:
    """How a value of that type is read, what it is called, and whether there may be several."""
    unwrapped = (hint,) if get_origin(hint) is tuple else get_args(hint) or (hint,)
    parts = [part for part in unwrapped if part is not type(None)]
    if get_origin(hint) is Literal:
        return list(parts).index, f"one of {', '.join(parts)}", False
    several = get_origin(parts[0]) is tuple
    number = get_args(parts[0])[0] if several else parts[0]
    if number is int:
        return int, "whole numbers" if several else "a whole number", several
    if number is float:
        return float, "numbers" if several else "a number", several
    return str, "a value", several


def _is(convert: Callable[[str], Any], text: str) -> bool:
    try:
        convert(text)
    except ValueError:
        return False
    return True


def _about_positional(command: str, name: str | None, given: list[str]) -> str | None:
    if name is None:
        return f"{command} takes no argument without a name, got {given[0]!r}." if given else None
    if not given:
        return f"`{name}` must be given: {command} {name}. See {command} --help."
    if len(given) > 1:
        return f"`{name}` must be one argument, got {len(given)}: {' '.join(given)}."
    return None
