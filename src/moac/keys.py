"""Random keys whose hash is written out: the numbers of JAX's own `threefry2x32`, in one kernel.

On CPUs JAX's hash is a loop of kernels, which compute its rounds once for each of its two words. Written out it runs in
a third of the time, and a program that draws in several places compiles faster.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.extend.random import define_prng_impl
from jaxtyping import UInt32

from moac.types import Key

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)

Word = UInt32[Array, "..."]


def key(seed: Any) -> Key:
    """The key of a seed."""
    return jax.random.key(seed, impl=_WRITTEN_OUT)


def of_data(data: UInt32[Any, "... 2"]) -> Key:
    """The keys whose data is given: what `jax.random.key_data` has told."""
    return jax.random.wrap_key_data(jnp.asarray(data), impl=_WRITTEN_OUT)


def _hash(data: UInt32[Array, " 2"], high: Any, low: Any) -> tuple[Word, Word]:
    """Threefry-2x32 of the counter (high, low) under a key, 20 rounds (Salmon et al., 2011)."""
    words = (data[0], data[1], data[0] ^ data[1] ^ _PARITY)
    x, y = high + words[0], low + words[1]
    for group in range(5):
        for bits in _ROTATIONS[group % 2]:
            x = x + y
            y = x ^ (lax.shift_left(y, np.uint32(bits)) | lax.shift_right_logical(y, np.uint32(32 - bits)))
        x, y = x + words[(group + 1) % 3], y + words[(group + 2) % 3] + np.uint32(group + 1)
    return x, y


def _counted(data: UInt32[Array, " 2"], shape: tuple[int, ...]) -> tuple[Word, Word]:
    """The hash of the counters 0, 1, 2, … in an array of that shape."""
    if math.prod(shape) >= 2**32:
        raise ValueError(f"`shape` must have fewer than 2**32 entries, got {shape}.")
    return _hash(data, np.uint32(0), lax.iota(np.uint32, math.prod(shape)).reshape(shape))


def _seed(seed: Array) -> UInt32[Array, " 2"]:
    return jax.random.key_data(jax.random.key(seed, impl="threefry2x32"))


def _split(data: UInt32[Array, " 2"], shape: tuple[int, ...]) -> UInt32[Array, "... 2"]:
    return jnp.stack(_counted(data, shape), axis=-1)


def _fold_in(data: UInt32[Array, " 2"], number: Any) -> UInt32[Array, " 2"]:
    return jnp.stack(_hash(data, np.uint32(0), jnp.asarray(number, np.uint32)))


def _random_bits(data: UInt32[Array, " 2"], bit_width: int, shape: tuple[int, ...]) -> Array:
    high, low = _counted(data, shape)
    if bit_width == 64:
        return lax.shift_left(high.astype(np.uint64), np.uint64(32)) | low.astype(np.uint64)
    return (high ^ low).astype(f"uint{bit_width}")


_WRITTEN_OUT = define_prng_impl(
    key_shape=(2,), seed=_seed, split=_split, random_bits=_random_bits, fold_in=_fold_in,
    name="threefry2x32 written out", tag="moac",
)  # fmt: skip
