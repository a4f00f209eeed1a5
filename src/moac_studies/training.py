"""The paper's three figures: methods trained on an exact model, the paper's claims judged, tables and drawings."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from moac import momdp
from moac.config import Average, Config
from moac.momdp import library
from moac.report.page import Claim, Table
from moac.report.pages.experiment import Findings, Shown
from moac.runs import runner
from moac.runs.runner import Task
from moac.statistics import Mean, mean
from moac.training.history import History
from moac_studies import compare, drawings, recorded
from moac_studies.framework import Study, Workspace

Histories = Mapping[str, History]
STEADY = 0.05
"""A return is called steady when it changes by less than this share of what policies can differ by."""
RARE = 0.01
"""Steps that lower some objective's estimate are rare when they are a smaller share than this."""
NEAR = 0.01
"""A trial ends at a point when it comes within this share of the hull's extent."""


@final
@dataclass(frozen=True)
class _Place:
    """Environment and seed of all tasks of a figure."""

    env: str
    seed: int


def run(study: Study, work: Workspace) -> Findings:
    """Train all methods of a figure and compare them."""
    env = study.parameters["figure"]["env"]
    model = library.for_environment(env)
    if model is None:
        raise ValueError(f"`env` must be one of {', '.join(library.known_environments())}, got {env!r}.")

    def trained(tasks: Sequence[Task]) -> Histories:
        place, show = _Place(env, study.seed), work.show or runner.unseen
        return {task.label: runner.complete(task, place, model, work.folder, show).history for task in tasks}

    methods, cells = trained(method_tasks(study)), trained(sensitivity_tasks(study))
    setting, names = method_tasks(study)[0].config.setting or Average(), model.objective_names
    # In the average setting the front of deterministic policies is not defined: the corners of the hull stand for it.
    average = isinstance(setting, Average)
    points = (momdp.support_of if average else momdp.pareto_front)(model, setting).points
    tables = [_methods_table("Methods", "method", methods, names, points)]
    tables += [_methods_table("Sensitivity", "setting", cells, names, points)] if cells else []
    peers = None if average else recorded.training_table(env)
    tables += [] if peers is None else [peers]
    claims = claims_of(study.name, methods, names, np.ptp(points, axis=0))
    return Findings(claims, tuple(tables), figures(study, methods, names, points))


def about(study: Study) -> tuple[dict[str, Any], dict[str, Any]]:
    """Facts and settings of the report."""
    figure, config = study.parameters["figure"], method_tasks(study)[0].config
    facts = {"environment": figure["env"], "trials per method": figure["trials"], "iterations": config.num_iterations}
    return facts, config.to_json()


def method_tasks(study: Study) -> tuple[Task, ...]:
    """One task for each method, in the order of the figures."""
    figure, config, changes = (study.parameters[table] for table in ("figure", "config", "methods"))
    return tuple(
        Task(label, Config.from_json({**config, **changes[label]}), int(figure["trials"]))
        for label in figure["methods"]
    )


def sensitivity_tasks(study: Study) -> tuple[Task, ...]:
    """One task for each combination of the listed values, of the named method; none in a reduced run."""
    config, changes, grid = (study.parameters[table] for table in ("config", "methods", "sensitivity"))
    axes, tasks = {key: values for key, values in grid.items() if key not in ("of", "trials")}, list[Task]()
    for values in itertools.product(*axes.values()) if not study.quick else ():
        cell = dict(zip(axes, values, strict=True))
        label = ", ".join(f"{key} = {value:g}" for key, value in cell.items())
        tasks.append(Task(label, Config.from_json({**config, **changes[grid["of"]], **cell}), int(grid["trials"])))
    return tuple(tasks)


def _methods_table(title: str, first: str, histories: Histories, objectives: tuple[str, ...], points: Any) -> Table:
    """Where each method ends: returns with intervals, gap, regret, how many trials on the hull and how many trapped."""
    header = (first, *objectives, "exact gap", "regret", "on a corner of the hull", "in the zero trap")
    rows = tuple(
        (label, *(str(mean(h.returns[:, -1, i])) for i in range(len(objectives))), *_ends(h, points))
        for label, h in histories.items()
    )
    count = min(len(history.returns) for history in histories.values())
    caption = (
        f"Means over {count} trials after the last iteration, with 95 % intervals. A trial is on a corner of the exact "
        f"hull within {NEAR:.0%} of the hull's extent, and trapped when all its returns are within {NEAR:.0%} of zero."
    )
    return Table(title, caption, header, rows)


def _ends(history: History, points: Any) -> tuple[str, ...]:
    final = history.returns[:, -1]
    reach = NEAR * float(np.ptp(points, axis=0).max())
    useful = points[np.abs(points).max(axis=1) > reach]
    distance = np.linalg.norm(final[:, None] - useful, axis=2).min(axis=1)
    trapped = np.abs(final).max(axis=1) <= reach
    return (
        f"{mean(history.gap[:, -1]).value:.1e}",
        f"{mean(history.regret[:, -1]).value:.1e}",
        f"{int((distance <= reach).sum())} of {len(final)}",
        f"{int(trapped.sum())} of {len(final)}",
    )


def figures(study: Study, histories: Histories, objectives: tuple[str, ...], points: Any) -> tuple[Shown, ...]:
    """The drawings, in reading order."""
    main, trials = study.parameters["figure"]["main"], study.parameters["figure"]["trials"]
    history, band = histories[main], f"Mean of {trials} trials with its 95 % band."
    t = history.iteration

    def of_each(values: Any) -> dict[str, Any]:
        return {name: values[:, :, i] for i, name in enumerate(objectives)}

    def of_methods(quantity: str) -> dict[str, Any]:
        return {label: getattr(own, quantity) for label, own in histories.items()}

    gaps = {"true gradient": history.gap, "stationary-law direction": history.direction_gap}
    weights = {"λ_t, smoothed": of_each(history.weights), "λ̂_t of the batch": of_each(history.min_norm_weights)}
    return (
        Shown(
            "Returns",
            "returns",
            drawings.side_by_side(t, {name: {name: values} for name, values in of_each(history.returns).items()}),
            f"Exact return of each objective under {main}, evaluated on the model, not estimated. {band}",
            f"Line charts of the exact returns of {', '.join(objectives)} over iterations.",
        ),
        Shown(
            "Squared norm of the step",
            "step-norm",
            drawings.over_iterations(t, of_methods("gradient_norm_squared"), log=True),
            f"‖g_t‖², which the paper plots. Plain MGDA minimises it by construction: lower is not better. {band}",
            "Line chart of the squared norm of the step over iterations, one line per method, logarithmic.",
        ),
        Shown(
            "Exact gap",
            "gap",
            drawings.over_iterations(t, gaps, log=True),
            f"Stationarity gap of the exact gradient, and of the direction that Lemma 1 follows, under {main}. {band}",
            "Line chart of two exact stationarity gaps over iterations, logarithmic.",
        ),
        Shown(
            "Weights",
            "weights",
            drawings.side_by_side(t, weights, weights=True),
            f"The weights used, and those that the batch alone would give, under {main}. {band}",
            "Two line charts of the weights of each objective over iterations.",
        ),
        Shown(
            "Smallest alignment",
            "alignment",
            drawings.over_iterations(t, of_methods("smallest_alignment"), log=False),
            f"The smallest ⟨gⁱ, d⟩ over objectives: below zero, the step lowers some objective's estimate. {band}",
            "Line chart of the smallest alignment over iterations, one line per method.",
        ),
        Shown(
            "Where the trials end",
            "ends",
            drawings.ends({label: own.returns[:, -1] for label, own in histories.items()}, objectives, points),
            "Final exact returns of every trial, beside the exact front of deterministic policies (stars).",
            "Scatter plots of final returns per pair of objectives with the exact front.",
        ),
    )


def claims_of(name: str, histories: Histories, objectives: tuple[str, ...], extent: Any) -> tuple[Claim, ...]:
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
    differences = {f"{a} − {b}": compare.paired(averages[a], averages[b]) for a, b in itertools.pairwise(ordered)}
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
