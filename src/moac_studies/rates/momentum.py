"""What momentum gives: three exact examples, against the batch size, beside fixed weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from moac.config import Config
from moac.files import Arrays
from moac.report.numbers import number
from moac.report.page import Claim
from moac.statistics import mean
from moac_studies import compare
from moac_studies.rates import closed_form, examples, expected_step, fits, judging, momentum_report, trajectories
from moac_studies.rates.momentum_report import LABELS
from moac_studies.rates.problems import stacked
from moac_studies.studies import Findings, Workspace


def findings(work: Workspace, p: dict[str, Any], seed: int) -> Findings:
    """Gaps and changes of returns by batch size, and the expected step of example B."""
    gap, change = list[Any](), list[Any]()
    for B in p["batches"]:
        found = work.arrays("momentum", {"seed": seed, **p, "B": B}, lambda b=B: measure(p, b, seed))
        gap.append(found["gap"])
        change.append(found["change"])
    bias = work.arrays("expected-step", {**p}, lambda: expected(p))
    every = np.stack(gap, axis=-1), np.stack(change, axis=-1)
    return Findings(
        _claims(*every, bias, p), momentum_report.tables(*every, bias, p), momentum_report.figures(*every, bias, p)
    )


def measure(p: dict[str, Any], B: int, seed: int) -> Arrays:
    """The exact gap at the end, and the smallest change of a return over its range: [3, E, K]."""
    config = Config(
        setting=expected_step.SETTING,
        num_iterations=p["iterations"],
        num_critic_steps=p["critic_steps"],
        critic_batch_size=p["critic_batch"],
        actor_batch_size=B,
        actor_step_size=p["step"],
        critic_step_size=p["critic_step"],
        num_evaluations=1,
    )
    own = examples.together()
    _, theta = trajectories.learned(own, config, LABELS, (p["trials"], seed))
    first, last = (np.moveaxis(theta[..., k, :], 0, 1) for k in (0, -1))
    gap = closed_form.gaps(own, last, expected_step.SETTING)
    return {"gap": gap, "change": np.stack([_worst_change(k, first[k], last[k]) for k in range(len(gap))])}


def _worst_change(index: int, first: Any, last: Any) -> Float[np.ndarray, "E K"]:
    """min over i of (Jⁱ at the end − Jⁱ at the start)/(largest possible − Jⁱ at the start): below 0, one was harmed."""
    own = examples.single(index)
    before, after = examples.returns(own, first), examples.returns(own, last)
    best = np.einsum("s,sm->m", own.initial, own.reward[:, :, 0].max(axis=1))
    return ((after - before) / (best - before)).min(axis=-1)


def expected(p: dict[str, Any]) -> Arrays:
    """By batch size: the bias at the start of example B, the gap and the expected step where expected steps end."""
    own = examples.action_features()
    rows = [expected_step.measure(own, B, p["expected_step"], p["expected_iterations"]) for B in p["expected_batches"]]
    theta = np.stack([row[1] for row in rows])
    gap = closed_form.gaps(stacked([own]), theta[None], expected_step.SETTING)[0]
    return {"bias": np.array([row[0] for row in rows]), "gap": gap, "left": np.array([row[2] for row in rows])}


def _of(values: Float[np.ndarray, "X E K L"], example: int, label: str) -> Float[np.ndarray, " K"]:
    """The trials of one example at the smallest batch."""
    return values[example, LABELS.index(label), :, 0]


def _claims(gap: Any, change: Any, bias: Arrays, p: dict[str, Any]) -> tuple[Claim, ...]:
    small = f"B = {p['batches'][0]}"
    return (
        *_gap_claims(gap, f"Gap after T = {p['iterations']} at {small}"),
        _bias_claim(bias, p),
        _kept(change, small),
    )


def _gap_claims(gap: Any, what: str) -> tuple[Claim, Claim]:
    """Momentum against plain MGDA and against weights that never move, trial by trial."""
    plain, smooth, fixed = ([_of(gap, k, label) for k in range(3)] for label in ("η = 1", "η = 1/t", "η = 0"))
    shown = "; ".join(
        f"{examples.NAMES[k][0]}: η = 1 {_told(plain[k])}, 1/t {_told(smooth[k])}, η = 0 {_told(fixed[k])}"
        for k in range(3)
    )
    smaller = [compare.paired(b, c) for b, c in zip(smooth, fixed, strict=True)]
    return (
        compare.claim(
            "With tiny batches momentum reaches a far smaller gap than plain MGDA.",
            f"{what}: {shown}; asked: a tenth or less.",
            [compare.falls(a, b, times=10) for a, b in zip(plain, smooth, strict=True)],
            momentum_report.GAP,
        ),
        compare.claim(
            "Momentum beats fixed weights in these examples (the mandatory control η = 0).",
            f"{what}, 1/t minus η = 0: {'; '.join(map(judging.with_interval, smaller))}. Momentum works by freezing λ; "
            "weights that never move have no noise to freeze.",
            map(compare.below, smaller),
            momentum_report.GAP,
        ),
    )


def _bias_claim(bias: Arrays, p: dict[str, Any]) -> Claim:
    """Enumerated, not estimated."""
    slope = fits.slope(p["expected_batches"], bias["bias"][None]).value
    return compare.claim(
        "Plain MGDA's expected step is biased by the batch, and the bias falls with B.",
        f"Example B at its start: ‖E[gλ̂] − ∇Jλ*‖ = {_row(bias['bias'])} at B = {_batches(p)}, slope "
        f"{number(slope, 2)}; the fixed points of the expected step keep gaps of {_row(bias['gap'])}.",
        [compare.known(np.all(np.diff(bias["bias"]) < 0)), compare.known(np.all(bias["gap"] > 1e-7))],
        momentum_report.BIAS,
    )


def _kept(change: Any, small: str) -> Claim:
    """No objective loses, and the worst-off keeps more than under any other weights."""
    worst = {label: _of(change, 2, label) for label in LABELS}
    ours = worst.pop("η = 1/t")
    more = [compare.above(compare.paired(ours, other)) for other in worst.values()]
    shown = {"η = 1/t": mean(ours)} | {label: mean(values) for label, values in worst.items()}
    return compare.claim(
        "Momentum gives something that fixed weights do not: no objective is sacrificed (ours, example C).",
        f"Worst change of a return, as a share of what it could gain, at {small}: {judging.listed(shown)}.",
        [compare.all_of([compare.above(mean(ours)), *more])],
        momentum_report.WORST,
    )


def _told(values: Float[np.ndarray, " K"]) -> str:
    return judging.with_interval(mean(values))


def _row(values: Any) -> str:
    return ", ".join(number(float(x), 2) for x in values)


def _batches(p: dict[str, Any]) -> str:
    return ", ".join(map(str, p["expected_batches"]))
