"""How fast a chain forgets where it began: max_s ‖Pᵗ(s, ·) − d‖_TV ≤ κρᵗ, with a ρ and a κ that can be trusted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from moac.arguments import Numbers, checked
from moac.momdp.model import refuse

Matrix = Float[np.ndarray, "S S"]
_ROUNDING = 1e-11  # distances below this are rounding
_MAX_DOUBLINGS = 40
_EXACT_PAIRS = 512
"""Up to this many states Dobrushin's coefficient compares all pairs of rows; above it is bounded in two ways."""
_LARGER = (0.1, 0.5)  # values of τ that are tried where the true one is smaller
_SLACK = 0.02  # how much of 1 − ρ a defective eigenvalue gives away, at each attempt
_MEASURED, _FEW_STATES = 512, 128
"""The first distances are measured one by one: `_MEASURED` up to `_FEW_STATES` states, an eighth of them above."""


@dataclass(frozen=True)
class Mixing:
    """max_s ‖Pᵗ(s, ·) − d‖_TV ≤ κρᵗ for all t ≥ 0."""

    rho: float  # ρ in [0, 1); 1 where the chain does not mix
    kappa: float  # κ ≥ 1
    # `certified` is proved by Dobrushin's coefficient; `spectral` has the smallest ρ there is, the second largest
    # eigenvalue's modulus, with the κ that the first distances need
    kind: Literal["certified", "spectral"]
    power: int = 0  # the m whose coefficient τ(Pᵐ) proves it; 0 for `spectral`

    @property
    def factor(self) -> float:
        """C₂ = [1 + (κ − 1)ρ]/(1 − ρ), by which correlated samples are worse than independent ones."""
        return (1 + (self.kappa - 1) * self.rho) / (1 - self.rho) if self.rho < 1 else np.inf


@checked
def distance(power: Matrix, d: Float[np.ndarray, " S"]) -> float:
    """max_s ‖Pᵗ(s, ·) − d‖_TV, half the largest absolute row sum."""
    return float(np.abs(power - d).sum(axis=1).max() / 2)


@checked
def dobrushin(power: Matrix) -> float:
    """τ(P) = max over pairs of rows of their total variation, or an upper bound on it for many states.

    τ is submultiplicative: τ(PQ) ≤ τ(P) τ(Q).
    """
    if len(power) <= _EXACT_PAIRS:
        return max(float(np.abs(power[s] - power[s + 1 :]).sum(axis=1).max(initial=0.0)) for s in range(len(power))) / 2
    centre = np.median(power, axis=0)
    around = float(np.abs(power - centre).sum(axis=1).max())  # TV(p, q) ≤ TV(p, c) + TV(c, q)
    return min(around, 1.0 - float(power.min(axis=0).sum()))


@checked
def certified(P: Matrix, d: Float[np.ndarray, " S"]) -> Mixing:
    """The best proof among m = 1, 2, 4, …: ρ = τ(Pᵐ)^{1/m} and κ = max over r < m of (distance after r steps)/ρʳ.

    For t = km + r the distance is at most (distance after r) τ(Pᵐ)ᵏ. Distances never grow with t, so between two
    powers of two the earlier one serves. A larger τ proves it too, with a smaller κ.
    """
    _check_finite(P=P, d=d)
    best, power, distances = Mixing(1.0, 1.0, "certified"), P, [1.0]
    for doubling in range(_MAX_DOUBLINGS):
        m, tau = 2**doubling, dobrushin(power)
        if tau < 1 - _ROUNDING:
            ends = np.minimum(2.0 ** np.arange(len(distances)), m) - 1  # the last t for which each distance serves
            for rate in {tau if m == 1 else max(tau, _ROUNDING), *(larger for larger in _LARGER if larger > tau)}:
                rho = rate ** (1 / m)
                kappa = float(max(1.0, np.max(np.array(distances) / rho**ends)))
                best = min(best, Mixing(rho, kappa, "certified", m), key=lambda mixing: mixing.factor)
        if tau < 1e-3:
            return best
        distances.append(distance(power, d))
        power = power @ power
    return best


@checked
def spectral(P: Matrix, d: Float[np.ndarray, " S"]) -> Mixing:
    """ρ = |λ₂| and the smallest κ that the first 512 distances (64 for many states) and those at powers of two need.

    Where the ratio of distance to ρᵗ still grows at the end (a defective eigenvalue), ρ gives way a little.
    """
    _check_finite(P=P, d=d)
    deflated = P - d
    rho = float(np.abs(np.linalg.eigvals(deflated)).max())
    if rho >= 1 - _ROUNDING:
        return Mixing(1.0, 1.0, "spectral")
    times, distances = _distances(deflated)
    if distances[0] > _ROUNDING:  # a ρ of 0 and powers that underflow bound nothing
        rho = max(rho, _ROUNDING, 1e-250 ** (1 / float(times[-1])))
    ratios = distances / max(rho, _ROUNDING) ** times
    while len(ratios) > 1 and int(np.argmax(ratios)) == len(ratios) - 1 and ratios[-1] > 2:
        rho += _SLACK * (1 - rho)
        ratios = distances / rho**times
    return Mixing(rho, float(max(1.0, ratios.max())), "spectral")


def _check_finite(**arrays: Matrix) -> None:
    """Refuse an array with NaN or infinity, by its name."""
    for name, array in arrays.items():
        refuse(name, array, ~np.isfinite(array), "be finite")


def _distances(deflated: Matrix) -> tuple[Float[np.ndarray, " L"], Float[np.ndarray, " L"]]:
    """Times and distances, until they are rounding."""
    zero, first = np.zeros(len(deflated)), _MEASURED if len(deflated) <= _FEW_STATES else _MEASURED // 8
    times, distances, power = [1.0], [distance(deflated, zero)], deflated
    while distances[-1] > _ROUNDING and times[-1] < 2.0**_MAX_DOUBLINGS:
        power, t = (power @ deflated, times[-1] + 1) if times[-1] < first else (power @ power, times[-1] * 2)
        times.append(t)
        distances.append(distance(power, zero))
    measurable = [k for k, value in enumerate(distances) if value > _ROUNDING or k == 0]
    return np.array(times)[measurable], np.array(distances)[measurable]


@checked
def uniform(probability: Numbers) -> Mixing:
    """A proof for all policies at once, from one step: τ(P_π) ≤ 1 − Σ_s' min over (s, a) of P(s'|s, a).

    P(s'|s, a) [S, A, S'] is with restarts. ρ = 1 where no successor is common to all (s, a).
    """
    if np.ndim(probability) != 3 or 0 in np.shape(probability):
        raise ValueError(f"`probability` must have shape [S, A, S], none of them 0, got {np.shape(probability)}.")
    common = float(np.asarray(probability).min(axis=(0, 1)).sum())
    return Mixing(min(1.0, max(0.0, 1.0 - common)), 1.0, "certified", 1)
