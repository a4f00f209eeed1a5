"""Softmax over items that are described by numbers, so that an item can be chosen that no training row has shown.

    score(s, a) = f(s)·g(x_a) + h(x_a),    π(a|s) = exp score(s, a) / Σ_{c ∈ C(s)} exp score(s, c)

f is a network of the state; g and h are the outputs of one network of the item's features x_a. C(s) are the candidates
of the request, where it brings some, else all items; the sum is over all of C(s), never over a sample of it.
With `embedding` each item that train rows show has numbers of its own, which are added to g(x_a) and h(x_a).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int

from moac.policies.networks import Inputs, Network, Plain, Weights, factors_of, with_constant
from moac.policies.protocols import Factor
from moac.policies.softmax import SHARP, Softmax
from moac.types import Key, Observation, Request

WIDTH = 32
"""Outputs of f and of g."""
NEVER = -1e30
"""The logit of what fills up a list of candidates; finite, so that 0 times it is 0."""
_PENALTY = 1.0


@dataclass(frozen=True)
class Items:
    """The K actions as numbers; equal where the numbers are, so that compiled programs are shared."""

    digest: str  # of the rest
    features: Float[np.ndarray, "K e"] = field(compare=False, repr=False)  # x_a
    known: Bool[np.ndarray, " K"] = field(compare=False, repr=False)  # whether train rows show the item

    @staticmethod
    def of(features: Any, known: Any = None) -> Items:
        """From features [K, e]; `known` None is all of them."""
        x = np.ascontiguousarray(features, np.float32)
        seen = np.ones(len(x), bool) if known is None else np.asarray(known, bool)
        return Items(hashlib.sha256(repr(x.shape).encode() + x.tobytes() + seen.tobytes()).hexdigest()[:16], x, seen)


@dataclass(frozen=True)
class ItemsPolicy(Softmax):
    """π over described items; θ are the layers of f, then those of g and h, then the embedding [K, WIDTH + 1]."""

    inputs: Inputs  # what f sees of a state
    hidden: tuple[int, ...]  # hidden layers, of both networks
    items: Items
    embedding: bool = True  # whether known items have numbers of their own

    @property
    def num_actions(self) -> int:
        """K."""
        return len(self.items.features)

    @cached_property
    def networks(self) -> tuple[Network, Network]:
        """f, and g with h as its last output; scores start near 0."""
        of_item = Network(Plain(self.items.features.shape[1]), self.hidden, WIDTH + 1, last_scale=0.01)
        return Network(self.inputs, self.hidden, WIDTH), of_item

    def init(self, key: Key) -> Weights:
        """Nearly uniform; embeddings are 0."""
        layers = [network.init(k) for network, k in zip(self.networks, jax.random.split(key), strict=True)]
        own = (jnp.zeros((self.num_actions, WIDTH + 1)),) if self.embedding else ()
        return (*layers[0], *layers[1], *own)

    def vectors(self, theta: Any) -> Any:
        """(g(x_a), h(x_a)) of all items [K, WIDTH + 1], with their embeddings."""
        first, last = len(self.hidden) + 1, 2 * len(self.hidden) + 2
        G = self.networks[1](theta[first:last], self.items.features)
        return G + theta[last] * self.items.known[:, None].astype(np.float32) if self.embedding else G

    def states(self, theta: Any, observation: Observation) -> Any:
        """(f(s), 1) [..., WIDTH + 1]: what the vectors of items are multiplied with."""
        return with_constant(self.networks[0](theta[: len(self.hidden) + 1], observation))

    def logits(self, theta: Any, observation: Observation) -> Any:
        """Scores of the request's candidates [..., C], `NEVER` beyond its list; without a list all [..., K]."""
        f, G = self.networks[0](theta[: len(self.hidden) + 1], observation), self.vectors(theta)
        return among(f @ G[:, :-1].T + G[:, -1], observation)

    def log_probs(self, theta: Any, observation: Observation) -> Float[Array, "... C"]:
        """log π of all that can be chosen."""
        return jax.nn.log_softmax(self.logits(theta, observation))

    def log_prob(self, theta: Any, observation: Observation, action: Any) -> Float[Array, ""]:
        """log π(a|s)."""
        return self.log_probs(theta, observation)[place(observation, action)]

    def sample(self, theta: Any, observation: Observation, key: Key) -> Int[Array, ""]:
        """a ~ π(·|s)."""
        drawn = jax.random.categorical(key, self.logits(theta, observation))
        return observation.candidates[drawn] if isinstance(observation, Request) else drawn

    def partial_factors(
        self, theta: Weights, observation: Observation, action: Any, signal: Float[Array, "B M"]
    ) -> tuple[tuple[Factor, ...], Weights]:
        """Factors of f's layers, whose outputs have the score g_a − Σ π g; sums of the score of all else.

        ∂ log π(a|s)/∂g_c = (1{c = a} − π(c|s)) f(s): each row moves all items, so that Σ_l signalⁱ_l ψ_l is formed
        for the K items, and goes through g's network once for each i.
        """
        layers, rest = theta[: len(self.hidden) + 1], theta[len(self.hidden) + 1 :]
        G, transpose = jax.vjp(lambda rest: self.vectors((*layers, *rest)), rest)
        f = self.states(theta, observation)
        logits = among(f @ G.T, observation)
        taken = jax.nn.one_hot(place(observation, action), logits.shape[-1], dtype=logits.dtype)
        e = self.of_actions(taken - jax.nn.softmax(logits), observation)
        pull = (e @ G)[:, :-1]

        def log_probs(shifts: Weights) -> tuple[Any, Any]:
            passed = self.networks[0].passed(layers, observation, shifts)
            return jnp.sum(passed.outputs * pull, axis=-1), passed

        weighted = signal[:, :, None] * f[:, None]
        sums = (weighted.reshape(len(f), -1).T @ e).reshape(*weighted.shape[1:], -1)
        (rows,) = jax.vmap(lambda own: transpose(own.T))(sums)
        return factors_of(log_probs, self.networks[0].no_shifts(layers, len(f))), rows

    def of_actions(self, values: Any, observation: Observation) -> Float[Array, "B K"]:
        """Numbers of the candidates [B, C] as numbers of all actions, 0 where an action is no candidate."""
        if not isinstance(observation, Request):
            return values
        listed, (B, K) = observation.candidates, (len(values), self.num_actions)
        place_in_all = jnp.arange(B)[:, None] * K + jnp.maximum(listed, 0)
        flat = jnp.zeros(B * K, values.dtype).at[place_in_all.ravel()]
        return flat.add(jnp.where(listed >= 0, values, 0).ravel(), mode="promise_in_bounds").reshape(B, K)

    def last_layer(self, theta: Any, observation: Observation) -> tuple[Any, Any]:
        """What embeddings are multiplied with [..., WIDTH + 1], and π(·|s) of all actions [..., K]."""
        p = jnp.exp(self.log_probs(theta, observation))
        return self.states(theta, observation), self.of_actions(p, observation)

    def tempered(self, theta: Any, T: Any) -> Weights:
        """θ of softmax(score / T): scores are linear in g's last layer and the embedding together."""
        last = 2 * len(self.hidden) + 1
        return (*theta[:last], *(np.asarray(W / np.float32(T)) for W in theta[last:]))

    def sharpened(self, theta: Any) -> Any:
        """θ of nearly the greedy policy."""
        return self.tempered(theta, 1 / SHARP)

    def popular(self, theta: Any, log_share: Float[np.ndarray, " K"]) -> Weights:
        """θ whose h is the log-popularity of known items, as far as features tell it; embeddings add the rest.

        h's part of the last layer is fitted by ridge regression on known items.
        """
        at, known = 2 * len(self.hidden) + 1, self.items.known
        last = np.array(theta[at])
        passed = self.networks[1].passed(theta[len(self.hidden) + 1 : at + 1], jnp.asarray(self.items.features))
        u = np.asarray(with_constant(passed.inputs[-1]), np.float64)
        penalty = _PENALTY * np.diag([*np.ones(u.shape[1] - 1), 1e-6])
        last[:, -1] = np.linalg.solve(u[known].T @ u[known] + penalty, u[known].T @ log_share[known])
        started = (*theta[:at], jnp.asarray(last), *theta[at + 1 :])
        return self.shifted(started, log_share - u @ last[:, -1])[1] if self.embedding else started

    def shifted(self, theta: Any, bias: Float[np.ndarray, " K"]) -> tuple[ItemsPolicy, Weights]:
        """The policy with a number of its own added to the score of each known item."""
        own = np.array(theta[-1]) if self.embedding else np.zeros((self.num_actions, WIDTH + 1), np.float32)
        own[:, -1] += np.where(self.items.known, bias, 0).astype(np.float32)
        layers = theta[: 2 * len(self.hidden) + 2]
        return replace(self, embedding=True), (*layers, jnp.asarray(own))


def among(scores: Any, observation: Observation) -> Any:
    """Scores of all items [..., K] as those of the request's candidates [..., C]; as they are without a list."""
    if not isinstance(observation, Request):
        return scores
    listed, xp = observation.candidates, scores.__array_namespace__()
    return xp.where(listed >= 0, xp.take_along_axis(scores, xp.maximum(listed, 0), axis=-1), np.float32(NEVER))


def place(observation: Observation, action: Any) -> Any:
    """Where an action stands among what can be chosen: its position in the request's list, or itself."""
    if not isinstance(observation, Request):
        return action
    return (observation.candidates == action[..., None]).argmax(axis=-1)
