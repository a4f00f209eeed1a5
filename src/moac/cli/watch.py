"""`moac watch`: episodes of a trained policy as an animation."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, final

import numpy as np
from PIL import Image

from moac import files
from moac.cli.problems import environment_of_run
from moac.envs.quiet import quiet
from moac.runs.directory import RunDirectory, load

_MOST_FRAMES = 600
_MILLISECONDS = 120
_HOLD = 8
"""Frames for which the last picture of an episode stands."""


@final
@dataclass(frozen=True)
class Order:
    """What `moac watch` was asked to do."""

    run: Path
    episodes: int
    trial: int
    seed: int
    out: Path | None
    trust: bool
    json: bool


def run(order: Order) -> int:
    """Play, draw, write."""
    problem = RunDirectory(order.run).description["problem"]
    out = order.out or files.below(order.run, "figures") / f"episodes-trial{order.trial}.gif"
    files.check_folder("out", out.parent)
    trained = load(order.run, order.trial)
    for driver in ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER"):
        os.environ.setdefault(driver, "dummy")  # pictures only: no screen and no loudspeaker is asked for
    if sys.platform == "linux" and "DISPLAY" not in os.environ:
        os.environ.setdefault("MUJOCO_GL", "egl")  # likewise
    with quiet():
        environment: Any = environment_of_run(order.run, problem, order.trust)
        from moac.envs import recording

        shown = recording.episodes(environment, trained, order.episodes, order.seed, _MOST_FRAMES)
    out.parent.mkdir(parents=True, exist_ok=True)
    files.write_bytes(out, _gif(shown.frames))
    summary = {
        "gif": str(out),
        "frames": sum(map(len, shown.frames)),
        "returns": shown.returns,
        "lengths": shown.lengths,
    }
    if order.json:
        sys.stdout.write(json.dumps(files.finite(summary)) + "\n")
        return 0
    for length, earned in zip(shown.lengths, shown.returns, strict=True):
        named = zip(problem["objectives"], earned, strict=True)
        sys.stdout.write(f"{length} steps: {', '.join(f'{name} {value:g}' for name, value in named)}\n")
    sys.stdout.write(f"animation: {out}\n")
    return 0


def _gif(episodes: list[list[np.ndarray[Any, Any]]]) -> bytes:
    """All episodes one after the other; the last picture of each stands a little."""
    pictures = [Image.fromarray(frame) for frames in episodes for frame in (*frames, *frames[-1:] * _HOLD)]
    content = BytesIO()
    pictures[0].save(content, format="GIF", save_all=True, append_images=pictures[1:], duration=_MILLISECONDS, loop=0)
    return content.getvalue()
