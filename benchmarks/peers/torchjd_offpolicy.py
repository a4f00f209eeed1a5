"""Time one off-policy update of M objectives with TorchJD:  torchjd_offpolicy.py BATCH OBJECTIVES THREADS.

A TD step of a linear critic by Adam, weighted by ρ = min(10, π/π_b); losses L_i = −(1/B) Σ_l ρ_l δⁱ_l log π_l of a
network with one hidden layer, aggregated by MGDA; the log-likelihood of the behaviour policy; a step of Adam. Both of
TorchJD's engines are timed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.metadata import version

import torch
from torchjd.aggregation import MGDA, MGDAWeighting
from torchjd.autogram import Engine
from torchjd.autojac import backward, jac_to_grad
from torchjd_actor import ACTIONS, HIDDEN, INPUTS, best

GAMMA, PULL = 0.5, 0.3


def main(batch: str, objectives: str, threads: str) -> None:
    """Print milliseconds by engine."""
    torch.set_num_threads(int(threads))
    B, M = int(batch), int(objectives)
    found = {name: best(_updates(name, B, M)) for name in ("autojac", "autogram")}
    print(json.dumps({"ms": found, "torchjd": version("torchjd"), "torch": torch.__version__}))


def _updates(engine: str, B: int, M: int) -> Callable[[], None]:
    torch.manual_seed(0)
    critic_data, actor_data = _data(B, M), _data(B, M)
    b = torch.softmax(torch.randn(B, ACTIONS), dim=1)
    net = torch.nn.Sequential(torch.nn.Linear(INPUTS, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, ACTIONS))
    critic = torch.nn.Linear(INPUTS, M)
    actor_steps = torch.optim.Adam(net.parameters(), lr=1e-4)
    critic_steps = torch.optim.Adam(critic.parameters(), lr=1e-3)
    aggregate = _jacobian(net) if engine == "autojac" else _gramian(net)

    def log_pi(x: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        every = torch.log_softmax(net(x), dim=1)
        return every.gather(1, action[:, None])[:, 0], every

    def errors(x: torch.Tensor, x_next: torch.Tensor, reward: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        V = critic(x)
        return (reward + GAMMA * critic(x_next) - V).detach(), V

    def update() -> None:
        x, x_next, action, reward, log_b = critic_data
        with torch.no_grad():
            rho = (log_pi(x, action)[0] - log_b).exp().clamp(max=10)
        delta, V = errors(x, x_next, reward)
        critic_steps.zero_grad()
        (-(rho[:, None] * delta * V).sum() / B).backward()
        critic_steps.step()
        x, x_next, action, reward, log_b = actor_data
        with torch.no_grad():
            delta, _ = errors(x, x_next, reward)
        actor_steps.zero_grad()
        taken, every = log_pi(x, action)
        rho = (taken.detach() - log_b).exp().clamp(max=10)
        pulled = torch.autograd.grad(-(b * every).sum(dim=1).mean(), list(net.parameters()), retain_graph=True)
        aggregate(-((rho[:, None] * delta).T @ taken) / B)
        for parameter, gradient in zip(net.parameters(), pulled, strict=True):
            parameter.grad += PULL * gradient
        actor_steps.step()

    return update


def _data(B: int, M: int) -> tuple[torch.Tensor, ...]:
    log_b = torch.full((B,), -5.0)
    return torch.rand(B, INPUTS), torch.rand(B, INPUTS), torch.randint(ACTIONS, (B,)), torch.rand(B, M), log_b


def _jacobian(net: torch.nn.Module) -> Callable[[torch.Tensor], None]:
    aggregator = MGDA()

    def aggregate(losses: torch.Tensor) -> None:
        backward(losses, retain_graph=True)
        jac_to_grad(net.parameters(), aggregator)

    return aggregate


def _gramian(net: torch.nn.Module) -> Callable[[torch.Tensor], None]:
    engine, weighting = Engine(net, batch_dim=None), MGDAWeighting()
    return lambda losses: losses.backward(weighting(engine.compute_gramian(losses)))


if __name__ == "__main__":
    main(*sys.argv[1:])
