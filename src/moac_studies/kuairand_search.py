"""The search of the comparison on a log: all methods with as many settings each, trained, and evaluated on users.

Settings are chosen on validation users. Test users are read once, for the chosen settings, and that is noted before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import pairwise
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from moac import api, files
from moac.config import Config, Discounted
from moac.files import Arrays
from moac.logs.dataset import LoggedDataset
from moac.offline.baselines import pdpg, tscac
from moac.offline.choose import choose
from moac.offline.evaluate import evaluate
from moac.offline.evaluation import Line, Method, OfflineEvaluation, Outcome, fingerprints
from moac.offline.ncis import Options, estimates
from moac.policies import SoftmaxMLP
from moac.policies.networks import Plain
from moac.statistics import Mean
from moac_studies.framework import Table, Workspace

MAIN = "MOAC"
_OTHERS = {"pdpg": pdpg, "tscac": tscac}
LEARNERS = ("moac", *_OTHERS)


@dataclass(frozen=True, eq=False)
class Trained:
    """One setting of one method."""

    method: str  # name of the method
    setting: Table  # what was searched over
    policy: SoftmaxMLP  # the network
    theta: Any  # weights of the training seeds, leading axis K
    steps: np.ndarray[Any, Any]  # [L] at which λ was noted
    weights: np.ndarray[Any, Any]  # [K, L, M] λ, or what the method has in its place

    @property
    def about(self) -> str:
        """The setting as a text."""
        return ", ".join(f"{key} {value:g}" for key, value in self.setting.items())

    @property
    def name(self) -> str:
        """Tells it from the other settings."""
        return f"{self.method}, {self.about}"

    @property
    def policies(self) -> Method:
        """What an estimate needs."""
        return self.policy, self.theta


def trained(dataset: LoggedDataset, name: str, table: Table, setting: Table, common: Table, work: Workspace) -> Trained:
    """A method from the file of an earlier call, or trained now on a dataset with propensities.

    `table` has its `learner` and what it sets beside the search, `setting` is one of the search, and `common` has
    `trials`, `iterations`, `num_evaluations`, `seed` and `start`.
    """
    learner = table["learner"]
    if learner not in LEARNERS:
        raise ValueError(f"`learner` must be one of {', '.join(LEARNERS)}, got {learner!r}.")
    options = {key: value for key, value in table.items() if key not in ("learner", "search")} | dict(setting)
    identity = {"data": dataset.fingerprint, "learner": learner, **options, **common}
    arrays = work.keep(_label(name, setting, common), identity, lambda: _learn(dataset, learner, options, common))
    layers = tuple(arrays[key] for key in sorted(arrays) if key.startswith("theta."))
    hidden = tuple(layer.shape[2] for layer in layers[:-1])
    policy = SoftmaxMLP(Plain(dataset.num_features), hidden, dataset.num_actions)
    return Trained(name, setting, policy, layers, arrays["steps"], arrays["weights"])


def _learn(dataset: LoggedDataset, learner: str, options: Table, common: Table) -> Arrays:
    both = {name: common[name] for name in ("start", "num_evaluations")}
    if learner == "moac":
        values = {key: value for key, value in options.items() if key != "discount"}
        setting = Discounted(options["discount"]) if "discount" in options else None
        config = Config(setting=setting, num_iterations=common["iterations"], **both, **values)
        outcome = api.train(dataset, config, trials=common["trials"], seed=common["seed"])
        theta, steps, weights = outcome.policy.theta, outcome.history.iteration, outcome.history.weights
    else:
        module = _OTHERS[learner]
        known = {field.name for field in fields(module.Options)}
        for key in (key for key in options if key not in known):
            raise ValueError(f"`{key}` is not an option of {learner}; known are {', '.join(sorted(known))}.")
        chosen = module.Options(steps=common["iterations"], **both, **options)
        learned = module.train(dataset, chosen, common["trials"], common["seed"])
        theta, steps, weights = learned.theta, learned.steps, learned.weights_history
    layers = {f"theta.{k}": np.asarray(layer) for k, layer in enumerate(jax.tree.leaves(theta))}
    return layers | {"steps": np.asarray(steps), "weights": np.asarray(weights)}


def _label(name: str, setting: Table, common: Table) -> str:
    words = [name, *(f"{key} {value:g}" for key, value in setting.items()), f"from {common['start']}"]
    return "-".join("".join(c if c.isalnum() else "-" for c in word.lower()) for word in words)


@dataclass(frozen=True)
class OnUsers:
    """One policy, or the seeds of one setting, on a split's users, as plain data."""

    name: str  # of it
    lines: tuple[Line, ...]  # one per signal
    share: float  # effective share of rows, of the worst seed
    verdict: str  # trusted, with care or not trusted
    against: tuple[str, ...] = ()  # reasons not to choose it; only where there was a choice
    gain: float = 0.0  # see `moac.offline.choose.Candidate`
    # relative change of each signal in each draw of users [B]; kept in memory alone
    draws: Mapping[str, Float[np.ndarray, " B"]] = field(default_factory=dict, compare=False)

    def line(self, signal: str) -> Line | None:
        """Of a signal, where it fires."""
        return next((line for line in self.lines if line.signal == signal), None)

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(replace(self, draws={}))

    @staticmethod
    def of_dict(data: Mapping[str, Any]) -> OnUsers:
        """From `as_dict`, also after JSON."""
        ranges = ("interval", "relative_interval", "difference_interval")
        read = [Line(**line | {name: tuple(line[name]) for name in ranges}) for line in data["lines"]]
        given: dict[str, Any] = {**data, "lines": tuple(read), "against": tuple(data["against"])}
        return OnUsers(**given)


def on_users(evaluation: OfflineEvaluation) -> dict[str, OnUsers]:
    """All methods on a split's users, beside Behavior-Clone; with what speaks against each."""
    candidates = {each.name: each for each in choose(evaluation).candidates}

    def of(name: str) -> OnUsers:
        report, candidate = evaluation.report.policies[name], candidates[name]
        share = min(each.row_effective_share for each in report.diagnostics)
        changes = () if report.change is None else report.change.relative_draws.T
        draws = dict(zip(evaluation.report.signal_names, changes, strict=report.change is not None))
        verdict = report.verdict.level
        return OnUsers(name, evaluation.lines(name), share, verdict, candidate.against, candidate.gain, draws)

    return {name: of(name) for name in evaluation.methods}


def best(settings: Sequence[OnUsers]) -> OnUsers:
    """The admissible one with the largest gain; where none is, the one with the fewest reasons against it."""
    return min(settings, key=lambda each: (len(each.against), -each.gain))


@dataclass(frozen=True, eq=False)
class Searched:
    """All settings of all methods, on validation users."""

    trained: Mapping[str, Sequence[Trained]]  # by method, in the order of the search; from Behavior-Clone
    on_users: Mapping[str, OnUsers]  # by name of the setting
    from_random: Mapping[str, OnUsers]  # the chosen settings once more, started at random

    def of(self, method: str) -> list[OnUsers]:
        """A method's settings."""
        return [self.on_users[each.name] for each in self.trained[method]]

    def chosen(self, method: str) -> Trained:
        """The setting that validation users choose."""
        name = best(self.of(method)).name
        return next(each for each in self.trained[method] if each.name == name)


def search(dataset: LoggedDataset, parameters: Mapping[str, Any], seed: int, work: Workspace) -> Searched:
    """Train and evaluate; every method must have as many settings as the others."""
    methods, common = parameters["methods"], {**parameters["training"], "seed": seed}
    if len({len(table["search"]) for table in methods.values()}) != 1:
        raise ValueError("`search` must hold the same number of settings for every method.")
    near = {**common, "start": "behaviour"}
    by_method = {
        name: [trained(dataset, name, table, setting, near, work) for setting in table["search"]]
        for name, table in methods.items()
    }
    policies = {each.name: each.policies for settings in by_method.values() for each in settings}
    searched = Searched(by_method, on_users(evaluate(dataset, policies)), {})
    if not parameters["judging"]["random_start"]:
        return searched
    again = {**common, "start": "random"}
    started = {
        name: trained(dataset, name, methods[name], searched.chosen(name).setting, again, work).policies
        for name in methods
    }
    return replace(searched, from_random=on_users(evaluate(dataset, started)))


def tested_once(dataset: LoggedDataset, chosen: Mapping[str, Trained], work: Workspace) -> dict[str, OnUsers]:
    """What test users say; of the same policies and data an earlier answer is taken, and they are not asked again."""
    methods = {name: each.policies for name, each in chosen.items()}
    asked = {"data": dataset.fingerprint, "policies": fingerprints(methods)}
    path = work.folder / "test.json"
    kept = files.read_json(path) if path.exists() else {}
    if kept.get("asked") == asked:
        return {name: OnUsers.of_dict(own) for name, own in kept["judged"].items()}
    about = {"study": "comparison", "settings": {name: dict(each.setting) for name, each in chosen.items()}}
    evaluation = evaluate(dataset, methods, "test", run=work.folder, about=about)
    work.say(str(evaluation.accesses))
    results = on_users(evaluation)
    files.write_json(path, {"asked": asked, "judged": {name: own.as_dict() for name, own in results.items()}})
    return results


@dataclass(frozen=True, eq=False)
class AtShare:
    """A method at an effective share of rows, between the two settings on either side of it."""

    lines: Mapping[str, Line]  # by signal; relative changes and ends of their intervals are in proportion
    # relative change of each signal in each draw of users [B], in proportion as well
    draws: Mapping[str, Float[np.ndarray, " B"]]

    @property
    def estimable(self) -> tuple[str, ...]:
        """Signals that can be estimated."""
        return tuple(name for name, line in self.lines.items() if line.outcome != "not estimable")


def at_share(settings: Sequence[OnUsers], share: float) -> AtShare | None:
    """A method's settings at an effective share; None where there are none on either side of it."""
    for low, high in pairwise(sorted(settings, key=lambda each: each.share)):
        if low.share <= share <= high.share and high.share > low.share:
            part = (share - low.share) / (high.share - low.share)
            pairs = zip(low.lines, high.lines, strict=True)
            between = {a.signal: _between(a, b, part) for a, b in pairs}
            draws = {name: (1 - part) * low.draws[name] + part * high.draws[name] for name in between}
            return AtShare(between, draws)
    return None


def _between(a: Line, b: Line, part: float) -> Line:
    """A line whose relative change and interval are between two others; what else it has is of the first."""
    firsts, seconds = ((line.relative, *line.relative_interval) for line in (a, b))
    relative, low, high = ((1 - part) * x + part * y for x, y in zip(firsts, seconds, strict=True))
    estimable = "not estimable" not in (a.outcome, b.outcome)
    outcome: Outcome = "no difference" if estimable else "not estimable"
    return replace(a, relative=relative, relative_interval=(low, high), outcome=outcome)


def leads(one: AtShare, other: AtShare) -> dict[str, Mean]:
    """By how much one method gains more than another in each signal that can be estimated for both.

    A paired difference of relative changes, with its 95 % interval, users drawn alike for both; a cost that falls is
    a gain.
    """

    def lead(signal: str) -> Mean:
        sign = -1.0 if one.lines[signal].cost else 1.0
        draws = sign * (one.draws[signal] - other.draws[signal])
        low, high = estimates.interval(draws, Options().level)
        value = sign * (one.lines[signal].relative - other.lines[signal].relative)
        return Mean(value, float(low), float(high), len(draws))

    return {name: lead(name) for name in one.estimable if name in other.estimable}
