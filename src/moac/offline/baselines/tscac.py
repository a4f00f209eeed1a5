"""Two-stage constrained actor-critic with actions one can enumerate.

Cai et al., *Two-Stage Constrained Actor-Critic for Short Video Recommendation* (WWW 2023): the main signal is maximised
while each auxiliary signal i is kept from falling.

*Stage one.* For each auxiliary signal its own critic Q_i and its own policy π_i, by the policy gradient of Q_i alone:

    ∇ (1/B) Σ_s Σ_a π_i(a|s) Q_i(s, a) + behaviour_pull · ∇ E_b log π_i.

Summing over all actions in place of the logged one needs no importance ratio and no baseline.

*Stage two.* A critic Q of the main signal under π, and in each state

    max_π Σ_a π(a) A(a)   subject to   KL(π‖π_i) ≤ ε_i for all i,   Σ_a π(a) = 1.

With multipliers λ_i ≥ 0 of the constraints, ν of the sum, Λ = Σ λ_i and w_i = λ_i/Λ, the derivative of the Lagrangian
by π(a) is A(a) − Σ_i λ_i (log π(a) + 1 − log π_i(a)) − ν = 0, so that

    log π*(a|s) = Σ_i w_i log π_i(a|s) + A(s, a)/Λ − log Z(s),

a maximum, since the Lagrangian is concave in π. A may be Q, whose difference Σ_a π Q is in Z. λ_i are given, as in the
paper, in place of ε_i: `weights` are w_i and `multiplier` is Λ, in units of the main signal (its standard deviation
with `scale_rewards`). π* is projected onto the network by the weighted likelihood (1/B) Σ_s Σ_a π*(a|s) log π(a|s),
whose maximum has the least KL(π*‖π).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from moac.choices import one_of
from moac.logs.dataset import LoggedDataset
from moac.logs.states import Data
from moac.offline import baselines
from moac.offline.baselines import ActionValues, CriticState, Learned, Problem, descended
from moac.policies.networks import Weights
from moac.types import Key


@dataclass(frozen=True, kw_only=True)
class Options(baselines.Options):
    """How TSCAC learns; `baselines.Options` says what the others mean. `behaviour_pull` is of stage one."""

    main: str | None = None  # name of the main signal; None is the last
    auxiliary_steps: int = 500  # of stage one
    multiplier: float = 1.0  # Λ; small follows the main signal, large stays at the auxiliary policies
    weights: tuple[float, ...] | None = None  # w_i of the auxiliary signals, which sum to one; None is equal
    behaviour_pull: float = 0.3


def train(dataset: LoggedDataset, options: Options | None = None, trials: int = 1, seed: int = 0) -> Learned:
    """Learn from the rows of train users of a log with propensities.

    Its weights are the exponents w_i of the auxiliary policies, which do not move; the main signal has none: 0.
    """
    options = options or Options()
    names = dataset.signal_names
    main = names[-1] if options.main is None else one_of("main", options.main, names)
    others = len(names) - 1
    weights = options.weights or (1 / max(others, 1),) * others
    if len(weights) != others:
        raise ValueError(f"`weights` must hold one per auxiliary signal ({others}), got {len(weights)}.")
    numbers = (jnp.array(weights), jnp.float32(options.multiplier))
    learner = TSCAC(Problem.of(dataset, options), *numbers, names.index(main))
    return baselines.learn(dataset, learner, (options.auxiliary_steps, options.steps), trials, seed)


class State(NamedTuple):
    """θ, critic and Adam's moments of stage two; those of stage one, policies with a leading axis M − 1."""

    theta: Weights
    weights: Float[Array, " M"]
    critic: CriticState
    moments: Any
    auxiliary_theta: Weights
    auxiliary_critic: CriticState
    auxiliary_moments: Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TSCAC:
    """The method on one log."""

    problem: Problem
    weights: Float[Array, " m"]  # w_i of the auxiliary signals
    multiplier: Any  # Λ
    main: int = field(metadata={"static": True})  # index of the main signal

    @property
    def phases(self) -> tuple[Callable[[Data, State, Key], State], ...]:
        """The two stages."""
        return (self.first_stage, self.second_stage)

    def init(self, data: Data, key: Key) -> State:
        """All policies start alike."""
        key_policy, key_main, key_others = jax.random.split(key, 3)
        theta, optimiser = self.problem.first(data, key_policy), self.problem.optimiser
        thetas = jax.tree.map(lambda leaf: jnp.stack([leaf] * len(self.weights)), theta)
        weights = jnp.insert(self.weights, self.main, 0.0)
        first = (thetas, self._auxiliary.init(key_others), optimiser.init(thetas))
        return State(theta, weights, self._main.init(key_main), optimiser.init(theta), *first)

    def first_stage(self, data: Data, state: State, key: Key) -> State:
        """The auxiliary critics, then their policies."""
        batch = self.problem.draw(data, key)
        next_pi = jnp.exp(self._log_pis(state.auxiliary_theta, batch.next_observation))
        critic = self._auxiliary.updated(state.auxiliary_critic, batch, next_pi)
        Q = self._auxiliary(critic.w, batch.observation)

        def loss(thetas: Weights) -> Float[Array, ""]:
            log_pis = self._log_pis(thetas, batch.observation)
            gains = jnp.mean(jnp.sum(jnp.exp(log_pis) * Q, axis=2), axis=0)
            return -jnp.sum(gains + jax.vmap(self.problem.regularisation, in_axes=(1, None))(log_pis, batch))

        thetas, moments = descended(self.problem.optimiser, loss, state.auxiliary_theta, state.auxiliary_moments)
        return state._replace(auxiliary_theta=thetas, auxiliary_critic=critic, auxiliary_moments=moments)

    def second_stage(self, data: Data, state: State, key: Key) -> State:
        """The main critic, then the policy towards π*."""
        batch = self.problem.draw(data, key)
        next_pi = jnp.exp(self.problem.log_pi(state.theta, batch.next_observation))
        critic = self._main.updated(state.critic, batch, next_pi[:, None])
        log_pis, Q = self._log_pis(state.auxiliary_theta, batch.observation), self._main(critic.w, batch.observation)
        target = jnp.exp(closed_form(log_pis, Q[:, 0], self.weights, self.multiplier))

        def loss(theta: Weights) -> Float[Array, ""]:
            return -jnp.mean(jnp.sum(target * self.problem.log_pi(theta, batch.observation), axis=1))

        theta, moments = descended(self.problem.optimiser, loss, state.theta, state.moments)
        return state._replace(theta=theta, critic=critic, moments=moments)

    def _log_pis(self, thetas: Weights, x: Float[Array, "B F"]) -> Float[Array, "B m K"]:
        return jax.vmap(self.problem.log_pi, in_axes=(0, None), out_axes=1)(thetas, x)

    @property
    def _main(self) -> ActionValues:
        return ActionValues(self.problem, (self.main,))

    @property
    def _auxiliary(self) -> ActionValues:
        return ActionValues(self.problem, tuple(i for i in range(len(self.problem.scale)) if i != self.main))


def closed_form(
    log_pis: Float[Array, "B m K"], A: Float[Array, "B K"], w: Float[Array, " m"], multiplier: Any
) -> Float[Array, "B K"]:
    """log π*(a|s) = Σ_i w_i log π_i(a|s) + A(s, a)/Λ − log Z(s)."""
    return jax.nn.log_softmax(jnp.einsum("bmk,m->bk", log_pis, w) + A / multiplier)
