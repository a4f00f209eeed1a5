"""Tables of the checks of an estimate on a log: controls, balance, sensitivity, tails, another behaviour model."""

from __future__ import annotations

import math
from collections.abc import Iterator

from moac.offline.evaluation import OfflineEvaluation
from moac.offline.ncis import Checks, Estimate
from moac.offline.ncis.limits import PARETO_K
from moac.offline.ncis.sensitivity import LARGEST
from moac.offline.ncis.trust import power
from moac.report.numbers import UNKNOWN, change, number, with_interval
from moac.report.page import Table

_SIZES = {"Effective number of rows": "row_effective_size", "Effective number of users": "user_effective_size"}
_SHARES = {
    "Effective share of rows": "row_effective_share",
    "Effective share of users": "user_effective_share",
    "Heaviest row’s share of the weight": "largest_row_share",
    "Heaviest user’s share of the weight": "largest_user_share",
    "Rows above the cap": "capped_share",
    "Weight retained under the cap": "retained_mass",
}


def tables(evaluation: OfflineEvaluation) -> tuple[Table, ...]:
    """All of them; those that would be empty are left out."""
    every = (reasons(evaluation), _controls(evaluation), _exposure(evaluation), _balance(evaluation))
    every += (_tails(evaluation), _recipes(evaluation))
    return tuple(table for table in every if table.rows)


def _checked(evaluation: OfflineEvaluation) -> Iterator[tuple[str, Checks]]:
    for name in evaluation.methods:
        checks = evaluation.report.policies[name].checks
        if checks is not None:
            yield name, checks


def gamma(value: float) -> str:
    """Γ as it is shown."""
    return f"≥ {LARGEST:g}" if value >= LARGEST else number(value, 3)


def explained(evaluation: OfflineEvaluation, method: str) -> str:
    """How strong something unobserved must be to explain the weakest of the effects, in words; empty without one."""
    checks, lines = evaluation.report.policies[method].checks, evaluation.lines(method)
    shown = [k for k, line in enumerate(lines) if line.outcome in ("better", "worse")]
    if checks is None or not shown:
        return ""
    k = min(shown, key=lambda k: checks.sensitivity.interval[k])
    shift = number(100 * (checks.sensitivity.interval[k] - 1), 2)
    text = f"An unobserved factor that shifts the odds of exposure by {shift} % would explain {lines[k].signal}"
    if checks.sensitivity.strongest is None:
        return f"{text}."
    name, factor = checks.sensitivity.strongest
    known = f"shifts them by up to {number(100 * (factor - 1), 2)} % in nine of ten rows"
    return f"{text}; for comparison, {name}, which the behaviour model knows, {known}."


def reasons(evaluation: OfflineEvaluation) -> Table:
    """The verdict on each policy, and why."""
    rows: list[tuple[str, str, str]] = []
    for name in (*evaluation.methods, str(evaluation.report.baseline)):
        own = evaluation.report.policies[name].verdict.reasons
        rows += [(name, reason.level, f"{reason.text[:1].upper()}{reason.text[1:]}.") for reason in own]
        rows += [] if own else [(name, "trusted", "All limits are met.")]
    caption = "The most serious reason decides. The limits are conventions, listed by moac docs trust."
    return Table("Verdict and reasons", caption, ("Policy", "Verdict", "Reason"), tuple(rows))


def control_rows(evaluation: OfflineEvaluation, method: str) -> list[tuple[str, str, str, str]]:
    """Control, signal, its change, and whether it has power."""
    checks, rows = evaluation.report.policies[method].checks, list[tuple[str, str, str, str]]()
    if checks is None:
        return rows
    for one in checks.controls:
        why = power(one, evaluation.report.signal_names, checks.half_width)
        told = "weak control: may depend on what was shown" if one.soft else "has power"
        for j, column in enumerate(one.columns):
            moved, (low, high) = float(one.change[j]), (float(end) for end in one.interval[j])
            deviations = f"{with_interval(moved, (low, high), sign=True)} sd"
            shown = change(moved, (low, high)) if one.relative else deviations
            name = one.name if one.relative else "named column"
            constant = math.isnan(moved)
            lacking = why or ("it does not vary" if constant else None)
            power_of = told if lacking is None else f"no power: {lacking}"
            rows.append((name, column, UNKNOWN if constant else shown, power_of))
    return rows


def _controls(evaluation: OfflineEvaluation) -> Table:
    several = len(evaluation.methods) > 1
    rows = [
        ((f"{name}: {row[0]}" if several else row[0]), *row[1:])
        for name, _ in _checked(evaluation)
        for row in control_rows(evaluation, name)
    ]
    caption = (
        "A policy cannot change these, so every change must be due to chance. If an interval excludes 0, something "
        "that the behaviour model b does not know decided who was shown what: the effect above has a bias of this size."
    )
    few = next((own for _, own in _checked(evaluation) if own.rows < evaluation.rows), None)
    caption += f" Checks use {few.rows:,} rows, those of the first {few.users:,} users." if few is not None else ""
    header = ("Control", "Column", "Change (must be 0)", "Power")
    return Table("Negative controls", caption, header, tuple(rows))


def _exposure(evaluation: OfflineEvaluation) -> Table:
    """Changes where chance alone decided what was shown, beside those of the same users' standard rows."""
    rows, levels = [], list[str]()
    for name in evaluation.methods:
        exposure = evaluation.report.policies[name].random_exposure
        for signal in evaluation.report.signal_names:
            found = None if exposure is None else exposure.of(signal)
            if found is not None:
                three = (change(found[key][0], tuple(found[key][1:])) for key in ("change", "standard", "difference"))
                rows.append((f"{name}: {signal}", *three, found["events"]))
                levels.append(f"{signal} {number(found['level'], 3)} and {number(found['standard_level'], 3)}")
    caption = (
        "All rows of random exposure, which no policy was trained on. The difference is 0 on average if nothing "
        "unobserved decided what the log showed. Levels of Behavior-Clone on random exposure and on the same users' "
        f"standard rows, which differ for other reasons too: {', '.join(dict.fromkeys(levels))}."
    )
    header = ("Policy and signal", "Random exposure", "Same users, standard rows", "Difference", "Random positives")
    return Table("Random exposure", caption, header, tuple(rows))


def _balance(evaluation: OfflineEvaluation) -> Table:
    rows = list[tuple[str, ...]]()
    for name, checks in _checked(evaluation):
        if checks.balance is not None:
            numbers = zip(checks.balance.names, checks.balance.difference, checks.balance.interval, strict=True)
            for covariate, difference, (low, high) in numbers:
                rows.append((name, covariate, with_interval(float(difference), (float(low), float(high)), sign=True)))
    caption = (
        "Weighted minus unweighted mean of what was known when items were shown, in standard deviations; the worst "
        "ten, with intervals over users that are adjusted for the number of covariates."
    )
    return Table("Balance", caption, ("Policy", "Covariate", "Difference"), tuple(rows))


def _tails(evaluation: OfflineEvaluation) -> Table:
    rows = list[tuple[str, ...]]()
    for name, checks in _checked(evaluation):
        tails = checks.tails
        for k, signal in enumerate(evaluation.report.signal_names):
            low, high = (float(end) for end in tails.capped_interval[k])
            heavy = tails.pareto_k[k] >= PARETO_K.care
            capped = f"{change(float(tails.capped_change[k]), (low, high))} at {number(float(tails.capped_at[k]), 3)}"
            shares = (f"{100 * float(share[k]):.0f} %" for share in (tails.heaviest_rows, tails.heaviest_users))
            k_hat = number(float(tails.pareto_k[k]), 2)
            rows.append((f"{name}: {signal}", k_hat, *shares, capped if heavy else UNKNOWN))
    caption = (
        "Pareto k of the weighted signal per user: from ½ on its variance is infinite and intervals are too short. "
        "Heaviest: share of the heaviest 1 % in the estimate. Heavy tails: also estimated with large values cut off."
    )
    header = ("Policy and signal", "Pareto k", "Heaviest rows", "Heaviest users", "Change, cut off")
    return Table("Tails", caption, header, tuple(rows))


def _recipes(evaluation: OfflineEvaluation) -> Table:
    """The changes by b with and without past responses."""
    rows, other = list[tuple[str, ...]](), evaluation.without_responses
    changes = {} if other is None else {name: other.policies[name].change for name in evaluation.methods}
    for name, without in ((name, own) for name, own in changes.items() if own is not None):
        for k, line in enumerate(evaluation.lines(name)):
            low, high = (float(end) for end in without.relative_interval[k])
            shown = change(float(without.relative[k]), (low, high))
            rows.append((f"{name}: {line.signal}", change(line.relative, line.relative_interval), shown))
    caption = "The part of a change that past responses explain is no effect of the policy; the rest may be one."
    header = ("Policy and signal", "b with past responses", "b without")
    return Table("Two behaviour models", caption, header, tuple(rows))


def opinions(evaluation: OfflineEvaluation) -> Table:
    """Estimates side by side: those that there are."""
    robust = evaluation.reward_model is not None
    header = ("Policy and signal", "NCIS", "SNIPS", *(["Doubly robust"] * robust))
    rows = list[tuple[str, ...]]()
    for name, policy in evaluation.report.policies.items():
        estimates = [policy.ncis, policy.snips, *([policy.doubly_robust] * robust)]
        for k, signal in enumerate(evaluation.report.signal_names):
            sign = -1.0 if signal in evaluation.costs else 1.0
            rows.append((f"{name}: {signal}", *(_estimate(one, k, sign) for one in estimates)))
    caption = "With intervals over users. NCIS uses the cap, SNIPS none."
    if evaluation.reward_model is not None:
        share, signal = max((fit["explained"], name) for name, fit in evaluation.reward_model.items())
        caption += f" The linear model of doubly robust explains at most {percent(share)} of a signal ({signal})."
    return Table("Other estimators", caption, header, tuple(rows))


def diagnostics(evaluation: OfflineEvaluation) -> Table:
    """What the weights leave of the log; of each policy the seed with the smallest effective number of rows."""
    worst_seeds = {
        name: min(policy.diagnostics, key=lambda one: one.row_effective_size)
        for name, policy in evaluation.report.policies.items()
    }
    seeds = [*worst_seeds.values()]
    rows = [(text, *(number(round(getattr(one, name))) for one in seeds)) for text, name in _SIZES.items()]
    rows += [(text, *(percent(getattr(one, name)) for one in seeds)) for text, name in _SHARES.items()]
    means = (with_interval(one.mean_weight, tuple(one.mean_weight_interval)) for one in seeds)
    rows.append(("Mean uncapped weight (should be 1)", *means))
    for k, signal in enumerate(evaluation.report.signal_names):
        counts = (f"{number(float(one.positives[k]), 3)} of {int(one.events[k])}" for one in seeds)
        rows.append((f"Weighted positives of {signal}", *counts))
    caption = "Of each method the seed with the smallest effective number of rows."
    return Table("Effective sample size", caption, ("Measure", *worst_seeds), tuple(rows))


def percent(share: float) -> str:
    """A share with two digits."""
    return f"{number(100 * share, 2) if share < 0.995 else number(100 * share, 3)} %"


def _estimate(estimate: Estimate | None, k: int, sign: float) -> str:
    if estimate is None:
        return UNKNOWN
    low, high = sorted(sign * estimate.interval[k].astype(float))
    return with_interval(float(sign * estimate.value[k]), (low, high))
