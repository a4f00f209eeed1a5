"""What the paper says of its synthetic experiments, and what our data say of it. Every verdict is computed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from moac.report.page import Claim
from moac.statistics import Mean, mean
from moac.training.history import History
from moac_studies import compare

Histories = Mapping[str, History]
STEADY = 0.05
"""A return is called steady when it changes by less than this share of what policies can differ by."""
RARE = 0.01
"""Steps that lower some objective's estimate are rare when they are a smaller share than this."""


def of(name: str, histories: Histories, objectives: tuple[str, ...], extent: Any) -> tuple[Claim, ...]:
    """The claims of an experiment; `extent` [M] is how far apart the exact hull's values of an objective lie.

    A claim about a method that was not run, as in a reduced run, is left out.
    """
    judged: list[Claim] = []
    scale = np.where(np.asarray(extent) > 0, extent, 1.0)
    for judge in _CLAIMS[name](histories, objectives, scale):
        with contextlib.suppress(KeyError):
            judged.append(judge())
    return tuple(judged)


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
    return [
        compare.paired(last, first)
        for first, last in zip(history.returns[:, 0].T, history.returns[:, -1].T, strict=True)
    ]


def _listed(names: tuple[str, ...], values: list[Any]) -> str:
    return "; ".join(f"{name} {value}" for name, value in zip(names, values, strict=True))


def _all_improve(history: History, objectives: tuple[str, ...]) -> Claim:
    return compare.claim(
        "All objectives improve together under η = 1/t.",
        f"Change of the exact return: {_listed(objectives, changes(history))}.",
        compare.dominates(history.returns[:, -1], history.returns[:, 0]),
        "Returns",
    )


def _shares(history: History, extent: Any) -> list[Mean]:
    """How much each return changed, as a share of what policies can differ by."""
    return [change.mapped(lambda x, e=e: x / e) for change, e in zip(changes(history), extent, strict=True)]


def _first_improves_rest_steady(history: History, objectives: tuple[str, ...], extent: Any) -> Claim:
    shares = _shares(history, extent)
    return compare.claim(
        "Objective 1 improves while objectives 2 and 3 stay steady.",
        f"Change of the exact reward per step: {_listed(objectives, changes(history))}; as a share of what policies "
        f"can differ by: {_listed(objectives, shares)}; steady means within ± {STEADY}.",
        [compare.above(shares[0]), *(compare.steady(share, STEADY) for share in shares[1:])],
        "Returns",
    )


def _steady(history: History, objectives: tuple[str, ...], extent: Any) -> Claim:
    shares = _shares(history, extent)
    return compare.claim(
        "Both objectives stay steady.",
        f"Change of the exact return: {_listed(objectives, changes(history))}; as a share of what policies can differ "
        f"by: {_listed(objectives, shares)}; steady means within ± {STEADY}.",
        [compare.steady(share, STEADY) for share in shares],
        "Returns",
    )


def _null_test(histories: Histories) -> Claim:
    worst = float(np.max([h.gap.max() for h in histories.values()]))
    drift = float(np.max([np.abs(9 * h.returns[..., 0] + h.returns[..., 1] - 9).max() for h in histories.values()]))
    return compare.claim(
        "The objectives are in conflict: nothing can be gained in both (ours: the exact gap is 0 for every policy).",
        f"Largest exact gap over all methods, trials and iterations: {worst:.1e}; 9·fish + wood stays at 9 within "
        f"{drift:.0e}. So every move is along the front: estimation noise that the step follows, not progress.",
        [compare.known(worst <= 1e-14), compare.known(drift <= 1e-9)],
        "Exact gap",
    )


def _falls(history: History, claim: str) -> Claim:
    """By an order of magnitude or more, trial by trial."""
    first, last = (history.gradient_norm_squared[:, k] for k in (0, -1))
    orders = np.log10(mean(first).value / mean(last).value) if mean(last).value > 0 else np.inf
    return compare.claim(
        claim,
        f"{mean(first)} at the first evaluation, {mean(last)} at the last: {orders:.1f} orders; asked: one or more. "
        f"Ten times the last minus the first, trial by trial: {compare.paired(10 * last, first)}.",
        [compare.falls(first, last), compare.falls(first, last, times=10)],
        "Squared norm of the step",
    )


def _larger_is_faster(histories: Histories, ordered: tuple[str, ...], quantity: str, what: str) -> Claim:
    """Compare the average over the run, as the theorems do, trial by trial: smaller is faster."""
    averages = {label: getattr(histories[label], quantity).mean(axis=1) for label in ordered}
    differences = {f"{a} − {b}": compare.paired(averages[a], averages[b]) for a, b in pairwise(ordered)}
    return compare.claim(
        f"A larger η converges faster: {what} sooner for {' than for '.join(ordered)}.",
        "Average over the logged iterations, smaller is faster: "
        f"{_listed(ordered, [mean(values) for values in averages.values()])}. Difference trial by trial, same seeds: "
        f"{_listed(tuple(differences), list(differences.values()))}.",
        [compare.below(difference) for difference in differences.values()],
        "Squared norm of the step" if quantity == "gradient_norm_squared" else "Exact gap",
    )


def _start_irrelevant(histories: Histories, label: str, other: str) -> Claim:
    apart = float(np.abs(histories[label].returns - histories[other].returns).max())
    return compare.claim(
        "η_1 = 1 makes the initial weights irrelevant.",
        f"Same seeds, λ₀ uniform and far from it: returns differ by at most {apart:.1e} in any trial and iteration.",
        [compare.known(apart <= 1e-6)],
        "Methods",
    )


def _common_ascent(histories: Histories) -> Claim:
    shares = {label: mean(_hurts(h).mean(axis=1)) for label, h in histories.items()}
    return compare.claim(
        "The direction improves every objective (true of the exact min-norm direction; momentum gives it up).",
        f"Share of the logged steps that lower some objective's estimate: {_listed(tuple(shares), [*shares.values()])}"
        f"; asked of all but plain MGDA: below {RARE}.",
        [compare.below(share, RARE) for label, share in shares.items() if "MGDA" not in label],
        "Smallest alignment",
    )


def _hurts(history: History) -> Any:
    """Where the step lowers some objective's estimate by more than single precision can tell from zero."""
    return history.smallest_alignment < -1e-6 * history.gradient_norm_squared


def _momentum_helps(histories: Histories, label: str, extent: Any) -> Claim:
    """Where do momentum, its absence and its controls end? Same seeds, so trial by trial."""
    controls = ("η = 1 (plain MGDA)", "first-batch weights", "uniform weights")
    worth = {name: _worth(histories[name], extent) for name in (label, *controls)}
    differences = [compare.paired(worth[label], worth[name]) for name in controls]
    return compare.claim(
        "MOAC with momentum beats plain MGDA and fixed weights (ours: the same seeds for all).",
        "Sum of the final returns, each divided by its extent: "
        f"{_listed(tuple(worth), [mean(values) for values in worth.values()])}. Difference to each, trial by trial: "
        f"{_listed(controls, differences)}.",
        [compare.above(difference) for difference in differences],
        "Methods",
    )


def _worth(history: History, extent: Any) -> Any:
    return (history.returns[:, -1] / extent).sum(axis=1)
