"""Policies: softmax over a table, a linear map or a network; Gaussian for continuous actions."""

from moac.policies.gaussian import GaussianMLP
from moac.policies.items import Items, ItemsPolicy
from moac.policies.protocols import (
    Accumulating,
    Entropic,
    Factor,
    Factored,
    Listing,
    OnHost,
    PartlyFactored,
    Reparametrised,
    Sharpening,
    Tabulated,
    log_probs,
)
from moac.policies.softmax import SoftmaxBasis, SoftmaxLinear, SoftmaxMLP, SoftmaxTable

__all__ = [
    "Accumulating", "Entropic", "Factor", "Factored", "GaussianMLP", "Items", "ItemsPolicy", "Listing", "OnHost",
    "PartlyFactored", "Reparametrised", "Sharpening",
    "SoftmaxBasis", "SoftmaxLinear", "SoftmaxMLP", "SoftmaxTable", "Tabulated", "log_probs",
]  # fmt: skip
