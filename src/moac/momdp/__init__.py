"""Finite multi-objective MDPs and what is exactly known about them."""

from moac.momdp import library
from moac.momdp.chain import stationary_distribution
from moac.momdp.front import ParetoFront, hypervolume, igd_plus, non_dominated, pareto_front
from moac.momdp.model import FiniteMOMDP
from moac.momdp.oracle import Exact, evaluate, td_fixed_point
from moac.momdp.support import Support
from moac.momdp.support import of as support_of

__all__ = [
    "Exact", "FiniteMOMDP", "ParetoFront", "Support", "evaluate", "hypervolume", "igd_plus", "library",
    "non_dominated", "pareto_front", "stationary_distribution", "support_of", "td_fixed_point",
]  # fmt: skip
