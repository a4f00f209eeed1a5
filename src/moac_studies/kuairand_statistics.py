"""The study `kuairand-statistics`: the paper's table of its data beside the data at hand, and why they differ."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from scipy.stats import chi2

from moac import kuairand, statistics
from moac.kuairand import generate
from moac.kuairand.schema import RANDOM_LOG, SIGNALS
from moac.logs import LoggedDataset, Options, describe
from moac.logs.building import build
from moac.logs.folder import Description
from moac.logs.schema import LogFiles
from moac.report import figures, log_figures
from moac.report.page import Claim, Table, Verdict
from moac.report.pages.experiment import Findings, Shown
from moac.statistics import Mean
from moac_studies import framework
from moac_studies.framework import Study, Workspace

VARIABLE = "MOAC_KUAIRAND_DIR"  # Names the folder with KuaiRand's own rows
_AMOUNTS, _REASONS, _WATCHED = "The data table", "Why they differ", "What WatchTime's amount may count"
_FREQUENT = 0.98
_LONG = {"at least 10 s": 1.0, "at least 18 s": 1.8}


@dataclass(frozen=True, eq=False)
class Counted:
    """A dataset in the numbers of the paper's table."""

    real: bool  # whether the rows are KuaiRand's
    description: Description  # of the dataset
    signals: Float[np.ndarray, "N M"]  # [N, M] as they were logged, a cost positive
    rates: dict[str, Mean]  # mean per row of each signal, with intervals over users
    state: int  # numbers of a state

    @property
    def name(self) -> str:
        """What the rows are."""
        return self.description.name if self.real else "generated rows"

    @property
    def compared(self) -> list[str]:
        """Signals whose rates are compared: the paper does not say what it counts of WatchTime."""
        return [name for name in self.rates if name != "WatchTime"]

    def judged(self, verdict: Verdict) -> Verdict:
        """Generated rows say nothing of the paper's data."""
        return verdict if self.real else "not measured"


def run(study: Study, work: Workspace) -> Findings:
    """Build, count, compare."""
    return findings(study.parameters["paper"], counted(study.parameters["data"], study.seed, work, real_rows()))


def real_rows() -> Path | None:
    """The folder with real rows; None where none is named. One that is named must be there."""
    named = os.environ.get(VARIABLE)
    if named is not None and not Path(named).is_dir():
        raise ValueError(f"{VARIABLE} must be a folder with KuaiRand's files, got {named}.")
    return None if named is None else Path(named)


def built(table: framework.Table, seed: int, work: Workspace, files: Path | None, split: str | None = None) -> Path:
    """A dataset from `files`, or from generated rows; what an earlier call has built of the same is taken.

    With a rule by which rows are split it has all signals, past responses in states, and 1K's random exposure beside
    Pure; without one it is the paper's: seven signals, and states without responses.
    """
    kinds: Any = {"split": split or "users", "history_responses": split is not None}
    options = Options(table["actions"], table["split_seed"], memory_limit=table["memory_limit"], **kinds)
    rows = sorted(files.rglob("*.csv")) if files else []
    sizes = [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in rows]
    made = {} if files else {"seed": seed, "rows": table["generated_rows"]}
    identity = json.dumps([str(files), sizes, made, options.actions, options.split_seed, split])
    folder = work.folder / f"data-{hashlib.sha256(identity.encode()).hexdigest()[:10]}"
    if folder.exists():
        return folder
    work.folder.mkdir(parents=True, exist_ok=True)
    if files is not None:
        work.say(f"building from {files}")
        random = next((path for path in rows if path.name in RANDOM_LOG.file_names("1k")), None) if split else None
        build(_found(files, random, split), folder, options)
        return folder
    work.say(f"no real rows ({VARIABLE} is not set): generating {table['generated_rows']:,}")
    with tempfile.TemporaryDirectory(dir=work.folder) as generated:
        generate.write(generate.Parameters(table["generated_rows"], seed=seed), Path(generated))
        build(_found(Path(generated), None, split), folder, options)
    return folder


def _found(files: Path, random: Path | None, split: str | None) -> LogFiles:
    found = kuairand.find(files, random)
    return found if split else replace(found, schema=replace(found.schema, signals=SIGNALS))


def counted(table: framework.Table, seed: int, work: Workspace, files: Path | None) -> Counted:
    """Build, then count."""
    folder = built(table, seed, work, files)
    dataset = LoggedDataset.from_parquet(folder)
    signals = dataset.reward * np.array(dataset.signs)
    rates = dict(zip(dataset.signal_names, rates_of(dataset.user, signals), strict=True))
    return Counted(files is not None, describe(folder), signals, rates, dataset.num_features)


def rates_of(user: Any, signals: Any) -> list[Mean]:
    """Mean per row with the interval of a ratio of two means over users (delta method): rows of a user are alike."""
    _, place, rows = np.unique(user, return_inverse=True, return_counts=True)
    sums = np.zeros((len(rows), signals.shape[1]))
    np.add.at(sums, place, signals)
    rate = sums.sum(axis=0) / rows.sum()
    linear: Any = rate + (sums - rate * rows[:, None]) / rows.mean()
    return [statistics.mean(column) for column in linear.T]


def findings(paper: framework.Table, data: Counted) -> Findings:
    """Everything, in reading order."""
    shown = (
        Shown(
            "Rates per row",
            "rates",
            _rates_figure(paper, data),
            f"Share of rows that have each signal, 95 % intervals: of {data.name} over users, the paper's by count. "
            "WatchTime is left out: the paper does not say what it counts.",
            "Dot plot of the rate of six signals, the paper's and this data's, logarithmic.",
        ),
        Shown(
            "This data",
            "description",
            log_figures.description(data.description),
            "What `moac data describe` shows of it.",
            "Four charts: rates of signals by split, rows per user, rows per day, share of each action.",
        ),
    )
    claims = (imbalanced(data), same_order(paper, data), same_rates(paper, data))
    return Findings(claims, (_amounts(paper, data), _reasons(paper, data), watched_table(paper, data)), shown)


def imbalanced(data: Counted) -> Claim:
    """Whether two signals have nearly all amounts."""
    signals = data.description.signals
    share = signals["Click"]["share"] + signals["WatchTime"]["share"]
    return Claim(
        "Rewards are imbalanced: Click and WatchTime together have over 98 % of all amounts",
        f"{share:.2%} of the amounts of {data.name}",
        data.judged("holds" if share > _FREQUENT else "does not hold"),
        _AMOUNTS,
    )


def same_order(paper: framework.Table, data: Counted) -> Claim:
    """Whether the signals have the paper's order."""
    amounts = {name: signal["amount"] for name, signal in data.description.signals.items()}
    ours, theirs = (sorted(amounts, key=lambda name: -table[name]) for table in (amounts, paper))
    rarer = [[name for name in order if name not in ("Click", "WatchTime")] for order in (ours, theirs)]
    verdict: Verdict = "holds" if ours == theirs else "holds in part" if rarer[0] == rarer[1] else "does not hold"
    return Claim(
        "The signals have the paper's order, from the most to the least frequent",
        f"here {' > '.join(ours)}; in the paper {' > '.join(theirs)}",
        data.judged(verdict),
        _AMOUNTS,
    )


def same_rates(paper: framework.Table, data: Counted) -> Claim:
    """Intervals that overlap are no proof of equality; those that do not are of a difference."""
    differing = [name for name in data.compared if rates_differ(paper, data, name)]
    what = f"the 95 % intervals of {', '.join(differing)} do not overlap" if differing else "all 95 % intervals overlap"
    return Claim(
        "A row has each signal as often as in the paper",
        f"{what}, of {len(data.compared)} signals, at {paper['rows']:,} rows of the paper's data",
        data.judged("does not hold" if differing else "not decided"),
        "Rates per row",
    )


def rates_differ(paper: framework.Table, data: Counted, name: str) -> bool:
    """Whether the two intervals of a signal's rate have no number in common."""
    low, high = counted_interval(paper[name], paper["rows"])
    return data.rates[name].low > high or data.rates[name].high < low


def counted_interval(amount: int, rows: int) -> tuple[float, float]:
    """Garwood's 95 % interval of a rate from a count; its rows' users are not known, so it is too narrow."""
    low, high = chi2.ppf(0.025, 2 * amount) / 2, chi2.ppf(0.975, 2 * amount + 2) / 2
    return float(low) / rows, float(high) / rows


def _amounts(paper: framework.Table, data: Counted) -> Table:
    total, rows = sum(int(paper[name]) for name in data.rates), list[tuple[str, ...]]()
    for name, signal in data.description.signals.items():
        rate, theirs = data.rates[name], "–" if name == "WatchTime" else f"{paper[name] / paper['rows']:.4%}"
        percent = f"{rate.value:.4%} [{max(rate.low, 0):.4%}, {rate.high:.4%}]"
        amounts = (f"{paper[name]:,}", f"{paper[name] / total:.3%}", f"{signal['amount']:,}", f"{signal['share']:.3%}")
        rows.append((name, *amounts, theirs, str(rate) if name == "WatchTime" else percent))
    caption = (
        "Amount: rows that have the signal; share: of all amounts, which the paper calls density. Per row: with 95 % "
        f"intervals over users; of WatchTime the mean, in tens of seconds. {data.description.num_rows:,} rows here."
    )
    header = ("Signal", "Paper, amount", "share", "This data, amount", "share", "Paper, per row", "This data, per row")
    return Table(_AMOUNTS, caption, header, tuple(rows))


def _reasons(paper: framework.Table, data: Counted) -> Table:
    about, shown = data.description, "all videos that a user was shown"
    log, primary = about.manifest["logs"][about.manifest["primary"]], about.manifest["primary"]
    days, feed = list(log["days"]), shown if data.real else "a pool of 7,583 videos"
    if data.real and about.name.endswith("pure"):
        feed = "Pure keeps a pool of 7,583 videos of the feed"
    source = f"{data.name}, {primary} log" if data.real else "generated, with the rates of 27K's whole logs"
    theirs = f"{paper['rows']:,} in the public code; not given in the paper"
    rows = (
        ("log", "KuaiRand-27K, first part of the standard log of 8 to 21 April", source),
        ("days", "8 to 21 April 2022", f"{days[0]} to {days[-1]}"),
        ("rows of the log", "not given", f"{log['rows_read']:,}"),
        ("exact duplicates", "not dropped by the public code", f"{log['duplicates']:,} dropped"),
        ("videos", "most viewed by all users, those of test rows included", "most viewed by train users"),
        ("actions", str(paper["actions"]), str(about.num_actions)),
        ("rows on them", theirs, f"{about.num_rows:,}"),
        ("numbers of a state", f"{paper['state']} in the paper, 1044 in the public code", str(data.state)),
        ("feed", shown, feed),
    )
    return Table(_REASONS, "What was counted, as far as it is known.", ("", "Paper", "This data"), rows)


def watched_table(paper: framework.Table, data: Counted) -> Table:
    """Several ways to count, each as a multiple of Click, since the numbers of rows differ."""
    watched, click = data.signals[:, -1], float(data.signals[:, 0].sum())
    ways = {"rows played at all": float(np.count_nonzero(watched))}
    ways |= {f"rows played {label}": float(np.count_nonzero(watched >= least)) for label, least in _LONG.items()}
    ways["tens of seconds, summed"] = float(watched.sum())
    rows = (
        ("the paper's amount", paper["WatchTime"] / paper["Click"]),
        *((f"this data: {way}", amount / max(click, 1.0)) for way, amount in ways.items()),
    )
    caption = "Relative to the amount of Click. The paper does not say what it counts; none of these is its number."
    return Table(_WATCHED, caption, ("What is counted", "times Click"), rows)


@figures.styled
def _rates_figure(paper: framework.Table, data: Counted) -> Figure:
    figure, (ax,) = figures.grid(1, 1, (6.4, 3.6))
    names = data.compared
    intervals = {
        "paper": [(paper[name] / paper["rows"], *counted_interval(paper[name], paper["rows"])) for name in names],
        data.name: [(data.rates[name].value, data.rates[name].low, data.rates[name].high) for name in names],
    }
    for k, (label, rows) in enumerate(intervals.items()):
        value, low, high = (np.array(column) for column in zip(*rows, strict=True))
        x = np.arange(len(names)) + 0.2 * (k - 0.5)
        ax.vlines(x, np.maximum(low, 1e-6), high, color=figures.COLOURS[k], linewidth=1.6)
        ax.plot(x, value, "os"[k], markersize=5, color=figures.COLOURS[k], label=label)
    ax.set_yscale("log")
    ax.set_xticks(range(len(names)), names)
    ax.set_title("Rows that have each signal")
    ax.set_ylabel("share of rows")
    figures.legend_below(figure, [ax])
    return figure
