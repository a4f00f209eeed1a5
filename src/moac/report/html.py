"""A page as one HTML file that stands alone: no network, no script, every text from a file escaped."""

from __future__ import annotations

import base64
import re
from collections import Counter
from functools import cache

import jinja2

from moac.report.numbers import text
from moac.report.page import VERDICTS, Figure, Page, Table

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
"""What the page may do, told to the browser: style itself and show the images that it carries."""
_NUMERIC = re.compile(r"[(\[]?[−+–-]?[\d∞]|–?$")
_HYPHEN = re.compile(r"(?<![\w.-])-(?=\.?\d)")
"""Before a number and after no word: a minus sign, where a text was made by Python's formatting."""
_SEVERAL = {"holds": "hold", "holds in part": "hold in part", "does not hold": "do not hold"}
_ICONS = {
    "holds": "M3 8.5 6.5 12 13 4.5",
    "holds in part": "M2.5 9.5c2-4 4-4 5.5-1.5s3.5 2.5 5.5-1.5",
    "does not hold": "M4 4l8 8M12 4l-8 8",
    "not decided": "M5.5 6a2.5 2.5 0 1 1 3.6 2.2C8.4 8.6 8 9 8 10M8 12.5v.3",
    "not measured": "M8 3.5v5.5M8 12v.5",
}
"""A tick, a wave, a cross, a question and an exclamation mark: verdicts differ by shape and word, not by colour."""


def render(page: Page) -> str:
    """The page as HTML."""
    counted = Counter(claim.verdict for claim in page.claims)
    return _template().render(
        page=page,
        policy=POLICY,
        icons=_ICONS,
        sections=_sections(page),
        anchors=_anchors(page),
        tally=[(verdict, _counted(verdict, counted[verdict])) for verdict in VERDICTS if counted[verdict]],
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
    environment.filters["minus"] = lambda value: _HYPHEN.sub("−", text(value))
    return environment.get_template("report.html.jinja")


def _counted(verdict: str, count: int) -> str:
    return f"{count} {verdict if count == 1 else _SEVERAL.get(verdict, verdict)}"


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


def _anchors(page: Page) -> dict[str, str]:
    """Where the figures and tables stand, by name."""
    tables = {table.title: f"table-{k}" for k, table in enumerate((*page.results, *page.tables), start=1)}
    return tables | {figure.name: f"figure-{k}" for k, figure in enumerate(page.figures, start=1)}


def _data_uri(figure: Figure) -> str:
    """An image carries its drawing in its address; browsers run no script and load nothing from within it."""
    return "data:image/svg+xml;base64," + base64.b64encode(figure.svg.encode()).decode()


def _numeric_columns(table: Table) -> list[bool]:
    """Whether a column's cells are numbers, or texts that begin like one; the first column names the rows."""
    columns = range(1, len(table.header))
    return [False, *(all(_NUMERIC.match(text(row[k]).strip()) for row in table.rows) for k in columns)]
