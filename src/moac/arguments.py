"""Arguments of public functions, checked by the types that their signatures declare.

One decorator reads a function's annotations, at its first call, and refuses what is of another type with one line:

    `episodes` must be a whole number, got '200'.

A type is checked as far as that is sound: unions, literals, sequences, mappings, functions, paths, numbers, classes,
and the kind and the axes of arrays. NumPy's scalars are numbers, booleans are none; a text is a sequence of texts.
Protocols that cannot be asked for, type variables and `Any` take everything. Ranges are for the functions to check.
"""

from __future__ import annotations

import builtins
import os
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, wraps
from importlib import import_module
from inspect import Parameter, signature, unwrap
from itertools import chain, repeat
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from moac.choices import letter, shown

F = TypeVar("F", bound=Callable[..., Any])

_LONGEST_NAME, _LONGEST_PATH = 255, 4095
"""Bytes that a file system can hold."""


@dataclass(frozen=True)
class Kind:
    """Values that an argument may have."""

    said: str  # in words
    holds: Callable[[Any], bool]
    plural: str = ""  # of the words, for sequences
    # what would be right for a value of the right type that is none of them nevertheless; empty for all others
    nearly: Callable[[Any], str] = field(default=lambda value: "")
    axes: tuple[str, ...] = ()  # of an array, by the names of their lengths

    def right(self, value: Any) -> str:
        """What would be right in place of a value that does not hold."""
        return self.nearly(value) or self.said


def checked(function: F) -> F:
    """The function, or the class, refusing arguments that are not of their declared types."""
    if isinstance(function, type):
        made: Any = function
        made.__init__ = checked(made.__init__)
        return made

    @cache
    def declared() -> _Declared:
        return _Declared.of(function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        placed, named = declared().taken(args, kwargs)
        return function(*placed, **named)

    return cast(F, call)


def check(name: str, value: Any, kind: Kind) -> None:
    """Refuse a value that is none of the kind."""
    if not kind.holds(value):
        raise ValueError(f"`{name}` must be {kind.right(value)}, got {shown(value)}.")


@dataclass(frozen=True)
class _Declared:
    """The arguments that a function declares."""

    positional: tuple[str, ...]
    rest: str  # the name of all further ones, or nothing
    kinds: dict[str, Kind]  # of those that declare one

    @classmethod
    def of(cls, function: Callable[..., Any]) -> _Declared:
        """By the function's signature."""
        parameters = signature(function).parameters.values()
        places = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        positional = tuple(each.name for each in parameters if each.kind in places)
        rest = "".join(each.name for each in parameters if each.kind is Parameter.VAR_POSITIONAL)
        kinds: dict[str, Kind] = {}
        hints = hints_of(function)
        for each in parameters:
            kind = kind_of(hints.get(each.name, Any))
            if kind is not ANYTHING and each.kind is not Parameter.VAR_KEYWORD:
                kinds[each.name] = kind
        return cls(positional, rest, kinds)

    def taken(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments, checked, with NumPy's scalars as Python's."""
        sizes, names = dict[str, int](), chain(self.positional, repeat(self.rest))
        placed = [self._taken(name, value, sizes) for name, value in zip(names, args, strict=False)]
        return placed, {name: self._taken(name, value, sizes) for name, value in kwargs.items()}

    def _taken(self, name: str, value: Any, sizes: dict[str, int]) -> Any:
        kind = self.kinds.get(name)
        if kind is None:
            return value
        check(name, value, kind)
        if kind.axes:
            _fit(name, value, kind.axes, sizes)
            return value
        one = type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0
        return value.item() if one else value


def _fit(name: str, array: Any, axes: tuple[str, ...], sizes: dict[str, int]) -> None:
    """Refuse an array whose lengths of one name differ, or differ from those before; capital ones are at least 1."""
    for axis, length in zip(axes, array.shape, strict=True):
        if sizes.setdefault(axis, length) != length or (length == 0 and axis.isupper()):
            known = ", ".join(f"{each} = {max(sizes[each], 1)}" for each in dict.fromkeys(axes) if each in sizes)
            raise ValueError(f"`{name}` must have shape [{', '.join(axes)}] with {known}, got {tuple(array.shape)}.")


class _ByName(type):
    """A class that is known by its name alone, since only type checkers import it: its instances have that name."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return any(base.__name__ == cls.__name__ for base in type(instance).__mro__)

    def __getitem__(cls, parameters: Any) -> Any:
        return Any

    def __getattr__(cls, name: str) -> Any:
        if not name[0].isupper():
            raise AttributeError(name)
        return _ByName(name, (), {})  # of a module


class _Names(dict[str, Any]):
    """The names of a function's module; a class that is not there is made up, to be known by its name."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.module: dict[str, Any] = unwrap(function).__globals__

    def __missing__(self, name: str) -> Any:
        known = self.module if name in self.module else vars(builtins)
        return known[name] if name in known else _ByName(name, (), {})


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The types that a signature declares, by the names of its arguments."""
    hints = get_type_hints(function, {}, _Names(function), include_extras=True)
    hints.pop("return", None)
    return hints


def kind_of(hint: Any) -> Kind:
    """The values of a type."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint in _PLAIN:
        return _PLAIN[hint]
    if origin is Annotated:
        return next((each for each in parts[1:] if isinstance(each, Kind)), kind_of(parts[0]))
    if origin in _COMPOSED:
        return _COMPOSED[origin](parts)
    if hasattr(hint, "dim_str"):
        return _array(hint)
    return _instance(origin or hint)


def _union(parts: Sequence[Any]) -> Kind:
    nothing = [part for part in parts if part is type(None)]
    given = [part for part in parts if part not in nothing and not (part is str and Path in parts)]
    kinds = [kind_of(part) for part in (*given, *nothing)]
    if any(kind is ANYTHING for kind in kinds):
        return ANYTHING

    def nearly(value: Any) -> str:
        return next(filter(None, (kind.nearly(value) for kind in kinds)), "")

    words = dict.fromkeys(kind.said for kind in kinds[: len(given)])
    return Kind(_joined(list(words), "or"), _any_of(tuple(kind.holds for kind in kinds)), nearly=nearly)


def _joined(words: Sequence[str], last: str) -> str:
    return f" {last} ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _any_of(each: tuple[Callable[[Any], bool], ...]) -> Callable[[Any], bool]:
    def holds(value: Any) -> bool:
        return any(one(value) for one in each)

    return holds


def _literal(parts: tuple[Any, ...]) -> Kind:
    words = f"{'one of ' * (len(parts) > 1)}{', '.join(map(str, parts))}"
    return Kind(words, lambda value: isinstance(value, str | int | None) and value in parts)


def _sequence(parts: tuple[Any, ...]) -> Kind:
    of = kind_of(parts[0]) if parts else ANYTHING
    words = f"a sequence of {of.plural}" if of.plural else "a sequence"
    return Kind(words, lambda value: _is_sequence(value) and _all(of, value))


def _iterable(parts: tuple[Any, ...]) -> Kind:
    """Values that can be read once; they are checked where they stand in an order."""
    of = kind_of(parts[0])
    words = f"a sequence of {of.plural}" if of.plural else "a sequence"

    def holds(value: Any) -> bool:
        readable = isinstance(value, Iterable) and getattr(value, "ndim", 1) > 0
        return readable and (not _is_sequence(value) or _all(of, value))

    return Kind(words, holds)


def _tuple(parts: tuple[Any, ...]) -> Kind:
    if not parts or parts[-1] is ...:
        return _sequence(parts)
    each, count = [kind_of(part) for part in parts], len(parts)
    plural = each[0].plural if len({kind.plural for kind in each}) == 1 else ""

    def holds(value: Any) -> bool:
        if not _is_sequence(value) or len(value) != count:
            return False
        return all(kind.holds(one) for kind, one in zip(each, value, strict=True))

    return Kind(f"{count} {plural or 'values'}", holds)


def _is_sequence(value: Any) -> bool:
    """Whether values stand in an order that can be read again and again."""
    if isinstance(value, Sequence) or (hasattr(value, "__len__") and getattr(value, "ndim", 0) > 0):
        return True
    return hasattr(value, "dtype") and hasattr(value, "index")  # of pandas


def _all(kind: Kind, values: Any) -> bool:
    if kind is ANYTHING or (isinstance(values, str) and kind.holds("")):
        return True
    return all(map(kind.holds, values))


def _array(hint: Any) -> Kind:
    """The arrays of jaxtyping's kind and number of axes."""
    letters = {"Float": "iuf", "Int": "iu", "Bool": "b"}.get(hint.__name__.partition("[")[0], "biufc")
    axes = hint.dim_str.split()
    fixed = all(map(str.isidentifier, axes))
    noun = {"iu": "whole numbers", "b": "booleans"}.get(letters, "numbers")
    shape = f" with {len(axes)} {'axis' if len(axes) == 1 else 'axes'}" if fixed and axes else ""

    def holds(value: Any) -> bool:
        if not hasattr(value, "dtype") or not hasattr(value, "ndim"):
            return fixed and not axes and _is_number(value)
        return letter(value) in letters and (not fixed or value.ndim == len(axes))

    return Kind(f"an array of {noun}{shape}", holds, axes=tuple(axes) if fixed else ())


def _instance(of: Any) -> Kind:
    if not isinstance(of, type) or of is object:
        return ANYTHING
    if getattr(of, "_is_protocol", False):
        return _protocol(of)
    words = _WORDS.get(of.__name__) or f"{'an' if of.__name__[0] in 'AEIOU' else 'a'} {of.__name__}"
    return Kind(words, lambda value: isinstance(value, of), f"{of.__name__} objects")


def _protocol(of: Any) -> Kind:
    """Objects with the methods of a protocol; a class that would make one is none."""
    if not getattr(of, "_is_runtime_protocol", False):
        return ANYTHING
    methods = [f"`{name}`" for name in vars(of) if not name.startswith("_")]
    return Kind(
        f"an object with {_joined(methods, 'and')}", lambda value: isinstance(value, of) and not isinstance(value, type)
    )


def _scalar(value: Any, letters: str) -> bool:
    """Whether an array without axes, which a traced program has for its numbers too, holds such a number."""
    return getattr(value, "ndim", None) == 0 and hasattr(value, "dtype") and letter(value) in letters


def _is_int(value: Any) -> bool:
    if type(value) is int:
        return True
    return (not isinstance(value, bool) and isinstance(value, Integral)) or _scalar(value, "iu")


def _is_number(value: Any) -> bool:
    if type(value) is float:
        return True
    if not isinstance(value, bool) and isinstance(value, Real):
        return not _beyond_floats(value)
    return _scalar(value, "iuf")


def _beyond_floats(value: Any) -> bool:
    try:
        float(value)
    except (OverflowError, TypeError, ValueError):
        return True
    return False


def _is_path(value: Any) -> bool:
    return isinstance(value, str | os.PathLike) and not _impossible(value)


def _impossible(value: Any) -> bool:
    """Whether no file system has such a path, or no message could name it."""
    try:
        content = os.fsencode(value)
    except (TypeError, UnicodeError):
        return True
    too_long = len(content) > _LONGEST_PATH or max(map(len, content.split(b"/"))) > _LONGEST_NAME
    return too_long or not content or not os.fsdecode(content).isprintable()


def _path_that_is(value: Any) -> str:
    return "a path of one line that a file system can hold" if isinstance(value, str | os.PathLike) else ""


def _number_that_is(value: Any) -> str:
    number = not isinstance(value, bool) and isinstance(value, Real)
    return "a number that a float can hold" if number and _beyond_floats(value) else ""


def _is_numeric(value: Any) -> bool:
    dtype = getattr(value, "dtype", None)
    if dtype is None or not hasattr(dtype, "kind"):
        try:
            value = import_module("numpy").asarray(value)  # by name: a configuration is made without NumPy
        except Exception:
            return False
    return letter(value) in "biuf" or (letter(value) == "O" and all(map(_is_number, value.flat)))


ANYTHING = Kind("anything", lambda value: True)
FUNCTION = Kind("a function", callable, "functions")
PATH = Kind("a path", _is_path, "paths", _path_that_is)
_PLAIN: dict[Any, Kind] = {
    Any: ANYTHING,
    object: ANYTHING,
    None: Kind("None", lambda value: value is None),
    bool: Kind("True or False", lambda value: isinstance(value, bool) or _scalar(value, "b"), "booleans"),
    int: Kind("a whole number", _is_int, "whole numbers"),
    float: Kind("a number", _is_number, "numbers", _number_that_is),
    str: Kind("a text", lambda value: isinstance(value, str), "texts"),
    Path: PATH,
    Callable: FUNCTION,
}
_PLAIN[type(None)] = _PLAIN[None]
_COMPOSED: dict[Any, Callable[[Any], Kind]] = {
    Union: _union,
    types.UnionType: _union,
    Literal: _literal,
    tuple: _tuple,
    list: _sequence,
    Sequence: _sequence,
    Iterable: _iterable,
    Callable: lambda parts: FUNCTION,
}
_WORDS = {
    "Average": "Average()",
    "Config": "a Config, whose fields may also be given by name",
    "Discounted": "Discounted(discount)",
    "FiniteMOMDP": "a FiniteMOMDP such as moac.momdp.library.fishwood()",
    "Mapping": "a mapping",
    "Rule": "a moac.weighting.Rule, such as weighting.min_norm() (a name is for `weighting`)",
    "dict": "a dictionary",
    "ndarray": "an array",
}
"""Of classes that their names do not say enough of."""

NUMERIC = Kind("an array of real numbers", _is_numeric)
Numbers = Annotated[Any, NUMERIC]
"""An array, or nested lists, of numbers that floats can hold."""
