"""The study `environments`: what plain MOAC learns in real environments, and that they are stepped rightly."""

from __future__ import annotations

from moac.envs.quiet import quiet
from moac_studies.spec import Study
from moac_studies.studies import Findings, Workspace


def run(study: Study, work: Workspace) -> Findings:
    """Measure, judge and draw."""
    with quiet():
        from moac_studies.environments import judging, measure

        tables = study.parameters
        alike = measure.agreement(tables["resource-gathering"], study.seed, work)
        treasure = measure.exact_ends(tables["deep-sea-treasure"], study.seed, work)
        learned = {
            name: measure.against_random(tables[name], study.seed, work) for name in ("minecart", "mo-mountaincar")
        }
    return judging.findings(tables, alike, treasure, learned)
