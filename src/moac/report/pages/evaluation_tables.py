"""Tables of the page of an evaluation on a log."""

from __future__ import annotations

from typing import Any

import numpy as np

from moac.offline.access_log import AccessLog
from moac.offline.evaluation import OfflineEvaluation
from moac.offline.ncis import Diagnostics, Estimate
from moac.offline.ncis.trust import MIN_POSITIVES
from moac.report.evaluations import between, signed
from moac.report.numbers import UNKNOWN, number, with_interval
from moac.report.page import Table

_MEASURES: tuple[tuple[str, Any], ...] = (
    ("Effective number of rows", lambda d: number(round(d.row_effective_size))),
    ("Effective share of rows", lambda d: percent(d.row_effective_share)),
    ("Effective number of users", lambda d: number(round(d.user_effective_size))),
    ("Effective share of users", lambda d: percent(d.user_effective_share)),
    ("Heaviest row, of all weight", lambda d: percent(d.largest_row_share)),
    ("Heaviest user, of all weight", lambda d: percent(d.largest_user_share)),
    ("Rows that the cap touches", lambda d: percent(d.capped_share)),
    ("Weight retained under the cap", lambda d: percent(d.retained_mass)),
    ("Mean uncapped weight (1 if all is right)", lambda d: _mean_weight(d)),
)


def changes(judged: OfflineEvaluation, method: str) -> Table:
    """Values, and changes to Behavior-Clone."""
    rows = [
        (
            line.label,
            number(line.baseline, 3),
            number(line.value, 3),
            f"{signed(line.relative)} {between(line.relative_interval)}".strip(),
            with_interval(line.difference, line.difference_interval, sign=True),
            UNKNOWN if line.outcome == "not estimable" else number(line.p, 2),
            line.outcome,
        )
        for line in judged.lines(method)
    ]
    rows += [(name, *[UNKNOWN] * 5, "never fires") for name in judged.left_out]
    base, level = str(judged.report.baseline), f"{100 * judged.report.options.level:g} %"
    header = ("Signal", base, method, "Change, relative", "Change, absolute", "p (Holm)", "Outcome")
    seeds = "1 training seed" if judged.seeds[method] == 1 else f"{judged.seeds[method]} training seeds"
    caption = (
        f"Means per row, {seeds}. Intervals are {level}, over users. Better and worse are significant after Holm’s "
        f"adjustment over the signals. Not estimable: fewer than {MIN_POSITIVES} weighted positives."
    )
    return Table(f"{method} beside {base}", caption, header, tuple(rows))


def reasons(judged: OfflineEvaluation) -> Table:
    """The verdict on each policy, and why."""
    rows: list[tuple[str, str, str]] = []
    for name in (*judged.methods, str(judged.report.baseline)):
        own = judged.report.policies[name]
        rows += [(name, reason.level, _sentence(reason.text)) for reason in own.verdict.reasons]
        rows += [] if own.verdict.reasons else [(name, "trusted", "No limit is passed.")]
    caption = "A policy is judged by its gravest reason. Limits are conventions: docs/offline.md lists them."
    return Table("Trust and its reasons", caption, ("Policy", "Verdict", "Reason"), tuple(rows))


def opinions(judged: OfflineEvaluation) -> Table:
    """Estimates side by side: those that there are."""
    robust, random = judged.reward_model is not None, judged.random_rows > 0
    header = ("Policy and signal", "NCIS", "SNIPS", *(["Doubly robust"] * robust), *(["Random exposure"] * random))
    rows = []
    for name, own in judged.report.policies.items():
        found = [own.ncis, own.snips, *([own.doubly_robust] * robust)]
        found += [own.agreement and own.agreement.estimate] * random
        for k, signal in enumerate(judged.report.signal_names):
            sign = -1.0 if signal in judged.costs else 1.0
            rows.append((f"{name}: {signal}", *(_estimate(one, k, sign) for one in found)))
    return Table("Second opinions", _about_opinions(judged), header, tuple(rows))


def _about_opinions(judged: OfflineEvaluation) -> str:
    parts = ["With intervals over users. NCIS has the cap in use, SNIPS none."]
    if judged.reward_model is not None:
        share, signal = max((own["explained"], name) for name, own in judged.reward_model.items())
        parts.append(
            "Doubly robust adds a linear model of rewards, fitted on train users, which explains at most "
            f"{percent(share)} of a signal’s variance ({signal})."
        )
    if judged.random_rows:
        parts.append(f"Random exposure: {number(judged.random_rows)} rows whose propensities are known, without a cap.")
    return " ".join(parts)


def diagnostics(judged: OfflineEvaluation) -> Table:
    """What the weights leave of the log; of each policy the seed with the smallest effective number of rows."""
    found = {
        name: min(own.diagnostics, key=lambda one: one.row_effective_size)
        for name, own in judged.report.policies.items()
    }
    rows: list[tuple[str, ...]] = [(text, *(show(one) for one in found.values())) for text, show in _MEASURES]
    for k, signal in enumerate(judged.report.signal_names):
        counts = (f"{_count(one.positives[k])} of {number(int(one.events[k]))}" for one in found.values())
        rows.append((f"Weighted positives of {signal}", *counts))
    caption = (
        "Of each method the seed with the smallest effective number of rows. Positives: weighted, of rows on which the "
        "signal fires."
    )
    return Table("How much of the log stands behind it", caption, ("Measure", *found), tuple(rows))


def behaviour(judged: OfflineEvaluation) -> tuple[Table, ...]:
    """How well the behaviour model knows how the log chose; nothing where the log says it."""
    found = judged.calibration
    if found is None:
        return ()
    losses = (
        ("Behaviour model", found.log_loss),
        ("Popularity within the first and last column of the context", found.popularity_by_context),
        ("Popularity", found.popularity),
        ("Uniform", found.uniform),
    )
    rows = tuple((name, loss, float(np.exp(loss))) for name, loss in losses)
    caption = (
        f"Mean of −log b(a|s) in nats on {judged.split} users, and its exponential: among so many equally likely "
        f"actions it is as unsure. Calibration error {number(found.calibration_error, 2)}, temperature "
        f"{number(found.temperature, 3)}, smallest propensity {number(found.smallest_propensity, 2)}. All weights rest "
        "on this model; its own error is in no interval."
    )
    return (Table("Behaviour model", caption, ("How actions are predicted", "Log-loss", "Perplexity"), rows),)


def caveats(judged: OfflineEvaluation) -> Table:
    """What no number on the page says."""
    propensities = (
        "The log says how it chose."
        if judged.calibration is None
        else "How the log chose is a model’s estimate; its error is in no interval. A mean weight off 1 is a sign; "
        "if something that the model does not know decided what was shown, no number here is one."
    )
    chosen = (
        "Choices may be made by these numbers, which then say too much of what was chosen: test users are for the end."
        if judged.split != "test"
        else "Test users are for one look: each choice made by their numbers makes these look better than they are."
    )
    rows = (
        ("What is estimated", "The average immediate reward in the states that the log visited: no long-term return."),
        (
            "Cap",
            "An interval is of the capped estimate, not of the truth: what is cut off is taken to be worth as much.",
        ),
        ("Propensities", propensities),
        ("Unseen actions", "What the log never shows cannot be judged; it shows as a mean weight below 1."),
        ("Training seeds", "Intervals are of these very policies; other seeds may differ by more."),
        ("Which users", chosen),
    )
    return Table("To bear in mind", "In plain words; docs/offline.md has the whole story.", ("About", "Caveat"), rows)


def looks(accesses: AccessLog) -> Table:
    """Every look at test users."""
    rows = tuple(
        (
            str(one.get("time", "not known")),
            str(one.get("run", UNKNOWN)),
            _policies(one.get("policies")),
            str(one.get("data", UNKNOWN)),
        )
        for one in accesses.entries
    )
    beside = "" if accesses.missing is None else f" Not noted beside the data: {accesses.missing}."
    caption = (
        f"{str(accesses).capitalize()}. Each look is noted before its numbers are computed, and never removed.{beside}"
    )
    return Table("Access log of test users", caption, ("Time (UTC)", "Run", "Policies", "Data"), rows)


def percent(share: float) -> str:
    """A share with two digits."""
    return f"{number(100 * share, 2) if share < 0.995 else number(100 * share, 3)} %"


def _estimate(found: Estimate | None, k: int, sign: float) -> str:
    if found is None:
        return UNKNOWN
    low, high = sorted(sign * found.interval[k].astype(float))
    return with_interval(float(sign * found.value[k]), (low, high))


def _mean_weight(one: Diagnostics) -> str:
    low, high = one.mean_weight_interval
    return with_interval(one.mean_weight, (float(low), float(high)))


def _count(positives: float) -> str:
    return f"{positives:.1f}" if positives < 100 else number(round(positives))


def _policies(found: Any) -> str:
    if not isinstance(found, dict):
        return UNKNOWN
    return ", ".join(f"{name} {digest}" for name, digest in found.items())


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
