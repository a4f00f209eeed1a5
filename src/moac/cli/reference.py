"""The documentation's page of signatures and docstrings for a terminal, read from the sources: nothing is imported."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import moac

_OPTIONS = r"    options:\n      members: \[(?P<members>[\w, ]*)\]\n"
_DIRECTIVE = re.compile(rf"^::: (?P<name>[\w.]+)\n(?:{_OPTIONS})?", re.MULTILINE)
"""As mkdocstrings takes it: the name of a function or a class, and the methods of a class that are shown."""
_LONGEST = 100  # characters of a signature on one line

Definition = ast.FunctionDef | ast.ClassDef


def written_out(page: str) -> str:
    """A page with the signature and docstring of a name in place of each directive."""
    return _DIRECTIVE.sub(lambda found: _described(found["name"], found["members"]), page)


def _described(name: str, members: str | None) -> str:
    """A function or class of the package by its full name, and those of its methods that are named."""
    module, _, short = name.rpartition(".")
    definition = _defined(module, short)
    parts = [_part(f"### {short}", short, definition)]
    for member in (members or "").replace(",", " ").split():
        method = _among(definition.body, member)
        if method is None:
            raise ValueError(f"{name} must define {member}, which the documentation names.")
        part = _part(f"#### {short}.{member}", member, method)
        parts.append(part)
    return "\n".join(parts)


def _defined(module: str, name: str) -> Definition:
    """The function or class of that name, in the module or where the module imports it from."""
    body = ast.parse(_file(module).read_text()).body
    found = _among(body, name)
    if found is not None:
        return found
    for statement in body:
        if isinstance(statement, ast.ImportFrom) and name in (alias.name for alias in statement.names):
            return _defined(str(statement.module), name)
    raise ValueError(f"{module} must define {name}, which the documentation names.")


def _file(module: str) -> Path:
    """The source of a module or package."""
    path = Path(moac.__file__).parent.joinpath(*module.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _among(body: list[ast.stmt], name: str) -> Definition | None:
    """The function or class of that name among statements."""
    for statement in body:
        if isinstance(statement, Definition) and statement.name == name:
            return statement
    return None


def _part(heading: str, name: str, definition: Definition) -> str:
    """A heading, a signature and a docstring."""
    text = ast.get_docstring(definition) or ""
    return f"{heading}\n\n    {_signature(name, definition)}\n\n{text}\n"


def _signature(name: str, definition: Definition) -> str:
    """The call as one writes it, with one argument a line where it is long."""
    if isinstance(definition, ast.ClassDef):
        arguments, returned = list(_fields(definition)), ""
    else:
        arguments, returned = list(_arguments(definition.args)), ast.unparse(definition.returns or ast.Constant(None))
    arrow = f" -> {returned}" if returned else ""
    line = f"{name}({', '.join(arguments)}){arrow}"
    if len(line) <= _LONGEST:
        return line
    rows = "".join(f"        {argument},\n" for argument in arguments)
    return f"{name}(\n{rows}    ){arrow}"


def _fields(definition: ast.ClassDef) -> Iterator[str]:
    """The fields of a dataclass, each with its type."""
    for statement in definition.body:
        if isinstance(statement, ast.AnnAssign) and not ast.unparse(statement.target).startswith("_"):
            yield f"{ast.unparse(statement.target)}: {ast.unparse(statement.annotation)}"


def _arguments(arguments: ast.arguments) -> Iterator[str]:
    """The arguments of a function without `self`, each with its type and default."""
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + arguments.defaults
    for argument, default in zip(positional, defaults, strict=True):
        if argument.arg not in ("self", "cls"):
            yield _argument(argument, default)
    if arguments.vararg:
        yield f"*{ast.unparse(arguments.vararg)}"
    elif arguments.kwonlyargs:
        yield "*"
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _argument(argument, default)
    if arguments.kwarg:
        yield f"**{ast.unparse(arguments.kwarg)}"


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    text = ast.unparse(argument)
    return text if default is None else f"{text} = {ast.unparse(default)}"
