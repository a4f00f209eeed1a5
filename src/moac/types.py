"""What travels along the one road: batches, states, metrics, and the protocols of what meets there."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import jax
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int

if TYPE_CHECKING:
    from moac.policies.encoding import ActionBox
    from moac.policies.observations import Observations

Params = Any
Observation = Any
Key = Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Batch:
    """Transitions in the order of time, leading axis [B]; critic batches have [N, D].

    Attributes:
        observation: what the source sees: a state index, a vector, a pytree. Only features look inside.
        action: what was done.
        reward: [..., M].
        next_observation: the true successor, also after truncation or a forced restart. In the average setting the
            successor of a terminated transition is the restart state.
        terminated: the successor is worth 0. In the average setting always False, or None.
        age: steps since the last start; only with `visitation="discounted"`.
        behaviour_log_prob: log-probability of the action under the policy that logged it; None means on-policy.
        behaviour_log_probs: [..., A] of all actions, where a model of that policy knows them.
        weight: ρ, what the TD error is weighted by; None is 1.
    """

    observation: Observation
    action: Any
    reward: Float[Array, "... M"]
    next_observation: Observation
    terminated: Bool[Array, "..."] | None = None
    age: Int[Array, "..."] | None = None
    behaviour_log_prob: Float[Array, "..."] | None = None
    behaviour_log_probs: Float[Array, "... A"] | None = None
    weight: Float[Array, "..."] | None = None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """All that an iteration needs from the one before: with the source's chain, exactly what a checkpoint stores.

    Attributes:
        t: number of updates done.
        theta: θ, the policy's parameters.
        w: the critic's parameters.
        mu: [M] estimate of the average reward; zeros in the discounted setting.
        rule: the weighting rule's state.
        actor_optimiser: what the actor's steps remember; nothing where they are constant.
        critic_optimiser: likewise the critic's.
        spread: what the `ppo` learner knows of the spread of returns (`ppo.Spread`); () with the paper's.
        theta_random: θ_T̂, drawn uniformly from the iterates before each update.
        random_iteration: its T̂.
        key: randomness of the iterations to come.
    """

    t: Int[Array, ""]
    theta: Params
    w: Params
    mu: Float[Array, " M"]
    rule: Any
    actor_optimiser: Any
    critic_optimiser: Any
    theta_random: Params
    random_iteration: Int[Array, ""]
    key: Key
    spread: Any = ()


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Metrics:
    """What one update saw; all else that is logged of it follows from these.

    Attributes:
        gram: K [M, M], Gram matrix of the gradients gⁱ as the rule saw them.
        weights: λ_t [M].
    """

    gram: Float[Array, "M M"]
    weights: Float[Array, " M"]


@dataclass(frozen=True, eq=False)
class Spec:
    """What a source tells of itself.

    Attributes:
        name: of the problem.
        objective_names: one per objective.
        observations: what policies see: states, vectors, or the features of a log.
        num_actions: A; 0 where actions are vectors.
        reward_bound: r_max, the largest |rⁱ|; 1 where all rewards are zero or unknown.
        fingerprint: two sources with one fingerprint are the same problem.
        num_chains: chains that stand side by side in a batch.
        options: what it takes to make the source again, as plain data; None for a model.
        action_box: bounds of actions that are vectors, and how the environment takes them; None for A actions.
        no_average: why the average setting has no answer here, as a sentence; empty where it has one.
    """

    name: str
    objective_names: tuple[str, ...]
    observations: Observations
    num_actions: int
    reward_bound: float = 1.0
    fingerprint: str = ""
    num_chains: int = 1
    options: Mapping[str, Any] | None = None
    action_box: ActionBox | None = None
    no_average: str = ""

    @property
    def num_objectives(self) -> int:
        """M."""
        return len(self.objective_names)

    @property
    def conditioned(self) -> bool:
        """Whether a preference follows each observation."""
        encoder = self.observations.encoder
        return encoder is not None and encoder.preference_size > 0

    @property
    def num_states(self) -> int | None:
        """S, where policies see states; None where they see vectors."""
        return self.observations.num_states

    @property
    def observation_size(self) -> int:
        """d, where policies see vectors."""
        return self.observations.size

    @property
    def action_size(self) -> int:
        """k, where actions are vectors; 0 where they are indices."""
        return 0 if self.action_box is None else self.action_box.size


@dataclass(frozen=True)
class Sampling:
    """How much a source samples in one iteration, and how its chain goes on.

    Attributes:
        num_critic_steps: N.
        critic_batch_size: D.
        actor_batch_size: B.
        average: the successor of a terminated transition is the restart state.
        survival: c; after each step the chain restarts with probability 1 − c. None is never, and keeps no age.
        deviations: how far from their running mean vectors are scaled, in standard deviations; None is by their bounds.
    """

    num_critic_steps: int
    critic_batch_size: int
    actor_batch_size: int
    average: bool
    survival: float | None
    deviations: float | None = None

    @property
    def steps(self) -> int:
        """N·D + B."""
        return self.num_critic_steps * self.critic_batch_size + self.actor_batch_size


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What policies are worth, leading axis [K]; what a source does not know is NaN.

    Attributes:
        returns: J [K, M].
        gap: min over the simplex of ‖Σ λᵢ∇Jⁱ‖² [K].
        direction_gap: the same for Lemma 1's direction.
        regret: min over the simplex of (max_π λᵀJ(π) − λᵀJ).
        kind: `exact`, `episodes` or `ncis`.
    """

    returns: Float[np.ndarray, "K M"]
    gap: Float[np.ndarray, " K"]
    direction_gap: Float[np.ndarray, " K"]
    regret: Float[np.ndarray, " K"]
    kind: str


class Policy(Protocol):
    """A user's own policy needs these three, each for one observation."""

    def init(self, key: Key) -> Params:
        """θ_1."""
        ...

    def sample(self, theta: Params, observation: Observation, key: Key) -> Any:
        """a ~ π_θ(·|s)."""
        ...

    def log_prob(self, theta: Params, observation: Observation, action: Any) -> Float[Array, ""]:
        """log π_θ(a|s)."""
        ...


class Critic(Protocol):
    """Values of all objectives."""

    def init(self, key: Key) -> Params:
        """w_0."""
        ...

    def values(self, w: Params, observation: Observation) -> Float[Array, "... M"]:
        """V^i(s) ≈ φ(s)ᵀwⁱ, over any leading axes."""
        ...


class SourceError(ValueError):
    """A source that failed while it was sampled; what was trained before is not lost."""


class Source(Protocol):
    """Where transitions come from."""

    @property
    def spec(self) -> Spec:
        """What the source is."""
        ...

    @property
    def compiled(self) -> bool:
        """Whether `sample` can be traced and scanned together with the update."""
        ...

    @property
    def data(self) -> Any:
        """Arrays too large to be constants of the compiled program, a pytree: it takes them as an argument."""
        return ()

    def bound(self, data: Any) -> Source:
        """The source with `data` in place of its own arrays."""
        del data
        return self

    def initial(self) -> Params:
        """θ of the policy that made the data, where `start="behaviour"` asks for it."""
        raise ValueError("`start` must be random: the source knows no policy to start from.")

    def start(self, key: Key) -> Any:
        """The chain at its first state."""
        ...

    def sample(self, chain: Any, policy: Policy, theta: Params, key: Key, sizes: Sampling) -> tuple[Any, Batch, Batch]:
        """The chain after N·D + B transitions under θ, the critic's batches [N, D] and the actor's [B]."""
        ...

    def evaluate(self, policy: Policy, theta: Params, setting: Any) -> Evaluation:
        """What the policies `theta` (leading axis K) are worth."""
        ...


class Hosted(Source, Protocol):
    """A source whose `sample` runs on the host.

    Its chains cannot be stored. What they have learned can: `chain.memory`, a pytree of arrays that a new chain starts
    with when a run is continued.
    """

    def undisturbed(self) -> AbstractContextManager[None]:
        """Held while the driver samples again and again: what sampling disturbs is put back when it is left."""
        ...

    def memory(self, sizes: Sampling) -> Any:
        """What a new chain has learned: shapes and first values of `chain.memory`."""
        ...

    def start(self, key: Key, memory: Any = None) -> Any:
        """A chain in new episodes, with seeds by the key, and with what another chain has learned."""
        ...

    def evaluate(self, policy: Policy, theta: Params, setting: Any, memory: Any = None) -> Evaluation:
        """What the policies `theta` are worth, each with its chain's memory (leading axis K)."""
        ...
