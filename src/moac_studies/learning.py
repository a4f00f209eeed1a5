"""The study `learning`: what is learned in real environments, method by method, beside morl-baselines' agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from moac import envs, settings, statistics
from moac.config import Config
from moac.files import Arrays
from moac.report.numbers import Value
from moac.report.page import Claim, Table
from moac.report.pages.experiment import Findings, Shown
from moac.statistics import Mean
from moac.training import result
from moac.training.trained import TrainedPolicy
from moac_studies import compare, drawings, environments, framework, recorded
from moac_studies.framework import Study, Tables, Workspace
from moac_studies.recorded import NetworkPeer

MAIN, START = "MOAC", "untrained"  # The method that the study is about, and the policies that training begins with
SUM = "uniform weights, raw"  # Maximises the sum of returns, as the peers do
DEFAULTS = ", defaults"  # Ends the name of a method without what is chosen for the environment
_TASKS = ("minecart", "mo-mountaincar", "mo-lunar-lander")  # Environments whose task a claim names
_IMPROVES = "On {} MOAC improves the hypervolume over the untrained policy"
_COMMON = ("shared", "methods")  # Tables that are no environment
_MEASURED = ("env", "num_envs", "trials", "steps", "episodes", "evaluation_episodes", "config")
"""What of an environment's table decides a measurement."""

Methods = Mapping[str, Arrays]
Row = tuple[str, str, str, framework.Table]  # Environment, method, label of the measurement, what it depends on


def run(study: Study, work: Workspace) -> Findings:
    """Measure, judge and draw."""
    chosen = tables(study)
    missing = {name: why for name, table in chosen.items() if (why := unavailable(table))}
    for name, why in missing.items():
        work.say(f"{name} is left out: {why}")
    rows = [row for name, table in chosen.items() if name not in missing for row in rows_of(name, table, study)]
    done = work.side_by_side(measured_row, [(label, job) for _, _, label, job in rows])
    measured: dict[str, dict[str, Arrays]] = {}
    for (name, method, *_), arrays in zip(rows, done, strict=True):
        if arrays is None:
            missing[name] = f"{method} failed"
        else:
            measured.setdefault(name, {})[method] = arrays
    return findings(chosen, {name: own for name, own in measured.items() if name not in missing}, missing)


def tables(study: Study) -> dict[str, framework.Table]:
    """One table per environment, with what all of them share filled in; `environments` of that chooses some."""
    shared = {"own": {}, "targets": [], **study.parameters["shared"]}
    names = shared.pop("environments", [name for name in study.parameters if name not in _COMMON])
    return {name: {**shared, **study.parameters[name]} for name in names}


def methods_of(table: framework.Table, methods: Tables) -> dict[str, framework.Table]:
    """Every method with what is chosen for this environment, and those that a target names once more without it.

    `own` holds what is chosen for `all` methods, and for one of them by its name.
    """
    own, named = table["own"], {target["method"] for target in table["targets"]}
    changed = {key: {**own.get("all", {}), **own.get(key, {}), **changes} for key, changes in methods.items()}
    return changed | {f"{key}{DEFAULTS}": methods[key] for key in methods if own and key in named}


def unavailable(table: framework.Table) -> str:
    """Why the environment cannot be trained on here; empty where it can."""
    try:
        envs.make(table["env"], table["num_envs"]).close()
    except ValueError as error:
        return str(error)
    return ""


def rows_of(name: str, table: framework.Table, study: Study) -> list[Row]:
    """The untrained policies, then every method."""
    identity = {"seed": study.seed, **{key: table[key] for key in _MEASURED}}
    jobs = {START: identity} | {
        method: {**identity, "changes": changes}
        for method, changes in methods_of(table, study.parameters["methods"]).items()
    }
    return [(name, key, "-".join((table["env"], *key.replace(",", "").split())), job) for key, job in jobs.items()]


def measured_row(job: framework.Table) -> Arrays:
    """What one method learns; a job without `changes` is that of the untrained policies."""
    return trained(job) if "changes" in job else start(job)


def trained(job: framework.Table) -> Arrays:
    """Returns and weights λ over environment steps, and the final policies in episodes of their own.

    `evaluation_steps` are those that one trial takes besides its training.
    """
    options = {"evaluation_episodes": job["evaluation_episodes"]}
    outcome = environments.train(job, config_of(job, job["changes"]), job["seed"], **options)
    environment: Any = outcome.run.source
    over_time = {
        "steps": outcome.history.iteration * (outcome.run.env_steps_per_iteration // job["trials"]),
        "over_steps": outcome.history.returns,
        "weights": outcome.history.weights,
    }
    played = environments.played(environment, outcome.policy, job["episodes"])
    while_training = outcome.history.steps_taken / job["trials"]
    afterwards = job["episodes"] * played["length"].mean()
    return over_time | played | {"evaluation_steps": np.array([while_training + afterwards])}


def start(job: framework.Table) -> Arrays:
    """The policies that training begins with, in the same episodes."""
    environment = envs.make(job["env"], job["num_envs"])
    run = result.prepare(environment, config_of(job, {}), job["trials"], job["seed"])
    trials, sizes = np.zeros(job["trials"]), settings.sampling(run.settings, environment.spec)
    unseen = {name: np.array([value for _ in trials]) for name, value in environment.memory(sizes).items()}
    policies = TrainedPolicy.of(run.parts.policy, trials, environment.spec, unseen, run.config.setting)
    return environments.played(environment, environments.untrained(policies, job["seed"]), job["episodes"])


def config_of(table: framework.Table, changes: framework.Table) -> Config:
    """The configuration of a method: as many iterations as the steps allow, and defaults for what is left open."""
    config = Config.from_json({**table["config"], **changes})
    return settings.for_steps(config, envs.make(table["env"], table["num_envs"]).spec, table["steps"])


def findings(tables: Tables, measured: Mapping[str, Methods], missing: Mapping[str, str]) -> Findings:
    """Everything, in reading order; of an environment that is `missing` only why."""
    claims = [Claim(_IMPROVES.format(name), why, "not measured") for name, why in missing.items()]
    listed, shown = [], []
    for name, methods in measured.items():
        table = tables[name]
        peer = recorded.network_peer(str(table["env"]))
        claims += [target_claim(name, table, methods, target) for target in table["targets"]]
        after, before = (_volume(table, methods[key]["discounted"]) for key in (MAIN, START))
        claims.append(environments.improved(_IMPROVES.format(name), after, before, f"{name} over steps"))
        claims += [task_claim(name, methods)] if name.startswith(_TASKS) else []
        claims.append(_beats_controls(name, table, methods))
        if peer is not None:
            claims.append(beats_peer(name, table, methods, peer))
            claims += [beats_peer(name, table, methods, peer, key, "sum") for key in (MAIN, SUM) if key in methods]
        listed.append(_table(name, table, methods, peer))
        shown.append(_figure(name, table, methods, peer))
    return Findings(tuple(claims), tuple(listed), tuple(shown))


def _volume(table: framework.Table, points: Any) -> Any:
    return environments.volumes(points, table["reference"])


def target_claim(name: str, table: framework.Table, methods: Methods, target: framework.Table) -> Claim:
    """Whether a method reaches what the study's file asks of it, by the mean over trials.

    `of` names the quantity: the `hypervolume` above the reference, the `sum` or the `mean` of the discounted returns,
    the `smallest` mean of an objective, or the undiscounted return of the `first` objective.
    """
    arrays, least = methods[target["method"]], float(target["least"])
    J, told = arrays["discounted"], str(target["of"])
    smallest = J[:, J.mean(axis=0).argmin()]
    values = {
        "hypervolume": _volume(table, J),
        "sum": J.sum(axis=1),
        "mean": J.mean(axis=1),
        "smallest": smallest,
        "first": arrays["returns"][:, 0],
    }[told]
    mean = statistics.mean(values)
    verdict = "holds" if mean.value >= least else "does not hold"
    what = {"smallest": "smallest mean return", "first": "first return, undiscounted,"}.get(told, told)
    claim = f"On {name} {target['method']} reaches a {what} of {least:,g} in the mean over trials"
    low, high = float(values.min()), float(values.max())
    measured = f"{mean}; trials between {low:,.4g} and {high:,.4g}."
    return Claim(claim, measured, verdict, f"{name}: where methods end")


def task_claim(name: str, methods: Methods) -> Claim:
    """Whether MOAC learns what the environment is about."""
    ours, before = methods[MAIN], methods[START]
    if name.startswith("minecart"):
        task, (told, parts) = "sells more of both ores", environments.sells_more_ore(ours["returns"], before["returns"])
    elif name.startswith("mo-mountaincar"):
        task, (told, parts) = "reaches the flag", environments.reaches_the_flag(ours["ended"])
        others = ", ".join(f"{key} {_ended(arrays):.3g}" for key, arrays in methods.items() if key != MAIN)
        told = f"{told} The others: {others}."
    else:
        task, (told, parts) = "lands more often than it crashes", environments.lands(ours["returns"][:, 0])
    return compare.claim(f"On {name} MOAC {task}", told, parts, f"{name}: where methods end")


def _beats_controls(name: str, table: framework.Table, methods: Methods) -> Claim:
    """Against the other methods trial by trial, since they share seeds."""
    ours = _volume(table, methods[MAIN]["discounted"])
    controls = {key: arrays for key, arrays in methods.items() if key not in (MAIN, START) and DEFAULTS not in key}
    differences = {k: compare.paired(ours, _volume(table, arrays["discounted"])) for k, arrays in controls.items()}
    return compare.claim(
        f"On {name} MOAC ends with a larger hypervolume than {', '.join(differences)}",
        f"difference to each: {'; '.join(f'{key} {_told(change)}' for key, change in differences.items())}.",
        map(compare.above, differences.values()),
        f"{name}: where methods end",
    )


def _told(difference: Mean) -> str:
    """A difference and what it means."""
    above, below = (decide(difference).verdict == "holds" for decide in (compare.above, compare.below))
    return f"{difference} ({'larger' if above else 'smaller' if below else 'not told apart'})"


def beats_peer(
    name: str, table: framework.Table, methods: Methods, peer: NetworkPeer, method: str = MAIN, of: str = "hypervolume"
) -> Claim:
    """Against an agent with seeds of its own, by hypervolume or by the sum of returns, which is what it maximises."""
    points = methods[method]["discounted"], peer.discounted
    ours, theirs = (_volume(table, x) if of == "hypervolume" else x.sum(axis=1) for x in points)
    difference = compare.apart(ours, theirs)
    return compare.claim(
        f"On {name} {method} has a larger {of}{' of returns' if of == 'sum' else ''} after "
        f"{methods[method]['steps'][-1]:,} steps than morl-baselines' {peer.name} after {peer.steps:,}",
        f"{statistics.mean(ours)} against {statistics.mean(theirs)}, difference {_told(difference)}; {len(ours)} "
        f"trials against {len(theirs)} seeds.",
        [compare.above(difference)],
        f"{name}: where methods end",
    )


def _table(name: str, table: framework.Table, methods: Methods, peer: NetworkPeer | None) -> Table:
    """Discounted returns and hypervolume of the final policies, and of those that training begins with."""
    names = environments.objective_names(str(table["env"]), methods[MAIN]["discounted"].shape[1])

    def row(points: Any) -> tuple[str, ...]:
        return tuple(str(statistics.mean(column)) for column in (*points.T, _volume(table, points)))

    rows: list[tuple[Value, ...]] = [
        (key, int(arrays["steps"][-1]) if "steps" in arrays else 0, *row(arrays["discounted"]), _ended(arrays))
        for key, arrays in methods.items()
    ]
    caption = (
        f"Discounted returns of the final policies in {table['episodes']} episodes: means over {table['trials']} "
        f"trials with 95 % intervals. The hypervolume is the mean of the trials', each above {table['reference']}; "
        "`ended` is the share of episodes that end before their time limit."
    )
    if table["own"]:
        own = "; ".join(
            f"{key}: {', '.join(f'{name} {value}' for name, value in changes.items())}"
            for key, changes in table["own"].items()
        )
        caption += f" Chosen for this environment, on other seeds: {own}. Rows named {DEFAULTS[2:]} go without it."
    if peer is not None:
        rows.append((peer.name, peer.steps, *row(peer.discounted), None))
        caption += (
            f" {peer.name} ({peer.settings}; {len(peer.discounted)} seeds, {peer.cpu_seconds:.0f} CPU seconds each): "
            f"{recorded.networks_source()}."
        )
    header = ("method", "steps", *names, "hypervolume", "ended")
    return Table(f"{name}: where methods end", caption, header, tuple(rows))


def _ended(arrays: Arrays) -> float:
    return float(arrays["ended"].mean())


def _figure(name: str, table: framework.Table, methods: Methods, peer: NetworkPeer | None) -> Shown:
    """All methods on one environment: one panel for each return, and one for the hypervolume."""
    M, panels = len(table["reference"]), list[drawings.Panel]()
    for i, title in enumerate((*environments.objective_names(str(table["env"]), M), "hypervolume")):

        def quantity(returns: Any, i: int = i) -> Any:
            return returns[..., i] if i < M else _volume(table, returns)

        level = statistics.mean(quantity(methods[START]["discounted"])).value
        after = {key: arrays for key, arrays in methods.items() if key != START}
        lines = [(key, own["steps"] / 1000, quantity(own["over_steps"])) for key, own in after.items()]
        lines += [] if peer is None else [(peer.name, [peer.steps / 1000], quantity(peer.discounted)[:, None])]
        curves = tuple(drawings.Curve(*line, colour) for colour, line in enumerate(lines))
        before = drawings.Line(START, [0, lines[0][1][-1]], [level, level])
        labels = ("thousand steps", "discounted return" if i < M else title)
        panels.append(drawings.Panel(title, labels, curves, (before,), log_x=False, log_y=False))
    beside = "" if peer is None else f" A single dot: where {peer.name} ends, with the interval over its seeds."
    return Shown(
        f"{name} over steps",
        name,
        drawings.curves(panels, columns=M + 1 if M < 3 else (M + 2) // 2),
        f"Discounted returns and hypervolume above {table['reference']} while training: means over {table['trials']} "
        f"trials of {table['evaluation_episodes']} episodes per evaluation, with 95 % bands. Dotted: the untrained "
        f"policy in {table['episodes']} episodes.{beside}",
        f"Line plots over environment steps on {name}: one panel per objective and one for the hypervolume, one line "
        "per method.",
    )
