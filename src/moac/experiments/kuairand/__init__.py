"""The study `kuairand`: the paper's table of its data beside the data at hand."""

from __future__ import annotations

from moac.experiments.spec import Study
from moac.experiments.studies import Findings, Workspace


def run(study: Study, work: Workspace) -> Findings:
    """Build, count, compare."""
    from moac.experiments.kuairand import judging, measure

    found = measure.counted(study.parameters["data"], study.seed, work, measure.source())
    return judging.findings(study.parameters["paper"], found)
