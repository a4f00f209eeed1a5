"""The study `actor-rate`: Theorem 2 measured. In this file, the gap against the number of iterations T."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from moac.config import Discounted, Setting
from moac.files import Arrays
from moac.momdp import library
from moac.report.page import Claim, Table
from moac.report.pages.experiment import Findings, Shown
from moac.statistics import Mean
from moac_studies import actor_law, actor_momentum, actor_noise, compare, drawings
from moac_studies import small_problems as small
from moac_studies.compare import TOLERANCE
from moac_studies.framework import Study, Workspace
from moac_studies.small_problems import SCHEDULES, Problem

LABELS = tuple(SCHEDULES)
_EXACT, _LEARNED, _TABLE = "Gap against T, exact directions", "Gap against T, learned critics", "Slopes in T"
_PREDICTED = dict(zip(LABELS, ("does not fall", "−0.5", "−1, up to ln T", "−1", "−1"), strict=True))
"""Slopes of the bound."""

Measured = dict[str, tuple[Any, Float[np.ndarray, "E n L"]]]  # By run, the numbers of iterations [L] and the mean gaps


def run(study: Study, work: Workspace) -> Findings:
    """Horizon, batch size, the law of the samples, the number of objectives, momentum."""
    p = {name: dict(table) for name, table in study.parameters.items()}
    parts = (
        horizon(work, p["exact"], p["learned"], study.seed),
        actor_noise.findings(work, p["noise"], study.seed),
        actor_law.law_findings(work, p["law"], study.seed),
        actor_law.objectives_findings(work, p["objectives"], study.seed),
        actor_momentum.findings(work, p["momentum"], study.seed),
    )
    joined = ([item for part in parts for item in getattr(part, name)] for name in ("claims", "tables", "figures"))
    return Findings(*map(tuple, joined))


def horizon(work: Workspace, exact: dict[str, Any], learned: dict[str, Any], seed: int) -> Findings:
    """Mean gap up to T: measured slopes beside those of the bound."""
    measured: Measured = {}
    for name, (alpha, T, setting) in _runs(exact).items():
        about, how, grid = {"seed": seed, **exact, "run": name}, (alpha, setting, "own"), small.horizons(T)
        ascend = partial(small.exact_ascent, models(exact, seed), LABELS, how, grid)
        arrays = work.keep("exact-ascent", about, lambda grid=grid, run=ascend: {"grid": grid, "mean_gap": run()[0]})
        measured[name] = arrays["grid"], arrays["mean_gap"]
    for kind in learned["settings"]:
        about = {"seed": seed, **learned, "setting": kind}
        arrays = work.keep("learned-ascent", about, lambda kind=kind: _learn(learned, kind, seed))
        measured[f"{kind}, learned critics"] = arrays["grid"], arrays["mean_gap"]
    slopes = {name: slopes_of(x, values) for name, (x, values) in measured.items()}
    return Findings(claims_of(slopes, measured), (_table(slopes, measured),), _figures(measured))


def _runs(p: dict[str, Any]) -> dict[str, tuple[float, int, Setting]]:
    """α, T and the setting of each run.

    The step of Theorem 2, 1/(3L) with L = 8 r_max/(1 − γ)³, which bounds the curvature of any softmax table with
    rewards in [0, r_max]; and a practical one.
    """
    theory = ((1 - p["discount"]) ** 3 / 24, p["theory_iterations"], Discounted(p["discount"]))
    runs = {"discounted, α = 1/(3L)": theory} if p["theory_iterations"] else {}
    return runs | {
        f"{kind}, α = {p['step']:g}": (p["step"], p["iterations"], small.setting_of(kind, p["discount"]))
        for kind in p["settings"]
    }


def models(p: dict[str, Any], seed: int) -> Problem:
    """Random models, each with its own random start."""
    sizes, problems = (p["states"], p["actions"], p["objectives"]), list[Problem]()
    for k in range(p["models"]):
        theta = p["spread"] * np.random.default_rng((seed, k)).normal(size=sizes[0] * sizes[1])
        problems.append(small.problem_of(library.random_ergodic(seed + k, *sizes), theta=theta))
    return small.stacked(problems)


def _learn(p: dict[str, Any], kind: str, seed: int) -> Arrays:
    """Mean over iterations and trials: [E, n, L] for n models."""
    setting, problems = small.setting_of(kind, p["discount"]), models(p, seed)
    config = small.config_of(p, setting, p["step"], p["iterations"])
    _, theta = small.learned_ascent(problems, config, LABELS, (p["trials"], seed))
    gap = np.stack([small.gaps(problems, each[..., :-1, :], setting) for each in theta])
    grid = small.horizons(p["iterations"])
    running = np.cumsum(gap.mean(axis=2), axis=-1)
    return {"grid": grid, "mean_gap": running[..., grid - 1] / grid}


def late(grid: Any, decades: float = 0.5) -> Any:
    """The last `decades` of T: before, ascent has hardly begun."""
    return np.asarray(grid) >= grid[-1] / 10**decades


def slopes_of(grid: Any, values: Float[np.ndarray, "E n L"], decades: float = 0.5) -> dict[str, Mean]:
    """Of each schedule, over the last decades."""
    last = late(grid, decades)
    return {label: compare.slope(grid[last], values[e][:, last]) for e, label in enumerate(LABELS)}


def _told(slopes: dict[str, dict[str, Mean]]) -> str:
    """Of each run the range of the slopes, and of the ends of their intervals."""
    texts: list[str] = []
    for name, by_label in slopes.items():
        values, lows, highs = zip(*((slope.value, slope.low, slope.high) for slope in by_label.values()), strict=True)
        told = f"slopes from {min(values):.2f} to {max(values):.2f}, their intervals from {min(lows):.2f} to "
        texts.append(f"{name}: {told}{max(highs):.2f}".replace("-", "−"))
    return "; ".join(texts)


def claims_of(slopes: dict[str, dict[str, Mean]], measured: Measured) -> tuple[Claim, ...]:
    """Whether the mean gap falls as 1/T, exactly and with learned critics; and whether the schedule matters.

    For the last, the slopes of the two schedules that the bound sets furthest apart are compared on the same models.
    """
    exact, learned = (
        {name: by_label for name, by_label in slopes.items() if ("learned" in name) == sampled}
        for sampled in (False, True)
    )
    longer, differences = {name: slopes_of(*measured[name], decades=1.0) for name in exact}, dict[str, Mean]()
    for name, (grid, values) in measured.items():
        last = late(grid)
        plain, smoothed = (values[LABELS.index(label)][:, last] for label in ("η = 1", "η = 1/t²"))
        differences[name] = compare.slope_difference(grid[last], plain, smoothed)
    ends = next(iter(measured.values()))[1][:, :, -1].mean(axis=1)

    def as_one_over_t(slopes: dict[str, dict[str, Mean]]) -> list[compare.Part]:
        return [compare.near(s, -1.0, TOLERANCE) for by_label in slopes.values() for s in by_label.values()]

    sampled = "With learned critics and finite batches the mean gap falls as 1/T as well (ours)."
    return (
        compare.claim(
            "With exact directions the mean gap falls as 1/T under every schedule (ours; the bound says so of 1/t² and "
            "0 only).",
            f"{_told(exact)}; required: −1 ± {TOLERANCE}. Over the last whole decade instead: {_told(longer)}. No "
            "mean over iterations can fall faster: it contains the first gap divided by T.",
            as_one_over_t(exact),
            _EXACT,
        ),
        compare.claim(
            "The rate depends on the schedule: 1/√T for 1/√t, ln T/T for 1/t, and a term that stays at η = 1.",
            f"Slope at η = 1 minus slope at η = 1/t², on the same models: {compare.listed(differences)}; required: "
            f"beyond ± {TOLERANCE}. At the largest T the means of the {len(LABELS)} schedules lie within "
            f"{ends.max() / ends.min() - 1:.0%} of one another. Where slopes do not differ, the differences "
            "belong to the bound, not to the algorithm; the data cannot say that no problem attains it.",
            [compare.near(difference, 0.0, TOLERANCE).negated for difference in differences.values()],
            _TABLE,
        ),
        compare.claim(
            sampled,
            f"{_told(learned)}; required: −1 ± {TOLERANCE}. Where it is flatter, noise still feeds the gap; Theorem 2 "
            "allows a floor of order 1/B there.",
            as_one_over_t(learned),
            _LEARNED,
        )
        if learned
        else Claim(sampled, compare.NOT_RUN, "not measured"),
    )


def _table(slopes: dict[str, dict[str, Mean]], measured: Measured) -> Table:
    """Measured slopes beside those of the bound."""
    rows = tuple(
        (label, _PREDICTED[label], *(compare.with_interval(of_labels[label]) for of_labels in slopes.values()))
        for label in LABELS
    )
    counts = ", ".join(f"{values.shape[1]} models up to T = {x[-1]} ({name})" for name, (x, values) in measured.items())
    return Table(
        _TABLE,
        f"Slope of log mean gap against log T over the last half decade of T, 95 % intervals over models: {counts}. "
        "An upper bound that falls more slowly than what it bounds is not contradicted, and not confirmed as tight.",
        ("schedule", "bound", *slopes),
        rows,
    )


def _figures(measured: Measured) -> tuple[Shown, ...]:
    """The bound's shape, exact directions, and learned critics where they were run."""
    exact, learned = (
        [_panel(name, *curves) for name, curves in measured.items() if ("learned" in name) == sampled]
        for sampled in (False, True)
    )
    grid, values = next(curves for name, curves in measured.items() if "learned" not in name)
    bound = drawings.Panel(
        "The bound's dependence on T", ("iterations T", "scaled bound"), _bound(grid, values[0, :, 0].mean())
    )
    text = "Mean of the exact gap over the iterations up to T; bands are 95 % over models and starts."
    shown = [
        Shown(
            _EXACT,
            "horizon-exact",
            drawings.curves([bound, *exact]),
            f"{text} First what the bound says, scaled to the same beginning; then ascent along exact directions.",
            "Log–log charts of the mean gap against the number of iterations for five momentum schedules.",
        )
    ]
    if learned:
        caption = f"{text} Algorithm 2 with learned critics and sampled batches, the same seeds for all schedules."
        drawing = drawings.curves(learned, columns=len(learned))
        alt = "Log–log charts of the mean gap against the number of iterations with learned critics."
        shown.append(Shown(_LEARNED, "horizon-learned", drawing, caption, alt))
    return tuple(shown)


def _bound(grid: Any, scale: float) -> tuple[drawings.Curve, ...]:
    """(1 + Σ 2η_t)/T, scaled to begin where the measured means begin."""
    curves: list[drawings.Curve] = []
    for index, (label, (c, p)) in enumerate(SCHEDULES.items()):
        t = np.arange(1, grid[-1] + 1, dtype=np.float64)
        shape = (1 + 2 * np.cumsum(c * t**-p))[np.asarray(grid) - 1] / np.asarray(grid)
        curves.append(drawings.Curve(label, grid, scale * shape[None] / shape[0], index))
    return tuple(curves)


def _panel(name: str, grid: Any, values: Float[np.ndarray, "E n L"]) -> drawings.Panel:
    curves = drawings.by_label(grid, values, {label: e for e, label in enumerate(LABELS)})
    x = grid[grid >= grid[-1] / 10]
    beside = drawings.Line("slope −1", x, 2 * values[:, :, -1].mean(axis=1).max() * x[-1] / x)
    return drawings.Panel(name[0].upper() + name[1:], ("iterations T", "mean gap up to T"), curves, (beside,))
