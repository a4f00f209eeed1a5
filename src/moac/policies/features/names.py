"""The features that a configuration names."""

from __future__ import annotations

from moac.policies.features.states import Features, OneHot, random_table
from moac.policies.features.vectors import RBF, Basis, Fourier, Plain, Raw, Tile
from moac.types import Key, Spec


def by_name(name: str, spec: Spec, key: Key) -> Features | Basis:
    """The features that `Config.features` names, for states or for vectors."""
    return of_vectors(name, spec.observation_size) if spec.num_states is None else of_states(name, spec, key)


def of_states(name: str, spec: Spec, key: Key) -> Features:
    """The features of that name for states."""
    kind, _, size = name.partition(":")
    if spec.num_states is None:
        raise ValueError(f"`features` must be those of vectors for {spec.name}, got {name!r}.")
    if kind == "one-hot":
        return OneHot(spec.num_states)
    if kind == "one-hot-reference":
        if spec.num_states < 2:
            raise ValueError("`features` must be one-hot for a model of one state, got 'one-hot-reference'.")
        return OneHot(spec.num_states, spec.reference_state)
    if kind == "random":
        return random_table(key, spec.num_states, int(size))
    raise ValueError(f"`features` must be one-hot, one-hot-reference or random:<d> for states, got {name!r}.")


def of_vectors(name: str, num_inputs: int) -> Basis:
    """The features of that name for vectors of d numbers."""
    kind, _, size = name.partition(":")
    if kind == "tile":
        return Tile(num_inputs, tiles=int(size or Tile.tiles))
    if kind == "fourier":
        return Fourier(num_inputs, int(size))
    if kind == "rbf":
        return RBF(num_inputs, int(size))
    if kind == "raw":
        return Raw(num_inputs)
    if kind == "plain":
        return Plain(num_inputs)
    raise ValueError(f"`features` must be tile, fourier:<order>, rbf:<n>, raw or plain for vectors, got {name!r}.")
