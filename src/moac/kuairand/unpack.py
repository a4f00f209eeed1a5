"""Unpack an archive that is not trusted: files and folders inside one new folder, and nothing else."""

from __future__ import annotations

import shutil
import tarfile
import zlib
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

from moac.logs.disk import refuse_existing
from moac.logs.workspace import building

_BLOCK = 1 << 20
_MEMBERS = 1000
"""More than any archive of the dataset holds."""


def unpack(archive: Path, target: Path, limit: int) -> Path:
    """The members of a tar.gz as `target`, which must not exist; it appears wholly or not at all.

    A folder of the target's name at the top of the archive is the target itself. `limit` bounds the bytes of all
    members together.
    """
    refuse_existing(target)
    try:
        with building(target) as folder:
            _extract(archive, folder, target.name, limit)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise ValueError(f"{archive} is not a whole tar.gz archive: {error}.") from None
    return target


def _extract(archive: Path, folder: Path, top: str, limit: int) -> None:
    left = limit
    with tarfile.open(archive, "r|gz") as bundle:
        for count, member in enumerate(bundle):
            path = folder / _place(archive, member, top)
            left -= member.size
            if left < 0 or count >= _MEMBERS:
                raise ValueError(f"{archive} unpacks to more than {limit:,} bytes or {_MEMBERS} members: not unpacked.")
            if member.isdir():
                path.mkdir(parents=True, exist_ok=True)
            elif (content := bundle.extractfile(member)) is not None:
                _write(archive, path, content)


def _place(archive: Path, member: tarfile.TarInfo, top: str) -> PurePosixPath:
    """Where a member belongs, below the top folder; a link, a device or a name that leads elsewhere is an error."""
    if not (member.isreg() or member.isdir()):
        raise ValueError(f"{archive}: member {member.name!r} is neither a file nor a folder: not unpacked.")
    windows, posix = PureWindowsPath(member.name), PurePosixPath(member.name)
    if posix.is_absolute() or windows.anchor or ".." in (*posix.parts, *windows.parts):
        raise ValueError(f"{archive}: member {member.name!r} leads outside the folder: not unpacked.")
    return posix.relative_to(top) if posix.parts[:1] == (top,) else posix


def _write(archive: Path, path: Path, content: IO[bytes]) -> None:
    """A new file; one that is there already was named twice."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            shutil.copyfileobj(content, file, _BLOCK)
    except (FileExistsError, NotADirectoryError, IsADirectoryError):
        raise ValueError(f"{archive}: two members share the name {path.name!r}: not unpacked.") from None
