"""The study `kuairand`: the paper's table of its data beside the data at hand."""

from __future__ import annotations

from moac_studies.spec import Study
from moac_studies.studies import Findings, Workspace


def run(study: Study, work: Workspace) -> Findings:
    """Build, count, compare."""
    from moac_studies.kuairand import judging, measure

    found = measure.counted(study.parameters["data"], study.seed, work, measure.source())
    return judging.findings(study.parameters["paper"], found)
