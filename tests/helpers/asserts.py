"""What must hold for every min-norm solution, whatever the rows."""

import numpy as np
from scipy.optimize import nnls


def assert_on_simplex(lam, tolerance=1e-15):
    assert np.all(lam >= 0)
    assert abs(np.sum(lam) - 1) <= tolerance


def reference_weights(G):
    """The same problem by SciPy's non-negative least squares on the triangular factor, columns scaled."""
    norm = np.linalg.norm(G, axis=1)
    if norm.min() == 0:
        return np.eye(len(G))[norm.argmin()]
    w = norm.min()
    scale = 1 / np.hypot(norm, w)
    R = np.linalg.qr((np.vstack([(G * scale[:, None]).T, w * scale])), mode="r")
    target = np.linalg.solve(R.T, w * w * scale) if np.linalg.matrix_rank(R) == len(G) else None
    if target is None:
        system = np.vstack([(G * scale[:, None]).T, w * scale])
        y, _ = nnls(system, np.append(np.zeros(G.shape[1]), w), maxiter=100 * len(G))
    else:
        y, _ = nnls(R, target, maxiter=100 * len(G))
    lam = scale * y
    return lam / lam.sum()


def squared_norm(lam, G):
    """‖Σ λ g‖² in extended precision."""
    d = np.asarray(lam, np.longdouble) @ np.asarray(G, np.longdouble)
    return d @ d


def violation(lam, G):
    """max over i of ‖d‖² − ⟨gⁱ, d⟩ over the longest row's square, of each in a batch: 0 at its min-norm point alone."""
    d = np.einsum("...m,...mp->...p", lam, G)
    slack = np.sum(d * d, axis=-1)[..., None] - np.einsum("...mp,...p->...m", G, d)
    return slack.max(axis=-1) / np.sum(G * G, axis=-1).max(axis=-1)


def scaled_kkt(lam, G):
    """max over i of (‖d‖² − ⟨gⁱ, d⟩)₊ / (‖gⁱ‖ ‖d‖) in extended precision."""
    rows = np.asarray(G, np.longdouble)
    d = np.asarray(lam, np.longdouble) @ rows
    norm = np.sqrt(np.sum(rows * rows, axis=1))
    return float(np.max(np.maximum(d @ d - rows @ d, 0) / (norm * np.sqrt(d @ d))))
