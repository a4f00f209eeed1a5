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
