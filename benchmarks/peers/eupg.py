"""One run of morl-baselines' EUPG on fishwood-v0 and what it earns, as JSON:  eupg.py STEPS SEED EPISODES.

The policy depends on the reward accrued in the episode, so its returns are estimated by simulating the environment.
"""

from __future__ import annotations

import json
import sys

import mo_gymnasium
import numpy as np
import torch
from _peer import answer, timed
from morl_baselines.single_policy.esr.eupg import EUPG

DISCOUNT = 0.9


def utility(reward, weights=None):
    """u = min(fish, wood // 2), of one vector as a number or of rows as a tensor: the agent asks for both."""
    del weights
    values = torch.as_tensor(reward)
    least = torch.minimum(values[..., 0], values[..., 1] // 2)
    return least.item() if least.dim() == 0 else least


def agent_of(seed: int) -> EUPG:
    """An agent with the library's settings, but for the discount."""
    torch.manual_seed(seed)
    env = mo_gymnasium.make("fishwood-v0")
    env.reset(seed=seed)
    return EUPG(env, scalarization=utility, weights=np.ones(2), gamma=DISCOUNT, log=False, seed=seed, device="cpu")


@torch.no_grad()
def simulate(agent: EUPG, episodes: int, first_seed: int) -> dict[str, list[float] | float]:
    """Mean discounted return and mean utility of whole episodes; the policy sees what it accrued as in training."""
    envs = [mo_gymnasium.make("fishwood-v0") for _ in range(episodes)]
    shown = np.stack([env.reset(seed=first_seed + k)[0] for k, env in enumerate(envs)])
    accrued, returns = np.zeros((episodes, 2), np.float32), np.zeros((episodes, 2))
    done, discount = False, 1.0
    while not done:
        actions = agent.net.distribution(torch.Tensor(shown), torch.from_numpy(accrued)).sample().tolist()
        steps = [env.step(action) for env, action in zip(envs, actions, strict=True)]
        reward = np.stack([step[1] for step in steps])
        shown, done = np.stack([step[0] for step in steps]), steps[0][2]
        accrued, returns, discount = accrued + reward, returns + discount * reward, DISCOUNT * discount
    return {"returns": returns.mean(axis=0).tolist(), "utility": float(utility(accrued).mean())}


def main(steps: int, seed: int, episodes: int) -> None:
    """Train once, simulate, and print both."""
    torch.set_num_threads(1)
    agent = agent_of(seed)
    seconds = timed(lambda: agent.train(total_timesteps=steps))
    answer(steps=steps, **seconds, **simulate(agent, episodes, first_seed=1_000_000 * (seed + 1)))


if __name__ == "__main__":
    main(*map(json.loads, sys.argv[1:]))
