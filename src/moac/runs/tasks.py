"""One training run among several, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from moac.config import Config


@final
@dataclass(frozen=True)
class Task:
    """One training run among several.

    Attributes:
        label: the method's name, or the settings of a cell of the sensitivity grid.
        config: what differs from the defaults.
        trials: K.
    """

    label: str
    config: Config
    trials: int
