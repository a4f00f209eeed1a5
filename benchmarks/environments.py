"""Training on real environments: steps per CPU-second beside bare stepping and the peers, and what workers gain."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from statistics import median

import gymnasium
import mo_gymnasium
import numpy as np
from _recorded import keep
from _timing import run_peer
from gymnasium import spaces

import moac
from moac import envs, training
from moac.training import result

STEPS, REPEATS, COPIES = 180_000, 5, (1, 4, 16, 64)
TARGET_FEW, TARGET_MANY, TARGET_PEER, TARGET_WORKERS = 0.75, 0.55, 5.0, 1.7
PEER_STEPS = 20_000
STEP_SECONDS = 200e-6


class Busy(gymnasium.Env):
    """Takes 200 µs of CPU a step; five states, two objectives."""

    def __init__(self) -> None:
        self.observation_space, self.action_space = spaces.Discrete(5), spaces.Discrete(2)
        self.reward_space = spaces.Box(np.float32([0, -1]), np.float32([1, 0]))
        self.place = 0

    def reset(self, *, seed=None, options=None):
        """At the first place."""
        super().reset(seed=seed, options=options)
        self.place = 0
        return self.place, {}

    def step(self, action):
        """Work, then move."""
        until = time.process_time() + STEP_SECONDS
        while time.process_time() < until:
            pass
        self.place = max(0, self.place + (1 if action else -1))
        return self.place, np.float32([self.place == 4, -1]), self.place == 4, False, {}


def report() -> None:
    """The three comparisons."""
    _report_bare()
    _report_peers()
    _report_workers()


class Bare:
    """One environment as MO-Gymnasium makes it, stepped with actions drawn before."""

    def __init__(self, env_id: str) -> None:
        self.env, self.seconds, self.steps = mo_gymnasium.make(env_id), 0.0, 0
        self.env.reset(seed=0)

    def step(self, count: int) -> None:
        """Some steps; their CPU-seconds are counted."""
        env, num_actions = self.env, vars(self.env.action_space)["n"]
        actions = np.random.default_rng(count).integers(0, num_actions, count).tolist()
        began = time.process_time()
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        self.seconds, self.steps = self.seconds + time.process_time() - began, self.steps + count

    @property
    def rate(self) -> float:
        """Steps per CPU-second."""
        return self.steps / self.seconds


def trainer(env_id: str, num_envs: int, steps: int = STEPS) -> Callable[[], float]:
    """A function that trains and tells the steps per CPU-second; its first call compiles, and is made here."""
    environment = envs.make(env_id, num_envs=num_envs, evaluation_episodes=1)
    config = moac.Config(num_iterations=steps // 448, num_evaluations=1)

    def train() -> float:
        began = time.process_time()
        return moac.train(environment, config).env_steps / (time.process_time() - began)

    train()
    return train


def _beside(environment: envs.Environment) -> tuple[float, float]:
    """Rates of training and of bare stepping, which take turns: the machine's speed drifts within a second."""
    config = moac.Config(learner="paper", num_iterations=STEPS // 448, num_evaluations=1)
    run = result.prepare(environment, config, 1, 0)
    snapshots, bare, seconds, done = training.iterate(run), Bare("resource-gathering-v0"), 0.0, 0
    while done < STEPS // 448:
        began = time.process_time()
        done = next(snapshots).iteration
        seconds += time.process_time() - began
        bare.step(4 * 448)
    return done * run.env_steps_per_iteration / seconds, bare.rate


def _report_bare() -> None:
    sources = {n: envs.make("resource-gathering-v0", num_envs=n, evaluation_episodes=1) for n in COPIES}
    for source in sources.values():
        _beside(source)  # compiles
    found = {n: [_beside(source) for _ in range(REPEATS)] for n, source in sources.items()}
    bare = median(rate for pairs in found.values() for _, rate in pairs)
    print(f"resource-gathering-v0 black-box, the paper's learner with a table, T = {STEPS // 448}, N·D + B = 448;")
    print("  making the copies is included;")
    print(f"  bare stepping of one environment, actions drawn before: {bare:,.0f} steps per CPU-second")
    for n, pairs in found.items():
        target, ratios = TARGET_FEW if n <= 16 else TARGET_MANY, [ours / theirs for ours, theirs in pairs]
        print(f"  training / bare, {n:2} copies: {median(ratios):.2f} (best {max(ratios):.2f})   target >= {target}")


def _report_peers() -> None:
    eupg = run_peer("eupg.py", *map(json.dumps, (PEER_STEPS, 0, 2)))
    nlmoppo = run_peer("nlmoppo.py", *map(json.dumps, (PEER_STEPS, 0, [[4, 2, 0, 0]])))
    for name, env_id, peer in (("EUPG", "fishwood-v0", eupg), ("NLMOPPO", "resource-gathering-v0", nlmoppo)):
        train = trainer(env_id, 8)
        ours, theirs = max(train() for _ in range(3)), peer["steps"] / peer["cpu"]
        print(
            f"  {env_id}: moac {ours:,.0f}, {name} (morl-baselines {peer['morl-baselines']}) {theirs:,.0f} steps per "
            f"CPU-second: {ours / theirs:.1f} times   target >= {TARGET_PEER}",
            flush=True,
        )
        keep(env_id, rate=ours, peer_rate=theirs, peer=name)


def _report_workers() -> None:
    """Wall time: CPU time does not tell what processes side by side gain."""
    config, times = moac.Config(num_iterations=12, num_evaluations=1), {1: [], 2: []}
    sources = {workers: envs.make(Busy, num_envs=8, workers=workers, evaluation_episodes=1) for workers in times}
    for _ in range(4):
        for workers, environment in sources.items():
            began = time.perf_counter()
            moac.train(environment, config)
            times[workers].append(time.perf_counter() - began)
    for environment in sources.values():
        environment.close()
    gain = min(times[1][1:]) / min(times[2][1:])
    print(f"  200 µs a step: two workers / one, wall: {gain:.2f}   target >= {TARGET_WORKERS}")
