"""MoCo: steps of λ along gradients averaged over time, which shrinks the bias of E[GGᵀ] ≠ E[G]E[G]ᵀ.

Fernando et al., *Mitigating Gradient Bias in Multi-objective Learning*, 2023,
https://openreview.net/forum?id=dLAYGdKTi2.

>>> rule = moco(tracking=0.5)
"""

from __future__ import annotations

from moac.arguments import Numbers, checked
from moac.weighting.rule import Needs, Rule, projected_step, starting


@checked
def moco(
    tracking: float = 0.5, step_size: float = 0.1, regulariser: float = 0.0, initial: Numbers | None = None
) -> Rule:
    """Y ← Y − β (Y − G), λ ← Π_Δ(λ − γ (YYᵀ + ρI) λ), d = Yᵀλ: MoCo (Fernando et al., 2023).

    The gradients followed, one per objective, are part of the state: M times the memory of θ.

    Args:
        tracking: β in (0, 1]; 1 is G itself. Y starts at 0.
        step_size: γ > 0, to be compared with 1/‖gⁱ‖².
        regulariser: ρ ≥ 0, pulls λ to uniform.
        initial: λ_0; None is uniform.
    """
    return Rule(starting("initial", initial), projected_step(step_size, regulariser), Needs(tracking=tracking))
