"""`moac docs`: the pages of the documentation, which are part of the package."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

import moac
from moac.choices import did_you_mean
from moac.cli.options import Answer, Command


@dataclass(frozen=True, kw_only=True)
class Docs(Command):
    """Print a page of the documentation, or the names of all pages."""

    page: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="[PAGE]", help_behavior_hint="(default: all)")]] = (
        ""
    )
    """Its name, such as rules."""

    def answer(self) -> Answer:
        """Find the page."""
        pages = {path.stem: path for path in _folder().glob("*.md")}
        if not self.page:
            width = max(map(len, pages))
            lines = [f"{name:{width}}  {_title(pages[name])}\n" for name in sorted(pages)]
            return Answer({"pages": sorted(pages)}, lambda: sys.stdout.writelines(lines))
        if self.page not in pages:
            raise ValueError(
                f"`PAGE` must be one that moac docs lists, got {self.page!r}.{did_you_mean(self.page, pages)}"
            )
        path = pages[self.page]
        return Answer({"page": str(path)}, lambda: sys.stdout.write(path.read_text()))


def _folder() -> Path:
    """Beside the package's modules; in a clone, at its root."""
    package = Path(moac.__file__).parent
    installed = package / "docs"
    return installed if installed.exists() else package.parents[1] / "docs"


def _title(page: Path) -> str:
    with page.open() as lines:
        return next(lines).lstrip("# ").rstrip()
