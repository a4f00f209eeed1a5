"""Record TorchJD's momentum rule on a few sequences of Gram matrices, for the test suite to compare with.

Run with the peers' environment:  .venv-bench/bin/python benchmarks/record_torchjd.py
Writes tests/data/torchjd_crmogm.json. TorchJD solves the inner problem by Frank–Wolfe, which is slow to converge where
the answer lies on an edge of the simplex; the matrices are therefore chosen to have it in the interior or at a vertex,
and the error that remains is written beside every step, so that a test knows how much to allow.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from _reference import exact_weights, relative_gaps
from torchjd.aggregation import CRMOGMWeighting, MGDAWeighting

OUTPUT = Path(__file__).parent.parent / "tests" / "data" / "torchjd_crmogm.json"
NUM_STEPS = 12
SOLVER = {"epsilon": 1e-12, "max_iters": 20_000}
LARGEST_ERROR = 1e-4


def gram_matrices(num_objectives: int, seed: int) -> np.ndarray:
    """A sequence [NUM_STEPS, M, M]: nearly orthogonal gradients; at every fourth step one short gradient wins."""
    rng = np.random.default_rng(seed)
    matrices = []
    for step in range(NUM_STEPS):
        G = rng.normal(size=(num_objectives, 64)) / 8.0
        G *= rng.uniform(0.7, 1.4, size=(num_objectives, 1))
        if step % 4 == 3:
            short = rng.integers(num_objectives)
            G += 2.0 * rng.normal(size=64) / 8.0
            G[short] *= 0.1
        matrices.append(G @ G.T)
    return np.stack(matrices)


def run_torchjd(matrices: np.ndarray, eta: float, initial: np.ndarray | None) -> np.ndarray:
    """TorchJD's weights at each step, [NUM_STEPS, M]; without `initial` it starts from the first batch's solution."""
    start = None if initial is None else torch.from_numpy(initial)
    rule = CRMOGMWeighting(MGDAWeighting(**SOLVER), alpha=1.0 - eta, initial_weights=start)
    return np.stack([rule(torch.from_numpy(K)).numpy() for K in matrices])


def record(num_objectives: int, eta: float) -> dict:
    """One entry of the file: inputs, TorchJD's outputs from both starts, and the error of its inner solver."""
    matrices = gram_matrices(num_objectives, seed=num_objectives)
    solver = MGDAWeighting(**SOLVER)
    inner = np.stack([solver(torch.from_numpy(K)).numpy() for K in matrices])
    exact = np.stack([exact_weights(K) for K in matrices])
    error = np.abs(inner - exact).max(axis=1)
    if error.max() > LARGEST_ERROR:
        raise RuntimeError(
            f"TorchJD's solver is off by {error.max():.1e} for M = {num_objectives}: choose other matrices."
        )
    uniform = np.full(num_objectives, 1.0 / num_objectives)
    return {
        "num_objectives": num_objectives,
        "eta": eta,
        "alpha": 1.0 - eta,
        "matrices": matrices.tolist(),
        "inner_weights": inner.tolist(),
        "weights_from_first_batch": run_torchjd(matrices, eta, None).tolist(),
        "weights_from_uniform": run_torchjd(matrices, eta, uniform).tolist(),
        "inner_objective_gap": relative_gaps(matrices, inner).tolist(),
        "inner_weights_error": error.tolist(),
    }


def main() -> None:
    """Record every case, check it and write the file."""
    cases = [record(num_objectives, eta) for num_objectives in (2, 3, 5) for eta in (0.1, 0.5)]
    content = {
        "rule": "CRMOGMWeighting(MGDAWeighting(**solver), alpha=1 - eta), float64",
        "solver": SOLVER,
        "versions": {name: version(name) for name in ("torchjd", "torch", "numpy", "scipy")},
        "cases": cases,
    }
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps(content) + "\n")
    for case in cases:
        print(
            f"M = {case['num_objectives']}, eta = {case['eta']}: inner solver's objective gap up to "
            f"{max(case['inner_objective_gap']):.1e}, weights off by up to {max(case['inner_weights_error']):.1e}"
        )
    print(f"{OUTPUT.name}: {OUTPUT.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
