"""KuaiRand's files: their names, and what their columns hold (Gao et al., CIKM 2022, and the files themselves).

All logs of a variant have the same nineteen whole numbers a row. Feature files quote text that holds commas, and leave
a field empty where a value is missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

VARIANTS = ("pure", "1k", "27k")
FOLDERS = {"pure": "KuaiRand-Pure", "1k": "KuaiRand-1K", "27k": "KuaiRand-27K"}
"""The folder that a variant's archive unpacks into; the files are in its `data`."""

LOG = {
    "user_id": "INTEGER", "video_id": "INTEGER", "date": "INTEGER", "hourmin": "SMALLINT", "time_ms": "BIGINT",
    "is_click": "TINYINT", "is_like": "TINYINT", "is_follow": "TINYINT", "is_comment": "TINYINT",
    "is_forward": "TINYINT", "is_hate": "TINYINT", "long_view": "TINYINT", "play_time_ms": "INTEGER",
    "duration_ms": "INTEGER", "profile_stay_time": "INTEGER", "comment_stay_time": "INTEGER",
    "is_profile_enter": "TINYINT", "is_rand": "TINYINT", "tab": "TINYINT",
}  # fmt: skip
"""Columns of a log in the official order, with the type each is stored as."""

USER_NUMBERS = ("follow_user_num", "fans_user_num", "friend_user_num", "register_days")
USER_CATEGORIES = (
    "user_active_degree", "is_lowactive_period", "is_live_streamer", "is_video_author", "follow_user_num_range",
    "fans_user_num_range", "friend_user_num_range", "register_days_range", *(f"onehot_feat{k}" for k in range(18)),
)  # fmt: skip
USERS = {
    "user_id": "INTEGER", "user_active_degree": "VARCHAR", "is_lowactive_period": "VARCHAR",
    "is_live_streamer": "VARCHAR", "is_video_author": "VARCHAR", "follow_user_num": "BIGINT",
    "follow_user_num_range": "VARCHAR", "fans_user_num": "BIGINT", "fans_user_num_range": "VARCHAR",
    "friend_user_num": "BIGINT", "friend_user_num_range": "VARCHAR", "register_days": "BIGINT",
    "register_days_range": "VARCHAR", **{f"onehot_feat{k}": "VARCHAR" for k in range(18)},
}  # fmt: skip
"""Columns of the user features; categories stay text, for an empty field is a category of its own: unknown."""

VIDEOS = {
    "video_id": "INTEGER", "author_id": "VARCHAR", "video_type": "VARCHAR", "upload_dt": "VARCHAR",
    "upload_type": "VARCHAR", "visible_status": "DOUBLE", "video_duration": "DOUBLE", "server_width": "DOUBLE",
    "server_height": "DOUBLE", "music_id": "VARCHAR", "music_type": "VARCHAR", "tag": "VARCHAR",
}  # fmt: skip
"""Columns of the basic video features; ids that nothing is computed from are text."""

_STATISTICS = (
    "show_cnt show_user_num play_cnt play_user_num play_duration complete_play_cnt complete_play_user_num "
    "valid_play_cnt valid_play_user_num long_time_play_cnt long_time_play_user_num short_time_play_cnt "
    "short_time_play_user_num play_progress comment_stay_duration like_cnt like_user_num click_like_cnt "
    "double_click_cnt cancel_like_cnt cancel_like_user_num comment_cnt comment_user_num direct_comment_cnt "
    "reply_comment_cnt delete_comment_cnt delete_comment_user_num comment_like_cnt comment_like_user_num follow_cnt "
    "follow_user_num cancel_follow_cnt cancel_follow_user_num share_cnt share_user_num download_cnt download_user_num "
    "report_cnt report_user_num reduce_similar_cnt reduce_similar_user_num collect_cnt collect_user_num "
    "cancel_collect_cnt cancel_collect_user_num direct_comment_user_num reply_comment_user_num share_all_cnt "
    "share_all_user_num outsite_share_all_cnt"
)
STATISTICS = {"video_id": "INTEGER", "counts": "DOUBLE", **dict.fromkeys(_STATISTICS.split(), "DOUBLE")}
"""Columns of the video statistics: means per day and scenario over the whole month, which is the test period too."""

_TYPES = {
    "TINYINT": (-(2**7), 2**7 - 1), "SMALLINT": (-(2**15), 2**15 - 1), "INTEGER": (-(2**31), 2**31 - 1),
    "BIGINT": (-(2**63), 2**63 - 1), "DOUBLE": (-1e300, 1e300),
}  # fmt: skip
_FROM_ZERO = (
    "user_id", "video_id", "play_time_ms", "duration_ms", "video_duration", "server_width", "server_height",
)  # fmt: skip
_EVENTS = ("is_click", "is_like", "is_follow", "is_comment", "is_forward", "is_hate")
RANGES = {
    **dict.fromkeys(_FROM_ZERO, (0, 2**31 - 1)),
    **dict.fromkeys(_EVENTS, (0, 1)),
    "time_ms": (946_684_800_000, 4_102_444_800_000),
}
"""Columns that states and rewards are made of, and what they can hold; times are of the years 2000 to 2100."""


def range_of(column: str, kind: str) -> tuple[float, float]:
    """The least and the largest number that a column of a type may hold."""
    return RANGES.get(column, _TYPES[kind])


@final
@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Attributes:
        name: what it is called in messages and in the manifest.
        stem: its file name up to the variant.
        columns: the type of each column, in the official order.
        parts: into how many files 27K splits it.
    """

    name: str
    stem: str
    columns: dict[str, str]
    parts: int = 1

    def file_names(self, variant: str) -> tuple[str, ...]:
        """The official names, one per part, such as `log_standard_4_08_to_4_21_27k_part1.csv`."""
        base = f"{self.stem}_{variant}"
        if variant != "27k" or self.parts == 1:
            return (f"{base}.csv",)
        return tuple(f"{base}_part{part}.csv" for part in range(1, self.parts + 1))


STANDARD_LOGS = (
    Kind("standard log, 8 to 21 April", "log_standard_4_08_to_4_21", LOG, 2),
    Kind("standard log, 22 April to 8 May", "log_standard_4_22_to_5_08", LOG, 2),
)
RANDOM_LOG = Kind("random log", "log_random_4_22_to_5_08", LOG)
USER_FEATURES = Kind("user features", "user_features", USERS)
VIDEO_FEATURES = Kind("basic video features", "video_features_basic", VIDEOS)
VIDEO_STATISTICS = Kind("video statistics", "video_features_statistic", STATISTICS, 3)
KINDS = (*STANDARD_LOGS, RANDOM_LOG, USER_FEATURES, VIDEO_FEATURES, VIDEO_STATISTICS)

SIGNALS = {
    "Click": "is_click", "Like": "is_like", "Follow": "is_follow", "Comment": "is_comment",
    "Forward": "is_forward", "Dislike": "is_hate", "WatchTime": "play_time_ms",
}  # fmt: skip
"""The paper's seven signals, in its order, and their columns."""
SIGNS = (1, 1, 1, 1, 1, -1, 1)
"""Dislike is a cost."""
WATCH_TIME_UNIT_MS = 10_000
"""WatchTime counts tens of seconds, as TSCAC does; not truncated."""
NUM_TABS = 15
UTC_OFFSET_MS = 8 * 3_600_000
"""Hours and days are Beijing's."""
