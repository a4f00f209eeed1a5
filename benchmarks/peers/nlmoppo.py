"""One run of morl-baselines' NLMOPPO on resource-gathering-v0 and its policy:  nlmoppo.py STEPS SEED OBSERVATIONS.

The agent also sees the reward accrued in the episode. Here every reward comes with the end of an episode: at each
decision that sum is zero, and the policy is a table over the observations.
"""

from __future__ import annotations

import json
import sys

import mo_gymnasium
import torch
from _peer import answer, timed
from mo_gymnasium.wrappers.vector import MOSyncVectorEnv
from morl_baselines.single_policy.ser.nl_mo_ppo import NLMOPPO

NUM_ENVS, NUM_OBJECTIVES = 8, 3


def agent_of(steps: int, seed: int) -> NLMOPPO:
    """An agent for u = sum of the returns; no two runs share the seed of an environment."""
    torch.manual_seed(seed)
    envs = MOSyncVectorEnv([lambda: mo_gymnasium.make("resource-gathering-v0")] * NUM_ENVS)
    agent = NLMOPPO(0, envs, log=False, total_timesteps=steps, gamma=0.9, seed=NUM_ENVS * seed, device="cpu")
    agent.policy_evaluate = lambda *_, **__: None  # train() ends with 100 episodes that would count as training
    return agent


@torch.no_grad()
def policy(agent: NLMOPPO, observations: list[list[int]]) -> list[list[float]]:
    """Action probabilities at each observation."""
    shown = torch.tensor(observations, dtype=torch.float32)
    logits = agent.agent.actor(agent.agent._build_aug_obs(shown, torch.zeros(NUM_OBJECTIVES), None))
    return torch.softmax(logits.double(), dim=-1).tolist()


def main(steps: int, seed: int, observations: list[list[int]]) -> None:
    """Train once and print the policy and the seconds."""
    torch.set_num_threads(1)
    agent = agent_of(steps, seed)
    seconds = timed(lambda: agent.train(eval_env=None, u_func=torch.sum))
    answer(steps=agent.num_iterations * agent.batch_size, **seconds, policy=policy(agent, observations))


if __name__ == "__main__":
    main(*map(json.loads, sys.argv[1:]))
