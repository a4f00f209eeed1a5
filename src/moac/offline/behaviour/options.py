"""How a behaviour model is fitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class Options:
    """How a behaviour model is fitted.

    Attributes:
        hidden: width of each hidden layer; none makes it linear.
        step_size: of Adam.
        weight_decay: of Adam, decoupled (Loshchilov & Hutter, 2019).
        batch_size: rows of a step.
        max_rounds: a round is one pass over the train rows, at most 200 steps; then validation users are asked.
        patience: fitting stops after so many rounds without a lower log-loss of validation users.
        folds: F; a train row's propensity is from a model of the other F − 1 folds of train users.
        seed: of weights, batches and folds.
    """

    hidden: tuple[int, ...] = (64,)
    step_size: float = 1e-3
    weight_decay: float = 0.3
    batch_size: int = 512
    max_rounds: int = 100
    patience: int = 5
    folds: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        least = {"batch_size": 1, "max_rounds": 1, "patience": 1, "folds": 2, "seed": 0}
        for name, low in least.items():
            if getattr(self, name) < low:
                raise ValueError(f"`{name}` must be at least {low}, got {getattr(self, name)}.")
        if self.folds > 127 or self.seed >= 2**32:
            raise ValueError(f"`folds` must be below 128, `seed` below 2^32, got {self.folds} and {self.seed}.")
        if not self.step_size > 0 or not self.weight_decay >= 0:
            raise ValueError(
                f"`step_size` must be positive, `weight_decay` not negative, got {self.step_size}, {self.weight_decay}."
            )
        if any(width < 1 for width in self.hidden):
            raise ValueError(f"`hidden` must hold widths of at least 1, got {self.hidden}.")
