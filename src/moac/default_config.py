"""`moac.defaults`: the configuration that a problem gets where nothing else is said, and why."""

from __future__ import annotations

import math
from typing import Any

from moac.choices import counted
from moac.config import Average, Config, Discounted
from moac.policies.observations import LogSpec
from moac.types import Source, Spec

NETWORKS = ("mlp", "gaussian", "items")
"""Policies that are networks."""
_VECTOR_STEP = 20.0
_ADAM_STEP = 1e-3
_TABLE_STEP = 0.05
_TILED_INPUTS = 3  # up to so many inputs, eight tiles along each make a grid that needs no hashing
_BOTH: dict[str, Any] = {
    "ratio_clip": 0.2, "hidden": (64, 64), "weighting": "min-norm", "normalise": "none", "start": "random",
    "behaviour_pull": 0.0, "evaluation_share": 0.1,
}  # fmt: skip
"""What both learners have on models and environments."""
_PAPER: dict[str, Any] = _BOTH | {
    "learner": "paper", "epochs": 1, "units": "raw", "whitening": "none", "schedule": "constant", "critic": "linear",
    "entropy": 0.0, "gae": 0.0,
}  # fmt: skip
"""The paper's learner, which uses each sample once."""
_PPO: dict[str, Any] = _BOTH | {
    "learner": "ppo", "num_iterations": 200, "num_critic_steps": 0, "epochs": 10, "whitening": "rollout",
    "schedule": "linear", "optimiser": "adam", "critic_optimiser": "adam", "gradient_clip": 0.5, "gae": 0.95,
}  # fmt: skip
"""Its sibling, which goes over each rollout several times."""
_LOG: dict[str, Any] = {key: value for key, value in _PAPER.items() if key not in ("hidden", "start")} | {
    "num_iterations": 1000, "num_critic_steps": 1, "critic_batch_size": 512, "actor_batch_size": 512,
    "optimiser": "adam", "critic_optimiser": "adam", "features": "plain", "observation_scale": "bounds",
    "normalise": "l2", "behaviour_pull": 0.1,
}  # fmt: skip
"""Steps by Adam from the behaviour model, pulled back to it: what strays from the log cannot be judged by it."""


def of_spec(spec: Spec, given: Config) -> Config:
    """The configuration that a problem gets by what it tells of itself, where `given` does not say.

    A table of logits has gradients of the size of a state's visitation, about 1/S, times that of the rewards: hence
    the actor's step. Features of vectors are shared by many states, so its step is smaller there; and what shows
    vectors tends to need many steps, so the discount is nearer to 1. Networks step by Adam, whatever the gradient's
    size, and see GAE and their own batch sizes only where `given` says so.
    """
    if isinstance(spec.observations, LogSpec):
        return _of_log(spec.observations, given)
    if given.conditioned or learner_of(spec, given) == "ppo":
        return _of_ppo(spec, given)
    states, chains = spec.num_states, spec.num_chains
    policy = given.policy or _policy_name(spec)
    optimiser = given.optimiser or ("adam" if policy in NETWORKS else "constant")
    critic_optimiser = given.critic_optimiser or ("adam" if given.critic == "mlp" else "constant")
    plain_step = (_VECTOR_STEP if states is None else min(2.0 * states, 200.0)) / spec.reward_bound
    batch = -(-128 // chains) * chains
    return Config(
        **_PAPER,
        setting=Discounted(0.9 if states is not None else 0.99),
        num_iterations=2000,
        num_critic_steps=5,
        critic_batch_size=-(-64 // chains) * chains,
        actor_batch_size=batch,
        minibatch_size=given.actor_batch_size or batch,
        actor_step_size=_ADAM_STEP if optimiser == "adam" else 0.1 if policy in NETWORKS else plain_step,
        critic_step_size=_ADAM_STEP if critic_optimiser == "adam" else 0.1 if given.critic == "mlp" else 0.5,
        policy=policy,
        optimiser=optimiser,
        critic_optimiser=critic_optimiser,
        features=_features(spec),
        observation_scale="bounds" if spec.observations.bounded else "running",
    )


def _of_ppo(spec: Spec, given: Config) -> Config:
    """One set for discrete actions, one for continuous ones (`moac docs environments`); tables take longer steps."""
    vectors = "mlp" if given.features is None else "linear"
    policy = given.policy or (vectors if _policy_name(spec) == "linear" else _policy_name(spec))
    network = policy in NETWORKS
    rollout = given.actor_batch_size or (64 * spec.num_chains if spec.num_chains > 1 else 1024)
    fixed = given.conditioned or given.weighting in ("fixed", "uniform", "first-batch")
    encoder = None if spec.observations.encoder is None else spec.observations.encoder.bare
    whole = encoder is None or encoder.whole
    states = spec.num_states if encoder is None else encoder.num_states
    one_network: dict[str, Any] = {"weighting": "fixed", "conditioned": True}
    return Config(
        **_PPO | (one_network if given.conditioned else {}),
        setting=Discounted(0.9 if states is not None else 0.99),
        critic_batch_size=rollout,
        actor_batch_size=rollout,
        minibatch_size=256 if rollout % 256 == 0 else rollout,
        actor_step_size=_ADAM_STEP if network else _TABLE_STEP,
        critic_step_size=_ADAM_STEP if (given.critic or network) else _TABLE_STEP,
        units="return" if fixed else "advantage",
        policy=policy,
        critic="mlp" if network else "linear",
        entropy=0.0 if spec.action_size else 0.1,
        features=_features(spec),
        observation_scale="bounds" if whole else "standard" if network else "running",
    )


def _of_log(log: LogSpec, given: Config) -> Config:
    kind, hidden, _ = log.behaviour_policy or ("items" if log.with_candidates else "mlp", (64,), True)
    return Config(
        **_LOG,
        policy=kind,
        hidden=hidden,
        start="random" if log.behaviour_policy is None else "behaviour",
        setting=Discounted(0.5),
        minibatch_size=given.actor_batch_size or 512,
        actor_step_size=1e-4 if (given.optimiser or "adam") == "adam" else 0.1,
        critic_step_size=1e-3 if (given.critic_optimiser or "adam") == "adam" else 0.1,
    )


def learner_of(spec: Spec, given: Config) -> str:
    """The learner; where none is named `ppo` on environments, unless what only the paper's has is asked for."""
    papers = given.num_critic_steps or given.critic_batch_size or isinstance(given.setting, Average)
    return given.learner or ("paper" if spec.options is None or papers else "ppo")


def _policy_name(spec: Spec) -> str:
    if spec.action_size:
        return "gaussian"
    return "linear" if spec.num_states is None else "table"


def _features(spec: Spec) -> str:
    """Tiles where they form a grid; cosines of one and two inputs at a time where there are too many for that."""
    if spec.num_states is not None:
        return "one-hot"
    return "tile" if spec.observation_size <= _TILED_INPUTS else "fourier:3"


def reasons(problem: Source, chosen: Config | None = None) -> str:
    """What `of_spec` picks for a problem, and why, in a sentence or two."""
    spec, picked = problem.spec, of_spec(problem.spec, chosen or Config())
    learner = "The paper's learner uses each sample once."
    if picked.learner == "ppo":
        learner = f"The ppo learner uses each sample {picked.epochs} times, since environment steps are expensive."
    policy = f"{picked.policy} policy"
    if picked.policy in NETWORKS:
        why = " for continuous actions" if picked.policy == "gaussian" else ""
        policy += f"{why}, {'Adam' if picked.optimiser == 'adam' else 'constant'} steps"
    if spec.num_states is not None:
        kind = "a table of logits" if picked.policy == "table" else policy
        return f"{counted(spec.num_states, 'state')}: {kind}, and one value per state. {learner}{_on_actions(spec)}"
    scale = "their bounds" if picked.observation_scale == "bounds" else "running moments"
    scale += "" if spec.observations.bounded else ", since a bound is infinite"
    why = "few inputs" if spec.observation_size <= _TILED_INPUTS else "too many inputs for a grid of tiles"
    critic = "an mlp critic" if picked.critic == "mlp" else f"{picked.features} features ({why}) for a linear critic"
    found = f"observations of {spec.observation_size} numbers: {critic}, {policy}, scaled by {scale}. {learner}"
    return found + _on_actions(spec)


def _on_actions(spec: Spec) -> str:
    """What to do where actions have no bound: a policy that starts with small ones may never try a large one."""
    box = spec.action_box
    if box is None or all(map(math.isfinite, (*box.low, *box.high))):
        return ""
    return " Some actions have no bound. The policy starts with small ones: if only large ones matter, scale them."
