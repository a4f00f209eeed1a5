"""Features of vectors x ∈ [0, 1]^d, each with ‖φ(x)‖ ≤ 1.

All work on NumPy arrays as on JAX's: acting happens on the host, learning in a compiled program.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, final, runtime_checkable

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import qmc

_PRIMES = (73_856_093, 19_349_663, 83_492_791, 49_979_687, 86_028_121, 67_867_967, 32_452_843, 15_485_863)
MAX_TILES = 1024
"""Tiles of one tiling; where the grid has more, they are hashed (Sutton and Barto, 2018, section 9.5.4)."""


@runtime_checkable
class Basis(Protocol):
    """φ of a vector, as the linear map that a linear model needs of it."""

    @property
    def size(self) -> int:
        """Number of features."""
        ...

    def apply(self, w: Any, observation: Any) -> Any:
        """φ(x)ᵀw [..., k] for w [size, k] and x [..., d]."""
        ...


@final
@dataclass(frozen=True)
class Raw:
    """φ(x) = (1, 2x − 1) / √(d + 1)."""

    num_inputs: int

    @property
    def size(self) -> int:
        """d + 1."""
        return self.num_inputs + 1

    def apply(self, w: Any, observation: Any) -> Any:
        """φ(x)ᵀw."""
        return (w[0] + (2 * observation - 1) @ w[1:]) / math.sqrt(self.size)


@final
@dataclass(frozen=True)
class Plain:
    """φ(x) = (1, x) / √(d + 1), for x ∈ [−1, 1]^d."""

    num_inputs: int

    @property
    def size(self) -> int:
        """d + 1."""
        return self.num_inputs + 1

    def apply(self, w: Any, observation: Any) -> Any:
        """φ(x)ᵀw."""
        return (w[0] + observation @ w[1:]) / math.sqrt(self.size)


@final
@dataclass(frozen=True)
class Fourier:
    """φ_c(x) = cos(π c·x) / √size, c ∈ {0 … order}^d with at most two entries not 0 (Konidaris et al., 2011)."""

    num_inputs: int
    order: int

    @property
    def size(self) -> int:
        """1 + d·k + d(d − 1)/2·k² for order k."""
        return len(self.coefficients)

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


@final
@dataclass(frozen=True)
class RBF:
    """φ_j(x) = g_j / Σ g, g_j = exp(−‖x − c_j‖² / 2σ²): shares that sum to 1; centres are a Halton sequence."""

    num_inputs: int
    size: int

    @cached_property
    def centres(self) -> Float[np.ndarray, "size d"]:
        """c_j, spread evenly over [0, 1]^d."""
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


@final
@dataclass(frozen=True)
class Tile:
    """One tile of each tiling is 1/√tilings, the others 0; tilings are shifted against each other.

    Attributes:
        num_inputs: d.
        tilings: how many.
        tiles: how many along each input.
    """

    num_inputs: int
    tilings: int = 8
    tiles: int = 8

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
