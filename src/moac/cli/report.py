"""`moac report`, `compare`, `watch` and `export`: pages, animations and ONNX files of what was trained."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

import moac
from moac.choices import counted
from moac.cli.console import print_lines, print_paths, print_tables
from moac.cli.options import Answer, Command, Preference, RunPath, RunPaths, Trial, Trust, option

if TYPE_CHECKING:
    import numpy as np

_MOST_FRAMES = 600
_MILLISECONDS = 120
_HOLD = 8  # frames for which the last picture of an episode stands


@dataclass(frozen=True, kw_only=True)
class Report(Command):
    """Write the report of a run or an experiment again, from its folder."""

    run_path: tyro.conf.Positional[RunPath]

    def answer(self) -> Answer:
        """Write the page and say where it is."""
        from moac.report import pages

        report = pages.write(self.run_path)
        return Answer({"report": str(report)}, lambda: print_paths(report=report))


@dataclass(frozen=True, kw_only=True)
class Compare(Command):
    """Compare finished runs: curves over environment steps, and differences to the first run with intervals."""

    runs: tyro.conf.Positional[RunPaths] = ()
    out: Annotated[Path | None, option("DIR", "default: no figure and no page")] = None
    """Folder for figure and report."""

    def answer(self) -> Answer:
        """Compare, and write the page if a folder is given."""
        comparison = moac.compare(*self.runs, out=self.out)
        report = None if self.out is None else str(self.out / "report.html")

        def show() -> None:
            from moac.report.pages import comparison as page

            print_tables([page.ends(comparison), page.differing(comparison)])
            print_lines([*(f"• {note}" for note in comparison.notes), *([f"report: {report}"] if report else [])])

        return Answer(comparison.record() | {"report": report}, show)


@dataclass(frozen=True, kw_only=True)
class Watch(Command):
    """Record episodes of a trained policy as an animated GIF."""

    run_path: tyro.conf.Positional[RunPath]
    episodes: int = 3
    """Number of episodes, one after the other."""
    trial: Trial = 0
    preference: Preference = None
    seed: int = 0
    """Random seed of the first episode."""
    out: Annotated[Path | None, option("FILE", "default: in RUN/figures")] = None
    """The GIF file."""
    trust: Trust = False

    def answer(self) -> Answer:
        """Play, draw, write."""
        from moac import files
        from moac.runs import problems

        out = self.out or files.below(self.run_path, "figures") / f"episodes-trial{self.trial}.gif"
        files.check_folder("out", out.parent)
        trained = moac.load(self.run_path, self.trial)
        trained = trained if self.preference is None else trained.at(self.preference)
        _without_screen()
        environment: Any = problems.environment_of_run(self.run_path, self.trust)
        from moac.envs import evaluation

        shown = evaluation.record(environment, trained, self.episodes, self.seed, _MOST_FRAMES)
        with files.making(out.parent):
            files.write_bytes(out, _gif(shown.frames))

        def show() -> None:
            for length, earned in zip(shown.lengths, shown.returns, strict=True):
                named = zip(environment.spec.objective_names, earned, strict=True)
                print_lines([f"{counted(length, 'step')}: {', '.join(f'{name} {value:g}' for name, value in named)}"])
            print_paths(animation=out)

        about = {"gif": str(out), "frames": sum(map(len, shown.frames)), "returns": shown.returns}
        steps = sum(shown.lengths) + environment.unreported_steps()
        return Answer(about | {"lengths": shown.lengths, "evaluation_steps": steps}, show)


@dataclass(frozen=True, kw_only=True)
class Export(Command):
    """Write a trained policy as an ONNX file, which runs without moac."""

    run_path: tyro.conf.Positional[RunPath]
    format: Literal["onnx"] = "onnx"
    """File format."""
    trial: int = 0
    """Trial of the run, or policy of an exploration; where one network is for all preferences, 0."""
    preference: Annotated[tuple[float, ...] | None, option("FLOAT [FLOAT ...]", "default: an input of the file")] = None
    """Preference of a conditioned network: one number per objective, summing to 1."""
    out: Annotated[Path | None, option("FILE", "default: RUN/policy.onnx")] = None
    """Output file; an existing one is replaced."""

    def answer(self) -> Answer:
        """Write the file and say where it is."""
        from moac import files

        out = self.out or files.below(self.run_path, "policy.onnx")
        moac.export(self.run_path, out, format=self.format, trial=self.trial, preference=self.preference)
        return Answer({"file": str(out), "bytes": out.stat().st_size}, lambda: print_paths(file=out))


def _without_screen() -> None:
    """Ask the libraries that draw for pictures only: no screen and no loudspeaker."""
    for driver in ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER"):
        os.environ.setdefault(driver, "dummy")
    if sys.platform == "linux" and "DISPLAY" not in os.environ:
        os.environ.setdefault("MUJOCO_GL", "egl")


def _gif(episodes: list[list[np.ndarray[Any, Any]]]) -> bytes:
    """All episodes one after the other; the last picture of each stands a little."""
    from io import BytesIO

    from PIL import Image

    pictures = [Image.fromarray(frame) for frames in episodes for frame in (*frames, *frames[-1:] * _HOLD)]
    content = BytesIO()
    pictures[0].save(content, format="GIF", save_all=True, append_images=pictures[1:], duration=_MILLISECONDS, loop=0)
    return content.getvalue()
