"""Other methods for the same logs and the same networks: what MOAC is compared with.

`pdpg` and `tscac`, each with `train(dataset, options, trials, seed) -> Learned`; `docs/baselines.md` says from which
description, and what differs from the code that was published.
"""

from moac.offline.baselines import pdpg, tscac
from moac.offline.baselines.driver import Learned

__all__ = ["Learned", "pdpg", "tscac"]
