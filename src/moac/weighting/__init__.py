"""Weighting rules: from the Gram matrix of the objectives' gradients to their weights.

A rule is a pair of pure functions that sees K = G Gᵀ and, unless it asks for more (`Needs`), nothing else. Momentum
wraps any rule. What each is proved to do is in `moac docs rules`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from moac.arguments import Numbers, checked
from moac.choices import WEIGHTING_CHOICES, WEIGHTINGS, did_you_mean, is_number, on_simplex, shown
from moac.weighting.cagrad import cagrad
from moac.weighting.chebyshev import chebyshev
from moac.weighting.fairgrad import fairgrad
from moac.weighting.fixed import first_batch, fixed, uniform
from moac.weighting.imtl_g import imtl_g
from moac.weighting.mgda import SMALLEST, capped, min_norm, preferred
from moac.weighting.moco import moco
from moac.weighting.modo import modo
from moac.weighting.momentum import with_momentum
from moac.weighting.nash_mtl import nash_mtl
from moac.weighting.pcgrad import pcgrad
from moac.weighting.rule import Needs, Rule, Seen
from moac.weighting.sdmgrad import sdmgrad
from moac.weighting.upgrad import upgrad

__all__ = [
    "SMALLEST", "Needs", "Rule", "Seen", "by_name", "cagrad", "capped", "chebyshev", "fairgrad", "first_batch",
    "fixed", "imtl_g", "min_norm", "moco", "modo", "nash_mtl", "pcgrad", "preferred", "sdmgrad",
    "uniform", "upgrad", "with_momentum",
]  # fmt: skip


@checked
def by_name(name: str, weights: Numbers | None = None, momentum: str = "1/t") -> Rule:
    """The rule that `Config.weighting` names, with momentum where λ̂ moves on the simplex.

    Other weights have the scale of the gradients they were found for, and an average of them fits none.
    """
    kind, colon, number = name.partition(":")
    entry = WEIGHTINGS.get(kind)
    if entry is None or (colon and not (entry.number and is_number(number))):
        near = did_you_mean(name, WEIGHTINGS)
        raise ValueError(f"`name` must be one of {', '.join(WEIGHTING_CHOICES)}, got {shown(name)}.{near}")
    arguments: dict[str, Any] = {entry.number: float(number)} if entry.number and number else {}
    if entry.takes in ("weights", "initial"):
        arguments[entry.takes] = weights
    if weights is not None and entry.takes is None:
        raise ValueError(f"`weights` must be None for a rule that takes none, got {shown(weights)}.")
    if weights is not None:
        on_simplex("weights", np.asarray(weights).tolist())
    rule: Rule = globals()[kind.replace("-", "_")](**arguments)
    return with_momentum(rule, momentum, weights) if entry.takes == "momentum" and rule.simplex else rule
