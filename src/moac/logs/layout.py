"""Find the files of a KuaiRand variant in a folder, by their official names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

from moac.kuairand import schema
from moac.kuairand.schema import Kind

_ALIKE = "log_standard_4_22_to_5_08_pure.csv"


@final
@dataclass(frozen=True)
class Sources:
    """The files a dataset is built from.

    Attributes:
        variant: `pure`, `1k` or `27k`.
        standard: logs of the production policy.
        random: logs of uniformly random exposure.
        users: user features.
        videos: basic video features.
        statistics: video statistics; empty where they were not asked for.
        absent: names of official logs that are not there.
    """

    variant: str
    standard: tuple[Path, ...]
    random: tuple[Path, ...]
    users: Path
    videos: Path
    statistics: tuple[Path, ...]
    absent: tuple[str, ...]

    @property
    def logs(self) -> tuple[Path, ...]:
        """All logs."""
        return self.standard + self.random

    @property
    def files(self) -> tuple[tuple[Path, Kind], ...]:
        """Every file with its kind."""
        named = {name: kind for kind in schema.KINDS for name in kind.file_names(self.variant)}
        paths = (self.users, self.videos, *self.statistics, *self.standard)
        return (*((path, named[path.name]) for path in paths), *((path, schema.RANDOM_LOG) for path in self.random))


def find(folder: Path, random_log: Path | None = None, statistics: bool = False) -> Sources:
    """The one variant that `folder` holds: itself, its `data`, or a few folders down."""
    if not folder.is_dir():
        raise ValueError(f"`SRC` must be a folder with KuaiRand's files, got {folder}.")
    found = _by_name(folder)
    variant = _variant(found, folder, random_log is not None)
    standard = tuple(path for kind in schema.STANDARD_LOGS for path in _parts(found, kind, variant))
    random = _parts(found, schema.RANDOM_LOG, variant)
    if random_log is not None:
        if not random_log.is_file():
            raise ValueError(f"`random_log` must be a file, got {random_log}.")
        random = (random_log,)
    expected = (*schema.STANDARD_LOGS, *(() if random else (schema.RANDOM_LOG,)))
    absent = tuple(name for kind in expected for name in kind.file_names(variant) if name not in found)
    wanted = _parts(found, schema.VIDEO_STATISTICS, variant) if statistics else ()
    if statistics and not wanted:
        raise ValueError(f"{schema.VIDEO_STATISTICS.file_names(variant)[0]} is missing in {folder}.")
    users, videos = (_required(found, kind, variant, folder) for kind in (schema.USER_FEATURES, schema.VIDEO_FEATURES))
    return Sources(variant, standard, random, users, videos, wanted, absent)


def _by_name(folder: Path) -> dict[str, Path]:
    """Official names in the folder and three levels below it."""
    known = {name for kind in schema.KINDS for variant in schema.VARIANTS for name in kind.file_names(variant)}
    found: dict[str, Path] = {}
    for pattern in ("*.csv", "*/*.csv", "*/*/*.csv", "*/*/*/*.csv"):
        for path in sorted(folder.glob(pattern)):
            if path.name in known and path.name in found:
                raise ValueError(f"{path.name} must be there once, got {found[path.name]} and {path}.")
            if path.name in known:
                found[path.name] = path
    return found


def _variant(found: dict[str, Path], folder: Path, log_given: bool) -> str:
    """The variant that is there; where it is incomplete, the one with the most files, for the message to come."""
    held = {variant: _held(found, variant) for variant in schema.VARIANTS}
    if not any(held.values()):
        raise ValueError(f"{folder} holds no file of KuaiRand, such as {_ALIKE}.")
    complete = [variant for variant in schema.VARIANTS if len(held[variant] | ({"log"} if log_given else set())) == 3]
    if len(complete) > 1:
        raise ValueError(f"{folder} holds several variants ({', '.join(complete)}): point at the folder of one.")
    return complete[0] if complete else _lacking(held, folder)


def _held(found: dict[str, Path], variant: str) -> set[str]:
    """Which of the three things that a dataset needs are there."""
    logs = {name for kind in (*schema.STANDARD_LOGS, schema.RANDOM_LOG) for name in kind.file_names(variant)}
    needs = {"log": logs}
    needs |= {kind.name: set(kind.file_names(variant)) for kind in (schema.USER_FEATURES, schema.VIDEO_FEATURES)}
    return {need for need, names in needs.items() if names & set(found)}


def _lacking(held: dict[str, set[str]], folder: Path) -> str:
    variant = max(schema.VARIANTS, key=lambda name: len(held[name]))
    kinds = {"log": schema.STANDARD_LOGS[1]}
    kinds |= {kind.name: kind for kind in (schema.USER_FEATURES, schema.VIDEO_FEATURES)}
    missing = next(kind for need, kind in kinds.items() if need not in held[variant])
    raise ValueError(f"{missing.file_names(variant)[0]} ({missing.name}) is missing in {folder}.")


def _parts(found: dict[str, Path], kind: Kind, variant: str) -> tuple[Path, ...]:
    """All parts of a file, or none; some without the others is a mistake."""
    names = kind.file_names(variant)
    there = [name for name in names if name in found]
    for name in names:
        if there and name not in found:
            raise ValueError(f"{name} is missing beside {found[there[0]]}: the parts belong together.")
    return tuple(found[name] for name in there)


def _required(found: dict[str, Path], kind: Kind, variant: str, folder: Path) -> Path:
    name = kind.file_names(variant)[0]
    if name not in found:
        raise ValueError(f"{name} ({kind.name}) is missing in {folder}.")
    return found[name]
