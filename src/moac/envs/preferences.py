"""Preferences of conditioned policies: how they are drawn, and what is one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

UNIFORM = "dirichlet:1"
"""Evenly on the simplex."""
_STREAM = 0x70726566
"""Sets the draws of preferences apart from all others of a seed."""
_CORNER, _CENTRE = 0.25, 0.1
"""Shares of the episodes for which `corners` draws one of the M corners, or the centre."""


def drawing(draw: str | None, num_objectives: int, seed: int) -> Callable[[], Float[np.ndarray, " M"] | None]:
    """A function that draws one p at each call, by `Config.preference_draw`; None where nothing is to be drawn."""
    if draw is None:
        return lambda: None
    M, generator = num_objectives, np.random.default_rng([_STREAM, seed])
    kind, _, alpha = draw.partition(":")

    def drawn() -> Float[np.ndarray, " M"]:
        place = generator.random() if kind == "corners" else 1.0
        if place < _CORNER:
            return np.eye(M)[generator.integers(M)]
        return np.full(M, 1 / M) if place < _CORNER + _CENTRE else generator.dirichlet(np.full(M, float(alpha or 1)))

    return drawn
