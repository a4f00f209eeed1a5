"""The search of the comparison on a log: learners with as many settings each, baselines that know items alone.

Settings are chosen on validation users, whose controls are a constraint and no score. Test users are read once, for
what was chosen, and that is noted before. Learners learn from the paper's signals; all signals of the log are judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from moac import api, files
from moac.config import Config, Discounted
from moac.files import Arrays
from moac.logs.dataset import LoggedDataset
from moac.offline.baselines import pdpg, tilt, tscac
from moac.offline.choose import choose
from moac.offline.controls import EARLIER
from moac.offline.evaluate import evaluate
from moac.offline.evaluation import Line, Method, OfflineEvaluation, fingerprints
from moac.offline.ncis import Options, estimates
from moac.policies import SoftmaxMLP
from moac.policies.networks import Plain
from moac.report.numbers import change
from moac.statistics import Mean
from moac.weighting import first_batch
from moac_studies.framework import Table, Workspace

MAIN, TILT, FEATURE, NOT_CHECKED = "MOAC", "Tilt", "One feature", "not checked"
_OTHERS = {"pdpg": pdpg, "tscac": tscac}
_NOT_OPTIONS = ("learner", "search", "permuted", "first_complete_batch")


@dataclass(frozen=True, eq=False)
class Trained:
    """One setting of one method."""

    method: str  # name of the method
    setting: Table  # what was searched over
    policies: Method  # the network, and weights of the training seeds
    weights: np.ndarray[Any, Any]  # [K, L, M] λ, or what the method has in its place

    @property
    def about(self) -> str:
        """The setting as a text."""
        return ", ".join(f"{key} {value:g}" for key, value in self.setting.items())

    @property
    def name(self) -> str:
        """Tells it from the other settings."""
        return f"{self.method}, {self.about}"


def learned_from(dataset: LoggedDataset, signals: Sequence[str]) -> LoggedDataset:
    """The log with some of its signals as rewards, if it has all of them, in their order there; states stay."""
    kept = [k for k, name in enumerate(dataset.signal_names) if name in signals]
    if len(kept) == dataset.num_signals or len(kept) < len(signals):
        return dataset
    names, signs = tuple(dataset.signal_names[k] for k in kept), tuple(dataset.signs[k] for k in kept)
    label = f"{dataset.fingerprint}:{'+'.join(names)}"
    return replace(dataset, reward=dataset.reward[:, kept], signal_names=names, signs=signs, fingerprint=label)


@dataclass(frozen=True, eq=False)
class Bench:
    """A log with propensities, and how methods are trained on it."""

    dataset: LoggedDataset
    parameters: Mapping[str, Any]  # tables of the study
    seed: int
    work: Workspace

    @cached_property
    def source(self) -> LoggedDataset:
        """The log with the signals that are learned from."""
        return learned_from(self.dataset, self.parameters["paper"]["signals"])

    def trained(self, name: str, setting: Table, changed: Table = {}, options: Table = {}) -> Trained:  # noqa: B006
        """A method from the file of an earlier call, or trained now.

        `setting` is one of its search; `changed` and `options` take the place of what all methods have in common, and
        of what the method's table and setting say.
        """
        table = {**self.parameters["methods"][name], **options}
        start = "random" if self.source.behaviour is None else "behaviour"  # a log with propensities needs no model
        common = {**self.parameters["training"], "seed": self.seed, "start": start, **changed}
        setting = {key: options.get(key, value) for key, value in setting.items()}
        identity = {"data": self.source.fingerprint, **table, "search": None, "setting": dict(setting), **common}
        words = [name, *(f"{key} {value:g}" for key, value in setting.items())]
        words += [f"from {common['start']}", f"discount {common['discount']:g}"]
        label = "-".join("".join(c if c.isalnum() else "-" for c in word.lower()) for word in words)
        arrays = self.work.keep(label, identity, lambda: _learn(self.source, table, setting, common))
        layers = tuple(arrays[key] for key in sorted(arrays) if key.startswith("theta."))
        hidden = tuple(layer.shape[2] for layer in layers[:-1])
        policy = SoftmaxMLP(Plain(self.source.num_features), hidden, self.source.num_actions)
        return Trained(name, setting, (policy, layers), arrays["weights"])

    def judged(self, part: str, methods: Mapping[str, Method], split: str, checked: bool = True) -> dict[str, OnUsers]:
        """What a split's users say; of the same policies and data an earlier answer is taken: nobody is asked again."""
        asked = {"data": self.dataset.fingerprint, "policies": fingerprints(methods), "split": split}
        path = self.work.folder / f"judged-{part}.json"
        kept = files.read_json(path) if path.exists() else {}
        if kept.get("asked") == asked:
            return {name: OnUsers.of_dict(own) for name, own in kept["judged"].items()}
        about = {"study": "comparison", "part": part}
        noted: Any = {"control": () if checked else None, "run": self.work.folder, "about": about}
        evaluation = evaluate(self.dataset, methods, split, **noted)
        self.work.say(f"{part}: {split} users" if evaluation.accesses is None else str(evaluation.accesses))
        results = on_users(evaluation)
        if not checked:
            results = {name: replace(own, verdict=NOT_CHECKED, card={}) for name, own in results.items()}
        files.write_json(path, {"asked": asked, "judged": {name: own.as_dict() for name, own in results.items()}})
        return results


def _learn(dataset: LoggedDataset, table: Table, setting: Table, common: Table) -> Arrays:
    options = {key: value for key, value in table.items() if key not in _NOT_OPTIONS} | dict(setting)
    dataset = tilt.permuted(dataset, common["seed"]) if table.get("permuted") else dataset
    if table["learner"] == "moac":
        rule = first_batch(complete=True) if table.get("first_complete_batch") else None
        shared = {"setting": Discounted(common["discount"]), "num_iterations": common["iterations"]}
        shared |= {name: common[name] for name in ("start", "num_evaluations")}
        run = {"trials": common["trials"], "seed": common["seed"]}
        outcome = api.train(dataset, Config(**shared, **options), rule=rule, **run)
        theta, weights = outcome.policy.theta, outcome.history.weights
    else:
        module = _OTHERS[table["learner"]]
        given = {"steps": common["iterations"], **{name: common[name] for name in ("discount", "start")}}
        chosen = module.Options(**given, **options)
        learned = module.train(dataset, chosen, common["trials"], common["seed"])
        theta, weights = learned.theta, learned.state.weights[:, None]
    layers = {f"theta.{k}": np.asarray(layer) for k, layer in enumerate(jax.tree.leaves(theta))}
    return layers | {"weights": np.asarray(weights)}


@dataclass(frozen=True)
class OnUsers:
    """One policy, or the seeds of one setting, on a split's users, as plain data."""

    name: str  # of it
    lines: tuple[Line, ...]  # one per signal
    share: float  # effective share of rows, of the worst seed
    verdict: str  # trusted, with care or not trusted
    against: tuple[str, ...] = ()  # reasons not to choose it; only where there was a choice
    gain: float = 0.0  # see `moac.offline.choose.Candidate`
    card: Mapping[str, Any] = field(default_factory=dict)  # what the evaluation's card says of it
    # relative change of each signal in each draw of users [B]
    draws: Mapping[str, Float[np.ndarray, " B"]] = field(default_factory=dict, compare=False)

    def line(self, signal: str) -> Line | None:
        """Of a signal, where it fires."""
        return next((line for line in self.lines if line.signal == signal), None)

    @property
    def estimable(self) -> tuple[str, ...]:
        """Signals that can be estimated."""
        return tuple(line.signal for line in self.lines if line.outcome != "not estimable")

    @property
    def reasons(self) -> list[str]:
        """Of the verdict."""
        return list(self.card.get("reasons", ()))

    def verdict_of(self, signal: str) -> str:
        """On the estimate of one signal."""
        return self._card(signal).get("verdict") or self.verdict

    def gamma(self, signal: str) -> float | None:
        """Γ at which the interval of the change meets 0."""
        return (self._card(signal).get("sensitivity") or {}).get("gamma")

    def checks(self, signal: str) -> list[str]:
        """As texts: the control, Γ, the change on random exposure, on its users' standard rows, and the difference."""
        control = (self._card(signal).get("controls") or {}).get(EARLIER, {})
        held = change(control["change"], control["interval"]) if control.get("power") else "no power"
        gamma, chance = self.gamma(signal), self._card(signal).get("random_exposure")
        told = (chance and chance[key] for key in ("change", "standard", "difference"))
        three = ("–" if each is None else change(each[0], each[1:]) for each in told)
        return [held, "–" if gamma is None else f"{gamma:.2f}", *three]

    def _card(self, signal: str) -> Mapping[str, Any]:
        return self.card.get("signals", {}).get(signal, {})

    def as_dict(self) -> dict[str, Any]:
        """Plain data; draws with five digits."""
        draws = {name: np.round(own.astype(float), 5).tolist() for name, own in self.draws.items()}
        return files.finite(asdict(replace(self, draws={})) | {"draws": draws})

    @staticmethod
    def of_dict(data: Mapping[str, Any]) -> OnUsers:
        """From `as_dict`, also after JSON."""
        ranges = ("interval", "relative_interval", "difference_interval")
        read = [Line(**line | {name: tuple(line[name]) for name in ranges}) for line in data["lines"]]
        draws = {name: np.array(own, float) for name, own in data["draws"].items()}
        given: dict[str, Any] = {**data, "lines": tuple(read), "against": tuple(data["against"]), "draws": draws}
        return OnUsers(**given)


def on_users(evaluation: OfflineEvaluation) -> dict[str, OnUsers]:
    """All methods on a split's users, beside Behavior-Clone; with what speaks against each."""
    candidates, cards = {each.name: each for each in choose(evaluation).candidates}, evaluation.card()["methods"]

    def of(name: str) -> OnUsers:
        report, candidate = evaluation.report.policies[name], candidates[name]
        share = min(each.row_effective_share for each in report.diagnostics)
        changes = () if report.change is None else report.change.relative_draws.T
        draws = dict(zip(evaluation.report.signal_names, changes, strict=report.change is not None))
        about = (report.verdict.level, candidate.against, candidate.gain, cards[name], draws)
        return OnUsers(name, evaluation.lines(name), share, *about)

    return {name: of(name) for name in evaluation.methods}


def best(settings: Sequence[OnUsers]) -> OnUsers:
    """The admissible one with the largest gain; where none is, the one with the largest gain of all."""
    return min(settings, key=lambda each: (bool(each.against), -each.gain))


@dataclass(frozen=True, eq=False)
class Searched:
    """All settings of all learners, on validation users."""

    trained: Mapping[str, Sequence[Trained]]  # by method, in the order of the search; from Behavior-Clone
    on_users: Mapping[str, OnUsers]  # by name of the setting
    baselines: Mapping[str, Method] = field(default_factory=dict)  # by name; see `standing`

    def of(self, method: str) -> list[OnUsers]:
        """A method's settings."""
        return [self.on_users[each.name] for each in self.trained[method]]

    def chosen(self, method: str) -> Trained:
        """The setting that validation users choose."""
        name = best(self.of(method)).name
        return next(each for each in self.trained[method] if each.name == name)

    @property
    def methods(self) -> dict[str, Method]:
        """The chosen setting of each learner, and the baselines."""
        return {name: self.chosen(name).policies for name in self.trained} | dict(self.baselines)

    @property
    def shares(self) -> dict[str, float]:
        """Effective share of rows of each learner's chosen setting."""
        return {name: best(self.of(name)).share for name in self.trained}


def search(bench: Bench) -> Searched:
    """Train and evaluate; every learner must have as many settings as the others."""
    methods = bench.parameters["methods"]
    if len({len(table["search"]) for table in methods.values()}) != 1:
        raise ValueError("`search` must hold the same number of settings for every method.")
    by_method = {name: [bench.trained(name, each) for each in table["search"]] for name, table in methods.items()}
    policies = {each.name: each.policies for settings in by_method.values() for each in settings}
    searched = Searched(by_method, bench.judged("search", policies, "validation"))
    return replace(searched, baselines=standing(bench.dataset, searched.shares, bench.parameters["judging"]))


def again(bench: Bench, searched: Searched) -> dict[str, dict[str, OnUsers]]:
    """Chosen settings with something changed, on validation users, by title."""
    results: dict[str, dict[str, OnUsers]] = {}
    for k, (title, table) in enumerate(bench.parameters["variations"].items()):
        changes = (table["common"], table.get("options", {}))
        own = {n: bench.trained(n, searched.chosen(n).setting, *changes).policies for n in table["methods"]}
        results[title] = bench.judged(f"again-{k}", own, "validation", checked=False)
    return results


def later(bench: Bench, searched: Searched) -> dict[str, OnUsers]:
    """The chosen settings once more, trained on the rows before a date, on those of test users after it."""
    judging = bench.parameters["judging"]
    methods = {name: bench.trained(name, searched.chosen(name).setting).policies for name in judging["later"]}
    shares = {name: searched.shares[name] for name in methods}
    return bench.judged("later", methods | standing(bench.dataset, shares, judging), "test", checked=False)


def standing(dataset: LoggedDataset, shares: Mapping[str, float], judging: Table) -> dict[str, Method]:
    """Baselines that know items and no person: uniform, popularity, one feature, and the tilt.

    The tilt by the judged signals stands beside MOAC and the learners that `beside` names at the effective share that
    the learner's chosen setting has on validation users, since a policy further from the log gains more; one feature
    stands beside MOAC.
    """
    scores, feature = tilt.signal_scores(dataset, judging["signals"]), judging["feature"]
    methods = {"Uniform": tilt.uniform(dataset), "Popularity": tilt.popularity(dataset)}
    if feature.removeprefix("-") in tilt.item_features(dataset):
        along = tilt.feature_scores(dataset, feature)
        methods[FEATURE] = tilt.tilted_to(dataset, along, shares[MAIN])[0]
    stands = {name: share for name, share in shares.items() if name in (MAIN, *judging["beside"])}
    return methods | {beside(name): tilt.tilted_to(dataset, scores, share)[0] for name, share in stands.items()}


def beside(learner: str) -> str:
    """Name of the tilt at a learner's effective share; that of MOAC's is the tilt."""
    return TILT if learner == MAIN else f"{TILT} at the share of {learner}"


def leads(one: OnUsers, other: OnUsers | None) -> dict[str, Mean]:
    """By how much one method gains more than another, or than Behavior-Clone, in what can be estimated for both.

    A paired difference of relative changes, with its 95 % interval, users drawn alike for both; a cost that falls is
    a gain.
    """

    def lead(line: Line) -> Mean:
        theirs, sign = None if other is None else other.line(line.signal), -1.0 if line.cost else 1.0
        if other is None or theirs is None:
            return Mean(line.relative, *line.relative_interval, 0).mapped(lambda x: sign * x)
        draws = sign * (one.draws[line.signal] - other.draws[line.signal])
        low, high = estimates.interval(draws, Options().level)
        return Mean(sign * (line.relative - theirs.relative), float(low), float(high), len(draws))

    both = set(one.estimable) if other is None else set(one.estimable) & set(other.estimable)
    return {line.signal: lead(line) for line in one.lines if line.signal in both}
