"""`moac envs` and `moac docs`: the environments that are installed, and the pages of the documentation."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

import moac
from moac.choices import did_you_mean, shown
from moac.cli import reference
from moac.cli.console import print_lines, print_table
from moac.cli.options import Answer, Command

Page = Annotated[str, tyro.conf.arg(metavar="[PAGE]", help_behavior_hint="(default: all)")]


@dataclass(frozen=True, kw_only=True)
class Envs(Command):
    """List the installed environments with their objectives, and which have an exact model."""

    def answer(self) -> Answer:
        """Print what MO-Gymnasium registers; nothing is made."""
        from moac import envs
        from moac.envs.make import known_objectives
        from moac.momdp import library

        exact = library.known_environments()
        rows: list[dict[str, Any]] = [
            {"id": name, "objectives": list(known_objectives(name)), "exact": name in exact}
            for name in envs.known_ids()
        ]
        shown = [(row["id"], ", ".join(row["objectives"]), "yes" if row["exact"] else "") for row in rows]

        def show() -> None:
            print_table("Environments", ("id", "objectives", "exact model"), shown, ("objectives",))
            extras = "mo-lunar-lander needs pip install 'moac[box2d]', MuJoCo's need 'moac[mujoco]'"
            print_lines([f"Your own: moac train package.module:Id-v0. {extras}."])

        return Answer({"environments": rows}, show)


@dataclass(frozen=True, kw_only=True)
class Docs(Command):
    """Print a page of the documentation, or the names of all pages."""

    page: tyro.conf.Positional[Page] = ""
    """Its name, such as rules."""

    def answer(self) -> Answer:
        """Find the page."""
        pages = {path.stem: path for path in _folder().glob("*.md")}
        if not self.page:
            width = max(map(len, pages))
            titles = {name: path.read_text().partition("\n")[0].lstrip("# ") for name, path in pages.items()}
            lines = [f"{name:{width}}  {titles[name]}\n" for name in sorted(pages)]
            return Answer({"pages": sorted(pages)}, lambda: sys.stdout.writelines(lines))
        if self.page not in pages:
            near = did_you_mean(self.page, pages)
            raise ValueError(f"`PAGE` must be one that moac docs lists, got {shown(self.page)}.{near}")
        path = pages[self.page]
        return Answer({"page": str(path)}, lambda: sys.stdout.write(reference.written_out(path.read_text())))


def _folder() -> Path:
    """Beside the package's modules; in a clone, at its root."""
    package = Path(moac.__file__).parent
    installed = package / "docs"
    return installed if installed.exists() else package.parents[1] / "docs"
