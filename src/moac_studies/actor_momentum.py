"""What momentum gives, against the batch size and beside fixed weights, on three problems of one step.

For the second of them the expected step of plain MGDA (η = 1) is enumerated. With exact advantages
g(n) = (1/B) Σ_a n_a Adv(a) ψ(a) depends on the batch through the counts n of its actions alone. So E[g λ̂(g)] is a sum
over the multisets of B actions, weighted by their multinomial chances.
"""

from __future__ import annotations

from functools import partial
from itertools import combinations_with_replacement, product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float
from scipy.special import gammaln, softmax

from moac import simplex
from moac.config import Discounted
from moac.files import Arrays
from moac.momdp import FiniteMOMDP
from moac.report.numbers import number
from moac.report.page import Claim, Table
from moac.report.pages.experiment import Findings, Shown
from moac.statistics import mean
from moac_studies import compare, drawings
from moac_studies import small_problems as small
from moac_studies.framework import Workspace
from moac_studies.small_problems import Problem

NAMES = ("A: two states in conflict", "B: shared action features", "C: unequal scales")
LABELS = ("η = 1", "η = 1/t", "η = 1/t²", "η = 0", small.FIRST_BATCH)
SETTING = Discounted(0.5)  # Episodes of one step: the discount does not matter
_GAP, _WORST = "Gap against B with and without momentum", "What every objective keeps"
_BIAS = "Bias of the expected step"


def one_step(reward: Any) -> FiniteMOMDP:
    """Every step ends the episode; r [S, A, M] is certain, the first state is drawn evenly."""
    return small.one_step(np.asarray(reward, np.float64)[:, :, None])


def action_features() -> Problem:
    """One state, four actions whose logits are x(a)ᵀθ with θ ∈ R²; the first action is best in both objectives."""
    x = np.array([[[-1, 1], [2, 1], [-2, 2], [-1, -1]]], np.float64)
    return small.problem_of(one_step([[[1, 1], [0.9, 0.9], [0.2, 0.7], [0.9, 0]]]), x)


def unequal_scales() -> Problem:
    """One state, three actions; the second objective is a tenth of the size of the first.

    r = (1, 0), (.8, .08), (0, .1). The second action improves on the uniform policy in both objectives; equal weights
    see the first objective only and take the first action, which costs the second objective all it had.
    """
    return small.problem_of(one_step([[[1, 0], [0.8, 0.08], [0, 0.1]]]))


def examples() -> list[Problem]:
    """The three, in the order of `NAMES` and in one shape.

    In the first each state offers one objective much and the other little: (1, 0) or (0, .2), and (.2, 0) or (0, 1).
    """
    two_states = small.problem_of(one_step([[[1, 0], [0, 0.2]], [[0.2, 0], [0, 1]]]))
    return [small.padded(problem, (2, 4, 4)) for problem in (two_states, action_features(), unequal_scales())]


def returns(problem: Problem, theta: Any) -> Float[np.ndarray, "... M"]:
    """J of θ [..., p] for one problem of one step."""
    logits = np.einsum("sap,...p->...sa", problem.features, np.asarray(theta, np.float64)) + problem.offset
    reward = np.einsum("sao,saom->sam", problem.probability, problem.reward)
    return np.einsum("s,...sa,sam->...m", problem.initial, softmax(logits, axis=-1), reward)


def multisets(num_actions: int, size: int) -> tuple[Float[np.ndarray, "n A"], Float[np.ndarray, " n"]]:
    """Counts of all multisets of `size` actions, and the logarithms of their multinomial coefficients."""
    drawn = np.array(list(combinations_with_replacement(range(num_actions), size)))
    counts = (drawn[:, :, None] == np.arange(num_actions)).sum(axis=1).astype(np.float64)
    return counts, gammaln(size + 1) - gammaln(counts + 1).sum(axis=1)


def expected_step(problem: Problem, theta: Float[Array, " p"], batches: Any) -> Float[Array, " p"]:
    """E[g λ̂(g)] over batches of actions drawn from π_θ."""
    counts, log_coefficient = batches
    policy, reward = small.LinearLogits(problem), jnp.einsum("sao,saom->sam", problem.probability, problem.reward)[0]
    pi = policy.tabulate(theta)[0]
    score = policy.scores(theta)[0] * counts.sum(axis=1)[:1] ** -1
    each = jnp.einsum("am,ap->amp", reward - pi @ reward, score)
    G = jnp.einsum("na,amp->nmp", counts, each)
    lam = simplex.min_norm_from_gram(jnp.einsum("nmp,nkp->nmk", G, G)).weights
    chance = jnp.exp(log_coefficient + counts @ jnp.log(pi))
    return jnp.einsum("n,nm,nmp->p", chance, lam, G)


@partial(jax.jit, static_argnums=0)
def _follow(iterations: int, problem: Problem, batches: Any, alpha: Any) -> Any:
    """The bias ‖E[g λ̂] − ∇J λ*‖ at θ_1; θ and ‖E[g λ̂]‖ after so many expected steps."""
    start = problem.theta
    true = simplex.min_norm(small.gradients(problem, start, SETTING)).direction
    bias = jnp.linalg.norm(expected_step(problem, start, batches) - true)
    theta = lax.fori_loop(0, iterations, lambda _, x: x + alpha * expected_step(problem, x, batches), start)
    return bias, theta, jnp.linalg.norm(expected_step(problem, theta, batches))


def findings(work: Workspace, p: dict[str, Any], seed: int) -> Findings:
    """Gaps and changes of returns by batch size, and the expected step of example B."""
    about = {"seed": seed, **p}
    by_batch = [work.keep("momentum", {**about, "B": B}, lambda B=B: measure(p, B, seed)) for B in p["batches"]]
    gap, change = (np.stack([arrays[key] for arrays in by_batch], axis=-1) for key in ("gap", "change"))
    bias = work.keep("expected-step", {**p}, lambda: expected(p))
    worst = "Smallest change of a return as a share of what it could gain (below 0 one was harmed)"
    tables = (
        _table("Momentum: gaps", "Exact gap", gap, p),
        _table("Momentum: the worst change of a return", worst, change, p),
        _bias_table(bias, p),
    )
    smallest = f"B = {p['batches'][0]}"
    gap_claims = _gap_claims(gap, f"Gap after T = {p['iterations']} at {smallest}")
    claims = (*gap_claims, _bias_claim(bias, p), _kept(change, smallest))
    return Findings(claims, tables, _figures(gap, change, bias, p))


def measure(p: dict[str, Any], B: int, seed: int) -> Arrays:
    """The exact gap at the end, and the smallest change of a return over its range: [3, E, K]."""
    config, problems = small.config_of({**p, "actor_batch": B}, SETTING, p["step"], 1), examples()
    _, theta = small.learned_ascent(small.stacked(problems), config, LABELS, (p["trials"], seed))
    first, last = (np.moveaxis(theta[..., k, :], 0, 1) for k in (0, -1))
    change = [_worst_change(*each) for each in zip(problems, first, last, strict=True)]
    return {"gap": small.gaps(small.stacked(problems), last, SETTING), "change": np.stack(change)}


def _worst_change(problem: Problem, first: Any, last: Any) -> Float[np.ndarray, "E K"]:
    """min over i of (Jⁱ at the end − Jⁱ at the start)/(largest possible − Jⁱ at the start): below 0, one was harmed."""
    before, after = returns(problem, first), returns(problem, last)
    best = np.einsum("s,sm->m", problem.initial, problem.reward[:, :, 0].max(axis=1))
    return ((after - before) / (best - before)).min(axis=-1)


def expected(p: dict[str, Any]) -> Arrays:
    """By batch size: the bias at the start of example B, the gap and the expected step where expected steps end."""
    problem, rows = action_features(), list[Any]()
    with jax.enable_x64(True):
        tables, alpha = jax.tree.map(jnp.asarray, problem), jnp.asarray(p["expected_step"])
        for B in p["expected_batches"]:
            batches = tuple(map(jnp.asarray, multisets(problem.features.shape[1], B)))
            rows.append(_follow(p["expected_iterations"], tables, batches, alpha))
    bias, theta, left = (np.stack(column) for column in zip(*rows, strict=True))
    return {"bias": bias, "gap": small.gaps(small.stacked([problem]), theta[None], SETTING)[0], "left": left}


def _of(values: Float[np.ndarray, "X E K L"], example: int, label: str) -> Float[np.ndarray, " K"]:
    """The trials of one example at the smallest batch."""
    return values[example, LABELS.index(label), :, 0]


def _gap_claims(gap: Any, what: str) -> tuple[Claim, Claim]:
    """Momentum against plain MGDA and against weights that never move, trial by trial."""
    plain, smooth, fixed = ([_of(gap, k, label) for k in range(3)] for label in ("η = 1", "η = 1/t", "η = 0"))
    told = "; ".join(
        f"{NAMES[k][0]}: η = 1 {_told(plain[k])}, 1/t {_told(smooth[k])}, η = 0 {_told(fixed[k])}" for k in range(3)
    )
    smaller = [compare.paired(b, c) for b, c in zip(smooth, fixed, strict=True)]
    return (
        compare.claim(
            "With tiny batches momentum reaches a far smaller gap than plain MGDA.",
            f"{what}: {told}; required: a tenth or less.",
            [compare.falls(a, b, times=10) for a, b in zip(plain, smooth, strict=True)],
            _GAP,
        ),
        compare.claim(
            "Momentum beats fixed weights in these examples (the mandatory control η = 0).",
            f"{what}, 1/t minus η = 0: {'; '.join(map(compare.with_interval, smaller))}. Momentum works by freezing λ; "
            "weights that never move have no noise to freeze.",
            map(compare.below, smaller),
            _GAP,
        ),
    )


def _told(values: Float[np.ndarray, " K"]) -> str:
    return compare.with_interval(mean(values))


def _bias_claim(bias: Arrays, p: dict[str, Any]) -> Claim:
    """Enumerated, not estimated."""

    def row(values: Any) -> str:
        return ", ".join(number(float(x), 2) for x in values)

    slope = compare.slope(p["expected_batches"], bias["bias"][None]).value
    return compare.claim(
        "Plain MGDA's expected step is biased by the batch, and the bias falls with B.",
        f"Example B at its start: ‖E[gλ̂] − ∇Jλ*‖ = {row(bias['bias'])} at B = "
        f"{', '.join(map(str, p['expected_batches']))}, slope {number(slope, 2)}; the fixed points of the expected "
        f"step keep gaps of {row(bias['gap'])}.",
        [compare.known(np.all(np.diff(bias["bias"]) < 0)), compare.known(np.all(bias["gap"] > 1e-7))],
        _BIAS,
    )


def _kept(change: Any, small: str) -> Claim:
    """No objective loses, and the worst-off keeps more than under any other weights."""
    worst = {label: _of(change, 2, label) for label in LABELS}
    ours = worst.pop("η = 1/t")
    more = [compare.above(compare.paired(ours, other)) for other in worst.values()]
    shown = {"η = 1/t": mean(ours)} | {label: mean(values) for label, values in worst.items()}
    return compare.claim(
        "Momentum gives something that fixed weights do not: no objective is sacrificed (ours, example C).",
        f"Worst change of a return, as a share of what it could gain, at {small}: {compare.listed(shown)}.",
        [compare.all_of([compare.above(mean(ours)), *more])],
        _WORST,
    )


def _table(title: str, quantity: str, values: Float[np.ndarray, "X E K L"], p: dict[str, Any]) -> Table:
    cells = product(enumerate(NAMES), enumerate(LABELS))
    rows = tuple((f"{name}, {label}", *map(_told, values[k, e].T)) for (k, name), (e, label) in cells)
    return Table(
        title,
        f"{quantity} after T = {p['iterations']} iterations with α = {p['step']:g}; mean over {p['trials']} "
        "trials with 95 % intervals, the same seeds for all. η = 0 keeps equal weights, “first batch” those of the "
        "first batch.",
        ("example, weights", *(f"B = {B}" for B in p["batches"])),
        rows,
    )


def _bias_table(bias: Arrays, p: dict[str, Any]) -> Table:
    columns = (map(float, bias[name]) for name in ("bias", "gap", "left"))
    rows = tuple(zip((f"B = {B}" for B in p["expected_batches"]), *columns, strict=True))
    return Table(
        _BIAS,
        f"Example B, η = 1, all batches enumerated, exact advantages; α = {p['expected_step']:g}, "
        f"{p['expected_iterations']} expected steps from θ = 0. The last column is ‖E[gλ̂]‖ where they end: where it is "
        "0 the policy has stopped at a point that is not Pareto-stationary.",
        ("batch", "bias at the start", "gap at the end", "expected step at the end"),
        rows,
    )


def _figures(gap: Any, change: Any, bias: Arrays, p: dict[str, Any]) -> tuple[Shown, ...]:
    """The gap against B, and what becomes of the worst-off objective."""
    colours, panels = {label: small.COLOURS[label] for label in LABELS}, list[drawings.Panel]()
    for name, values in zip(NAMES, gap, strict=True):
        panels.append(
            drawings.Panel(name, ("batch size B", "gap at the end"), drawings.by_label(p["batches"], values, colours))
        )
    enumerated = (
        drawings.Curve("‖E[gλ̂] − ∇Jλ*‖ at θ = 0", p["expected_batches"], bias["bias"][None], 6),
        drawings.Curve("gap where E[gλ̂] = 0", p["expected_batches"], bias["gap"][None], 0),
    )
    panels.append(drawings.Panel("B: the expected step at η = 1", ("batch size B", "bias, gap"), enumerated))
    dots = {name: [drawings.Dot(mean(change[k, e, :, 0])) for e in range(len(LABELS))] for k, name in enumerate(NAMES)}
    label = "worst change of a return, as a share of what it could gain"
    return (
        Shown(
            _GAP,
            "momentum-gap",
            drawings.curves(panels),
            f"Exact gap after T = {p['iterations']} iterations, bands 95 % over trials; at the lower right the bias of "
            "the expected step of plain MGDA, by enumeration.",
            "Log–log charts of the exact gap against the batch size for five kinds of weights, in three examples.",
        ),
        Shown(
            _WORST,
            "momentum-worst",
            drawings.dots(dots, colours, label),
            f"The smallest change of a return at B = {p['batches'][0]}, as a share of what that return could gain; "
            "means with 95 % intervals over trials. Left of 0 some objective was harmed.",
            "Dot charts of the worst change of a return for five kinds of weights, in three examples.",
        ),
    )
