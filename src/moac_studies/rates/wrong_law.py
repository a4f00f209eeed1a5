"""A discounted problem under stationary sampling: where Lemma 1's direction vanishes and the gradient does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from moac import momdp
from moac.config import Discounted
from moac.files import Arrays
from moac.report.numbers import number
from moac.report.page import Claim, Table
from moac.statistics import Mean, mean
from moac_studies.drawings import rates
from moac_studies.rates import closed_form, exact_ascent, judging, trajectories
from moac_studies.rates.problems import Problem, problem, stacked
from moac_studies.studies import Findings, Shown, Workspace

_FIGURE = "Stationary sampling of a discounted problem"
_TABLE = "Where each law leads"
LAWS = ("stationary", "own")
"""Lemma 1's H, and the gradient."""
SCHEDULES = ("η = 1", "η = 1/t", "η = 0")
_ZERO = 1e-28
"""A squared direction below this has vanished."""


def findings(work: Workspace, p: dict[str, Any], seed: int) -> Findings:
    """Search for an example, follow both laws from its start, exactly and by samples."""
    about = {"seed": seed, **p}
    found = work.arrays("wrong-law-search", about, lambda: search(p))
    row, sampled = pick(found), dict[str, Arrays]()
    for visitation in p["visitations"]:
        own_about = {**about, "visitation": visitation, "row": row}
        sampled[visitation] = work.arrays(
            "wrong-law-sampled", own_about, lambda v=visitation: _sampled(p, seed, p["first"] + row, v)
        )
    return Findings((_claim(found, row, p, sampled),), (_table(found, row, sampled),), (_figure(found, row, sampled),))


def example(p: dict[str, Any], index: int) -> Problem:
    """Random model number `index`: it starts in one state, each (s, a) has two successors, two policy features.

    π(first action | s) = σ(φ(s)ᵀθ) with φ(s) ∈ R² of lengths that differ widely, and all of the policy hangs on θ.
    """
    S, lot = p["states"], np.random.default_rng(index)
    model = momdp.library.random_ergodic(index, S, 2, 2, num_successors=2)
    model = replace(model, start_distribution=np.eye(S)[0])
    features = np.zeros((S, 2, 2))
    features[:, 0] = 1.5 * lot.normal(size=(S, 2)) * np.exp(lot.normal(size=(S, 1)))
    return problem(model, features)


def search(p: dict[str, Any]) -> Arrays:
    """Exact ascent along H and along ∇J on all models: gaps [law, n, E, L] at the iterations of a grid, and θ.

    The gradient is scaled by 1 − γ, which makes of the visitation a law, so that both steps are alike.
    """
    every = stacked([example(p, p["first"] + k) for k in range(p["models"])])
    setting, grid = Discounted(p["discount"]), exact_ascent.points(p["iterations"])
    scale, paths = {"stationary": 1.0, "own": 1 - p["discount"]}, list[Any]()
    for law in LAWS:
        how = p["step"] * scale[law], setting, law
        paths.append(np.moveaxis(exact_ascent.mean_gaps(every, SCHEDULES, how, grid)[1], 0, 1))
    last = paths[0][:, :, -1]
    logits = np.einsum("nsp,nep->nes", every.features[:, :, 0], last)
    return {
        "grid": grid,
        "theta": last,
        "gap": np.stack([closed_form.gaps(every, path, setting) for path in paths]),
        "direction_gap": np.stack([closed_form.gaps(every, path, setting, "stationary") for path in paths]),
        "rarest": 1 / (1 + np.exp(np.abs(logits).max(axis=2))),
    }


def ends(found: Arrays) -> tuple[Any, Any]:
    """Where the ascent along H ends: whether H has vanished [n, E], and the true gap [n, E]."""
    return found["direction_gap"][0, :, :, -1] <= _ZERO, found["gap"][0, :, :, -1]


def pick(found: Arrays) -> int:
    """The model whose smallest true gap over schedules is largest, of those where H has vanished under each."""
    vanished, gap = ends(found)
    return int(np.argmax(np.where(vanished, gap, -1.0).min(axis=1)))


def _sampled(p: dict[str, Any], seed: int, chosen: int, visitation: str) -> Arrays:
    """Algorithm 2 from the same θ_1: the true gap of each schedule [E, K, L]."""
    own, setting = stacked([example(p, chosen)]), Discounted(p["discount"])
    config = trajectories.config(p, setting, p["step"], p["evaluations"], visitation=visitation)
    t, theta = trajectories.learned(own, config, SCHEDULES, (p["trials"], seed))
    return {"iteration": t, "gap": closed_form.gaps(own, np.swapaxes(theta, 0, 1), setting)[0]}


def _sampled_ends(sampled: dict[str, Arrays]) -> dict[str, Mean]:
    return {
        f"visitation {v}, {label}": mean(arrays["gap"][e, :, -1])
        for v, arrays in sampled.items()
        for e, label in enumerate(SCHEDULES)
    }


def _claim(found: Arrays, row: int, p: dict[str, Any], sampled: dict[str, Arrays]) -> Claim:
    vanished, gap = ends(found)
    of, large = vanished.sum(axis=0), (vanished & (gap >= p["large"])).sum(axis=0)
    counts = ", ".join(f"{large[e]} of {of[e]} at {label}" for e, label in enumerate(SCHEDULES))
    gaps = {label: number(gap[row, e]) for e, label in enumerate(SCHEDULES)}
    refuted = bool((vanished[row] & (gap[row] >= p["large"])).all())
    return Claim(
        "In the discounted setting Algorithm 2, which samples the stationary law, finds Pareto-stationary points.",
        f"Model {p['first'] + row}: ‖Hλ‖² = {number(found['direction_gap'][0, row, :, -1].max(), 2)} or less under "
        f"each schedule where the true gap is {judging.listed(gaps)}, and no action is rarer than "
        f"{found['rarest'][row].min():.2f}. Of {len(vanished)} random models, where H vanishes the true gap stays at "
        f"{p['large']:g} or more for {counts}."
        + (
            f" Sampled, after {p['iterations']} iterations: {judging.listed(_sampled_ends(sampled))}."
            if sampled
            else ""
        )
        + ("" if refuted else " Not decided: more models would have to be searched for a counterexample."),
        "does not hold" if refuted else "not decided",
        _FIGURE,
    )


def _table(found: Arrays, row: int, sampled: dict[str, Arrays]) -> Table:
    last = {name: found[name][:, row, :, -1] for name in ("gap", "direction_gap")}
    names = ("exact H (stationary law)", "exact ∇J (discounted visitation)")
    exact = [
        (f"{name}, {label}", number(last["gap"][k, e]), number(last["direction_gap"][k, e]))
        for k, name in enumerate(names)
        for e, label in enumerate(SCHEDULES)
    ]
    rows = [(f"sampled, {name}", judging.with_interval(end), None) for name, end in _sampled_ends(sampled).items()]
    theta = ", ".join(f"{x:.4f}" for x in found["theta"][row, 0])
    return Table(
        _TABLE,
        f"All from the same start, θ = 0; at η = 1 the exact ascent along H ends at θ = ({theta}). Intervals are over "
        "trials.",
        ("followed", "true gap at last", "‖Hλ‖² at last"),
        (*exact, *rows),
    )


def _figure(found: Arrays, row: int, sampled: dict[str, Arrays]) -> Shown:
    x, kept = found["grid"], [*found["gap"][:, row, 0], found["direction_gap"][0, row, 0]]
    rows = np.maximum(np.stack(kept), 1e-36)[:, None]
    exact = (
        rates.Curve("along H: true gap", x, rows[0], 0),
        rates.Curve("along H: ‖Hλ‖²", x, rows[2], 6),
        rates.Curve("along ∇J: true gap", x, rows[1], 2),
    )
    panels = [rates.Panel("Exact directions, η = 1", ("iteration", "squared norm"), exact)]
    for e, label in enumerate(SCHEDULES if sampled else ()):
        learned = tuple(
            rates.Curve(f"visitation {v}: true gap", arrays["iteration"], arrays["gap"][e], {"stationary": 1}.get(v, 3))
            for v, arrays in sampled.items()
        )
        panels.append(rates.Panel(f"Sampled, {label}", ("iteration", "true gap"), learned))
    followed = " Then Algorithm 2 with samples of each law, bands 95 % over trials." if sampled else ""
    return Shown(
        _FIGURE,
        "wrong-law",
        rates.loglog(tuple(panels), columns=min(2, len(panels))),
        "From one start: ascent along the direction that stationary sampling estimates, and along the gradient of the "
        f"discounted return.{followed}",
        "Log–log charts of the true gap over iterations, along the direction of each law.",
    )
