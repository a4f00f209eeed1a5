"""The exact oracle: returns, gradients and stationarity gaps of softmax policies in a finite MOMDP, in float64."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy
from jaxtyping import Float

from moac import simplex
from moac.arguments import Numbers, checked
from moac.config import Average, Setting
from moac.momdp import chain, support
from moac.momdp.model import FiniteMOMDP, refuse

MAX_STATES = 2000
"""The oracle solves dense S × S systems; more states raise a ValueError."""
BLOCK = 16
"""Policies solved together: their matrices stay in the cache."""
_LARGE_BIAS = 1e6
"""A bias this many times the largest reward loses six digits of its differences; above, they are computed directly."""


class _Shortest(NamedTuple):
    weights: Float[np.ndarray, "... M"]
    squared_norm: Float[np.ndarray, "..."]


@dataclass(frozen=True, eq=False)
class Exact:
    """Exact values of policies, computed at first use; arrays have the leading axes of `logits`."""

    model: FiniteMOMDP
    setting: Setting
    policy: Float[np.ndarray, "... S A"]

    def __repr__(self) -> str:
        return f"Exact({self.model.name}, {self.setting}, policy {list(self.policy.shape)})"

    @cached_property
    def returns(self) -> Float[np.ndarray, "... M"]:
        """J [..., M]."""
        return self._shaped(self._solved[0])

    @cached_property
    def values(self) -> Float[np.ndarray, "... S M"]:
        """V [..., S, M]; in the average setting the bias, with mean zero under the stationary law."""
        return self._shaped(self._solved[1])

    @cached_property
    def advantage(self) -> Float[np.ndarray, "... M S A"]:
        """Advⁱ(s, a) = Qⁱ(s, a) − Vⁱ(s)."""
        return self._shaped(_in_blocks(self._advantage, self._flat, self.values.reshape(-1, *self.values.shape[-2:])))

    @cached_property
    def gradient(self) -> Float[np.ndarray, "... M S A"]:
        """The true ∇Jⁱ with respect to the logits."""
        return self._weighted(self._shaped(self._solved[2]))

    @cached_property
    def stationary(self) -> Float[np.ndarray, "... S"]:
        """d, the stationary law of the chain that restarts after each episode."""
        if isinstance(self.setting, Average):
            return self._shaped(self._solved[2][..., 0])
        return self._shaped(_in_blocks(lambda pi: chain.episodic_law(self.model, pi), self._flat))

    @cached_property
    def direction(self) -> Float[np.ndarray, "... M S A"]:
        """Lemma 1's E_d[ψ Advⁱ] under the stationary law d; in the average setting this is ∇Jⁱ."""
        if isinstance(self.setting, Average):
            return self.gradient
        return self._weighted(np.repeat(self.stationary[..., None], self.model.num_objectives, axis=-1))

    @cached_property
    def gap(self) -> Float[np.ndarray, "..."]:
        """The stationarity gap: min over the simplex of ‖Σ λᵢ ∇Jⁱ‖²."""
        return self._min_norm.squared_norm

    @cached_property
    def weights(self) -> Float[np.ndarray, "... M"]:
        """λ* that attains the gap."""
        return self._min_norm.weights

    @cached_property
    def direction_gap(self) -> Float[np.ndarray, "..."]:
        """The same minimum for Lemma 1's direction."""
        return self.gap if isinstance(self.setting, Average) else shortest(self.direction).squared_norm

    @cached_property
    def regret(self) -> Float[np.ndarray, "..."]:
        """min over the simplex of (max_π λᵀJ(π) − λᵀJ): 0 exactly where no mixture of policies is better in all."""
        return support.of(self.model, self.setting).regret(self.returns)

    @cached_property
    def _min_norm(self) -> _Shortest:
        return shortest(self.gradient)

    @property
    def _flat(self) -> chain.Policies:
        return self.policy.reshape(-1, *self.policy.shape[-2:])

    @cached_property
    def _solved(self) -> tuple[np.ndarray[Any, Any], ...]:
        return _in_blocks(lambda pi: _solve(self.model, pi, self.setting), self._flat)

    def _shaped(self, flat: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return flat.reshape(*self.policy.shape[:-2], *flat.shape[1:])

    def _advantage(self, pi: chain.Policies, V: Float[np.ndarray, "n S M"]) -> Float[np.ndarray, "n M S A"]:
        """Σ over outcomes of p (r + γ V(s')) less its mean under π: a constant such as −J drops out."""
        Q = chain.expected_reward(self.model) + _successor_values(self.model, V, self.setting)
        # The mean of Q under π in place of V: equal up to rounding, and E_π[Adv] is then 0 however large V is.
        Q -= np.einsum("nsa,nsam->nsm", pi, Q)[:, :, None, :]
        if isinstance(self.setting, Average):
            # h of order 1/ε, where parts of the chain communicate with chance ε, leaves h(s') − h(s) without digits.
            imprecise = np.abs(V).max(axis=(1, 2)) > _LARGE_BIAS * np.abs(self.model.reward).max()
            for n in np.flatnonzero(imprecise):
                Q[n] = _careful_advantage(self.model, pi[n])
        return np.moveaxis(Q, -1, 1)

    def _weighted(self, weight: Float[np.ndarray, "... S M"]) -> Float[np.ndarray, "... M S A"]:
        """weight(s) π(a|s) Advⁱ(s, a), which for a softmax table is E[ψ Advⁱ] under that weighting of states."""
        return np.moveaxis(weight, -1, -2)[..., None] * self.policy[..., None, :, :] * self.advantage


@checked
def evaluate(model: FiniteMOMDP, logits: Numbers, setting: Setting) -> Exact:
    """The exact values of the softmax policy of `logits` [..., S, A]; leading axes hold many policies at once.

    Raises a ValueError for a model of more than `MAX_STATES` states and, in the average setting, for a policy with more
    than one recurrent class.
    """
    table = np.asarray(logits, dtype=np.float64)
    expected = (model.num_states, model.num_actions)
    if table.shape[-2:] != expected:
        raise ValueError(f"`logits` must have shape [..., {expected[0]}, {expected[1]}], got {table.shape}.")
    refuse("logits", table, ~np.isfinite(table), "be finite")
    return of_policy(model, scipy.special.softmax(table, axis=-1), setting)


@checked
def of_policy(model: FiniteMOMDP, policy: Numbers, setting: Setting) -> Exact:
    """As `evaluate`, for action probabilities [..., S, A]; deterministic policies are allowed."""
    if model.num_states > MAX_STATES:
        raise ValueError(f"the exact oracle takes at most {MAX_STATES} states, {model.name} has {model.num_states}.")
    setting.discounts(model.num_objectives)
    exact = Exact(model, setting, np.asarray(policy, dtype=np.float64))
    if isinstance(setting, Average):
        _ = exact.returns  # so that a policy with several recurrent classes is refused here, not later
    return exact


@checked
def td_fixed_point(
    model: FiniteMOMDP, logits: Numbers, setting: Setting, features: Numbers, law: Numbers | None = None
) -> Float[np.ndarray, "... M d"]:
    """w^{i,*} = −(Aⁱ)⁻¹ bⁱ, the limit of TD(0) with features Φ: Aⁱ = ΦᵀD(γⁱP − I)Φ, bⁱ = ΦᵀD(rⁱ [− Jⁱ]).

    In the average setting P is the restarting chain and γ = 1. Where A is singular (one-hot features in the average
    setting) the solution of least norm. `features` are Φ [S, d]; `law` [..., S] is how often samples visit each state,
    one law for all policies or one for each, the stationary law if None.
    """
    exact, Phi = evaluate(model, logits, setting), np.asarray(features, dtype=np.float64)
    if Phi.ndim != 2 or len(Phi) != model.num_states:
        raise ValueError(f"`features` must have shape [{model.num_states}, d], got {Phi.shape}.")
    weight = exact.stationary if law is None else np.asarray(law, dtype=np.float64)
    if weight.shape not in (exact.policy.shape[:-1], (model.num_states,)):
        known = f"[{model.num_states}] or {exact.policy.shape[:-1]}"
        raise ValueError(f"`law` must have shape {known}, got {weight.shape}.")
    induced = chain.induced(model, exact.policy.reshape(-1, *exact.policy.shape[-2:]))
    moves = induced.restart if isinstance(setting, Average) else induced.proceed
    J = exact.returns.reshape(-1, 1, model.num_objectives) if isinstance(setting, Average) else 0
    reward = induced.reward - J
    D = np.broadcast_to(weight, exact.policy.shape[:-1]).reshape(len(moves), -1)
    solutions: list[np.ndarray[Any, Any]] = []
    for i, gamma in enumerate(setting.discounts(model.num_objectives)):
        A = np.einsum("sd,ns,nst,te->nde", Phi, D, gamma * moves - np.eye(len(Phi)), Phi, optimize=True)
        b = np.einsum("sd,ns,ns->nd", Phi, D, reward[:, :, i], optimize=True)
        solutions.append(np.einsum("nde,ne->nd", -np.linalg.pinv(A, rcond=1e-13), b))
    return np.stack(solutions, axis=1).reshape(*exact.policy.shape[:-2], model.num_objectives, -1)


def _solve(model: FiniteMOMDP, pi: chain.Policies, setting: Setting) -> tuple[np.ndarray[Any, Any], ...]:
    """J, V and the weight of each state in the gradient."""
    if isinstance(setting, Average):
        J, bias, d = chain.average_reward(model, pi)
        return J, bias, np.repeat(d[:, :, None], model.num_objectives, axis=2)
    induced = chain.induced(model, pi)
    V = np.empty_like(induced.reward)
    weight = np.empty_like(V)
    gammas = np.array(setting.discounts(model.num_objectives))
    for gamma in set(gammas.tolist()):
        which = gammas == gamma
        system = np.eye(model.num_states) - gamma * induced.proceed
        V[:, :, which] = np.linalg.solve(system, induced.reward[:, :, which])
        weight[:, :, which] = chain.visitation(induced.proceed, model.start_distribution, gamma)[:, :, None]
    return np.einsum("s,nsm->nm", model.start_distribution, V), V, weight


def _careful_advantage(model: FiniteMOMDP, pi: Float[np.ndarray, "S A"]) -> Float[np.ndarray, "S A M"]:
    """r − J + E[h(s')] − h(s) in the average setting, where h is so large that its differences must come first."""
    ahead = chain.bias_differences(model, pi)
    states, moves = np.arange(model.num_states)[:, None], model.probability * ~model.terminated
    J, _, _ = chain.average_reward(model, pi[None])
    after_end = np.einsum("t,tsm->sm", model.start_distribution, ahead)[:, None]
    Q = chain.expected_reward(model) - J[0] + chain.end_chance(model)[:, :, None] * after_end
    for o in range(model.num_outcomes):
        Q += moves[:, :, o, None] * ahead[model.next_state[:, :, o], states]
    return Q


def _successor_values(
    model: FiniteMOMDP, V: Float[np.ndarray, "n S M"], setting: Setting
) -> Float[np.ndarray, "n S A M"]:
    """E[γ V(s')] where an ended episode is worth 0 (discounted) or leads to the restart state (average)."""
    gammas, moves = np.array(setting.discounts(model.num_objectives)), model.probability * ~model.terminated
    successors = sum(moves[:, :, o, None] * V[:, model.next_state[:, :, o]] for o in range(model.num_outcomes))
    if isinstance(setting, Average):
        restart = np.einsum("s,nsm->nm", model.start_distribution, V)
        successors = successors + chain.end_chance(model)[:, :, None] * restart[:, None, None, :]
    return gammas * successors


def shortest(gradient: Float[np.ndarray, "... M S A"]) -> _Shortest:
    """The min-norm point: weights from the Gram matrix, which compiles once for all sizes of model, length from d."""
    rows = gradient.reshape(*gradient.shape[:-2], -1)
    # In units of the largest entry, since squares of tiny gradients would underflow; weights do not depend on units.
    largest = np.abs(rows).max(axis=(-1, -2), keepdims=True)
    unit = rows / np.where(largest > 0, largest, 1.0)
    K = unit @ np.swapaxes(unit, -1, -2)
    lam = simplex.weights_in_blocks(K.reshape(-1, *K.shape[-2:])).reshape(K.shape[:-1])
    d = np.einsum("...m,...mp->...p", lam, rows)
    return _Shortest(lam, np.einsum("...p,...p->...", d, d))


def _in_blocks(function: Callable[..., Any], *arrays: np.ndarray[Any, Any]) -> Any:
    """Apply `function` to blocks of policies, two at a time, and join what it returns."""
    # NumPy lets go of the interpreter's lock inside a solve, so that two threads keep two cores busy.
    blocks = [tuple(a[k : k + BLOCK] for a in arrays) for k in range(0, len(arrays[0]), BLOCK)]
    with ThreadPoolExecutor(2) as pool:
        parts = list(pool.map(lambda block: function(*block), blocks))
    if isinstance(parts[0], tuple):
        return tuple(np.concatenate(column) for column in zip(*parts, strict=True))
    return np.concatenate(parts)
