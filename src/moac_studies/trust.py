"""The study `trust`: how often the verdict on an estimate is right, on generated logs whose truth is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import softmax
from scipy.stats import binomtest

from moac.files import Arrays
from moac.offline import ncis
from moac.offline.ncis.trust import LEVELS as WORDS
from moac.report import figures
from moac.report.numbers import UNKNOWN
from moac.report.page import Claim, Table
from moac.report.pages.experiment import Findings, Shown
from moac.statistics import Mean
from moac_studies import compare, framework
from moac_studies.framework import Study, Workspace

KINDS, ITEMS, LEVELS = 4, 20, np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
LEVEL_SHARE = np.array([1, 4, 6, 4, 1]) / 16
SIGNALS = ("Click", "Watch")
FAMILIES = (
    "clean", "hidden taste", "drift", "heavy tails", "near-deterministic", "few users", "tiny propensities", "wrong b",
)  # fmt: skip
_TIMES = np.linspace(-1, 1, 11)
_REASONS = ("control", "balance", "pareto_k", "mean_weight", "retained_mass", "SNIPS", "user_effective_size", "other")
_TABLE, _CURVE = "How often the verdict was right", "Over the strength of a hidden taste"
_CAPTION = (
    "Left: share of pairs that are trusted, and of all intervals of Click that hold the truth, with exact 95 % "
    "intervals. Right: mean error of Click's change beside the mean change of earlier clicks."
)


@dataclass(frozen=True, eq=False)
class Pair:
    """A log and a policy, with the truth."""

    log: ncis.Logged
    behaviour: Any  # b(a|s) of all actions [N, K], as the estimate has it
    policy: Any  # π(a|s) [N, K]
    controls: tuple[ncis.Control, ...]
    covariates: dict[str, Any]
    truth: Any  # V_π / V_b − 1 of each signal


def pair(family: str, kappa: float, users: int, seed: int) -> Pair:
    """A log of one family, and a policy that shows items more which the log's users clicked more.

    A row: its user's kind z and hidden taste e, a time t in [-1, 1], an item a, a click, and a time watched.

        b(a|z,e,t) ∝ exp(popularity_a + taste[z,a] + κ e g_a + drift t d_a),   P(click) = σ(c + q_a + e + drift t d_a).

    The estimate knows b(a|z), the mean over e and t; in `wrong b` only that over z as well.
    """
    rng = np.random.default_rng([seed, FAMILIES.index(family), round(1000 * kappa)])
    users = int(rng.integers(30, 120)) if family == "few users" else users
    drift = 0.15 if family == "drift" else 0.0
    steep = 3.0 if family == "near-deterministic" else 1.0
    popularity, quality, other, trend = rng.standard_normal((4, ITEMS))
    loading = 0.8 * quality + 0.6 * other
    taste, liking = rng.standard_normal((2, KINDS, ITEMS))
    rare = np.arange(ITEMS) < 3
    popularity = np.where(rare, -8.0, popularity) if family == "tiny propensities" else popularity
    appeal = steep * (0.7 * popularity + 0.5 * taste)[:, None, None]
    kappa_e = kappa * LEVELS[:, None, None] * loading
    shown = softmax(appeal + kappa_e + drift * _TIMES[:, None] * trend, axis=-1)  # [Z, E, T, K]
    odds = -0.7 + 0.5 * quality + 0.4 * liking[:, None, None] + LEVELS[:, None, None] + drift * _TIMES[:, None] * trend
    click = 1 / (1 + np.exp(-odds))
    known = np.einsum("zetk,e->zk", shown, LEVEL_SHARE) / len(_TIMES)
    cells = shown * LEVEL_SHARE[:, None, None] / len(_TIMES) / KINDS
    seen = (cells * click).sum(axis=(0, 1, 2)) / cells.sum(axis=(0, 1, 2))
    lift = (seen - seen.mean()) / seen.std()
    flat = 0.6 if family == "near-deterministic" else 1.0
    policy = softmax(flat * np.log(known) + 0.5 * lift + 6.0 * (rare & (family == "tiny propensities")), axis=-1)
    where = (LEVEL_SHARE[:, None] / len(_TIMES) / KINDS)[None, :, :, None]
    true = (where * policy[:, None, None] * click).sum() / (cells * click).sum() - 1
    return _drawn(rng, family, users, (shown, click, known, policy), true)


def _drawn(rng: Any, family: str, users: int, tables: Any, truth: float) -> Pair:
    shown, click, known, policy = tables
    rows = rng.poisson(8, users) + 2
    user = np.repeat(np.arange(users), rows)
    position = np.arange(len(user)) - np.repeat(np.cumsum(rows) - rows, rows)
    z, e = rng.integers(KINDS, size=users)[user], rng.choice(len(LEVELS), size=users, p=LEVEL_SHARE)[user]
    t = np.minimum(((position + rng.random(len(user))) / rows[user] * len(_TIMES)).astype(int), len(_TIMES) - 1)
    p = shown[z, e, t]
    action = np.minimum((p.cumsum(axis=1) < rng.random(len(user))[:, None]).sum(axis=1), ITEMS - 1)
    clicked = rng.random(len(user)) < click[z, e, t, action]
    length = rng.standard_exponential(len(user))
    if family == "heavy tails":
        length = rng.pareto(1.3, len(user)) + 1 if rng.random() < 0.5 else np.exp(2 * rng.standard_normal(len(user)))
    reward = np.stack([clicked, clicked * length], axis=1).astype(float)
    b = known[z] if family != "wrong b" else np.broadcast_to(known.mean(axis=0), (len(user), ITEMS))
    log = ncis.Logged.of(user, reward, b[np.arange(len(user)), action], action, SIGNALS)
    totals = np.cumsum(reward, axis=0) - reward
    before = totals - totals[np.arange(len(user)) - position]
    earlier = np.divide(before, position[:, None], out=np.full_like(before, np.nan), where=position[:, None] > 0)
    covariates = {f"kind={k}": z == k for k in range(KINDS)} | {f"time {k}": t == k for k in range(len(_TIMES))}
    covariates["rows before"] = position
    control = ncis.Control("earlier rewards", earlier, SIGNALS)
    return Pair(log, b, policy[z], (control,), covariates, np.full(2, truth))


def estimated(one: Pair, options: ncis.Options | None = None) -> ncis.PolicyReport:
    """The report on the policy."""
    policies = {"log": one.behaviour, "policy": one.policy}
    evidence = ncis.evidence_of(one.log, policies, one.controls, one.covariates, behaviour=one.behaviour)
    report = ncis.evaluate(one.log, policies, baseline="log", evidence=evidence, options=options)
    return report.policies["policy"]


def run(study: Study, work: Workspace) -> Findings:
    """Measure every family, in pieces that are kept, and judge."""
    sizes, aims = study.parameters["sizes"], study.parameters["aims"]
    cells = {("clean", 0.0): sizes["clean_pairs"]}
    cells |= {("hidden taste", kappa): sizes["pairs"] for kappa in sizes["kappas"]}
    cells |= {(family, 0.0): sizes["pairs"] for family in FAMILIES[2:]}
    measured = {cell: Measured.of(cell, pairs, sizes, study.seed, work) for cell, pairs in cells.items()}
    curve = _curve({k: each for (family, k), each in measured.items() if family in ("clean", "hidden taste")})
    shown = Shown(_CURVE, "kappa", curve, _CAPTION, "Two panels against the strength κ of a hidden taste.")
    return Findings(claims(measured, aims), (_table(measured),), (shown,))


@dataclass(frozen=True, eq=False)
class Measured:
    """The pairs of one family, at one strength of the hidden taste."""

    word: Any  # [n] verdict on the policy, as an index of `WORDS`
    words: Any  # [n, 2] on each signal
    held: Any  # [n, 2] whether the interval held the truth
    error: Any  # [n, 2] estimated minus true change
    control: Any  # [n, 2] change of earlier rewards
    reasons: Any  # [n, R] whether each reason was given

    @staticmethod
    def of(cell: tuple[str, float], pairs: int, sizes: framework.Table, seed: int, work: Workspace) -> Measured:
        """Measured piece by piece."""
        parts = list[Arrays]()
        for first in range(0, pairs, sizes["piece"]):
            keys = {"family": cell[0], "kappa": cell[1], "users": sizes["users"], "draws": sizes["draws"]}
            keys |= {"first": seed + first, "count": min(sizes["piece"], pairs - first)}
            name = f"{cell[0].replace(' ', '-')}-{cell[1]:g}-{first}"
            parts.append(work.keep(name, keys, lambda keys=keys: _measure(keys)))
        return Measured(**{name: np.concatenate([part[name] for part in parts]) for name in parts[0]})

    def trusted(self) -> Mean:
        """Share of pairs that are trusted."""
        return share(self.word == 0)

    def coverage(self, k: int, only_trusted: bool = True) -> Mean:
        """Share of intervals of one signal that hold the truth."""
        return share(self.held[:, k][self.words[:, k] == 0] if only_trusted else self.held[:, k])


def share(events: Any) -> Mean:
    """A share with its exact 95 % interval (Clopper & Pearson, 1934)."""
    if not len(events):
        return Mean(np.nan, np.nan, np.nan, 0)
    counted = binomtest(int(np.sum(events)), len(events))
    return Mean(counted.statistic, *counted.proportion_ci(), len(events))


def _measure(keys: framework.Table) -> Arrays:
    names, rows = tuple(Measured.__dataclass_fields__), list[tuple[Any, ...]]()
    for seed in range(keys["first"], keys["first"] + keys["count"]):
        one = pair(keys["family"], keys["kappa"], keys["users"], seed)
        report: Any = estimated(one, ncis.Options(draws=keys["draws"]))
        change, checks, verdict = report.change, report.checks, report.verdict
        low, high = change.relative_interval.T
        named = {r.measure if r.measure in _REASONS else "other" for r in verdict.reasons}
        words = [WORDS.index(verdict.of(signal)) for signal in SIGNALS]
        held, error = (low <= one.truth) & (one.truth <= high), change.relative - one.truth
        reasons = [name in named for name in _REASONS]
        rows.append((WORDS.index(verdict.level), words, held, error, checks.controls[0].change, reasons))
    return {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def claims(measured: dict[tuple[str, float], Measured], aims: framework.Table) -> tuple[Claim, ...]:
    """The aims; shares are counted, and stand with their exact intervals."""
    clean = measured["clean", 0.0]
    strong = [own for (family, kappa), own in measured.items() if family == "hidden taste" and kappa >= aims["kappa"]]
    caught = share(np.concatenate([own.word for own in strong]) == 0)
    covered, least = {signal: clean.coverage(k) for k, signal in enumerate(SIGNALS)}, aims["coverage"]
    right = all(own.value >= least for own in covered.values())
    short = {
        f"{_label(cell)}, {signal}": own.coverage(k)
        for cell, own in measured.items()
        for k, signal in enumerate(SIGNALS)
        if own.coverage(k).value < least
    }
    kappa, most, wanted, trusted = aims["kappa"], aims["caught"], aims["trusted"], clean.trusted()
    texts = {
        f"Clean logs are trusted in at least {wanted:.0%}": (trusted.value >= wanted, {"Trusted": trusted}),
        f"Logs with κ ≥ {kappa:g} are trusted in at most {most:.0%}": (caught.value <= most, {"Trusted": caught}),
        f"Trusted intervals of clean logs hold the truth in at least {least:.0%}": (right, covered),
        f"No family has trusted intervals that hold the truth in less than {least:.0%}": (not short, short),
    }
    return tuple(
        compare.claim(text, f"{_listed(shares) or 'None has'}.", [compare.known(true)], _TABLE)
        for text, (true, shares) in texts.items()
    )


def _listed(shares: dict[str, Mean]) -> str:
    return "; ".join(f"{name}: {_told(own)}" for name, own in shares.items())


def _told(own: Mean) -> str:
    return UNKNOWN if not own.trials else f"{own.value:.1%} [{own.low:.1%}, {own.high:.1%}] of {own.trials}"


def _label(cell: tuple[str, float]) -> str:
    return f"{cell[0]}, κ = {cell[1]:g}" if cell[0] == "hidden taste" else cell[0]


def _table(measured: dict[tuple[str, float], Measured]) -> Table:
    rows = list[tuple[str, ...]]()
    for cell, own in measured.items():
        shares: dict[str, float] = dict(zip(_REASONS, own.reasons.mean(axis=0).tolist(), strict=True))
        often = sorted((name for name in shares if shares[name] >= 0.1), key=lambda name: -shares[name])[:3]
        all_of_them = f"{own.coverage(0, False).value:.0%} / {own.coverage(1, False).value:.0%}"
        error = " / ".join(f"{100 * value:+.1f}" for value in own.error.mean(axis=0))
        named = ", ".join(f"{name} {shares[name]:.0%}" for name in often)
        covered = (_told(own.coverage(k)) for k in range(2))
        rows.append((_label(cell), _told(own.trusted()), *covered, all_of_them, error, named or UNKNOWN))
    header = ("Family", "Trusted", "Click held, trusted", "Watch held, trusted", "Held, all", "Bias, points", "Reasons")
    caption = (
        "Of each family the share of pairs that are trusted; of those whose signal is trusted, and of all, the share "
        "whose 95 % interval of the change holds the truth; mean error in points (Click / Watch); the reasons most "
        "often given. Exact intervals (Clopper and Pearson)."
    )
    return Table(_TABLE, caption, header, tuple(rows))


@figures.styled
def _curve(own: dict[float, Measured]) -> Any:
    figure, (left, right) = figures.panels(2)
    x = np.array(sorted(own))
    shown = {"trusted": [own[k].trusted() for k in x], "truth held": [own[k].coverage(0, False) for k in x]}
    for index, (label, shares) in enumerate(shown.items()):
        low, value, high = (np.array([getattr(each, end) for each in shares]) for end in ("low", "value", "high"))
        left.errorbar(x, value, (value - low, high - value), marker="o", label=label, capsize=2, **figures.line(index))
    for index, (label, name) in enumerate({"error of the estimate": "error", "control": "control"}.items()):
        means = [100 * getattr(own[k], name)[:, 0].mean() for k in x]
        right.plot(x, means, marker="o", label=label, **figures.line(index))
    left.set_ylim(-0.03, 1.03)
    for ax, title, label in ((left, "Verdicts", "share of pairs"), (right, "Error and control", "percentage points")):
        ax.set_title(title)
        ax.set(xlabel=r"strength $\kappa$ of the hidden taste", ylabel=label)
        ax.legend()
    return figure
