"""What the policies of a run earn in whole episodes of the real environment, beside what a model says of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from moac import momdp, statistics
from moac.config import Average, Setting
from moac.envs import Environment
from moac.envs.evaluation import Episodes, play, seeds_of
from moac.momdp import FiniteMOMDP
from moac.statistics import Mean
from moac.training.trained import TrainedPolicy

_STREAM = 1_000_000
"""Sets these seeds apart from those of the evaluations while training."""


@final
@dataclass(frozen=True, eq=False)
class Judgement:
    """K trials of a run, E episodes each.

    Attributes:
        trials: which.
        returns: one mean per objective, over trials, or of a single trial over episodes.
        discounted: likewise, discounted; None in the average setting.
        per_step: reward per step; None in the discounted setting.
        points: [K, M] the objective values of each trial: discounted returns, or rewards per step.
        exact: [K, M] the same from the exact model, which has no time limit; None where there is none.
        length: mean number of steps.
        truncated: share of the episodes that a time limit cut short.
    """

    trials: tuple[int, ...]
    returns: tuple[Mean, ...]
    discounted: tuple[Mean, ...] | None
    per_step: tuple[Mean, ...] | None
    points: Float[np.ndarray, "K M"]
    exact: Float[np.ndarray, "K M"] | None
    length: float
    truncated: float


def judge(
    environment: Environment, trained: TrainedPolicy, trials: tuple[int, ...], episodes: int, model: FiniteMOMDP | None
) -> Judgement:
    """Play and count."""
    setting = trained.setting or Average()
    gamma = setting.discounts(environment.spec.num_objectives)
    policies = [trained.of_trial(trial) for trial in trials]
    played = [play(environment, policy, seeds_of(_STREAM + policy.trial, episodes), gamma) for policy in policies]
    average = isinstance(setting, Average)
    points = [_per_step(one) if average else one.discounted.mean(axis=0) for one in played]
    return Judgement(
        trials,
        _means([one.returns for one in played]),
        None if average else _means([one.discounted for one in played]),
        _ratios(played) if average else None,
        np.stack(points),
        None if model is None else exact(model, policies, setting),
        float(np.mean([one.lengths.mean() for one in played])),
        float(np.mean([one.truncated.mean() for one in played])),
    )


def exact(model: FiniteMOMDP, policies: list[TrainedPolicy], setting: Setting) -> Float[np.ndarray, "K M"] | None:
    """The exact returns of policies on their environment's model; None where the oracle has none."""
    try:
        return np.stack([momdp.evaluate(model, logits_on(model, policy), setting).returns for policy in policies])
    except ValueError:
        return None


def logits_on(model: FiniteMOMDP, policy: TrainedPolicy) -> Float[np.ndarray, "S A"]:
    """log π(a|s) in every state of a model, by what the environment shows there."""
    shown = np.arange(model.num_states) if model.observations is None else model.observations
    seen = jnp.asarray(np.stack([policy.see(row) for row in shown]))
    over_actions = jax.vmap(policy.policy.log_prob, in_axes=(None, None, 0))
    over_states = jax.vmap(over_actions, in_axes=(None, 0, None))
    return np.asarray(over_states(policy.own_theta, seen, jnp.arange(model.num_actions)), dtype=np.float64)


def _means(tables: list[Float[np.ndarray, "E M"]]) -> tuple[Mean, ...]:
    """One per objective: over episodes of a single trial, or over the means of several."""
    rows = tables[0] if len(tables) == 1 else np.stack([table.mean(axis=0) for table in tables])
    return tuple(statistics.mean(column) for column in rows.T)


def _per_step(episodes: Episodes) -> Float[np.ndarray, " M"]:
    return episodes.returns.sum(axis=0) / episodes.lengths.sum()


def _ratios(played: list[Episodes]) -> tuple[Mean, ...]:
    """Rewards per step; of a single trial with the interval of a ratio of two means (delta method)."""
    if len(played) > 1:
        return tuple(statistics.mean(column) for column in np.stack([_per_step(one) for one in played]).T)
    (one,), J = played, _per_step(played[0])
    linear: Any = J + (one.returns - J * one.lengths[:, None]) / one.lengths.mean()
    return tuple(statistics.mean(column) for column in linear.T)
