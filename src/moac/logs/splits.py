"""Which rows of a log are train, validation and test: by a hash of users, by a date, or by both."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from jaxtyping import Int

from moac.choices import shown

SPLITS = ("train", "validation", "test")
"""A split is an index into these; −1 is a row in none of them."""
SHARES = (0.8, 0.1, 0.1)
RULES = ("users", "time", "unseen")
_WHOLE = re.compile("0|-?[1-9][0-9]{0,18}")
_UNITS = ((1e8, 0), (1e11, 1), (1e14, 10**3), (1e17, 10**6), (np.inf, 10**9))
"""Times below the first number count so many units a second; below 1e8 they are not dates."""
LAST = 7_258_118_400
"""Seconds up to the year 2200; 20220504093000 is no date: it would be milliseconds of the year 2610. Dates from then on
stand for "never"."""


@dataclass(frozen=True)
class Rule:
    """Which rows a policy is trained on, chosen by and tested on.

    `users`: rows of train, validation and test users. `time`: all rows before a moment are train rows; users, by their
    hash, are validation or test users after it. `unseen`: train users before the moment, the others after it.
    """

    name: str = "users"
    moment: str = ""  # a date, in UTC, or a number as the log's times are
    seed: int = 0  # of the hash
    shares: tuple[float, float, float] = SHARES  # of users

    def __post_init__(self) -> None:
        shares = self.shares
        if len(shares) != len(SPLITS) or min(shares) < 0 or abs(sum(shares) - 1) > 1e-9 or shares[0] <= 0:
            raise ValueError(f"`shares` must be three that sum to 1, the first positive, got {tuple(shares)}.")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"`split_seed` must be in [0, 2^32), got {self.seed}.")
        if self.name not in RULES or bool(self.moment) != (self.name != "users"):
            given = f"{self.name}{':' * bool(self.moment)}{self.moment}"
            raise ValueError(f"`split` must be users, time:DATE or unseen:DATE, got {shown(given)}.")
        if self.name == "time" and not sum(self.shares[1:]):
            raise ValueError(f"`shares` must leave users to validate or test on, got {self.shares}.")

    @classmethod
    def of(cls, text: str, seed: int, shares: tuple[float, float, float]) -> Rule:
        """From `users`, `time:2022-05-04` or `unseen:2022-05-04`."""
        name, _, moment = text.partition(":")
        return cls(name, moment, seed, shares)

    def users(self, ids: Any) -> Int[np.ndarray, " U"]:
        """The split of each user; of a rule by time alone that of its rows after the moment."""
        _, validation, test = self.shares
        later = (0.0, validation / (validation + test), test / (validation + test)) if self.name == "time" else None
        return split_users(ids, self.seed, later or self.shares)

    def rows(self, user: Any, time: Any, since: float | None) -> Int[np.ndarray, " n"]:
        """The split of rows by their users' split and their time."""
        if since is None:
            return user
        early = np.asarray(time) < since
        if self.name == "time":
            return np.where(early, np.int8(0), user)
        return np.where(early == (user == 0), user, np.int8(-1))

    def since(self, newest: float) -> float | None:
        """The moment in the unit of the log's times, of which the newest is given."""
        if self.name == "users":
            return None
        if re.fullmatch(r"[+-]?\d+(\.\d+)?", self.moment):
            return float(self.moment) if "." in self.moment else int(self.moment)
        return int(self._date().timestamp()) * per_second(newest)

    def _date(self) -> datetime:
        try:
            moment = datetime.fromisoformat(self.moment)
        except ValueError:
            right = "a date such as 2022-05-04, or a number as the log's times are"
            raise ValueError(f"`split` must have {right}, got {shown(self.moment)}.") from None
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def per_second(newest: float, dated: bool = True) -> int:
    """How many units of a log's times are a second, by the size of the newest; 0, or an error, where they are none."""
    unit = next(unit for below, unit in _UNITS if abs(newest) < below)
    unit = unit if abs(newest) < LAST * unit else 0
    if dated and not unit:
        raise ValueError(f"`split` must have a number as the log's times are, such as {newest}: they are not dates.")
    return unit


def split_users(ids: Any, seed: int, shares: tuple[float, float, float]) -> Int[np.ndarray, " U"]:
    """0, 1 or 2 for each id, the same wherever the user is: where its hash falls among the shares."""
    return np.searchsorted(np.cumsum(shares)[:-1], _uniform(np.asarray(ids), seed), side="right").astype(np.int8)


def fold_users(ids: Any, seed: int, count: int) -> Int[np.ndarray, " U"]:
    """0 … count − 1 for each id, by the same hash of other seeds: a fold says nothing of the split."""
    return (_uniform(np.asarray(ids), seed + 2**32) * count).astype(np.int8)


def _uniform(ids: Any, seed: int) -> Any:
    """SplitMix64(id, seed) / 2⁶⁴ (Steele et al., 2014)."""
    if ids.dtype.kind not in "iu":
        ids = np.array([_bits(str(one)) for one in ids], dtype=np.uint64)
    with np.errstate(over="ignore"):
        z = ids.astype(np.uint64) + np.uint64(seed) * np.uint64(0xD1B54A32D192ED03) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return (z ^ (z >> np.uint64(31))) / 2.0**64


def _bits(name: str) -> int:
    """64 bits of an id that is a text: a whole number as where all ids are such, else the start of its SHA-256."""
    if _WHOLE.fullmatch(name) and -(2**63) <= int(name) < 2**63:
        return int(name) % 2**64
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
