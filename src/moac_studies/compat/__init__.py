"""The protocol that published tables follow, end to end, with its faults named: not an estimate to rely on.

`run(dataset, steps)` gives a `Table`; `docs/baselines.md` says what it repeats. `moac.offline.ncis` is the sound one.
"""

from moac_studies.compat.faults import FAULTS
from moac_studies.compat.protocol import run
from moac_studies.compat.table import Table

__all__ = ["FAULTS", "Table", "run"]
