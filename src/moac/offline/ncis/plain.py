"""A report as plain data for JSON, and as lines for a reader."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from moac.offline.ncis.report import PolicyReport, Report


def plain(found: Any) -> Any:
    """Dataclasses as dictionaries, arrays and tuples as lists; NaN is None, infinity the string "inf".

    Fields that are not in a dataclass's representation are left out.
    """
    if is_dataclass(found) and not isinstance(found, type):
        return {field.name: plain(getattr(found, field.name)) for field in fields(found) if field.repr}
    if isinstance(found, Mapping):
        return {str(key): plain(value) for key, value in found.items()}
    if isinstance(found, np.ndarray | np.generic):
        return plain(found.tolist())
    if isinstance(found, list | tuple):
        return [plain(value) for value in found]
    if isinstance(found, float) and not math.isfinite(found):
        return None if math.isnan(found) else "inf" if found > 0 else "-inf"
    return found


def table(report: Report) -> str:
    """For each policy its verdict with the reasons, then a line per signal."""
    return "\n".join(line for name in report.policies for line in _lines(report, name, report.policies[name]))


def _lines(report: Report, name: str, own: PolicyReport) -> Iterator[str]:
    rows = own.diagnostics[0].rows
    effective = min(one.row_effective_share for one in own.diagnostics)
    yield f"{name}: {own.verdict.level}; {rows} rows, effective {effective:.0%}, cap {report.options.cap:g}"
    yield from (f"  ! {reason.text}" for reason in own.verdict.reasons)
    for k, signal in enumerate(report.signal_names):
        low, high = own.ncis.interval[k]
        line = f"  {signal:12} {own.ncis.value[k]:+.5g} [{low:+.5g}, {high:+.5g}]"
        yield line + _changed(report, own, k) + ("" if own.estimable[k] else "  not estimable")


def _changed(report: Report, own: PolicyReport, k: int) -> str:
    if own.change is None:
        return ""
    low, high = own.change.relative_interval[k]
    star = " *" if own.change.significant[k] else ""
    return f"  {own.change.relative[k]:+.1%} [{low:+.1%}, {high:+.1%}] to {report.baseline}{star}"
