"""The nineteen columns of a log, from the rows of a block, with what is odd about the official ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Int

from moac.kuairand.generate.drawing import DAY_MS, FIRST_MS, LAST_MS, Rows
from moac.kuairand.generate.model import TAB_SHARE, TABS
from moac.kuairand.schema import LOG

DUPLICATES, DOUBLED_TAB = 0.024, TABS.index(6)
"""Share of rows that the standard log holds twice, all of them in this tab."""
NO_DURATION = {False: 0.016, True: 0.03}
"""Share of rows whose duration is 0: in the standard log, and in the random one."""
LAG_MS = 1_300_000
"""date and hourmin are up to this much later than time_ms, whose hour so agrees with hourmin's in 82 % of rows."""
LONG_VIEW_MS = 18_000
HOUR_MS = 3_600_000
DATES = np.array([*range(20220408, 20220431), *range(20220501, 20220509)], np.int32)
FLAGS = ("is_click", "is_like", "is_follow", "is_comment", "is_forward", "is_hate")


def columns(rows: Rows, duration_ms: Int[np.ndarray, " V"], random: bool) -> dict[str, Any]:
    """Arrays by name, in the official order; the standard log has some rows twice."""
    rng, count = rows.rng, len(rows.user)
    shown = np.minimum(rows.time_ms + rng.integers(0, LAG_MS, count), LAST_MS - 1) - FIRST_MS
    length = duration_ms[rows.video]
    entered = rng.random(count) < 0.002
    found: dict[str, Any] = {
        "user_id": rows.user,
        "video_id": rows.video,
        "date": DATES[shown // DAY_MS],
        "hourmin": (shown % DAY_MS // HOUR_MS * 100).astype(np.int16),
        "time_ms": rows.time_ms,
        **{name: rows.flags[:, i].copy() for i, name in enumerate(FLAGS)},
        "long_view": (rows.play_ms >= np.minimum(length, LONG_VIEW_MS)).astype(np.int8),
        "play_time_ms": rows.play_ms,
        "duration_ms": np.where(rng.random(count) < NO_DURATION[random], 0, length).astype(np.int32),
        "profile_stay_time": np.where(entered, rng.integers(500, 60_000, count), 0).astype(np.int32),
        "comment_stay_time": np.where(rng.random(count) < 0.05, rng.integers(500, 60_000, count), 0).astype(np.int32),
        "is_profile_enter": entered.astype(np.int8),
        "is_rand": np.full(count, random, np.int8),
        "tab": np.array(TABS, np.int8)[rows.tab],
    }
    if random:
        return {name: found[name] for name in LOG}
    twice = (rows.tab == DOUBLED_TAB) & (rng.random(count) < DUPLICATES / TAB_SHARE[DOUBLED_TAB])
    return {name: np.repeat(found[name], 1 + twice) for name in LOG}
