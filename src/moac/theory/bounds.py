"""Theorems 1 and 2 as functions of the sizes one chooses, as printed and as derived.

`printed` is what the paper states. `derived` is what its own steps give: constants of a sample instead of its mean,
the factor (α + 2α²L_J)/(α − 2α²L_J) = 5 that was dropped, C_ψ, the next state inside δ, rewards of both signs, and
the maximum over objectives inside the expectation, which costs a factor of M (`moac docs errata`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Literal

from moac.arguments import checked
from moac.choices import at_least, schedule_of, shown
from moac.theory.ground import Constants

Derivation = Literal["printed", "derived"]
DERIVATIONS: tuple[Derivation, ...] = ("printed", "derived")
_ZETA_HALF = -1.4603545088095868  # ζ(1/2)
_EULER = 0.5772156649015329
_SUMMED = 1000


@dataclass(frozen=True)
class CriticBound:
    """Theorem 1: E‖w_N − w*‖² ≤ transient + floor."""

    transient: float  # C₁(1 − βλ_A/8)^N
    floor: float  # C₂C₃(2/λ_A + 2β)/(λ_A D)
    applies: bool  # whether D is large enough for the theorem to say anything

    @property
    def total(self) -> float:
        """The bound."""
        return self.transient + self.floor


@dataclass(frozen=True)
class ActorBound:
    """Theorem 2: E[min over λ of ‖∇J λ‖²] at a random iterate ≤ the sum of four terms."""

    ascent: float  # of T and the momentum
    critic: float  # of the critic's error
    noise: float  # of B
    approximation: float  # of ζ; no sample size makes it smaller

    @property
    def total(self) -> float:
        """The bound, the sum of all terms."""
        return self.ascent + self.critic + self.noise + self.approximation


@dataclass(frozen=True)
class CriticTerms:
    """Theorem 1 in coefficients."""

    largest_beta: float  # min{λ_A/(8C_A²), 4/λ_A}
    C_2: float  # [1 + (κ − 1)ρ]/(1 − ρ)
    C_3: float  # 192(C_A²R_w² + C_b²)
    C_A: float  # of a sample (derived) or of its mean (printed)
    lambda_A: float  # modulo constants where the features span them

    def per_batch(self, beta: float) -> float:
        """The floor times D."""
        return self.C_2 * self.C_3 * (2 / self.lambda_A + 2 * beta) / self.lambda_A

    def smallest_batch(self, beta: float) -> float:
        """The D from which on the theorem holds."""
        return (2 / self.lambda_A + 2 * beta) * 192 * self.C_A**2 * self.C_2 / self.lambda_A

    def check(self, beta: float) -> None:
        """Refuse a step size for which the theorem says nothing."""
        if not 0 < beta <= self.largest_beta * (1 + 1e-9):
            raise ValueError(f"`beta` must be in (0, {self.largest_beta:.6g}] for Theorem 1, got {shown(beta)}.")


@dataclass(frozen=True)
class ActorTerms:
    """Theorem 2 in coefficients: ascent(1 [or 2] + Σ2η_t)/T + critic·error + noise/B + approximation."""

    alpha: float  # 1/(3L_J)
    ascent: float  # 18L_J r_max/C₄
    ends: float  # what stands before Σ2η_t: 1, or 2 where rewards may be negative (derived)
    critic: float  # 12, or 60MC_ψ² (derived), for E max_i is at most M max_i E
    noise: float  # C₅(1 − ρ + 4κρ)/(1 − ρ), or with 2κ in place of 4κρ (derived)
    approximation: float  # 12ζ, or 60MC_ψ²ζ


@checked
def critic_terms(c: Constants, derivation: Derivation = "derived") -> CriticTerms:
    """The coefficients of Theorem 1; a chain or features that it does not cover are a ValueError."""
    lam = c.lambda_A_modulo_constants
    if not lam > 0:
        raise ValueError("`lambda_A` must be positive for Theorem 1, got 0: see the assumptions.")
    _check(c)
    C_A, C_b = (c.C_A, c.C_b) if derivation == "derived" else (c.C_A_mean, c.C_b_mean)
    return CriticTerms(min(lam / (8 * C_A**2), 4 / lam), c.mixing.factor, 192 * (C_A**2 * c.R_w**2 + C_b**2), C_A, lam)


@checked
def critic_bound(
    c: Constants, steps: float, batch: float, beta: float, derivation: Derivation = "derived"
) -> CriticBound:
    """Theorem 1 for N = `steps`, D = `batch` and β; C₁ = ‖w_0 − w*‖² from w_0 = 0."""
    at_least(1).checked("batch", batch)
    terms = critic_terms(c, derivation)
    terms.check(beta)
    transient = c.w_star**2 * math.exp(steps * math.log1p(-beta * terms.lambda_A / 8))
    return CriticBound(transient, terms.per_batch(beta) / batch, batch >= terms.smallest_batch(beta) * (1 - 1e-9))


@checked
def actor_terms(c: Constants, derivation: Derivation = "derived") -> ActorTerms:
    """The coefficients of Theorem 2."""
    _check(c)
    derived, rho, kappa = derivation == "derived", c.mixing.rho, c.mixing.kappa
    factor = 60 * c.num_objectives * c.C_psi_bound**2 if derived else 12.0
    largest = 4 * (c.r_max + c.R_w) ** 2 if c.average else (c.r_max + 2 * c.R_w) ** 2
    correlation = (1 - rho + (2 * kappa if derived else 4 * kappa * rho)) / (1 - rho)
    return ActorTerms(
        alpha=1 / (3 * c.L_J) if c.L_J > 0 else math.inf,
        ascent=18 * c.L_J * c.r_max / (1.0 if c.average else 1 - c.gamma),
        ends=2.0 if derived and not c.non_negative else 1.0,
        critic=factor,
        noise=factor * largest * correlation,
        approximation=factor * c.zeta,
    )


@checked
def actor_bound(
    c: Constants,
    iterations: float,
    batch: float,
    momentum: str = "1/t",
    critic_error: float = 0.0,
    derivation: Derivation = "derived",
) -> ActorBound:
    """Theorem 2 for T = `iterations`, B = `batch`, η_t = `momentum` and a mean critic error E‖w − w*‖²."""
    for name, size in {"iterations": iterations, "batch": batch}.items():
        at_least(1).checked(name, size)
    terms = actor_terms(c, derivation)
    ascent = terms.ascent * (terms.ends + 2 * total(momentum, iterations)) / iterations
    return ActorBound(ascent, terms.critic * critic_error, terms.noise / batch, terms.approximation)


def _check(c: Constants) -> None:
    if not c.mixing.rho < 1:
        raise ValueError("`rho` must be below 1 for the theorems, got 1: the chain is periodic or reducible.")


def total(momentum: str, iterations: float) -> float:
    """Σ_{t ≤ T} η_t: summed up to T = 1000, beyond that by the Euler–Maclaurin formula, to ten digits."""
    T = math.floor(iterations)
    if T <= _SUMMED:
        return _sums(momentum)[T]
    tails: dict[str, Callable[[float], float]] = {
        "1/t": lambda T: math.log(T) + _EULER + 0.5 / T - T**-2 / 12,
        "1/sqrt(t)": lambda T: 2 * math.sqrt(T) + _ZETA_HALF + 0.5 / math.sqrt(T) - T**-1.5 / 24,
        "1/t^2": lambda T: math.pi**2 / 6 - 1 / T + T**-2 / 2 - T**-3 / 6,
    }
    return tails[momentum](float(T)) if momentum in tails else T * float(schedule_of(momentum)(1.0))


@lru_cache(maxsize=32)
def _sums(momentum: str) -> tuple[float, ...]:
    schedule = schedule_of(momentum)
    return tuple(accumulate((float(schedule(float(t))) for t in range(1, _SUMMED + 1)), initial=0.0))
