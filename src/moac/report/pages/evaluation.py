"""The page of an evaluation on a log: what came out, how far to trust it, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from matplotlib.figure import Figure as Drawing

from moac.offline.access_log import AccessLog
from moac.offline.evaluation import OfflineEvaluation
from moac.report import evaluations, style
from moac.report.evaluations import between, signed
from moac.report.numbers import number
from moac.report.page import Figure, Named, Page
from moac.report.pages import evaluation_tables as tables
from moac.runs.directory import FinishedRun

_OUTCOMES = {
    "better": "significantly better on",
    "worse": "significantly worse on",
    "no significant change": "no significant change of",
    "not estimable": "not estimable:",
}


def of_judged(
    judged: OfflineEvaluation, card: dict[str, Any], run: FinishedRun | None = None, accesses: AccessLog | None = None
) -> Page:
    """The page of what was judged; `run` adds how it was trained, `accesses` the looks at test users."""
    trained = () if run is None or run.history.kind != "ncis" else (_training(run),)
    return Page(
        title=f"{' and '.join(judged.methods)} on {judged.data}: {judged.split} users",
        summary=_summary(judged),
        facts=_facts(judged, card, accesses),
        notice=_notice(judged, accesses),
        results=(*(tables.changes(judged, name) for name in judged.methods), tables.reasons(judged)),
        figures=(_forest(judged), _sweep(judged), _weights(judged), *trained),
        tables=(
            tables.opinions(judged),
            tables.diagnostics(judged),
            *tables.behaviour(judged),
            tables.caveats(judged),
            *(() if accesses is None else (tables.looks(accesses),)),
        ),
        details=_details(judged, card),
        command=f"moac evaluate RUN --split {judged.split}",
    )


def _summary(judged: OfflineEvaluation) -> str:
    where = f"{number(judged.rows)} rows of {number(judged.users)} {judged.split} users"
    parts = [f"Estimated by normalised capped importance sampling on {where}, beside {judged.report.baseline}."]
    parts += [_outcome(judged, name) for name in judged.methods]
    if judged.left_out:
        parts.append(f"{_listed(judged.left_out)} never {_fires(judged.left_out)} there and cannot be judged.")
    return " ".join(parts)


def _outcome(judged: OfflineEvaluation, name: str) -> str:
    found: dict[str, list[str]] = {}
    for line in judged.lines(name):
        told = f"{line.signal} ({signed(line.relative)} {between(line.relative_interval)})"
        found.setdefault(line.outcome, []).append(told if line.outcome in ("better", "worse") else line.signal)
    said = [f"{words} {_listed(found[outcome])}" for outcome, words in _OUTCOMES.items() if outcome in found]
    return f"{name}: {'; '.join(said)}. Trust: {judged.report.policies[name].verdict.level}."


def _notice(judged: OfflineEvaluation, accesses: AccessLog | None) -> str | None:
    parts = []
    for name in judged.methods:
        found = judged.report.policies[name].verdict
        if found.level != "trusted":
            more = len(found.reasons) - 1
            rest = f"; {more} more below" if more else ""
            parts.append(f"{name} is {_TRUST[found.level]}: {found.reasons[0].text}{rest}.")
    if accesses is not None and len(accesses.entries) > 1:
        spoiled = "whatever was chosen after the first makes these numbers look better than they are"
        parts.append(f"{str(accesses).capitalize()}: {spoiled}.")
    return " ".join(parts) or None


_TRUST = {"with care": "to be read with care", "not trusted": "not to be trusted"}


def _facts(judged: OfflineEvaluation, card: dict[str, Any], accesses: AccessLog | None) -> Named:
    trust = {name: judged.report.policies[name].verdict.level for name in judged.methods}
    effective = {
        name: min(one.row_effective_share for one in judged.report.policies[name].diagnostics)
        for name in judged.methods
    }
    noted: Named = () if accesses is None else (("Looks at test users", len(accesses.entries)),)
    return (
        ("Trust", _each(trust, str)),
        ("Effective share of rows", _each(effective, lambda share: f"{100 * share:.0f} %")),
        ("Rows", judged.rows),
        ("Users", f"{number(judged.users)} ({judged.split})"),
        ("Policies", _each(judged.seeds, lambda count: "1 seed" if count == 1 else f"{count} seeds")),
        ("Cap", judged.report.options.cap),
        *noted,
        ("Data", f"{judged.data}, {judged.num_actions} actions"),
        ("Date", str(card["date"])[:10]),
    )


def _forest(judged: OfflineEvaluation) -> Figure:
    caption = (
        f"Points are estimates, bars {_level(judged)} intervals over users, paired with {judged.report.baseline} on "
        "the same draws. A filled point is a change that is significant after Holm’s adjustment over the signals; a "
        "hollow one is not. Grey: too few weighted positives to estimate; such a bar may leave the figure."
    )
    told = "; ".join(
        f"{name} {line.signal} {signed(line.relative)} {between(line.relative_interval)}, {line.outcome}"
        for name in judged.methods
        for line in judged.lines(name)
    )
    return _drawn("Change of each signal", evaluations.forest, judged, caption, f"Forest plot: {told}.")


def _sweep(judged: OfflineEvaluation) -> Figure:
    caption = (
        f"The change to {judged.report.baseline} under each cap, with bands of {_level(judged)} intervals over users; "
        "dotted is the cap in use, ∞ is SNIPS. A curve that moves with the cap hangs on few rows of large weight; "
        "where it crosses 0, or another curve, the order is undecided."
    )
    alt = f"One panel for each of {_listed(judged.report.signal_names)}: change against the cap."
    return _drawn("Cap sweep", evaluations.sweep, judged, caption, alt)


def _weights(judged: OfflineEvaluation) -> Figure:
    caption = (
        "Left: how often the policy takes the logged action, relative to the log; 1 is as often. Right: (Σw)²/Σw² of "
        "rows and of users under the cap, as a share of the log’s own, of the worst seed. The smaller it is, the fewer "
        "people speak for the policy."
    )
    found = {name: judged.report.policies[name].diagnostics for name in judged.methods}
    told = ", ".join(
        f"{name} {100 * min(one.row_effective_share for one in own):.0f} % of rows" for name, own in found.items()
    )
    return _drawn("Weights", evaluations.weights, judged, caption, f"Histogram of weights; effective shares: {told}.")


def _training(run: FinishedRun) -> Figure:
    caption = (
        "The weights λ of the steps, and the NCIS value of each signal on validation users while training: mean over "
        "trials with its 95 % band over trials. A cost is negative here."
    )
    drawing = evaluations.training(run.history, run.objectives)
    alt = f"Weights and values over {number(run.last)} iterations for {_listed(run.objectives)}."
    return Figure("Training", style.rendered(drawing, "svg").decode(), caption, alt)


def _drawn(
    name: str, draw: Callable[[OfflineEvaluation], Drawing], judged: OfflineEvaluation, caption: str, alt: str
) -> Figure:
    return Figure(name, style.rendered(draw(judged), "svg").decode(), caption, alt)


def _details(judged: OfflineEvaluation, card: dict[str, Any]) -> Named:
    options = {name: value for name, value in card["report"]["options"].items() if name != "caps"}
    named: dict[str, Any] = {
        **options,
        "caps": ", ".join(str(cap) for cap in card["report"]["sweep"]["caps"]),
        "data fingerprint": judged.fingerprint,
        **{f"policies of {name}": digest for name, digest in card["policies"].items()},
        "split seed": card["split"]["seed"],
        "rows of random exposure": judged.random_rows or None,
        "date": card["date"],
        "moac": card["moac"],
    }
    return tuple((name.replace("_", " "), None if value is None else str(value)) for name, value in named.items())


def _each(found: dict[str, Any], show: Callable[[Any], str]) -> str:
    if len(found) == 1:
        return show(next(iter(found.values())))
    return ", ".join(f"{name}: {show(value)}" for name, value in found.items())


def _level(judged: OfflineEvaluation) -> str:
    return f"{100 * judged.report.options.level:g} %"


def _listed(names: Any) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _fires(names: tuple[str, ...]) -> str:
    return "fires" if len(names) == 1 else "fire"
