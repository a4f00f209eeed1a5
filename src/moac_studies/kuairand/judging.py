"""The two tables side by side, the claims the paper makes of its own, and why they differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import chi2

from moac.report import logs, style
from moac.report.page import Claim, Table, Verdict
from moac_studies.kuairand.measure import Counted
from moac_studies.studies import Findings, Shown

_AMOUNTS, _REASONS, _WATCHED = "The data table", "Why they differ", "What WatchTime's amount may count"
_FREQUENT = 0.98
_LONG = {"at least 10 s": 1.0, "at least 18 s": 1.8}


def findings(paper: Mapping[str, Any], found: Counted) -> Findings:
    """Everything, in reading order."""
    claims = (_imbalanced(found), _same_order(paper, found), _same_rates(paper, found))
    figures = (
        Shown(
            "Rates per row",
            "rates",
            _rates_figure(paper, found),
            f"Share of rows that have each signal, 95 % intervals: of {_name(found)} over users, the paper's by count. "
            "WatchTime is left out: the paper does not say what it counts.",
            "Dot plot of the rate of six signals, the paper's and this data's, logarithmic.",
        ),
        Shown(
            "This data",
            "description",
            logs.description(found.description),
            "What `moac data kuairand describe` shows of it.",
            "Four charts: rates of signals by split, rows per user, rows per day, share of each action.",
        ),
    )
    return Findings(claims, (_amounts(paper, found), _reasons(paper, found), _watched(paper, found)), figures)


def _name(found: Counted) -> str:
    return found.description.name if found.real else "generated rows"


def _judged(found: Counted, verdict: Verdict) -> Verdict:
    """Generated rows say nothing of the paper's data."""
    return verdict if found.real else "not measured"


def _imbalanced(found: Counted) -> Claim:
    signals = found.description.signals
    share = signals["Click"]["share"] + signals["WatchTime"]["share"]
    return Claim(
        "Rewards are imbalanced: Click and WatchTime together have over 98 % of all amounts",
        f"{share:.2%} of the amounts of {_name(found)}",
        _judged(found, "holds" if share > _FREQUENT else "does not hold"),
        _AMOUNTS,
    )


def _same_order(paper: Mapping[str, Any], found: Counted) -> Claim:
    amounts = {name: signal["amount"] for name, signal in found.description.signals.items()}
    ours, theirs = (sorted(amounts, key=lambda name: -table[name]) for table in (amounts, paper))
    rarer = [[name for name in order if name not in ("Click", "WatchTime")] for order in (ours, theirs)]
    verdict: Verdict = "holds" if ours == theirs else "holds in part" if rarer[0] == rarer[1] else "does not hold"
    return Claim(
        "The signals have the paper's order, from the most to the least frequent",
        f"here {' > '.join(ours)}; in the paper {' > '.join(theirs)}",
        _judged(found, verdict),
        _AMOUNTS,
    )


def _same_rates(paper: Mapping[str, Any], found: Counted) -> Claim:
    """Intervals that overlap are no proof of equality; those that do not are of a difference."""
    apart = [name for name in _compared(found) if _apart(paper, found, name)]
    what = f"the 95 % intervals of {', '.join(apart)} do not overlap" if apart else "all 95 % intervals overlap"
    return Claim(
        "A row has each signal as often as in the paper",
        f"{what}, of {len(_compared(found))} signals, at {paper['rows']:,} rows of the paper's data",
        _judged(found, "does not hold" if apart else "not decided"),
        "Rates per row",
    )


def _compared(found: Counted) -> list[str]:
    return [name for name in found.rates if name != "WatchTime"]


def _apart(paper: Mapping[str, Any], found: Counted, name: str) -> bool:
    low, high = _counted_interval(paper[name], paper["rows"])
    return found.rates[name].low > high or found.rates[name].high < low


def _counted_interval(amount: int, rows: int) -> tuple[float, float]:
    """Garwood's 95 % interval of a rate from a count; its rows' users are not known, so it is too narrow."""
    low, high = chi2.ppf(0.025, 2 * amount) / 2, chi2.ppf(0.975, 2 * amount + 2) / 2
    return float(low) / rows, float(high) / rows


def _amounts(paper: Mapping[str, Any], found: Counted) -> Table:
    total = sum(int(paper[name]) for name in found.rates)
    rows = tuple(
        (
            name,
            f"{paper[name]:,}",
            f"{paper[name] / total:.3%}",
            f"{signal['amount']:,}",
            f"{signal['share']:.3%}",
            "–" if name == "WatchTime" else f"{paper[name] / paper['rows']:.4%}",
            str(found.rates[name]) if name == "WatchTime" else _percent(found, name),
        )
        for name, signal in found.description.signals.items()
    )
    caption = (
        "Amount: rows that have the signal; share: of all amounts, which the paper calls density. Per row: with 95 % "
        f"intervals over users; of WatchTime the mean, in tens of seconds. {found.description.num_rows:,} rows here."
    )
    header = ("Signal", "Paper, amount", "share", "This data, amount", "share", "Paper, per row", "This data, per row")
    return Table(_AMOUNTS, caption, header, rows)


def _percent(found: Counted, name: str) -> str:
    rate = found.rates[name]
    return f"{rate.value:.4%} [{max(rate.low, 0):.4%}, {rate.high:.4%}]"


def _reasons(paper: Mapping[str, Any], found: Counted) -> Table:
    about, log = found.description.manifest, found.description.manifest["logs"][found.description.manifest["primary"]]
    days = list(log["days"])
    source = (
        f"{_name(found)}, {about['primary']} log" if found.real else "generated, with the rates of 27K's whole logs"
    )
    rows = (
        ("log", "KuaiRand-27K, first part of the standard log of 8 to 21 April", source),
        ("days", "8 to 21 April 2022", f"{days[0]} to {days[-1]}"),
        ("rows of the log", "not given", f"{log['rows_read']:,}"),
        ("exact duplicates", "not dropped by the public code", f"{log['duplicates']:,} dropped"),
        ("videos", "most viewed by all users, those of test rows included", "most viewed by train users"),
        ("actions", str(paper["actions"]), str(found.description.num_actions)),
        (
            "rows on them",
            f"{paper['rows']:,} in the public code; not given in the paper",
            f"{found.description.num_rows:,}",
        ),
        ("numbers of a state", f"{paper['state']} in the paper, 1044 in the public code", str(found.state)),
        ("feed", "all videos that a user was shown", _feed(found)),
    )
    return Table(_REASONS, "What was counted, as far as it is known.", ("", "Paper", "This data"), rows)


def _feed(found: Counted) -> str:
    if not found.real:
        return "a pool of 7,583 videos"
    pool = found.description.name.endswith("pure")
    return "Pure keeps a pool of 7,583 videos of the feed" if pool else "all videos that a user was shown"


def _watched(paper: Mapping[str, Any], found: Counted) -> Table:
    """Several ways to count, each as a multiple of Click, since the numbers of rows differ."""
    watched, click = found.signals[:, -1], float(found.signals[:, 0].sum())
    ways = {"rows played at all": float(np.count_nonzero(watched))}
    ways |= {f"rows played {label}": float(np.count_nonzero(watched >= least)) for label, least in _LONG.items()}
    ways["tens of seconds, summed"] = float(watched.sum())
    rows = (
        ("the paper's amount", paper["WatchTime"] / paper["Click"]),
        *((f"this data: {way}", amount / max(click, 1.0)) for way, amount in ways.items()),
    )
    caption = "Relative to the amount of Click. The paper does not say what it counts; none of these is its number."
    return Table(_WATCHED, caption, ("What is counted", "times Click"), rows)


@style.styled
def _rates_figure(paper: Mapping[str, Any], found: Counted) -> Figure:
    figure, (ax,) = style.grid(1, 1, (7.5, 3.8))
    names = _compared(found)
    intervals = {
        "paper": [(paper[name] / paper["rows"], *_counted_interval(paper[name], paper["rows"])) for name in names],
        _name(found): [(found.rates[name].value, found.rates[name].low, found.rates[name].high) for name in names],
    }
    for k, (label, rows) in enumerate(intervals.items()):
        value, low, high = (np.array(column) for column in zip(*rows, strict=True))
        x = np.arange(len(names)) + 0.2 * (k - 0.5)
        ax.vlines(x, np.maximum(low, 1e-6), high, color=style.COLOURS[k], linewidth=1.6)
        ax.plot(x, value, "os"[k], markersize=5, color=style.COLOURS[k], label=label)
    ax.set_yscale("log")
    ax.set_xticks(range(len(names)), names)
    ax.set_ylabel("share of rows")
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure
