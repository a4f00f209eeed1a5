"""Per-objective policy gradients gⁱ = (1/B) Σ_l δⁱ_l ψ_l, seen by the rule as their Gram matrix.

For a layer of a network with inputs x_l and signals Δ_l the score ψ_l is x_l ⊗ Δ_l, and the layer's part of the matrix

    ⟨gⁱ, gʲ⟩ = Σ_{l,l'} δⁱ_l δʲ_l' (x_l·x_l') (Δ_l·Δ_l') = (δᵀ [(X Xᵀ) ∘ (Δ Δᵀ)] δ)_ij

costs hardly more for many objectives than for one. Where batches are large or layers small, the M gradients themselves
cost less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from moac.policies import Accumulating, Factor, Factored, PartlyFactored
from moac.types import Batch, Params, Policy

_STRIP = 128
"""Rows of the B×B kernel are formed this many at a time, each strip from its diagonal to the right."""
_MANY, _FEW_BLOCK, _MANY_BLOCK = 8, 256, 64
"""Objectives from which on matrix products give K faster than a sum for each pair, and the blocks of both."""


@dataclass(frozen=True)
class Gradients:
    """The gradients of all objectives; they are formed only where that is cheaper than their products."""

    gram: Float[Array, "M M"]  # K [M, M] of the scaled gradients
    scale: Float[Array, " M"]  # [M], what each is multiplied by: 1, or 1/‖gⁱ‖ where gradients are normalised
    mix: Callable[[Float[Array, " M"]], Params]  # weights [M] ↦ their sum Σ weightᵢ gⁱ, a pytree like θ
    # G₁G₂ᵀ of two halves of the batch, scaled; None where the rule does not need it
    cross: Float[Array, "M M"] | None = None

    def direction(self, lam: Float[Array, " M"]) -> Params:
        """Σ λᵢ gⁱ, scaled."""
        return self.mix(lam * self.scale)


def gradients(
    policy: Policy,
    theta: Params,
    batch: Batch,
    delta: Float[Array, "B M"],
    normalise: str = "none",
    first: Bool[np.ndarray, " B"] | None = None,
) -> Gradients:
    """gⁱ of every objective: summed by the policy, from its factors, or by M vector-Jacobian products.

    With `first`, the rows of the first of two halves, also the products of one half's gradients with the other's.
    """
    weights = delta / len(delta)
    given = policy, theta, batch, weights
    g = of_samples(*given) if first is None else of_halves(*given, first)
    if normalise == "none":
        return g
    norm = jnp.sqrt(jnp.diagonal(g.gram))
    scale = jnp.where(norm > 0, 1 / jnp.where(norm > 0, norm, 1), 1)
    both = scale[:, None] * scale
    return replace(g, gram=both * g.gram, scale=scale, cross=None if g.cross is None else both * g.cross)


def first_half(batch_size: int, num_chains: int) -> Bool[np.ndarray, " B"]:
    """The rows of the first of two batches, for a rule that needs two: half the chains, or the earlier half of time.

    Chains are independent of each other; two halves of one chain nearly are, where it mixes fast beside B/2.
    """
    if batch_size < 2:
        raise ValueError(f"`actor_batch_size` must be at least 2 for a rule of two batches, got {batch_size}.")
    row = np.arange(batch_size)
    return row % num_chains < num_chains // 2 if num_chains % 2 == 0 else row < batch_size // 2


def of_samples(policy: Policy, theta: Params, batch: Batch, weights: Float[Array, "B M"]) -> Gradients:
    """Σ_l weightⁱ_l ψ_l, in the way that the policy allows."""
    if isinstance(policy, Accumulating):
        return of_rows(policy.accumulate(theta, batch.observation, batch.action, weights))
    if isinstance(policy, PartlyFactored):
        return of_parts(policy, theta, batch, weights)
    if isinstance(policy, Factored):
        return of_factors(policy, theta, batch, weights)
    return of_products(policy, theta, batch, weights)


def of_halves(
    policy: Policy, theta: Params, batch: Batch, weights: Float[Array, "B M"], first: Bool[np.ndarray, " B"]
) -> Gradients:
    """g = s g₁ + (1 − s) g₂, with s the first half's share, as 2M gradients: each half's weights are 0 on the other."""
    M, s = weights.shape[1], float(np.mean(first))
    halves = (jnp.where(half[:, None], weights, 0) for half in (first, ~first))
    both = of_samples(policy, theta, batch, jnp.concatenate([*halves], axis=1))
    blocks = both.gram.reshape(2, M, 2, M)

    def mix(weight: Float[Array, " M"]) -> Params:
        return both.mix(jnp.concatenate([weight, weight]))

    K = jnp.sum(blocks, axis=(0, 2))
    return Gradients(K, jnp.ones(M, K.dtype), mix, blocks[0, :, 1] / (s * (1 - s)))


def of_rows(rows: tuple[Params, ...]) -> Gradients:
    """From the gradients themselves, each a pytree like θ."""

    def mix(weight: Float[Array, " M"]) -> Params:
        return jax.tree.map(lambda *g: sum(weight[i] * g[i] for i in range(len(g))), *rows)

    K = products(rows)
    return Gradients(K, jnp.ones(len(rows), K.dtype), mix)


def of_factors(policy: Factored, theta: Params, batch: Batch, weights: Float[Array, "B M"]) -> Gradients:
    """From one forward and one backward pass, whatever M."""
    leaves, structure = jax.tree.flatten(theta)
    K, mix = of_layers(policy.factors(theta, batch.observation, batch.action), leaves, weights)
    return Gradients(K, jnp.ones(len(K), K.dtype), lambda weight: jax.tree.unflatten(structure, mix(weight)))


def of_parts(policy: PartlyFactored, theta: Params, batch: Batch, weights: Float[Array, "B M"]) -> Gradients:
    """The first leaves of θ by their factors; of the others the gradients themselves, by vector-Jacobian products."""
    factors, rows = policy.partial_factors(theta, batch.observation, batch.action, weights)
    flat = [leaf.reshape(len(leaf), -1) for leaf in rows]
    first, mix_first = of_layers(factors, theta[: len(factors)], weights)

    def mix(weight: Float[Array, " M"]) -> Params:
        return (*mix_first(weight), *(jnp.tensordot(weight, leaf, 1) for leaf in rows))

    K = first + sum(leaf @ leaf.T for leaf in flat)
    return Gradients(K, jnp.ones(len(K), K.dtype), mix)


def of_layers(
    factors: Sequence[Factor], leaves: Sequence[Array], weights: Float[Array, "B M"]
) -> tuple[Float[Array, "M M"], Callable[[Float[Array, " M"]], list[Array]]]:
    """K, each layer in the way that costs it less, and the function that sums its gradients by objectives' weights.

    A layer whose gradients were formed for K sums those; the others make the one sum from their factors.
    """
    cheaper = [kernel_is_cheaper(factor, weights.shape[1]) for factor in factors]
    kernels = tuple(factor for factor, yes in zip(factors, cheaper, strict=True) if yes)
    formed = [None if yes else layer_gradients(factor, weights) for factor, yes in zip(factors, cheaper, strict=True)]
    K = gram_by_gradients([G for G in formed if G is not None]) + (gram_by_kernel(kernels, weights) if kernels else 0)

    def mix(weight: Float[Array, " M"]) -> list[Array]:
        signal = weights @ weight
        return [
            outer(factor, signal, len(leaf)) if G is None or is_index(factor) else jnp.einsum("i,dik->dk", weight, G)
            for factor, G, leaf in zip(factors, formed, leaves, strict=True)
        ]

    return K, mix


def of_products(policy: Policy, theta: Params, batch: Batch, weights: Float[Array, "B M"]) -> Gradients:
    """From M vector-Jacobian products of log π: all that a policy of three functions allows."""
    log_prob = jax.vmap(policy.log_prob, in_axes=(None, 0, 0))
    _, transpose = jax.vjp(lambda theta: log_prob(theta, batch.observation, batch.action), theta)
    return of_rows(tuple(transpose(column)[0] for column in weights.T))


def products(rows: tuple[Params, ...]) -> Float[Array, "M M"]:
    """K_ij = ⟨gⁱ, gʲ⟩, summed in blocks, so that rounding does not grow with the number of parameters.

    Of few objectives pair by pair, each block as a product with ones: XLA's batched product of such thin matrices is
    slower, and so are its sums.
    """
    G = jnp.stack([jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(row)]) for row in rows])
    M, P = G.shape
    size = min(P, _FEW_BLOCK if M < _MANY else _MANY_BLOCK)
    G = jnp.pad(G, ((0, 0), (0, -P % size))).reshape(M, -1, size)
    if M >= _MANY:
        return jnp.sum(jnp.einsum("ikp,jkp->kij", G, G), axis=0)
    i, j = np.triu_indices(M)
    pairs = jnp.sum((G[i] * G[j]) @ jnp.ones(size, G.dtype), axis=1)
    place = np.zeros((M, M), int)
    place[i, j] = place[j, i] = np.arange(len(i))
    return pairs[place]


def kernel_is_cheaper(factor: Factor, num_objectives: int) -> bool:
    """Whether ⅔ B (d + k) < (M − 1) d k: half of two B×B products, against M gradients of size d×k.

    One gradient is what the direction would cost anyway. Products of thin strips take a third longer than their count.
    """
    B, k = factor.signal.shape
    d = 1 if is_index(factor) else factor.inputs.shape[1]
    return 2 * B * (d + k) < 3 * (num_objectives - 1) * d * k


def gram_by_kernel(factors: tuple[Factor, ...], delta: Float[Array, "B M"]) -> Float[Array, "M M"]:
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


def gram_by_gradients(formed: Sequence[Float[Array, "d M k"]]) -> Float[Array, "M M"]:
    """The sum over layers of the products of their M gradients."""
    return sum((jnp.einsum("dik,djk->ij", G, G) for G in formed), jnp.zeros(()))


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


def layer_gradients(factor: Factor, weights: Float[Array, "B M"]) -> Float[Array, "d M k"]:
    """The layer's M gradients, formed by one product, or one scatter where inputs are indices."""
    B, M = weights.shape
    signals = (weights[:, :, None] * factor.signal[:, None, :]).reshape(B, -1)
    if is_index(factor):  # rows that nobody visits are zero: the visits' own order serves as well as the states'
        _, place = jnp.unique(factor.inputs, size=B, return_inverse=True)
        G = jnp.zeros_like(signals).at[place].add(signals, mode="promise_in_bounds")
    else:
        G = factor.inputs.T @ signals
    return G.reshape(len(G), M, -1)
