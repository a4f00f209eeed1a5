"""A choice among policies on a page: a map whose marks are links, and a card for each. No script is needed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any, final

import numpy as np
from jaxtyping import Float

from moac.report.numbers import Value, number

_WIDE = 3
"""Up to so many objectives every pair has a panel; more are lines over parallel axes."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 286.0, 14.0, 226.0
"""Of the drawing area of a panel, which is 300 wide and 270 high."""
Named = tuple[tuple[str, Value], ...]


@final
@dataclass(frozen=True)
class Card:
    """One policy.

    Attributes:
        title: its name.
        facts: what is known of it.
        code: a line of Python that loads it.
    """

    title: str
    facts: Named
    code: str


@final
@dataclass(frozen=True)
class Panel:
    """A drawing with one mark for each card: a point, or a line through several.

    Attributes:
        across: what the horizontal axis is, with its least and most.
        up: the vertical one, likewise.
        marks: for each card, in order, where it is.
    """

    across: tuple[str, str, str]
    up: tuple[str, str, str]
    marks: tuple[tuple[tuple[float, float], ...], ...]


@final
@dataclass(frozen=True)
class Choice:
    """Policies to choose from.

    Attributes:
        about: how to read it.
        panels: the maps.
        cards: the policies, in the order of the marks.
    """

    about: str
    panels: tuple[Panel, ...]
    cards: tuple[Card, ...]


def panels(points: Float[np.ndarray, "A M"], objectives: tuple[str, ...]) -> tuple[Panel, ...]:
    """One for each pair of objectives, or one with a line for each policy."""
    low, high = points.min(axis=0), points.max(axis=0)
    place = 0.05 + 0.9 * np.where(high > low, (points - low) / np.where(high > low, high - low, 1.0), 0.5)
    if len(objectives) > _WIDE:
        across = (" · ".join(objectives), "", "")
        return (Panel(across, ("least to most of each", "", ""), tuple(_line(row) for row in place)),)
    named = [(name, number(float(a), 3), number(float(b), 3)) for name, a, b in zip(objectives, low, high, strict=True)]
    pairs = list(combinations(range(len(objectives)), 2)) or [(0, 0)]
    return tuple(Panel(named[i], named[j], tuple((_at(row[i], row[j]),) for row in place)) for i, j in pairs)


def _line(row: Any) -> tuple[tuple[float, float], ...]:
    return tuple(_at(k / (len(row) - 1), value) for k, value in enumerate(row))


def _at(across: float, up: float) -> tuple[float, float]:
    return round(_LEFT + (_RIGHT - _LEFT) * float(across), 1), round(_BOTTOM - (_BOTTOM - _TOP) * float(up), 1)
