"""What `moac data kuairand build` does, written plainly with pandas and its default types:  kuairand_pandas.py SRC OUT.

Where the two differ, this one does less: it writes plain arrays instead of compressed Parquet, reads no line twice to
name a broken one, and keeps no content hash. Its last line is one JSON object with what must agree.
"""

from __future__ import annotations

import hashlib
import json
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd

ACTIONS, SHARES, STEPS = 150, (0.8, 0.1, 0.1), 127
SIGNALS = ["is_click", "is_like", "is_follow", "is_comment", "is_forward", "is_hate", "play_time_ms", "completion"]
SIGNALS += ["long_view"]
UNITS = {"is_hate": -1, "play_time_ms": 10_000, "completion": 1_000_000}
NUMBERS = ["follow_user_num", "fans_user_num", "friend_user_num", "register_days"]


def main(source: Path, out: Path) -> None:
    """Read, clean, split, choose, index, write."""
    files = sorted(source.glob("*/data/*.csv"))
    hashes = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    rows, read = logs([path for path in files if path.name.startswith("log_")])
    users = pd.read_csv(next(path for path in files if path.name.startswith("user_features")))
    videos = pd.read_csv(next(path for path in files if path.name.startswith("video_features_basic")))
    users["split"] = splits(users["user_id"].to_numpy())
    rows = rows.merge(users[["user_id", "split"]], on="user_id", how="left")
    assert not rows["split"].isna().any()
    train = rows[(rows["split"] == 0) & ~rows["random"]]
    counts = train.groupby("video_id").size().reset_index(name="views")
    actions = counts.sort_values(["views", "video_id"], ascending=[False, True])["video_id"].to_numpy()[:ACTIONS]
    rewards = rows[SIGNALS].astype(float)
    for name, unit in UNITS.items():
        rewards[name] /= unit
    arrays = indexed(rows, rewards, actions) | {"responses": responses(rewards, rows["split"] == 0)}
    arrays |= {"users": user_table(users), "items": video_table(videos, rows.loc[rows["split"] == 0, "video_id"])}
    out.mkdir(parents=True)
    for name, array in arrays.items():
        np.save(out / f"{name}.npy", array)
    np.save(out / "rows.npy", rows.drop(columns="random").to_numpy())
    signals = {name: int((rows[name] > 0).sum()) for name in SIGNALS}
    (out / "manifest.json").write_text(json.dumps({"sources": hashes, "signals": signals}))
    standard = ~arrays["random"]
    found = {"rows_read": read, "rows_kept": len(rows), "rows": int(standard.sum()), "actions": actions.tolist()}
    found["reward"] = arrays["reward"][standard].sum(axis=0).tolist()
    print(json.dumps({**found, "pandas": version("pandas")}))


def logs(paths: list[Path]) -> tuple[pd.DataFrame, int]:
    """All logs together, without exact duplicates, in order."""
    parts = [pd.read_csv(path) for path in paths]
    for part, path in zip(parts, paths, strict=True):
        part["random"] = path.name.startswith("log_random")
    rows = pd.concat(parts, ignore_index=True)
    first = ["user_id", "time_ms", "video_id"]
    kept = rows.drop_duplicates()
    kept = kept.sort_values([*first, *(c for c in rows.columns if c not in first)], ignore_index=True)
    share = (kept["play_time_ms"] / kept["duration_ms"].clip(lower=1)).clip(upper=1)
    kept["completion"] = (share * UNITS["completion"]).round().astype(int)
    return kept, len(rows)


def splits(ids: np.ndarray) -> np.ndarray:
    """The same hash of user ids as moac's."""
    z = ids.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.searchsorted(np.cumsum(SHARES)[:-1], (z ^ (z >> np.uint64(31))) / 2.0**64, side="right")


def responses(rewards: pd.DataFrame, train: pd.Series) -> np.ndarray:
    """What every view was answered with, over the scale that train rows have, in steps of 1/127."""
    known = rewards[train]
    scale = np.where(known.abs().max() <= 1, 1, 3 * (known**2).mean() ** 0.5)
    return (rewards / scale * STEPS).clip(-STEPS, STEPS).round().astype(np.int8).to_numpy()


def indexed(rows: pd.DataFrame, rewards: pd.DataFrame, actions: np.ndarray) -> dict[str, np.ndarray]:
    """Arrays of the rows whose video is an action; the history is every view, answered up to a row's own time."""
    place = pd.Series(np.arange(len(actions)), index=actions)
    chosen = rows["video_id"].isin(actions)
    kept = rows[chosen]
    local = pd.to_datetime(kept["time_ms"], unit="ms") + pd.Timedelta(hours=8)
    later = rows[["user_id", "time_ms"]].ne(rows[["user_id", "time_ms"]].shift()).any(axis=1).to_numpy()
    answered = np.maximum.accumulate(np.where(later, np.arange(len(rows)), 0))
    return {
        "history": rows["video_id"].to_numpy(),
        "first": rows.groupby("user_id").head(1).index.to_numpy(),
        "end": np.flatnonzero(chosen.to_numpy()),
        "user": kept["user_id"].to_numpy(),
        "action": kept["video_id"].map(place).to_numpy(),
        "answered": answered[chosen.to_numpy()],
        "reward": rewards[chosen].to_numpy(),
        "time": kept["time_ms"].to_numpy(),
        "context": np.stack([kept["tab"], local.dt.hour, local.dt.dayofweek], axis=1),
        "random": kept["random"].to_numpy(),
        "truncated": (kept["user_id"] != kept["user_id"].shift(-1)).to_numpy(),
    }


def user_table(users: pd.DataFrame) -> np.ndarray:
    """Numbers scaled, categories one-hot where they are few, by train users."""
    train = users["split"] == 0
    parts = []
    for name in users.columns.drop(["user_id", "split"]):
        if name in NUMBERS:
            x = np.log1p(users[name].clip(lower=0))
            parts.append(((x - x[train].mean()) / (3 * x[train].std(ddof=0))).clip(-1, 1).to_numpy()[:, None])
            continue
        known = sorted(users.loc[train, name].dropna().unique())
        codes = pd.Categorical(users[name], categories=known)
        few = len(known) <= 16
        parts.append(pd.get_dummies(codes).to_numpy(float) if few else codes.codes[:, None] / max(len(known), 1))
    return np.concatenate(parts, axis=1)


def video_table(videos: pd.DataFrame, viewed: pd.Series) -> np.ndarray:
    """A few numbers, and categories of videos that train users have viewed."""
    known = videos["video_id"].isin(viewed.unique())
    numbers = [np.log1p(videos["video_duration"].fillna(0)), np.sign(videos["server_height"] - videos["server_width"])]
    parts = [part.fillna(0).to_numpy()[:, None] for part in numbers]
    first = {"tag": videos["tag"].str.split(",").str[0], "upload_type": videos["upload_type"]}
    for column in (*first.values(), videos["music_type"]):
        codes = pd.Categorical(column, categories=sorted(column[known].dropna().unique())).codes
        parts.append(codes[:, None].astype(float))
    return np.concatenate(parts, axis=1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
