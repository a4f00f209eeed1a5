"""The study `kuairand-comparison`: Behavior-Clone, PDPG, TSCAC and MOAC with its ablations on one log.

It runs on KuaiRand's rows where they are, on generated ones elsewhere, or on any dataset (`of_dataset`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from moac.logs.dataset import LoggedDataset
from moac.offline.choose import LEAST_SHARE
from moac.offline.evaluation import Line
from moac.report import style
from moac.report.numbers import Value
from moac.report.page import Claim, Table, Verdict, verdict_of
from moac.report.pages.experiment import Findings, Shown
from moac.search import candidates
from moac.statistics import Mean
from moac_studies import compare, drawings, framework, kuairand_search, kuairand_statistics
from moac_studies.framework import Study, Workspace
from moac_studies.kuairand_search import MAIN, AtShare, OnUsers, Searched, Trained

VALIDATION, TEST, EQUAL = "Validation users", "Test users, read once", "At equal effective sample size"


def of_dataset(folder: str | Path, options: Any) -> Study:
    """The study on a dataset's folder, with the signals that it has.

    `options` are `trials`, `iterations` (None is the study's), `test`, `quick` and `seed`.
    """
    study, dataset = framework.load("kuairand-comparison", options.quick), LoggedDataset.from_parquet(folder)
    asked = {"trials": options.trials, "iterations": options.iterations}
    chosen = {name: value for name, value in asked.items() if value is not None}
    tables = study.parameters
    known = [name for name in tables["judging"]["signals"] if name in dataset.signal_names]
    signals = known or list(dataset.signal_names[:2])
    parameters = {
        **tables,
        "data": {"folder": str(folder)},
        "training": {**tables["training"], **chosen},
        "judging": {**tables["judging"], "test": options.test, "signals": signals},
    }
    return replace(study, title=f"{dataset.name}: the comparison", seed=options.seed, parameters=parameters)


def run(study: Study, work: Workspace) -> Findings:
    """Fit how the log chose, train every setting of every method, choose on validation users, and test once."""
    parameters = study.parameters
    folder, real = parameters["data"].get("folder"), False
    if folder is None:
        rows = kuairand_statistics.real_rows()
        folder, real = kuairand_statistics.built(parameters["data"], study.seed, work, rows), rows is not None
    dataset = candidates.with_behaviour(LoggedDataset.from_parquet(folder), work.folder, None)
    searched = kuairand_search.search(dataset, parameters, study.seed, work)
    chosen = {method: searched.chosen(method) for method in searched.trained}
    tested = kuairand_search.tested_once(dataset, chosen, work) if parameters["judging"]["test"] else None
    return findings(parameters, searched, tested, real)


def findings(
    parameters: Mapping[str, Any], searched: Searched, tested: Mapping[str, OnUsers] | None, real: bool
) -> Findings:
    """Everything, in reading order; the paper's table stands beside KuaiRand's own rows alone."""
    chosen = {method: searched.chosen(method) for method in searched.trained}
    validated = {name: searched.on_users[each.name] for name, each in chosen.items()}
    main, share = parameters["judging"]["signals"], float(parameters["judging"]["share"])
    level = {name: kuairand_search.at_share(searched.of(name), share) for name in searched.trained}
    claims = [*aims(validated[MAIN], main, VALIDATION.lower(), VALIDATION)]
    claims += [not_dominated(level, share), largest_gain(level, share)]
    listed = [
        _users_table(VALIDATION, "Chosen on these users, so a little too good.", validated, chosen),
        _equal_table(level, share),
        _search_table(searched),
    ]
    if searched.from_random:
        about = "The same settings from random weights, on validation users."
        listed.append(_users_table("Started at random", about, searched.from_random, chosen))
    if tested is not None:
        about = "Settings were chosen on validation users before these were read."
        claims += aims(tested[MAIN], main, "test users", TEST)
        listed.insert(0, _users_table(TEST, about, tested, chosen))
    listed += [_paper_table(parameters["paper"])] if real else []
    shown = (
        _curves_figure(searched, _estimable(validated.values())),
        _changes_figure(validated, "validation") if tested is None else _changes_figure(tested, "test"),
        _weights_figure(chosen[MAIN], [line.signal for line in validated[MAIN].lines]),
    )
    return Findings(tuple(claims), tuple(listed), shown)


def _estimable(results: Iterable[OnUsers]) -> list[str]:
    """Signals that can be estimated for some method."""
    each = list(results)
    columns = zip(*(own.lines for own in each), strict=True)
    return [column[0].signal for column in columns if any(line.outcome != "not estimable" for line in column)]


def aims(own: OnUsers, signals: Sequence[str], users: str, evidence: str) -> list[Claim]:
    """What MOAC is to show."""
    main = {signal: own.line(signal) for signal in signals}
    worse = [line.signal for line in own.lines if line.outcome == "worse"]
    unknown = [line.signal for line in own.lines if line.outcome == "not estimable"]
    left = f"; not estimable: {', '.join(unknown)}" if unknown else ""
    return [
        Claim(
            f"On {users} {' and '.join(signals)} are above Behavior-Clone, intervals above 0",
            "; ".join(f"{name} {_change(line)}" for name, line in main.items()),
            verdict_of([_is_above(line) for line in main.values()]),
            evidence,
        ),
        Claim(
            f"On {users} no signal is significantly worse",
            f"worse: {', '.join(worse) or 'none'}{left}",
            "does not hold" if worse else "not decided" if unknown else "holds",
            evidence,
        ),
        Claim(
            f"On {users} the effective share of rows is at least one half",
            f"{own.share:.2f}, of the worst seed; verdict {own.verdict}",
            verdict_of([own.share >= LEAST_SHARE]),
            evidence,
        ),
    ]


def _is_above(line: Line | None) -> Verdict:
    if line is None or line.outcome == "not estimable":
        return "not decided"
    return compare.above(Mean(line.relative, *line.relative_interval, 0)).verdict


def not_dominated(level: Mapping[str, AtShare | None], share: float) -> Claim:
    """No other method leads in every signal that can be estimated for both."""
    claim = f"At an effective share of {share:g} no other method is better in every estimable signal"
    ours = level[MAIN]
    if ours is None:
        return Claim(claim, "MOAC's settings do not reach that share", "not measured", EQUAL)
    leads = {name: kuairand_search.leads(own, ours) for name, own in level.items() if own is not None and name != MAIN}
    better = {name: compare.all_of(map(compare.above, own.values())).verdict for name, own in leads.items() if own}
    over, undecided = ([name for name in better if better[name] == verdict] for verdict in ("holds", "not decided"))
    missing = [name for name in level if name not in better and name != MAIN]
    text = f"better everywhere: {', '.join(over) or 'none'} of {', '.join(better) or 'none'}"
    text += f"; MOAC leads significantly nowhere: {', '.join(undecided)}" if undecided else ""
    text += f"; nothing to compare at that share: {', '.join(missing)}" if missing else ""
    return Claim(claim, text, "does not hold" if over else "not decided" if undecided or missing else "holds", EQUAL)


def largest_gain(level: Mapping[str, AtShare | None], share: float) -> Claim:
    """In which signals MOAC leads all other methods, and who leads it elsewhere."""
    claim = f"At an effective share of {share:g} MOAC has the largest gain in every estimable signal"
    ours = level[MAIN]
    others = {name: own for name, own in level.items() if own is not None and name != MAIN}
    if ours is None or not others:
        return Claim(claim, "there is nothing to compare at that share", "not measured", EQUAL)
    ahead, told, verdicts = {name: kuairand_search.leads(ours, own) for name, own in others.items()}, [], []
    for signal in ours.estimable:
        leads = {name: own[signal] for name, own in ahead.items() if signal in own}
        if leads:
            closest = min(leads, key=lambda name: leads[name].value)
            points = leads[closest].mapped(lambda x: 100 * x)
            interval = f"{points.value:+.1f} points [{points.low:+.1f}, {points.high:+.1f}]"
            told.append(f"{signal}: MOAC {interval} beside {closest}")
            verdicts.append(compare.all_of(map(compare.above, leads.values())).verdict)
    return Claim(claim, "; ".join(told), verdict_of(verdicts), EQUAL)


def _change(line: Line | None) -> str:
    if line is None or line.outcome == "not estimable":
        return "not estimable"
    low, high = (100 * end for end in line.relative_interval)
    return f"{100 * line.relative:+.1f} % [{low:+.1f}, {high:+.1f}]"


def _users_table(title: str, caption: str, results: Mapping[str, OnUsers], chosen: Mapping[str, Trained]) -> Table:
    """Rows as in the paper: value, and change to Behavior-Clone with its interval."""
    first = next(iter(results.values()))
    rows: list[tuple[Value, ...]] = [("Behavior-Clone", "", *(f"{line.baseline:.4g}" for line in first.lines), "1", "")]
    for name, own in results.items():
        stars = ("*" if line.outcome in ("better", "worse") else "" for line in own.lines)
        cells = (f"{line.value:.4g}, {_change(line)}{star}" for line, star in zip(own.lines, stars, strict=True))
        rows.append((name, chosen[name].about, *cells, f"{own.share:.2f}", own.verdict))
    header = ("Method", "Setting", *(line.label for line in first.lines), "Share", "Verdict")
    about = (
        "Values are NCIS estimates of the immediate reward per row, if nothing unobserved decided what was shown; "
        "changes with 95 % intervals over users; * is significant after Holm."
    )
    return Table(title, f"{caption} {about}", header, tuple(rows))


def _equal_table(level: Mapping[str, AtShare | None], share: float) -> Table:
    """All methods where the same share of the log speaks for them."""
    known = {name: own.lines for name, own in level.items() if own is not None}
    signals = [line.label for line in next(iter(known.values())).values()] if known else []
    rows = tuple((name, *(_change(line) for line in own.values())) for name, own in known.items())
    caption = (
        f"Changes on validation users at an effective share of {share:g}, between the two settings on either side of "
        "it (changes and ends of intervals in proportion). Claims rest on paired differences: users are drawn alike "
        "for both methods, and the shares are taken as they are. A method without settings on both sides is left out."
    )
    return Table(EQUAL, caption, ("Method", *signals), rows)


def _search_table(searched: Searched) -> Table:
    """All that was tried."""
    rows: list[tuple[Value, ...]] = []
    for method, settings in searched.trained.items():
        for each in settings:
            own = searched.on_users[each.name]
            against = "; ".join(own.against) or "none"
            rows.append((method, each.about, f"{100 * own.gain:+.2f} %", f"{own.share:.2f}", against))
    caption = (
        "Every setting of every method on validation users; gain: mean over estimable signals of the least change for "
        "the better that the intervals allow."
    )
    return Table("The search", caption, ("Method", "Setting", "Gain", "Share", "Against it"), tuple(rows))


def _paper_table(paper: Mapping[str, Any]) -> Table:
    caption = (
        "Per cent of change to Behavior-Clone as the paper prints it, without intervals. It cannot be compared row by "
        "row: other rows (KuaiRand-27K's first part), a continuous action that is a popularity rank, a state that "
        "holds the action, a behaviour model trained on test rows, and a choice made on them; 7 dislikes and 14 "
        "follows decide two columns."
    )
    rows = tuple((name, *(f"{value:+g}" for value in values)) for name, values in paper["changes"].items())
    return Table("The paper's table", caption, ("Method", *paper["signals"]), rows)


def _curves_figure(searched: Searched, signals: Sequence[str]) -> Shown:
    """Each method's settings as a line, one panel per signal that can be estimated."""
    return Shown(
        "Gain over effective sample size",
        "gain-over-share",
        _draw_curves(searched, signals),
        "Change to Behavior-Clone on validation users of each setting of the search, over the effective share of rows: "
        "how much of the log speaks for it. To the right is close to the log. Bars are 95 % intervals over users. At "
        "one share, higher is better.",
        "Line charts of the relative change of each signal over the effective share of rows, one line per method.",
    )


@style.styled
def _draw_curves(searched: Searched, signals: Sequence[str]) -> Figure:
    figure, axes = style.panels(len(signals), len(signals), (4.0, 3.3))
    for ax, signal in zip(axes, signals, strict=True):
        ax.axhline(0, color="#777777", linewidth=0.9)
        for index, method in enumerate(searched.trained):
            settings = sorted(searched.of(method), key=lambda each: each.share)
            lines = [each.line(signal) for each in settings]
            y = np.array([np.nan if line is None else 100 * line.relative for line in lines])
            ends = [(np.nan, np.nan) if line is None else line.relative_interval for line in lines]
            reach = np.abs(100 * np.array(ends).T - y)
            look: dict[str, Any] = {**style.line(index), "marker": "o", "ms": 4, "capsize": 2, "label": method}
            ax.errorbar([each.share for each in settings], y, yerr=reach, **look)
        ax.set_title(signal)
        ax.set_xlabel("effective share of rows")
    axes[0].set_ylabel("change, %")
    style.legend_below(figure, axes, 4)
    return figure


def _changes_figure(results: Mapping[str, OnUsers], users: str) -> Shown:
    """The chosen setting of each method, one panel per signal."""

    def dot(line: Line | None) -> drawings.Dot | None:
        if line is None:
            return None
        percent = Mean(line.relative, *line.relative_interval, 0).mapped(lambda x: 100 * x)
        return drawings.Dot(percent, line.outcome in ("better", "worse"))

    columns = {name: [dot(own.line(name)) for own in results.values()] for name in _estimable(results.values())}
    return Shown(
        "Changes to Behavior-Clone",
        "changes",
        drawings.dots(columns, {name: row for row, name in enumerate(results)}, "change, %"),
        f"Change to Behavior-Clone on {users} users, of the setting that validation users chose, with 95 % intervals "
        "over users; filled where significant after Holm. Of a cost, to the left is better.",
        "Forest plots of the relative change of each signal, one row per method.",
    )


def _weights_figure(own: Trained, signals: Sequence[str]) -> Shown:
    """λ of MOAC."""
    lines = tuple(drawings.Curve(signal, own.steps, own.weights[:, :, i], i) for i, signal in enumerate(signals))
    return Shown(
        "λ over time",
        "lambda",
        drawings.curves([drawings.Panel("", ("iteration", "λ"), lines, log_x=False, log_y=False)], columns=1),
        f"Weights λₜ of {own.name}: means over training seeds with 95 % bands.",
        "Line chart of the weight of each signal over iterations.",
    )
