"""A policy on a model, as the critic sees it, and the constants of the theorems there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array
from scipy.special import softmax

from moac.arguments import Numbers, checked
from moac.config import Average, Discounted, Setting
from moac.momdp import Exact, FiniteMOMDP, chain, evaluate, td_fixed_point
from moac.momdp.model import refuse
from moac.theory import mixing, smoothness
from moac.theory.mixing import Mixing

_SMALLEST = ("lambda_A", "lambda_A_modulo_constants", "rarest")  # constants for which small is bad


@dataclass(frozen=True, eq=False)
class Ground:
    """One softmax policy and one feature map. Everything is float64 and computed at first use."""

    model: FiniteMOMDP  # the MOMDP
    setting: Setting  # `Discounted` or `Average`
    logits: Float[np.ndarray, "S A"]  # of the policy
    Phi: Float[np.ndarray, "S d"]  # the critic's features, one row per state
    # X where the policy's logits are Xθ; None where θ is the table of logits itself
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
        return softmax(self.logits, axis=1)

    @cached_property
    def induced(self) -> chain.InducedChain:
        """The chain of the policy, leading axis 1."""
        return chain.induced(self.model, self.policy[None])

    @property
    def P(self) -> Float[np.ndarray, "S S"]:
        """The chain that samples follow: an ended episode starts anew."""
        return self.induced.restart[0]

    @property
    def moves(self) -> Float[np.ndarray, "S S"]:
        """The chain that values follow: P in the average setting; else without restarts, since an end is worth 0."""
        return self.P if self.is_average else self.induced.proceed[0]

    @cached_property
    def successors(self) -> csr_array:
        """P(s' | s, a) as a sparse matrix [S·A, S], with restarts in the average setting only."""
        moves = chain.moves(self.model)
        if not self.is_average or not self.model.terminated.any():
            return moves
        return moves + csr_array(chain.end_chance(self.model).reshape(-1, 1) * self.model.start_distribution)

    @cached_property
    def exact(self) -> Exact:
        """The exact values of the policy."""
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
    def rewards(self) -> Float[np.ndarray, "n M"]:
        """The rewards of all outcomes that can occur."""
        return self.model.reward[self.model.probability > 0]

    @cached_property
    def constant(self) -> Float[np.ndarray, " d"] | None:
        """u with Φu = 1, or None where there is none."""
        ones = np.ones(len(self.Phi))
        u = np.linalg.lstsq(self.Phi, ones, rcond=None)[0]
        return u if np.abs(self.Phi @ u - ones).max() < 1e-9 else None


@checked
def ground(
    model: FiniteMOMDP,
    logits: Numbers,
    setting: Setting,
    features: Numbers | None = None,
    inputs: Numbers | None = None,
) -> Ground:
    """The policy of `logits` [S, A] with features Φ [S, d], one-hot where None, and inputs X [S, k] or None."""
    S = model.num_states
    if np.ndim(logits) != 2:
        raise ValueError(f"`logits` must have shape [{S}, {model.num_actions}], got {np.shape(logits)}.")
    evaluate(model, logits, Discounted())  # not the average, which refuses several classes before `check` can name them
    setting.discounts(model.num_objectives)
    Phi = np.eye(S) if features is None else _rows("features", features, S)
    X = None if inputs is None else _rows("inputs", inputs, S)
    return Ground(model, setting, np.asarray(logits, np.float64), Phi, X)


def _rows(name: str, values: Any, num_states: int) -> Float[np.ndarray, "S k"]:
    rows = np.asarray(values, dtype=np.float64)
    if rows.ndim != 2 or len(rows) != num_states or rows.shape[1] == 0:
        raise ValueError(f"`{name}` must have shape [{num_states}, d], got {rows.shape}.")
    refuse(name, rows, ~np.isfinite(rows), "be finite")
    return rows


@dataclass(frozen=True)
class Constants:
    """The constants of the theorems, at one policy, or the worst of several."""

    average: bool  # whether this is the average setting
    num_objectives: int  # M
    gamma: float  # the largest γⁱ; 1 in the average setting
    non_negative: bool  # whether no reward is negative, as the paper assumes
    r_max: float  # the largest |r|, over all outcomes: it holds for every policy
    lambda_A: float  # the largest λ with λ_max(Aⁱ + Aⁱᵀ) ≤ −λ for every objective
    lambda_A_modulo_constants: float  # the same on the space where Φw is no constant; `lambda_A` where Φ spans none
    C_A: float  # the largest ‖(γφ(s') − φ(s))φ(s)ᵀ‖_F of a sample, which the proof needs
    C_A_mean: float  # ‖Aⁱ‖_F, which the paper's text asks for
    C_b: float  # the largest ‖(r [− J])φ(s)‖ of a sample
    C_b_mean: float  # ‖bⁱ‖
    w_star: float  # the largest ‖w^{i,*}‖
    R_w: float  # the bound on it, 2r_max/λ_A (average: 4r_max/λ_A), with λ_A modulo constants
    C_psi: float  # the largest ‖ψ(s, a)‖ at the policy
    C_psi_bound: float  # √2 times the longest input of the policy: it holds for every policy
    zeta: float  # max_i E_d|Vⁱ − φᵀw^{i,*}|², modulo constants in the average setting
    rarest: float  # the smallest d(s)
    mixing: Mixing  # ρ and κ, certified
    spectral: Mixing  # ρ and κ, spectral
    L_J: float  # the largest ‖∇²Jⁱ‖ at the policy: a lower bound on the L_J of the theorems
    L_J_bound: float  # an upper bound on it, for all policies where `L_J_everywhere`, else at this one
    L_J_everywhere: bool  # whether `L_J_bound` holds for every policy


@checked
def constants(
    model: FiniteMOMDP,
    logits: Numbers,
    setting: Setting,
    features: Numbers | None = None,
    inputs: Numbers | None = None,
) -> Constants:
    """The constants at one policy, as `ground` takes it; a chain with several recurrent classes is a ValueError."""
    return constants_of(ground(model, logits, setting, features, inputs))


@checked
def constants_of(g: Ground) -> Constants:
    """The constants at the policy of `g`."""
    r_max = float(np.abs(g.rewards).max(initial=0.0))
    modulo = contraction(g, modulo_constants=True)
    certified = mixing.certified(g.P, g.stationary)
    bound, everywhere = _smoothness_bound(g, r_max, certified)
    scale = np.sqrt(smoothness.scale(g))
    return Constants(
        average=g.is_average,
        num_objectives=g.model.num_objectives,
        gamma=max(g.gammas),
        non_negative=bool(g.rewards.min() >= 0),
        r_max=r_max,
        lambda_A=contraction(g),
        lambda_A_modulo_constants=modulo,
        C_A=_largest_step(g),
        C_A_mean=float(np.linalg.norm(g.A, axis=(1, 2)).max()),
        C_b=_largest_reward(g),
        C_b_mean=float(np.linalg.norm(g.b, axis=1).max()),
        w_star=float(np.linalg.norm(g.w_star, axis=1).max()),
        R_w=(4 if g.is_average else 2) * r_max / modulo if modulo > 0 else np.inf,
        C_psi=_longest_score(g),
        C_psi_bound=float(np.sqrt(2) * scale),
        zeta=_approximation_error(g),
        rarest=float(g.stationary.min()),
        mixing=certified,
        spectral=mixing.spectral(g.P, g.stationary),
        L_J=float(smoothness.at(g).max()),
        L_J_bound=bound,
        L_J_everywhere=everywhere,
    )


@checked
def worst(several: Sequence[Constants]) -> Constants:
    """The worst of each constant over several policies of one model, which need not come from one of them."""
    if not len(several):
        raise ValueError("`several` must hold the constants of at least one policy, got none.")
    merged: dict[str, Any] = {}
    for field in fields(Constants):
        values = [getattr(c, field.name) for c in several]
        if isinstance(values[0], Mixing):
            merged[field.name] = Mixing(max(m.rho for m in values), max(m.kappa for m in values), values[0].kind)
        elif isinstance(values[0], bool):
            merged[field.name] = all(values)
        else:
            merged[field.name] = min(values) if field.name in _SMALLEST else max(values)
    return Constants(**merged)


def contraction(g: Ground, modulo_constants: bool = False) -> float:
    """λ_A = min over objectives of the smallest eigenvalue of −(A + Aᵀ); negative rounding is 0.

    In the average setting u with Φu = 1 is in the kernel of A and of Aᵀ, so the other eigenvalues are those of the
    space orthogonal to u: TD on it is a problem of its own.
    """
    eigenvalues = np.linalg.eigvalsh(-(g.A + np.swapaxes(g.A, 1, 2)))
    skipped = int(modulo_constants and g.is_average and g.constant is not None and eigenvalues.shape[1] > 1)
    smallest = float(eigenvalues[:, skipped].min())
    return smallest if smallest > 1e-14 * float(np.abs(eigenvalues).max(initial=0.0)) else 0.0


def _largest_step(g: Ground) -> float:
    """max ‖γφ(s') − φ(s)‖ ‖φ(s)‖ over the transitions that can occur; a last one has φ(s') = 0 (discounted)."""
    lengths = np.linalg.norm(g.Phi, axis=1)
    s, successor = np.nonzero(g.moves > 0)
    steps = [np.linalg.norm(gamma * g.Phi[successor] - g.Phi[s], axis=1) * lengths[s] for gamma in set(g.gammas)]
    lasts = lengths[(g.induced.end[0] > 0) & (not g.is_average)] ** 2
    return float(np.concatenate([*steps, lasts]).max(initial=0.0))


def _largest_reward(g: Ground) -> float:
    """max |r [− J]| ‖φ(s)‖ over the outcomes that can occur."""
    centre = g.exact.returns if g.is_average else np.zeros(g.model.num_objectives)
    far = np.where(g.model.probability[..., None] > 0, np.abs(g.model.reward - centre), 0.0).max(axis=(1, 2, 3))
    return float((far * np.linalg.norm(g.Phi, axis=1)).max())


def _longest_score(g: Ground) -> float:
    """max ‖ψ(s, a)‖, where ‖ψ(s, a)‖² = ‖e_a − π(·|s)‖², times ‖x(s)‖² for a linear policy."""
    squared = 1 - 2 * g.policy + (g.policy**2).sum(axis=1, keepdims=True)
    lengths = 1.0 if g.inputs is None else (g.inputs**2).sum(axis=1, keepdims=True)
    return float(np.sqrt(squared * lengths).max())


def _approximation_error(g: Ground) -> float:
    """ζ at the policy: max_i E_d|Vⁱ − φᵀw^{i,*}|²."""
    error = g.exact.values - g.Phi @ g.w_star.T
    if g.is_average:
        error = error - g.stationary @ error
    return float((g.stationary @ error**2).max())


def _smoothness_bound(g: Ground, r_max: float, certified: Mixing) -> tuple[float, bool]:
    """An upper bound on L_J, and whether it holds for every policy."""
    everywhere = smoothness.bound_everywhere(g, r_max)
    if everywhere is not None:
        return everywhere, True
    chances = g.successors.toarray().reshape(g.model.num_states, -1, g.model.num_states)
    for proof, holds in ((mixing.uniform(chances), True), (certified, False)):
        if proof.rho < 1:
            return smoothness.bound_by_mixing(g, proof.power / (1 - proof.rho**proof.power)), holds
    return np.inf, False
