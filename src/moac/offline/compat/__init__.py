"""The protocol that published tables follow, end to end, with its faults named: not an estimate to rely on.

`run(dataset, steps)` gives a `Table`; `docs/baselines.md` says what it repeats. `moac.offline.ncis` is the sound one.
"""

from moac.offline.compat.faults import FAULTS
from moac.offline.compat.protocol import run
from moac.offline.compat.table import Table

__all__ = ["FAULTS", "Table", "run"]
