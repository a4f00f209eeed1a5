"""The search: every method with the same number of settings, judged on validation users, and the one that is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from moac.logs.dataset import LoggedDataset
from moac_studies.comparison import judgements, measure
from moac_studies.comparison.judgements import Judgement
from moac_studies.comparison.measure import Trained
from moac_studies.studies import Workspace

MAIN = "MOAC"


@final
@dataclass(frozen=True, eq=False)
class Searched:
    """All settings of all methods, on validation users.

    Attributes:
        trained: by method, in the order of the search; from Behavior-Clone.
        judged: by name of the setting.
        from_random: the chosen settings once more, started at random.
    """

    trained: Mapping[str, Sequence[Trained]]
    judged: Mapping[str, Judgement]
    from_random: Mapping[str, Judgement]

    def of(self, method: str) -> list[Judgement]:
        """A method's settings."""
        return [self.judged[each.name] for each in self.trained[method]]

    def best(self, method: str) -> Trained:
        """The setting that validation users choose."""
        name = judgements.best(self.of(method)).name
        return next(each for each in self.trained[method] if each.name == name)


def search(dataset: LoggedDataset, parameters: Mapping[str, Any], seed: int, work: Workspace) -> Searched:
    """Train and judge; every method must have as many settings as the others."""
    methods, common = parameters["methods"], {**parameters["training"], "seed": seed}
    if len({len(table["search"]) for table in methods.values()}) != 1:
        raise ValueError("`search` must hold the same number of settings for every method.")
    found = {name: _all(dataset, name, table, {**common, "start": "behaviour"}, work)
             for name, table in methods.items()}  # fmt: skip
    every = {each.name: each.judged_as for own in found.values() for each in own}
    searched = Searched(found, judgements.of_split(dataset, every, "validation"), {})
    if not parameters["judging"]["random_start"]:
        return searched
    again = {**common, "start": "random"}
    started = {name: measure.trained(dataset, name, methods[name], searched.best(name).setting, again, work)
               for name in methods}  # fmt: skip
    judged = judgements.of_split(dataset, {name: own.judged_as for name, own in started.items()}, "validation")
    return Searched(found, searched.judged, judged)


def _all(dataset: LoggedDataset, name: str, table: Any, common: Any, work: Workspace) -> list[Trained]:
    return [measure.trained(dataset, name, table, setting, common, work) for setting in table["search"]]


def chosen(found: Searched) -> dict[str, Trained]:
    """One setting of each method."""
    return {method: found.best(method) for method in found.trained}
