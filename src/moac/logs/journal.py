"""What a build has finished, so that the next build of the same files need not do it again."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, final

from moac.files import write_bytes

_IDENTITY = "identity"
LAST = "manifest"
"""The step after which only files of the dataset itself are needed."""
Until = Callable[[Path], str | None]
_LARGEST = 1 << 24
"""Bytes of a note; a longer one is none of ours."""


@final
class Journal:
    """Notes of a folder's finished steps, each with the hashes of the files it wrote.

    A folder that was built from other files or with other options is emptied, and so is one whose files are no longer
    what was noted, or are not `sound`; a file that no note speaks of is removed.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any], sound: Callable[[Path], bool]) -> None:
        self._folder, self._notes, self._sound = folder, folder / "journal", sound
        if self._read(_IDENTITY) != {"found": identity, "files": {}} or not self._whole():
            for path in folder.iterdir():
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        self._notes.mkdir(parents=True, exist_ok=True)
        self._sweep()
        self.note(_IDENTITY, identity)

    def done(self, step: str) -> Any:
        """What was noted of a step; None where it has not been finished."""
        found = self._read(step)
        return None if found is None else found["found"]

    def note(self, step: str, found: Any, files: Iterable[Path] = (), until: Until | None = None) -> None:
        """A step is finished.

        Args:
            step: its name.
            found: what it found, as plain data.
            files: what it wrote.
            until: the step after which a file may be gone; None is always needed.
        """
        written = {str(path.relative_to(self._folder)): (_sha256(path), until and until(path)) for path in files}
        write_bytes(self._notes / f"{step}.json", json.dumps({"found": found, "files": written}).encode())

    def _read(self, step: str) -> Any:
        """A note; None where it is missing or damaged."""
        path = self._notes / f"{step}.json"
        try:
            note: Any = json.loads(path.read_bytes()) if path.stat().st_size <= _LARGEST else {}
            inside = all(".." not in Path(name).parts and not Path(name).is_absolute() for name in note["files"])
            hashed = all(len(about) == 2 for about in note["files"].values())
            return note if inside and hashed and set(note) == {"found", "files"} else None
        except (OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError):
            return None

    def _all(self) -> list[Any]:
        return [self._read(path.stem) for path in self._notes.glob("*.json")]

    def _whole(self) -> bool:
        """Whether every file is what was noted, or has been used up."""
        return all(note is not None and all(map(self._same, note["files"].items())) for note in self._all())

    def _same(self, file: tuple[str, tuple[str, str | None]]) -> bool:
        name, (sha256, until) = file
        path = self._folder / name
        if until is not None and self._read(until) is not None and not path.exists():
            return True
        return path.is_file() and _sha256(path) == sha256 and self._sound(path)

    def _sweep(self) -> None:
        """Remove what unfinished steps have left."""
        noted = {self._folder / name for note in self._all() for name in note["files"]}
        for path in self._folder.rglob("*"):
            if not path.is_dir() and path not in noted and path.parent != self._notes:
                path.unlink()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
