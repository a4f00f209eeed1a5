"""Theorem 2, measured: horizon, batch size, the law of the samples, the number of objectives, momentum."""

from __future__ import annotations

from moac_studies.rates import gradient_noise, horizon, judging, momentum, objectives, wrong_law
from moac_studies.spec import Study
from moac_studies.studies import Findings, Workspace


def run(study: Study, work: Workspace) -> Findings:
    """Measure, judge and draw."""
    p = {name: dict(table) for name, table in study.parameters.items()}
    return judging.joined(
        (
            horizon.findings(work, p["exact"], p["learned"], study.seed),
            gradient_noise.findings(work, p["noise"], study.seed),
            wrong_law.findings(work, p["law"], study.seed),
            objectives.findings(work, p["objectives"], study.seed),
            momentum.findings(work, p["momentum"], study.seed),
        )
    )
