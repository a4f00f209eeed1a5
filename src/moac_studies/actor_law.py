"""Two questions about Theorem 2: whether samples follow the right law, and whether the gap depends on M.

In the discounted setting Algorithm 2 samples the stationary law: Lemma 1's direction H can vanish where the gradient
does not. And the bound does not say how the gap depends on the number of objectives.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.linalg import hadamard

from moac.config import Discounted
from moac.files import Arrays
from moac.momdp import FiniteMOMDP, library
from moac.report.numbers import number
from moac.report.page import Claim, Table
from moac.report.pages.experiment import Findings, Shown
from moac.statistics import Mean, mean
from moac_studies import compare, drawings
from moac_studies import small_problems as small
from moac_studies.compare import TOLERANCE
from moac_studies.framework import Workspace
from moac_studies.small_problems import Problem

LAWS = ("stationary", "own")  # Lemma 1's H, and the gradient
LAW_SCHEDULES = ("η = 1", "η = 1/t", "η = 0")
_LAW_FIGURE = "Stationary sampling of a discounted problem"
_ZERO = 1e-28  # A squared direction below this has vanished

SCHEDULES = ("η = 1", "η = 1/√t", "η = 1/t", "η = 0")
_FIGURE = "Gap against the number of objectives"
_OUTCOMES, _STATES, _ACTIONS = 64, 3, 2
_SETTING = Discounted(0.5)
_NOISE, _RANDOM = "objectives that differ in noise only", "random models"


def law_findings(work: Workspace, p: dict[str, Any], seed: int) -> Findings:
    """Search for an example, follow both laws from its start, exactly and by samples."""
    about = {"seed": seed, **p}
    searched = work.keep("wrong-law-search", about, lambda: search(p))
    row, sampled = pick(searched), dict[str, Arrays]()
    for visitation in p["visitations"]:
        identity = {**about, "visitation": visitation, "row": row}
        measure = partial(_sampled, p, seed, p["first"] + row, visitation)
        sampled[visitation] = work.keep("wrong-law-sampled", identity, measure)
    shown = _law_figure(searched, row, sampled)
    return Findings((_law_claim(searched, row, p, sampled),), (_law_table(searched, row, sampled),), (shown,))


def example(p: dict[str, Any], index: int) -> Problem:
    """Random model number `index`: it starts in one state, each (s, a) has two successors, two policy features.

    π(first action | s) = σ(φ(s)ᵀθ) with φ(s) ∈ R² of lengths that differ widely, and all of the policy hangs on θ.
    """
    S, lot = p["states"], np.random.default_rng(index)
    model = library.random_ergodic(index, S, 2, 2, num_successors=2)
    model = replace(model, start_distribution=np.eye(S)[0])
    features = np.zeros((S, 2, 2))
    features[:, 0] = 1.5 * lot.normal(size=(S, 2)) * np.exp(lot.normal(size=(S, 1)))
    return small.problem_of(model, features)


def search(p: dict[str, Any]) -> Arrays:
    """Exact ascent along H and along ∇J on all models: gaps [law, n, E, L] at the iterations of a grid, and θ.

    The gradient is scaled by 1 − γ, which makes of the visitation a law, so that both steps are alike.
    """
    problems = small.stacked([example(p, p["first"] + k) for k in range(p["models"])])
    setting, grid = Discounted(p["discount"]), small.horizons(p["iterations"])
    scale, paths = {"stationary": 1.0, "own": 1 - p["discount"]}, list[Any]()
    for law in LAWS:
        how = p["step"] * scale[law], setting, law
        paths.append(np.moveaxis(small.exact_ascent(problems, LAW_SCHEDULES, how, grid)[1], 0, 1))
    last = paths[0][:, :, -1]
    logits = np.einsum("nsp,nep->nes", problems.features[:, :, 0], last)
    return {
        "grid": grid,
        "theta": last,
        "gap": np.stack([small.gaps(problems, path, setting) for path in paths]),
        "direction_gap": np.stack([small.gaps(problems, path, setting, "stationary") for path in paths]),
        "rarest": 1 / (1 + np.exp(np.abs(logits).max(axis=2))),
    }


def law_ends(searched: Arrays) -> tuple[Any, Any]:
    """Where the ascent along H ends: whether H has vanished [n, E], and the true gap [n, E]."""
    return searched["direction_gap"][0, :, :, -1] <= _ZERO, searched["gap"][0, :, :, -1]


def pick(searched: Arrays) -> int:
    """The model whose smallest true gap over schedules is largest, of those where H has vanished under each."""
    vanished, gap = law_ends(searched)
    return int(np.argmax(np.where(vanished, gap, -1.0).min(axis=1)))


def _sampled(p: dict[str, Any], seed: int, chosen: int, visitation: str) -> Arrays:
    """Algorithm 2 from the same θ_1: the true gap of each schedule [E, K, L]."""
    problems, setting = small.stacked([example(p, chosen)]), Discounted(p["discount"])
    config = small.config_of(p, setting, p["step"], p["evaluations"], visitation=visitation)
    t, theta = small.learned_ascent(problems, config, LAW_SCHEDULES, (p["trials"], seed))
    return {"iteration": t, "gap": small.gaps(problems, np.swapaxes(theta, 0, 1), setting)[0]}


def _sampled_ends(sampled: dict[str, Arrays]) -> dict[str, Mean]:
    cells = product(sampled.items(), enumerate(LAW_SCHEDULES))
    return {f"visitation {v}, {label}": mean(arrays["gap"][e, :, -1]) for (v, arrays), (e, label) in cells}


def _law_claim(searched: Arrays, row: int, p: dict[str, Any], sampled: dict[str, Arrays]) -> Claim:
    vanished, gap = law_ends(searched)
    of, large = vanished.sum(axis=0), (vanished & (gap >= p["large"])).sum(axis=0)
    counts = ", ".join(f"{large[e]} of {of[e]} at {label}" for e, label in enumerate(LAW_SCHEDULES))
    true = {label: number(gap[row, e]) for e, label in enumerate(LAW_SCHEDULES)}
    refuted = bool((vanished[row] & (gap[row] >= p["large"])).all())
    told = (
        f"Model {p['first'] + row}: ‖Hλ‖² = {number(searched['direction_gap'][0, row, :, -1].max(), 2)} or less under "
        f"each schedule where the true gap is {compare.listed(true)}, and no action is rarer than "
        f"{searched['rarest'][row].min():.2f}. Of {len(vanished)} random models, where H vanishes the true gap stays "
        f"at {p['large']:g} or more for {counts}."
    )
    if sampled:
        told += f" Sampled, after {p['iterations']} iterations: {compare.listed(_sampled_ends(sampled))}."
    if not refuted:
        told += " Not decided: more models would have to be searched for a counterexample."
    text = "In the discounted setting Algorithm 2, which samples the stationary law, finds Pareto-stationary points."
    return Claim(text, told, "does not hold" if refuted else "not decided", _LAW_FIGURE)


def _law_table(searched: Arrays, row: int, sampled: dict[str, Arrays]) -> Table:
    gap, direction_gap = (searched[name][:, row, :, -1] for name in ("gap", "direction_gap"))
    names = ("exact H (stationary law)", "exact ∇J (discounted visitation)")
    cells = product(enumerate(names), enumerate(LAW_SCHEDULES))
    exact = [(f"{name}, {label}", number(gap[k, e]), number(direction_gap[k, e])) for (k, name), (e, label) in cells]
    rows = [(f"sampled, {name}", compare.with_interval(end), None) for name, end in _sampled_ends(sampled).items()]
    theta = ", ".join(f"{x:.4f}" for x in searched["theta"][row, 0])
    return Table(
        "Where each law leads",
        f"All from the same start, θ = 0; at η = 1 the exact ascent along H ends at θ = ({theta}). Intervals are over "
        "trials.",
        ("followed", "true gap at last", "‖Hλ‖² at last"),
        (*exact, *rows),
    )


def _law_figure(searched: Arrays, row: int, sampled: dict[str, Arrays]) -> Shown:
    x, kept = searched["grid"], [*searched["gap"][:, row, 0], searched["direction_gap"][0, row, 0]]
    rows = np.maximum(np.stack(kept), 1e-36)[:, None]
    exact = (
        drawings.Curve("along H: true gap", x, rows[0], 0),
        drawings.Curve("along H: ‖Hλ‖²", x, rows[2], 6),
        drawings.Curve("along ∇J: true gap", x, rows[1], 2),
    )
    panels = [drawings.Panel("Exact directions, η = 1", ("iteration", "squared norm"), exact)]
    for e, label in enumerate(LAW_SCHEDULES if sampled else ()):
        learned = tuple(
            drawings.Curve(f"visitation {v}: true gap", own["iteration"], own["gap"][e], 1 if v == "stationary" else 3)
            for v, own in sampled.items()
        )
        panels.append(drawings.Panel(f"Sampled, {label}", ("iteration", "true gap"), learned))
    followed = " Then Algorithm 2 with samples of each law, bands 95 % over trials." if sampled else ""
    return Shown(
        _LAW_FIGURE,
        "wrong-law",
        drawings.curves(panels, columns=min(2, len(panels))),
        "From one start: ascent along the direction that stationary sampling estimates, and along the gradient of the "
        f"discounted return.{followed}",
        "Log–log charts of the true gap over iterations, along the direction of each law.",
    )


def objectives_findings(work: Workspace, p: dict[str, Any], seed: int) -> Findings:
    """The gap after T iterations by M, for each step and kind of problem."""
    about = {"seed": seed, **p}
    arrays = [work.keep("objectives", {**about, "M": M}, lambda M=M: _measure(p, M, seed)) for M in p["objectives"]]
    gap, count = np.stack([each["gap"] for each in arrays], axis=-1), len(p["steps"]) * p["copies"]
    trials = gap[:, :count].reshape(len(SCHEDULES), len(p["steps"]), -1, len(arrays))
    measured = {f"{_NOISE}, α = {alpha:g}": trials[:, k] for k, alpha in enumerate(p["steps"])}
    if p["models"]:
        measured[f"{_RANDOM}, α = {p['steps'][0]:g}"] = gap[:, count:].mean(axis=2)
    cells = product(measured.items(), enumerate(SCHEDULES))
    slopes = {(name, label): compare.slope(p["objectives"], values[e]) for (name, values), (e, label) in cells}
    claims = tuple(
        _claim(kind, {key: slope for key, slope in slopes.items() if key[0].startswith(kind)})
        for kind in (_NOISE, _RANDOM)
    )
    return Findings(claims, (_table(measured, slopes, p),), (_figure(measured, p),))


def noise_only(M: int, noise: float = 0.4) -> FiniteMOMDP:
    """One state, two actions of mean (.6, .4) for every objective, episodes of one step.

    The noise of objective i is ± `noise` by row i of Hadamard's matrix over 64 equally likely outcomes: independent
    signs of mean 0. All ∇Jⁱ are equal, so that the gap is the same function of the policy for every M.
    """
    signs = hadamard(_OUTCOMES)[1 : M + 1].T
    reward = np.array([0.6, 0.4])[:, None, None] + noise * np.stack([signs, signs])
    return small.one_step(reward[None])


def alike(M: int, index: int, own_part: float = 0.2) -> FiniteMOMDP:
    """A random model whose objectives share most of their reward: rⁱ = (1 − ξ) r⁰ + ξ uⁱ, ξ = `own_part`.

    Models of one index share dynamics, r⁰ and the first uⁱ whatever M. With wholly independent objectives and more of
    them than parameters every policy would be Pareto-stationary, and there would be nothing to measure.
    """
    model = library.random_ergodic(index, _STATES, _ACTIONS, _OUTCOMES)
    shared, individual = model.reward[..., :1], model.reward[..., 1 : M + 1]
    mixed = replace(model, reward=(1 - own_part) * shared + own_part * individual)
    return mixed.named(tuple(f"objective {i + 1}" for i in range(M)))


def _measure(p: dict[str, Any], M: int, seed: int) -> Arrays:
    """Gaps [E, n, K] on copies of the noise-only model for each step, then on random ones with the first step.

    All in one program: where the features are √α x, a step 1 is what a step α is with x, for √α θ.
    """
    shape, models = (_STATES, _ACTIONS, _STATES * _ACTIONS), [alike(M, seed + k) for k in range(p["models"])]
    noise = small.padded(small.problem_of(noise_only(M)), shape)
    others = [small.padded(small.problem_of(model), shape, _OUTCOMES) for model in models]
    alphas = [*np.repeat(p["steps"], p["copies"]), *([p["steps"][0]] * len(others))]
    problems, root = small.stacked([noise] * (len(alphas) - len(others)) + others), np.sqrt(alphas)[:, None]
    scaled: Any = (root[:, :, None, None] * problems.features, problems.theta / root)
    stepped = replace(problems, features=scaled[0], theta=scaled[1])
    _, theta = small.learned_ascent(stepped, small.config_of(p, _SETTING, 1.0, 1), SCHEDULES, (p["trials"], seed))
    last = theta[..., -1, :] * root[:, None]
    return {"gap": np.swapaxes(small.gaps(problems, np.swapaxes(last, 0, 1), _SETTING), 0, 1)}


def _claim(kind: str, slopes: dict[tuple[str, str], Mean]) -> Claim:
    text = f"The gap after T iterations does not grow with the number of objectives: {kind}."
    if not slopes:
        return Claim(text, compare.NOT_RUN, "not measured")
    flat = {key: compare.below(slope, TOLERANCE) for key, slope in slopes.items()}
    grows = dict.fromkeys(label for (_, label), part in flat.items() if part.verdict == "does not hold")
    shown = compare.listed({f"{name.removeprefix(kind)[2:]}, {label}": s for (name, label), s in slopes.items()})
    return compare.claim(
        text,
        f"Slopes of log gap in log M: {shown}; required: below {TOLERANCE}. It grows with M for: "
        f"{', '.join(grows) or 'none'}.",
        flat.values(),
        _FIGURE,
    )


def _table(measured: dict[str, Any], slopes: dict[tuple[str, str], Mean], p: dict[str, Any]) -> Table:
    rows: list[tuple[str, ...]] = []
    for (name, label), slope in slopes.items():
        columns = [mean(column) for column in measured[name][SCHEDULES.index(label)].T]
        rows.append((f"{name}, {label}", *map(compare.with_interval, (*columns, slope))))
    return Table(
        "Gap after T iterations by M",
        f"Mean exact gap after T = {p['iterations']} iterations with B = {p['actor_batch']}; 95 % intervals over "
        f"{p['copies'] * p['trials']} trials of the noise-only model, over {p['models']} random models. In random "
        "models M also changes what is Pareto-stationary: the gap is a minimum over more weights.",
        ("problem", *(f"M = {M}" for M in p["objectives"]), "slope in M"),
        tuple(rows),
    )


def _figure(measured: dict[str, Float[np.ndarray, "E R L"]], p: dict[str, Any]) -> Shown:
    colours, panels = {label: small.COLOURS[label] for label in SCHEDULES}, list[drawings.Panel]()
    for name, values in measured.items():
        curves = drawings.by_label(p["objectives"], values, colours)
        panels.append(
            drawings.Panel(name[0].upper() + name[1:], ("number of objectives M", "gap after T iterations"), curves)
        )
    return Shown(
        _FIGURE,
        "objectives",
        drawings.curves(panels, columns=len(panels)),
        "Exact gap after T iterations. In the noise-only model all objectives have the same gradient and differ in "
        "their noise alone, so that any dependence on M comes from the weights. Bands are 95 % over trials or models.",
        "Log–log charts of the exact gap against the number of objectives for four momentum schedules.",
    )
