"""Fetch KuaiRand from its Zenodo record: resumable, checked, and unpacked safely. Standard library only."""

from __future__ import annotations

import hashlib
import http.client
import re
import shutil
import tarfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, final

from moac.files import no_follow
from moac.kuairand.schema import FOLDERS
from moac.logs.folder import becoming, check_room, full_disk_said, refuse_existing

ZENODO = "https://zenodo.org/records/10439422/files"
_BLOCK = 1 << 20
_ATTEMPTS = 20
_SECONDS = 60.0
"""Without a byte, before a connection counts as lost."""
_MEMBERS = 1000
"""More than any archive of the dataset holds."""

Progress = Callable[[int, int], None]
"""Told the bytes that are there, and all."""


@final
@dataclass(frozen=True)
class Archive:
    """One file of the record.

    Attributes:
        folder: that it unpacks to; its name is the folder's with `.tar.gz`.
        size: in bytes.
        md5: of its content.
        unpacked: about how many bytes its members take; a quarter more is refused.
    """

    folder: str
    size: int
    md5: str
    unpacked: int

    @property
    def name(self) -> str:
        """Of the file."""
        return f"{self.folder}.tar.gz"


ARCHIVES: Mapping[str, Archive] = {
    "pure": Archive(FOLDERS["pure"], 47_432_272, "0820331067a3784d9691136f772b35a7", 204_000_000),
    "1k": Archive(FOLDERS["1k"], 1_135_436_720, "6b0b9c8222d67fcd4c676218edca3f1f", 4_700_000_000),
    "27k": Archive(FOLDERS["27k"], 9_892_191_178, "3e3c799a24e2d23a4d2c757fbf9adf59", 50_000_000_000),
}


def fetch(
    variant: str,
    out: Path,
    *,
    base_url: str = ZENODO,
    archives: Mapping[str, Archive] = ARCHIVES,
    progress: Progress | None = None,
) -> Path:
    """Download, check and unpack a variant into `out`; returns the folder with the data.

    What has arrived stays in `NAME.part` when the download stops, and the next call continues there. An archive that
    is in `out` already, from a mirror say, is checked and used. The archive is kept beside the folder.
    """
    if variant not in archives:
        raise ValueError(f"`variant` must be one of {', '.join(archives)}, got {variant!r}.")
    archive = archives[variant]
    target, whole = out / archive.folder, out / archive.name
    refuse_existing(target)
    out.mkdir(parents=True, exist_ok=True)
    there = _size(whole) or _size(_part(whole))
    check_room(out, archive.folder, max(archive.size - there, 0) + archive.unpacked)
    with full_disk_said(out, "Free some space and run it again: it continues."):
        if not whole.exists():
            _download(
                f"{base_url.rstrip('/')}/{archive.name}", archive, _part(whole), progress or (lambda done, total: None)
            )
            _check_content(archive, _part(whole))
            _part(whole).rename(whole)
        else:
            _check_content(archive, whole)
        return unpack(whole, target, archive.unpacked + archive.unpacked // 4)


def _part(whole: Path) -> Path:
    return whole.with_name(f"{whole.name}.part")


def _download(url: str, archive: Archive, part: Path, progress: Progress) -> None:
    """Ask again where a connection ends early, as long as every answer brings the file further."""
    for _ in range(_ATTEMPTS):
        before = _size(part)
        if before == archive.size:
            return
        if before > archive.size:
            raise ValueError(
                f"{part} is longer than {archive.name}, {archive.size:,} bytes: delete it and run it again."
            )
        _continue(url, archive, part, progress)
        if _size(part) <= before:
            break
    if _size(part) != archive.size:
        raise ValueError(
            f"{url} ended after {_size(part):,} of {archive.size:,} bytes. They are kept: run it again to continue."
        )


def _continue(url: str, archive: Archive, part: Path, progress: Progress) -> None:
    """One request for what is missing; a server that sends the whole file instead starts it anew."""
    begin = _size(part)
    with _ask(url, begin) as answer:
        resumed = answer.status == http.HTTPStatus.PARTIAL_CONTENT
        if resumed:
            _check_range(url, answer.headers.get("Content-Range", ""), begin, archive.size)
        done = begin if resumed else 0
        with open(part, "ab" if resumed else "wb", opener=no_follow) as file:
            while done < archive.size and (block := _read(answer, min(_BLOCK, archive.size - done))):
                file.write(block)
                done += len(block)
                progress(done, archive.size)


def _read(answer: http.client.HTTPResponse, size: int) -> bytes:
    """The next bytes; none where the connection has ended, however it did: `_download` asks for the rest."""
    try:
        return answer.read(size)
    except (http.client.HTTPException, OSError):
        return b""


def _ask(url: str, begin: int) -> http.client.HTTPResponse:
    """Open `url` from byte `begin` on."""
    if not url.startswith(("https://", "http://")):
        raise ValueError(f"`base_url` must begin with https:// or http://, got {url!r}.")
    request = urllib.request.Request(url, headers={"Range": f"bytes={begin}-"} if begin else {})
    try:
        return urllib.request.urlopen(request, timeout=_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        what = "is not there" if error.code == http.HTTPStatus.NOT_FOUND else "cannot be had now"
        raise ValueError(f"{url} {what}: the server answered {error.code} {error.reason}.") from None
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        reason = getattr(error, "reason", error)
        raise ValueError(f"{url} cannot be reached: {reason}. Run it again when there is a network.") from None


def _check_range(url: str, given: str, begin: int, size: int) -> None:
    """A part of another file, or from another place, must not be appended."""
    sent = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", given)
    if sent is None or int(sent[1]) != begin or sent[2] not in (str(size), "*"):
        raise ValueError(f"{url} must send bytes {begin}- of {size}, got {given!r}.")


def _check_content(archive: Archive, path: Path) -> None:
    size = _size(path)
    if size != archive.size:
        raise ValueError(f"{path} must have {archive.size:,} bytes, got {size:,}: delete it and run it again.")
    with path.open("rb") as file:
        md5 = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if md5 != archive.md5:
        raise ValueError(f"{path} must have the md5 {archive.md5}, got {md5}: delete it and download it again.")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def unpack(archive: Path, target: Path, limit: int) -> Path:
    """The members of a tar.gz as `target`, which must not exist; it appears wholly or not at all.

    A folder of the target's name at the top of the archive is the target itself. `limit` bounds the bytes of all
    members together.
    """
    refuse_existing(target)
    try:
        with becoming(target) as folder:
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
