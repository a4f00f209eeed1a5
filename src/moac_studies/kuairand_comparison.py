"""The study `kuairand-comparison`: learners on one log beside baselines that know items and no person.

It runs on KuaiRand's rows where they are, on generated ones elsewhere, or on any dataset (`of_dataset`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from moac.config import Config
from moac.kuairand.schema import GENERATED
from moac.logs.dataset import LoggedDataset
from moac.logs.folder import read_manifest
from moac.offline.baselines import tilt
from moac.offline.evaluation import Line
from moac.report.numbers import Value, change
from moac.report.page import Claim, Table, Verdict, verdict_of
from moac.report.pages.experiment import Findings, Shown
from moac.search import candidates
from moac.statistics import Mean
from moac_studies import compare, drawings, framework, kuairand_search, kuairand_statistics, tscac_compat
from moac_studies.framework import Study, Workspace
from moac_studies.kuairand_search import MAIN, NOT_CHECKED, TILT, Bench, OnUsers, Searched, beside, leads

VALIDATION, TEST, TIME = "Validation users", "Test users, read once", "Later rows, by time"
FIXED, COMPLETE, PAPER = "MOAC, fixed weights", "MOAC, fixed at a complete batch", "The paper's table beside ours"
FIRST_BATCHES = 24
"""Seeds whose first batch is looked at."""
_READ: dict[str, Verdict] = {"trusted": "holds", "with care": "not decided", NOT_CHECKED: "not measured"}
_DIGIT = 5e-4  # of a value: the paper prints three or four digits


def of_dataset(folder: str | Path, options: Any) -> Study:
    """The study on a dataset's folder, with the signals that it has.

    `options` are `trials`, `iterations` (None is the study's), `feature`, `test`, `quick` and `seed`.
    """
    study, dataset = framework.load("kuairand-comparison", options.quick), LoggedDataset.from_parquet(folder)
    asked = {"trials": options.trials, "iterations": options.iterations}
    chosen = {name: value for name, value in asked.items() if value is not None}
    tables = study.parameters
    known = [name for name in tables["judging"]["signals"] if name in dataset.signal_names]
    judging = {"test": options.test, "signals": known or list(dataset.signal_names[:2]), "since": ""}
    if options.feature is not None:
        tilt.feature_scores(dataset, options.feature)  # a mistake shows before anything is fitted
        judging |= {"feature": options.feature}
    parameters = {
        **tables,
        "data": {"folder": str(folder)},
        "training": {**tables["training"], **chosen},
        "judging": {**tables["judging"], **judging},
    }
    return replace(study, title=f"{dataset.name}: the comparison", seed=options.seed, parameters=parameters)


def run(study: Study, work: Workspace) -> Findings:
    """Fit how the log chose, train every setting of every method, choose on validation users, and test once."""
    parameters, rows, folder = study.parameters, None, study.parameters["data"].get("folder")
    if folder is None:
        rows = kuairand_statistics.real_rows()
        folder = kuairand_statistics.built(parameters["data"], study.seed, work, rows, "users")

    def bench(data: Path, kept: Path) -> Bench:
        dataset = candidates.with_behaviour(LoggedDataset.from_parquet(data), kept, Config())
        return Bench(dataset, parameters, study.seed, work)

    judging, own = parameters["judging"], bench(Path(folder), work.folder)
    searched = kuairand_search.search(own)
    split, repeated = "test" if judging["test"] else "validation", {} if is_real(Path(folder)) else None
    results = {TEST if judging["test"] else VALIDATION: own.judged(split, searched.methods, split)}
    again = kuairand_search.again(own, searched) if judging["variations"] else {}
    if judging["test"] and judging["since"]:
        data = kuairand_statistics.built(parameters["data"], study.seed, work, rows, f"time:{judging['since']}")
        results[TIME] = kuairand_search.later(bench(data, data.with_name(f"{data.name}-behaviour")), searched)
    first = own.trained(FIXED, {}, {"trials": FIRST_BATCHES, "iterations": 1, "num_evaluations": 1}).weights[:, 0]
    if judging["test"] and repeated is not None:
        repeated = tscac_compat.kept(own.source, study, work)
    return findings(searched, results, again, first, (parameters, repeated))


def is_real(folder: Path) -> bool:
    """Whether a dataset was built from KuaiRand's own rows."""
    about = read_manifest(folder)
    return about["name"].startswith("kuairand") and GENERATED not in about["warnings"]


def findings(
    searched: Searched,
    results: Mapping[str, Mapping[str, OnUsers]],
    again: Mapping[str, Mapping[str, OnUsers]],
    first: Any,
    paper: tuple[Mapping[str, Any], Mapping[str, Any] | None],
) -> Findings:
    """Everything, in reading order.

    `results` and `again` are by title; the first are those that count. `paper` are the study's tables and values of the
    published protocol by method: none where it was not run, and None on other rows than KuaiRand's own, beside which
    the paper's table does not stand.
    """
    settings, (parameters, repeated) = {name: searched.chosen(name).about for name in searched.trained}, paper
    main, judged = parameters["judging"]["signals"], next(iter(results.values()))
    claims = [claim for title, own in results.items() for claim in aims(own[MAIN], main, title)]
    claims += [beats(name, own, main, title) for title, own in results.items() for name in own if beside(name) in own]
    claims += [degenerate(first)]
    listed = [_users_table(title, own, settings) for title, own in results.items()]
    listed += [_checks_table(judged, main), *(_users_table(title, own, settings) for title, own in again.items())]
    if repeated is not None:
        claims += [*statements(parameters["paper"], judged), printed_means(parameters["paper"])]
        listed.append(_paper_table(parameters["paper"], judged, repeated))
    return Findings(tuple(claims), (*listed, _search_table(searched)), (_changes_figure(judged),))


def aims(own: OnUsers, signals: Sequence[str], users: str) -> list[Claim]:
    """What MOAC is to show."""
    gains = leads(own, None)
    worse = [line.signal for line in own.lines if line.outcome == "worse"]
    unknown = [line.signal for line in own.lines if line.outcome == "not estimable"]
    left = f"; not estimable: {', '.join(unknown)}" if unknown else ""
    gammas = {name: own.gamma(name) for name in signals}
    told = ", ".join(f"{name} {gamma:.2f}" for name, gamma in gammas.items() if gamma is not None)
    explained = f"; something unobserved that shifts the odds of exposure by {told} would explain it" if told else ""
    return [
        Claim(
            f"{users}: {' and '.join(signals)} are above Behavior-Clone, intervals above 0",
            "; ".join(f"{name} {_change(own.line(name))}" for name in signals) + explained,
            verdict_of([compare.above(gains[name]).verdict if name in gains else "not decided" for name in signals]),
            users,
        ),
        Claim(
            f"{users}: no signal is significantly worse",
            f"worse: {', '.join(worse) or 'none'}{left}",
            "does not hold" if worse else "not decided" if unknown else "holds",
            users,
        ),
        Claim(
            f"{users}: MOAC's estimate may be read as an effect",
            f"{own.verdict}{'' if not own.reasons else ': ' + '; '.join(own.reasons)}",
            _READ.get(own.verdict, "does not hold"),
            users,
        ),
    ]


def beats(learner: str, results: Mapping[str, OnUsers], signals: Sequence[str], users: str) -> Claim:
    """Whether a learner gains more than one number per item at the same share; what is open does not beat it."""
    ahead = {name: lead for name, lead in leads(results[learner], results[beside(learner)]).items() if name in signals}
    verdicts = {compare.above(lead).verdict for lead in ahead.values()}
    text = "; ".join(f"{name} {_points(lead)}" for name, lead in ahead.items()) or "no signal can be estimated for both"
    lost = [name for name, lead in ahead.items() if compare.above(lead).verdict == "does not hold"]
    told, verdict = (f"only in part, {', '.join(lost)} is behind", "holds in part") if lost else ("it does", "holds")
    told, verdict = (told, verdict) if "holds" in verdicts else ("it does not", "does not hold")
    return Claim(f"{users}: {learner} beats the tilt", f"{told}: {text}", verdict, users)


def _points(lead: Mean) -> str:
    points = lead.mapped(lambda x: 100 * x)
    return f"{points.value:+.1f} points [{points.low:+.1f}, {points.high:+.1f}]"


def degenerate(first: Any) -> Claim:
    """Whether the weights of first batches leave all but one signal out; `first` [K, M] are those of K seeds."""
    count = int((first.max(axis=1) > 0.99).sum())
    return Claim(
        "Weights fixed at the first batch weigh several signals",
        f"{count} of {len(first)} first batches put all weight on one signal, which has not fired: its gradient is 0. "
        f"“{COMPLETE}” waits for the first batch in which every signal has fired",
        "does not hold" if count > len(first) / 2 else "holds",
        "The search",
    )


def statements(paper: Mapping[str, Any], results: Mapping[str, OnUsers]) -> list[Claim]:
    """The paper's observations (a) to (c) and its ablation, on our users: in which signals MOAC is above, or below."""
    return [
        _stated(text, leads(results[MAIN], results.get(said["beside"])), said["above"], said["below"])
        for text, said in paper["statements"].items()
    ]


def _stated(text: str, ahead: Mapping[str, Mean], above: Sequence[str], below: Sequence[str]) -> Claim:
    """A statement of the paper: MOAC leads in some signals and trails in others; what cannot be estimated is open."""

    def part(name: str, judged: Callable[[Mean], compare.Part]) -> Verdict:
        return judged(ahead[name]).verdict if name in ahead else "not decided"

    parts: list[Verdict | bool] = [part(name, compare.above) for name in above]
    parts.extend(part(name, compare.below) for name in below)
    told = [f"{name} {_points(ahead[name]) if name in ahead else 'not estimable'}" for name in (*above, *below)]
    return Claim(text, "; ".join(told), verdict_of(parts), PAPER)


def printed_means(paper: Mapping[str, Any]) -> Claim:
    """Whether the paper's Behavior-Clone row is a plain mean of the public code's test rows, digit by digit."""
    rows, printed = paper["test_rows"], paper["values"]["Behavior-Clone"]
    pairs = zip(printed, paper["test_sums"], strict=True)
    same = [abs(value * rows / total - 1) < _DIGIT for value, total in pairs]
    sums = ", ".join(f"{name} {count:,}" for name, count in zip(paper["signals"], paper["test_sums"], strict=True))
    return Claim(
        "The paper's Behavior-Clone row is an estimate of a policy",
        f"{sum(same)} of {len(same)} values are means of the public code's {rows:,} test rows, to the digit ({sums})",
        "does not hold" if all(same) else "not decided",
        PAPER,
    )


def _change(line: Line | None) -> str:
    if line is None or line.outcome == "not estimable":
        return "not estimable"
    return change(line.relative, line.relative_interval)


def _users_table(title: str, results: Mapping[str, OnUsers], settings: Mapping[str, str]) -> Table:
    """Rows as in the paper: value, and change to Behavior-Clone with its interval."""
    first = next(iter(results.values()))
    rows: list[tuple[Value, ...]] = [("Behavior-Clone", "", *(f"{line.baseline:.4g}" for line in first.lines), "1", "")]
    for name, own in results.items():
        stars = ("*" if line.outcome in ("better", "worse") else "" for line in own.lines)
        cells = (f"{line.value:.4g}, {_change(line)}{star}" for line, star in zip(own.lines, stars, strict=True))
        rows.append((name, settings.get(name, ""), *cells, f"{own.share:.2f}", own.verdict))
    header = ("Method", "Setting", *(line.label for line in first.lines), "Share", "Verdict")
    caption = (
        "Settings were chosen on validation users, whose numbers are a little too good. Values are NCIS estimates of "
        "the immediate reward per row among these items, if nothing unobserved decided what was shown; changes with "
        "95 % intervals over users; * is significant after Holm. The tilt stands at the share of each learner."
    )
    return Table(title, caption, header, tuple(rows))


def _checks_table(results: Mapping[str, OnUsers], signals: Sequence[str]) -> Table:
    """What refutes the estimates, and what would."""
    rows = tuple(
        (f"{name}: {signal}", _change(own.line(signal)), *own.checks(signal), own.verdict_of(signal))
        for name, own in results.items()
        if not name.startswith(f"{TILT} at")
        for signal in signals
    )
    caption = (
        "Control: the change of the user's earlier rewards, which no policy can have changed, with half of the past "
        "responses held out of b. Γ: the factor by which something unobserved would have to shift the odds of exposure "
        "for the interval of the change to meet 0. Random exposure: the change on all of its rows, which nobody "
        "trained on; beside it that on the same users' standard rows, and the difference of the two."
    )
    header = ("Estimate", "Change", "Control", "Γ", "Random exposure", "Same users, standard", "Difference", "Verdict")
    return Table("Controls, sensitivity and random exposure", caption, header, rows)


def _search_table(searched: Searched) -> Table:
    """All that was tried."""
    rows: list[tuple[Value, ...]] = []
    for method, settings in searched.trained.items():
        for each in settings:
            own = searched.on_users[each.name]
            against = "; ".join(own.against) or "none"
            rows.append((method, each.about, f"{100 * own.gain:+.2f} %", f"{own.share:.2f}", against))
    caption = (
        "Every setting of every learner on validation users; gain: mean over estimable signals of the least change for "
        "the better that the intervals allow. What speaks against a setting, controls among it, comes before its gain."
    )
    return Table("The search", caption, ("Method", "Setting", "Gain", "Share", "Against it"), tuple(rows))


def _paper_table(paper: Mapping[str, Any], results: Mapping[str, OnUsers], repeated: Mapping[str, Any]) -> Table:
    """The paper's values and changes, ours, and those of the published protocol on our rows."""
    rows: list[tuple[Value, ...]] = []
    for name, values in paper["values"].items():
        changes = paper["changes"].get(name, [None] * len(values))
        told = (f"{x:.4g}" + ("" if c is None else f", {c:+g} %") for x, c in zip(values, changes, strict=True))
        own, is_base = results.get(name, results[MAIN]), name not in results
        lines = {
            line.signal: f"{line.baseline:.4g}" if is_base else f"{line.value:.4g}, {_change(line)}"
            for line in own.lines
        }
        rows += [(name, "paper", *told), (name, "ours", *(lines.get(signal, "–") for signal in paper["signals"]))]
        if repeated:
            again = tscac_compat.cells(repeated[name], repeated["Behavior-Clone"])
            rows.append((name, "published protocol, our rows", *again))
    return Table(PAPER, paper["reasons"], ("Method", "Whose", *paper["signals"]), tuple(rows))


def _changes_figure(results: Mapping[str, OnUsers]) -> Shown:
    """One panel for each signal that can be estimated for some method."""

    def dot(line: Line | None) -> drawings.Dot | None:
        if line is None or line.outcome == "not estimable":
            return None
        percents = Mean(line.relative, *line.relative_interval, 0).mapped(lambda x: 100 * x)
        return drawings.Dot(percents, line.outcome in ("better", "worse"))

    shown = {name: own for name, own in results.items() if not name.startswith(f"{TILT} at")}
    signals = dict.fromkeys(signal for own in shown.values() for signal in own.estimable)
    columns = {signal: [dot(own.line(signal)) for own in shown.values()] for signal in signals}
    return Shown(
        "Changes to Behavior-Clone",
        "changes",
        drawings.dots(columns, {name: row for row, name in enumerate(shown)}, "change, %"),
        "Settings that validation users chose, and baselines that know items and no person, with 95 % intervals over "
        "users; filled where significant after Holm. Of a cost, to the left is better.",
        "Forest plots of the relative change of each signal, one row per method.",
    )
