"""Write the tables of README and docs from what was recorded:  python benchmarks/tables.py [--check].

A table stands between `<!-- table: NAME -->` and `<!-- end -->`. Its numbers are those of benchmarks/recorded.json,
which `make bench` (speed) and record_studies.py (what `moac reproduce learning` and `fronts` measured) rewrite, and of
src/moac_studies/recorded/kuairand.json. `--check` ends with 1 where a document has another table.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import _recorded
from _timing import ROOT

KUAIRAND = ROOT / "src" / "moac_studies" / "recorded" / "kuairand.json"
_PLACE = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
PEERS = ("NLMOPPO", "MOPPO")
UNIFORM = ("uniform weights", "uniform weights, raw")

Rows = Sequence[Sequence[str]]


def main(arguments: list[str]) -> int:
    """Write, or check."""
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    stale = [path for path in documents if written(path.read_text("utf-8")) != path.read_text("utf-8")]
    if "--check" in arguments:
        names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
        print(
            f"tables of {names} are not those of the record: python benchmarks/tables.py" if stale else "tables agree"
        )
        return 1 if stale else 0
    for path in stale:
        path.write_text(written(path.read_text("utf-8")), "utf-8")
    return 0


def written(text: str) -> str:
    """A document with its tables as they should be."""
    return _PLACE.sub(lambda place: place[1] + TABLES[place[2]]() + place[3], text)


def markdown(header: Sequence[str], rows: Rows) -> str:
    """Lines of a table."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def number(x: float) -> str:
    """Three digits, or a whole number with its thousands."""
    if x == 0:
        return "0"
    size = abs(x)
    text = f"{x / 1e6:.3g} million" if size >= 1e6 else f"{x:,.0f}" if size >= 1000 else f"{x:.3g}"
    return text.replace("-", "−")


def interval(values: Sequence[float]) -> str:
    """A mean with its interval, in one unit."""
    if len(values) < 3 or values[1] == values[2] == values[0]:
        return number(values[0])
    if values[0] >= 1e6:
        return f"{values[0] / 1e6:.3g} million [{values[1] / 1e6:.3g}, {values[2] / 1e6:.3g}]"
    return f"{number(values[0])} [{number(values[1])}, {number(values[2])}]"


def thousands(steps: float) -> str:
    """Steps of an environment."""
    return f"{steps / 1000:.0f} k"


def speed() -> str:
    """What is measured beside a peer in one run."""
    known = _recorded.read()["speed"]
    train, build, start = known["training"], known["kuairand"], known["startup"]
    rows = [[f"min-norm solve, M = {M}, 500 problems at once", _solver(known[f"simplex, M = {M}"]),
             _peer_solver(known[f"simplex, M = {M}"])] for M in (3, 7)]  # fmt: skip
    rows.append([
        "training steps per CPU-second, exact model of resource-gathering",
        f"{1e3 / train['ns']:.0f} million ({train['ns']:.0f} ns a step)",
        f"{train['peer']}: {1e9 / train['peer_ns']:,.0f}, {train['peer_ns'] / train['ns']:.0f}× fewer",
    ])  # fmt: skip
    rows.append(["the same algorithm in plain C, one core", f"{train['ns'] / train['c_ns']:.1f}× its CPU time per step",
                 f"{train['c_ns']:.3g} ns a step"])  # fmt: skip
    for env in ("fishwood-v0", "resource-gathering-v0"):
        of = known[env]
        ratio = of["rate"] / of["peer_rate"]
        rows.append([f"training steps per CPU-second, {env} stepped, 8 copies", f"{of['rate']:,.0f}",
                     f"{of['peer']}: {of['peer_rate']:,.0f}, {ratio:.0f}× fewer"])  # fmt: skip
    for batch, M in ((128, 7), (512, 7), (512, 28), (2048, 7)):
        of = known[f"networks, {batch}, {M}"]
        rows.append([f"update of a network, {M} objectives, batch {batch}", f"{of['ms']:.2g} ms",
                     f"{of['peer']} MGDA: {of['peer_ms']:.3g} ms, {of['peer_ms'] / of['ms']:.1f}×"])  # fmt: skip
    rows.append(["dataset from 6 million log rows under a 1 GB cap", f"{build['cpu']:.0f} CPU s, {build['gb']:.2f} GB",
                 f"{build['peer']}: {build['peer_cpu']:.0f} CPU s, {build['peer_gb']:.1f} GB"])  # fmt: skip
    rows.append(["`moac --help`, an invalid option", f"{start['help']:.2f} s, {start['mistake']:.2f} s", "–"])
    first = f"{start['first_result']:.1f} s"
    rows.append(["first result of `moac train resource-gathering-v0`, nothing compiled before", first, "–"])
    return markdown(["measured", "moac", "peer"], rows)


def _solver(of: dict[str, Any]) -> str:
    return f"{of['batch_us']:.2g} µs (float32), {of['batch64_us']:.2g} µs (float64), gap {_power(of['gap'])}"


def _peer_solver(of: dict[str, Any]) -> str:
    ratio = of["peer_us"] / of["single_us"]
    return (f"{of['peer']} MGDA, one at a time: {of['peer_us']:,.0f} µs, gap {_power(of['peer_gap'])} "
            f"({ratio:.0f}× ours one at a time, {of['single_us']:.0f} µs)")  # fmt: skip


def _power(x: float) -> str:
    return f"{x:.0e}".replace("e-0", "e-").replace("-", "−")


def networks() -> str:
    """The update of a network at all sizes."""
    sizes = {name: of for name, of in _recorded.read()["speed"].items() if name.startswith("networks, ")}
    rows = [[name.removeprefix("networks, "), f"{of['ms']:.3g}", f"{of['peer_ms']:.3g}",
             f"{of['peer_ms'] / of['ms']:.1f}", " / ".join(f"{ms:.3g}" for ms in of["without"]),
             f"{of['scalarised_ms']:.2f}"] for name, of in sizes.items()]  # fmt: skip
    header = ["batch, objectives", "moac", "TorchJD, MGDA", "ratio", "both without solvers", "scalarised"]
    return markdown(header, rows)


def learning() -> str:
    """One row for each environment, four methods."""
    rows = []
    for of in _recorded.read()["learning"]:
        found = of["values"]
        uniform = [found[name] for name in UNIFORM if name in found]
        peers = [f"{name} {interval(found[name])}" for name in PEERS if name in found]
        measured = "" if "reference" in of else f", {of['measured']}"
        rows.append([
            f"{of['environment']}, {thousands(of['steps'])} + {thousands(of['evaluation_steps'])}{measured}",
            interval(found["MOAC"]),
            interval(max(uniform)) if uniform else "–",
            interval(found["paper's learner"]) if "paper's learner" in found else "–",
            *(peers or ["–"]),
        ])  # fmt: skip
    header = [
        "environment, steps: training + evaluations",
        "MOAC (min-norm)",
        "uniform weights, the better unit",
        "paper's learner",
    ]
    return markdown([*header, "morl-baselines 1.3.0"], rows)


def methods(measured: str) -> str:
    """One column for each environment, all methods."""
    columns = [of for of in _recorded.read()["learning"] if of["measured"] == measured]
    names = list(dict.fromkeys(name for of in columns for name in of["values"] if name not in PEERS))
    rows = [["reference", *(_reference(of) for of in columns)]] if "reference" in columns[0] else []
    rows.append(["steps: training + evaluations", *map(_steps, columns)])
    rows += [[name, *(interval(of["values"][name]) if name in of["values"] else "–" for of in columns)]
             for name in names]  # fmt: skip
    peers = [[f"{name} {interval(of['values'][name])}" for name in PEERS if name in of["values"]] for of in columns]
    rows.append(["morl-baselines", *(found[0] if found else "–" for found in peers)])
    return markdown(["method", *(of["environment"] for of in columns)], rows)


def _reference(of: dict[str, Any]) -> str:
    return f"({', '.join(f'{x:g}' for x in of['reference'])})".replace("-", "−")


def one_network(everything: bool) -> str:
    """One row for each environment; `everything` adds rows of other settings, the range of the seeds and the time.

    Without it, rows that have neither a target nor a peer are left out, and defaults stand beside other settings.
    """
    recorded = {of["environment"]: of for of in _recorded.read()["one_network"]}
    header = ["command", "hypervolume, 95 % interval", "with defaults", "seeds"]
    header += ["steps: training + evaluations", "target", "best peer"]
    if everything:
        header = ["command", "hypervolume, 95 % interval", "smallest and largest seed", "seeds"]
        header += ["steps: training + evaluations", "target", "best peer", "CPU s"]

    rows: list[list[str]] = []
    for name, of in recorded.items():
        if everything:
            beside = _range(of)
        elif ", " in name or not (of["bar"] or of["peer"]):
            continue
        else:
            beside = _with_defaults(recorded, name)
        row = [f"`{of['command']}`", interval(of["volume"][:3]), beside, str(of["seeds"]), _steps(of)]
        row += [_target(of), of["peer"] or "–"]
        if everything:
            row.append(str(of["cpu"]))
        rows.append(row)
    return markdown(header, rows)


def _with_defaults(recorded: Mapping[str, dict[str, Any]], name: str) -> str:
    """The volume without the options that were chosen for the environment."""
    if f"{name}, defaults" in recorded:
        return interval(recorded[f"{name}, defaults"]["volume"][:3])
    return "the same"


def _range(of: dict[str, Any]) -> str:
    """The volumes of the smallest and the largest seed."""
    if len(of["volume"]) < 5:
        return "–"
    low, high = of["volume"][3:]
    return f"{number(low)} to {number(high)}"


def _steps(of: dict[str, Any]) -> str:
    """Calls of `step`: for training, and for everything else."""
    return f"{of['steps']:,} + {of['evaluation_steps']:,}"


def _target(of: dict[str, Any]) -> str:
    """The volume that was wanted."""
    if of["bar"] is None:
        return "–"
    if of["volume"][0] < of["bar"]:
        return f"**missed:** {number(of['bar'])}"
    return number(of["bar"])


def change(cell: Any) -> str:
    """A change in per cent with its interval; a text as it is."""
    if isinstance(cell, str):
        return cell or "–"
    value, low, high = cell[-3:]
    return f"{value:+.1f} % [{low:+.1f}, {high:+.1f}]".replace("-", "−")


def offline() -> str:
    """What each policy changes on test users, and what the controls say of it."""
    data = json.loads(KUAIRAND.read_text("utf-8"))
    tested, checked = (data[name] for name in ("Test users, read once", "Controls, sensitivity and random exposure"))
    checks = {row[0]: row for row in checked[1:]}
    labels = {"Tilt": "one number per video (tilt)", "One feature": "longer videos (one feature)"}
    rows = []
    for row in tested[1:]:
        of = dict(zip(tested[0], row, strict=True))
        click, watch = checks.get(f"{row[0]}: Click"), checks.get(f"{row[0]}: WatchTime")
        if click is not None:
            rows.append([labels.get(row[0], row[0]), change(of["Click"]), change(of["WatchTime"]), change(watch[2]),
                         f"{click[3]}, {watch[3]}", of["Verdict"]])  # fmt: skip
    header = ["policy", "Click", "WatchTime", "earlier WatchTime, must be 0", "Γ of Click, WatchTime", "verdict"]
    return markdown(header, rows)


def kuairand(title: str, columns: Mapping[str, str]) -> str:
    """A table of the record with some of its columns, under other names."""
    header, *rows = json.loads(KUAIRAND.read_text("utf-8"))[title]
    places = [header.index(column) for column in columns]
    kept = [row for row in rows if row[0] != "Behavior-Clone"]
    return markdown(list(columns.values()), [[change(row[k]) for k in places] for row in kept])


_TESTED = {"Method": "test users, read once", "Share": "share", "Verdict": "verdict"} | {
    signal: signal for signal in ("Click", "WatchTime", "Completion", "LongView")
}
_CHECKED = {
    "Estimate": "estimate",
    "Change": "change",
    "Control": "earlier rewards, must be 0",
    "Γ": "Γ",
    "Random exposure": "random exposure",
    "Same users, standard": "same users, standard rows",
    "Difference": "difference",
}
TABLES: dict[str, Callable[[], str]] = {
    "speed": speed,
    "networks": networks,
    "learning": learning,
    "methods": lambda: methods("hypervolume"),
    "methods-mujoco": lambda: methods("sum of returns"),
    "one-network": lambda: one_network(everything=False),
    "one-network-all": lambda: one_network(everything=True),
    "offline": offline,
    "kuairand-test": lambda: kuairand("Test users, read once", _TESTED),
    "kuairand-controls": lambda: kuairand("Controls, sensitivity and random exposure", _CHECKED),
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
