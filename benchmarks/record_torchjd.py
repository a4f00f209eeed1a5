"""Record TorchJD's rules on a few Gram matrices, for the test suite to compare with.

Run with the peers' environment, to which `torchjd[full]` adds the solvers that some rules need:

    .venv-bench/bin/python benchmarks/record_torchjd.py

Writes tests/data/torchjd_crmogm.json, the momentum rule, and tests/data/torchjd_rules.json, all others. It takes some
ten minutes. For the momentum rule TorchJD solves the inner problem by Frank–Wolfe, which is slow to converge where the
answer lies on an edge of the simplex; the matrices are therefore chosen to have it in the interior or at a vertex, and
the error that remains is written beside every step, so that a test knows how much to allow.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from _reference import exact_weights, relative_gaps
from torchjd.aggregation import (
    CAGradWeighting,
    CRMOGMWeighting,
    FairGradWeighting,
    IMTLGWeighting,
    MGDAWeighting,
    MoDoWeighting,
    NashMTL,
    PCGradWeighting,
    SDMGradWeighting,
    UPGradWeighting,
)
from torchjd.linalg import QuadprogProjector

DATA = Path(__file__).parent.parent / "tests" / "data"
OUTPUT, RULES = DATA / "torchjd_crmogm.json", DATA / "torchjd_rules.json"
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


def conflicting(num_objectives: int, count: int) -> list[np.ndarray]:
    """Gradients [M, M + 1] of which some conflict, away from Pareto-stationarity: what the rules differ on."""
    rng, found = np.random.default_rng(num_objectives), []
    while len(found) < count:
        G = rng.normal(size=(num_objectives, num_objectives + 1)) * rng.uniform(0.5, 2.0, size=(num_objectives, 1))
        K, lam = G @ G.T, exact_weights(G @ G.T)
        if (K < 0).any() and lam @ K @ lam > 0.05 * np.diag(K).mean() and _order_is_irrelevant(K):
            found.append(G)
    return found


def _order_is_irrelevant(K: np.ndarray) -> bool:
    """Whether PCGrad, whose order is random, gives one answer."""
    draws = np.stack([PCGradWeighting()(torch.from_numpy(K)).numpy() for _ in range(30)])
    return bool(np.ptp(draws, axis=0).max() < 1e-12)


def of_one_batch(G: np.ndarray) -> dict:
    """Each rule's weights of one matrix of gradients."""
    K = torch.from_numpy(G @ G.T)
    rules = {
        "cagrad": CAGradWeighting(c=0.4),
        "pcgrad": PCGradWeighting(),
        "imtl_g": IMTLGWeighting(),
        "upgrad": UPGradWeighting(),
        "upgrad, without a ridge": UPGradWeighting(projector=QuadprogProjector(norm_eps=0.0, reg_eps=1e-12)),
        "fairgrad": FairGradWeighting(alpha=1.0),
        "fairgrad:2": FairGradWeighting(alpha=2.0),
    }
    weights = {name: rule(K).tolist() for name, rule in rules.items()}
    for name, longest in (("nash_mtl", 1.0), ("nash_mtl, uncut", 0.0)):
        nash = NashMTL(n_tasks=len(G), max_norm=longest, optim_niter=200)
        weights[name] = nash.weighting(torch.from_numpy(G)).tolist()
    return {"gradients": G.tolist(), "weights": weights}


def of_two_batches(num_objectives: int) -> dict:
    """MoDo and SDMGrad over a few steps of cross-batch matrices."""
    rng = np.random.default_rng(num_objectives)
    pairs = [rng.normal(size=(2, num_objectives, num_objectives + 1)) + 0.3 for _ in range(5)]
    products = [first @ second.T for first, second in pairs]
    rules = {"modo": MoDoWeighting(gamma=0.1, rho=0.1), "sdmgrad": SDMGradWeighting(lambda_=0.3)}
    weights = {name: [rule(torch.from_numpy(K)).tolist() for K in products] for name, rule in rules.items()}
    return {"products": [K.tolist() for K in products], "weights": weights}


def record_rules() -> dict:
    """The file of all rules but momentum."""
    return {
        "versions": {name: version(name) for name in ("torchjd", "torch", "cvxpy", "clarabel", "ecos", "quadprog")},
        "one_batch": [of_one_batch(G) for M, count in ((2, 4), (3, 4), (5, 2)) for G in conflicting(M, count)],
        "two_batches": [of_two_batches(M) for M in (2, 3, 5)],
    }


def main() -> None:
    """Record every case, check it and write the files."""
    RULES.write_text(json.dumps(record_rules()) + "\n")
    print(f"{RULES.name}: {RULES.stat().st_size / 1000:.0f} kB")
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
