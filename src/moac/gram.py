"""The Gram matrix of M gradients gⁱ = Σ_l δⁱ_l ψ_l, from factors of the scores ψ_l.

For a layer with inputs x_l and signals Δ_l the score is x_l ⊗ Δ_l, and the layer's part of the matrix is

    ⟨gⁱ, gʲ⟩ = Σ_{l,l'} δⁱ_l δʲ_l' (x_l·x_l') (Δ_l·Δ_l') = (δᵀ [(X Xᵀ) ∘ (Δ Δᵀ)] δ)_ij,

whose cost hardly depends on M. Where batches are large or layers small, the M gradients themselves cost less.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from moac.policies import Factor

_STRIP = 128
"""Rows of the B×B kernel are formed this many at a time, each strip from its diagonal to the right."""


def of_factors(factors: tuple[Factor, ...], delta: Float[Array, "B M"]) -> Float[Array, "M M"]:
    """K, each layer in the way that costs it less; `delta` holds the weights δⁱ_l / B."""
    cheaper = [kernel_is_cheaper(factor, delta.shape[1]) for factor in factors]
    kernels = tuple(factor for factor, yes in zip(factors, cheaper, strict=True) if yes)
    others = tuple(factor for factor, yes in zip(factors, cheaper, strict=True) if not yes)
    if not kernels:
        return by_gradients(others, delta)
    return by_kernel(kernels, delta) + (by_gradients(others, delta) if others else 0)


def kernel_is_cheaper(factor: Factor, num_objectives: int) -> bool:
    """Whether B (d + k)/2 < M d k: half of two B×B products, against M gradients of size d×k."""
    B, k = factor.signal.shape
    d = 1 if is_index(factor) else factor.inputs.shape[1]
    return B * (d + k) < 2 * num_objectives * d * k


def by_kernel(factors: tuple[Factor, ...], delta: Float[Array, "B M"]) -> Float[Array, "M M"]:
    """δᵀ [Σ_layers (X Xᵀ) ∘ (Δ Δᵀ)] δ. The kernel is symmetric: of each pair of samples only one half is formed."""
    B = len(delta)
    K = jnp.zeros((delta.shape[1],) * 2, delta.dtype)
    for first in range(0, B, _STRIP):
        last = min(first + _STRIP, B)
        kernel = sum(_strip(factor, first, last) for factor in factors)
        share = np.where(np.arange(first, B) < last, 0.5, 1.0).astype(
            delta.dtype
        )  # the square on the diagonal is whole
        half = delta[first:last].T @ (kernel @ (share[:, None] * delta[first:]))
        K = K + half + half.T
    return K


def by_gradients(factors: tuple[Factor, ...], delta: Float[Array, "B M"]) -> Float[Array, "M M"]:
    """The sum over layers of the products of the M gradients, formed one layer after the other."""
    return jnp.sum(jnp.stack([_of_gradients(factor, delta) for factor in factors]), axis=0)


def outer(factor: Factor, signal: Float[Array, " B"], rows: int) -> Float[Array, "d k"]:
    """Σ_l signal_l x_l ⊗ Δ_l, one gradient; `rows` is d."""
    weighted = factor.signal * signal[:, None]
    if not is_index(factor):
        return factor.inputs.T @ weighted
    empty = jnp.zeros((rows, weighted.shape[1]), weighted.dtype)
    return empty.at[factor.inputs].add(weighted, mode="promise_in_bounds")


def is_index(factor: Factor) -> bool:
    """Whether inputs are the indices of ones."""
    return jnp.issubdtype(factor.inputs.dtype, jnp.integer)


def _strip(factor: Factor, first: int, last: int) -> Float[Array, "b n"]:
    """Rows `first` to `last` of the layer's kernel, columns from `first` on."""
    x, signal = factor.inputs, factor.signal
    alike = x[first:last, None] == x[first:] if is_index(factor) else x[first:last] @ x[first:].T
    return alike * (signal[first:last] @ signal[first:].T)


def _of_gradients(factor: Factor, delta: Float[Array, "B M"]) -> Float[Array, "M M"]:
    """Products of the layer's M gradients, formed by one product, or one scatter where inputs are indices."""
    B, M = delta.shape
    signals = (delta[:, :, None] * factor.signal[:, None, :]).reshape(B, -1)
    if is_index(factor):  # rows that nobody visits are zero: the visits' own order serves as well as the states'
        _, place = jnp.unique(factor.inputs, size=B, return_inverse=True)
        G = jnp.zeros_like(signals).at[place].add(signals, mode="promise_in_bounds")
    else:
        G = factor.inputs.T @ signals
    G = G.reshape(len(G), M, -1)
    return jnp.einsum("dik,djk->ij", G, G)
