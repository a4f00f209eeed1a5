"""The best that all policies together can do: h(λ) = max_π λᵀJ(π), exactly, for every λ of the simplex.

h is convex and piecewise linear: the maximum of λᵀv over the values v of finitely many policies. Below the graph of
h every linear function λᵀJ touches it over a corner, so that the regret

    min over λ of (h(λ) − λᵀJ) = min over corners c of (h(c) − cᵀJ)

costs one small matrix product per policy once the corners are known. They come from the best policy at each corner of
the pieces known so far, until none adds a piece (optimistic linear support, Roijers, 2016). With several discounts the
best policy changes with time and h has infinitely many pieces, ever smaller ones: then the first corners stand for the
others, and `Support.precision` bounds the error.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from jaxtyping import Float

from moac.arguments import Numbers, checked
from moac.config import Average, Setting
from moac.kept import with_owner
from moac.momdp import chain
from moac.momdp.model import FiniteMOMDP

MAX_OBJECTIVES = 6
"""The number of corners grows exponentially with M; more objectives raise a ValueError."""
MAX_CORNERS = 300
"""Beyond this many corners the support is not refined any more."""
_TOLERANCE = 1e-9
_BLOCK = 64  # weights whose best responses in time are computed together


@dataclass(frozen=True, eq=False)
class Support:
    """h(λ) by its pieces and its corners."""

    # values [V, M] of the policies that are best for some λ: the corners of the convex hull
    points: Float[np.ndarray, "V M"]
    corners: Float[np.ndarray, "C M"]  # [C, M] weights at which pieces meet
    heights: Float[np.ndarray, " C"]  # h at the corners
    precision: float  # the regret is too large by no more than this; rounding, unless there are too many corners

    @checked
    def regret(self, returns: Numbers) -> Float[np.ndarray, "..."]:
        """min over λ of h(λ) − λᵀJ for J [..., M]; never below 0."""
        J, M = np.asarray(returns, dtype=np.float64), self.corners.shape[1]
        if J.shape[-1:] != (M,):
            raise ValueError(f"`returns` must have shape [..., {M}], got {J.shape}.")
        return np.maximum(np.min(self.heights - J @ self.corners.T, axis=-1), 0.0)


@checked
def of(model: FiniteMOMDP, setting: Setting) -> Support:
    """The support of all policies of `model`, those with memory of time included.

    Where it has more than `MAX_CORNERS` corners (with several discounts they are infinitely many) refinement stops, the
    worst ones being refined first; `Support.precision` then bounds the error.
    """
    return _refined(model, setting)


@with_owner
def _refined(model: FiniteMOMDP, setting: Setting) -> Support:
    M = model.num_objectives
    if M > MAX_OBJECTIVES:
        raise ValueError(f"the support takes at most {MAX_OBJECTIVES} objectives, {model.name} has {M}.")
    first = best_responses(model, np.vstack([np.eye(M), np.full(M, 1 / M)]), setting)
    unit = float(np.abs(first).max()) or 1.0  # so that all tolerances are relative to the largest return
    points = first / unit
    responses: dict[bytes, Float[np.ndarray, " M"]] = {}  # J of the best policy at each corner, in units
    while True:
        corners, below = _corners(points)
        new = np.array([lam for lam in corners if _key(lam) not in responses]).reshape(-1, M)
        values = best_responses(model, new, setting) / unit
        responses |= {_key(lam): value for lam, value in zip(new, values, strict=True)}
        values = np.stack([responses[_key(lam)] for lam in corners])
        heights = np.maximum(np.sum(corners * values, axis=1), below)
        gain = heights - below
        if gain.max() <= _TOLERANCE or len(corners) > MAX_CORNERS:
            best = np.any(points @ corners.T >= below - _TOLERANCE, axis=1)  # at some corner
            return Support(points[best] * unit, corners, heights * unit, float(gain.max()) * unit)
        worst = np.argsort(-gain)[: M + len(points) // 2]
        points = np.unique(np.concatenate([points, values[worst[gain[worst] > _TOLERANCE]]]).round(13), axis=0)


def best_responses(model: FiniteMOMDP, lams: Float[np.ndarray, "L M"], setting: Setting) -> Float[np.ndarray, "L M"]:
    """J(π) of a policy that maximises λᵀJ, for each λ."""
    gammas = np.array(setting.discounts(model.num_objectives))
    if isinstance(setting, Average):
        values = [_best_average(model, lam) for lam in lams]
    elif np.ptp(gammas) == 0:
        values = [model.start_distribution @ _best_stationary(model, lam, gammas) for lam in lams]
    else:
        blocks = [lams[k : k + _BLOCK] for k in range(0, len(lams), _BLOCK)]
        values = [value for block in blocks for value in _best_in_time(model, block, gammas)]
    return np.array(values).reshape(lams.shape)


def _best_stationary(
    model: FiniteMOMDP, lam: Float[np.ndarray, " M"], gammas: Float[np.ndarray, " M"]
) -> Float[np.ndarray, "S M"]:
    """V of the stationary policy that is best for λ when all have the largest discount: Howard's policy iteration."""
    S, A, gamma = model.num_states, model.num_actions, gammas.max()
    states, R, moves = np.arange(S), chain.expected_reward(model), chain.moves(model)
    action = np.argmax(R @ lam, axis=1)
    while True:
        reward, P = R[states, action], moves[states * A + action].toarray()
        V = np.linalg.solve(np.eye(S) - gamma * P, reward @ lam)
        Q = R @ lam + gamma * (moves @ V).reshape(S, A)
        gain = Q.max(axis=1) - Q[states, action]
        worthwhile = gain > 1e-12 * np.abs(Q).max()
        if not worthwhile.any():
            per_objective = zip(gammas, reward.T, strict=True)
            return np.column_stack([np.linalg.solve(np.eye(S) - g * P, r) for g, r in per_objective])
        action = np.where(worthwhile, np.argmax(Q, axis=1), action)


def _best_in_time(
    model: FiniteMOMDP, lams: Float[np.ndarray, "L M"], gammas: Float[np.ndarray, " M"]
) -> Float[np.ndarray, "L M"]:
    """When discounts differ the best policy depends on time.

    In the end only the objectives with the largest discount count, and a stationary policy is best; before, that is
    while another one has more than 1e-14 of its weight left, backward induction.
    """
    S, A, (L, M) = model.num_states, model.num_actions, lams.shape
    R, moves, last = chain.expected_reward(model)[:, :, None], chain.moves(model), gammas == gammas.max()
    V = np.stack([_best_stationary(model, np.where(last, lam, 0), gammas) for lam in lams], axis=1)
    with np.errstate(divide="ignore"):
        log_lams = np.log(lams)
    for t in range(int(np.log(1e-14) / np.log(gammas[~last].max())), -1, -1):
        exponent = log_lams + t * np.log(gammas)
        weight = np.exp(exponent - exponent.max(axis=1, keepdims=True))
        Q = R + gammas * (moves @ V.reshape(S, L * M)).reshape(S, A, L, M)
        chosen = np.argmax(np.einsum("salm,lm->sal", Q, weight), axis=1)
        V = np.take_along_axis(Q, chosen[:, None, :, None], axis=1)[:, 0]
    return np.einsum("s,slm->lm", model.start_distribution, V)


def _best_average(model: FiniteMOMDP, lam: Float[np.ndarray, " M"]) -> Float[np.ndarray, " M"]:
    """The linear programme of Puterman (1994, §9.3) over state-action frequencies, right for any class structure."""
    flow, mass = _flow(model)
    R = chain.expected_reward(model).reshape(-1, model.num_objectives)
    nothing = scipy.sparse.csr_array(flow.shape)
    gain = R @ lam
    solution = scipy.optimize.linprog(
        -np.concatenate([gain / (np.abs(gain).max() or 1.0), np.zeros(len(R))]),  # HiGHS has absolute tolerances
        A_eq=scipy.sparse.block_array([[flow, nothing], [mass, flow]]).tocsr(),
        b_eq=np.concatenate([np.zeros(model.num_states), model.start_distribution]),
        method="highs",
    )
    if solution.x is None:
        raise RuntimeError(f"the linear programme of the best average reward of {model.name}: {solution.message}")
    return solution.x[: len(R)] @ R


@with_owner
def _flow(model: FiniteMOMDP) -> tuple[scipy.sparse.csr_array, scipy.sparse.csr_array]:
    """[S, S·A]: what (s, a) adds to each state less what it takes (with restarts), and which state it belongs to."""
    S, pairs = model.num_states, model.num_states * model.num_actions
    state, pair = np.repeat(np.arange(S), model.num_actions), np.arange(pairs)
    mass = scipy.sparse.csr_array((np.ones(pairs), (state, pair)), shape=(S, pairs))
    restarts = scipy.sparse.csr_array(np.outer(model.start_distribution, chain.end_chance(model).ravel()))
    return scipy.sparse.csr_array(mass - chain.moves(model).T - restarts), mass


def _corners(points: Float[np.ndarray, "V M"]) -> tuple[Float[np.ndarray, "C M"], Float[np.ndarray, " C"]]:
    """Corners of {(λ, z): z ≥ λᵀv for all v} over the simplex, and their z."""
    M = points.shape[1]
    if M == 1:
        return np.ones((1, 1)), points.max(axis=0)
    # Coordinates λ_1 … λ_{M−1}, z; the last weight is one less their sum. Rows are a·x + c ≤ 0.
    pieces = np.column_stack([points[:, :-1] - points[:, -1:], -np.ones(len(points)), points[:, -1]])
    positive = np.column_stack([-np.eye(M - 1), np.zeros(M - 1), np.zeros(M - 1)])
    total = np.array([[*np.ones(M - 1), 0.0, -1.0]])
    top = float(np.abs(points).max()) + 2.0
    lid = np.array([[*np.zeros(M - 1), 1.0, -top]])
    inside = np.array([*np.full(M - 1, 1 / M), top - 0.5])
    corners = scipy.spatial.HalfspaceIntersection(np.vstack([pieces, positive, total, lid]), inside).intersections
    corners = np.unique(corners[:, :-1].round(12), axis=0)  # the lid's own lie over those of the simplex
    lam = np.clip(np.column_stack([corners, 1 - corners.sum(axis=1)]), 0, 1)
    lam = lam / lam.sum(axis=1, keepdims=True)
    return lam, np.max(lam @ points.T, axis=1)


def _key(lam: Float[np.ndarray, " M"]) -> bytes:
    return lam.round(10).tobytes()
