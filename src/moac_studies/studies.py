"""What an experiment finds, and where a study of the theory keeps its measurements while it goes on."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from moac import files
from moac.report.pages.experiment import Findings as Findings
from moac.report.pages.experiment import Shown as Shown
from moac.report.pages.experiment import Titled as Titled

Say = Callable[[str], None]


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
