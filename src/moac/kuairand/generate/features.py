"""The feature files of a generated population: official columns, ranges and gaps, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from moac.kuairand.generate.model import UserModel, Users
from moac.kuairand.schema import STATISTICS, USER_NUMBERS, USERS, VIDEOS

Columns = dict[str, Any]
"""Values by name, each column an array or a sequence."""

_ACTIVE = {
    "full_active": 0.65, "high_active": 0.22, "middle_active": 0.08, "2_14_day_new": 0.02, "low_active": 0.01,
    "single_low_active": 0.01, "30day_retention": 0.004, "day_new": 0.003, "UNKNOWN": 0.003,
}  # fmt: skip
_RANGES: dict[str, tuple[Sequence[int], Sequence[str]]] = {
    "follow_user_num": (
        (1, 11, 51, 101, 151, 251, 501),
        ("0", "(0,10]", "(10,50]", "(50,100]", "(100,150]", "(150,250]", "(250,500]", "500+"),
    ),
    "fans_user_num": (
        (1, 10, 100, 1_000, 5_000, 10_000, 100_000, 1_000_000),
        ("0", "[1,10)", "[10,100)", "[100,1k)", "[1k,5k)", "[5k,1w)", "[1w,10w)", "[10w,100w)", "[100w,1000w)"),
    ),
    "friend_user_num": (
        (1, 5, 30, 60, 120, 250),
        ("0", "[1,5)", "[5,30)", "[30,60)", "[60,120)", "[120,250)", "250+"),
    ),
    "register_days": (
        (15, 31, 61, 91, 181, 366, 731),
        ("8-14", "15-30", "31-60", "61-90", "91-180", "181-365", "366-730", "730+"),
    ),
}
"""Where each range of a number begins, and what they are called."""
_TYPICAL = {
    "follow_user_num": (150, 1.3),
    "fans_user_num": (50, 1.8),
    "friend_user_num": (12, 2.0),
    "register_days": (1200, 0.9),
}
"""Median and spread of the logarithm."""
_ONEHOT = (2, 7, 50, 1471, 15, 34, 3, 118, 454, 7, 5, 5, 2, 2, 2, 2, 2, 2)
"""How many values each has; `onehot_feat1` is the user's kind."""
_KIND = 1
_WITH_GAPS = {4: 0.032, **dict.fromkeys(range(12, 18), 0.026)}
"""Shares of users without a value; these columns are written as decimals."""
_UPLOADS = ("LongImport", "Web", "ShortImport", "Kmovie", "LongPicture", "UNKNOWN", "PictureSet", "LongCamera")
_NO_DURATION, _NO_MUSIC, _NO_TAG, _TWO_TAGS = 0.032, 0.027, 0.013, 0.236


def users(people: Users, seed: int) -> Columns:
    """`user_features`: the kind stands in `onehot_feat1`, the hidden level nowhere."""
    rng, count = np.random.default_rng([seed, 4]), len(people.kind)
    numbers = {name: _amounts(rng, name, count) for name in USER_NUMBERS}
    gap = rng.random(count) < _WITH_GAPS[12]
    columns: Columns = {
        "user_id": range(count),
        "user_active_degree": rng.choice(list(_ACTIVE), size=count, p=list(_ACTIVE.values())),
        "is_lowactive_period": np.zeros(count, int),
        "is_live_streamer": np.where(rng.random(count) < 0.23, 1, -124),
        "is_video_author": (rng.random(count) < 0.82).astype(int),
        **numbers,
        **{f"{name}_range": _ranges(name, values) for name, values in numbers.items()},
    }
    for k, size in enumerate(_ONEHOT):
        values = people.kind if k == _KIND else rng.integers(0, size, count)
        missing = gap if k >= 12 else rng.random(count) < _WITH_GAPS.get(k, 0.0)
        columns[f"onehot_feat{k}"] = _decimals(values, missing) if k in _WITH_GAPS else values
    return {name: columns[name] for name in USERS}


def durations_ms(model: UserModel, seed: int) -> np.ndarray[Any, Any]:
    """[V] length of each video: above 7 s, so that a click is what the dataset calls a valid play."""
    rng = np.random.default_rng([seed, 5])
    return (7_100 + np.exp(np.log(60_000) + 0.9 * rng.standard_normal(model.num_videos))).astype(np.int32)


def videos(model: UserModel, seed: int) -> Columns:
    """`video_features_basic`: the first tag is the video's class."""
    rng, count = np.random.default_rng([seed, 6]), model.num_videos
    second = np.where(rng.random(count) < _TWO_TAGS, rng.integers(40, 70, count), -1)
    no_tag = rng.random(count) < _NO_TAG
    tags = zip(model.video_class.tolist(), second.tolist(), no_tag.tolist(), strict=True)
    wide = rng.random(count) < 0.2
    columns: Columns = {
        "video_id": range(count),
        "author_id": rng.integers(0, 8_900_000, count),
        "video_type": np.where(rng.random(count) < 0.01, "AD", "NORMAL"),
        "upload_dt": rng.choice(["2022-04-09", "2022-04-10", "2022-04-11"], size=count),
        "upload_type": rng.choice(_UPLOADS, size=count),
        "visible_status": ["0.0"] * count,
        "video_duration": _decimals(durations_ms(model, seed), rng.random(count) < _NO_DURATION),
        "server_width": np.where(wide, "1280.0", "720.0"),
        "server_height": np.where(wide, "720.0", "1280.0"),
        "music_id": rng.integers(0, 9_200_000_000, count),
        "music_type": _decimals(rng.choice([9, 4, 8, 7], size=count), rng.random(count) < _NO_MUSIC),
        "tag": ["" if gone else str(tag) if more < 0 else f"{tag},{more}" for tag, more, gone in tags],
    }
    return {name: columns[name] for name in VIDEOS}


def statistics(model: UserModel, seed: int) -> Columns:
    """`video_features_statistic`: positive numbers that grow with how often a video is shown."""
    rng, count = np.random.default_rng([seed, 7]), model.num_videos
    shown = np.einsum("z,zcv->v", model.row_share, model.behaviour) * 2e7 / model.behaviour.shape[1]
    columns: Columns = {"video_id": range(count), "counts": rng.integers(30, 150, count)}
    for name in list(STATISTICS)[2:]:
        share = np.exp(-rng.uniform(0.5, 6)) * np.exp(0.3 * rng.standard_normal(count))
        columns[name] = (shown * share).round(6)
    columns["show_cnt"] = shown.round(6)
    columns["play_progress"] = rng.beta(2, 6, count).round(6)
    return columns


def _amounts(rng: np.random.Generator, name: str, count: int) -> np.ndarray[Any, Any]:
    median, spread = _TYPICAL[name]
    least = 14 if name == "register_days" else 0
    return np.maximum(np.exp(np.log(median) + spread * rng.standard_normal(count)).astype(np.int64), least)


def _ranges(name: str, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    begins, names = _RANGES[name]
    return np.array(names)[np.searchsorted(begins, values, side="right")]


def _decimals(values: np.ndarray[Any, Any], missing: np.ndarray[Any, Any]) -> list[str]:
    """As pandas writes a column of whole numbers with gaps."""
    return ["" if gone else f"{value}.0" for value, gone in zip(values.tolist(), missing.tolist(), strict=True)]
