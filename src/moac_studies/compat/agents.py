"""The published learners: a deterministic actor of ranks, a critic per signal, and a behaviour model of all ranks."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jaxtyping import Float

from moac_studies.compat.buffers import Buffer

GAMMA, TAU, BATCH, BC_BATCH, STAGE_TWO_WIDTH = 0.99, 0.001, 512, 64, 30.0


class Recipe(NamedTuple):
    """What the three learners differ in; numbers, so that one compiled program serves them all.

    Attributes:
        weights: [M] of the signals.
        supervised: coefficient of MSE(μ, mean action of the batch).
        held: coefficient of MSE(μ, μ_c) to the policy of stage one; where positive, Q is also weighted by its density.
        eta: step of the weights; 0 leaves them.
    """

    weights: Any
    supervised: Any
    held: Any
    eta: Any


class Agent(NamedTuple):
    """Networks as lists of matrices with biases in the last row, targets, Adam's moments, and the weights."""

    actor: Any
    critics: Any
    actor_target: Any
    critics_target: Any
    moments: Any
    weights: Any


def dense(W: Any, x: Any) -> Any:
    """Wᵀ(x, 1)."""
    return x @ W[:-1] + W[-1]


def layers(key: Any, sizes: tuple[int, ...]) -> list[Any]:
    """Uniform in ±1/√inputs, biases too."""
    pairs = list(pairwise(sizes))
    keys = jax.random.split(key, len(pairs))
    return [
        jax.random.uniform(k, (n + 1, m), jnp.float32, -1, 1) / n**0.5 for k, (n, m) in zip(keys, pairs, strict=True)
    ]


def mu(actor: Any, x: Float[Array, "B F"], K: int) -> Float[Array, " B"]:
    """K·sigmoid of a network with 32 hidden units."""
    return K * jax.nn.sigmoid(dense(actor[1], jax.nn.relu(dense(actor[0], x)))[:, 0])


def values(critics: Any, x: Float[Array, "B F"], a: Float[Array, " B"]) -> Float[Array, "B M"]:
    """Q_i(s, a); the action joins after the first layer. Networks have a leading axis M."""

    def one(W: Any) -> Any:
        joined = jnp.concatenate([jax.nn.relu(dense(W[0], x)), a[:, None]], axis=1)
        return dense(W[2], jax.nn.relu(dense(W[1], joined)))[:, 0]

    return jax.vmap(one, out_axes=1)(critics)


def clone_logits(clone: Any, x: Float[Array, "B F"]) -> Float[Array, "B K"]:
    """Of ranks."""
    for W in clone[:-1]:
        x = jax.nn.relu(dense(W, x))
    return dense(clone[-1], x)


def start(key: Any, buffer: Buffer, weights: Any) -> Agent:
    """Random networks; targets equal to them."""
    inputs, M = buffer.mean.shape[0], buffer.reward.shape[1]
    key_actor, key_critics = jax.random.split(key)
    actor = layers(key_actor, (inputs, 32, 1))
    first = jax.vmap(lambda k: layers(k, (inputs, 32)))(jax.random.split(key_critics, M))
    rest = jax.vmap(lambda k: layers(k, (33, 32, 1)))(jax.random.split(jax.random.fold_in(key_critics, 1), M))
    critics = [*first, *rest]
    moments = (optax.adam(1e-4).init(actor), _critic_steps().init(critics))
    return Agent(actor, critics, actor, critics, moments, weights)


def step(recipe: Recipe, fixed: Any, buffer: Buffer, agent: Agent, key: Any) -> Agent:
    """Critics, weights, actor, targets; `fixed` is the actor of stage one."""
    rows = buffer.rows[jax.random.randint(key, (BATCH,), 0, len(buffer.rows))]
    x, a, K = buffer.states(rows), buffer.rank[rows].astype(jnp.float32), len(buffer.videos)
    after, alive = buffer.following(rows)
    y = buffer.reward[rows] + GAMMA * alive.mean() * values(
        agent.critics_target, after, mu(agent.actor_target, after, K)
    )
    loss = lambda critics: jnp.sum(jnp.mean((values(critics, x, a) - y) ** 2, axis=0))  # noqa: E731
    change, critic_moments = _critic_steps().update(jax.grad(loss)(agent.critics), agent.moments[1], agent.critics)
    critics = optax.apply_updates(agent.critics, change)

    def worth(actor: Any) -> Float[Array, "B M"]:
        return values(critics, x, mu(actor, x, K))

    w = jax.lax.cond(recipe.eta > 0, lambda: _moved(recipe.eta, agent, worth), lambda: agent.weights)
    pinned = mu(fixed, x, K)

    def actor_loss(actor: Any) -> Any:
        own = mu(actor, x, K)
        density = jax.scipy.stats.norm.pdf(jax.lax.stop_gradient(own), pinned, STAGE_TWO_WIDTH)
        rho = jnp.where(recipe.held > 0, jnp.clip(density, 0, 1), 1.0)
        near = recipe.supervised * jnp.mean((own - a.mean()) ** 2) + recipe.held * jnp.mean((own - pinned) ** 2)
        return near - jnp.mean(rho * (worth(actor) @ w))

    change, actor_moments = optax.adam(1e-4).update(jax.grad(actor_loss)(agent.actor), agent.moments[0])
    actor = optax.apply_updates(agent.actor, change)
    targets = [
        optax.incremental_update(new, old, TAU)
        for new, old in ((actor, agent.actor_target), (critics, agent.critics_target))
    ]
    return Agent(actor, critics, targets[0], targets[1], (actor_moments, critic_moments), w)


def _moved(eta: Any, agent: Agent, worth: Any) -> Any:
    """w ← max(0, w − η clip(⟨g, g_i⟩, ±1000)), g = Σ w_j g_j, divided by its sum."""
    G = jax.jacrev(lambda actor: -jnp.mean(worth(actor), axis=0))(agent.actor)
    flat = jnp.concatenate([layer.reshape(len(layer), -1) for layer in G], axis=1)
    w = jnp.maximum(0, agent.weights - eta * jnp.clip(flat @ (agent.weights @ flat), -1000, 1000))
    return jnp.where(w.sum() > 0, w, agent.weights) / jnp.where(w.sum() > 0, w, agent.weights).sum()


def clone_step(buffer: Buffer, state: tuple[Any, Any], key: Any) -> tuple[Any, Any]:
    """A step of Adam on the cross-entropy of the rows' ranks."""
    rows = buffer.rows[jax.random.randint(key, (BC_BATCH,), 0, len(buffer.rows))]
    x, target = buffer.states(rows), buffer.rank[rows]
    entropy = lambda W: optax.softmax_cross_entropy_with_integer_labels(clone_logits(W, x), target).mean()  # noqa: E731
    change, moments = optax.adam(1e-4).update(jax.grad(entropy)(state[0]), state[1])
    return optax.apply_updates(state[0], change), moments


def _critic_steps() -> optax.GradientTransformation:
    """Adam with L2 added to the gradient."""
    return optax.chain(optax.add_decayed_weights(1e-2), optax.adam(1e-3))
