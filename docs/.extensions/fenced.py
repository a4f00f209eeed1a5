"""Doctests of docstrings as blocks of code on the page of the API."""

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", re.DOTALL | re.MULTILINE)


class Fenced(griffe.Extension):
    """Puts a fence around each run of lines that begins with `>>>` and ends before an empty line."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the text of a docstring once it is read."""
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", obj.docstring.value)
