"""How many small mistakes the tests notice:  python benchmarks/mutants.py OUT.jsonl [COUNT] [SEED].

Draws COUNT (300) changes of one operator, comparison, number or name in the modules below, evenly over their groups.
Each change goes into a copy of the sources, and the nearest tests run against it until one fails. OUT has a line for
each: what was changed, and which test noticed it. Interrupted, it goes on with those that are missing.

`python benchmarks/mutants.py OUT.jsonl together` puts all survivors into one copy and runs the whole suite against it,
which costs as much as one of them would: where it passes, no test notices any of them; where tests fail, they are run
against each survivor alone. What is left is to be read by hand: it changes nothing that can be seen, or a test is
missing.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _timing import ROOT

SECONDS = 240  # of CPU for the tests of one change; one that takes longer is noticed
WHOLE_SUITE_SECONDS = 3600  # of CPU for each process
GROUPS: dict[str, dict[str, str]] = {
    "kernels": {
        "simplex": "oracles/test_simplex oracles/test_active_set",
        "actor": "unit/test_actor oracles/test_algorithm oracles/test_rules_beyond_the_gram_matrix",
        "critic": "unit/test_critic oracles/test_algorithm",
        "momdp.oracle": "oracles/test_oracle oracles/test_visitation",
        "momdp.chain": "unit/momdp/test_chain",
        "momdp.sampling": "unit/momdp/test_sampling oracles/test_gap_in_theta",
        "policies.items": "unit/policies/test_items unit/offline/test_items",
        "policies.gaussian": "unit/policies/test_networks oracles/test_ppo",
    },
    "learners": {
        "algorithm": "oracles/test_algorithm oracles/test_options",
        "ppo": "oracles/test_ppo unit/test_ppo",
        "weighting.rule": "unit/weighting oracles/test_rules properties/test_weighting",
        "weighting.mgda": "unit/weighting oracles/test_rules",
        "weighting.cagrad": "unit/weighting oracles/test_rules",
        "weighting.chebyshev": "unit/weighting oracles/test_rules",
        "weighting.momentum": "unit/weighting oracles/test_rules oracles/test_algorithm",
        "envs.rollout": "unit/envs/test_rollout unit/envs/test_environment unit/envs/test_preferences",
        "training.hosted": "unit/training/test_hosted",
        "offline.baselines.tscac": "oracles/test_baselines unit/offline/test_baselines",
        "offline.baselines.tilt": "unit/offline/test_tilt",
    },
    "verdicts": {
        "offline.ncis.trust": "unit/offline/ncis/test_trust unit/offline/test_evaluate",
        "offline.ncis.checks": "unit/offline/ncis/test_checks unit/offline/ncis/test_trust",
        "search.archive": "unit/search/test_archive unit/search/test_choosing",
        "search.compare": "unit/search/test_compare",
        "search.measures": "unit/search/test_measures",
        "statistics": "unit/search/test_compare oracles/test_evaluation studies/test_compare",
        "theory.planning": "unit/theory/test_planning properties/test_theory unit/theory/test_bounds",
    },
    "estimators": {
        "offline.ncis.estimates": "unit/offline/ncis/test_estimates oracles/test_ncis properties/test_ncis",
        "offline.ncis.sums": "unit/offline/ncis/test_sums oracles/test_ncis properties/test_ncis",
        "offline.ncis.rows": "unit/offline/ncis/test_rows",
        "offline.ncis.sensitivity": "unit/offline/ncis/test_sensitivity",
        "offline.controls": "unit/offline/test_controls unit/offline/test_exposure",
        "offline.model_error": "unit/offline/test_model_error",
        "offline.reward_model": "oracles/test_evaluation unit/offline/test_evaluate unit/offline/test_items",
    },
    "builders": {
        "logs.buckets": "unit/logs/test_buckets unit/logs/test_building properties/test_logs",
        "logs.features": "unit/logs/test_features unit/logs/test_building",
        "logs.states": "unit/logs/test_states unit/logs/test_dataset",
        "logs.splits": "unit/logs/test_own unit/logs/test_building unit/logs/test_dataset",
        "logs.candidates": "unit/logs/test_candidates",
        "logs.arrays": "unit/logs/test_dataset",
        "kuairand.simulator": "unit/kuairand/test_simulator oracles/test_generated_values",
    },
    "certificates": {
        "theory.certificate": "unit/theory/test_certificate oracles/test_certificates",
        "theory.gap": "unit/theory/test_gap unit/theory/test_look unit/theory/test_certificate",
        "theory.bounds": "unit/theory/test_bounds oracles/test_theory_constants",
        "theory.scores": "unit/theory/test_scores",
        "theory.episodes": "unit/theory/test_episodes unit/theory/test_look unit/theory/test_certificate",
        "theory.mixing": "oracles/test_theory_mixing",
        "theory.smoothness": "oracles/test_theory_smoothness",
    },
}
"""By group the modules that are changed, and the tests that are nearest to each."""
SWAPPED: dict[type[Any], type[Any]] = {
    ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Add: ast.Sub, ast.Sub: ast.Add,
    ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult, ast.FloorDiv: ast.Mult, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
NAMES = ("min max", "minimum maximum", "any all", "argmin argmax", "floor ceil", "zeros ones", "sum mean")
RENAMED = {a: b for pair in NAMES for a, b in (pair.split(), pair.split()[::-1])}
UNTOUCHED = (ast.Raise, ast.JoinedStr, ast.arguments, ast.AnnAssign, ast.Import, ast.ImportFrom, ast.Assert)
FIELDS = ("annotation", "returns", "decorator_list")
CALLS = ("default_rng", "key")
"""Messages, annotations, defaults, sizes of caches, seeds, `strict=True` and tolerances of a module are left as they
are; a comparison is negated, since < and ≤ of computed numbers are the same."""


def sites(node: ast.AST) -> Iterator[ast.AST]:
    """Every node below that can be changed."""
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, UNTOUCHED) or name in FIELDS or is_exempt(child):
                continue
            if changed(child) is not None:
                yield child
            yield from sites(child)


def is_exempt(node: Any) -> bool:
    """Whether a call or an argument decides nothing that a test could see."""
    if isinstance(node, ast.keyword):
        return node.arg == "strict"
    if isinstance(node, ast.Assign):
        return all(isinstance(each, ast.Name) and each.id.strip("_").isupper() for each in node.targets)
    return isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in CALLS


def changed(node: Any) -> ast.AST | None:
    """The node with its mistake; None where there is none to make."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in SWAPPED:
            return ast.Compare(node.left, [SWAPPED[type(op)]()], node.comparators)
        case ast.BinOp(op=op) | ast.BoolOp(op=op) if type(op) in SWAPPED:
            return _with(node, op=SWAPPED[type(op)]())
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            return node.operand
        case ast.Constant(value=bool() | int() | float() as value):
            return ast.Constant(_other(value))
        case ast.Name(id=name) if name in RENAMED:
            return _with(node, id=RENAMED[name])
        case ast.Attribute(attr=name) if name in RENAMED:
            return _with(node, attr=RENAMED[name])
        case _:
            return None


def _other(value: float) -> float:
    """Another truth value, whole number or fraction."""
    if isinstance(value, int):
        return not value if isinstance(value, bool) else value + 1
    return 2 * value or 1.0


def _with(node: Any, **fields: Any) -> Any:
    return type(node)(**{**dict(ast.iter_fields(node)), **fields})


class Swap(ast.NodeTransformer):
    """Puts one node in the place of another."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        """The node, or what takes its place."""
        return ast.copy_location(self.new, node) if node is self.old else self.generic_visit(node)


def drawn(count: int, seed: int) -> list[tuple[str, str, int]]:
    """Group, module and number of the site, as many of each group, in an order that mixes groups."""
    rng, per_group = random.Random(seed), -(-count // len(GROUPS))
    chosen: list[tuple[str, str, int]] = []
    for group, modules in GROUPS.items():
        every = [(group, module, k) for module in modules for k in range(len(list(sites(tree_of(module)))))]
        chosen += rng.sample(every, per_group)
    rng.shuffle(chosen)
    return chosen[:count]


def source_of(module: str) -> Path:
    """Below the folder of sources."""
    return Path("moac", *module.split(".")).with_suffix(".py")


def tree_of(module: str) -> ast.Module:
    """As it is."""
    return ast.parse((ROOT / "src" / source_of(module)).read_text(encoding="utf-8"))


def judged(group: str, module: str, number: int) -> dict[str, Any]:
    """What one change does to the nearest tests."""
    old: Any = list(sites(tree_of(module)))[number]
    about = {"group": group, "module": module, "number": number, "line": old.lineno}
    about |= {"was": ast.unparse(old)[:120], "is": ast.unparse(changed(old))[:120]}
    tests = [f"tests/{test}" for test in GROUPS[group][module].split()]
    paths = [path if (ROOT / path).is_dir() else f"{path}.py" for path in tests]
    with with_changes({module: [number]}) as sources:
        failed = failures(sources, ["-x", *paths], SECONDS)
    return about | {"noticed": failed[0] if failed else None}


@contextlib.contextmanager
def with_changes(numbers: dict[str, list[int]]) -> Iterator[str]:
    """A folder with a copy of the sources, changed at the sites with these numbers of each module."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "src", sources := Path(folder, "src"))
        Path(folder, "docs").symlink_to(ROOT / "docs")  # which `moac docs` prints
        for module, chosen in numbers.items():
            tree = tree_of(module)
            every = list(sites(tree))
            for old in (every[number] for number in chosen):
                tree = Swap(old, changed(old)).visit(tree)
            (sources / source_of(module)).write_text(ast.unparse(ast.fix_missing_locations(tree)))
        yield str(sources)


def failures(sources: str, arguments: list[str], seconds: int) -> list[str]:
    """The tests that fail against these sources, or how pytest ended; none where all pass."""
    command = ["-m", "pytest", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", *arguments]
    environment = os.environ | {"PYTHONPATH": sources, "PYTHONDONTWRITEBYTECODE": "1", "OPENBLAS_NUM_THREADS": "1"}
    limited = ["bash", "-c", f'ulimit -t {seconds}; exec "$@"', "limited", sys.executable, *command]
    done = subprocess.run(limited, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    found = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)  # names may hold spaces
    return found or ([f"ended with {done.returncode}"] if done.returncode else [])


def together(out: str) -> None:
    """The survivors in OUT against the whole suite, all at once; then each alone against what fails."""
    judgements = [json.loads(line) for line in Path(out).read_text().splitlines()]
    survivors = [each for each in judgements if each["noticed"] is None]
    numbers = {each["module"]: [one["number"] for one in survivors if one["module"] == each["module"]]
               for each in survivors}  # fmt: skip
    with with_changes(numbers) as sources:
        failed = failures(sources, ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"], WHOLE_SUITE_SECONDS)
    print(f"{len(survivors)} survivors together: {len(failed)} tests of the whole suite fail", *failed, sep="\n  ")
    for each in survivors if failed else ():
        with with_changes({each["module"]: [each["number"]]}) as sources:
            alone = failures(sources, failed, SECONDS)
        print(f"{each['module']}:{each['line']}: {each['was']}  →  {each['is']}: {alone or 'not noticed'}", flush=True)


def main(out: str, count: int = 300, seed: int = 0) -> None:
    """Judge what is missing, and count."""
    place = Path(out)
    judgements = [json.loads(line) for line in place.read_text().splitlines()] if place.exists() else []
    done = {(each["module"], each["number"]) for each in judgements}
    for each in drawn(count, seed):
        if each[1:] not in done:
            judgements.append(judged(*each))
            with place.open("a", encoding="utf-8") as file:
                file.write(json.dumps(judgements[-1], ensure_ascii=False) + "\n")
    survivors = [each for each in judgements if each["noticed"] is None]
    for each in survivors:
        print(f"survived: {each['module']}:{each['line']}: {each['was']}  →  {each['is']}")
    total, left = (Counter(each["group"] for each in some) for some in (judgements, survivors))
    print(", ".join(f"{group} {n - left[group]} of {n}" for group, n in total.items()))
    print(f"{len(judgements) - len(survivors)} of {len(judgements)} noticed")


if __name__ == "__main__":
    together(sys.argv[1]) if sys.argv[2:] == ["together"] else main(sys.argv[1], *map(int, sys.argv[2:]))
