"""One run of morl-baselines' nearest agent to MOAC with networks:  network_agent.py ENV STEPS SEED DISCOUNT SEEDS.

NLMOPPO for u = sum of the returns where actions are discrete, MOPPO with uniform weights where they are continuous; all
else as the library has it. SEEDS are those of the episodes in which the trained agent, acting at random as it trained,
is judged by its discounted returns.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
from collections.abc import Callable

import gymnasium
import mo_gymnasium
import numpy as np
import torch
from _peer import answer, timed
from mo_gymnasium.wrappers.vector import MOSyncVectorEnv
from morl_baselines.single_policy.ser.mo_ppo import MOPPO, MOPPONet, make_env
from morl_baselines.single_policy.ser.nl_mo_ppo import NLMOPPO

DISCRETE_ENVS, CONTINUOUS_ENVS = 8, 4
Act = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""From observations [n, d] and the discounted returns so far [n, M] to n actions."""


def nlmoppo(env: str, steps: int, seed: int, discount: float) -> tuple[dict, Act]:
    """Train on discrete actions; no two runs share the seed of an environment."""
    copies = MOSyncVectorEnv([lambda: mo_gymnasium.make(env)] * DISCRETE_ENVS)
    first = DISCRETE_ENVS * seed
    agent = NLMOPPO(0, copies, log=False, total_timesteps=steps, gamma=discount, seed=first, device="cpu")
    agent.policy_evaluate = lambda *_, **__: None  # train() ends with 100 episodes that would count as training
    seconds = timed(lambda: agent.train(eval_env=None, u_func=torch.sum))

    def act(observations: np.ndarray, accrued: np.ndarray) -> np.ndarray:
        return agent.eval(observations, accrued).numpy()

    settings = f"u = sum of the returns, {DISCRETE_ENVS} environments"
    return {
        "name": "NLMOPPO",
        "settings": settings,
        "steps": agent.num_iterations * agent.batch_size,
        **seconds,
    }, act


def moppo(env: str, steps: int, seed: int, discount: float) -> tuple[dict, Act]:
    """Train on continuous actions, in the library's own wrappers; judged with the first copy's observation scale."""
    first = CONTINUOUS_ENVS * seed
    copies = MOSyncVectorEnv([make_env(env, first + i, i, "run", discount) for i in range(CONTINUOUS_ENVS)])
    objectives = copies.envs[0].unwrapped.reward_space.shape[0]
    networks = MOPPONet(copies.single_observation_space.shape, copies.single_action_space.shape, objectives)
    weights = np.full(objectives, 1 / objectives, dtype=np.float32)
    agent = MOPPO(0, networks, weights, copies, log=False, gamma=discount, seed=first, device="cpu")
    iterations = steps // agent.batch_size

    def train() -> None:
        for iteration in range(1, iterations + 1):
            agent.train(time.time(), iteration, iterations)

    with contextlib.redirect_stdout(io.StringIO()):
        seconds = timed(train)
    scale = _observation_scale(copies.envs[0])
    bounds = copies.single_action_space

    def act(observations: np.ndarray, accrued: np.ndarray) -> np.ndarray:
        del accrued
        seen = np.clip((observations - scale.mean) / np.sqrt(scale.var + 1e-8), -10, 10)
        actions = networks.get_action_and_value(torch.as_tensor(seen, dtype=torch.float32))[0].numpy()
        return np.clip(actions, bounds.low, bounds.high)

    settings = f"uniform weights, {CONTINUOUS_ENVS} environments, observations and rewards normalised"
    return {"name": "MOPPO", "settings": settings, "steps": iterations * agent.batch_size, **seconds}, act


def _observation_scale(env: gymnasium.Env) -> gymnasium.wrappers.utils.RunningMeanStd:
    """The running mean and spread that the wrapper inside has kept."""
    while not isinstance(env, gymnasium.wrappers.NormalizeObservation):
        env = env.env
    return env.obs_rms


@torch.no_grad()
def judge(env: str, act: Act, discount: float, seeds: list[int]) -> list[float]:
    """Mean discounted return over whole episodes, one per seed, side by side."""
    copies = [mo_gymnasium.make(env) for _ in seeds]
    seen = [copy.reset(seed=seed)[0] for copy, seed in zip(copies, seeds, strict=True)]
    earned = np.zeros((len(seeds), copies[0].unwrapped.reward_space.shape[0]))
    active, weight = list(range(len(seeds))), 1.0
    while active:
        actions = act(np.stack([seen[k] for k in active]), earned[active])
        for k, action in zip(list(active), actions, strict=True):
            seen[k], reward, terminated, truncated, _ = copies[k].step(action)
            earned[k] += weight * np.asarray(reward)
            if terminated or truncated:
                active.remove(k)
        weight *= discount
    return earned.mean(axis=0).tolist()


def main(env: str, steps: int, seed: int, discount: float, seeds: list[int]) -> None:
    """Train once, judge, and print what was found."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    sample = mo_gymnasium.make(env)
    train = nlmoppo if isinstance(sample.action_space, gymnasium.spaces.Discrete) else moppo
    about, act = train(env, steps, seed, discount)
    answer(**about, returns=judge(env, act, discount, seeds))


if __name__ == "__main__":
    main(*map(json.loads, sys.argv[1:]))
