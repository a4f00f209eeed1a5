"""What a build has finished, so that the next build of the same files need not do it again."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from moac.atomic import write_bytes

_IDENTITY = "identity"
LAST = "manifest"
"""The step after which the files of all others may be gone."""


@final
class Journal:
    """Notes of a folder's finished steps, each with the hashes of the files it wrote.

    A folder that was built from other files or with other options is emptied, and so is one whose files are no longer
    what was noted.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any]) -> None:
        self._folder, self._notes = folder, folder / "journal"
        if self._read(_IDENTITY) != {"found": identity, "files": {}} or not self._whole():
            for path in folder.iterdir():
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        self._notes.mkdir(parents=True, exist_ok=True)
        self.note(_IDENTITY, identity)

    def done(self, step: str) -> Any:
        """What was noted of a step; None where it has not been finished."""
        found = self._read(step)
        return None if found is None else found["found"]

    def note(self, step: str, found: Any, *files: Path) -> None:
        """A step is finished: what it found, and the files it wrote."""
        hashes = {str(path.relative_to(self._folder)): _sha256(path) for path in files}
        write_bytes(self._notes / f"{step}.json", json.dumps({"found": found, "files": hashes}).encode())

    def end(self) -> None:
        """Nothing more will be noted, and nothing is to remain."""
        shutil.rmtree(self._notes)

    def _read(self, step: str) -> Any:
        """A note; None where it is missing or damaged."""
        try:
            note = json.loads((self._notes / f"{step}.json").read_bytes())
            return note if set(note) == {"found", "files"} else None
        except (OSError, ValueError, TypeError, RecursionError):
            return None

    def _whole(self) -> bool:
        """Whether every file is what was noted."""
        steps = [path.stem for path in self._notes.glob("*.json")]
        notes = [self._read(step) for step in ([LAST] if LAST in steps else steps)]
        return all(note is not None and all(map(self._same, note["files"].items())) for note in notes)

    def _same(self, file: tuple[str, str]) -> bool:
        path = self._folder / file[0]
        return path.is_file() and _sha256(path) == file[1]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
