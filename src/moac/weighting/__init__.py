"""Weighting rules: from the Gram matrix of the objectives' gradients to their weights.

A rule is a pair of pure functions and sees nothing but K = G Gᵀ. Momentum wraps any rule. What each is proved to do is
in docs/rules.md.
"""

from moac.weighting.averages import first_batch, fixed, uniform, with_momentum
from moac.weighting.bargaining import fairgrad, nash_mtl
from moac.weighting.conflict import cagrad, imtl_g, pcgrad, upgrad
from moac.weighting.hull import SMALLEST, capped, chebyshev, min_norm, preferred
from moac.weighting.rule import Rule, on_simplex
from moac.weighting.stepping import moco, modo, sdmgrad

__all__ = [
    "SMALLEST",
    "Rule",
    "cagrad",
    "capped",
    "chebyshev",
    "fairgrad",
    "first_batch",
    "fixed",
    "imtl_g",
    "min_norm",
    "moco",
    "modo",
    "nash_mtl",
    "on_simplex",
    "pcgrad",
    "preferred",
    "sdmgrad",
    "uniform",
    "upgrad",
    "with_momentum",
]
