"""The choices of a configuration: weighting rules and momentum schedules by name, and ranges of numbers.

Imports neither JAX nor NumPy, so that the command line starts at once.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from numbers import Integral, Real
from typing import Any

Schedule = Callable[[Any], Any]
"""t = 1, 2, … ↦ η_t in [0, 1]; plain arithmetic, so that it serves traced code as well."""

_SCHEDULES: dict[str, Schedule] = {
    "1/t": lambda t: 1.0 / t,
    "1/sqrt(t)": lambda t: t**-0.5,
    "1/t^2": lambda t: 1.0 / (t * t),
    "0": lambda t: 0.0 * t,
    "1": lambda t: 0.0 * t + 1.0,
}
_CONSTANT = "const:"


@dataclass(frozen=True)
class Weighting:
    """What the configuration knows of a rule; the function of its name is in `moac.weighting`."""

    number: str | None = None  # the argument that a number behind the name's colon gives, if any
    # what `Config.weights` are to it: its `weights`, its `initial` λ_0, or λ_0 of the `momentum` around it
    takes: str | None = "momentum"
    preferences: bool = False  # whether a preference vector of each trial tilts it
    covered: bool = False  # whether it is the paper's rule or an ablation beside it


WEIGHTINGS: dict[str, Weighting] = {
    "min-norm": Weighting(covered=True),
    "preferred": Weighting(preferences=True, covered=True),
    "fixed": Weighting(takes="weights", preferences=True, covered=True),
    "uniform": Weighting(takes=None, covered=True),
    "first-batch": Weighting(takes=None, covered=True),
    "capped": Weighting(number="cap"),
    "cagrad": Weighting(number="c"),
    "pcgrad": Weighting(),
    "imtl-g": Weighting(),
    "nash-mtl": Weighting(),
    "upgrad": Weighting(),
    "fairgrad": Weighting(number="alpha"),
    "moco": Weighting(takes="initial"),
    "modo": Weighting(takes="initial"),
    "sdmgrad": Weighting(takes="initial", preferences=True),
    "chebyshev": Weighting(number="urgency", preferences=True),
}
"""All rules by the names that `Config.weighting` takes."""

WEIGHTING_CHOICES = tuple(
    choice
    for name, rule in WEIGHTINGS.items()
    for choice in ((name, f"{name}:<{rule.number}>") if rule.number else (name,))
)
"""The same as a person may write them."""
WITH_PREFERENCES = tuple(name for name, rule in WEIGHTINGS.items() if rule.preferences)
"""Rules that a preference vector of each trial tilts."""


def takes_preferences(weighting: str) -> bool:
    """Whether a preference of each trial tilts the rule, with its number or without."""
    return weighting.partition(":")[0] in WITH_PREFERENCES


def schedule_names() -> tuple[str, ...]:
    """The momentum schedules that `schedule_of` knows."""
    return (*_SCHEDULES, f"{_CONSTANT}<value in [0, 1]>")


def schedule_of(momentum: str | Schedule) -> Schedule:
    """The schedule of that name, or a function, which is checked at a few t; else a ValueError."""
    if callable(momentum):
        return _checked_schedule(momentum)
    if str(momentum).startswith(_CONSTANT):
        return _constant_schedule(momentum)
    if momentum not in schedule_names():
        raise ValueError(f"`momentum` must be one of {', '.join(schedule_names())}, got {shown(momentum)}.")
    return _SCHEDULES[momentum]


def _constant_schedule(text: str) -> Schedule:
    try:
        value = float(text.removeprefix(_CONSTANT))
    except ValueError:
        raise ValueError(f"`momentum` must be {_CONSTANT}<value in [0, 1]>, got {shown(text)}.") from None
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"`momentum` must be in [0, 1], got {value:g}.")
    return lambda t: 0.0 * t + value


def _checked_schedule(schedule: Schedule) -> Schedule:
    for t in (1.0, 2.0, 10.0, 1e3, 1e6):
        value = float(schedule(t))
        if not (math.isfinite(value) and 0.0 <= value <= 1.0):
            raise ValueError(f"`momentum` must be in [0, 1], got {value:g} at t = {t:g}.")
    return schedule


_LONGEST, _TAIL = 300, 40
"""Letters of a value in a message, and how many of them are its last."""


@dataclass(frozen=True)
class Range:
    """Numbers that a field may hold."""

    said: str  # in words
    holds: Callable[[Any], bool]  # whether a number is one of them
    kind: type[int] | type[float] = float  # what they become, cleaned of NumPy's types

    def checked(self, name: str, value: Any) -> Any:
        """The number, also from an array without axes; what is none, or lies outside, is a ValueError."""
        value = value.item() if getattr(value, "ndim", None) == 0 and letter(value) in "biuf" else value
        kinds: Any = Integral if self.kind is int else Real
        if isinstance(value, bool) or not isinstance(value, kinds) or not self.holds(value):
            raise ValueError(f"`{name}` must be {self.said}, got {shown(value)}.")
        try:
            return self.kind(value)
        except OverflowError:
            raise ValueError(f"`{name}` must be a number that a float can hold, got {shown(value)}.") from None


def is_number(text: str) -> bool:
    """Whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def letter(array: Any) -> str:
    """The kind of an array's entries; the short floats of machine learning, which NumPy does not know, are floats."""
    dtype: Any = getattr(array, "dtype", None)
    kind = getattr(dtype, "kind", "?")
    return "f" if kind == "V" and "float" in str(dtype) else str(kind)


def at_least(least: int, kind: type[int] | type[float] = float) -> Range:
    """Numbers from `least` on; whole ones where they are to be int."""
    return Range(f"{'a whole number of ' * (kind is int)}at least {least}", lambda x: x >= least, kind)


def below(count: int) -> Range:
    """Whole numbers that count so many things from 0."""
    return Range(f"a whole number in [0, {count})", lambda x: 0 <= x < count, int)


COUNT = at_least(1, int)
COUNT_OR_OFF = Range("a whole number of at least 1", lambda x: x >= 0, int)
"""Where 0 means that there is none, which other fields must allow."""
POSITIVE = Range("positive and finite", lambda x: 0 < x < math.inf)
NOT_NEGATIVE = Range("at least 0 and finite", lambda x: 0 <= x < math.inf)
SHARE = Range("in [0, 1]", lambda x: 0 <= x <= 1)
POSITIVE_SHARE = Range("in (0, 1]", lambda x: 0 < x <= 1)
DISCOUNT = Range("in (0, 1)", lambda x: 0 < x < 1)
TRIALS = Range("a whole number below 2^32", lambda x: x < 2**32, int)
SEED = Range("a whole number in [0, 2^32)", lambda x: 0 <= x < 2**32, int)
CONFIDENCE = Range("between 0 and 1", lambda x: 0 < x < 1)
SPREAD = Range("in [0.01, 2.5]", lambda x: 0.01 <= x <= 2.5)
"""log σ of a Gaussian policy is kept in (−5, 1)."""


SMALLEST_PROPENSITY = 1e-37
"""Single precision holds no number that is much smaller."""
LARGEST_REWARD = 1e15
"""In absolute value. Training squares returns, up to 100 times as large, and sums them in float32, up to 3e38."""

_NOT_REAL = {"c": "complex numbers", "U": "texts", "S": "texts", "O": "objects", "M": "dates", "m": "spans of time"}
"""Contents of arrays that NumPy turns into floats all the same, or in part, by their kind."""


def not_real(array: Any) -> str | None:
    """The contents of an array that holds no real numbers, in words; None where it holds them."""
    kind = array.dtype.kind
    if kind == "O" and all(isinstance(each, Real) for each in array.flat):
        return None
    return _NOT_REAL.get(kind)


def check_fields(owner: Any, ranges: Mapping[str, Range]) -> None:
    """Refuse a field of an object that lies outside of its range; None is left to the object."""
    for name, numbers in ranges.items():
        value = getattr(owner, name)
        if value is not None:
            numbers.checked(name, value)


def on_simplex(name: str, values: Any) -> tuple[float, ...]:
    """Weights as a tuple; what is negative or does not sum to 1 is a ValueError."""
    try:
        weights = tuple(NOT_NEGATIVE.checked(name, w) for w in several(values))
    except ValueError:
        weights = ()
    if abs(sum(weights) - 1.0) > 1e-6:
        raise ValueError(f"`{name}` must be non-negative and sum to 1, got {shown(values)}.")
    return weights


def several(value: Any) -> tuple[Any, ...]:
    """The values of a sequence, or one value as a sequence; so is an array without axes."""
    one = isinstance(value, str) or not isinstance(value, Iterable) or getattr(value, "ndim", 1) == 0
    return (value,) if one else tuple(value)


def shown(value: Any) -> str:
    """A value as messages show it, on one line: NumPy's scalars and tuples as a person would write them.

    A long one is cut in the middle.
    """
    try:
        text = " ".join(line.strip() for line in _written(value).splitlines())
    except Exception:  # of a number with too many digits, of lists in each other without end, of any object's own
        text = f"a value of type {type(value).__name__}"
    if len(text) <= _LONGEST:
        return text
    return f"{text[: _LONGEST - _TAIL]} … {text[-_TAIL:]}"


def _written(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_written, value))}]"
    return repr(value.item()) if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else repr(value)


def counted(count: int | str, noun: str, form: str = "") -> str:
    """So many of a thing; the number is formatted, or was.

    >>> counted(1, "trial"), counted(1024, "test user", ","), counted("2", "policy")
    ('1 trial', '1,024 test users', '2 policies')
    """
    several = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:{form}} {noun if str(count) == '1' else several}"


def did_you_mean(word: Any, known: Iterable[str]) -> str:
    """A hint at the known word that is nearest, or nothing; also to what is no text."""
    if not isinstance(word, str):
        return ""
    bare = {name.lstrip("-").lower(): name for name in known}
    near = difflib.get_close_matches(word.lstrip("-").lower(), list(bare), n=1)
    return f" Did you mean {bare[near[0]]}?" if near else ""


def one_of(name: str, value: Any, known: Collection[str]) -> Any:
    """A value that must be known by its name; else a ValueError that lists those that are, with the nearest."""
    if value not in known:
        near = did_you_mean(value, known)
        raise ValueError(f"`{name}` must be one of {', '.join(known)}, got {shown(value)}.{near}")
    return value


def package(name: str, extra: str, what: str) -> Any:
    """The module of that name, which an extra installs; a ValueError with the very command where it is missing."""
    try:
        return import_module(name)
    except ImportError:
        raise ValueError(f"{what} needs {name}: pip install 'moac[{extra}]'.") from None
