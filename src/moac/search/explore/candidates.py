"""Which policies of an exploration may be archived: those that each rule ends with, and what an exact model adds.

A model values a policy in no time. So the ends of the earlier stages, which choose more at random, are candidates
there too, and so are all of them with their likeliest actions alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float

from moac.files import Arrays
from moac.momdp import FiniteMOMDP, oracle
from moac.momdp.source import action_probabilities
from moac.policies import Sharpening
from moac.training import result


def of(outcomes: Mapping[str, Sequence[result.Result]]) -> dict[str, result.Result]:
    """Of the stages of each rule, by name: `RULE`, on a model also `RULE, stage 1` …, and each with `, greedy`."""
    found: dict[str, result.Result] = {}
    for rule, stages in outcomes.items():
        found[rule] = stages[-1]
        model, policy = stages[-1].run.source, stages[-1].run.parts.policy
        if isinstance(model, FiniteMOMDP):
            found |= {f"{rule}, stage {k}": stage for k, stage in enumerate(stages[:-1], start=1)}
            if isinstance(policy, Sharpening):
                own = {name: each for name, each in found.items() if rule_of(name) == rule}
                found |= {f"{name}, greedy": _greedy(each, model, policy) for name, each in own.items()}
    return found


def rule_of(name: str) -> str:
    """The rule by which a candidate was trained."""
    return name.partition(", ")[0]


def _greedy(outcome: result.Result, model: FiniteMOMDP, policy: Sharpening) -> result.Result:
    """Their own returns take the place of the last ones logged; their gaps are not asked for."""
    theta = policy.sharpened(outcome.policy.theta)
    last = {"returns": _returns(model, policy, theta, outcome.config.setting)}
    logged: Arrays = {}
    for name in ("returns", "gap", "direction_gap", "regret"):
        logged[name] = getattr(outcome.history, name).copy()
        logged[name][:, -1] = last.get(name, np.nan)
    history = replace(outcome.history, **logged)
    return replace(outcome, history=history, policy=replace(outcome.policy, theta=theta))


def _returns(model: FiniteMOMDP, policy: Sharpening, theta: Any, setting: Any) -> Float[np.ndarray, "K M"]:
    try:
        return oracle.of_policy(model, action_probabilities(model, policy, theta), setting).returns
    except ValueError:  # one of them has no average reward, say: each for itself
        return model.evaluate(policy, theta, setting).returns
