"""Normalised capped importance sampling: vector rewards, intervals over users, and a verdict with its reasons.

`evaluate` is the whole road; `accumulate`, `+` (or `over` many parts, on any executor) and `analyse` are the same
in shards. NumPy only.
"""

from moac.offline.ncis.bootstrap import holm
from moac.offline.ncis.diagnostics import Diagnostics
from moac.offline.ncis.estimates import Change, Estimate
from moac.offline.ncis.evaluation import analyse, evaluate
from moac.offline.ncis.exposure import Agreement, uncapped
from moac.offline.ncis.options import CAPS, Options
from moac.offline.ncis.report import PolicyReport, Report
from moac.offline.ncis.rows import Logged
from moac.offline.ncis.shards import Shard, accumulate, over, values
from moac.offline.ncis.sweep import Flip, Sweep
from moac.offline.ncis.trust import LIMITS, Reason, Verdict

__all__ = [
    "CAPS",
    "LIMITS",
    "Agreement",
    "Change",
    "Diagnostics",
    "Estimate",
    "Flip",
    "Logged",
    "Options",
    "PolicyReport",
    "Reason",
    "Report",
    "Shard",
    "Sweep",
    "Verdict",
    "accumulate",
    "analyse",
    "evaluate",
    "holm",
    "over",
    "uncapped",
    "values",
]
