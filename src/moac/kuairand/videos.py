"""KuaiRand's video features as a table: numbers with fixed scales, categories that train users have seen."""

from __future__ import annotations

from typing import Any

import numpy as np

from moac.logs import encoding, queries
from moac.logs.encoding import Category, Encoding
from moac.logs.engine import Connection
from moac.logs.ingest import Work

_WIDTHS = {"tag": 4, "upload_type": 2, "music_type": 2}
_COLUMNS = {"tag": "split_part(tag, ',', 1)", "upload_type": "upload_type", "music_type": "music_type"}
NUMBERS = ("duration", "portrait", "advert", "age")
STATISTICS = ("play_user_num", "play_duration", "like_cnt")
"""The three of TSCAC's; opt-in, for they cover the test period."""
_LARGEST = 9.0
_BLOCK = 1 << 20


def fit(connection: Connection, work: Work) -> Encoding:
    """The categories of the videos that train users have viewed."""
    known, viewed = queries.parquet(work.videos), queries.parquet(*work.all_views)

    def values(name: str) -> list[Any]:
        return [row[0] for row in connection.execute(queries.categories(_COLUMNS[name], known, viewed)).fetchall()]

    return Encoding((), tuple(encoding.category(name, values(name), w, False) for name, w in _WIDTHS.items()))


def names(fitted: Encoding, statistics: bool) -> tuple[str, ...]:
    """Of the numbers of a video."""
    return NUMBERS + fitted.names + (STATISTICS if statistics else ())


def table(connection: Connection, work: Work, ids: Any, fitted: Encoding) -> tuple[Any, int]:
    """[I, e] int8 for the given ids, block by block; and how many of them have no features."""
    for part in fitted.categories:
        values = np.array(part.values, dtype=object)
        connection.register(f"codes_{part.name}", {"value": values, "code": np.arange(1, len(values) + 1)})
    blocks = [_block(connection, work, ids[k : k + _BLOCK], fitted) for k in range(0, len(ids), _BLOCK)]
    return np.concatenate([rows for rows, _ in blocks]), sum(missing for _, missing in blocks)


def _block(connection: Connection, work: Work, ids: Any, fitted: Encoding) -> tuple[Any, int]:
    connection.register("wanted", {"video_id": ids, "place": np.arange(len(ids))})
    statistics = queries.parquet(work.statistics) if work.statistics.exists() else None
    query = queries.video_features(queries.parquet(work.videos), _COLUMNS, statistics, STATISTICS)
    found = connection.execute(query).fetchnumpy()
    if len(found["video_id"]) > len(ids):
        again = found["video_id"][:-1][found["video_id"][1:] == found["video_id"][:-1]][0]
        raise ValueError(f"the video features must have one row for each video, got several for {again}.")
    return _numbers(found, fitted.categories), int((~found["known"]).sum())


def _numbers(found: dict[str, Any], categories: tuple[Category, ...]) -> Any:
    """log₁₀ of the duration around 30 s, of the age up to ten years, of counts up to 10⁹: scales that need no fit."""
    duration = np.clip((np.log10(np.maximum(found["duration"], 1)) - 4.5) / 1.5, -1, 1)
    age = np.clip(np.log10(1 + np.maximum(found["age"], 0)) / 3.6, 0, 1)
    columns = [np.where(found["duration"] > 0, duration, 0), found["portrait"], found["advert"].astype(float), age]
    columns += [part.vectors[found[part.name]] for part in categories]
    counts = [found[name] for name in STATISTICS if name in found]
    columns += [np.clip(np.log10(1 + np.maximum(count, 0)) / _LARGEST, 0, 1) for count in counts]
    return encoding.quantised(columns)
