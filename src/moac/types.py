"""What travels along the one road: batches, states, metrics, and the protocols of what meets there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int

from moac.arguments import Kind

if TYPE_CHECKING:
    from moac.policies.encoding import ActionBox
    from moac.policies.observations import Observations

Params = Any
Observation = Any


def _is_key(value: Any) -> bool:
    """Whether a value is one of JAX's keys, typed or in its raw form of two whole numbers."""
    if not isinstance(value, jax.Array | np.ndarray):
        return False
    typed = jnp.issubdtype(value.dtype, jax.dtypes.prng_key) and value.shape == ()
    return typed or (value.dtype == np.uint32 and value.shape == (2,))


Key = Annotated[Any, Kind("a key such as jax.random.key(0)", _is_key)]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Batch:
    """Transitions in the order of time, leading axis [B]; critic batches have [N, D]."""

    observation: Observation  # what the source sees: a state index, a vector, a pytree. Only features look inside.
    action: Any  # what was done
    reward: Float[Array, "... M"]  # [..., M]
    # the true successor, also after truncation or a forced restart. In the average setting the successor of a
    # terminated transition is the restart state.
    next_observation: Observation
    # the successor is worth 0. In the average setting always False, or None.
    terminated: Bool[Array, "..."] | None = None
    age: Int[Array, "..."] | None = None  # steps since the last start; only with `visitation="discounted"`
    # log-probability of the action under the policy that logged it; None means on-policy
    behaviour_log_prob: Float[Array, "..."] | None = None
    # [..., A] of all actions, where a model of that policy knows them
    behaviour_log_probs: Float[Array, "... A"] | None = None
    weight: Float[Array, "..."] | None = None  # ρ, what the TD error is weighted by; None is 1


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Request:
    """An observation on a log whose requests bring their own candidates."""

    x: Float[Array, "... F"]  # the feature vector
    candidates: Int[Array, "... C"]  # indices of the actions that can be chosen; −1 fills up shorter lists


def vectors(observation: Observation) -> Any:
    """The feature vectors of observations, with or without candidates."""
    return observation.x if isinstance(observation, Request) else observation


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """All that an iteration needs from the one before: with the source's chain, exactly what a checkpoint stores."""

    t: Int[Array, ""]  # number of updates done
    theta: Params  # θ, the policy's parameters
    w: Params  # the critic's parameters
    mu: Float[Array, " M"]  # [M] estimate of the average reward; zeros in the discounted setting
    rule: Any  # the weighting rule's state
    actor_optimiser: Any  # what the actor's steps remember; nothing where they are constant
    critic_optimiser: Any  # likewise the critic's
    theta_random: Params  # θ_T̂, drawn uniformly from the iterates before each update
    random_iteration: Int[Array, ""]  # its T̂
    key: Key  # randomness of the iterations to come
    spread: Any = ()  # what the `ppo` learner knows of the spread of returns (`ppo.Spread`); () with the paper's


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Metrics:
    """What one update saw; all else that is logged of it follows from these."""

    gram: Float[Array, "M M"]  # K [M, M], Gram matrix of the gradients gⁱ as the rule saw them
    weights: Float[Array, " M"]  # λ_t [M]


@dataclass(frozen=True, eq=False)
class Spec:
    """What a source tells of itself."""

    name: str  # of the problem
    objective_names: tuple[str, ...]  # one per objective
    observations: Observations  # what policies see: states, vectors, or the features of a log
    num_actions: int  # A; 0 where actions are vectors
    reward_bound: float = 1.0  # r_max, the largest |rⁱ|; 1 where all rewards are zero or unknown
    fingerprint: str = ""  # two sources with one fingerprint are the same problem
    num_chains: int = 1  # chains that stand side by side in a batch
    options: Mapping[str, Any] | None = None  # what it takes to make the source again, as plain data; None for a model
    # bounds of actions that are vectors, and how the environment takes them; None for A actions
    action_box: ActionBox | None = None
    no_average: str = ""  # why the average setting has no answer here, as a sentence; empty where it has one

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
    """How much a source samples in one iteration, and how its chain goes on."""

    num_critic_steps: int  # N
    critic_batch_size: int  # D
    actor_batch_size: int  # B
    average: bool  # the successor of a terminated transition is the restart state
    # c; after each step the chain restarts with probability 1 − c. None is never, and keeps no age.
    survival: float | None
    # how far from their running mean vectors are scaled, in standard deviations; None is by their bounds
    deviations: float | None = None

    @property
    def steps(self) -> int:
        """N·D + B."""
        return self.num_critic_steps * self.critic_batch_size + self.actor_batch_size

    def split(self, rollout: Batch) -> tuple[Batch, Batch]:
        """A rollout [n, T] to the critic's batches [N, D] and the actor's [B]: time first, chains side by side."""
        N, D = self.num_critic_steps, self.critic_batch_size
        flat = jax.tree.map(lambda x: x.swapaxes(0, 1).reshape(-1, *x.shape[2:]), rollout)
        critic = jax.tree.map(lambda x: x[: N * D].reshape(N, D, *x.shape[1:]), flat)
        return critic, jax.tree.map(lambda x: x[N * D :], flat)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What policies are worth, leading axis [K]; what a source does not know is NaN."""

    returns: Float[np.ndarray, "K M"]  # J [K, M]
    gap: Float[np.ndarray, " K"]  # min over the simplex of ‖Σ λᵢ∇Jⁱ‖² [K]
    direction_gap: Float[np.ndarray, " K"]  # the same for Lemma 1's direction
    regret: Float[np.ndarray, " K"]  # min over the simplex of (max_π λᵀJ(π) − λᵀJ)
    kind: str  # `exact`, `episodes` or `ncis`
    steps: int = 0  # environment steps that it took
    longest_episode: int = 0  # of those that it played


@dataclass(frozen=True)
class Allowance:
    """Environment steps that one evaluation may take."""

    steps: float
    # whether there must be values even where not one episode may fit: then each policy plays a single one
    required: bool
    longest_episode: int = 0  # that evaluations of the run have played so far; 0 before the first
    typical_episode: float = 0.0  # mean number of steps of the episodes in training; 0 where it is not known


@runtime_checkable
class Policy(Protocol):
    """A user's own policy needs these three, each for one observation."""

    def init(self, key: Key) -> Params:
        """θ_1."""

    def sample(self, theta: Params, observation: Observation, key: Key) -> Any:
        """a ~ π_θ(·|s)."""

    def log_prob(self, theta: Params, observation: Observation, action: Any) -> Float[Array, ""]:
        """log π_θ(a|s)."""
        ...


@runtime_checkable
class Critic(Protocol):
    """Values of all objectives."""

    def init(self, key: Key) -> Params:
        """w_0."""

    def values(self, w: Params, observation: Observation) -> Float[Array, "... M"]:
        """V^i(s) ≈ φ(s)ᵀwⁱ, over any leading axes."""
        ...


class SourceError(ValueError):
    """A source that failed while it was sampled; what was trained before is not lost."""


class Drawn(Protocol):
    """A source of samples inside a compiled program."""

    def initial(self) -> Params:
        """θ of the policy that made the data, where `start="behaviour"` asks for it."""
        raise ValueError("`start` must be random: the source knows no policy to start from.")

    def start(self, key: Key) -> Any:
        """The chain at its first state."""

    def sample(self, chain: Any, policy: Policy, theta: Params, key: Key, sizes: Sampling) -> tuple[Any, Batch, Batch]:
        """The chain after N·D + B transitions under θ, the critic's batches [N, D] and the actor's [B]."""
        ...


class Shape(Protocol):
    """The sizes of sources, hashable: all that a program knows of the source that it takes as an argument."""

    @property
    def spec(self) -> Spec:
        """A description of these sizes."""
        ...

    def bound(self, data: Any) -> Drawn:
        """The source that has these arrays."""
        ...


class Source(Drawn, Protocol):
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

    @property
    def shape(self) -> Shape | None:
        """The sizes that programs are compiled for: sources that share them share programs. None where none do."""
        return None

    def bound(self, data: Any) -> Drawn:
        """The source with `data` in place of its own arrays."""
        del data
        return self

    def evaluate(self, policy: Policy, theta: Params, setting: Any) -> Evaluation:
        """What the policies `theta` (leading axis K) are worth."""
        ...


@runtime_checkable
class Preparing(Protocol):
    """A source that can import and compile ahead what `evaluate` needs."""

    def prepare(self, policy: Policy, setting: Any) -> None:
        """Called while the training program compiles."""


class Hosted(Source, Protocol):
    """A source whose `sample` runs on the host.

    Its chains cannot be stored. What they have learned can: `chain.memory`, a pytree of arrays that a new chain starts
    with when a run is continued.
    """

    def rollout(self, chain: Any, policy: Policy, theta: Params, key: Key, sizes: Sampling) -> tuple[Any, Batch]:
        """The chain after N·D + B transitions under θ, and these [n, T]: the compiled update splits them."""
        ...

    def sample(self, chain: Any, policy: Policy, theta: Params, key: Key, sizes: Sampling) -> tuple[Any, Batch, Batch]:
        """The same, split on the host."""
        chain, rollout = self.rollout(chain, policy, theta, key, sizes)
        return chain, *sizes.split(rollout)

    def undisturbed(self) -> AbstractContextManager[None]:
        """Held while the driver samples again and again: what sampling disturbs is put back when it is left."""
        ...

    def memory(self, sizes: Sampling) -> Any:
        """What a new chain has learned: shapes and first values of `chain.memory`."""

    def start(self, key: Key, memory: Any = None) -> Any:
        """A chain in new episodes, with seeds by the key, and with what another chain has learned."""

    def evaluate(self, policy: Policy, theta: Params, setting: Any, memory: Any = None) -> Evaluation:
        """What the policies `theta` are worth, each with its chain's memory (leading axis K)."""
        ...

    def typical_episode(self, chains: Sequence[Any]) -> float:
        """Mean number of steps of the episodes that these chains have begun; 0 before the first step."""
        ...

    def evaluate_within(
        self, allowance: Allowance, policy: Policy, theta: Params, setting: Any, memory: Any = None
    ) -> Evaluation | None:
        """The same by as many environment steps as are allowed; None where they are too few."""
        ...
