"""The gap against the number of iterations: Theorem 2's dependence on T and on the momentum schedule."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from moac.config import Average, Discounted, Setting
from moac.files import Arrays
from moac.momdp import library
from moac.report.page import Claim
from moac.statistics import Mean
from moac_studies import compare
from moac_studies.rates import closed_form, exact_ascent, fits, horizon_report, judging, trajectories
from moac_studies.rates.horizon_report import LABELS
from moac_studies.rates.problems import Problem, problem, stacked
from moac_studies.studies import Findings, Workspace


def findings(work: Workspace, exact: dict[str, Any], learned: dict[str, Any], seed: int) -> Findings:
    """Mean gap up to T: measured slopes beside those of the bound."""
    measured: dict[str, Any] = {}
    for name, (alpha, T, setting) in _runs(exact).items():
        about = {"seed": seed, **exact, "run": name}
        found = work.arrays(
            "exact-ascent", about, lambda a=alpha, t=T, s=setting: _exact(exact, (a, s, "own"), t, seed)
        )
        measured[name] = found["grid"], found["mean_gap"]
    for kind in learned["settings"]:
        about = {"seed": seed, **learned, "setting": kind}
        found = work.arrays("learned-ascent", about, lambda k=kind: _learned(learned, k, seed))
        measured[f"{kind}, learned critics"] = found["grid"], found["mean_gap"]
    slopes = {name: _slopes(x, values) for name, (x, values) in measured.items()}
    return Findings(
        _claims(slopes, measured), (horizon_report.table(slopes, measured),), horizon_report.figures(measured)
    )


def _setting(kind: str, discount: float) -> Setting:
    return Average() if kind == "average" else Discounted(discount)


def _runs(p: dict[str, Any]) -> dict[str, tuple[float, int, Setting]]:
    """α, T and the setting of each run.

    The step of Theorem 2, 1/(3L) with L = 8 r_max/(1 − γ)³, which bounds the curvature of any softmax table with
    rewards in [0, r_max]; and a practical one.
    """
    discounted, runs = Discounted(p["discount"]), dict[str, tuple[float, int, Setting]]()
    if p["theory_iterations"]:
        runs["discounted, α = 1/(3L)"] = (1 - p["discount"]) ** 3 / 24, p["theory_iterations"], discounted
    for kind in p["settings"]:
        runs[f"{kind}, α = {p['step']:g}"] = p["step"], p["iterations"], _setting(kind, p["discount"])
    return runs


def models(p: dict[str, Any], seed: int) -> Problem:
    """Random models, each with its own random start."""
    sizes, found = (p["states"], p["actions"], p["objectives"]), list[Problem]()
    for k in range(p["models"]):
        theta = p["spread"] * np.random.default_rng((seed, k)).normal(size=sizes[0] * sizes[1])
        found.append(problem(library.random_ergodic(seed + k, *sizes), theta=theta))
    return stacked(found)


def _exact(p: dict[str, Any], how: tuple[float, Setting, str], T: int, seed: int) -> Arrays:
    grid = exact_ascent.points(T)
    return {"grid": grid, "mean_gap": exact_ascent.mean_gaps(models(p, seed), LABELS, how, grid)[0]}


def _learned(p: dict[str, Any], kind: str, seed: int) -> Arrays:
    """Mean over iterations and trials: [E, n, L] for n models."""
    config = trajectories.config(p, _setting(kind, p["discount"]), p["step"], p["iterations"])
    own = models(p, seed)
    _, theta = trajectories.learned(own, config, LABELS, (p["trials"], seed))
    gap = np.stack([closed_form.gaps(own, each[..., :-1, :], config.setting or Average()) for each in theta])
    grid = exact_ascent.points(p["iterations"])
    running = np.cumsum(gap.mean(axis=2), axis=-1)
    return {"grid": grid, "mean_gap": running[..., grid - 1] / grid}


def _late(grid: Any, decades: float = 0.5) -> Any:
    """The last `decades` of T: before, ascent has hardly begun."""
    return np.asarray(grid) >= grid[-1] / 10**decades


def _slopes(grid: Any, values: Float[np.ndarray, "E n L"], decades: float = 0.5) -> dict[str, Mean]:
    last = _late(grid, decades)
    return {label: fits.slope(grid[last], values[e][:, last]) for e, label in enumerate(LABELS)}


def _plain_minus_smoothed(grid: Any, values: Float[np.ndarray, "E n L"]) -> Mean:
    """The slope at η = 1 minus that at η = 1/t², on the same models."""
    last = _late(grid)
    plain, smoothed = (values[LABELS.index(label)][:, last] for label in ("η = 1", "η = 1/t²"))
    return fits.slope_difference(grid[last], plain, smoothed)


def _claims(slopes: dict[str, dict[str, Mean]], measured: dict[str, Any]) -> tuple[Claim, ...]:
    exact = {name: found for name, found in slopes.items() if "learned" not in name}
    learned = {name: found for name, found in slopes.items() if "learned" in name}
    return _exact_claim(exact, measured), _schedule_claim(measured), _learned_claim(learned)


def _as_one_over_t(slopes: dict[str, dict[str, Mean]]) -> list[compare.Part]:
    return [compare.slope_near(s, -1.0, judging.TOLERANCE) for found in slopes.values() for s in found.values()]


def _told(slopes: dict[str, dict[str, Mean]]) -> str:
    return "; ".join(f"{name}: {_range(found)}" for name, found in slopes.items())


def _exact_claim(exact: dict[str, dict[str, Mean]], measured: dict[str, Any]) -> Claim:
    longer = {name: _slopes(*measured[name], decades=1.0) for name in exact}
    return compare.claim(
        "With exact directions the mean gap falls as 1/T under every schedule (ours; the bound says so of 1/t² and "
        "0 only).",
        f"{_told(exact)}; asked: −1 ± {judging.TOLERANCE}. Over the last whole decade instead: {_told(longer)}. No "
        "mean over iterations can fall faster: it contains the first gap divided by T.",
        _as_one_over_t(exact),
        horizon_report.EXACT,
    )


def _schedule_claim(measured: dict[str, Any]) -> Claim:
    """Whether the slopes of the two schedules that the bound sets furthest apart differ."""
    differences = {name: _plain_minus_smoothed(*found) for name, found in measured.items()}
    ends = next(iter(measured.values()))[1][:, :, -1].mean(axis=1)
    return compare.claim(
        "The rate depends on the schedule: T^-1/2 for 1/√t, ln T/T for 1/t, and a term that stays at η = 1.",
        f"Slope at η = 1 minus slope at η = 1/t², on the same models: {judging.listed(differences)}; asked: beyond "
        f"± {judging.TOLERANCE}. At the largest T the means of the {len(LABELS)} schedules lie within "
        f"{ends.max() / ends.min() - 1:.0%} of one another. Where slopes do not differ, the differences "
        "belong to the bound, not to the algorithm; the data cannot say that no problem attains it.",
        [compare.steady(difference, judging.TOLERANCE).negated for difference in differences.values()],
        horizon_report.TABLE,
    )


def _learned_claim(learned: dict[str, dict[str, Mean]]) -> Claim:
    text = "With learned critics and finite batches the mean gap falls as 1/T as well (ours)."
    if not learned:
        return Claim(text, judging.NOT_RUN, "not measured")
    return compare.claim(
        text,
        f"{_told(learned)}; asked: −1 ± {judging.TOLERANCE}. Where it is flatter, noise still feeds the gap; Theorem 2 "
        "allows a floor of order 1/B there.",
        _as_one_over_t(learned),
        horizon_report.LEARNED,
    )


def _range(found: dict[str, Mean]) -> str:
    """The slopes, and the ends of their intervals."""
    values = [slope.value for slope in found.values()]
    low, high = min(slope.low for slope in found.values()), max(slope.high for slope in found.values())
    told = f"slopes from {min(values):.2f} to {max(values):.2f}, their intervals from {low:.2f} to {high:.2f}"
    return told.replace("-", "−")
