"""What the parts of the actor's study share: how near a slope must be, and numbers as its tables show them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from moac.report.numbers import number
from moac.statistics import Mean
from moac_studies.studies import Findings

NOT_RUN = "Left out of this reduced run."
TOLERANCE = 0.1
"""A slope is what is claimed when its whole interval lies within this of it."""


def with_interval(value: Mean) -> str:
    """A number with its 95 % interval."""
    return f"{number(value.value, 3)} [{number(value.low, 3)}, {number(value.high, 3)}]"


def listed(values: Mapping[str, Any]) -> str:
    """Names with their values, in one line."""
    shown = {name: with_interval(v) if isinstance(v, Mean) else str(v) for name, v in values.items()}
    return "; ".join(f"{name}: {value}" for name, value in shown.items())


def joined(parts: Iterable[Findings]) -> Findings:
    """Findings one after the other."""
    every = list(parts)
    return Findings(
        tuple(claim for part in every for claim in part.claims),
        tuple(table for part in every for table in part.tables),
        tuple(figure for part in every for figure in part.figures),
    )
