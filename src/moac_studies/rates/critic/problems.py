"""What the critic is measured on: a fixed policy on a model, and how long and how often it learns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from jaxtyping import Float

from moac.config import Average, Discounted, Setting
from moac.momdp import FiniteMOMDP, evaluate, library, td_fixed_point

DISCOUNTED, EXACT, OURS, PAPER = "discounted", "average, exact J", "average, our μ", "average, the paper's μ"
VARIANTS = (DISCOUNTED, EXACT, OURS, PAPER)


@final
@dataclass(frozen=True, eq=False)
class Problem:
    """A fixed softmax policy on a model, with one-hot features.

    Attributes:
        name: as tables say it.
        model: the MOMDP.
        logits: of the policy [S, A].
        gamma: the discount of the discounted variant.
    """

    name: str
    model: FiniteMOMDP
    logits: Float[np.ndarray, "S A"]
    gamma: float

    def setting(self, variant: str) -> Setting:
        """The setting of a variant."""
        return Discounted(self.gamma) if variant == DISCOUNTED else Average()

    @cached_property
    def average_reward(self) -> Float[np.ndarray, " M"]:
        """J of the average setting."""
        return evaluate(self.model, self.logits, Average()).returns

    def target(self, variant: str) -> Float[np.ndarray, "S M"]:
        """w*; in the average setting the one of least norm, for only its differences are determined."""
        return td_fixed_point(self.model, self.logits, self.setting(variant), np.eye(self.model.num_states)).T


@final
@dataclass(frozen=True)
class Plan:
    """How to run the critic.

    Attributes:
        step_size: β.
        batch_size: D.
        num_steps: N, rounded up to whole walks.
        walk: transitions from one checkpoint to the next, rounded down to whole batches.
        trials: K.
        seed: of the samples, which all variants share.
        from_zero: whether w_0 = 0 and μ_0 = 0; else w_0 = w* and μ_0 = J, and the error rises to its floor.
    """

    step_size: float
    batch_size: int
    num_steps: int
    walk: int
    trials: int
    seed: int
    from_zero: bool

    @property
    def between(self) -> int:
        """TD steps from one checkpoint to the next."""
        return max(1, self.walk // self.batch_size)

    @property
    def checkpoints(self) -> Float[np.ndarray, " L"]:
        """N at each checkpoint."""
        return self.between * np.arange(1.0, np.ceil(self.num_steps / self.between) + 1)


def random_ergodic(table: Mapping[str, Any]) -> Problem:
    """A random ergodic model under a random policy."""
    S, A = int(table["num_states"]), int(table["num_actions"])
    model = library.random_ergodic(int(table["model_key"]), S, A, int(table["num_objectives"]))
    logits = np.random.default_rng(int(table["policy_key"])).normal(size=(S, A))
    return Problem("random ergodic", model, logits, float(table["discount"]))


def resource_gathering(table: Mapping[str, Any]) -> Problem:
    """resource-gathering-v0 under the uniform policy."""
    model = library.resource_gathering()
    logits = np.zeros((model.num_states, model.num_actions))
    return Problem("resource-gathering", model, logits, float(table["discount"]))


def well_mixed(table: Mapping[str, Any]) -> Problem:
    """One action, and every state as likely as any other after one step, so that ρ = 0; rewards [S, M]."""
    reward = np.array(table["rewards"], dtype=np.float64)
    S = len(reward)
    model = FiniteMOMDP.from_dense(np.full((S, 1, S), 1 / S), reward[:, None, :])
    return Problem("well-mixed", model, np.zeros((S, 1)), float(table["discount"]))
