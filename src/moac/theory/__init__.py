"""The theory as numbers: assumptions checked, constants computed, the theorems as functions, and sample sizes."""

from moac.theory import mixing, smoothness
from moac.theory.assumptions import Assumption, check
from moac.theory.bounds import (
    DERIVATIONS,
    ActorBound,
    CriticBound,
    actor_bound,
    actor_terms,
    critic_bound,
    critic_terms,
)
from moac.theory.ground import Constants, Ground, constants, constants_of, ground, worst
from moac.theory.mixing import Mixing
from moac.theory.planning import Guarantees, Plan, corollaries, guarantees, plan

__all__ = [
    "DERIVATIONS", "ActorBound", "Assumption", "Constants", "CriticBound", "Ground", "Guarantees", "Mixing", "Plan",
    "actor_bound", "actor_terms", "check", "constants", "constants_of", "corollaries", "critic_bound", "critic_terms",
    "ground", "guarantees", "mixing", "plan", "smoothness", "worst",
]  # fmt: skip
