"""What all learners let one choose."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

STARTS = ("behaviour", "random")


@dataclass(frozen=True, kw_only=True)
class Common(ABC):
    """What all learners let one choose.

    Attributes:
        steps: of the policy that is returned.
        batch_size: rows of a step, of train users, uniformly with replacement.
        step_size: of Adam on policies.
        critic_step_size: of Adam on critics.
        critic_weight_decay: of critics, decoupled (Loshchilov & Hutter, 2019).
        target_step_size: τ; the critic's target network moves by that share of the way at each step. 1 is without.
        discount: γ of all signals.
        behaviour_pull: coefficient of the supervised term, −KL(b‖π) to the behaviour model b, or where the log has no
            model the log-likelihood of its actions.
        scale_rewards: divide each signal by its standard deviation over train rows.
        hidden: of policies and critics; None is as the behaviour model, (64,) where there is none.
        start: policies start from the behaviour model, or at random, which is nearly uniform.
        num_evaluations: how often validation users are asked, evenly spread over the steps.
    """

    steps: int = 500
    batch_size: int = 256
    step_size: float = 3e-4
    critic_step_size: float = 1e-3
    critic_weight_decay: float = 0.0
    target_step_size: float = 0.01
    discount: float = 0.9
    behaviour_pull: float = 1.0
    scale_rewards: bool = True
    hidden: tuple[int, ...] | None = None
    start: str = "behaviour"
    num_evaluations: int = 5

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "num_evaluations"):
            whole(name, getattr(self, name), 1)
        for name in ("step_size", "critic_step_size"):
            number(name, getattr(self, name), "positive", lambda x: x > 0)
        for name in ("behaviour_pull", "critic_weight_decay"):
            number(name, getattr(self, name), "not negative", lambda x: x >= 0)
        number("target_step_size", self.target_step_size, "in (0, 1]", lambda x: 0 < x <= 1)
        number("discount", self.discount, "in [0, 1)", lambda x: 0 <= x < 1)
        for width in self.hidden or ():
            whole("hidden", width, 1)
        if self.start not in STARTS:
            raise ValueError(f"`start` must be one of {', '.join(STARTS)}, got {self.start!r}.")
        self.check()

    @property
    @abstractmethod
    def counts(self) -> tuple[int, ...]:
        """Steps of each phase of the learner; the last are those of the policy that is returned."""

    @abstractmethod
    def check(self) -> None:
        """Raise ValueError where a learner's own options are wrong."""


def whole(name: str, value: object, least: int) -> None:
    """Raise unless `value` is a whole number of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"`{name}` must be a whole number of at least {least}, got {value!r}.")


def number(name: str, value: float, what: str, holds: Callable[[float], bool]) -> None:
    """Raise unless `value` is finite and `holds` of it."""
    if not math.isfinite(value) or not holds(value):
        raise ValueError(f"`{name}` must be {what}, got {value}.")
