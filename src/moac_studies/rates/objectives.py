"""The number of objectives: does the gap after T iterations depend on M?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.linalg import hadamard

from moac.config import Discounted
from moac.files import Arrays
from moac.momdp import FiniteMOMDP, library
from moac.report.page import Claim, Table
from moac.statistics import Mean, mean
from moac_studies import compare
from moac_studies.drawings import rates
from moac_studies.rates import closed_form, fits, judging, trajectories
from moac_studies.rates.problems import Problem, padded, problem, stacked, widened, with_step
from moac_studies.rates.trajectories import COLOURS
from moac_studies.studies import Findings, Shown, Workspace

LABELS = ("η = 1", "η = 1/√t", "η = 1/t", "η = 0")
_FIGURE = "Gap against the number of objectives"
_TABLE = "Gap after T iterations by M"
_OUTCOMES, _STATES, _ACTIONS = 64, 3, 2
_SETTING = Discounted(0.5)
_NOISE, _RANDOM = "objectives that differ in noise only", "random models"


def noise_only(M: int, noise: float = 0.4) -> FiniteMOMDP:
    """One state, two actions of mean (.6, .4) for every objective, episodes of one step.

    The noise of objective i is ± `noise` by row i of Hadamard's matrix over 64 equally likely outcomes: independent
    signs of mean 0. All ∇Jⁱ are equal, so that the gap is the same function of the policy for every M.
    """
    signs = hadamard(_OUTCOMES)[1 : M + 1].T
    reward = np.array([0.6, 0.4])[:, None, None] + noise * np.stack([signs, signs])
    shape = (1, 2, _OUTCOMES)
    return FiniteMOMDP.from_outcomes(
        np.zeros(shape, int), np.full(shape, 1 / _OUTCOMES), reward[None], np.ones(shape, bool)
    )


def alike(M: int, index: int, own_part: float = 0.2) -> FiniteMOMDP:
    """A random model whose objectives share most of their reward: rⁱ = (1 − ξ) r⁰ + ξ uⁱ, ξ = `own_part`.

    Models of one index share dynamics, r⁰ and the first uⁱ whatever M. With wholly independent objectives and more of
    them than parameters every policy would be Pareto-stationary, and there would be nothing to measure.
    """
    model = library.random_ergodic(index, _STATES, _ACTIONS, _OUTCOMES)
    shared, own = model.reward[..., :1], model.reward[..., 1 : M + 1]
    mixed = replace(model, reward=(1 - own_part) * shared + own_part * own)
    return mixed.named(tuple(f"objective {i + 1}" for i in range(M)))


def problems(p: dict[str, Any], M: int, seed: int) -> tuple[list[Problem], list[float]]:
    """The noise-only model, some copies for each step, then random ones with the first step; and the steps."""
    noise = padded(problem(noise_only(M)), _STATES, _ACTIONS, _STATES * _ACTIONS)
    others = [widened(problem(alike(M, seed + k)), _OUTCOMES) for k in range(p["models"])]
    copies = np.repeat(p["steps"], p["copies"]).tolist()
    return [noise] * len(copies) + others, [*copies, *([p["steps"][0]] * len(others))]


def findings(work: Workspace, p: dict[str, Any], seed: int) -> Findings:
    """Gaps by problem, each [E, R, L] for L numbers of objectives; intervals are over R trials or models."""
    found = [
        work.arrays("objectives", {"seed": seed, **p, "M": M}, lambda m=M: _measure(p, m, seed))["gap"]
        for M in p["objectives"]
    ]
    gap, count = np.stack(found, axis=-1), len(p["steps"]) * p["copies"]
    trials = gap[:, :count].reshape(len(LABELS), len(p["steps"]), -1, len(found))
    measured = {f"{_NOISE}, α = {alpha:g}": trials[:, k] for k, alpha in enumerate(p["steps"])}
    if p["models"]:
        measured[f"{_RANDOM}, α = {p['steps'][0]:g}"] = gap[:, count:].mean(axis=2)
    slopes = {
        (name, label): fits.slope(p["objectives"], values[e])
        for name, values in measured.items()
        for e, label in enumerate(LABELS)
    }
    return Findings(_claims(slopes), (_table(measured, slopes, p),), (_figure(measured, p),))


def _measure(p: dict[str, Any], M: int, seed: int) -> Arrays:
    """[E, n, K], all steps in one program."""
    config = trajectories.config(p, _SETTING, 1.0, 1)
    given, alphas = problems(p, M, seed)
    scaled = stacked([with_step(one, alpha) for one, alpha in zip(given, alphas, strict=True)])
    _, theta = trajectories.learned(scaled, config, LABELS, (p["trials"], seed))
    last = theta[..., -1, :] * np.sqrt(alphas)[:, None, None]
    return {"gap": np.swapaxes(closed_form.gaps(stacked(given), np.swapaxes(last, 0, 1), _SETTING), 0, 1)}


def _claims(slopes: dict[tuple[str, str], Mean]) -> tuple[Claim, ...]:
    return tuple(
        _claim(kind, {key: slope for key, slope in slopes.items() if key[0].startswith(kind)})
        for kind in (_NOISE, _RANDOM)
    )


def _claim(kind: str, slopes: dict[tuple[str, str], Mean]) -> Claim:
    text = f"The gap after T iterations does not grow with the number of objectives: {kind}."
    if not slopes:
        return Claim(text, judging.NOT_RUN, "not measured")
    flat = {key: compare.below(slope, judging.TOLERANCE) for key, slope in slopes.items()}
    grows = dict.fromkeys(label for (_, label), part in flat.items() if part.verdict == "does not hold")
    shown = judging.listed({f"{name.removeprefix(kind)[2:]}, {label}": s for (name, label), s in slopes.items()})
    return compare.claim(
        text,
        f"Slopes of log gap in log M: {shown}; asked: below {judging.TOLERANCE}. It grows with M for: "
        f"{', '.join(grows) or 'none'}.",
        flat.values(),
        _FIGURE,
    )


def _table(measured: dict[str, Any], slopes: dict[tuple[str, str], Mean], p: dict[str, Any]) -> Table:
    rows = tuple(
        (
            f"{name}, {label}",
            *(judging.with_interval(mean(column)) for column in values[e].T),
            judging.with_interval(slopes[name, label]),
        )
        for name, values in measured.items()
        for e, label in enumerate(LABELS)
    )
    return Table(
        _TABLE,
        f"Mean exact gap after T = {p['iterations']} iterations with B = {p['actor_batch']}; 95 % intervals over "
        f"{p['copies'] * p['trials']} trials of the noise-only model, over {p['models']} random models. In random "
        "models M also changes what is Pareto-stationary: the gap is a minimum over more weights.",
        ("problem", *(f"M = {M}" for M in p["objectives"]), "slope in M"),
        rows,
    )


def _figure(measured: dict[str, Float[np.ndarray, "E R L"]], p: dict[str, Any]) -> Shown:
    def panel(name: str, values: Float[np.ndarray, "E R L"]) -> rates.Panel:
        curves = tuple(rates.Curve(label, p["objectives"], values[e], COLOURS[label]) for e, label in enumerate(LABELS))
        return rates.Panel(name[0].upper() + name[1:], ("M", "gap after T iterations"), curves)

    panels = tuple(panel(name, values) for name, values in measured.items())
    return Shown(
        _FIGURE,
        "objectives",
        rates.loglog(panels, columns=len(panels)),
        "Exact gap after T iterations. In the noise-only model all objectives have the same gradient and differ in "
        "their noise alone, so that any dependence on M comes from the weights. Bands are 95 % over trials or models.",
        "Log–log charts of the exact gap against the number of objectives for four momentum schedules.",
    )
