"""What a walk keeps of an observation, and what the policy sees of that: a vector, or the index of a state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, final

import numpy as np
from jaxtyping import Float, Int

from moac.policies.encoding import Encoder, Scale


class Sight(Protocol):
    """How a walk looks at observations."""

    def read(self, observation: Any) -> Any:
        """What is kept of an observation; what does not fit is a ValueError."""
        ...

    def see(self, kept: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """What the policy sees, over any leading axes."""
        ...

    def table(self, n: int, T: int) -> np.ndarray[Any, Any]:
        """Room for n copies' T observations."""
        ...


@final
@dataclass(frozen=True, eq=False)
class Vectors:
    """All numbers of an observation, kept as they came; the policy sees them scaled.

    Attributes:
        encoder: of the observations.
        scale: into [0, 1].
    """

    encoder: Encoder
    scale: Scale

    def read(self, observation: Any) -> Float[np.ndarray, " d"]:
        """The numbers; they must be finite."""
        flat = self.encoder.flat(observation)
        if not np.isfinite(flat).all():
            raise ValueError(f"its observation must be finite, got {flat.tolist()}.")
        return flat

    def see(self, kept: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Scaled."""
        return self.scale(kept)

    def table(self, n: int, T: int) -> Float[np.ndarray, "n T d"]:
        """In double precision."""
        return np.empty((n, T, self.encoder.size))


@final
@dataclass(frozen=True, eq=False)
class States:
    """The index of a state.

    Attributes:
        encoder: of the observations.
    """

    encoder: Encoder

    def read(self, observation: Any) -> int:
        """The index; what lies outside the space is refused."""
        return self.encoder.state(observation)

    def see(self, kept: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The index."""
        return kept

    def table(self, n: int, T: int) -> Int[np.ndarray, "n T"]:
        """Of indices."""
        return np.empty((n, T), dtype=np.int32)
