"""What policies see of a problem: the index of a state, a vector scaled to [0, 1]^d, or the features of a request.

`Spec.observations` is one of the three, and trained policies keep it: `see` turns an observation, as the environment
or the user gives it, into what the policy takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from moac.arguments import NUMERIC
from moac.choices import shown
from moac.policies.encoding import Encoder

Scales = Mapping[str, Float[np.ndarray, "K d"]]
"""`shift` and `gain` of K trials."""


@dataclass(frozen=True, eq=False)
class Scale:
    """x ↦ clip((x − shift)·gain, 0, 1): where the d numbers of an observation lie between two ends."""

    shift: Float[np.ndarray, " d"]
    gain: Float[np.ndarray, " d"]

    def __call__(self, flat: Float[np.ndarray, "... d"]) -> Float[np.ndarray, "... d"]:
        """The scaled vectors, in single precision."""
        place = flat - self.shift
        place *= self.gain
        return np.minimum(np.maximum(place, 0.0, out=place), 1.0, out=place).astype(np.float32)

    @classmethod
    def between(cls, low: Float[np.ndarray, " d"], high: Float[np.ndarray, " d"]) -> Scale:
        """From `low` to `high`; a number that cannot move becomes 0."""
        width = high - low
        return cls(low, np.divide(1.0, width, out=np.zeros_like(width), where=width > 0))


@dataclass(frozen=True, eq=False)
class Moments:
    """Count, mean and sum of squared deviations of observations (Chan, Golub and LeVeque, 1983).

    A scale tells values up to `reach` standard deviations from the mean apart.
    """

    count: Float[np.ndarray, ""]
    mean: Float[np.ndarray, " d"]
    squares: Float[np.ndarray, " d"]
    reach: Float[np.ndarray, ""]

    @classmethod
    def nothing(cls, size: int, reach: float = 3.0) -> Moments:
        """Nothing seen yet."""
        return cls(np.zeros(()), np.zeros(size), np.zeros(size), np.array(reach))

    @classmethod
    def of(cls, memory: Mapping[str, Any] | None, trial: int | None = None) -> Moments | None:
        """The moments that a chain has kept, or of one of K; None where it keeps none."""
        if not memory:
            return None
        return cls(**{name: np.asarray(value if trial is None else value[trial]) for name, value in memory.items()})

    def including(self, flat: Float[np.ndarray, "n d"]) -> Moments:
        """The moments after n more observations."""
        n, mean = len(flat), flat.mean(axis=0)
        total, delta = self.count + n, mean - self.mean
        squares = self.squares + ((flat - mean) ** 2).sum(axis=0) + delta**2 * self.count * n / total
        return Moments(np.asarray(total), self.mean + delta * n / total, squares, self.reach)

    def scale(self) -> Scale:
        """From mean − reach·σ to mean + reach·σ; σ = 1 before anything is seen, and where nothing moves."""
        sigma = np.sqrt(self.squares / np.maximum(self.count, 1.0))
        sigma = np.where(sigma > 1e-8, sigma, 1.0)
        return Scale.between(self.mean - self.reach * sigma, self.mean + self.reach * sigma)


@dataclass(frozen=True, eq=False)
class StateSpec:
    """Policies see the index of one of S states."""

    num_states: int  # S
    # [S, …] what the environment shows in each state of a model; None where it shows the index
    shown: np.ndarray[Any, Any] | None = None
    encoder: Encoder | None = None  # from an environment's observation to the index; None on a model
    reference: int = 0  # the most visited state under the uniform policy, where known
    size: ClassVar[int] = 1
    bounded: ClassVar[bool] = True
    scales: ClassVar[None] = None

    def see(self, observation: Any, trial: int = 0, preference: Any = None) -> int:
        """The index; what is no state is a ValueError."""
        del trial, preference
        if self.encoder is not None:
            return self.encoder.state(observation)
        seen = np.asarray(observation if NUMERIC.holds(observation) else np.nan)
        if self.shown is None:
            if seen.size != 1 or not np.issubdtype(seen.dtype, np.integer) or not 0 <= seen.item() < self.num_states:
                raise ValueError(f"`observation` must be the index of a state, got {shown(observation)}.")
            return int(seen.item())
        cast = seen.astype(self.shown.dtype, copy=False)
        state = self._states.get(cast.tobytes())
        if state is None or not np.array_equal(cast, seen):
            known = f"one that the model knows, such as {self.shown[0].tolist()}"
            raise ValueError(f"`observation` must be {known}, got {shown(observation)}.")
        return state

    @cached_property
    def _states(self) -> dict[bytes, int]:
        return {np.asarray(row).tobytes(): s for s, row in enumerate(() if self.shown is None else self.shown)}


@dataclass(frozen=True, eq=False)
class VectorSpec:
    """Policies see all numbers of an observation, scaled to [0, 1]; then p, where they are conditioned on it."""

    encoder: Encoder  # from an environment's observation to a vector
    scales: Scales | None = None  # of K trials; None before they are trained
    num_states: ClassVar[None] = None

    @property
    def size(self) -> int:
        """d."""
        return self.encoder.size

    @property
    def bounded(self) -> bool:
        """Whether every number has finite bounds."""
        return self.encoder.bounded

    def see(self, observation: Any, trial: int = 0, preference: Any = None) -> Float[np.ndarray, " d"]:
        """The scaled vector, as a trial scales it; what is not finite is a ValueError."""
        if self.scales is None:
            raise ValueError("`scales` must be known where observations are vectors, got None.")
        scale = Scale(self.scales["shift"][trial], self.scales["gain"][trial])
        flat = self.encoder.flat(observation, preference)
        if not np.isfinite(flat).all():
            raise ValueError(f"`observation` must be finite, got {flat[: self.encoder.bare.size].tolist()}.")
        return scale(flat)

    def scale(self, moments: Moments | None) -> Scale:
        """How vectors come into [0, 1]: by their moments, or where these are not kept, by the bounds of the space.

        A preference stays as it is.
        """
        by_bounds, size = Scale.between(self.encoder.low, self.encoder.high), self.encoder.bare.size
        if moments is None:
            return by_bounds
        ends = zip(vars(moments.scale()).values(), vars(by_bounds).values(), strict=True)
        return Scale(*(np.append(moving[:size], fixed[size:]) for moving, fixed in ends))

    def learned(self, memory: Mapping[str, Any] | None, trials: int) -> VectorSpec:
        """With the scales of K trials: by the moments that their chains have kept, or by the bounds of the space."""
        rows = [self.scale(Moments.of(memory, k)) for k in range(trials)]
        return replace(self, scales={name: np.stack([getattr(x, name) for x in rows]) for name in ("shift", "gain")})


@dataclass(frozen=True, eq=False)
class LogSpec:
    """Policies see feature vectors of logged requests as they are; another policy has chosen the logged actions."""

    size: int  # F, numbers of a feature vector
    catalogue: Any = None  # from ids to feature vectors (`moac.logs.catalogue`); None where there are no ids
    # the policy that models how the log chose, as `policy`, `hidden` and `item_embedding`; None where there is none
    behaviour_policy: tuple[str, tuple[int, ...], bool] | None = None
    with_candidates: bool = False  # whether requests bring their own candidates
    num_states: ClassVar[None] = None
    encoder: ClassVar[None] = None
    bounded: ClassVar[bool] = True
    scales: ClassVar[None] = None

    def see(self, observation: Any, trial: int = 0, preference: Any = None) -> Float[np.ndarray, " F"]:
        """The feature vector, checked."""
        del trial, preference
        return self.known_catalogue.vector(observation)

    @property
    def known_catalogue(self) -> Any:
        """The catalogue; a ValueError where there is none."""
        if self.catalogue is None:
            raise ValueError("`catalogue` must be known to see ids of a log, got None.")
        return self.catalogue


Observations = StateSpec | VectorSpec | LogSpec


def scaled(observations: Observations, scales: Scales | None) -> Observations:
    """The same with the scales of K trials, where policies see vectors."""
    return replace(observations, scales=scales) if isinstance(observations, VectorSpec) else observations


def of_encoder(encoder: Encoder) -> StateSpec | VectorSpec:
    """What policies see of an environment: states where there are few enough, else vectors."""
    return VectorSpec(encoder) if encoder.num_states is None else StateSpec(encoder.num_states, encoder=encoder)
