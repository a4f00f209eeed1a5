"""Features φ of states and of vectors x ∈ [0, 1]^d, ‖φ‖ ≤ 1: what the linear critic, and linear policies, see.

Those of vectors work on NumPy arrays as on JAX's: acting happens on the host, learning in a compiled program.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from moac.choices import shown
from moac.policies.observations import StateSpec
from moac.types import Key, Observation, Spec, vectors

_PRIMES = (73_856_093, 19_349_663, 83_492_791, 49_979_687, 86_028_121, 67_867_967, 32_452_843, 15_485_863)
MAX_TILES = 1024
"""Tiles of one tiling; where the grid has more, they are hashed (Sutton and Barto, 2018, section 9.5.4)."""


def by_name(name: str, spec: Spec, key: Key) -> Features:
    """The features that `Config.features` names, for states or for vectors."""
    return of_vectors(name, spec.observation_size) if spec.num_states is None else of_states(name, spec, key)


def of_states(name: str, spec: Spec, key: Key) -> OneHot | Table:
    """The features of that name for states."""
    kind, _, size = name.partition(":")
    if not isinstance(spec.observations, StateSpec):
        raise ValueError(f"`features` must be those of vectors for {spec.name}, got {shown(name)}.")
    count = spec.observations.num_states
    if kind == "one-hot":
        return OneHot(count)
    if kind == "one-hot-reference" and count > 1:
        return OneHot(count, spec.observations.reference)
    if kind == "random":
        return random_table(key, count, int(size))
    known = "one-hot, one-hot-reference (of more than one state) or random:<d>"
    raise ValueError(f"`features` must be {known} for states, got {shown(name)}.")


def of_vectors(name: str, num_inputs: int) -> Features:
    """The features of that name for vectors of d numbers."""
    match name.partition(":"):
        case ("tile", _, size):
            return Tile(num_inputs, tiles=int(size or Tile.tiles))
        case ("fourier", _, size):
            return Fourier(num_inputs, int(size))
        case ("rbf", _, size):
            return RBF(num_inputs, int(size))
        case ("raw" | "plain" as kind, _, _):
            return Raw(num_inputs, centred=kind == "plain")
        case _:
            known = "tile, fourier:<order>, rbf:<n>, raw or plain"
            raise ValueError(f"`features` must be {known} for vectors, got {shown(name)}.")


class Features(Protocol):
    """φ, as the linear map that a linear model needs of it."""

    @property
    def size(self) -> int:
        """d."""
        ...

    def apply(self, w: Any, observation: Observation) -> Any:
        """φ(s)ᵀw [..., k] for w [d, k], over any leading axes."""


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


@dataclass(frozen=True)
class Raw:
    """φ(x) = (1, 2x − 1) / √(d + 1); (1, x) / √(d + 1) where x ∈ [−1, 1]^d already, so that it is `centred`."""

    num_inputs: int
    centred: bool = False

    @property
    def size(self) -> int:
        """d + 1."""
        return self.num_inputs + 1

    def apply(self, w: Any, observation: Any) -> Any:
        """φ(x)ᵀw."""
        x = vectors(observation) if self.centred else 2 * observation - 1
        return (w[0] + x @ w[1:]) / math.sqrt(self.size)


@dataclass(frozen=True)
class Fourier:
    """φ_c(x) = cos(π c·x) / √size, c ∈ {0 … order}^d with at most two entries not 0 (Konidaris et al., 2011)."""

    num_inputs: int
    order: int

    @property
    def size(self) -> int:
        """1 + d·k + d(d − 1)/2·k² for order k."""
        d, k = self.num_inputs, self.order
        return 1 + d * k + d * (d - 1) // 2 * k**2

    @cached_property
    def coefficients(self) -> Float[np.ndarray, "size d"]:
        """All c."""
        values = range(1, self.order + 1)
        rows: list[dict[int, int]] = [{}]
        rows += [{i: a} for i in range(self.num_inputs) for a in values]
        pairs = itertools.combinations(range(self.num_inputs), 2)
        rows += [{i: a, j: b} for i, j in pairs for a in values for b in values]
        c = np.zeros((len(rows), self.num_inputs), dtype=np.float32)
        for k, row in enumerate(rows):
            c[k, list(row)] = list(row.values())
        return c

    def apply(self, w: Any, observation: Any) -> Any:
        """φ(x)ᵀw."""
        xp = w.__array_namespace__()
        phi = xp.cos(math.pi * (observation @ self.coefficients.T))
        return phi @ (w / math.sqrt(self.size))


@dataclass(frozen=True)
class RBF:
    """φ_j(x) = g_j / Σ g, g_j = exp(−‖x − c_j‖² / 2σ²): shares that sum to 1; centres are a Halton sequence."""

    num_inputs: int
    size: int

    @cached_property
    def centres(self) -> Float[np.ndarray, "size d"]:
        """c_j, spread evenly over [0, 1]^d."""
        from scipy.stats import qmc  # takes a second to import

        drawn = qmc.Halton(self.num_inputs, scramble=False).random(self.size + 1)[1:]
        return drawn.astype(np.float32)

    @property
    def width(self) -> float:
        """σ, about half of the distance between neighbours."""
        return 0.5 * math.sqrt(self.num_inputs) * self.size ** (-1 / self.num_inputs)

    def apply(self, w: Any, observation: Any) -> Any:
        """φ(x)ᵀw."""
        xp = w.__array_namespace__()
        squared = ((observation[..., None, :] - self.centres) ** 2).sum(axis=-1)
        exponent = -squared / (2 * self.width**2)
        g = xp.exp(exponent - exponent.max(axis=-1, keepdims=True))
        return (g / g.sum(axis=-1, keepdims=True)) @ w


@dataclass(frozen=True)
class Tile:
    """One tile of each tiling is 1/√tilings, the others 0; tilings are shifted against each other."""

    num_inputs: int  # d
    tilings: int = 8  # how many
    tiles: int = 8  # how many along each input

    @property
    def per_tiling(self) -> int:
        """Tiles of one tiling, after hashing."""
        return min((self.tiles + 1) ** self.num_inputs, MAX_TILES)

    @property
    def size(self) -> int:
        """Tiles of all tilings."""
        return self.tilings * self.per_tiling

    @cached_property
    def _offsets(self) -> Float[np.ndarray, "tilings d"]:
        """Shifts by odd multiples, 1, 3, 5 … per input, which spread better than equal ones."""
        odd = 2 * np.arange(self.num_inputs) + 1
        return ((np.arange(self.tilings)[:, None] * odd) % self.tilings / self.tilings).astype(np.float32)

    @cached_property
    def _strides(self) -> Int[np.ndarray, " d"]:
        if (self.tiles + 1) ** self.num_inputs <= MAX_TILES:
            return ((self.tiles + 1) ** np.arange(self.num_inputs)).astype(np.uint32)
        repeated = [_PRIMES[i % len(_PRIMES)] * (1 + 2 * (i // len(_PRIMES))) for i in range(self.num_inputs)]
        return np.array(repeated, dtype=np.uint64).astype(np.uint32)

    def tiles_of(self, observation: Any, xp: Any) -> Any:
        """The active tile of each tiling [..., tilings]."""
        cell = xp.floor(observation[..., None, :] * self.tiles + self._offsets).astype(np.uint32)
        mixed = (cell * self._strides).sum(axis=-1, dtype=np.uint32)
        if (self.tiles + 1) ** self.num_inputs > MAX_TILES:
            mixed = mixed ^ (mixed >> np.uint32(15))
        return (mixed % np.uint32(self.per_tiling)).astype(np.int32) + self._firsts

    @cached_property
    def _firsts(self) -> Int[np.ndarray, " tilings"]:
        return (np.arange(self.tilings) * self.per_tiling).astype(np.int32)

    def apply(self, w: Any, observation: Any) -> Any:
        """φ(x)ᵀw."""
        active = self.tiles_of(observation, w.__array_namespace__())
        return w[active].sum(axis=-2) / math.sqrt(self.tilings)
