"""The memory that a run takes at least, from the sizes in its configuration and the shapes of its parameters.

Every number is a lower bound: of arrays and objects that are there at the same time whatever the compiler does, so that
a run which fits is never refused.
"""

from __future__ import annotations

import math
from typing import Any, cast

import jax

from moac.config import Config
from moac.default_config import NETWORKS
from moac.memory import Need
from moac.momdp import FiniteMOMDP, oracle
from moac.policies import features
from moac.settings import Settings
from moac.training.compiled import WIDTH
from moac.training.run import Run, template
from moac.types import Source, Spec

_SINGLE, _DOUBLE = 4, 8
"""Bytes of a number."""
_OBJECT = 33
"""Bytes of a small object of Python, such as the rewards of a step."""
_COPY = 400
"""Bytes of the smallest environment."""
_ARRAY = 1_500
"""Bytes of a small array of JAX, which are hardly its numbers."""
_PROCESS = 50_000_000
"""Bytes of a worker process that has imported what it needs."""
_COEFFICIENTS = 184
"""Bytes of the table from which a feature's coefficients are made."""
_FAR = 1000
"""An argument that is so many times smaller than another has no part in what is too large."""


def of_sizes(problem: Source, config: Config, trials: int) -> list[Need]:
    """The needs that a complete configuration tells by its numbers alone, before any part is built."""
    settings, spec = Settings.of(config), problem.spec
    orders = 2 * _SINGLE * settings.epochs * settings.actor_batch_size  # and what they are sorted by
    rollout = {"num_envs": spec.num_chains, "actor_batch_size": settings.actor_batch_size}
    epochs = _deciding(**rollout, epochs=settings.epochs)
    needs = [
        Need(_DOUBLE * trials, "the state of all trials", {"trials": trials}),
        Need(orders, "the orders of samples in all epochs", epochs),
        _of_samples(problem, settings),
        _of_history(spec, settings, trials),
        _of_features(spec, settings),
    ]
    if settings.has_network:
        needs.append(_of_batch(settings))
    if spec.observations.encoder is not None:
        needs += _of_environments(spec, trials)
    return needs


def of_state(run: Run) -> Need:
    """The parameters of all trials, and all that is kept beside them; by shapes alone."""
    state, settings, spec, trials = template(run).state, run.settings, run.source.spec, run.num_trials
    blocks = trials // WIDTH if run.source.compiled and not settings.has_network else trials
    size = 2 * _bytes(state)  # before and after an iteration, or on the device and on the host
    size += (2 if run.source.compiled else 1) * _ARRAY * len(jax.tree.leaves(state)) * blocks
    if isinstance(run.source, FiniteMOMDP):
        size += _of_oracle(run, _bytes(state.theta) // trials)
    arguments: dict[str, Any] = {} if trials == 1 else {"trials": trials}
    if settings.has_network and max(settings.hidden, default=0) > spec.num_actions:
        arguments["hidden"] = settings.hidden
    elif ":" in settings.features:
        arguments["features"] = settings.features
    return Need(size, "the parameters and all that is kept beside them", arguments or {"env": spec.name})


def _of_oracle(run: Run, parameters: int) -> int:
    """Bytes of the exact evaluation of all trials, in double precision: π and its gradients, and those of networks."""
    spec, model = run.source.spec, cast(FiniteMOMDP, run.source)
    if model.num_states > oracle.MAX_STATES:
        return 0
    size = _DOUBLE * run.num_trials * model.num_states * model.num_actions * (1 + spec.num_objectives)
    if run.settings.policy in NETWORKS:
        size += 2 * oracle.BLOCK * (1 + spec.num_objectives) * parameters
    return size


def of_episodes(count: int, policies: int = 1) -> Need:
    """The episodes that several policies play, each its own: at least their seeds."""
    return Need((_DOUBLE + _OBJECT) * count * policies, f"{count:,} episodes of each policy", {"episodes": count})


def _bytes(shapes: Any) -> int:
    """The size of arrays of these shapes."""
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))


def _of_samples(problem: Source, settings: Settings) -> Need:
    """The samples of an iteration: of a block of trials where they are drawn in the compiled program, else of one."""
    spec, steps = problem.spec, settings.samples_per_iteration
    each = _SINGLE * (3 + spec.num_objectives)
    if problem.compiled and not settings.has_network:
        each *= WIDTH
    if spec.observations.encoder is not None:
        each = _OBJECT + _SINGLE * spec.num_objectives + _DOUBLE * (1 + spec.action_size)
        if spec.num_states is None:
            each += 2 * (_DOUBLE + _SINGLE) * spec.observation_size
        else:
            each += _OBJECT + 2 * _DOUBLE
    sizes = _deciding(
        num_envs=spec.num_chains,
        num_critic_steps=settings.num_critic_steps,
        critic_batch_size=settings.critic_batch_size if settings.num_critic_steps else 0,
        actor_batch_size=settings.actor_batch_size,
    )
    return Need(each * steps, f"the {steps:,} samples of an iteration", sizes)


def _of_history(spec: Spec, settings: Settings, trials: int) -> Need:
    """What is logged of all trials, three numbers for each objective and five more, in arrays that grow."""
    logged = min(settings.num_evaluations, settings.num_iterations)
    size = 2 * _DOUBLE * logged * (1 + trials * (3 * spec.num_objectives + 5))
    return Need(size, "the history", _deciding(num_evaluations=settings.num_evaluations, trials=trials))


def _of_features(spec: Spec, settings: Settings) -> Need:
    """The table of random features of states; or the coefficients and centres of those of vectors, where they are used.

    Networks take no features.
    """
    kind, _, count = settings.features.partition(":")
    used = "linear" in (settings.policy, settings.critic)
    size = 0
    if kind == "random" and spec.num_states is not None:
        size = _DOUBLE * spec.num_states * int(count)
    elif kind in ("fourier", "rbf") and spec.num_states is None and used:
        rows = features.of_vectors(settings.features, spec.observation_size).size
        size = rows * (_SINGLE * spec.observation_size + (_COEFFICIENTS if kind == "fourier" else 0))
    return Need(size, f"{settings.features} features", {"features": settings.features})


def _of_batch(settings: Settings) -> Need:
    """What the widest layer of a network makes of the samples of a step, and its derivative."""
    name = "minibatch_size" if settings.learner == "ppo" else "actor_batch_size"
    rows, widest = getattr(settings, name), max(settings.hidden, default=0)
    arguments = _deciding(**{"hidden": widest, name: rows})
    return Need(2 * _SINGLE * rows * widest, "the widest layer of a network", arguments)


def _of_environments(spec: Spec, trials: int) -> list[Need]:
    """Environments that are trained on, the seeds of an evaluation's episodes, and worker processes."""
    options = spec.options or {}
    episodes, workers = int(options.get("evaluation_episodes", 0)), int(options.get("workers", 0))
    copies = _deciding(num_envs=spec.num_chains, trials=trials)
    seeds = {"evaluation_episodes": episodes}
    return [
        Need(_COPY * spec.num_chains * trials, "copies of the environment", copies),
        Need(of_episodes(episodes).size, "the seeds of an evaluation", seeds),
        Need(_PROCESS * workers, "worker processes", {"workers": workers}),
    ]


def _deciding(**sizes: int) -> dict[str, Any]:
    """The arguments that make something large: all but those far below the largest."""
    largest = max(sizes.values())
    return {name: size for name, size in sizes.items() if size * _FAR > largest}
