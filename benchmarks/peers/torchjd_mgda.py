"""Solve a file of Gram matrices by TorchJD's MGDA as it comes:  torchjd_mgda.py MATRICES WEIGHTS THREADS."""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version

import numpy as np
import torch
from torchjd.aggregation import MGDAWeighting


def main(matrices_file: str, weights_file: str, threads: str) -> None:
    """Solve the matrices one by one (TorchJD has no batch axis), save the weights, print the best seconds of 3."""
    torch.set_num_threads(int(threads))
    matrices = list(torch.from_numpy(np.load(matrices_file)))
    solve = MGDAWeighting()
    for K in matrices[:20]:
        solve(K)
    wall = []
    for _ in range(3):
        started = time.perf_counter()
        weights = [solve(K) for K in matrices]
        wall.append(time.perf_counter() - started)
    np.save(weights_file, torch.stack(weights).numpy())
    print(json.dumps({"wall": min(wall), "torchjd": version("torchjd"), "torch": torch.__version__}))


if __name__ == "__main__":
    main(*sys.argv[1:])
