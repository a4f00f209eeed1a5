"""What the runs of the study show, as claims, tables and figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import ks_2samp

from moac import momdp, statistics
from moac.config import Config, Discounted
from moac.files import Arrays
from moac.momdp import library
from moac.report import style
from moac.report.page import Claim, Table
from moac_studies import compare, playing, tasks
from moac_studies.playing import Table as Parameters
from moac_studies.studies import Findings, Shown

_LEVEL = 0.01
"""Of the tests for equal distributions, all objectives together."""
_ALIKE = 0.05
"""Mean returns agree where they differ by less than this share of what Pareto-optimal policies differ by."""
_NEAR = 0.01
"""A point within this share of the front's extent is on it."""


def findings(
    tables: Mapping[str, Parameters], alike: Arrays, treasure: Arrays, learned: Mapping[str, Arrays]
) -> Findings:
    """Everything, in reading order."""
    claims = [_agrees(alike, _extent(tables["resource-gathering"])), _on_front(treasure)]
    listed = [_agreement_table(tables["resource-gathering"], alike)]
    figures = []
    for name, found in learned.items():
        references = (tables[name][key] for key in ("reference", "strict_reference"))
        claims += [*(_improves(name, found, reference) for reference in references), _reaches(name, found)]
        listed.append(_learned_table(tables[name], found))
        figures.append(_ends(tables[name], found))
    return Findings(tuple(claims), tuple(listed), tuple(figures))


def _extent(table: Parameters) -> Any:
    """How far apart Pareto-optimal policies of an environment's exact model lie in each objective [M]."""
    model = library.for_environment(table["env"])
    assert model is not None  # noqa: S101 - the study's file names an environment of the library
    return np.ptp(momdp.pareto_front(model, Config.from_json(table["config"]).setting or Discounted()).points, axis=0)


def _agrees(found: Arrays, extent: Any) -> Claim:
    """Means must be shown to be alike; distributions that are told apart refute it."""
    real, model = found["environment"], found["model"]
    shares = [compare.apart(real[:, i], model[:, i]).mapped(lambda x, e=e: x / e) for i, e in enumerate(extent)]
    tests: list[Any] = [ks_2samp(real[:, i], model[:, i]) for i in range(len(extent))]
    smallest = min(float(test.pvalue) for test in tests)
    not_told_apart = compare.known(smallest >= _LEVEL / len(tests))
    return compare.claim(
        "Trained on the real resource-gathering, its time limit lifted, policies end as on its exact model",
        f"difference of the mean exact returns, as a share of what Pareto-optimal policies differ by: "
        f"{', '.join(map(str, shares))}, asked: within ± {_ALIKE}; smallest p of {len(tests)} Kolmogorov–Smirnov tests "
        f"{smallest:.3g}, asked: no less than {_LEVEL}/{len(tests)}; {len(real)} trials against {len(model)}.",
        [compare.all_of([not_told_apart, *(compare.steady(share, _ALIKE) for share in shares)])],
        "Environment and model",
    )


def _on_front(found: Arrays) -> Claim:
    front, ends = found["front"], found["environment"]
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


def _improves(name: str, found: Arrays, reference: list[float]) -> Claim:
    volumes = {who: playing.volumes(found[f"{who}_discounted"], reference) for who in ("trained", "random")}
    change = compare.paired(volumes["trained"], volumes["random"])
    return compare.claim(
        f"On {name} training improves the hypervolume above {reference} over the random policy",
        f"change {change}, random policy {statistics.mean(volumes['random'])}, {len(volumes['random'])} trials.",
        [compare.above(change)],
        f"{name}: before and after",
    )


def _reaches(name: str, found: Arrays) -> Claim:
    """Whether the task itself is learned, not only its costs avoided."""
    if name == "minecart":
        ore = tasks.sells_more_ore(found["trained_returns"], found["random_returns"])
        return compare.claim("On minecart plain MOAC learns to sell more of both ores", *ore)
    return compare.claim(
        "On mo-mountaincar plain MOAC learns to reach the flag", *tasks.reaches_the_flag(found["trained_ended"])
    )


def _agreement_table(table: Parameters, found: Arrays) -> Table:
    names = playing.objectives(str(table["env"]), found["model"].shape[1])
    rows = tuple(
        (name, *(str(statistics.mean(found[part][:, i])) for part in ("environment", "model")))
        for i, name in enumerate(names)
    )
    caption = "Exact discounted returns at the end of training: mean over trials with its 95 % interval."
    return Table("Environment and model", caption, ("Objective", "Real environment", "Exact model"), rows)


def _learned_table(table: Parameters, found: Arrays) -> Table:
    names = playing.objectives(str(table["env"]), found["trained_returns"].shape[1])
    rows: list[tuple[str, ...]] = []
    for label, part in (("discounted", "discounted"), ("whole episode", "returns")):
        for i, name in enumerate(names):
            pair = (str(statistics.mean(found[f"{who}_{part}"][:, i])) for who in ("random", "trained"))
            rows.append((f"{name}, {label}", *pair))
    length = (str(statistics.mean(found[f"{who}_length"])) for who in ("random", "trained"))
    rows.append(("steps per episode", *length))
    caption = f"Means over {len(found['trained_length'])} trials of {table['episodes']} episodes each; 95 % intervals."
    title = f"{str(table['env']).rpartition('-v')[0]}: before and after"
    return Table(title, caption, ("Return", "Random policy", "Trained"), tuple(rows))


def _ends(table: Parameters, found: Arrays) -> Shown:
    env = str(table["env"])
    names = playing.objectives(env, found["trained_discounted"].shape[1])
    return Shown(
        env,
        env,
        _scatter(found, names),
        f"Discounted returns of each trial in {env}, before training (the random policy) and after.",
        f"Scatter plots of returns in {env} per pair of objectives, before and after training.",
    )


@style.styled
def _scatter(found: Arrays, names: tuple[str, ...]) -> Figure:
    pairs = [(i, j) for i in range(len(names)) for j in range(i + 1, len(names))]
    figure, axes = style.grid(1, len(pairs), (4.0 * len(pairs), 3.8))
    for ax, (i, j) in zip(axes, pairs, strict=True):
        for index, who in enumerate(("random", "trained")):
            points = found[f"{who}_discounted"]
            look: dict[str, Any] = {"s": 26, "alpha": 0.7, "linewidths": 0, "color": style.line(index)["color"]}
            ax.scatter(points[:, i], points[:, j], label=who, **look)
        ax.set_xlabel(names[i])
        ax.set_ylabel(names[j])
        ax.margins(0.1)
    axes[-1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure
