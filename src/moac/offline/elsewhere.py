"""A run on another log than its own: how that log chose is fitted anew, and beside it the run's own model is kept."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from moac.logs.catalogue import Catalogue
from moac.logs.dataset import LoggedDataset
from moac.logs.elsewhere import onto
from moac.offline import behaviour
from moac.offline.behaviour import BehaviourModel


@dataclass(frozen=True, eq=False)
class Seen:
    """A log as the policies of a run see it."""

    dataset: LoggedDataset  # with propensities: the log's, or those of a model fitted on it
    carried: LoggedDataset | None = None  # with those of the run's own model, where the log has none
    unknown: dict[str, int] | None = None  # how many users, items and views the run does not know; None on its own log


def seen(dataset: LoggedDataset, catalogue: Any, model: BehaviourModel | None) -> Seen:
    """The log with a run's catalogue.

    Args:
        dataset: the run's own log, or another.
        catalogue: of the run.
        model: the behaviour model that the run keeps, if it does.
    """
    if dataset.propensity is not None and Catalogue.of(dataset).same(catalogue):
        return Seen(dataset)
    mapped, unknown = onto(dataset, catalogue)
    if mapped.propensity is not None:
        return Seen(mapped, None, unknown)
    refitted = mapped.with_behaviour(behaviour.fit(mapped, None if model is None else model.options))
    if model is None:
        return Seen(refitted, None, unknown)
    kept = replace(model, identity=behaviour.identity(mapped))
    return Seen(refitted, mapped.with_behaviour(kept), unknown)
