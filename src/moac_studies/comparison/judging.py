"""What the comparison shows, as claims, tables and figures. Every verdict is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from moac.offline.evaluation import Line
from moac.report.numbers import Value
from moac.report.page import Claim, Table, verdict_of
from moac_studies.comparison import figures, judgements
from moac_studies.comparison.judgements import Judgement
from moac_studies.comparison.measure import Trained
from moac_studies.comparison.training import MAIN, Searched
from moac_studies.studies import Findings

LEAST_SHARE = 0.5
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
    above = [line is not None and line.relative_interval[0] > 0 for line in lines.values()]
    shown = "; ".join(f"{name} {_change(line)}" for name, line in lines.items())
    worse = [line.signal for line in own.lines if line.outcome == "worse"]
    unknown = [line.signal for line in own.lines if line.outcome == "not estimable"]
    left = f"; not estimable: {', '.join(unknown)}" if unknown else ""
    names = " and ".join(signals)
    return [
        Claim(f"On {users} {names} are above Behavior-Clone, intervals above 0", shown, verdict_of(above), evidence),
        Claim(
            f"On {users} no signal is significantly worse",
            f"worse: {', '.join(worse) or 'none'}{left}",
            "does not hold" if worse else "holds in part" if unknown else "holds",
            evidence,
        ),
        Claim(
            f"On {users} the effective share of rows is at least one half",
            f"{own.share:.2f}, of the worst seed; verdict {own.verdict}",
            verdict_of([own.share >= LEAST_SHARE]),
            evidence,
        ),
    ]


def _not_dominated(level: Mapping[str, dict[str, Line] | None], share: float) -> Claim:
    """No other method is at least as good in every signal that can be estimated, at equal effective share."""
    claim = f"At an effective share of {share:g} no other method is better in every estimable signal"
    ours = level[MAIN]
    if ours is None:
        return Claim(claim, "MOAC's settings do not reach that share", "not measured", EQUAL)
    others = {name: own for name, own in level.items() if own is not None and name != MAIN}
    over = [name for name, own in others.items() if _dominates(own, ours)]
    missing = [name for name in level if level[name] is None]
    text = f"better everywhere: {', '.join(over) or 'none'} of {', '.join(others) or 'none'}"
    text += f"; without settings on either side of that share: {', '.join(missing)}" if missing else ""
    return Claim(claim, text, "does not hold" if over else "holds in part" if missing else "holds", EQUAL)


def _largest(level: Mapping[str, dict[str, Line] | None], share: float) -> Claim:
    """In which signals MOAC has the largest gain of all methods, and who has it elsewhere."""
    claim = f"At an effective share of {share:g} MOAC has the largest gain in every estimable signal"
    known = {name: own for name, own in level.items() if own is not None}
    if MAIN not in known or len(known) == 1:
        return Claim(claim, "there is nothing to compare at that share", "not measured", EQUAL)
    parts: list[str] = []
    held: list[bool] = []
    for signal, ours in known[MAIN].items():
        rows = {name: own[signal] for name, own in known.items() if own[signal].outcome != "not estimable"}
        if MAIN not in rows or len(rows) == 1:
            continue
        best = max(rows, key=lambda name, rows=rows: _gain(rows[name]))
        held.append(best == MAIN)
        beside = "" if best == MAIN else f", MOAC {_change(ours)}"
        parts.append(f"{signal}: {best} {_change(rows[best])}{beside}")
    return Claim(claim, "; ".join(parts), verdict_of(held) if held else "not measured", EQUAL)


def _gain(line: Line) -> float:
    return -line.relative if line.cost else line.relative


def _dominates(other: dict[str, Line], ours: dict[str, Line]) -> bool:
    shared = [name for name, line in ours.items() if "not estimable" not in (line.outcome, other[name].outcome)]
    gains = [_gain(other[name]) - _gain(ours[name]) for name in shared]
    return bool(gains) and all(gain > 0 for gain in gains)


def _table(title: str, caption: str, judged: Mapping[str, Judgement], chosen: Mapping[str, Trained]) -> Table:
    """Rows as in the paper: value, and change to Behavior-Clone with its interval."""
    first = next(iter(judged.values()))
    rows: list[tuple[Value, ...]] = [("Behavior-Clone", "", *(f"{line.baseline:.4g}" for line in first.lines), "1", "")]
    for name, own in judged.items():
        cells = (_cell(line) for line in own.lines)
        rows.append((name, _setting(chosen[name]), *cells, f"{own.share:.2f}", own.verdict))
    header = ("Method", "Setting", *(line.label for line in first.lines), "Share", "Verdict")
    about = "Values are means per row, changes with 95 % intervals over users; * is significant after Holm."
    return Table(title, f"{caption} {about}", header, tuple(rows))


def _equal(level: Mapping[str, dict[str, Line] | None], share: float) -> Table:
    """All methods where the same share of the log speaks for them."""
    known = {name: own for name, own in level.items() if own is not None}
    signals = [line.label for line in next(iter(known.values())).values()] if known else []
    rows = tuple((name, *(_change(line) for line in own.values())) for name, own in known.items())
    caption = (
        f"Changes on validation users at an effective share of {share:g}, between the two settings on either side of "
        "it (changes and ends of intervals in proportion). A method without settings on both sides is left out."
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
