"""A report as plain data: what a page says, whatever it was made from. `html.render` shows it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, final, get_args

from moac.files import read_bytes
from moac.report.numbers import Value

Verdict = Literal["holds", "holds in part", "does not hold", "not decided", "not measured"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


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


@final
@dataclass(frozen=True)
class Claim:
    """One row of the claims table.

    Attributes:
        claim: what is said, as a sentence.
        measured: what was found, with its interval.
        verdict: one of `VERDICTS`.
        evidence: where to see it; the name of a figure or the title of a table of the same page becomes a link.
    """

    claim: str
    measured: str
    verdict: Verdict
    evidence: str = ""

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"`verdict` must be one of {', '.join(VERDICTS)}, got {self.verdict!r}.")


@final
@dataclass(frozen=True)
class Figure:
    """A drawing, embedded as an image: nothing in it can run.

    Attributes:
        name: its title.
        svg: the drawing itself.
        caption: what to see in it.
        alt: what it shows, for those who cannot see it.
    """

    name: str
    svg: str
    caption: str
    alt: str

    def __post_init__(self) -> None:
        if not is_svg(self.svg):
            raise ValueError(f"`svg` of figure {self.name!r} must be an SVG document, got {self.svg[:40]!r}.")

    @classmethod
    def of_file(cls, name: str, path: Path, caption: str, alt: str) -> Figure:
        """The figure of an SVG file; one that is missing or damaged is a ValueError."""
        try:
            svg = read_bytes(path).decode()
        except FileNotFoundError:
            raise ValueError(f"{path} is missing.") from None
        except UnicodeDecodeError:
            raise ValueError(f"{path} is damaged: it is not a text.") from None
        if not is_svg(svg):
            raise ValueError(f"{path} is damaged: it is not a whole SVG document.")
        return cls(name, svg, caption, alt)


@final
@dataclass(frozen=True)
class Table:
    """A table; its first column names the rows.

    Attributes:
        title: short; it stands above.
        caption: what to see in it; it stands below.
        header: the columns.
        rows: numbers are shown with four digits, NaN and None as `–`.
    """

    title: str
    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.header):
                raise ValueError(
                    f"`rows` of table {self.title!r} must have {len(self.header)} cells each, got {len(row)}."
                )


@final
@dataclass(frozen=True)
class Card:
    """A policy to choose.

    Attributes:
        title: its name.
        facts: what is known of it.
        code: a line of Python that loads it.
    """

    title: str
    facts: Named
    code: str


@final
@dataclass(frozen=True)
class Panel:
    """A map with one mark for each card: a point, or a line through several.

    Attributes:
        across: what the horizontal axis is, with its least and most.
        up: the vertical one, likewise.
        marks: for each card, in order, where it is.
    """

    across: tuple[str, str, str]
    up: tuple[str, str, str]
    marks: tuple[tuple[tuple[float, float], ...], ...]


@final
@dataclass(frozen=True)
class Choice:
    """Policies to choose from: maps whose marks are links, and a card for each. No script is needed.

    Attributes:
        about: how to read it.
        panels: the maps.
        cards: the policies, in the order of the marks.
    """

    about: str
    panels: tuple[Panel, ...]
    cards: tuple[Card, ...]


@final
@dataclass(frozen=True)
class Page:
    """A report, from top to bottom; what is empty is left out.

    Attributes:
        title: what it is about.
        summary: what was done and came out, in a few sentences.
        facts: what a reader wants to know at once.
        notice: a warning that must not be missed, such as that this is a reduced run.
        claims: what was to be shown, and whether it was.
        figures: in reading order.
        tables: the numbers behind them.
        details: everything else, such as settings and versions.
        results: the numbers that matter most; they stand before the figures.
        command: that makes the page again.
        choice: among policies; None where there is none.
    """

    title: str
    summary: str
    facts: Named = ()
    notice: str | None = None
    claims: tuple[Claim, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    details: Named = ()
    results: tuple[Table, ...] = ()
    command: str = "moac report RUN"
    choice: Choice | None = None


def is_svg(content: str) -> bool:
    """Whether a text is a whole SVG document, by its first and last tags."""
    return "<svg" in content and content.rstrip().endswith("</svg>")
