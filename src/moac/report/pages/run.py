"""The page of one `moac train` run, from its folder alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from moac import files, settings, statistics
from moac.choices import counted
from moac.config import Config, Discounted
from moac.report import figures
from moac.report.numbers import UNKNOWN, number, plus_minus, text
from moac.report.page import Figure, Named, Page, Table
from moac.runs import log_files
from moac.runs.directory import FinishedRun, read
from moac.theory import certificate
from moac.training import mean_over_trials

_ROUNDING = 1e-6  # an alignment above −this·‖g‖² is 0 but for the rounding of single precision
_HEAVY = 0.8  # an objective with more of the weight than this leaves little to the others
_COST = " (cost)"
_KINDS = {"exact": "exact", "episodes": "by episodes", "ncis": "by importance sampling"}


def of_run(directory: Path) -> Page:
    """The page of a run that has finished; anything else, or a damaged file, is a ValueError."""
    run = _with_costs(read(directory), directory)
    return Page(
        title=run.name,
        summary=f"{_what_was_run(run)} {_what_came_out(run)}",
        facts=_facts(run, certificate.steps_taken(directory)),
        notice=_notice(run),
        figures=(_figure(run, directory / "figures" / "training.svg"),),
        tables=(_returns(run), _signals(run), *_certificates(directory)),
        details=_details(run),
    )


def _with_costs(run: FinishedRun, directory: Path) -> FinishedRun:
    """With the costs of a log named as such: their returns are negative."""
    if run.history.kind != "ncis" or not (directory / log_files.CATALOGUE).exists():
        return run
    signs = log_files.catalogue_of(directory).signs
    named = (f"{name}{_COST}" if sign < 0 else name for name, sign in zip(run.objectives, signs, strict=False))
    return replace(run, objectives=tuple(named)) if len(signs) == len(run.objectives) else run


def _what_was_run(run: FinishedRun) -> str:
    policies = "a policy" if run.trials == 1 else f"{number(run.trials)} independent policies"
    rule = f"MOAC with momentum η = {run.config.momentum}"
    if run.config.weighting != "min-norm":
        rule = f"The actor-critic with {run.config.weighting} weights"
    return f"{rule} trained {policies} for {counted(number(run.last), 'iteration')}, {setting(run.config)}."


def _what_came_out(run: FinishedRun) -> str:
    """Which returns rose and which fell from the first evaluation to the last; over several trials, significantly."""
    if run.first == run.last:
        return "Returns were evaluated once, at the end, so that no change is known."
    unclear = "did not change" + " significantly" * (run.trials > 1)
    moved: dict[str, list[str]] = {"rose": [], "fell": [], unclear: []}
    for name, values in zip(run.objectives, (run.history.returns[:, -1] - run.history.returns[:, 0]).T, strict=True):
        change = statistics.mean(values)
        low, high = (change.value, change.value) if np.isnan(change.low) else (change.low, change.high)
        moved["rose" if low > 0 else "fell" if high < 0 else unclear].append(name)
    told = "; that of ".join(f"{listed(names)} {how}" for how, names in moved.items() if names)
    costs = any(name.endswith(_COST) for name in run.objectives)
    meant = " That of a cost is negative: it falls where the cost rises." if costs else ""
    return f"From iteration {number(run.first)} to {number(run.last)} the return of {told}.{meant}"


def listed(names: list[str]) -> str:
    """Names as a sentence has them: "gold", "gold and fuel", "gold, fuel and time"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def _facts(run: FinishedRun, certificate_steps: int) -> Named:
    return (
        ("Trials", run.trials),
        ("Iterations", run.last),
        *_steps(run, certificate_steps),
        ("Setting", setting(run.config)),
        ("Momentum η", run.config.momentum),
        ("Outside the theory", ", ".join(settings.beyond_theory(run.config)) or "nothing"),
        ("Seed", str(run.description["seed"])),
        ("Returns", _KINDS.get(run.history.kind, run.history.kind)),
        ("Steps that hurt an objective", _hurting(run)),
        ("Stopped trials", _stopped(run)),
    )


def _steps(run: FinishedRun, certificate_steps: int) -> Named:
    """Environment steps of the training, and where there were any those of evaluations and of certificates."""
    training = run.trials * run.last * settings.Settings.of(run.config).samples_per_iteration
    if run.history.kind == "ncis":
        return (("Rows drawn", training),)
    if run.history.kind == "exact":
        return (("Environment steps", training),)
    evaluating = run.history.steps_taken + certificate_steps
    counted_steps = int(evaluating) if np.isfinite(evaluating) else UNKNOWN
    return (("Environment steps of the training", training), ("Environment steps of evaluations", counted_steps))


def _notice(run: FinishedRun) -> str | None:
    stopped = np.zeros(0) if run.stopped is None else run.stopped[run.stopped > 0]
    if not len(stopped):
        return _collapse(run)
    when = f"the first at iteration {number(int(stopped.min()))}"
    return f"{counted(_stopped(run), 'trial')} stopped, {when}: an update was not finite. Smaller step sizes help."


def _collapse(run: FinishedRun) -> str | None:
    """Says so where the rule gave one objective more than .8 of the weight for more than half of the run."""
    if run.config.weighting in ("fixed", "uniform") or len(run.objectives) == 1:
        return None
    heavy = np.nanmean(mean_over_trials(run.history.weights) > _HEAVY, axis=0)
    name, share = run.objectives[int(heavy.argmax())], float(heavy.max())
    if share <= 0.5:
        return None
    units = "" if run.config.learner != "ppo" or run.config.units == "advantage" else "--units advantage, "
    return (
        f"{name} had more than {_HEAVY} of the weight for {number(100 * share, 3)} % of the run, so the others hardly "
        f"counted: try {units}--weighting capped:0.7, or moac explore, which trains for many preferences."
    )


def _figure(run: FinishedRun, path: Path) -> Figure:
    """The figure of the folder; drawn from the history where that is missing or damaged."""
    mean = mean_over_trials(run.history.returns[:, -1])
    ends = ", ".join(f"{name} {number(float(mean[i]))}" for i, name in enumerate(run.objectives))
    over = "One trial." if run.trials == 1 else f"Means over {number(run.trials)} trials, with 95 % bands."
    equal = " Here the two are equal." if len(figures.gaps(run.history)) == 1 else ""
    gap = (
        f" At a gap of 0, of the true gradient or of the stationary law’s, no direction improves all objectives.{equal}"
    )
    caption = (
        f"{over}{gap * bool(np.isfinite(run.history.gap).any())} The alignment is the smallest one of an objective’s "
        "gradient with the step: below 0 the step hurts that objective."
    )
    alt = f"Six panels over iterations, named in their titles. Mean returns at iteration {number(run.last)}: {ends}."
    try:
        return Figure.of_file("Training", path, caption, alt)
    except ValueError:
        return Figure("Training", figures.svg(figures.training(run.history, run.objectives, run.name)), caption, alt)


def _returns(run: FinishedRun) -> Table:
    history, rows = run.history, []
    for i, name in enumerate(run.objectives):
        first, last = history.returns[:, 0, i], history.returns[:, -1, i]
        moved = (last,) if run.first == run.last else (first, last, last - first)
        weights = history.weights[:, :, i].mean(axis=1), history.weights[:, -1, i]
        rows.append((name, *map(_mean, (*moved, *weights))))
    change = () if run.first == run.last else ("Change",)
    header = ("Objective", *_first_and_last(run), *change, "Mean weight λ", "Last weight λ")
    return Table("Returns", _interval(run), header, tuple(rows))


def _signals(run: FinishedRun) -> Table:
    history = run.history
    named = {
        "Stationarity gap, true gradient": statistics.without_rounding(history.gap),
        "Stationarity gap, stationary-law direction": statistics.without_rounding(history.direction_gap),
        "‖g‖² of the direction": statistics.without_rounding(history.gradient_norm_squared),
        "Smallest alignment ⟨gⁱ, d⟩": history.smallest_alignment,
        "Regret": history.regret,
    }
    named |= {f"Weight λ of {name}": history.weights[:, :, i] for i, name in enumerate(run.objectives)}
    known = {name: values for name, values in named.items() if np.isfinite(values).any()}
    ends = (-1,) if run.first == run.last else (0, -1)
    rows = tuple((name, *(_mean(values[:, k]) for k in ends)) for name, values in known.items())
    exact = (
        "A gap of 0 is Pareto stationary. Regret is min over λ of max_π λᵀJ(π) − λᵀJ: 0 if some weighting makes the "
        "policy optimal."
    )
    source = "rows of validation users" if history.kind == "ncis" else "episodes"
    unknown = f"The exact gap needs a model; moac certify measures it from {source}."
    caption = f"{'± as above. ' * (run.trials > 1)}{exact if np.isfinite(history.gap).any() else unknown}"
    return Table("Signals of training", caption, ("Signal", *_first_and_last(run)), rows)


def _certificates(directory: Path) -> tuple[Table, ...]:
    """What `moac certify` has found, a row for each trial."""
    known = certificate.read(directory)
    if not known:
        return ()
    with files.interpreting(directory / certificate.FILE):
        return (_certified(known),)


def _certified(known: dict[int, dict[str, Any]]) -> Table:
    """The table of certificates, by their trials."""
    header = ("Trial", "Gap in θ", "Gap in F̂ + ζI", "Untrained, in θ", "Ratio", "Rarest action", "Episodes")
    rows: list[tuple[str | int | float | None, ...]] = []
    several = [(str(trial), each) for trial, each in known.items()]
    for trial, each in list(several):
        several += [(f"{trial}, p = {', '.join(f'{x:g}' for x in p['preference'])}", p) for p in each.get("each", ())]
    for trial, each in several:
        before = each["untrained"] and ends(each["untrained"]["low"], each["untrained"]["high"])
        ratio, natural = each["ratio"] and ends(*each["ratio"]), each["natural"]
        both = ends(each["low"], each["high"]), ends(natural["low"], natural["high"])
        rows.append((trial, *both, before, ratio, each["rarest"], each["episodes"]))
    first = next(iter(known.values()))
    said = " ".join(part for part in (first["sentence"], first["warning"], "Stationary is not optimal.") if part)
    caption = f"Intervals at {100 * first['confidence']:g} %; of {first['objective']}. {said}"
    return Table("Certificate: the stationarity gap from episodes", caption, header, tuple(rows))


def ends(low: float | None, high: float | None) -> str:
    """An interval; what is not finite was written as null, and is at the upper end."""
    return f"[{number(np.inf if low is None else low, 3)}, {number(np.inf if high is None else high, 3)}]"


def _details(run: FinishedRun) -> Named:
    problem, objects = run.description["problem"], run.description["own"]
    named: dict[str, Any] = run.config.to_json() | {"setting": setting(run.config)}
    named |= {"given as objects": ", ".join(map(str, objects))} if objects else {}
    named |= {name: problem.get(name) or None for name in ("num_states", "num_actions", "fingerprint")}
    named |= {name: run.origin.get(name) for name in ("cpu", "devices", "commit")} | run.origin["versions"]
    return tuple((name.replace("_", " "), _plain(value)) for name, value in named.items())


def setting(config: Config) -> str:
    """The setting of a run in words."""
    if not isinstance(config.setting, Discounted):
        return "average reward"
    gamma = np.atleast_1d(config.setting.discount)
    return f"discounted, γ = {', '.join(f'{value:g}' for value in gamma)}"


def _hurting(run: FinishedRun) -> str:
    """How many of the logged steps go against the gradient of some objective, beyond rounding."""
    alignment, norm = run.history.smallest_alignment, run.history.gradient_norm_squared
    logged = int(np.isfinite(alignment).sum())
    if not logged:
        return UNKNOWN
    count = int((alignment < -_ROUNDING * norm).sum())
    return f"{number(100 * count / logged, 3)} % ({number(count)} of {number(logged)} logged)"


def _stopped(run: FinishedRun) -> str:
    return UNKNOWN if run.stopped is None else f"{number(int((run.stopped > 0).sum()))} of {number(run.trials)}"


def _mean(values: Float[np.ndarray, " K"]) -> str:
    """The mean over trials ± half the width of its 95 % interval."""
    mean = statistics.mean(values)
    return plus_minus(mean.value, (mean.high - mean.low) / 2)


def _first_and_last(run: FinishedRun) -> tuple[str, ...]:
    """Once where they are the same, as they are of a single evaluation."""
    return tuple(f"Iteration {number(each)}" for each in dict.fromkeys((run.first, run.last)))


def _interval(run: FinishedRun) -> str:
    if run.trials == 1:
        return "One trial, so no interval."
    over = f"Means over {number(run.trials)} trials; ± is half the width of the 95 % interval of the mean."
    return over if run.first == run.last else f"{over} Change is taken trial by trial."


def _plain(value: Any) -> str | None:
    """A setting as people read it."""
    if isinstance(value, list | tuple):
        return ", ".join(str(_plain(each)) for each in value)
    known = isinstance(value, str | int | float)  # provenance may hold anything
    return None if value is None else text(value if known else str(value))
