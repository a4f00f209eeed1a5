"""Other methods for the logs and networks of MOAC, to compare it with: the options, critic and loop that they share.

`pdpg` and `tscac`, each with `train(dataset, options, trials, seed) -> Learned`; `moac docs baselines` says from which
description, and what differs from the code that was published.
"""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax
from jaxtyping import Float, Int

from moac.choices import shown
from moac.compiling import compiler_options, kept_for_few, shapes_of
from moac.config import check_trials
from moac.logs import states
from moac.logs.dataset import LoggedDataset
from moac.logs.states import Data
from moac.policies import ItemsPolicy, SoftmaxMLP
from moac.policies.items import place
from moac.policies.networks import Network, Plain, Weights
from moac.types import Batch, Key, Request

MOST_ACTIONS = 10_000
"""A closed form sums over all actions in each state of a batch."""
_TRACED = ("step_size", "critic_step_size", "target_step_size", "discount", "behaviour_pull")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


_COUNT = ("a whole number of at least 1", _is_count)
_POSITIVE = ("positive and finite", lambda x: 0 < x < math.inf)
_RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("steps", "auxiliary_steps", "batch_size"), _COUNT),
    **dict.fromkeys(("step_size", "critic_step_size", "weight_step_size", "multiplier"), _POSITIVE),
    "behaviour_pull": ("at least 0 and finite", lambda x: 0 <= x < math.inf),
    "target_step_size": ("in (0, 1]", lambda x: 0 < x <= 1),
    "discount": ("in [0, 1)", lambda x: 0 <= x < 1),
    "hidden": ("widths of at least 1", lambda x: all(map(_is_count, x))),
    "start": ("behaviour or random", lambda x: x in ("behaviour", "random")),
    "normalise": ("none or l2", lambda x: x in ("none", "l2")),
    "weights": ("at least 0 and sum to one", lambda x: min(x) >= 0 and abs(sum(x) - 1) < 1e-6),
}
"""Of options of either method: what each must be."""


@dataclass(frozen=True, kw_only=True)
class Options(ABC):  # noqa: B024 - a method's own options are final
    """What both methods let one choose."""

    steps: int = 500  # of the policy that is returned
    batch_size: int = 256  # rows of a step, of train users, uniformly with replacement
    step_size: float = 3e-4  # of Adam on policies
    critic_step_size: float = 1e-3  # of Adam on critics
    target_step_size: float = 0.01  # τ, the share of the way that the target network moves at each step; 1 is without
    discount: float = 0.9  # γ of all signals
    # Coefficient of the KL regularisation, −KL(b‖π) to the behaviour model b, or where the log has no model the
    # log-likelihood of its actions.
    behaviour_pull: float = 1.0
    scale_rewards: bool = True  # divide each signal by its standard deviation over train rows
    hidden: tuple[int, ...] | None = None  # None is as the behaviour model, (64,) where there is none
    start: str = "behaviour"  # policies start from the behaviour model, or at random, which is nearly uniform

    def __post_init__(self) -> None:
        for name, (rule, holds) in _RULES.items():
            value: Any = getattr(self, name, None)
            if value is not None and not holds(value):
                raise ValueError(f"`{name}` must be {rule}, got {shown(value)}.")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Problem:
    """What a method knows of a log, apart from its rows; a pytree."""

    step_size: Any  # this and the next four as in `Options`: arguments of a compiled program, which serves all values
    critic_step_size: Any
    target_step_size: Any
    discount: Any
    behaviour_pull: Any
    scale: Float[Array, " M"]  # what each signal is divided by
    mean: Float[Array, " M"]  # of each signal over train rows, scaled
    policy: SoftmaxMLP | ItemsPolicy = field(metadata={"static": True})  # of both methods, and of MOAC
    # how the log chose; None where nothing models it
    behaviour: SoftmaxMLP | ItemsPolicy | None = field(metadata={"static": True})
    batch_size: int = field(metadata={"static": True})
    start: str = field(metadata={"static": True})

    @staticmethod
    def of(dataset: LoggedDataset, options: Options) -> Problem:
        """The problem of a dataset, checked."""
        dataset.check_known()
        train = dataset.known_rows("train", "a policy is learned from them")
        if dataset.num_signals < 2:
            raise ValueError(f"{dataset.name} has one signal only: there is nothing to weight.")
        if dataset.num_actions > MOST_ACTIONS:
            why = "closed forms go over all of them at each step"
            most = f"at most {MOST_ACTIONS:,} actions"
            raise ValueError(f"{dataset.name} must have {most}, got {dataset.num_actions:,}: {why}.")
        model = None if dataset.behaviour is None else dataset.behaviour.policy
        hidden = options.hidden if options.hidden is not None else (64,) if model is None else model.hidden
        if options.start == "behaviour" and (model is None or model.hidden != hidden):
            known = "has no behaviour model" if model is None else f"has one with hidden={list(model.hidden)}"
            raise ValueError(f"`start` must be random, or as the behaviour model: {dataset.name} {known}.")
        reward = dataset.reward[train].astype(np.float64)
        spread = reward.std(axis=0)
        scale = np.where(spread > 0, spread, 1.0) if options.scale_rewards else np.ones_like(spread)
        policy = SoftmaxMLP(Plain(dataset.num_features), hidden, dataset.num_actions)
        if isinstance(model, ItemsPolicy):
            policy = replace(model, hidden=hidden)
        elif dataset.lists is not None:
            raise ValueError(f"{dataset.name} must have a behaviour model of items: its requests have candidates.")
        traced: dict[str, Any] = {name: jnp.float32(getattr(options, name)) for name in _TRACED}
        traced |= {"scale": jnp.float32(scale), "mean": jnp.float32(reward.mean(axis=0) / scale)}
        return Problem(**traced, policy=policy, behaviour=model, batch_size=options.batch_size, start=options.start)

    def first(self, data: Data, key: Key) -> Weights:
        """θ of the behaviour model, or at random."""
        return data.behaviour if self.start == "behaviour" else self.policy.init(key)

    @property
    def optimiser(self) -> optax.GradientTransformation:
        """Adam, for policies."""
        return optax.adam(self.step_size)

    def draw(self, data: Data, key: Key) -> Batch:
        """Rows of train users, uniformly with replacement, with scaled rewards."""
        rows = data.train[jax.random.randint(key, (self.batch_size,), 0, len(data.train))]
        batch = states.with_features(data, states.transitions(data, rows))
        batch = replace(batch, reward=batch.reward / self.scale)
        if self.behaviour is None:
            return batch
        logits = self.behaviour.logits(data.behaviour, batch.observation)
        return replace(batch, behaviour_log_probs=jax.nn.log_softmax(logits))

    def log_pi(self, theta: Weights, x: Float[Array, "B F"]) -> Float[Array, "B K"]:
        """log π(·|s)."""
        return jax.nn.log_softmax(self.policy.logits(theta, x))

    def regularisation(self, log_pi: Float[Array, "B K"], batch: Batch) -> Float[Array, ""]:
        """behaviour_pull · (1/B) Σ E_{a∼b} log π(a|s): −KL(b‖π) but for a constant; as logged without a model."""
        if batch.behaviour_log_probs is None:
            taken = jnp.take_along_axis(log_pi, place(batch.observation, batch.action)[:, None], axis=1)
            return self.behaviour_pull * jnp.mean(taken)
        return self.behaviour_pull * jnp.mean(jnp.sum(jnp.exp(batch.behaviour_log_probs) * log_pi, axis=1))


class CriticState(NamedTuple):
    """A critic while it learns."""

    w: Weights
    target: Weights  # of the target network
    moments: Any  # Adam's


@dataclass(frozen=True)
class ActionValues:
    """A critic of all actions at once: Qⁱ(s, a) = vⁱ(s) + uⁱ(s, a), M·(1 + K) outputs of one network like the policy's.

    A state's value vⁱ is an output of its own (Wang et al., *Dueling Network Architectures*, 2016), and begins at what
    the log earns, r̄ⁱ/(1 − γ): else actions that the log takes often would seem better for having been updated often.
    """

    problem: Problem
    signals: tuple[int, ...]  # which of the log's

    @property
    def network(self) -> Network:
        """Gives v and u, signal by signal; differences between actions begin near 0."""
        policy = self.problem.policy
        return Network(policy.inputs, policy.hidden, len(self.signals) * (1 + policy.num_actions), last_scale=0.01)

    def init(self, key: Key) -> CriticState:
        """Values at what the log earns."""
        *others, last = self.network.init(key)
        earned = self.problem.mean[jnp.array(self.signals)] / (1 - self.problem.discount)
        w = (*others, last.at[-1, :: 1 + self.problem.policy.num_actions].set(earned))
        return CriticState(w, w, self._optimiser.init(w))

    def __call__(self, w: Weights, observation: Any) -> Float[Array, "B M C"]:
        """Qⁱ(s, ·) of all that can be chosen."""
        outputs = self.network(w, observation)
        outputs = outputs.reshape(len(outputs), len(self.signals), -1)
        Q = outputs[..., :1] + outputs[..., 1:]
        if not isinstance(observation, Request):
            return Q
        return jnp.take_along_axis(Q, jnp.maximum(observation.candidates, 0)[:, None], axis=2)

    def updated(self, state: CriticState, batch: Batch, next_pi: Float[Array, "B M K"]) -> CriticState:
        """A step of Adam on the squared TD errors, and the target network's.

        y_i = r_i + γ (1 − terminated) Σ_a π_i(a|s') Q̄_i(s', a), with the target network's Q̄;  ½ Σ_i (Q_i(s, a) − y_i)²
        mean over the batch. π_i may be one policy for all signals [B, 1, K]. Expected over a' ~ π_i and conditioned on
        the logged a, it needs no importance ratio.
        """
        following = jnp.sum(next_pi * self(state.target, batch.next_observation), axis=-1)
        alive = 1.0 if batch.terminated is None else 1.0 - batch.terminated[:, None]
        y = batch.reward[:, jnp.array(self.signals)] + self.problem.discount * alive * following

        def loss(w: Weights) -> Float[Array, ""]:
            action = place(batch.observation, batch.action)
            taken = jnp.take_along_axis(self(w, batch.observation), action[:, None, None], axis=2)[..., 0]
            return 0.5 * jnp.mean(jnp.sum((taken - y) ** 2, axis=1))

        w, moments = descended(self._optimiser, loss, state.w, state.moments)
        target: Any = optax.incremental_update(w, state.target, self.problem.target_step_size)
        return CriticState(w, target, moments)

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.problem.critic_step_size)


def descended(optimiser: optax.GradientTransformation, loss: Any, parameters: Any, moments: Any) -> tuple[Any, Any]:
    """A step of the optimiser down the loss."""
    change, moments = optimiser.update(jax.grad(loss)(parameters), moments, parameters)
    return optax.apply_updates(parameters, change), moments


@dataclass(frozen=True, eq=False)
class Learned:
    """Policies of K trials; every array has leading axis K."""

    policy: SoftmaxMLP | ItemsPolicy  # the network, for `evaluate.probabilities(dataset, policy, theta, rows)`
    state: Any  # everything that the learner held at the end: `theta` of the policy, `weights` [K, M] of the signals

    @property
    def theta(self) -> Weights:
        """The policy's weights."""
        return self.state.theta


def learn(dataset: LoggedDataset, learner: Any, counts: tuple[int, ...], trials: int, seed: int) -> Learned:
    """Run K trials through all phases of a method; trial i depends on (seed, i) alone.

    `learner` is a pytree with `problem`; `init(data, key)`, which gives a state with `theta` of the policy and
    `weights` of the signals; and `phases`, a step (data, state, key) ↦ state of each, taken `counts` times. As in
    `moac.training.compiled`, a device runs one trial at a time by the same program, whatever their numbers.
    """
    check_trials(trials, seed)
    devices = jax.local_devices()[:trials]
    copies = [jax.device_put((learner, dataset.data), device) for device in devices]
    problems = [copies[k % len(devices)] for k in range(trials)]
    carried = [_first(*problem, np.uint32(seed), np.array([k])) for k, problem in enumerate(problems)]
    for phase, count in enumerate(counts):
        program = _program(phase, shapes_of(problems[0]))
        carried = [program(*problem, each, count) for problem, each in zip(problems, carried, strict=True)]
    state: Any = jax.tree.map(lambda *leaves: np.concatenate(leaves), *(each for each, _ in carried))
    if not all(np.isfinite(leaf).all() for leaf in state.theta):
        raise ValueError("training diverged: `step_size` or `critic_step_size` must be smaller.")
    return Learned(learner.problem.policy, state)


@kept_for_few()
def _first(learner: Any, data: Data, seed: Int[Array, ""], index: Int[Array, " 1"]) -> tuple[Any, Key]:
    """A trial at its start, with a leading axis of one, and the key of its steps."""

    def first(index: Int[Array, ""]) -> tuple[Any, Key]:
        key_init, key_steps = jax.random.split(jax.random.fold_in(jax.random.key(seed), index))
        return learner.init(data, key_init), key_steps

    return jax.vmap(first)(index)


@lru_cache(maxsize=8)
def _program(phase: int, shapes: Any) -> Callable[..., Any]:
    """(learner, data, trial, count) ↦ the trial `count` steps of a phase later; one program for each shape of both."""
    del shapes

    def once(learner: Any, data: Data, trial: tuple[Any, Key]) -> tuple[Any, Key]:
        key, key_step = jax.random.split(trial[1])
        return learner.phases[phase](data, trial[0], key_step), key

    def advance(learner: Any, data: Data, trial: tuple[Any, Key], count: Int[Array, ""]) -> Any:
        return lax.fori_loop(0, count, lambda _, each: jax.vmap(partial(once, learner, data))(each), trial)

    return jax.jit(advance, compiler_options=compiler_options())
