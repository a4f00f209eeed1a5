"""The study `environments`: what plain MOAC learns in real environments, and that they are stepped rightly.

Also how studies train on environments, play what was trained, and tell whether a task itself is learned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from scipy.stats import ks_2samp

from moac import api, envs, momdp, statistics
from moac.config import Config, Discounted
from moac.envs.evaluation import play, seeds_of
from moac.envs.make import objective_names
from moac.files import Arrays
from moac.report.page import Claim, Table
from moac.report.pages.experiment import Findings, Shown
from moac.runs.problems import model_of
from moac.search import values
from moac.settings import Settings
from moac.training import result
from moac.training.trained import TrainedPolicy
from moac_studies import compare, drawings, framework
from moac_studies.compare import Part
from moac_studies.framework import Study, Tables, Workspace

Finding = tuple[str, Sequence[Part]]  # What was measured, and what it decides
_STREAM = 2_000_000  # Sets the seeds of these episodes apart from those of training and of its evaluations
_OFTEN, _SOMETIMES = 0.5, 0.01
"""Shares of episodes: a flag that is reached more often than the first is reached, than the second, in part."""
UNLIMITED = 1e6
"""A share of the training steps that evaluations never reach."""
_LEVEL = 0.01  # Of the tests for equal distributions, all objectives together
_ALIKE = 0.05  # Mean returns agree where they differ by less than this share of what Pareto-optimal policies differ by
_NEAR = 0.01  # A point within this share of the front's extent is on it


def train(table: framework.Table, config: Config, seed: int, **options: Any) -> result.Result:
    """The trials of a table, which has `env`, `num_envs` and `trials`; options go to the environment.

    Every evaluation that the configuration asks for takes place, whatever its share of the steps.
    """
    given: dict[str, Any] = {"evaluation_episodes": 1, **options}
    environment = envs.make(table["env"], table["num_envs"], **given)
    all_evaluated = replace(config, evaluation_share=UNLIMITED)
    return api.train(environment, all_evaluated, trials=table["trials"], seed=seed)


def untrained(policies: TrainedPolicy, seed: int) -> TrainedPolicy:
    """Policies of the same kind as training begins with, one per trial."""
    keys = jax.random.split(jax.random.key(seed), policies.num_trials)
    return replace(policies, theta=jax.vmap(policies.policy.init)(keys))


def played(environment: envs.Environment, policies: TrainedPolicy, count: int) -> Arrays:
    """Means over `count` whole episodes of every trial, whose seeds depend on the trial alone.

    `discounted` and `returns` [K, M], `length` and the share that `ended` before the time limit [K].
    """
    gamma = (policies.setting or Discounted()).discounts(environment.spec.num_objectives)

    def of_trial(policy: TrainedPolicy) -> dict[str, Any]:
        done = play(environment, policy, episode_seeds(policy.trial, count), gamma)
        parts = {"discounted": done.discounted, "returns": done.returns, "length": done.lengths}
        means = {part: each.mean(axis=0) for part, each in parts.items()}
        return means | {"ended": 1 - done.truncated.mean()}

    rows = [of_trial(policies.of_trial(k)) for k in range(policies.num_trials)]
    return {part: np.array([row[part] for row in rows]) for part in rows[0]}


def episode_seeds(trial: int, count: int) -> list[int]:
    """Of the episodes in which `played` lets a trial play."""
    return seeds_of(_STREAM + trial, count)


def volumes(points: Float[np.ndarray, "*N M"], reference: list[float]) -> Float[np.ndarray, "*N"]:
    """The hypervolume of each point by itself; 0 where it is not above the reference."""
    flat = [momdp.hypervolume(point[None], reference) for point in points.reshape(-1, points.shape[-1])]
    return np.array(flat).reshape(points.shape[:-1])


def sells_more_ore(trained: Any, start: Any) -> Finding:
    """Minecart, by returns [K, M] in the same episodes: whether more of both ores is sold than without training."""
    ores = trained[:, :2], start[:, :2]
    changes = [compare.paired(after, before) for after, before in zip(ores[0].T, ores[1].T, strict=True)]
    return f"change of the ore sold per episode: {changes[0]} and {changes[1]}.", compare.dominates(*ores)


def reaches_the_flag(ended: Any) -> Finding:
    """Mountain car, by the share of episodes [K] that end before the time limit."""
    share = statistics.mean(ended)
    parts = [compare.above(share, bound) for bound in (_SOMETIMES, _OFTEN)]
    never = "; it learns to save fuel by standing still" if parts[0].verdict == "does not hold" else ""
    return f"share of episodes that reach the flag: {share}{never}.", parts


def lands(outcome: Any) -> Finding:
    """Lunar lander, by the first return [K] of whole episodes: 100 for a landing, −100 for a crash."""
    mean = statistics.mean(outcome)
    return f"mean of 100 for a landing and −100 for a crash: {mean}.", [compare.above(mean)]


def run(study: Study, work: Workspace) -> Findings:
    """Measure, judge and draw."""
    tables = study.parameters
    alike = _ends(tables["resource-gathering"], study.seed, work, "agreement")
    treasure = _ends(tables["deep-sea-treasure"], study.seed, work, "ends")
    learned = {name: _against_random(tables[name], study.seed, work) for name in ("minecart", "mo-mountaincar")}
    return findings(tables, alike, treasure, learned)


def _config(table: framework.Table) -> Config:
    return Config.from_json({"num_evaluations": 1, "learner": "paper", **table["config"]})


def _ends(table: framework.Table, seed: int, work: Workspace, label: str) -> Arrays:
    """Exact returns of policies trained on the real environment, beside its exact front.

    For the `agreement` the time limit is lifted, and what training on its model gives stands beside them instead.
    """

    def measure() -> Arrays:
        model, agreement = model_of(table["env"]), label == "agreement"
        trained = train(table, _config(table), seed, **({"time_limit": False} if agreement else {}))
        policies = [trained.policy.of_trial(k) for k in range(table["trials"])]
        exact = values.exact(model, policies, Settings.of(trained.config).setting)
        unknown = np.full((len(policies), model.num_objectives), np.nan)
        arrays = {"environment": unknown if exact is None else exact}
        if agreement:
            compiled = api.train(model, _config(table), trials=table["model_trials"], seed=seed)
            return arrays | {"model": compiled.returns}
        return arrays | {"front": momdp.pareto_front(model, trained.run.settings.setting).points}

    return work.keep(label, {"seed": seed, **table}, measure)


def _against_random(table: framework.Table, seed: int, work: Workspace) -> Arrays:
    """Discounted and plain returns of trained policies and of the untrained one, in episodes with the same seeds."""

    def measure() -> Arrays:
        trained = train(table, _config(table), seed)
        environment: Any = trained.run.source
        arrays: Arrays = {}
        for name, policies in (("trained", trained.policy), ("random", untrained(trained.policy, seed))):
            rows = played(environment, policies, table["episodes"])
            arrays |= {f"{name}_{part}": array for part, array in rows.items()}
        return arrays

    return work.keep(str(table["env"]), {"seed": seed, **table}, measure)


def findings(tables: Tables, alike: Arrays, treasure: Arrays, learned: Mapping[str, Arrays]) -> Findings:
    """Everything, in reading order."""
    claims = [agrees(alike, extent(tables["resource-gathering"])), on_front(treasure)]
    listed, shown = [_agreement_table(tables["resource-gathering"], alike)], list[Shown]()
    for name, ends in learned.items():
        references = (tables[name][key] for key in ("reference", "strict_reference"))
        claims += [*(improves(name, ends, reference) for reference in references), reaches(name, ends)]
        listed.append(_learned_table(tables[name], ends))
        shown.append(_figure(tables[name], ends))
    return Findings(tuple(claims), tuple(listed), tuple(shown))


def extent(table: framework.Table) -> Any:
    """How far apart Pareto-optimal policies of an environment's exact model lie in each objective [M]."""
    setting = Config.from_json(table["config"]).setting or Discounted()
    return np.ptp(momdp.pareto_front(model_of(table["env"]), setting).points, axis=0)


def agrees(ends: Arrays, extent: Any) -> Claim:
    """Means must be shown to be alike; distributions that are told apart refute it."""
    real, model = ends["environment"], ends["model"]
    shares = [compare.apart(real[:, i], model[:, i]).mapped(lambda x, e=e: x / e) for i, e in enumerate(extent)]
    tests: list[Any] = [ks_2samp(real[:, i], model[:, i]) for i in range(len(extent))]
    smallest = min(float(test.pvalue) for test in tests)
    not_told_apart = compare.known(smallest >= _LEVEL / len(tests))
    return compare.claim(
        "Trained on the real resource-gathering, its time limit lifted, policies end as on its exact model",
        f"difference of the mean exact returns, as a share of what Pareto-optimal policies differ by: "
        f"{', '.join(map(str, shares))}, required: within ± {_ALIKE}; smallest p of {len(tests)} Kolmogorov–Smirnov "
        f"tests {smallest:.3g}, required: no less than {_LEVEL}/{len(tests)}; {len(real)} trials against {len(model)}.",
        [compare.all_of([not_told_apart, *(compare.near(share, 0.0, _ALIKE) for share in shares)])],
        "Environment and model",
    )


def on_front(treasure: Arrays) -> Claim:
    """Whether every trial ends at a point of the exact front."""
    front, ends = treasure["front"], treasure["environment"]
    distance = np.linalg.norm((ends[:, None] - front) / np.ptp(front, axis=0), axis=2)
    near = distance.min(axis=1) <= _NEAR
    nearest = front[distance.argmin(axis=1)][near]
    which = ", ".join(f"{value:.3g}" for value in np.unique(nearest[:, 0].round(3)))
    return compare.claim(
        "On deep-sea-treasure-concave every trial ends at a Pareto-optimal treasure",
        f"{int(near.sum())} of {len(near)} trials within {100 * _NEAR:g} % of a point of the exact front; their "
        f"discounted treasures: {which or 'none'}",
        map(compare.known, near),
    )


def improves(name: str, ends: Arrays, reference: list[float]) -> Claim:
    """Whether training improves the hypervolume over the random policy."""
    text = f"On {name} training improves the hypervolume above {reference} over the random policy"
    after, before = (volumes(ends[f"{who}_discounted"], reference) for who in ("trained", "random"))
    return improved(text, after, before, f"{name}: before and after")


def improved(text: str, trained: Any, start: Any, evidence: str) -> Claim:
    """Whether volumes [K] are larger than those that training began with, trial by trial."""
    change = compare.paired(trained, start)
    told = f"change {change}, untrained {statistics.mean(start)}, {len(start)} trials."
    return compare.claim(text, told, [compare.above(change)], evidence)


def reaches(name: str, ends: Arrays) -> Claim:
    """Whether the task itself is learned, not only its costs avoided."""
    if name == "minecart":
        ore = sells_more_ore(ends["trained_returns"], ends["random_returns"])
        return compare.claim("On minecart plain MOAC learns to sell more of both ores", *ore)
    flag = reaches_the_flag(ends["trained_ended"])
    return compare.claim("On mo-mountaincar plain MOAC learns to reach the flag", *flag)


def _agreement_table(table: framework.Table, ends: Arrays) -> Table:
    names = objective_names(str(table["env"]), ends["model"].shape[1])
    rows = tuple(
        (name, *(str(statistics.mean(ends[part][:, i])) for part in ("environment", "model")))
        for i, name in enumerate(names)
    )
    caption = "Exact discounted returns at the end of training: mean over trials with its 95 % interval."
    return Table("Environment and model", caption, ("Objective", "Real environment", "Exact model"), rows)


def _learned_table(table: framework.Table, ends: Arrays) -> Table:
    names, rows = objective_names(str(table["env"]), ends["trained_returns"].shape[1]), list[tuple[str, ...]]()
    for label, part in (("discounted", "discounted"), ("whole episode", "returns")):
        for i, name in enumerate(names):
            pair = (str(statistics.mean(ends[f"{who}_{part}"][:, i])) for who in ("random", "trained"))
            rows.append((f"{name}, {label}", *pair))
    length = (str(statistics.mean(ends[f"{who}_length"])) for who in ("random", "trained"))
    rows.append(("steps per episode", *length))
    caption = f"Means over {len(ends['trained_length'])} trials of {table['episodes']} episodes each; 95 % intervals."
    title = f"{str(table['env']).rpartition('-v')[0]}: before and after"
    return Table(title, caption, ("Return", "Random policy", "Trained"), tuple(rows))


def _figure(table: framework.Table, ends: Arrays) -> Shown:
    env, trials = str(table["env"]), {who: ends[f"{who}_discounted"] for who in ("random", "trained")}
    return Shown(
        env,
        env,
        drawings.ends(trials, objective_names(env, trials["random"].shape[1]), None),
        f"Discounted returns of each trial in {env}, before training (the random policy) and after.",
        f"Scatter plots of returns in {env} per pair of objectives, before and after training.",
    )
