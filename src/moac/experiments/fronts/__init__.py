"""The study `fronts`: what explorations find, against steps and CPU seconds, beside morl-baselines' agents."""

from __future__ import annotations

from moac.experiments.quiet import quiet
from moac.experiments.spec import Study
from moac.experiments.studies import Findings, Workspace


def run(study: Study, work: Workspace) -> Findings:
    """Measure, judge and draw."""
    with quiet():
        from moac.experiments.fronts import judging, measure

        problems, measuring = study.parameters["problems"], study.parameters["measuring"]
        seeds = range(study.seed, study.seed + measuring["seeds"])
        found = {name: measure.explored(table, seeds, work) for name, table in problems.items()}
        return judging.findings(problems, found, float(measuring["seconds"]))
