"""What both baselines let one choose, and what each choice must be."""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


_COUNT = ("a whole number of at least 1", _is_count)
_POSITIVE = ("positive and finite", lambda x: 0 < x < math.inf)
_RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("steps", "auxiliary_steps", "batch_size"), _COUNT),
    **dict.fromkeys(("step_size", "critic_step_size", "weight_step_size", "multiplier"), _POSITIVE),
    "behaviour_pull": ("at least 0 and finite", lambda x: 0 <= x < math.inf),
    "target_step_size": ("in (0, 1]", lambda x: 0 < x <= 1),
    "discount": ("in [0, 1)", lambda x: 0 <= x < 1),
    "hidden": ("widths of at least 1", lambda x: all(map(_is_count, x))),
    "start": ("behaviour or random", lambda x: x in ("behaviour", "random")),
    "normalise": ("none or l2", lambda x: x in ("none", "l2")),
    "weights": ("at least 0 and sum to one", lambda x: min(x) >= 0 and abs(sum(x) - 1) < 1e-6),
}
"""Of options of either method: what each must be."""


@dataclass(frozen=True, kw_only=True)
class Options(ABC):  # noqa: B024 - a method's own options are final
    """What both methods let one choose."""

    steps: int = 500  # of the policy that is returned
    batch_size: int = 256  # rows of a step, of train users, uniformly with replacement
    step_size: float = 3e-4  # of Adam on policies
    critic_step_size: float = 1e-3  # of Adam on critics
    target_step_size: float = 0.01  # τ, the share of the way that the target network moves at each step; 1 is without
    discount: float = 0.9  # γ of all signals
    # Coefficient of the KL regularisation, −KL(b‖π) to the behaviour model b, or where the log has no model the
    # log-likelihood of its actions.
    behaviour_pull: float = 1.0
    scale_rewards: bool = True  # divide each signal by its standard deviation over train rows
    hidden: tuple[int, ...] | None = None  # None is as the behaviour model, (64,) where there is none
    start: str = "behaviour"  # policies start from the behaviour model, or at random, which is nearly uniform

    def __post_init__(self) -> None:
        for name, (rule, holds) in _RULES.items():
            value: Any = getattr(self, name, None)
            if value is not None and not holds(value):
                raise ValueError(f"`{name}` must be {rule}, got {value!r}.")
