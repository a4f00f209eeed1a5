"""The page of an evaluation on a log: what came out, how far to trust it, and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from moac.choices import counted
from moac.offline.access_log import AccessLog
from moac.offline.evaluation import OfflineEvaluation
from moac.offline.ncis.limits import MIN_POSITIVES
from moac.report import figures, log_figures
from moac.report.numbers import UNKNOWN, change, number
from moac.report.page import Figure, Named, Page, Table
from moac.report.pages import checks

_EFFECTS = {
    "better": "significantly better on",
    "worse": "significantly worse on",
    "no difference": "no significant difference on",
    "not estimable": "not estimable:",
}
_TRUST = {"with care": "to be read with care", "not trusted": "not to be trusted"}


def of_evaluation(evaluation: OfflineEvaluation) -> Page:
    """The page of an evaluation."""
    accesses = () if evaluation.accesses is None else (_accesses(evaluation.accesses),)
    tables = (
        checks.opinions(evaluation),
        checks.diagnostics(evaluation),
        *_behaviour(evaluation),
        _caveats(evaluation),
        *accesses,
    )
    return Page(
        title=f"{' and '.join(evaluation.methods)} on {evaluation.data}: {evaluation.split} users",
        summary=_summary(evaluation),
        facts=_facts(evaluation),
        notice=_notice(evaluation),
        results=(*_changes(evaluation), *_carried(evaluation), *checks.tables(evaluation)),
        figures=_figures(evaluation),
        tables=tables,
        details=_details(evaluation),
        command=f"moac evaluate RUN --split {evaluation.split}",
    )


def _summary(evaluation: OfflineEvaluation) -> str:
    rows, users = counted(number(evaluation.rows), "row"), counted(number(evaluation.users), f"{evaluation.split} user")
    where = f"{rows} of {users}"
    to = evaluation.report.baseline
    parts = [f"Estimated by normalised capped importance sampling on {where}, compared with {to}."]
    parts += [_outcome(evaluation, name) for name in evaluation.methods]
    if evaluation.left_out:
        parts.append(f"Never observed there, so not estimated: {_listed(evaluation.left_out)}.")
    parts += [unknown(evaluation)] if evaluation.unknown is not None else []
    return " ".join(parts)


def _outcome(evaluation: OfflineEvaluation, name: str) -> str:
    by_effect: dict[str, list[str]] = {}
    for line in evaluation.lines(name):
        significant = line.outcome in ("better", "worse")
        detail = f" ({change(line.relative, line.relative_interval)})" if significant else ""
        by_effect.setdefault(line.outcome, []).append(line.signal + detail)
    parts = [f"{words} {_listed(by_effect[key])}" for key, words in _EFFECTS.items() if key in by_effect]
    return f"{name}: {'; '.join(parts)}. Trust: {evaluation.report.policies[name].verdict.level}."


def _notice(evaluation: OfflineEvaluation) -> str | None:
    parts = list[str]()
    for name in evaluation.methods:
        verdict = evaluation.report.policies[name].verdict
        if verdict.level != "trusted":
            more = len(verdict.reasons) - 1
            rest = f"; {more} more below" if more else ""
            parts.append(f"{name} is {_TRUST[verdict.level]}: {verdict.reasons[0].text}{rest}.")
    parts += [f"{warning}." for warning in evaluation.report.warnings]
    if evaluation.accesses is not None and len(evaluation.accesses.entries) > 1:
        spoiled = "choices made after the first access make these numbers optimistic"
        parts.append(f"{str(evaluation.accesses).capitalize()}: {spoiled}.")
    return " ".join(parts) or None


def _facts(evaluation: OfflineEvaluation) -> Named:
    trust = {name: evaluation.report.policies[name].verdict.level for name in evaluation.methods}
    accesses = evaluation.accesses
    noted: Named = () if accesses is None else (("Accesses to test users", len(accesses.entries)),)
    return (
        ("Trust", _each(trust, str)),
        ("Effective share of rows", _each(_effective_shares(evaluation), checks.percent)),
        ("Rows", evaluation.rows),
        ("Users", f"{number(evaluation.users)} ({evaluation.split})"),
        ("Policies", _each(evaluation.seeds, lambda count: counted(count, "seed"))),
        ("Cap", evaluation.report.options.cap),
        *noted,
        ("Data", f"{evaluation.data}, {evaluation.num_actions} actions"),
        ("Date", evaluation.date[:10]),
    )


def _figures(evaluation: OfflineEvaluation) -> tuple[Figure, ...]:
    base, level = evaluation.report.baseline, f"{100 * evaluation.report.options.level:g} %"
    all_changes = "; ".join(
        f"{name} {line.signal} {change(line.relative, line.relative_interval)}, {line.outcome}"
        for name in evaluation.methods
        for line in evaluation.lines(name)
    )
    shares = _each(_effective_shares(evaluation), checks.percent)
    return (
        Figure(
            "Change of each signal",
            figures.svg(log_figures.forest(evaluation)),
            f"Estimates with {level} intervals over users, paired with {base}. Filled: significant after Holm’s "
            "adjustment over the signals. Grey: too few weighted positives; such a bar may leave the figure.",
            f"Forest plot: {all_changes}.",
        ),
        Figure(
            "Cap sweep",
            figures.svg(log_figures.sweep(evaluation)),
            f"The change to {base} under each cap, with {level} bands over users; the dotted line is the cap in use, "
            "∞ is SNIPS. A curve that changes with the cap depends on few rows of large weight.",
            f"One panel for each of {_listed(evaluation.report.signal_names)}: change against the cap.",
        ),
        *_balance(evaluation),
        Figure(
            "Weights",
            figures.svg(log_figures.weights(evaluation)),
            "How often the policy takes the logged action relative to the log; 1 means equally often.",
            f"Histogram of weights; effective shares: {shares}.",
        ),
    )


def _balance(evaluation: OfflineEvaluation) -> tuple[Figure, ...]:
    policies = {name: evaluation.report.policies[name].checks for name in evaluation.methods}
    known = {name: own.balance for name, own in policies.items() if own is not None and own.balance is not None}
    if not known:
        return ()
    worst = "; ".join(f"{name} {own.names[0]} {own.difference[0]:+.3f}" for name, own in known.items() if own.names)
    figure = log_figures.balance(known)
    caption = (
        "Weighted minus unweighted means in standard deviations; beyond the dotted lines the verdict is “with care”."
    )
    return (Figure("Balance of the worst ten covariates", figures.svg(figure), caption, f"Dot plot; worst: {worst}."),)


def changes(evaluation: OfflineEvaluation, method: str) -> Table:
    """Values, changes to Behavior-Clone, their significance and whether they can be trusted."""
    policy = evaluation.report.policies[method]
    rows = [
        (
            line.label,
            number(line.baseline, 3),
            number(line.value, 3),
            change(line.relative, line.relative_interval),
            line.outcome.replace("no difference", "not significant"),
            UNKNOWN if policy.checks is None else checks.gamma(float(policy.checks.sensitivity.interval[k])),
            policy.verdict.of(line.signal),
        )
        for k, line in enumerate(evaluation.lines(method))
    ]
    rows += [(name, *[UNKNOWN] * 3, "never occurs", UNKNOWN, UNKNOWN) for name in evaluation.left_out]
    base, level = str(evaluation.report.baseline), f"{100 * evaluation.report.options.level:g} %"
    header = ("Signal", base, method, "Change", "Effect", "Γ", "Verdict")
    caption = (
        f"Means per row; {level} intervals over users. Better and worse are significant after Holm’s adjustment over "
        f"the signals. Not estimable: fewer than {MIN_POSITIVES} weighted positives. Γ: an unobserved factor "
        "that multiplies or divides the odds of exposure by this would explain the change. "
        f"{checks.explained(evaluation, method)}"
    )
    return Table(f"{method} compared with {base}", caption, header, tuple(rows))


def _changes(evaluation: OfflineEvaluation) -> tuple[Table, ...]:
    return tuple(changes(evaluation, name) for name in evaluation.methods)


def _carried(evaluation: OfflineEvaluation) -> tuple[Table, ...]:
    """On another log: the same changes by the behaviour model that the run brought along."""
    if evaluation.carried is None:
        return ()
    added = "with the run’s behaviour model"
    return tuple(replace(table, title=f"{table.title}, {added}") for table in _changes(evaluation.carried))


def unknown(evaluation: OfflineEvaluation) -> str:
    """What the run does not know of another log, in words; empty on the log it was trained on."""
    if evaluation.unknown is None:
        return ""
    counts = evaluation.unknown
    users, items, rows = (
        counted(number(counts[name]), noun) for name, noun in (("users", "user"), ("items", "item"), ("views", "row"))
    )
    told = f"{users} and {items} of {evaluation.data} ({rows})"
    return f"Evaluated on another log than the run’s: it does not know {told}."


def _behaviour(evaluation: OfflineEvaluation) -> tuple[Table, ...]:
    """How well the behaviour model predicts the log's actions; nothing where the log has propensities."""
    calibration = evaluation.calibration
    if calibration is None:
        return ()
    losses = {
        "Behaviour model": calibration.log_loss,
        "Popularity within the first and last column of the context": calibration.popularity_by_context,
        "Popularity": calibration.popularity,
        "Uniform": calibration.uniform,
    }
    rows = tuple((name, loss, float(np.exp(loss))) for name, loss in losses.items())
    caption = (
        f"Mean of −log b(a|s) in nats on {evaluation.split} users, and its exponential. Calibration error "
        f"{number(calibration.calibration_error, 2)}, temperature {number(calibration.temperature, 3)}, smallest "
        f"propensity {number(calibration.smallest_propensity, 2)}."
    )
    return (Table("Behaviour model", caption, ("How actions are predicted", "Log-loss", "Perplexity"), rows),)


def _caveats(evaluation: OfflineEvaluation) -> Table:
    """What the numbers do not say."""
    model = "Estimated by a model: intervals include its estimation error, but not what it cannot observe."
    caveats = {
        "What is estimated": "The average immediate reward in the states of the log, not a long-term return.",
        "Cap": "Intervals are those of the capped estimate: cut-off weight is assumed to have the same mean reward.",
        "Propensities": "The log has its propensities." if evaluation.calibration is None else model,
        "Effect": "Causal only if nothing unobserved decided what was shown: controls can refute that, not prove it.",
        "Unseen actions": "Actions that the log never shows cannot be estimated: the mean weight is then below 1.",
        "Training seeds": "Intervals are for these trained policies; other training seeds may differ by more.",
        "Which users": "Numbers used to choose a policy are optimistic: test users are for one evaluation at the end.",
    }
    return Table("Limits of the estimate", "More: moac docs offline.", ("About", "Caveat"), tuple(caveats.items()))


def _accesses(accesses: AccessLog) -> Table:
    """Every evaluation on test users."""
    rows = tuple(
        (*(str(one.get(key, UNKNOWN)) for key in ("time", "run")), _policies(one), str(one.get("data", UNKNOWN)))
        for one in accesses.entries
    )
    beside = "" if accesses.missing is None else f" Not recorded beside the data: {accesses.missing}."
    caption = f"{str(accesses).capitalize()}. Each is recorded before its numbers are computed.{beside}"
    return Table("Access log of test users", caption, ("Time (UTC)", "Run", "Policies", "Data"), rows)


def _policies(entry: Mapping[str, Any]) -> str:
    digests = entry.get("policies")
    return ", ".join(f"{name} {own}" for name, own in digests.items()) if isinstance(digests, dict) else UNKNOWN


def _details(evaluation: OfflineEvaluation) -> Named:
    named: dict[str, Any] = {
        **vars(evaluation.report.options),
        "caps": ", ".join(f"{cap:g}" for cap in evaluation.report.sweep.caps),
        "data fingerprint": evaluation.fingerprint,
        **{f"policies of {name}": digest for name, digest in evaluation.policies.items()},
        "split seed": evaluation.how_split["seed"],
        "date": evaluation.date,
    }
    return tuple((name.replace("_", " "), None if value is None else str(value)) for name, value in named.items())


def _effective_shares(evaluation: OfflineEvaluation) -> dict[str, float]:
    """Of the rows, of each method's worst seed."""
    policies = evaluation.report.policies
    return {name: min(one.row_effective_share for one in policies[name].diagnostics) for name in evaluation.methods}


def _each(by_method: Mapping[str, Any], show: Callable[[Any], str]) -> str:
    if len(by_method) == 1:
        return show(next(iter(by_method.values())))
    return ", ".join(f"{name}: {show(value)}" for name, value in by_method.items())


def _listed(names: Any) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
