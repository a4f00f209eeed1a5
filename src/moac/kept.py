"""What is derived from a model or a log is kept with it, and gone with it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

Owner = TypeVar("Owner")
Made = TypeVar("Made")
P = ParamSpec("P")
_NAME = "_kept"


class _Kept(dict[Any, Any]):
    """What was made for one object. Copies of the object, pickled ones too, begin with nothing."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _Kept, ()


def with_owner(make: Callable[Concatenate[Owner, P], Made]) -> Callable[Concatenate[Owner, P], Made]:
    """`make`, called once for each owner, its first argument, and for each value of its other arguments.

    A cache of the module would hold large arrays, and programs compiled for them, long after the last use of a log.
    What is kept should refer to its owner by a weak reference, if at all: it is then freed together with it. An owner
    has a `__dict__`, as every class without `__slots__` has.
    """

    @wraps(make)
    def kept(owner: Owner, *args: P.args, **kwargs: P.kwargs) -> Made:
        values = vars(owner).setdefault(_NAME, _Kept())
        key = (make, args, tuple(sorted(kwargs.items())))
        if key not in values:
            values[key] = make(owner, *args, **kwargs)
        return values[key]

    return kept
