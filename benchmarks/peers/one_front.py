"""One front of a multi-policy agent of morl-baselines, at as many steps as ours and valued as ours is, as JSON.

one_front.py METHOD ENV DISCOUNT SEED STEPS SECONDS PREFERENCES EPISODES

Training ends after so many steps of the environment, or after so many CPU seconds. Then each preference [N, M], or each
of as many policies or commands as the agent has, up to N, is played in new episodes. Likeliest actions are played, as
the library evaluates its agents.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import mo_gymnasium
import numpy as np
import torch
from _peer import answer
from morl_baselines.multi_policy.capql.capql import CAPQL
from morl_baselines.multi_policy.envelope.envelope import Envelope
from morl_baselines.multi_policy.gpi_pd.gpi_pd import GPILS
from morl_baselines.multi_policy.multi_policy_moqlearning.mp_mo_q_learning import MPMOQLearning
from morl_baselines.multi_policy.pcn.pcn import PCN

LONGEST = 1_000
"""Steps of an episode at most."""
PCN_SCALES = {
    "minecart-deterministic-v0": ((1, 1, 0.1, 0.1), (1.5, 1.5, 0.0)),
    "mo-lunar-lander-v3": ((0.01, 0.01, 0.05, 0.05, 0.002), (100, 200, 0.0, 0.0)),
}
"""Scaling factors of returns and horizon, and largest returns: of the library's example; on the lander ours."""
Act = Callable[[np.ndarray, np.ndarray], Any]
"""From observations [n, …] and the copies [n] of the environment that show them to n actions."""
Agent = tuple[Callable[[], None], Callable[[], "Played"], str]
"""Trains, gives what is played afterwards, and says which settings are not the library's own."""


@dataclass(frozen=True)
class Task:
    """What an agent is given; each preference [M] is played in so many copies, one after the other."""

    env: Any
    other: Any  # for evaluations while it trains
    gamma: float
    seed: int
    weights: np.ndarray
    episodes: int


@dataclass(frozen=True)
class Played:
    """Points that are played: how many, how they act, and what is told of a copy's rewards."""

    count: int
    act: Act
    told: Callable[[int, np.ndarray], None] = lambda copy, reward: None


class StoppedError(Exception):
    """Training has had its steps or its seconds."""


class Counted(gymnasium.Wrapper):
    """Counts steps, and ends training when there are enough."""

    def __init__(self, env: Any, steps: int, seconds: float) -> None:
        super().__init__(env)
        self.done, self.steps, self.seconds, self.began = 0, steps, seconds, 0.0

    def step(self, action: Any) -> Any:
        """One step, unless there were enough."""
        self.began = self.began or time.process_time()
        if self.done >= self.steps or time.process_time() - self.began > self.seconds:
            raise StoppedError
        self.done += 1
        return super().step(action)


def capql(task: Task) -> Agent:
    """As the library has it."""
    agent, w = CAPQL(task.env, gamma=task.gamma, seed=task.seed, log=False, device="cpu"), task.weights

    def act(seen: np.ndarray, copy: np.ndarray) -> Any:
        return agent.eval(seen, w[copy // task.episodes])

    return lambda: agent.train(10**9, task.other, np.zeros(w.shape[1])), lambda: Played(len(w), act), ""


def envelope(task: Task) -> Agent:
    """Two layers of 64 and batches of 32: its defaults make 10 steps a second."""
    agent = Envelope(task.env, gamma=task.gamma, net_arch=[64, 64], batch_size=32, buffer_size=20_000,
                     initial_epsilon=1.0, final_epsilon=0.05, epsilon_decay_steps=10_000, seed=task.seed, log=False,
                     device="cpu")  # fmt: skip

    def act(seen: np.ndarray, copy: np.ndarray) -> Any:
        inputs, w = (torch.as_tensor(x, dtype=torch.float32) for x in (seen, task.weights[copy // task.episodes]))
        return torch.einsum("nm,nam->na", w, agent.q_net(inputs, w)).argmax(dim=1).numpy()

    settings = "two layers of 64, batches of 32, epsilon falls within 10,000 steps"
    return lambda: agent.train(10**9), lambda: Played(len(task.weights), act), settings


def pcn(task: Task) -> Agent:
    """Conditioned on returns: its commands are those of the best episodes that it keeps."""
    scale, largest = (np.array(x, dtype=np.float32) for x in PCN_SCALES[task.env.spec.id])
    agent = PCN(task.env, scale, gamma=task.gamma, seed=task.seed, log=False, device="cpu")

    def train() -> None:
        agent.train(10**9, task.other, np.zeros(len(largest)), max_return=largest, max_buffer_size=50)

    def played() -> Played:
        best = [e[2] for e in agent._nlargest(min(len(task.weights), len(agent.experience_replay)))]
        wanted = np.repeat(np.float32([episode[0].reward for episode in best]), task.episodes, axis=0)
        horizon = np.repeat(np.float32([len(episode) for episode in best]), task.episodes)

        def act(seen: np.ndarray, copy: np.ndarray) -> Any:
            inputs = (torch.as_tensor(x, dtype=torch.float32) for x in (seen, wanted[copy], horizon[copy][:, None]))
            return agent.model(*inputs).argmax(dim=1).numpy()

        def told(copy: int, reward: np.ndarray) -> None:
            wanted[copy] = np.clip(wanted[copy] - reward, None, largest)
            horizon[copy] = max(horizon[copy] - 1, 1)

        return Played(len(best), act, told)

    return train, played, "scales and largest returns of its example, on the lander ours"


def moqlearning(task: Task) -> Agent:
    """Q-learning for one weight vector after the other, by optimistic linear support; 5,000 steps each."""
    agent = MPMOQLearning(task.env, learning_rate=0.3, gamma=task.gamma, initial_epsilon=1.0, final_epsilon=0.05,
                          epsilon_decay_steps=20_000, weight_selection_algo="ols", epsilon_ols=0.0, seed=task.seed,
                          log=False)  # fmt: skip

    def train() -> None:
        while True:
            agent.train(5_000, task.other, np.zeros(task.weights.shape[1]), timesteps_per_iteration=5_000,
                        num_eval_episodes_for_front=1)  # fmt: skip

    def played() -> Played:
        kept = agent.policies[: len(task.weights)]

        def act(seen: np.ndarray, copy: np.ndarray) -> Any:
            return [int(kept[k // task.episodes].eval(o)) for k, o in zip(copy, seen, strict=True)]

        return Played(len(kept), act)

    return train, played, "5,000 steps for each of the weights that linear support asks for"


def gpi_ls(task: Task) -> Agent:
    """As the library has it; the best of the policies of all weights that it was trained on acts."""
    agent = GPILS(task.env, gamma=task.gamma, seed=task.seed, log=False, device="cpu")

    def act(seen: np.ndarray, copy: np.ndarray) -> Any:
        inputs, w = (torch.as_tensor(x, dtype=torch.float32) for x in (seen, task.weights[copy // task.episodes]))
        q = [agent.q_nets[0](inputs, own.expand(len(seen), -1)) for own in agent.weight_support]
        return torch.stack([torch.einsum("nm,nam->na", w, each) for each in q]).amax(dim=0).argmax(dim=1).numpy()

    def train() -> None:
        agent.train(10**9, task.other, np.zeros(task.weights.shape[1]), checkpoints=False)

    def played() -> Played:
        for network in agent.q_nets:
            network.eval()
        return Played(len(task.weights), act)

    return train, played, ""


@torch.no_grad()
def valued(name: str, task: Task, played: Played) -> list[list[float]]:
    """The mean discounted return of each point, all episodes side by side."""
    copies = [mo_gymnasium.make(name) for _ in range(played.count * task.episodes)]
    seen = [copy.reset(seed=10_000_000 + 100_000 * task.seed + k)[0] for k, copy in enumerate(copies)]
    earned = np.zeros((len(copies), task.weights.shape[1]))
    active, weight = np.arange(len(copies)), 1.0
    for _ in range(LONGEST):
        over = np.zeros(len(active), dtype=bool)
        actions = played.act(np.stack([seen[k] for k in active]), active)
        for place, (k, action) in enumerate(zip(active, actions, strict=True)):
            seen[k], reward, terminated, truncated, _ = copies[k].step(action)
            earned[k] += weight * reward
            played.told(k, reward)
            over[place] = terminated or truncated
        active, weight = active[~over], weight * task.gamma
        if not len(active):
            break
    return earned.reshape(played.count, task.episodes, -1).mean(axis=1).tolist()


METHODS = {"CAPQL": capql, "Envelope": envelope, "PCN": pcn, "MPMOQLearning": moqlearning, "GPI-LS": gpi_ls}


def main(method: str, name: str, discount: float, seed: int, *asked: Any) -> None:
    """Train once, value, and print what was found."""
    steps, seconds, preferences, episodes = asked
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    env = Counted(mo_gymnasium.make(name), steps, seconds)
    env.reset(seed=1_000 + seed)
    env.action_space.seed(2_000 + seed)
    task = Task(env, mo_gymnasium.make(name), discount, seed, np.asarray(preferences), episodes)
    train, played, settings = METHODS[method](task)
    with contextlib.suppress(StoppedError), contextlib.redirect_stdout(io.StringIO()):
        train()
    cpu = time.process_time() - env.began
    answer(settings=settings, steps=env.done, cpu=cpu, points=valued(name, task, played()))


if __name__ == "__main__":
    main(*map(json.loads, sys.argv[1:]))
