"""Policies: softmax over a table, a linear map or a network; Gaussian for continuous actions."""

from moac.policies.gaussian import GaussianMLP
from moac.policies.protocols import (
    Accumulating,
    Entropic,
    Factor,
    Factored,
    OnHost,
    Reparametrised,
    Sharpening,
    Tabulated,
    log_probs,
)
from moac.policies.softmax import SoftmaxBasis, SoftmaxLinear, SoftmaxMLP, SoftmaxTable

__all__ = [
    "Accumulating", "Entropic", "Factor", "Factored", "GaussianMLP", "OnHost", "Reparametrised", "Sharpening",
    "SoftmaxBasis", "SoftmaxLinear", "SoftmaxMLP", "SoftmaxTable", "Tabulated", "log_probs",
]  # fmt: skip
