"""Trained policies as ONNX files that stand alone: scaling of observations and bounds of actions are part of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import metadata
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from moac.policies import GaussianMLP, ItemsPolicy, SoftmaxBasis, SoftmaxLinear, SoftmaxMLP, SoftmaxTable
from moac.policies.encoding import Encoder
from moac.policies.graph import Array, Graph
from moac.policies.observations import LogSpec, StateSpec
from moac.training.trained import TrainedPolicy
from moac.types import Request

_KINDS = (SoftmaxTable, SoftmaxLinear, SoftmaxBasis, SoftmaxMLP, GaussianMLP, ItemsPolicy)


def onnx(trained: TrainedPolicy, description: Mapping[str, Any]) -> bytes:
    """The content of an ONNX file: the policy of one trial, at its preference if it has one, and its description.

    Inputs are `observation` [n, d], or `state` [n] where observations are state indices; `preference` [n, M] of
    conditioned networks; `candidates` [n, c] of policies over described items, as item indices padded with −1; and,
    where actions are vectors, `noise` [n, k], standard normal numbers, or 0 for the median action.
    Outputs are `logits` and `probabilities` [n, A] or [n, c], or `action` [n, …]: NaN where an observation is no state.
    """
    policy, graph = cast(Any, trained.policy), Graph()
    if not isinstance(policy, _KINDS):
        known = ", ".join(kind.__name__ for kind in _KINDS)
        raise ValueError(f"`policy` must be one of {known} to be exported, got {type(policy).__name__}.")
    seen, exists = _seen(graph, trained)
    theta = jax.tree.map(lambda leaf: graph.constant(np.asarray(leaf[trained.trial])), trained.theta)
    if isinstance(policy, GaussianMLP):
        noise = graph.input("noise", np.float32, policy.size)
        result = policy.act(theta, seen, noise)
    elif isinstance(policy, SoftmaxTable | SoftmaxLinear):
        states = jnp.arange(trained.observations.num_states)
        result = graph.constant(policy.logits(trained.trial_theta, states))[seen]
    elif isinstance(policy, ItemsPolicy):
        result = policy.logits(theta, Request(seen, graph.input("candidates", np.int64, "c")))
    else:
        result = policy.logits(theta, seen)
    _finish(graph, trained, result if exists is None else graph.functions.where(exists[..., None], result, np.nan))
    facts = _facts(trained, description).items()
    metadata_props = {name: fact if isinstance(fact, str) else json.dumps(fact) for name, fact in facts}
    return graph.file("policy", metadata_props, producer_name="moac", producer_version=metadata.version("moac"))


def _seen(graph: Graph, trained: TrainedPolicy) -> tuple[Array, Array | None]:
    """The input of the policy, and for a finite model whether the observation is one of its states."""
    observations, xp = trained.observations, graph.functions
    if isinstance(observations, LogSpec):
        return graph.input("observation", np.float32, observations.size), None
    if isinstance(observations, StateSpec):
        return _state(graph, observations)
    scales, x = observations.scales or {}, _flat(graph, observations.encoder.bare)
    if M := observations.encoder.preference_size:
        fixed = trained.preference
        p = graph.input("preference", np.float32, M) if fixed is None else np.array(fixed, np.float32)
        p = xp.where(x[..., :1] >= 0, p, p)  # broadcasts it to one row per observation
        x = xp.concatenate([x, p], axis=-1)
    place = (x.astype(np.float64) - scales["shift"][trained.trial]) * scales["gain"][trained.trial]
    return xp.minimum(xp.maximum(place, 0.0), 1.0).astype(np.float32), None


def _state(graph: Graph, observations: StateSpec) -> tuple[Array, Array]:
    """The index of a state, and whether the observation is that state."""
    xp, encoder = graph.functions, observations.encoder
    if encoder is not None:
        x = _flat(graph, encoder).astype(np.float64)
        nearest = xp.minimum(xp.maximum(xp.rint(x), encoder.low), encoder.high)
        return (nearest - encoder.low).astype(np.int64) @ encoder.strides, _all(nearest == x) == 1
    if observations.shown is not None:
        rows = observations.shown.reshape(observations.num_states, -1).astype(np.float32)
        x = graph.input("observation", np.float32, rows.shape[1])
        same = _all(x[..., None, :] == rows)
        return xp.argmax(same), same.max(axis=-1) == 1
    state = graph.input("state", np.int64)
    nearest = xp.minimum(xp.maximum(state, 0), observations.num_states - 1)
    return nearest, nearest == state


def _all(conditions: Array) -> Array:
    """1 where all of the last axis hold, else 0."""
    return conditions.astype(np.int32).min(axis=-1)


def _flat(graph: Graph, encoder: Encoder) -> Array:
    """Observations as flat vectors; binary numbers become 0 or 1."""
    x = graph.input("observation", np.float32, encoder.size)
    binary = np.concatenate([np.full(len(leaf.low), leaf.kind == "binary") for leaf in encoder.leaves])
    if not binary.any():
        return x
    return graph.functions.where(binary, 1 - (x == 0).astype(np.float32), x)


def _finish(graph: Graph, trained: TrainedPolicy, result: Array) -> None:
    """Name the outputs: probabilities, or an action as the environment takes it."""
    box, xp, policy = trained.box, graph.functions, cast(Any, trained.policy)
    if box is None:
        count = "c" if isinstance(policy, ItemsPolicy) else policy.num_actions
        graph.output("logits", result, count)
        graph.output("probabilities", xp.softmax(result), count)
    else:
        low, high = np.array(box.low, box.dtype), np.array(box.high, box.dtype)
        inside = xp.minimum(xp.maximum(result.astype(box.dtype), low), high)
        graph.output("action", inside.reshape(-1, *box.shape), *box.shape)


def _facts(trained: TrainedPolicy, description: Mapping[str, Any]) -> dict[str, Any]:
    """The facts about the policy that the file records, by name."""
    observations = trained.observations
    facts = {**description, "policy": type(trained.policy).__name__, "trial": trained.trial}
    facts |= {"preference_size": trained.conditioned_on, "preference": trained.preference}
    if observations.encoder is not None:
        facts["observation"] = observations.encoder.bare.to_json()
    if isinstance(observations, LogSpec) and observations.catalogue is not None:
        facts["actions"] = observations.catalogue.action_ids.tolist()
    return {name: fact for name, fact in facts.items() if fact is not None}
