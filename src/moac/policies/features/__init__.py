"""Features φ of an observation, ‖φ(s)‖ ≤ 1: what the linear critic, and linear policies, see."""

from moac.policies.features.names import by_name, of_states, of_vectors
from moac.policies.features.states import Features, OneHot, Table, random_table, table
from moac.policies.features.vectors import RBF, Basis, Fourier, Plain, Raw, Tile

__all__ = [
    "RBF",
    "Basis",
    "Features",
    "Fourier",
    "OneHot",
    "Plain",
    "Raw",
    "Table",
    "Tile",
    "by_name",
    "of_states",
    "of_vectors",
    "random_table",
    "table",
]
