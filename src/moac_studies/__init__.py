"""The paper's figures and our measurements: one file per study, all on the library's public functions.

`moac reproduce` and `moac offline compare` find this package by its entry point; the library never imports it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from moac_studies.framework import Study, load, names, run

__all__ = ["Study", "comparison_of", "load", "names", "published_protocol", "run"]


def comparison_of(data: Path, options: Any) -> Study:
    """The comparison of all offline methods on a dataset: see `kuairand_comparison.of_dataset`."""
    from moac_studies import kuairand_comparison

    return kuairand_comparison.of_dataset(data, options)


def published_protocol(data: Path, steps: int, seed: int) -> Any:
    """The table of the published protocol on a dataset, with every fault of it."""
    from moac_studies import tscac_compat

    return tscac_compat.run(data, steps, seed)
