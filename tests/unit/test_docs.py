import importlib
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "equations.md"
ROWS = re.findall(r"\| `(moac\.[\w.]+)` \|$", PAGE.read_text(), re.MULTILINE)


@pytest.mark.parametrize("name", sorted(set(ROWS)))
def test_every_function_of_the_equations_page_exists(name):
    parts = name.split(".")
    for split in range(len(parts) - 1, 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:split]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[split:]:
            found = getattr(found, attribute)
        return
    pytest.fail(f"{name} does not exist")


def test_the_page_was_read():
    assert len(ROWS) >= 15


PAGES = sorted(PAGE.parent.rglob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_are_short_and_lines_are_wrapped(page):
    """At most 150 lines; 120 characters, but for tables, code, pictures and links that cannot be broken."""
    lines = page.read_text().splitlines()
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL).splitlines()
    wide = [line for line in prose if len(line) > 120 and not line.startswith(("|", "    ", "!["))]
    assert (len(lines) <= 150, wide) == (True, [])


def test_every_page_has_a_place_in_the_reading_order():
    navigation = (PAGE.parents[1] / "mkdocs.yml").read_text()
    assert {str(page.relative_to(PAGE.parent)) for page in PAGES} == set(re.findall(r"[\w/-]+\.md", navigation))
