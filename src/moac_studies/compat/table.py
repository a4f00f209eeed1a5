"""What the published protocol gives, with everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from moac import files
from moac_studies.compat.faults import FAULTS


@final
@dataclass(frozen=True, eq=False)
class Table:
    """Values that the published protocol would report.

    Attributes:
        signal_names: as logged, so that of a cost less is better.
        values: by method, one per signal; Behavior-Clone's is the mean of the test rows.
        steps: by method, after which the reported checkpoint was chosen.
        measured: what the faults amount to on these rows.
        lacking: raw columns that the dataset does not hold as such: their place is 0 or an encoded number.
        departures: where these rows, not the code, differ from the published ones.
        faults: of the protocol.
    """

    signal_names: tuple[str, ...]
    values: Mapping[str, Any]
    steps: Mapping[str, int]
    measured: Mapping[str, float]
    lacking: tuple[str, ...]
    departures: tuple[str, ...]
    faults: tuple[str, ...] = FAULTS

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return files.finite(self, name_infinities=True)

    def __str__(self) -> str:
        head = f"{'tscac-compat':16}" + "".join(f"{name:>20}" for name in self.signal_names)
        lines = ["The published protocol, repeated with its faults: these are no estimates to rely on.", head]
        lines += [f"{name:16}" + "".join(self._cells(own)) for name, own in self.values.items()]
        lines += ["Faults of the protocol:", *(f"  {k}. {fault}" for k, fault in enumerate(self.faults, 1))]
        lines += ["On these rows:", *(f"  {name}: {value:.4g}" for name, value in self.measured.items())]
        lines += ["Other than in the published setting:", *(f"  {text}" for text in self.departures)]
        if self.lacking:
            lines.append(f"  not in the dataset as raw numbers: {', '.join(self.lacking)}")
        return "\n".join(lines)

    def _cells(self, own: Any) -> list[str]:
        base = next(iter(self.values.values()))
        changes = [f"{value / b - 1:+.1%}" if b else "n/a" for value, b in zip(own, base, strict=True)]
        return [f"{value:>11.4g} {change:>8}" for value, change in zip(own, changes, strict=True)]
