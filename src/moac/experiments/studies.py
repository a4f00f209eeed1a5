"""What an experiment finds, and where a study of the theory keeps its measurements while it goes on."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, final

from matplotlib.figure import Figure as Drawing

from moac.experiments import files
from moac.report.page import Claim, Table

Say = Callable[[str], None]


class Titled(Protocol):
    """What a report says of an experiment, whatever it measures."""

    @property
    def name(self) -> str:
        """Of its file."""
        ...

    @property
    def title(self) -> str:
        """Of its report."""
        ...

    @property
    def seed(self) -> int:
        """Of all randomness."""
        ...

    @property
    def summary(self) -> str:
        """What is shown."""
        ...

    @property
    def why(self) -> str:
        """How the settings were chosen."""
        ...

    @property
    def quick(self) -> bool:
        """Whether this is the reduced run."""
        ...


@final
@dataclass(frozen=True)
class Shown:
    """A drawing and what to say of it."""

    name: str
    file: str
    drawing: Drawing
    caption: str
    alt: str


@final
@dataclass(frozen=True)
class Findings:
    """What an experiment's report shows, in reading order."""

    claims: tuple[Claim, ...]
    tables: tuple[Table, ...]
    figures: tuple[Shown, ...]


@final
@dataclass(frozen=True)
class Workspace:
    """A folder of finished measurements, so that an interrupted study goes on where it stopped.

    Attributes:
        folder: one file for each measurement.
        say: tells the user what begins and how long it took.
    """

    folder: Path
    say: Say

    def arrays(self, label: str, parameters: dict[str, Any], measure: Callable[[], files.Arrays]) -> files.Arrays:
        """The arrays that `measure` returns, from the file of an earlier call where label and parameters agree."""
        identity = json.dumps([label, parameters], sort_keys=True)
        path = self.folder / f"{label}-{hashlib.sha256(identity.encode()).hexdigest()[:10]}.safetensors"
        if path.exists():
            return files.read_arrays(path)[0]
        began = time.monotonic()
        found = measure()
        files.subfolder(self.folder.parent, self.folder.name)
        files.write_arrays(path, found, parameters)
        self.say(f"{label}: {time.monotonic() - began:.1f} s")
        return found
