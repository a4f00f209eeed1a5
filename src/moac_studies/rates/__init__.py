"""Studies: the theorems measured, what is learned in real environments, what data holds. Each is a function."""

from __future__ import annotations

from moac_studies import comparison, environments, fronts, kuairand, networks
from moac_studies.rates import actor, critic
from moac_studies.spec import Study
from moac_studies.studies import Findings, Workspace

_STUDIES = {
    "critic": critic.run,
    "actor": actor.run,
    "environments": environments.run,
    "networks": networks.run,
    "kuairand": kuairand.run,
    "comparison": comparison.run,
    "fronts": fronts.run,
}


def run(study: Study, work: Workspace) -> Findings:
    """Measure, judge and draw."""
    if study.study not in _STUDIES:
        raise ValueError(f"`study` must be one of {', '.join(_STUDIES)}, got {study.study!r}.")
    return _STUDIES[study.study](study, work)
