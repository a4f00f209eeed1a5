"""The learner for practice: Algorithm 2 with every rollout used several times, by PPO's clipped steps.

    λ from the gradients of all objectives on the whole rollout, once
    Ã = Σ λⁱ Aⁱ, whitened; where the networks are conditioned on preferences, λ of a sample is its own p
    for each epoch, each minibatch:
        θ ← θ + α ∇ mean [min(ρ Ã, clip(ρ, 1 ± ε) Ã) + h H(π)],   ρ = π/π_old
        w ← w − β ∇ mean ‖V − R‖²/2

PPO: Schulman et al., *Proximal policy optimization algorithms*, 2017, https://arxiv.org/abs/1707.06347. With one epoch
of one minibatch, no GAE, no whitening, raw units, no entropy and constant steps, the actor's step is that of Algorithm
2. No theorem covers more than one epoch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float, Int

from moac import actor, algorithm, beyond
from moac.algorithm import Init, Update
from moac.critic import TD
from moac.settings import Settings
from moac.types import Batch, Critic, Key, Metrics, Observation, Params, Policy, Spec, State
from moac.weighting import Rule

_FLOOR = 1e-3  # no objective's σ counts as less than this share of the largest
_ADAM_EPS = 1e-5
_LOW = np.uint32(2**16 - 1)


def build(settings: Settings, spec: Spec, policy: Policy, critic: Critic, rule: Rule) -> tuple[Init, Update]:
    """The two pure functions of the learner, with the signatures of `algorithm.build`.

    The actor's batch is the rollout, T steps of E copies side by side; the critic has no batches of its own. Its values
    are in units of σ, the spread of each objective's discounted return.
    """
    M, E = spec.num_objectives, spec.num_chains
    td = TD(critic, settings, settings.setting.discounts(M))
    half = actor.first_half(settings.actor_batch_size, E) if rule.needs.cross else None
    first, _ = algorithm.build(settings, spec, policy, critic, rule)

    def init(key: Key, preference: Any = None) -> State:
        return replace(first(key, preference), spread=Spread.unknown(E, M))

    def update(state: State, critic_batches: Batch, rollout: Batch) -> tuple[State, Metrics]:
        """One iteration: advantages and weights once, then steps."""
        del critic_batches
        key, key_random, key_order = jax.random.split(state.key, 3)
        t, on = state.t + 1, beyond.goes_on(rollout, E)

        spread = state.spread.including(rollout, on, td.gamma)
        A, R = estimates(td, state, rollout, on, spread.sigma)
        A = in_units(settings, A, spread.sigma)
        g = actor.gradients(policy, state.theta, rollout, A, settings.normalise, half)  # gⁱ = (1/B) Σ Aⁱψ

        values = partial(level_and_rewards, td, state, rollout, spread.sigma)  # for rules that look at values
        rule_state, lam, g = algorithm.rule_step(rule, state.rule, g, t, values)  # λ_t = (1 − η_t) λ_{t−1} + η_t λ̂_t
        lam = rollout.observation[:, -M:] if settings.conditioned else lam[None]  # p of each sample, or one λ for all
        samples = Samples(rollout.observation, rollout.action, weighted(settings, A, lam * g.scale), R)
        learner = Steps(settings, policy, critic, t).taken(Learner.of(state), samples, key_order)
        state = algorithm.with_random_iterate(state, t, key_random)  # T̂ uniform on {1 … t}
        state = replace(state, **vars(learner), t=t, rule=rule_state, spread=spread, key=key)
        return state, Metrics(g.gram, jnp.mean(lam, axis=0))

    return init, update


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Spread:
    """Running moments of each objective's discounted sum of rewards, Gⁱ_τ = γⁱ Gⁱ_{τ−1} + rⁱ_τ within an episode.

    Known after a few steps, where whole episodes may take many rollouts.
    """

    count: Float[Array, ""]  # sums seen
    mean: Float[Array, " M"]  # [M]
    squares: Float[Array, " M"]  # [M] sum of squared deviations (Chan, Golub and LeVeque, 1983)
    sums: Float[Array, "E M"]  # [E, M], G of every copy when the last rollout ended

    @classmethod
    def unknown(cls, num_copies: int, num_objectives: int) -> Spread:
        """Nothing seen yet."""
        zeros = jnp.zeros(num_objectives)
        return cls(jnp.zeros(()), zeros, zeros, jnp.zeros((num_copies, num_objectives)))

    @property
    def sigma(self) -> Float[Array, " M"]:
        """Standard deviations, at least `_FLOOR` of the largest; ones where nothing was ever earned."""
        sigma = jnp.sqrt(self.squares / jnp.maximum(self.count, 1))
        largest = jnp.max(sigma)
        return jnp.where(largest > 0, jnp.maximum(sigma, _FLOOR * largest), 1)

    def including(self, rollout: Batch, on: Bool[Array, "T E"], gamma: tuple[float, ...]) -> Spread:
        """After one more rollout. A copy that was cut off at its very end counts as going on: its sum soon fades."""
        reward = rollout.reward.reshape(*on.shape, -1)
        before = jnp.concatenate([jnp.ones_like(on[:1]), on[:-1]])[..., None]
        keep = jnp.where(before, jnp.asarray(gamma, reward.dtype), 0)
        sums = beyond.recurrence(keep, reward, self.sums)
        flat, n = sums.reshape(-1, reward.shape[-1]), on.size
        mean = jnp.mean(flat, axis=0)
        total, delta = self.count + n, mean - self.mean
        squares = self.squares + jnp.sum((flat - mean) ** 2, axis=0) + delta**2 * (self.count * n / total)
        ended = False if rollout.terminated is None else rollout.terminated.reshape(on.shape)[-1][:, None]
        return Spread(total, self.mean + delta * (n / total), squares, jnp.where(ended, 0, sums[-1]))


def estimates(
    td: TD, state: State, rollout: Batch, on: Bool[Array, "T E"], sigma: Float[Array, " M"]
) -> tuple[Float[Array, "B M"], Float[Array, "B M"]]:
    """Advantages A = GAE(δ) with δⁱ = rⁱ/σⁱ + γⁱ Vⁱ(s') − Vⁱ(s), and the critic's targets R = A + V, in units of σ.

    A trace is cut where an episode ends; s' is the true successor, worth 0 only where the episode terminated.
    """
    delta, _ = td.errors(state.w, state.mu, replace(rollout, reward=rollout.reward / sigma))
    A = beyond.gae(delta, on, td.gamma, td.settings.gae) if td.settings.gae > 0 else delta
    R = A + td.critic.values(state.w, rollout.observation)
    return beyond.by_age(td.settings, td.gamma, A, rollout), R


def in_units(settings: Settings, A: Float[Array, "B M"], sigma: Float[Array, " M"]) -> Float[Array, "B M"]:
    """Advantages, centred, in the units in which weights count: σ, those of the rewards, or their own spread."""
    if settings.whitening == "rollout":
        A = A - jnp.mean(A, axis=0)
    if settings.units == "raw":
        return A * sigma
    return A if settings.units == "return" else A / (jnp.std(A, axis=0) + 1e-4)


def weighted(settings: Settings, A: Float[Array, "B M"], lam: Float[Array, "#B M"]) -> Float[Array, " B"]:
    """Ã = Σ λⁱ Aⁱ, with one λ for all samples or one for each, divided by its spread."""
    mixed = jnp.sum(A * lam, axis=-1)
    return mixed / (jnp.std(mixed) + 1e-8) if settings.whitening == "rollout" else mixed


def level_and_rewards(
    td: TD, state: State, rollout: Batch, sigma: Float[Array, " M"]
) -> tuple[Float[Array, " M"], Float[Array, "B M"]]:
    """What a rule may see beside gradients, in units of the rewards."""
    return sigma * td.level(state.w, state.mu, rollout), rollout.reward


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Samples:
    """What steps are taken on."""

    observation: Observation  # s
    action: Any  # a
    advantage: Float[Array, " B"]  # Ã
    target: Float[Array, "B M"]  # R, what the critic is to predict
    old_log_prob: Float[Array, " B"] | None = None  # log π_old(a|s); None where no step is taken before it is used


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Learner:
    """What steps change: both networks, and what their optimisers remember."""

    theta: Params
    w: Params
    actor_optimiser: Any
    critic_optimiser: Any

    @classmethod
    def of(cls, state: State) -> Learner:
        """Of the state before an iteration."""
        return cls(state.theta, state.w, state.actor_optimiser, state.critic_optimiser)


@dataclass(frozen=True, eq=False)
class Steps:
    """The steps of iteration t."""

    settings: Settings
    policy: Policy
    critic: Critic
    t: Int[Array, ""]

    def taken(self, learner: Learner, samples: Samples, key: Key) -> Learner:
        """All epochs; each goes over the minibatches of a new order of the samples."""
        settings, B = self.settings, len(samples.advantage)
        if settings.epochs == 1 and settings.minibatch_size == B:  # nothing moves before it is used: ρ = 1
            return self.step(learner, samples)
        old = self.log_prob(learner.theta, samples.observation, samples.action)
        samples = replace(samples, old_log_prob=old)
        orders = jax.vmap(lambda key: permutation(key, B))(jax.random.split(key, settings.epochs))

        def minibatch(learner: Learner, index: Int[Array, " b"]) -> tuple[Learner, None]:
            return self.step(learner, jax.tree.map(lambda x: x[index], samples)), None

        return lax.scan(minibatch, learner, orders.reshape(-1, settings.minibatch_size))[0]

    def step(self, learner: Learner, samples: Samples) -> Learner:
        """One step of θ and one of w on the same minibatch."""
        settings, left = self.settings, self.left()
        clip = settings.gradient_clip
        actor_steps = beyond.steps(settings.optimiser, settings.actor_step_size * left, clip, _ADAM_EPS)
        critic_steps = beyond.steps(settings.critic_optimiser, settings.critic_step_size * left, clip, _ADAM_EPS)
        ascent = jax.grad(self.objective)(learner.theta, samples)
        descent = jax.grad(self.critic_objective)(learner.w, samples)
        up, actor_optimiser = actor_steps.update(ascent, learner.actor_optimiser)
        down, critic_optimiser = critic_steps.update(descent, learner.critic_optimiser)
        theta, w = jax.tree.map(jnp.add, (learner.theta, learner.w), (up, down))
        return Learner(theta, w, actor_optimiser, critic_optimiser)

    def objective(self, theta: Params, samples: Samples) -> Array:
        """mean [min(ρ Ã, clip(ρ, 1 ± ε) Ã) + h H(π)] (equation 7 of PPO); mean Ã log π where ρ = 1."""
        settings, A = self.settings, samples.advantage
        log_pi = self.log_prob(theta, samples.observation, samples.action)
        if samples.old_log_prob is None:
            gain = jnp.mean(A * log_pi)
        else:
            rho, epsilon = jnp.exp(log_pi - samples.old_log_prob), settings.ratio_clip
            gain = jnp.mean(jnp.minimum(rho * A, jnp.clip(rho, 1 - epsilon, 1 + epsilon) * A))
        if settings.entropy is None:
            return gain
        h = settings.entropy * self.left()
        return gain + h * beyond.entropy(self.policy, theta, samples.observation, samples.action)

    def critic_objective(self, w: Params, samples: Samples) -> Array:
        """−mean ‖V − R‖²/2."""
        error = samples.target - self.critic.values(w, samples.observation)
        return -jnp.mean(jnp.sum(error**2, axis=-1)) / 2

    def log_prob(self, theta: Params, observation: Observation, action: Any) -> Float[Array, " B"]:
        """log π(a|s) of each sample."""
        return jax.vmap(self.policy.log_prob, in_axes=(None, 0, 0))(theta, observation, action)

    def left(self) -> Any:
        """The share of the step sizes and of the entropy that iteration t has: 1, or 1 − (t − 1)/T."""
        if self.settings.schedule == "constant":
            return 1
        return 1 - (self.t - 1.0) / self.settings.num_iterations


def permutation(key: Key, size: int) -> Int[Array, " B"]:
    """What `jax.random.permutation(key, size)` gives, from sorts of single arrays: XLA sorts pairs five times slower.

    Of the 32 random bits that things are sorted by, 16 are sorted at a time, with the place in the other 16.
    """
    if size > 2**16:
        return jax.random.permutation(key, size)
    place = order = jnp.arange(size, dtype=jnp.uint32)
    for _ in range(math.ceil(3 * math.log(size) / math.log(2**32 - 1))):
        key, key_bits = jax.random.split(key)
        bits = jax.random.bits(key_bits, (size,), jnp.uint32)
        by_low = lax.sort(bits << 16 | place) & _LOW
        order = order[by_low[lax.sort(bits[by_low] & ~_LOW | place) & _LOW]]
    return order.astype(int)
