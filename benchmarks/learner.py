"""The ppo learner on real environments: CPU per step beside bare stepping, and steps per CPU-second beside the peers'.

Training and bare stepping take turns, an iteration each, since the machine's speed drifts within a second. What an
iteration costs is told apart: sampling, which includes the environment's own steps, and the update.
"""

from __future__ import annotations

import json
import time
from statistics import median

import mo_gymnasium
from _timing import run_peer

import moac
from moac import envs, training
from moac.training import result

COPIES, ROUNDS, PEER_STEPS = 16, 24, 8192
TARGETS = {
    "mo-mountaincarcontinuous-v0": 1.15 * 5.0,
    "minecart-v0": 1.15 * 1.5,
    "mo-lunar-lander-v3": 1.15 * 1.6,
    "mo-halfcheetah-v5": 1.15 * 1.5,
}
"""Times bare stepping: what a prototype took, and 15 % more."""
PEERS = {"mo-mountaincarcontinuous-v0": "MOPPO", "mo-halfcheetah-v5": "MOPPO", "mo-lunar-lander-v3": "NLMOPPO"}
TARGET_PEER = 20.0


def report() -> None:
    """Every environment beside bare stepping, and beside the peer that is nearest."""
    print(f"CPU µs per environment step, {COPIES} copies, compilation left out; medians of {ROUNDS} turns")
    for env_id, target in TARGETS.items():
        ours, sampling, bare = beside_bare(env_id)
        print(
            f"  {env_id}: bare {bare:.1f}, training {ours:.1f} (sampling {sampling:.1f}, update "
            f"{ours - sampling:.1f}): {ours / bare:.2f} times bare   target <= {target:.2f}",
            flush=True,
        )
        if env_id in PEERS:
            _report_peer(env_id, PEERS[env_id], ours)


def beside_bare(env_id: str) -> tuple[float, float, float]:
    """Microseconds of a step: of training, of the sampling in it, and of one bare environment."""
    environment, bare = envs.make(env_id, num_envs=COPIES), Bare(env_id)
    run = result.prepare(environment, moac.Config(learner="ppo", num_iterations=ROUNDS + 2), 1, 0)
    clock = _Clock(environment)
    chains = training.hosted.Chains(run, None)
    chains.advance(2)  # compiles
    turns = list[tuple[float, float, float]]()
    for _ in range(ROUNDS):
        clock.seconds, began = 0.0, time.process_time()
        chains.advance(1)
        ours = time.process_time() - began
        turns.append((ours, clock.seconds, bare.seconds(run.env_steps_per_iteration)))
    return tuple(1e6 * median(column) / run.env_steps_per_iteration for column in zip(*turns, strict=True))


class _Clock:
    """Counts the CPU-seconds that an environment's `rollout` takes."""

    def __init__(self, environment: envs.Environment) -> None:
        self.seconds, self._rollout = 0.0, environment.rollout
        vars(environment)["rollout"] = self._timed

    def _timed(self, *arguments):
        began = time.process_time()
        rollout = self._rollout(*arguments)
        self.seconds += time.process_time() - began
        return rollout


class Bare:
    """One environment as MO-Gymnasium makes it, stepped with actions drawn before."""

    def __init__(self, env_id: str) -> None:
        self._env = mo_gymnasium.make(env_id)
        self._env.reset(seed=0)
        self._env.action_space.seed(0)

    def seconds(self, count: int) -> float:
        """CPU-seconds of some steps."""
        env, actions = self._env, [self._env.action_space.sample() for _ in range(count)]
        began = time.process_time()
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        return time.process_time() - began


def _report_peer(env_id: str, name: str, ours: float) -> None:
    peer = run_peer("network_agent.py", *map(json.dumps, (env_id, PEER_STEPS, 0, 0.99, [0])))
    theirs = 1e6 * peer["cpu"] / peer["steps"]
    print(
        f"    {name} (morl-baselines {peer['morl-baselines']}), {peer['steps']:,} steps: {theirs:.0f} µs, "
        f"{theirs / ours:.1f} times ours   target >= {TARGET_PEER:.0f}",
        flush=True,
    )
