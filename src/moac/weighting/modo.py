"""MoDo: steps of λ along the products of two independent batches, which have no bias.

Chen et al., *Three-Way Trade-Off in Multi-Objective Learning*, 2023, https://arxiv.org/abs/2305.20057.

>>> rule = modo(step_size=0.1)
"""

from __future__ import annotations

from typing import Any

from moac.arguments import Numbers, checked
from moac.weighting.rule import Needs, Rule, Seen, projected_step, starting


@checked
def modo(step_size: float = 0.1, regulariser: float = 0.1, initial: Numbers | None = None) -> Rule:
    """λ ← Π_Δ(λ − γ (G₁G₂ᵀ + ρI) λ), with G₁, G₂ of two independent batches: MoDo (Chen et al., 2023).

    The direction is that of the mean of both batches' gradients.

    Args:
        step_size: γ > 0, to be compared with 1/‖gⁱ‖².
        regulariser: ρ ≥ 0, pulls λ to uniform.
        initial: λ_0; None is uniform.
    """
    step = projected_step(step_size, regulariser)

    def update(lam: Any, seen: Seen, t: Any) -> Any:
        return step(lam, seen.cross, t)

    return Rule(starting("initial", initial), update, Needs(cross=True))
