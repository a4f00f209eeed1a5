"""What the comparison shows, as claims, tables and figures. Every verdict is computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from moac.offline.choose import LEAST_SHARE
from moac.offline.evaluation import Line
from moac.report.numbers import Value
from moac.report.page import Claim, Table, Verdict, verdict_of
from moac_studies.comparison import figures, judgements
from moac_studies.comparison.judgements import AtShare, Judgement, Lead
from moac_studies.comparison.measure import Trained
from moac_studies.comparison.training import MAIN, Searched
from moac_studies.studies import Findings

VALIDATION, TEST, EQUAL, RANDOM, SEARCH, PAPER = (
    "Validation users", "Test users, read once", "At equal effective sample size", "Started at random", "The search",
    "The paper's table",
)  # fmt: skip


def findings(
    parameters: Mapping[str, Any],
    found: Searched,
    chosen: Mapping[str, Trained],
    tested: Mapping[str, Judgement] | None,
    real: bool,
) -> Findings:
    """Everything, in reading order."""
    on_validation = {name: found.judged[each.name] for name, each in chosen.items()}
    main, share = parameters["judging"]["signals"], float(parameters["judging"]["share"])
    level = {name: judgements.at_share(found.of(name), share) for name in found.trained}
    claims = [*_aims(on_validation[MAIN], main, VALIDATION.lower(), VALIDATION)]
    claims += [_not_dominated(level, share), _largest(level, share)]
    listed = [
        _table(VALIDATION, "Chosen on these users, so a little too good.", on_validation, chosen),
        _equal(level, share),
        _search(found),
    ]
    if found.from_random:
        listed.append(
            _table(RANDOM, "The same settings from random weights, on validation users.", found.from_random, chosen)
        )
    if tested is not None:
        claims += _aims(tested[MAIN], main, "test users", TEST)
        listed.insert(
            0, _table(TEST, "Settings were chosen on validation users before these were read.", tested, chosen)
        )
    listed += [_paper(parameters["paper"])] if real else []
    shown = (
        figures.curves(found, _estimable(on_validation.values())),
        figures.changes(*_judged(tested, on_validation), "validation" if tested is None else "test"),
        figures.weights(chosen[MAIN], [line.signal for line in on_validation[MAIN].lines]),
    )
    return Findings(tuple(claims), tuple(listed), shown)


def _judged(tested: Any, on_validation: Any) -> tuple[Any, list[str]]:
    shown = on_validation if tested is None else tested
    return shown, _estimable(shown.values())


def _estimable(found: Any) -> list[str]:
    """Signals that can be estimated for some method."""
    judged = list(found)
    return [
        line.signal
        for k, line in enumerate(judged[0].lines)
        if any(each.lines[k].outcome != "not estimable" for each in judged)
    ]


def _aims(own: Judgement, signals: Sequence[str], users: str, evidence: str) -> list[Claim]:
    """What MOAC is to show."""
    lines = {signal: own.line(signal) for signal in signals}
    shown = "; ".join(f"{name} {_change(line)}" for name, line in lines.items())
    worse = [line.signal for line in own.lines if line.outcome == "worse"]
    unknown = [line.signal for line in own.lines if line.outcome == "not estimable"]
    left = f"; not estimable: {', '.join(unknown)}" if unknown else ""
    names = " and ".join(signals)
    return [
        Claim(
            f"On {users} {names} are above Behavior-Clone, intervals above 0",
            shown,
            verdict_of([_is_above(line) for line in lines.values()]),
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
    return _beyond(*line.relative_interval)


def _beyond(low: float, high: float) -> Verdict:
    """Whether a quantity is above 0, by its interval."""
    return "holds" if low > 0 else "does not hold" if high <= 0 else "not decided"


def _not_dominated(level: Mapping[str, AtShare | None], share: float) -> Claim:
    """No other method leads in every signal that can be estimated for both."""
    claim = f"At an effective share of {share:g} no other method is better in every estimable signal"
    ours = level[MAIN]
    if ours is None:
        return Claim(claim, "MOAC's settings do not reach that share", "not measured", EQUAL)
    others = {name: judgements.leads(own, ours) for name, own in level.items() if own is not None and name != MAIN}
    better = {name: _all_above(leads.values()) for name, leads in others.items() if leads}
    over, open_ = ([name for name in better if better[name] == verdict] for verdict in ("holds", "not decided"))
    missing = [name for name in level if name not in better and name != MAIN]
    text = f"better everywhere: {', '.join(over) or 'none'} of {', '.join(better) or 'none'}"
    text += f"; MOAC leads significantly nowhere: {', '.join(open_)}" if open_ else ""
    text += f"; nothing to compare at that share: {', '.join(missing)}" if missing else ""
    return Claim(claim, text, "does not hold" if over else "not decided" if open_ or missing else "holds", EQUAL)


def _all_above(leads: Iterable[Lead]) -> Verdict:
    """Whether all leads are above 0; one that is not refutes it."""
    each: list[Verdict] = [_beyond(lead.low, lead.high) for lead in leads]
    return "does not hold" if "does not hold" in each else verdict_of(each)


def _largest(level: Mapping[str, AtShare | None], share: float) -> Claim:
    """In which signals MOAC leads all other methods, and who leads it elsewhere."""
    claim = f"At an effective share of {share:g} MOAC has the largest gain in every estimable signal"
    ours = level[MAIN]
    others = {name: own for name, own in level.items() if own is not None and name != MAIN}
    if ours is None or not others:
        return Claim(claim, "there is nothing to compare at that share", "not measured", EQUAL)
    ahead = {name: judgements.leads(ours, own) for name, own in others.items()}
    signals = [name for name in ours.estimable if any(name in leads for leads in ahead.values())]
    closest = {name: _closest(ahead, name) for name in signals}
    text = "; ".join(f"{name}: MOAC {_lead(lead)} beside {other}" for name, (other, lead) in closest.items())
    each: list[Verdict] = [_all_above([leads[name] for leads in ahead.values() if name in leads]) for name in signals]
    return Claim(claim, text, verdict_of(each), EQUAL)


def _closest(ahead: Mapping[str, Mapping[str, Lead]], signal: str) -> tuple[str, Lead]:
    """The method over which a signal's lead is the smallest."""
    rows = {name: leads[signal] for name, leads in ahead.items() if signal in leads}
    name = min(rows, key=lambda name: rows[name].value)
    return name, rows[name]


def _lead(lead: Lead) -> str:
    return f"{100 * lead.value:+.1f} points [{100 * lead.low:+.1f}, {100 * lead.high:+.1f}]"


def _table(title: str, caption: str, judged: Mapping[str, Judgement], chosen: Mapping[str, Trained]) -> Table:
    """Rows as in the paper: value, and change to Behavior-Clone with its interval."""
    first = next(iter(judged.values()))
    rows: list[tuple[Value, ...]] = [("Behavior-Clone", "", *(f"{line.baseline:.4g}" for line in first.lines), "1", "")]
    for name, own in judged.items():
        cells = (_cell(line) for line in own.lines)
        rows.append((name, _setting(chosen[name]), *cells, f"{own.share:.2f}", own.verdict))
    header = ("Method", "Setting", *(line.label for line in first.lines), "Share", "Verdict")
    about = (
        "Values are NCIS estimates of the immediate reward per row, if nothing unobserved decided what was shown; "
        "changes with 95 % intervals over users; * is significant after Holm."
    )
    return Table(title, f"{caption} {about}", header, tuple(rows))


def _equal(level: Mapping[str, AtShare | None], share: float) -> Table:
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


def _search(found: Searched) -> Table:
    """All that was tried."""
    rows: list[tuple[Value, ...]] = []
    for method, own in found.trained.items():
        for each in own:
            judged = found.judged[each.name]
            rows.append((method, _setting(each), f"{100 * judged.gain:+.2f} %", f"{judged.share:.2f}",
                         "; ".join(judged.against) or "none"))  # fmt: skip
    caption = (
        "Every setting of every method on validation users; gain: mean over estimable signals of the least change for "
        "the better that the intervals allow."
    )
    return Table(SEARCH, caption, ("Method", "Setting", "Gain", "Share", "Against it"), tuple(rows))


def _paper(table: Mapping[str, Any]) -> Table:
    caption = (
        "Per cent of change to Behavior-Clone as the paper prints it, without intervals. It cannot be compared row by "
        "row: other rows (KuaiRand-27K's first part), a continuous action that is a popularity rank, a state that "
        "holds the action, a behaviour model trained on test rows, and a choice made on them; 7 dislikes and 14 "
        "follows decide two columns."
    )
    rows = tuple((name, *(f"{value:+g}" for value in values)) for name, values in table["changes"].items())
    return Table(PAPER, caption, ("Method", *table["signals"]), rows)


def _setting(own: Trained) -> str:
    return ", ".join(f"{key} {value:g}" for key, value in own.setting.items())


def _cell(line: Line) -> str:
    return f"{line.value:.4g}, {_change(line)}{'*' if line.outcome in ('better', 'worse') else ''}"


def _change(line: Line | None) -> str:
    if line is None or line.outcome == "not estimable":
        return "not estimable"
    low, high = (100 * end for end in line.relative_interval)
    return f"{100 * line.relative:+.1f} % [{low:+.1f}, {high:+.1f}]"
