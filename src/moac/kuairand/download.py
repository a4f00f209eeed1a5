"""Fetch KuaiRand from its Zenodo record: resumable, checked, and unpacked safely. Standard library only."""

from __future__ import annotations

import hashlib
import http.client
import tarfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from moac.choices import one_of, shown
from moac.files import making, no_follow
from moac.kuairand.schema import FOLDERS
from moac.locks import becoming, check_room, held, refuse_existing

ZENODO = "https://zenodo.org/records/10439422/files"
_BLOCK = 1 << 20
_SECONDS = 60.0
"""Without a byte, before a connection counts as lost."""

Progress = Callable[[int, int], None]
"""Told the bytes that are there, and all."""


@dataclass(frozen=True)
class Archive:
    """One file of the record."""

    folder: str  # that it unpacks to; its name is the folder's with `.tar.gz`
    size: int  # in bytes
    md5: str  # of its content
    unpacked: int  # about how many bytes its members take

    @property
    def name(self) -> str:
        """Of the file."""
        return f"{self.folder}.tar.gz"

    def check(self, path: Path) -> None:
        """Refuse a file that is not this one."""
        if _size(path) != self.size:
            raise ValueError(f"{path} must have {self.size:,} bytes, got {_size(path):,}: delete it and try again.")
        with path.open("rb") as file:
            md5 = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
        if md5 != self.md5:
            raise ValueError(f"{path} must have the md5 {self.md5}, got {md5}: delete it and download it again.")


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
    archive = archives[one_of("variant", variant, archives)]
    target, whole = out / archive.folder, out / archive.name
    part = whole.with_name(f"{whole.name}.part")
    refuse_existing(target)
    missing = max(archive.size - (_size(whole) or _size(part)), 0)
    check_room(out, archive.folder, missing + archive.unpacked)
    with making(out), held(out / f".{archive.name}.lock", target):
        if whole.exists():
            archive.check(whole)
        else:
            _download(f"{base_url.rstrip('/')}/{archive.name}", archive, part, progress or (lambda done, total: None))
            archive.check(part)
            part.rename(whole)
        return unpack(whole, target)


def _download(url: str, archive: Archive, part: Path, progress: Progress) -> None:
    """Ask for what is missing, again where a connection ends early, as long as every answer brings the file further.

    A server that sends the whole file instead starts it anew; one that sends other bytes is found out by the hash.
    """
    before, begin = -1, _size(part)
    while before < begin < archive.size:
        with _ask(url, begin) as answer:
            resumed = answer.status == http.HTTPStatus.PARTIAL_CONTENT
            done = begin if resumed else 0
            with open(part, "ab" if resumed else "wb", opener=no_follow) as file:
                while done < archive.size and (block := _read(answer, min(_BLOCK, archive.size - done))):
                    file.write(block)
                    done += len(block)
                    progress(done, archive.size)
        before, begin = begin, _size(part)
    if begin < archive.size:
        raise ValueError(
            f"{url} ended after {begin:,} of {archive.size:,} bytes. They are kept: repeat the command to continue."
        )


def _read(answer: http.client.HTTPResponse, size: int) -> bytes:
    """The next bytes; none where the connection has ended, however it did: `_download` asks for the rest."""
    try:
        return answer.read(size)
    except (http.client.HTTPException, OSError):
        return b""


def _ask(url: str, begin: int) -> http.client.HTTPResponse:
    """Open `url` from byte `begin` on."""
    if not url.startswith(("https://", "http://")):
        raise ValueError(f"`base_url` must begin with https:// or http://, got {shown(url)}.")
    request = urllib.request.Request(url, headers={"Range": f"bytes={begin}-"} if begin else {})
    try:
        return urllib.request.urlopen(request, timeout=_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        raise ValueError(f"{url} cannot be downloaded: the server answered {error.code} {error.reason}.") from None
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        reason = getattr(error, "reason", error)
        raise ValueError(f"{url} cannot be reached: {reason}. Try again when the network is available.") from None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def unpack(archive: Path, target: Path) -> Path:
    """The members of a tar.gz as `target`, which must not exist; it appears wholly or not at all.

    A folder of the target's name at the top of the archive is the target itself. Python's `data` filter refuses what
    leads outside, and devices.
    """

    def below(member: tarfile.TarInfo, place: str) -> tarfile.TarInfo | None:
        name = PurePosixPath(member.name)
        inside = name.relative_to(target.name) if name.parts[:1] == (target.name,) else name
        return tarfile.data_filter(member.replace(name=str(inside)), place)

    refuse_existing(target)
    try:
        with becoming(target) as folder, tarfile.open(archive, "r|gz") as bundle:
            for member in bundle:
                bundle.extract(member, folder, filter=below)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise ValueError(f"{archive} cannot be unpacked: {error}.") from None
    return target
