"""What the package never does, read from its sources."""

import ast
from pathlib import Path

import pytest

import moac

SOURCES = sorted(Path(moac.__file__).parent.rglob("*.py"))
MODULES = {
    "pickle",
    "cPickle",
    "dill",
    "cloudpickle",
    "joblib",
    "marshal",
    "shelve",
    "yaml",
    "ruamel",
    "xml",
    "telnetlib",
}
ALLOWED = {
    ("envs/workers.py", "pickle.PicklingError"),
    ("runs/cluster.py", "pickle.dumps"),
    ("runs/executors.py", "pickle.dumps"),
    ("tasks.py", "pickle.dumps"),
    ("tasks.py", "pickle.loads"),
}
"""Processes that were started by one another speak so; no file is ever read or written by pickle."""
CALLS = {"eval", "exec", "compile", "__import__", "system", "popen", "extractall", "literal_eval", "from_string"}
MODULE_CALLS = {"re.compile"}


def name_of(node):
    """`a.b.c` of an expression, as far as it is one."""
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def imported(node):
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


def offences(text, where=""):
    """All that a source does and should not."""
    tree = ast.parse(text)
    used = [name_of(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    for node in ast.walk(tree):
        for module in imported(node):
            root = module.partition(".")[0]
            told = {(where, name) for name in used if name.startswith(f"{root}.")}
            if root in MODULES and not (isinstance(node, ast.Import) and told and told <= ALLOWED):
                yield f"imports {module}"
        if isinstance(node, ast.Call):
            called = name_of(node.func)
            if called.rpartition(".")[2] in CALLS and called not in MODULE_CALLS and not called.endswith(".compile"):
                yield f"calls {called}"
            for keyword in node.keywords:
                value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
                if (keyword.arg, value) in (("shell", True), ("allow_pickle", True), ("autoescape", False)):
                    yield f"passes {keyword.arg}={value}"


def test_no_source_can_run_what_it_reads():
    root = Path(moac.__file__).parent
    names = {path.relative_to(root).as_posix(): path for path in SOURCES}
    found = {name: list(offences(path.read_text(), name)) for name, path in names.items()}
    assert {name: told for name, told in found.items() if told} == {}
    assert len(found) > 100


@pytest.mark.parametrize(
    "text",
    [
        "import pickle\npickle.loads(x)", "from pickle import loads", "import yaml", "eval(x)", "exec(x)",
        "import os\nos.system(x)", "import subprocess\nsubprocess.run(x, shell=True)", "np.load(x, allow_pickle=True)",
        "tar.extractall(x)", "__import__(x)", "builtins.eval(x)", "Environment(autoescape=False)",
    ],
)  # fmt: skip
def test_the_scan_sees_what_it_should(text):
    assert list(offences(text))
