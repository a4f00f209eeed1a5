"""The study `critic-rate`: Theorem 1 measured. How E‖w_N − w*‖² falls with N, its floor with D, and the bound."""

from __future__ import annotations

from moac_studies.rates.critic import bounds, claims, fits, problems, report
from moac_studies.spec import Study
from moac_studies.studies import Findings, Workspace


def run(study: Study, work: Workspace) -> Findings:
    """Measure, judge and draw."""
    tables = study.parameters
    chosen = (
        (problems.random_ergodic(tables["random"]), tables["random"]),
        (problems.resource_gathering(tables["resource-gathering"]), tables["resource-gathering"]),
    )
    measured = tuple(fits.measure(problem, table, study.seed, work) for problem, table in chosen)
    well_mixed = problems.well_mixed(tables["bound"])
    tested = bounds.under_its_conditions(well_mixed, tables["bound"], study.seed, work)
    asked = (*(t.guarantee for t in tested), *(g for m in measured for g in bounds.elsewhere(m)))
    return Findings(
        claims.of(measured, tested, asked),
        report.tables(measured, asked),
        report.figures(measured, tested, asked),
    )
