"""The paper's three figures: methods trained on an exact model, the paper's claims judged, tables and drawings."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from moac import momdp
from moac.config import Average, Config
from moac.report.figures import gaps
from moac.report.numbers import number
from moac.report.page import Claim, Table
from moac.report.pages.experiment import Findings, Shown
from moac.report.pages.run import setting as in_words
from moac.runs import runner
from moac.runs.problems import model_of
from moac.runs.runner import Task
from moac.statistics import Mean, mean, without_rounding
from moac.training.run import History
from moac_studies import compare, drawings, recorded
from moac_studies.framework import Study, Workspace

Histories = Mapping[str, History]
STEADY = 0.05  # A return is called steady when it changes by less than this share of what policies can differ by
RARE = 0.01  # Steps that lower some objective's estimate are rare when they are a smaller share than this
NEAR = 0.01  # A trial ends at a point when it comes within this share of the hull's extent


def run(study: Study, work: Workspace) -> Findings:
    """Train all methods of a figure and compare them."""
    env, trials = (study.parameters["figure"][key] for key in ("env", "trials"))
    model = model_of(env)

    def trained(tasks: Sequence[Task]) -> Histories:
        show = work.show or runner.unseen
        return {task.label: runner.complete(task, model, work.folder, show).history for task in tasks}

    methods, cells = trained(method_tasks(study)), trained(sensitivity_tasks(study))
    setting, names = method_tasks(study)[0].config.setting or Average(), model.objective_names
    # In the average setting the front of deterministic policies is not defined: the corners of the hull stand for it.
    average = isinstance(setting, Average)
    points = (momdp.support_of if average else momdp.pareto_front)(model, setting).points
    tables = [_methods_table("Methods", "method", methods, names, points)]
    tables += [_methods_table("Sensitivity", "setting", cells, names, points)] if cells else []
    peers = None if average else recorded.training_table(env)
    tables += [] if peers is None else [peers]
    measured = Measured(study.parameters["figure"]["main"], methods, names, extent_of(points), average)
    return Findings(claims_of(study.name, measured), tuple(tables), _figures(measured, trials, points))


def extent_of(points: Any) -> Any:
    """How far apart the values of each objective lie [M]; 1 where no policy changes it."""
    extent = np.ptp(points, axis=0)
    return np.where(extent > 0, extent, 1.0)


def about(study: Study) -> tuple[dict[str, Any], dict[str, Any]]:
    """Facts and settings of the report."""
    figure, config = study.parameters["figure"], method_tasks(study)[0].config
    facts = {"environment": figure["env"], "trials per method": figure["trials"], "iterations": config.num_iterations}
    return facts, config.to_json() | {"setting": in_words(config)}


def method_tasks(study: Study) -> tuple[Task, ...]:
    """One task for each method, in the order of the figures."""
    figure, changes = study.parameters["figure"], study.parameters["methods"]
    return tuple(_task(study, label, changes[label], figure["trials"]) for label in figure["methods"])


def sensitivity_tasks(study: Study) -> tuple[Task, ...]:
    """One task for each combination of the listed values, of the named method; none in a reduced run."""
    changes, grid = (study.parameters[table] for table in ("methods", "sensitivity"))
    axes = {key: values for key, values in grid.items() if key not in ("of", "trials")}
    cells = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    named = {", ".join(f"{key} = {value:g}" for key, value in cell.items()): cell for cell in cells}
    tasks = (_task(study, name, {**changes[grid["of"]], **cell}, grid["trials"]) for name, cell in named.items())
    return () if study.quick else tuple(tasks)


def _task(study: Study, label: str, changes: Mapping[str, Any], trials: Any) -> Task:
    config = Config.from_json({**study.parameters["config"], **changes})
    return Task(label, config, int(trials), study.seed)


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
        number(without_rounding(mean(history.gap[:, -1]).value), 2),
        number(mean(history.regret[:, -1]).value, 2),
        f"{int((distance <= reach).sum())} of {len(final)}",
        f"{int(trapped.sum())} of {len(final)}",
    )


def _figures(m: Measured, trials: int, points: Any) -> tuple[Shown, ...]:
    """The drawings, in reading order."""
    main, history, band = m.main, m.history, f"Mean of {trials} trials with its 95 % band."

    def of_each(title: str, symbol: str, values: Any) -> drawings.Panel:
        named = {name: values[..., i] for i, name in enumerate(m.objectives)}
        return drawings.over_iterations(title, symbol, history, named)

    def of_methods(title: str, symbol: str, quantity: str, log: bool) -> Any:
        values = {label: getattr(own, quantity) for label, own in m.histories.items()}
        panel = drawings.over_iterations(title, symbol, history, values, log)
        return drawings.curves([replace(panel, signed=not log)], columns=1)

    one = "mean and its 95 % band"
    returns = [
        drawings.over_iterations(name, "exact return", history, {one: history.returns[..., i]})
        for i, name in enumerate(m.objectives)
    ]
    both = gaps(history)
    gap = drawings.over_iterations("Exact stationarity gap", "gap", history, both, log=True)
    lower = "Plain MGDA minimises it by construction: lower is not better. " if _MGDA in m.histories else ""
    stars = "corners of the exact convex hull" if m.average else "exact front of deterministic policies"
    weights = (("Weights used", r"$\lambda_t$", history.weights),)
    weights += (("Min-norm weights of the batch", r"$\hat\lambda_t$", history.min_norm_weights),)
    followed = f"{main}. They are equal, as they must be in the average setting" if len(both) == 1 else main
    return (
        Shown("Returns", "returns", drawings.curves(returns, columns=len(returns)),
              f"Exact return of each objective under {main}, evaluated on the model, not estimated. {band}",
              f"Line charts of the exact returns of {', '.join(m.objectives)} over iterations."),
        Shown("Squared norm of the step", "step-norm",
              of_methods("Squared norm of the step", r"$\|g_t\|^2$", "gradient_norm_squared", log=True),
              f"‖gₜ‖², which the paper plots. {lower}{band}",
              "Line chart of the squared norm of the step over iterations, one line per method, logarithmic."),
        Shown("Exact gap", "gap", drawings.curves([gap], columns=1),
              f"Gap of the exact gradient, and of the direction that Lemma 1 follows, under {followed}. {band}",
              "Line chart of two exact stationarity gaps over iterations, logarithmic."),
        Shown("Weights", "weights", drawings.curves([of_each(*each) for each in weights]),
              f"The weights used, and those that the batch alone would give, under {main}. {band}",
              "Two line charts of the weights of each objective over iterations."),
        Shown("Smallest alignment", "alignment",
              of_methods("Smallest alignment", r"$\min_i\, \langle g^i, d\rangle$", "smallest_alignment", log=False),
              f"The smallest ⟨gⁱ, d⟩ over objectives: below zero, the step lowers some objective's estimate. {band}",
              "Line chart of the smallest alignment over iterations, one line per method."),
        Shown("Where the trials end", "ends",
              drawings.ends({label: own.returns[:, -1] for label, own in m.histories.items()}, m.objectives, points),
              f"Final exact returns of every trial, beside the {stars} (stars).",
              f"Scatter plots of final returns per pair of objectives with the {stars}."),
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Measured:
    """What the claims of a figure are judged by."""

    main: str  # the method that the paper's figure shows
    histories: Histories  # by method
    objectives: tuple[str, ...]  # their names
    extent: Any  # [M] of the exact hull
    average: bool = False  # whether returns are rewards per step

    @property
    def history(self) -> History:
        """Of the main method."""
        return self.histories[self.main]

    @property
    def changes(self) -> list[Mean]:
        """How much each return of the main method changed from the first evaluation to the last, over trials."""
        first, last = (self.history.returns[:, k].T for k in (0, -1))
        return [compare.paired(after, before) for before, after in zip(first, last, strict=True)]


def claims_of(name: str, measured: Measured) -> tuple[Claim, ...]:
    """The claims of a figure; one about a method that was not run, as in a reduced run, is left out."""
    claims: list[Claim] = []
    for judge in _CLAIMS[name]:
        with contextlib.suppress(KeyError):
            claims.append(judge(measured))
    return tuple(claims)


def _listed(names: Iterable[str], values: Iterable[Any]) -> str:
    return "; ".join(f"{name} {value}" for name, value in zip(names, values, strict=True))


def _all_improve(m: Measured) -> Claim:
    return compare.claim(
        "All objectives improve together under η = 1/t.",
        f"Change of the exact return: {_listed(m.objectives, m.changes)}.",
        compare.dominates(m.history.returns[:, -1], m.history.returns[:, 0]),
        "Returns",
    )


def _steady(m: Measured, claim: str, quantity: str, improving: int) -> Claim:
    """The first `improving` objectives improve, and the others change by a small share of what policies differ by."""
    shares = [change.mapped(lambda x, e=e: x / e) for change, e in zip(m.changes, m.extent, strict=True)]
    steady = [compare.near(share, 0.0, STEADY) for share in shares[improving:]]
    return compare.claim(
        claim,
        f"Change of the exact {quantity}: {_listed(m.objectives, m.changes)}; as a share of what policies can differ "
        f"by: {_listed(m.objectives, shares)}; steady means within ± {STEADY}.",
        [*map(compare.above, shares[:improving]), *steady],
        "Returns",
    )


def _null_test(m: Measured) -> Claim:
    every = m.histories.values()
    worst = float(np.max([h.gap.max() for h in every]))
    drift = float(np.max([np.abs(9 * h.returns[..., 0] + h.returns[..., 1] - 9).max() for h in every]))
    return compare.claim(
        "The objectives are in conflict: nothing can be gained in both (ours: the exact gap is 0 for every policy).",
        f"Largest exact gap over all methods, trials and iterations: {worst:.1e}; 9·fish + wood stays at 9 within "
        f"{drift:.0e}. So every move is along the front: estimation noise that the step follows, not progress.",
        [compare.known(worst <= 1e-14), compare.known(drift <= 1e-9)],
        "Exact gap",
    )


def _falls(m: Measured) -> Claim:
    """By an order of magnitude or more, trial by trial."""
    first, last = (m.history.gradient_norm_squared[:, k] for k in (0, -1))
    ratio = mean(first).value / mean(last).value if mean(last).value > 0 else np.inf
    moved = f"×{ratio:.2g} lower" if ratio >= 1 else f"×{1 / ratio:.2g} higher"
    return compare.claim(
        f"‖gₜ‖² converges under {m.main}.",
        f"{mean(first)} at the first evaluation, {mean(last)} at the last, {moved}; required: ×10 lower. "
        f"10 × last − first, paired by trial: {compare.paired(10 * last, first)}.",
        [compare.falls(first, last), compare.falls(first, last, times=10)],
        "Squared norm of the step",
    )


def _larger_is_faster(m: Measured, quantity: str, what: str, evidence: str) -> Claim:
    """Compare the average over the run, as the theorems do, trial by trial: smaller is faster."""
    averages = {label: getattr(m.histories[label], quantity).mean(axis=1) for label in _SCHEDULES}
    differences = {f"{a} − {b}": compare.paired(averages[a], averages[b]) for a, b in itertools.pairwise(_SCHEDULES)}
    return compare.claim(
        f"A larger η converges faster: {what} falls sooner for {' than for '.join(_SCHEDULES)}.",
        f"Average over the logged iterations, smaller is faster: {_listed(averages, map(mean, averages.values()))}. "
        f"Difference trial by trial, same seeds: {_listed(differences, differences.values())}.",
        map(compare.below, differences.values()),
        evidence,
    )


def _start_irrelevant(m: Measured) -> Claim:
    apart = float(np.abs(m.history.returns - m.histories[f"{m.main}, another λ₀"].returns).max())
    return compare.claim(
        "η_1 = 1 makes the initial weights irrelevant.",
        f"Same seeds, λ₀ uniform and far from it: returns differ by at most {apart:.1e} in any trial and iteration.",
        [compare.known(apart <= 1e-6)],
        "Methods",
    )


def _common_ascent(m: Measured) -> Claim:
    """A step lowers some objective's estimate where it does so by more than single precision can tell from zero."""
    lowers = {label: h.smallest_alignment < -1e-6 * h.gradient_norm_squared for label, h in m.histories.items()}
    shares = {label: mean(where.mean(axis=1)) for label, where in lowers.items()}
    return compare.claim(
        "The direction improves every objective (true of the exact min-norm direction; momentum gives it up).",
        f"Share of the logged steps that lower some objective's estimate: {_listed(shares, shares.values())}"
        f"; required{' of all but plain MGDA' * (_MGDA in shares)}: below {RARE}.",
        [compare.below(share, RARE) for label, share in shares.items() if "MGDA" not in label],
        "Smallest alignment",
    )


def _momentum_helps(m: Measured) -> Claim:
    """Where do momentum, its absence and its controls end? Same seeds, so trial by trial."""
    controls = (_MGDA, "first-batch weights", "uniform weights")
    worth = {name: (m.histories[name].returns[:, -1] / m.extent).sum(axis=1) for name in (m.main, *controls)}
    differences = [compare.paired(worth[m.main], worth[name]) for name in controls]
    return compare.claim(
        "MOAC with momentum beats plain MGDA and fixed weights (ours: the same seeds for all).",
        f"Sum of the final returns, each divided by its extent: {_listed(worth, map(mean, worth.values()))}. "
        f"Difference to each, trial by trial: {_listed(controls, differences)}.",
        map(compare.above, differences),
        "Methods",
    )


_MGDA = "η = 1 (plain MGDA)"
_SCHEDULES = ("η = 1/√t", "η = 1/t", "η = 1/t²")
_ONE_IMPROVES = "Objective 1 improves while objectives 2 and 3 stay steady."
_CLAIMS: dict[str, tuple[Callable[[Measured], Claim], ...]] = {
    "resource-gathering-discounted": (
        _all_improve,
        _falls,
        lambda m: _larger_is_faster(m, "gradient_norm_squared", "‖gₜ‖²", "Squared norm of the step"),
        lambda m: _larger_is_faster(m, "gap", "the exact gap", "Exact gap"),
        _start_irrelevant,
        _common_ascent,
        _momentum_helps,
    ),
    "resource-gathering-average": (
        lambda m: _steady(m, _ONE_IMPROVES, "reward per step", improving=1),
        _falls,
        _start_irrelevant,
        _common_ascent,
        _momentum_helps,
    ),
    "fishwood-discounted": (
        lambda m: _steady(m, "Both objectives stay steady.", "return", improving=0),
        _null_test,
        _falls,
        _start_irrelevant,
        _common_ascent,
    ),
}
