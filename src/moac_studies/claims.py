"""What the paper says of its synthetic experiments, and what our data say of it. Every verdict is computed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from moac.report.page import Claim, verdict_of
from moac.statistics import Mean, mean
from moac.training.history import History

Histories = Mapping[str, History]
STEADY = 0.05
"""A return is called steady when it changes by less than this share of what policies can differ by."""


def of(name: str, histories: Histories, objectives: tuple[str, ...], extent: Any) -> tuple[Claim, ...]:
    """The claims of an experiment; `extent` [M] is how far apart the exact hull's values of an objective lie.

    A claim about a method that was not run, as in a reduced run, is left out.
    """
    found: list[Claim] = []
    for judge in _CLAIMS[name](histories, objectives, np.asarray(extent)):
        with contextlib.suppress(KeyError):
            found.append(judge())
    return tuple(found)


Judge = Callable[[], Claim]


def _discounted(histories: Histories, objectives: tuple[str, ...], extent: Any) -> tuple[Judge, ...]:
    main, schedules = "η = 1/t", ("η = 1/√t", "η = 1/t", "η = 1/t²")
    return (
        lambda: _all_improve(histories[main], objectives),
        lambda: _falls(histories[main], "‖g_t‖² converges under η = 1/t."),
        lambda: _larger_is_faster(histories, schedules, "gradient_norm_squared", "‖g_t‖² falls"),
        lambda: _larger_is_faster(histories, schedules, "gap", "the exact gap falls"),
        lambda: _start_irrelevant(histories, main, f"{main}, another λ₀"),
        lambda: _common_ascent(histories),
        lambda: _momentum_helps(histories, main, extent),
    )


def _average(histories: Histories, objectives: tuple[str, ...], extent: Any) -> tuple[Judge, ...]:
    main = "η = 1/t²"
    return (
        lambda: _first_improves_rest_steady(histories[main], objectives, extent),
        lambda: _falls(histories[main], "‖g_t‖² converges under η = 1/t²."),
        lambda: _start_irrelevant(histories, main, f"{main}, another λ₀"),
        lambda: _common_ascent(histories),
        lambda: _momentum_helps(histories, main, extent),
    )


def _fishwood(histories: Histories, objectives: tuple[str, ...], extent: Any) -> tuple[Judge, ...]:
    main = "η = 1/t"
    return (
        lambda: _steady(histories[main], objectives, extent),
        lambda: _null_test(histories),
        lambda: _falls(histories[main], "‖g_t‖² converges under η = 1/t."),
        lambda: _start_irrelevant(histories, main, f"{main}, another λ₀"),
        lambda: _common_ascent(histories),
    )


_CLAIMS: dict[str, Callable[[Histories, tuple[str, ...], Any], tuple[Judge, ...]]] = {
    "resource-gathering-discounted": _discounted,
    "resource-gathering-average": _average,
    "fishwood-discounted": _fishwood,
}


def changes(history: History) -> list[Mean]:
    """How much each return changed from the first evaluation to the last, over trials."""
    return [mean(history.returns[:, -1, i] - history.returns[:, 0, i]) for i in range(history.returns.shape[2])]


def _listed(objectives: tuple[str, ...], values: list[Any]) -> str:
    return "; ".join(f"{name} {value}" for name, value in zip(objectives, values, strict=True))


def _all_improve(history: History, objectives: tuple[str, ...]) -> Claim:
    moved = changes(history)
    return Claim(
        "All objectives improve together under η = 1/t.",
        f"Change of the exact return: {_listed(objectives, moved)}.",
        verdict_of([change.is_positive for change in moved]),
        "Returns",
    )


def _first_improves_rest_steady(history: History, objectives: tuple[str, ...], extent: Any) -> Claim:
    moved = changes(history)
    rest = [abs(m.value) <= STEADY * extent[i] for i, m in enumerate(moved) if i > 0]
    return Claim(
        "Objective 1 improves while objectives 2 and 3 stay steady.",
        f"Change of the exact reward per step: {_listed(objectives, moved)}; steady means within {STEADY:.0%} of what "
        f"policies can differ by ({_listed(objectives, [f'{x:.3g}' for x in extent])}).",
        verdict_of([moved[0].is_positive, *rest]),
        "Returns",
    )


def _steady(history: History, objectives: tuple[str, ...], extent: Any) -> Claim:
    moved = changes(history)
    share = [m.value / x for m, x in zip(moved, extent, strict=True)]
    return Claim(
        "Both objectives stay steady.",
        f"Change of the exact return: {_listed(objectives, moved)}; as a share of what policies can differ by: "
        f"{_listed(objectives, [f'{s:+.1%}' for s in share])}.",
        verdict_of([abs(s) <= STEADY for s in share]),
        "Returns",
    )


def _null_test(histories: Histories) -> Claim:
    worst = max(float(np.nanmax(h.gap)) for h in histories.values())
    drift = float(max(np.abs(9 * h.returns[..., 0] + h.returns[..., 1] - 9).max() for h in histories.values()))
    return Claim(
        "The objectives are in conflict: nothing can be gained in both (ours: the exact gap is 0 for every policy).",
        f"Largest exact gap over all methods, trials and iterations: {worst:.1e}; 9·fish + wood stays at 9 within "
        f"{drift:.0e}. So every move is along the front: estimation noise that the step follows, not progress.",
        verdict_of([worst <= 1e-14]),
        "Exact gap",
    )


def _falls(history: History, claim: str) -> Claim:
    first, last = (mean(history.gradient_norm_squared[:, k]) for k in (0, -1))
    orders = np.log10(first.value / last.value) if last.value > 0 else np.inf
    return Claim(
        claim,
        f"{first} at the first evaluation, {last} at the last: {orders:.1f} orders.",
        verdict_of([last.high < first.low, orders >= 1]),
        "Squared norm of the step",
    )


def _larger_is_faster(histories: Histories, ordered: tuple[str, ...], quantity: str, what: str) -> Claim:
    """Compare the average over the run, as the theorems do: smaller is faster."""
    averages = [mean(getattr(histories[label], quantity).mean(axis=1)) for label in ordered]
    pairs = [a.high < b.low for a, b in pairwise(averages)]
    return Claim(
        f"A larger η converges faster: {what} sooner for {' than for '.join(ordered)}.",
        f"Average over the logged iterations, smaller is faster: {_listed(ordered, averages)}.",
        verdict_of(pairs),
        "Squared norm of the step" if quantity == "gradient_norm_squared" else "Exact gap",
    )


def _start_irrelevant(histories: Histories, label: str, other: str) -> Claim:
    apart = float(np.nanmax(np.abs(histories[label].returns - histories[other].returns)))
    return Claim(
        "η_1 = 1 makes the initial weights irrelevant.",
        f"Same seeds, λ₀ uniform and far from it: returns differ by at most {apart:.1e} in any trial and iteration.",
        verdict_of([apart <= 1e-6]),
        "Methods",
    )


def _common_ascent(histories: Histories) -> Claim:
    shares = {label: float(_hurts(h).mean()) for label, h in histories.items()}
    smoothed = {label: share for label, share in shares.items() if "MGDA" not in label}
    return Claim(
        "The direction improves every objective (true of the exact min-norm direction; momentum gives it up).",
        "Logged steps that lower some objective's estimate: "
        + _listed(tuple(shares), [f"{s:.0%}" for s in shares.values()]),
        verdict_of([share <= 0.01 for share in smoothed.values()]),
        "Smallest alignment",
    )


def _hurts(history: History) -> Any:
    """Where the step lowers some objective's estimate by more than single precision can tell from zero."""
    return history.smallest_alignment < -1e-6 * history.gradient_norm_squared


def _momentum_helps(histories: Histories, label: str, extent: Any) -> Claim:
    """Where do momentum, its absence and its controls end? Same seeds."""
    controls = ("η = 1 (plain MGDA)", "first-batch weights", "uniform weights")
    ends = {name: mean(_worth(histories[name], extent)) for name in (label, *controls)}
    held = [ends[label].low > ends[name].high for name in controls]
    return Claim(
        "MOAC with momentum beats plain MGDA and fixed weights (ours: the same seeds for all).",
        "Sum of the final returns, each divided by its extent: " + _listed(tuple(ends), list(ends.values())),
        verdict_of(held),
        "Methods",
    )


def _worth(history: History, extent: Any) -> Any:
    return (history.returns[:, -1] / np.where(extent > 0, extent, 1)).sum(axis=1)
