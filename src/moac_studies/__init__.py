"""The paper's figures and our measurements: one file per study, all on the library's public functions.

`moac reproduce` and `moac offline compare` find this package by its entry point; the library never imports it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from moac_studies.spec import Experiment, Study, load, names

__all__ = ["Experiment", "Study", "compare_methods", "comparison_of", "load", "names", "published_protocol", "run"]


def run(experiment: Experiment | Study, out: Path, show: Any, say: Any) -> None:
    """Measure, judge and draw. What an earlier call has finished is kept.

    Args:
        experiment: from `load`.
        out: folder of the measurements, figures and verdicts.
        show: as `moac.runs.runner.Show`.
        say: called with one line for each measurement.
    """
    from moac.momdp import library
    from moac_studies import reproduce

    if isinstance(experiment, Study):
        reproduce.run_study(experiment, out, say)
        return
    model = library.for_environment(experiment.env)
    if model is None:
        raise ValueError(f"`env` must be one of {', '.join(library.known_environments())}, got {experiment.env!r}.")
    reproduce.run(experiment, model, out, show)


def comparison_of(dataset: Any, options: Any) -> Study:
    """The comparison of all offline methods, for a dataset and its signals.

    Args:
        dataset: a `LoggedDataset`.
        options: `trials`, `iterations` (None is the study's), `test`, `quick`, `seed`.
    """
    from moac_studies import comparison

    return comparison.of_dataset(dataset, options)


def compare_methods(dataset: Any, study: Study, out: Path, say: Any) -> None:
    """Run the comparison that `comparison_of` gave."""
    from functools import partial

    from moac_studies import comparison, reproduce

    reproduce.run_study(study, out, say, partial(comparison.compared, dataset))


def published_protocol(data: Path, steps: int, seed: int) -> Any:
    """The table of the published protocol on a dataset, with every fault of it."""
    from moac_studies import compat

    return compat.run(data, steps, seed)
