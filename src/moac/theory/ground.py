"""A policy on a model, as the critic sees it: what every check and every constant is computed from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from jaxtyping import Float

from moac.config import Average, Discounted, Setting
from moac.momdp import Exact, FiniteMOMDP, chain, evaluate, td_fixed_point


@final
@dataclass(frozen=True, eq=False)
class Ground:
    """One softmax policy, one feature map. Everything is float64 and computed when first asked for.

    Attributes:
        model: the MOMDP.
        setting: `Discounted` or `Average`.
        logits: of the policy.
        Phi: the critic's features, one row per state.
        inputs: X where the policy's logits are Xθ; None where θ is the table of logits itself.
    """

    model: FiniteMOMDP
    setting: Setting
    logits: Float[np.ndarray, "S A"]
    Phi: Float[np.ndarray, "S d"]
    inputs: Float[np.ndarray, "S k"] | None = None

    @property
    def is_average(self) -> bool:
        """Whether this is the average setting."""
        return isinstance(self.setting, Average)

    @property
    def gammas(self) -> tuple[float, ...]:
        """γⁱ; ones in the average setting."""
        return self.setting.discounts(self.model.num_objectives)

    @cached_property
    def policy(self) -> Float[np.ndarray, "S A"]:
        """π(a|s)."""
        return chain.softmax(self.logits)

    @cached_property
    def induced(self) -> chain.Chain:
        """The chain of the policy, leading axis 1."""
        return chain.induced(self.model, self.policy[None])

    @property
    def P(self) -> Float[np.ndarray, "S S"]:
        """The chain that samples follow: an ended episode starts anew."""
        return self.induced.restart[0]

    @property
    def moves(self) -> Float[np.ndarray, "S S"]:
        """Where values come from: P in the average setting; discounted, an ended episode is worth nothing."""
        return self.P if self.is_average else self.induced.proceed[0]

    @cached_property
    def exact(self) -> Exact:
        """What the policy is worth."""
        return evaluate(self.model, self.logits, self.setting)

    @cached_property
    def stationary(self) -> Float[np.ndarray, " S"]:
        """d, by elimination without subtraction; a chain with several recurrent classes is a ValueError."""
        return chain.stationary_distribution(self.model, self.policy[None])[0]

    @cached_property
    def A(self) -> Float[np.ndarray, "M d d"]:
        """Aⁱ = E[φ(s)(γⁱφ(s') − φ(s))ᵀ] = ΦᵀD(γⁱP − I)Φ."""
        weighted, eye = self.stationary[:, None] * self.Phi, np.eye(self.model.num_states)
        return np.stack([weighted.T @ (gamma * self.moves - eye) @ self.Phi for gamma in self.gammas])

    @cached_property
    def b(self) -> Float[np.ndarray, "M d"]:
        """bⁱ = E[(rⁱ [− Jⁱ]) φ(s)]."""
        centred = self.induced.reward[0] - (self.exact.returns if self.is_average else 0.0)
        return centred.T @ (self.stationary[:, None] * self.Phi)

    @cached_property
    def w_star(self) -> Float[np.ndarray, "M d"]:
        """The fixed point of TD(0); where A is singular the one of least norm."""
        return td_fixed_point(self.model, self.logits, self.setting, self.Phi, self.stationary)

    @cached_property
    def constant(self) -> Float[np.ndarray, " d"] | None:
        """u with Φu = 1, or None where there is none."""
        ones = np.ones(len(self.Phi))
        u = np.linalg.lstsq(self.Phi, ones, rcond=None)[0]
        return u if np.abs(self.Phi @ u - ones).max() < 1e-9 else None


def ground(model: FiniteMOMDP, logits: Any, setting: Setting, features: Any = None, inputs: Any = None) -> Ground:
    """Check the shapes and put them together.

    Args:
        model: the MOMDP.
        logits: [S, A].
        setting: `Discounted` or `Average`.
        features: Φ [S, d] of the critic; None is one-hot.
        inputs: X [S, k] where the policy's logits are Xθ; None is a table.
    """
    S = model.num_states
    if np.ndim(logits) != 2:
        raise ValueError(f"`logits` must have shape [{S}, {model.num_actions}], got {np.shape(logits)}.")
    evaluate(model, logits, Discounted())  # not the average, which refuses several classes before `check` can name them
    setting.discounts(model.num_objectives)
    Phi = np.eye(S) if features is None else _rows("features", features, S)
    return Ground(
        model, setting, np.asarray(logits, np.float64), Phi, None if inputs is None else _rows("inputs", inputs, S)
    )


def _rows(name: str, values: Any, num_states: int) -> Float[np.ndarray, "S k"]:
    rows = np.asarray(values, dtype=np.float64)
    if rows.ndim != 2 or len(rows) != num_states or rows.shape[1] == 0:
        raise ValueError(f"`{name}` must have shape [{num_states}, d], got {rows.shape}.")
    if not np.all(np.isfinite(rows)):
        raise ValueError(f"`{name}` must be finite.")
    return rows
