"""The study `comparison`: Behavior-Clone, PDPG, TSCAC and MOAC with its ablations on one log, chosen before tested."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moac.experiments.quiet import quiet
from moac.experiments.spec import Study
from moac.experiments.studies import Findings, Workspace
from moac.logs.dataset import LoggedDataset


def run(study: Study, work: Workspace) -> Findings:
    """On KuaiRand's rows where they are, on generated ones elsewhere."""
    from moac.experiments.kuairand import measure

    source = measure.source()
    folder = measure.built(study.parameters["data"], study.seed, work, source)
    return compare(LoggedDataset.from_parquet(folder), study.parameters, study.seed, work, source is not None)


def compare(dataset: LoggedDataset, parameters: Mapping[str, Any], seed: int, work: Workspace, real: bool) -> Findings:
    """Fit how the log chose, train every setting of every method, choose on validation users, and test once.

    Args:
        dataset: with or without propensities.
        parameters: tables of the study.
        seed: of all methods.
        work: keeps what is done.
        real: whether the rows are KuaiRand's, so that the paper's table may stand beside them.
    """
    with quiet():
        from moac.experiments import menu
        from moac.experiments.comparison import judging, testing, training

        filled = menu.with_behaviour(dataset, work.folder, None)
        found = training.search(filled, parameters, seed, work)
        chosen = training.chosen(found)
        tested = testing.once(filled, chosen, work) if parameters["judging"]["test"] else None
    return judging.findings(parameters, found, chosen, tested, real)
