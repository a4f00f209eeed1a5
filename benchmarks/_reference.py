"""The exact min-norm point by SciPy's non-negative least squares: what every solver here is judged against."""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls


def exact_weights(K: np.ndarray) -> np.ndarray:
    """λ = argmin over the simplex of λᵀKλ, K [M, M] of full rank, float64.

    With K = RᵀR, w = min √K_ii and D = diag((K_ii + w²)^-½), λ is proportional to D y for the solution of
    min_{y ≥ 0} ‖[R; w1ᵀ] D y − w e_last‖² (Lawson–Hanson): for a fixed sum the first block is the objective, the last
    row only fixes the sum, and the column scaling D leaves y ≥ 0 alone.
    """
    eigenvalues, vectors = np.linalg.eigh(K)
    R = np.sqrt(np.maximum(eigenvalues, 0.0))[:, None] * vectors.T
    w = np.sqrt(np.diag(K).min())
    D = 1.0 / np.sqrt(np.diag(K) + w**2)
    stacked = np.vstack([R, np.full(len(K), w)]) * D
    y, _ = nnls(stacked, np.append(np.zeros(len(K)), w))
    return D * y / (D @ y)


def objective(K: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """λᵀKλ in float64 over leading axes, λ first clipped to λ ≥ 0 and rescaled to sum to one."""
    feasible = np.maximum(np.asarray(weights, dtype=np.float64), 0.0)
    feasible = feasible / feasible.sum(axis=-1, keepdims=True)
    return np.einsum("...i,...ij,...j->...", feasible, K, feasible)


def relative_gaps(K: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(f(λ) − f*)/f* for each problem of a batch: K [n, M, M], λ [n, M] -> [n]."""
    best = objective(K, np.stack([exact_weights(k) for k in K]))
    return objective(K, weights) / best - 1.0
