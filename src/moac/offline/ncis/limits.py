"""All limits of a verdict in one table: conventions of the field, or fixed on other seeds than those of the study.

`moac reproduce trust` shows what they are worth on generated logs.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limit:
    """A number, where it asks for care, and where it forbids trust: at or beyond either."""

    measure: str  # its name, in `Diagnostics` where it is one of the weights
    text: str
    care: float
    stop: float  # low numbers are bad where it is below `care`


WEIGHT_LIMITS = (
    Limit("row_effective_size", "effective number of rows", care=1000, stop=100),
    Limit("row_effective_share", "effective share of rows", care=0.1, stop=0.01),
    Limit("user_effective_size", "effective number of users", care=200, stop=50),
    Limit("largest_row_share", "share of the heaviest row in all weight", care=0.01, stop=0.05),
    Limit("largest_user_share", "share of the heaviest user in all weight", care=0.05, stop=0.2),
    Limit("capped_share", "share of rows that the cap touches", care=0.05, stop=0.5),
    Limit("retained_mass", "share of the weights that the cap leaves", care=0.95, stop=0.5),
)
MEAN_WEIGHT = Limit("mean_weight", "distance of the mean uncapped weight from 1", care=0.05, stop=0.2)
"""It counts only where its interval leaves 1 out as well."""
CONTROL = Limit("control", "a control's change, in half-widths of the signal's interval", care=0.0, stop=0.5)
"""It counts only where it is no chance, after Holm over the signals. Later rows ask for care at most."""
CHANCE = 0.05
"""A control's p-value below which its change is no chance."""
WEAK = 3.0
"""A control whose interval is so many times as wide as the signal's could not show a bias that matters: no power."""
BALANCE = Limit("balance", "standardised difference of a covariate", care=0.1, stop=0.25)
"""It counts only where its interval leaves 0 out as well. Also for controls that are no rewards."""
PARETO_K = Limit("pareto_k", "Pareto k of the weighted signal", care=0.4, stop=0.7)
MIN_POSITIVES = 50
"""Fewer of them, and a signal counts as not estimable, also as a control."""
MIN_USERS = 50
"""Users that have a control's value; of fewer it says nothing."""
LIMITS = (*WEIGHT_LIMITS, MEAN_WEIGHT, CONTROL, BALANCE, PARETO_K)
"""All limits of a verdict, but the four single numbers above."""
