"""Time one policy-gradient update of M objectives with TorchJD:  torchjd_actor.py [[batch, objectives], …] THREADS.

One hidden layer, softmax over actions; losses L_i = −(1/B) Σ_l δⁱ_l log π_l. Both of TorchJD's engines are timed, with
MGDA as it comes and with the mean in its place (the same work without a solver), and a plain scalarised update.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import version

import torch
from torchjd.aggregation import MGDA, Mean, MeanWeighting, MGDAWeighting
from torchjd.autogram import Engine
from torchjd.autojac import backward, jac_to_grad

INPUTS, HIDDEN, ACTIONS, REPEATS = 400, 128, 150, 25


def main(sizes: str, threads: str) -> None:
    """Print milliseconds by engine and rule for each size."""
    torch.set_num_threads(int(threads))
    found = [{"batch": B, "objectives": M, "ms": _times(B, M)} for B, M in json.loads(sizes)]
    print(json.dumps({"times": found, "torchjd": version("torchjd"), "torch": torch.__version__}))


def _times(B: int, M: int) -> dict[str, float]:
    torch.manual_seed(0)
    data = torch.rand(B, INPUTS), torch.randint(ACTIONS, (B,)), torch.randn(B, M)
    ways = {
        "autojac, MGDA": lambda net: _jacobian(net, MGDA()),
        "autojac, mean": lambda net: _jacobian(net, Mean()),
        "autogram, MGDA": lambda net: _gramian(net, MGDAWeighting()),
        "autogram, mean": lambda net: _gramian(net, MeanWeighting()),
        "scalarised": lambda net: lambda losses: losses.mean().backward(),
    }
    return {name: best(_updates(way, data)) for name, way in ways.items()}


def _updates(way: Callable[[torch.nn.Module], Callable[[torch.Tensor], None]], data: tuple) -> Callable[[], None]:
    """One update of a network of its own."""
    x, action, delta = data
    net = torch.nn.Sequential(torch.nn.Linear(INPUTS, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, ACTIONS))
    optimiser, pull = torch.optim.SGD(net.parameters(), lr=1e-3), way(net)

    def update() -> None:
        optimiser.zero_grad()
        log_pi = torch.log_softmax(net(x), dim=1).gather(1, action[:, None])[:, 0]
        pull(-(delta.T @ log_pi) / len(x))
        optimiser.step()

    return update


def _jacobian(net: torch.nn.Module, aggregator: torch.nn.Module) -> Callable[[torch.Tensor], None]:
    def pull(losses: torch.Tensor) -> None:
        backward(losses)
        jac_to_grad(net.parameters(), aggregator)

    return pull


def _gramian(net: torch.nn.Module, weighting: torch.nn.Module) -> Callable[[torch.Tensor], None]:
    engine = Engine(net, batch_dim=None)
    return lambda losses: losses.backward(weighting(engine.compute_gramian(losses)))


def best(function: Callable[[], None]) -> float:
    """Milliseconds of the fastest of several calls."""
    times = []
    for _ in range(REPEATS + 3):
        started = time.perf_counter()
        function()
        times.append(1e3 * (time.perf_counter() - started))
    return min(times[3:])


if __name__ == "__main__":
    main(*sys.argv[1:])
