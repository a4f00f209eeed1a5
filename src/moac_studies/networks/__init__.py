"""The study `networks`: what networks learn in real environments, method by method, beside morl-baselines' agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moac.envs.quiet import quiet
from moac_studies.spec import Study
from moac_studies.studies import Findings, Workspace

_COMMON = ("shared", "methods")
"""Tables that are no environment."""


def run(study: Study, work: Workspace) -> Findings:
    """Measure, judge and draw."""
    with quiet():
        from moac_studies.networks import judging, measure

        chosen, found = tables(study), {}
        missing = {name: why for name, table in chosen.items() if (why := measure.unavailable(table))}
        for name, why in missing.items():
            work.say(f"{name} is left out: {why}")
        for name in (name for name in chosen if name not in missing):
            found[name] = measure.all_methods(chosen[name], study.parameters["methods"], study.seed, work)
    return judging.findings(chosen, found, missing)


def tables(study: Study) -> dict[str, Mapping[str, Any]]:
    """One table per environment, with what all of them share filled in."""
    shared = study.parameters["shared"]
    return {
        name: {**shared, **table, "config": {**shared["config"], **table["config"]}}
        for name, table in study.parameters.items()
        if name not in _COMMON
    }
