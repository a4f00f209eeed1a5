"""A report as plain data, whatever it was made from, and as one HTML file that stands alone.

The file needs no network and no script, and every text in it is escaped.
"""

from __future__ import annotations

import base64
import itertools
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

import jinja2
import numpy as np
from markupsafe import Markup, escape

from moac.choices import shown
from moac.files import read_bytes
from moac.report.numbers import Value, text, typeset

Verdict = Literal["holds", "holds in part", "does not hold", "not decided", "not measured"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
"""What the page may do, told to the browser: style itself and show the images that it carries."""
_NUMERIC = re.compile(r"[(\[]?[−+–-]?[\d∞]|–?$")
_NAME = re.compile(r"[\w.:-]+-v\d+")
_INDEX = re.compile(r"(?<![\w.])([A-Za-zα-ωΓ-Ω]\u0302?)_([A-Za-z0-9]\u0302?)(?![\w(])")
_WIDE = 400.0  # points; a figure that is wider is not made smaller than a screen's text
_SEVERAL = {"holds": "hold", "holds in part": "hold in part", "does not hold": "do not hold"}
_ICONS = {
    "holds": "M3 8.5 6.5 12 13 4.5",
    "holds in part": "M2.5 9.5c2-4 4-4 5.5-1.5s3.5 2.5 5.5-1.5",
    "does not hold": "M4 4l8 8M12 4l-8 8",
    "not decided": "M5.5 6a2.5 2.5 0 1 1 3.6 2.2C8.4 8.6 8 9 8 10M8 12.5v.3",
    "not measured": "M8 3.5v5.5M8 12v.5",
}
"""A tick, a wave, a cross, a question and an exclamation mark: verdicts differ by shape and word, not by colour."""


def verdict_of(parts: Iterable[Verdict | bool]) -> Verdict:
    """The verdict on a claim in several parts, each with a verdict of its own or known to be true or false.

    Where some hold and some do not, the claim holds in part, whatever is open. One part that does not hold, and none
    that does, is enough to refute it. It holds where all parts do; what is open leaves it open; without parts nothing
    was measured.
    """
    each = {part if isinstance(part, str) else "holds" if part else "does not hold" for part in parts}
    if not each:
        return "not measured"
    if "does not hold" in each:
        return "holds in part" if "holds" in each else "does not hold"
    return "not decided" if "not decided" in each else "holds"


Named = tuple[tuple[str, Value], ...]
"""Names and their values, in the order in which they are shown."""


def _check_values(what: str, values: Iterable[Any]) -> None:
    """Refuse what is neither a text nor a number nor None: a damaged file may hold lists in their place."""
    for value in values:
        if value is not None and not isinstance(value, str | int | float | np.number | np.bool_):
            raise ValueError(f"{what} must be texts or numbers, got {shown(value)}.")


@dataclass(frozen=True)
class Claim:
    """One row of the claims table."""

    claim: str  # what is said, as a sentence
    measured: str  # what was found, with its interval
    verdict: Verdict  # one of `VERDICTS`
    evidence: str = ""  # where to see it; the name of a figure or the title of a table of the same page becomes a link

    def __post_init__(self) -> None:
        _check_values("the parts of a claim", vars(self).values())
        if self.verdict not in VERDICTS:
            raise ValueError(f"`verdict` must be one of {', '.join(VERDICTS)}, got {shown(self.verdict)}.")


@dataclass(frozen=True)
class Figure:
    """A drawing, embedded as an image: nothing in it can run."""

    name: str  # its title
    svg: str  # the drawing itself
    caption: str  # what to see in it
    alt: str  # what it shows, for those who cannot see it

    def __post_init__(self) -> None:
        _check_values("name, caption and description of a figure", (self.name, self.caption, self.alt))
        if "<svg" not in self.svg or not self.svg.rstrip().endswith("</svg>"):
            raise ValueError(f"`svg` of figure {self.name!r} must be an SVG document, got {self.svg[:40]!r}.")

    @property
    def wide(self) -> bool:
        """Whether it has several panels in a row, which a small screen shows one after the other."""
        width = re.search(r'<svg[^>]* width="([\d.]+)pt"', self.svg)
        return width is not None and float(width[1]) > _WIDE

    @classmethod
    def of_file(cls, name: str, path: Path, caption: str, alt: str) -> Figure:
        """The figure of an SVG file; one that is missing or damaged is a ValueError."""
        try:
            return cls(name, read_bytes(path).decode(), caption, alt)
        except (FileNotFoundError, ValueError):
            raise ValueError(f"{path} is missing or damaged: it is not a whole SVG document.") from None


@dataclass(frozen=True)
class Table:
    """A table; its first column names the rows."""

    title: str  # short; it stands above
    caption: str  # what to see in it; it stands below
    header: tuple[str, ...]  # the columns
    rows: tuple[tuple[Value, ...], ...]  # numbers are shown with four digits, NaN and None as `–`

    def __post_init__(self) -> None:
        _check_values("title, caption and header of a table", (self.title, self.caption, *self.header))
        for row in self.rows:
            _check_values(f"`rows` of table {self.title!r}", row)
            if len(row) != len(self.header):
                right = f"{len(self.header)} cells each"
                raise ValueError(f"`rows` of table {self.title!r} must have {right}, got {len(row)}.")


@dataclass(frozen=True)
class Card:
    """A policy to choose."""

    title: str  # its name
    facts: Named  # what is known of it
    code: str  # a line of Python that loads it

    def __post_init__(self) -> None:
        _check_values(f"facts of {self.title}", itertools.chain.from_iterable(self.facts))


@dataclass(frozen=True)
class Panel:
    """A map with marks that lead to cards: points, or lines through several."""

    across: tuple[str, str, str]  # what the horizontal axis is, with its least and most
    up: tuple[str, str, str]  # the vertical one, likewise
    marks: tuple[tuple[tuple[float, float], ...], ...]  # where they are
    cards: tuple[int, ...] | None = None  # the card of each mark; None is one mark for each card, in order


@dataclass(frozen=True)
class Choice:
    """Policies to choose from: maps whose marks are links, and a card for each. No script is needed."""

    about: str  # how to read it
    panels: tuple[Panel, ...]  # the maps
    cards: tuple[Card, ...]  # the policies, in the order of the marks


@dataclass(frozen=True)
class Page:
    """A report, from top to bottom; what is empty is left out."""

    title: str  # what it is about
    summary: str  # what was done and came out, in a few sentences
    facts: Named = ()  # what a reader wants to know at once
    notice: str | None = None  # a warning that must not be missed, such as that this is a reduced run
    claims: tuple[Claim, ...] = ()  # what was to be shown, and whether it was
    figures: tuple[Figure, ...] = ()  # in reading order
    tables: tuple[Table, ...] = ()  # the numbers behind them
    details: Named = ()  # everything else, such as settings and versions
    results: tuple[Table, ...] = ()  # the numbers that matter most; they stand before the figures
    command: str = "moac report RUN"  # that makes the page again
    choice: Choice | None = None  # among policies; None where there is none

    def __post_init__(self) -> None:
        _check_values("title, summary and notice of a page", (self.title, self.summary, self.notice))
        _check_values("facts and details of a page", itertools.chain.from_iterable((*self.facts, *self.details)))


def render(page: Page) -> str:
    """The page as HTML."""
    counted = Counter(claim.verdict for claim in page.claims)
    tables = {table.title: f"table-{k}" for k, table in enumerate((*page.results, *page.tables), start=1)}
    return _template().render(
        page=page,
        policy=POLICY,
        icons=_ICONS,
        sections=_sections(page),
        anchors=tables | {figure.name: f"figure-{k}" for k, figure in enumerate(page.figures, start=1)},
        tally=[(v, f"{n} {v if n == 1 else _SEVERAL.get(v, v)}") for v in VERDICTS if (n := counted[v])],
        data_uri=_data_uri,
        numeric_columns=_numeric_columns,
    )


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("moac.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: value if hasattr(value, "__html__") else text(value),
    )
    environment.filters["typeset"] = lambda value: typeset(text(value))
    environment.filters["prose"] = lambda value: _prose(str(escape(text(value))))
    return environment.get_template("report.html.jinja")


def _prose(escaped: str) -> Markup:
    """An escaped text: ids of environments are not broken at their hyphens, letters such as λ_A have an index."""
    named = _NAME.sub(r'<span class="name">\g<0></span>', escaped)
    return Markup(_INDEX.sub(r"\1<sub>\2</sub>", named))  # noqa: S704


def _sections(page: Page) -> list[tuple[str, str]]:
    """Anchor and heading of each part that the page has."""
    parts = (
        ("claims", "Claims", page.claims),
        ("results", "Results", page.results),
        ("choice", "Choose a policy", page.choice),
        ("figures", "Figures", page.figures),
        ("tables", "Numbers", page.tables),
        ("details", "Details", page.details),
    )
    return [(anchor, heading) for anchor, heading, content in parts if content]


def _data_uri(figure: Figure) -> str:
    """An image carries its drawing in its address; browsers run no script and load nothing from within it."""
    return "data:image/svg+xml;base64," + base64.b64encode(figure.svg.encode()).decode()


def _numeric_columns(table: Table) -> list[bool]:
    """Whether a column's cells are numbers, or texts that begin like one; the first column names the rows."""
    columns = range(1, len(table.header))
    return [False, *(all(_NUMERIC.match(text(row[k]).strip()) for row in table.rows) for k in columns)]
