"""The study `fronts`: what explorations find, against steps and CPU seconds, beside morl-baselines' agents."""

from __future__ import annotations

from moac.envs.quiet import quiet
from moac_studies.spec import Study
from moac_studies.studies import Findings, Workspace


def run(study: Study, work: Workspace) -> Findings:
    """Measure, judge and draw."""
    with quiet():
        from moac_studies.fronts import judging, measure

        measuring = study.parameters["measuring"]
        problems = {name: study.parameters["problems"][name] for name in measuring["problems"]}
        seeds = range(study.seed, study.seed + measuring["seeds"])
        found = {name: measure.explored(table, seeds, work) for name, table in problems.items()}
        longer = {name: {**problems[name], "iterations": measuring["whole_iterations"]} for name in measuring["whole"]}
        first = seeds[: measuring["whole_seeds"]]
        whole = {name: measure.explored(table, first, work) for name, table in longer.items()}
        return judging.findings(problems, found, whole, float(measuring["seconds"]))
