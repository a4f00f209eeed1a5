"""Min-norm weights for a batch of Gram matrices: time and exactness, beside TorchJD's MGDA on the same matrices."""

from __future__ import annotations

import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from _recorded import keep
from _reference import exact_weights, objective
from _timing import measure, run_peer

from moac.simplex import min_norm_from_gram

NUM_PROBLEMS = 500
NUM_PARAMETERS = 1000
TARGET_MICROSECONDS = {3: 2.0, 7: 10.0}


def gradients(num_objectives: int) -> np.ndarray:
    """Problems [500, M, 1000]: half Gaussian (all weights positive), half one direction plus noise (few positive)."""
    rng = np.random.default_rng(num_objectives)
    shape = (NUM_PROBLEMS // 2, num_objectives, NUM_PARAMETERS)
    gaussian = rng.normal(size=shape)
    common = rng.normal(size=(shape[0], 1, NUM_PARAMETERS))
    norms = 10.0 ** rng.uniform(-1.0, 1.0, size=(*shape[:2], 1))
    return np.concatenate([gaussian, norms * (common + rng.normal(size=shape))])


class Judge:
    """Prints one line per solver: µs per solve and the worst relative gap to the exact objective; keeps both."""

    def __init__(self, K: np.ndarray) -> None:
        self.K, self.found = K, dict[str, tuple[float, float]]()
        self.best = objective(K, np.stack([exact_weights(k) for k in K]))

    def line(self, name: str, seconds: float, weights: np.ndarray, note: str = "") -> None:
        """`seconds` are per solve."""
        gap = np.max(objective(self.K, weights) / self.best - 1.0)
        self.found[name] = 1e6 * seconds, float(gap)
        print(f"  {name:42} {1e6 * seconds:9.2f} us/solve   worst gap {gap:8.1e}   {note}", flush=True)


def report() -> None:
    """One block per number of objectives."""
    print(
        f"{NUM_PROBLEMS} problems, half Gaussian and half biased, {NUM_PARAMETERS} parameters; "
        "wall time, best of 10 (TorchJD and single calls: of 3), compiled before."
    )
    print("Gap: (f - f*)/f*, f* by scipy.optimize.nnls; f is evaluated in float64, which resolves about 1e-15.")
    print(
        "TorchJD has no batch axis: compare it with our one problem per call, or with our batch for what a user gets."
    )
    for num_objectives in (2, 3, 7, 20):
        G = gradients(num_objectives)
        print(f"M = {num_objectives}")
        _report_gram(G)
        judge = Judge(G @ G.transpose(0, 2, 1))
        batched, single = _report_ours(judge, TARGET_MICROSECONDS.get(num_objectives))
        _report_torchjd(judge, batched, single)


def _report_gram(G: np.ndarray) -> None:
    """For scale: what forming the Gram matrices costs."""
    batch = jnp.asarray(G, dtype=jnp.float32)
    gram = jax.jit(lambda g: jnp.einsum("nip,njp->nij", g, g))
    gram(batch).block_until_ready()
    seconds = measure(lambda: gram(batch).block_until_ready(), repeats=10).best
    print(f"  {'forming K = G Gᵀ, float32 (for scale)':42} {1e6 * seconds / NUM_PROBLEMS:9.2f} us/problem")


def _report_ours(judge: Judge, target: float | None) -> tuple[float, float]:
    """Print our lines; return the float64 seconds per solve in a batch and alone."""
    note = f"target <= {target:g} us" if target else ""
    _time_batch(judge, "moac, float32 batch, as in training", judge.K.astype(np.float32), note)
    with jax.enable_x64(True):
        batched = _time_batch(judge, "moac, float64 batch", judge.K, note)
        single = _time_singles(judge)
    min_norm_from_gram(judge.K)
    seconds = measure(lambda: min_norm_from_gram(judge.K), repeats=10).best / NUM_PROBLEMS
    judge.line("moac, float64 batch, NumPy in and out", seconds, min_norm_from_gram(judge.K).weights)
    return batched, single


def _time_batch(judge: Judge, name: str, K: np.ndarray, note: str) -> float:
    solve = jax.jit(min_norm_from_gram)
    batch = jnp.asarray(K)
    weights = np.asarray(solve(batch).weights)
    seconds = measure(lambda: jax.block_until_ready(solve(batch)), repeats=10).best / NUM_PROBLEMS
    judge.line(name, seconds, weights, note)
    return seconds


def _time_singles(judge: Judge) -> float:
    solve = jax.jit(min_norm_from_gram)
    problems = [jnp.asarray(K) for K in judge.K]
    weights = np.stack([solve(K).weights for K in problems])
    seconds = measure(lambda: [solve(K).weights.block_until_ready() for K in problems], repeats=3).best / NUM_PROBLEMS
    judge.line("moac, float64, one problem per call", seconds, weights)
    return seconds


def _report_torchjd(judge: Judge, batched: float, single: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        matrices, answers = Path(folder) / "matrices.npy", Path(folder) / "weights.npy"
        np.save(matrices, judge.K)
        for threads in (1, 2):
            peer = run_peer("torchjd_mgda.py", str(matrices), str(answers), str(threads))
            seconds = peer["wall"] / NUM_PROBLEMS
            name = f"TorchJD {peer['torchjd']} MGDA, float64, {threads} thread{'s'[: threads - 1]}"
            note = f"{seconds / single:,.0f} x one per call, {seconds / batched:,.0f} x batch"
            judge.line(name, seconds, np.load(answers), note)
    (short, _), (batch, gap), (alone, _), *_, (theirs, other) = judge.found.values()
    keep(f"simplex, M = {judge.K.shape[-1]}", batch_us=short, batch64_us=batch, gap=gap, single_us=alone,
         peer_us=theirs, peer_gap=other, peer=f"TorchJD {peer['torchjd']}")  # fmt: skip
