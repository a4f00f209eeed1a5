"""L_J, the Lipschitz constant of ∇J: its value at a policy by Lanczos, and proved upper bounds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from moac.arguments import checked

if TYPE_CHECKING:
    from moac.theory.ground import Ground

_DENSE = 200  # Hessians up to this size are formed
_TOLERANCE = 1e-7


@dataclass(frozen=True, eq=False)
class Hessian:
    """∇²Jⁱ of one objective as a linear map, exact: no differences, no automatic differentiation.

    With π' = π(v − πᵀv), q = Σ_a π'Q and K = (I − γP)⁻¹ (average: the fundamental matrix (I − P + 1dᵀ)⁻¹) the
    derivatives along v are V' = Kq, ν'ᵀ = γ(νᵀP')K and Adv' = γE[V'(s')] − V' (average: − dᵀq), and
    ∇²J v = ν'πAdv + νπ'Adv + νπAdv'.
    """

    ground: Ground
    objective: int

    @property
    def size(self) -> int:
        """The number of parameters."""
        rows = self.ground.model.num_states if self.ground.inputs is None else self.ground.inputs.shape[1]
        return rows * self.ground.model.num_actions

    @property
    def _gamma(self) -> float:
        return self.ground.gammas[self.objective]

    @cached_property
    def _resolvent(self) -> Float[np.ndarray, "S S"]:
        g = self.ground
        system = np.eye(g.model.num_states) - self._gamma * g.moves
        return np.linalg.inv(system + g.stationary if g.is_average else system)

    @cached_property
    def _weight(self) -> Float[np.ndarray, "S 1"]:
        """ν: the weight of each state in the gradient."""
        g = self.ground
        return (g.stationary if g.is_average else g.model.start_distribution @ self._resolvent)[:, None]

    def __call__(self, v: Any) -> Float[np.ndarray, " n"]:
        """∇²Jⁱ v for a flat v."""
        g, S = self.ground, self.ground.model.num_states
        along = np.reshape(v, (-1, g.model.num_actions))
        along = along if g.inputs is None else g.inputs @ along
        pi, nu, Adv, T = g.policy, self._weight, g.exact.advantage[self.objective], g.successors
        dpi = pi * (along - (pi * along).sum(axis=1, keepdims=True))
        q = (dpi * Adv).sum(axis=1)
        dV = self._resolvent @ q
        dnu = self._gamma * ((nu * dpi).ravel() @ T) @ self._resolvent
        dAdv = self._gamma * (T @ dV).reshape(S, -1) - dV[:, None]
        if g.is_average:
            dAdv -= g.stationary @ q
        product = dnu[:, None] * pi * Adv + nu * dpi * Adv + nu * pi * dAdv
        return (product if g.inputs is None else g.inputs.T @ product).ravel()

    def norm(self) -> float:
        """‖∇²Jⁱ‖₂, the largest eigenvalue in modulus; by Lanczos where the matrix is large."""
        if self.size <= _DENSE:
            return float(np.abs(np.linalg.eigvalsh(np.stack([self(e) for e in np.eye(self.size)]))).max())
        first = np.random.default_rng(0).standard_normal(self.size)
        if not np.any(self(first)):
            return 0.0
        make: Any = LinearOperator
        options: dict[str, Any] = {"tol": _TOLERANCE}  # SciPy's stubs take it for an integer
        operator = make((self.size, self.size), matvec=self, dtype=np.float64)
        try:
            eigenvalues = eigsh(operator, k=1, which="LM", v0=first, return_eigenvectors=False, **options)
        except ArpackNoConvergence as stuck:
            eigenvalues = np.atleast_1d(stuck.eigenvalues) if len(stuck.eigenvalues) else np.array([np.nan])
        return float(np.abs(eigenvalues).max())


@checked
def at(ground: Ground) -> Float[np.ndarray, " M"]:
    """‖∇²Jⁱ‖ of each objective at the policy: a lower bound on L_J, which is a supremum over policies."""
    return np.array([Hessian(ground, i).norm() for i in range(ground.model.num_objectives)])


@checked
def bound_everywhere(ground: Ground, r_max: float) -> float | None:
    """An upper bound on L_J over all softmax policies; None in the average setting, where mixing decides.

    Along a unit vector Σ_a|π'| ≤ 1/√2 and Σ_a|π''| ≤ 1, for logits have a range of at most √2 then and a variance of
    at most 1/2. With ‖(I − γP)⁻¹‖_∞ = 1/(1 − γ) the second derivative of J is at most r_max/(1 − γ)³. The inputs of a
    linear policy multiply it by the square of their largest norm.
    """
    if ground.is_average:
        return None
    return scale(ground) * r_max / (1 - max(ground.gammas)) ** 3


@checked
def bound_by_mixing(ground: Ground, forgetting: float) -> float:
    """An upper bound on ‖∇²Jⁱ‖ in the average setting, by the sum σ ≥ Σ_t τ(Pᵗ): half the range of r times (1 + σ)².

    At one policy σ ≤ m/(1 − τ(Pᵐ)); over all policies σ ≤ 1/(1 − τ) with the uniform coefficient.
    """
    half_range = float(np.ptp(ground.rewards, axis=0).max() / 2)
    return scale(ground) * half_range * (1 + forgetting) ** 2


@checked
def scale(ground: Ground) -> float:
    """The square of the policy's longest input; 1 for a table."""
    return 1.0 if ground.inputs is None else float((ground.inputs**2).sum(axis=1).max())
