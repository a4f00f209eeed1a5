"""Features of states, which are indices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from moac.types import Key, Observation


class Features(Protocol):
    """φ, as the two linear maps that a linear model needs of it."""

    @property
    def size(self) -> int:
        """d."""
        ...

    def apply(self, w: Float[Array, "d k"], observation: Observation) -> Float[Array, "... k"]:
        """φ(s)ᵀw over any leading axes."""
        ...

    def table(self) -> Float[np.ndarray, "S d"]:
        """Φ, one row per state."""
        ...


@final
@dataclass(frozen=True)
class OneHot:
    """φ(s) = e_s, or without the coordinate of a reference state, whose features are then zero."""

    num_states: int
    reference: int | None = None

    @property
    def size(self) -> int:
        """d = S, or S − 1."""
        return self.num_states - (self.reference is not None)

    def apply(self, w: Float[Array, "d k"], observation: Observation) -> Float[Array, "... k"]:
        """A row of w; its transpose is a scatter-add."""
        if self.reference is None:
            return w.at[observation].get(mode="promise_in_bounds")
        row = jnp.where(observation > self.reference, observation - 1, jnp.minimum(observation, self.size - 1))
        kept = (observation != self.reference)[..., None]
        return jnp.where(kept, w.at[row].get(mode="promise_in_bounds"), 0)

    def table(self) -> Float[np.ndarray, "S d"]:
        """The identity, without the reference's column."""
        keep = [s for s in range(self.num_states) if s != self.reference]
        return np.eye(self.num_states)[:, keep]


@final
@dataclass(frozen=True, eq=False)
class Table:
    """φ(s) = Φ[s], scaled as a whole so that no row is longer than one."""

    rows: Float[np.ndarray, "S d"]

    @property
    def size(self) -> int:
        """d."""
        return self.rows.shape[1]

    def apply(self, w: Float[Array, "d k"], observation: Observation) -> Float[Array, "... k"]:
        """A row of Φ times w."""
        return jnp.asarray(self.rows, w.dtype).at[observation].get(mode="promise_in_bounds") @ w

    def table(self) -> Float[np.ndarray, "S d"]:
        """Φ."""
        return self.rows


def table(rows: Any) -> Table:
    """A user's table Φ [S, d], normalised to ‖φ(s)‖ ≤ 1 by one factor, which keeps the span."""
    Phi = np.array(rows, dtype=np.float64)
    if Phi.ndim != 2 or 0 in Phi.shape:
        raise ValueError(f"`rows` must have shape [S, d], got {Phi.shape}.")
    for index in np.argwhere(~np.isfinite(Phi))[:1]:
        raise ValueError(f"`rows` must be finite, got {Phi[tuple(index)]} at index {tuple(map(int, index))}.")
    return Table(Phi / max(1.0, float(np.linalg.norm(Phi, axis=1).max())))


def random_table(key: Key, num_states: int, size: int) -> Table:
    """A Gaussian table, each row normalised to length one."""
    Phi = np.asarray(jax.random.normal(key, (num_states, size)), dtype=np.float64)
    return Table(Phi / np.linalg.norm(Phi, axis=1, keepdims=True))
