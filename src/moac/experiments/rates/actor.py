"""The actor."""

from __future__ import annotations

from moac.experiments.spec import Study
from moac.experiments.studies import Findings, Workspace


def run(study: Study, work: Workspace) -> Findings:
    """Measure, judge and draw."""
    del study, work
    return Findings((), (), ())
