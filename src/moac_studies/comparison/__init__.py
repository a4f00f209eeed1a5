"""The study `comparison`: Behavior-Clone, PDPG, TSCAC and MOAC with its ablations on one log, chosen before tested."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from moac.envs.quiet import quiet
from moac.logs.dataset import LoggedDataset
from moac_studies import spec
from moac_studies.spec import Study
from moac_studies.studies import Findings, Workspace

STUDY = "kuairand-comparison"


def run(study: Study, work: Workspace) -> Findings:
    """On KuaiRand's rows where they are, on generated ones elsewhere."""
    from moac_studies.kuairand import measure

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
        from moac.search import candidates
        from moac_studies.comparison import judging, testing, training

        filled = candidates.with_behaviour(dataset, work.folder, None)
        found = training.search(filled, parameters, seed, work)
        chosen = training.chosen(found)
        tested = testing.once(filled, chosen, work) if parameters["judging"]["test"] else None
    return judging.findings(parameters, found, chosen, tested, real)


def compared(dataset: LoggedDataset, study: Study, work: Workspace) -> Findings:
    """The findings on any dataset."""
    return compare(dataset, study.parameters, study.seed, work, real=False)


def of_dataset(dataset: LoggedDataset, options: Any) -> Study:
    """The study, with the dataset's name, what was asked for, and the signals that it has."""
    study = spec.load(STUDY, options.quick)
    if not isinstance(study, Study):
        raise ValueError(f"{STUDY} must be a study.")
    given = {"trials": options.trials, "iterations": options.iterations}
    chosen = {name: value for name, value in given.items() if value is not None}
    known = [name for name in study.parameters["judging"]["signals"] if name in dataset.signal_names]
    parameters = {
        **study.parameters,
        "training": {**study.parameters["training"], **chosen},
        "judging": {
            **study.parameters["judging"], "test": options.test, "signals": known or list(dataset.signal_names[:2]),
        },
    }  # fmt: skip
    return replace(study, title=f"{dataset.name}: the comparison", seed=options.seed, parameters=parameters)
