"""Trained policies as one uses them: on the environment's own observations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from moac.config import Setting
from moac.policies.encoding import ActionBox, Encoder, Moments, Scale
from moac.policies.protocols import OnHost
from moac.training.recommendation import Catalogue, Recommendation, check_count, ranked
from moac.types import Key, Params, Policy, Spec

Scales = dict[str, Float[np.ndarray, "K d"]]


@final
@dataclass(frozen=True, eq=False)
class TrainedPolicy:
    """The policies of K trials.

    Attributes:
        policy: their kind.
        theta: parameters, leading axis K.
        observations: [S, …] what the environment shows in each state; None where `encoder` knows, or it is the index.
        trial: which of them `act` uses.
        encoder: from what the environment shows to what the policy sees.
        scales: `shift` and `gain` [K, d] of vectors; None for states.
        setting: in which they were trained.
        box: how the environment takes continuous actions; None where actions are indices.
        catalogue: of the log that they were trained on, whose feature vectors they see; None where there is none.
        archive: the `search.archive.Archive` that they are, where an exploration made them.
    """

    policy: Policy
    theta: Params
    observations: np.ndarray[Any, Any] | None = None
    trial: int = 0
    encoder: Encoder | None = None
    scales: Scales | None = None
    setting: Setting | None = None
    box: ActionBox | None = None
    catalogue: Catalogue | None = None
    archive: Any = None

    @classmethod
    def of(cls, policy: Policy, theta: Params, spec: Spec, memory: Any, setting: Setting | None) -> TrainedPolicy:
        """The policies of a source, whose chains have learned `memory` (leading axis K)."""
        count = len(jax.tree.leaves(theta)[0])
        scales = None if spec.num_states is not None or spec.logged else scales_of(spec.encoder, memory, count)
        return cls(policy, theta, spec.observations, 0, spec.encoder, scales, setting, spec.action_box)

    @property
    def gamma(self) -> Any:
        """The discount: a number, or an array of one per objective; 1 in the average setting."""
        if self.setting is None:
            raise ValueError("`setting` must be known for a discount, got None.")
        discount = getattr(self.setting, "discount", 1.0)
        return discount if isinstance(discount, float) else np.array(discount)

    @property
    def num_trials(self) -> int:
        """K."""
        return len(jax.tree.leaves(self.theta)[0])

    def act(self, observation: Any, key: Key) -> Any:
        """An action for what the real environment shows, drawn from the policy: an index, or an array of its box."""
        drawn = self._sample(self.own_theta, self.see(observation), key)
        return int(drawn) if self.box is None else self.box(np.asarray(drawn))

    def eval(self, obs: Any, w: Any = None) -> Any:
        """An action, drawn with keys of its own, one after the other: what morl-baselines asks of an agent."""
        del w  # one policy serves all preferences
        self._drawn[0] += 1
        return self.act(obs, jax.random.key(self._drawn[0]))

    def log_prob(self, observation: Any, action: Any) -> float:
        """log π(a|s); of continuous actions a density."""
        seen = jnp.asarray(self.see(observation))
        return float(self.policy.log_prob(self.own_theta, seen, action if self.box is None else self.box.flat(action)))

    def recommend(
        self, user: Any, context: Any, history: Any, k: int = 10, *, exclude_seen: bool = False
    ) -> Recommendation:
        """The k most probable actions for a user of the log; what is unknown of the request is in `.notes`.

        Args:
            user: id as the log names it; who is unknown has zeros for features.
            context: codes as the dataset has them; for KuaiRand also {"tab": …, "hour": …, "day": …}. None is none.
            history: ids of viewed items, oldest first; unknown ones are skipped.
            k: how many.
            exclude_seen: leave out actions of the history; probabilities are then among the others, and there may be
                fewer than k.
        """
        catalogue = self._known_catalogue
        names = catalogue.action_ids
        check_count(k, len(names))
        x, notes = catalogue.see(user, context, history)
        left_out = np.isin(names, np.asarray(history, dtype=np.int64))[None] if exclude_seen else None
        found = ranked(self.logits(x[None]), k, left_out)
        count = found.counts[0]
        ids, p = names[found.places[0, :count]], found.probabilities[0, :count]
        return Recommendation(tuple(ids.tolist()), tuple(p.tolist()), notes)

    def logits(self, x: Float[np.ndarray, "n F"]) -> Float[np.ndarray, "n K"]:
        """Of all actions of a log, for each of n feature vectors: π(·|x) is their softmax."""
        if isinstance(self.policy, OnHost):
            return self.policy.logits(self._host_theta, x)
        actions = np.arange(len(self._known_catalogue.action_ids))
        return np.asarray(self._log_probs(self.own_theta, x, actions))

    def of_trial(self, trial: int) -> TrainedPolicy:
        """The same policies, acting as another trial's."""
        if not 0 <= trial < self.num_trials:
            raise ValueError(f"`trial` must be in [0, {self.num_trials}), got {trial}.")
        return replace(self, trial=trial)

    def see(self, observation: Any) -> Any:
        """What the policy sees of an observation: the index of a state, a vector in [0, 1]^d, or a log's features."""
        if self.catalogue is not None:
            return self.catalogue.vector(observation)
        if self.encoder is None:
            return self._state(observation)
        if self.scales is None:
            return self.encoder.state(observation)
        return self.scale(self.encoder.flat(observation))

    @cached_property
    def scale(self) -> Scale:
        """How the trial scales vectors."""
        scales = self.scales or {}
        return Scale(scales["shift"][self.trial], scales["gain"][self.trial])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """θ as an array, where it is one: for a table, logits [K, S, A] ready for `momdp.evaluate`."""
        return np.array(self.theta, dtype=dtype, copy=copy)

    @cached_property
    def own_theta(self) -> Params:
        """θ of the trial."""
        return jax.tree.map(lambda leaf: jnp.asarray(leaf[self.trial]), self.theta)

    @property
    def _known_catalogue(self) -> Catalogue:
        if self.catalogue is None:
            raise ValueError("the policy was not trained on a log, so it has nothing to recommend: use `act`.")
        return self.catalogue

    @cached_property
    def _host_theta(self) -> Params:
        return jax.tree.map(lambda leaf: np.asarray(leaf[self.trial]), self.theta)

    @cached_property
    def _log_probs(self) -> Any:
        of_actions = jax.vmap(self.policy.log_prob, in_axes=(None, None, 0))
        return jax.jit(jax.vmap(of_actions, in_axes=(None, 0, None)))

    @cached_property
    def _drawn(self) -> list[int]:
        return [0]

    @cached_property
    def _sample(self) -> Any:
        return jax.jit(self.policy.sample)

    @cached_property
    def _index(self) -> dict[bytes, int]:
        if self.observations is None:
            return {}
        return {np.asarray(row).tobytes(): s for s, row in enumerate(self.observations)}

    def _state(self, observation: Any) -> int:
        seen = np.asarray(observation)
        if self.observations is None:
            if seen.size != 1 or not np.issubdtype(seen.dtype, np.integer) or seen.item() < 0:
                raise ValueError(f"`observation` must be the index of a state, got {seen.tolist()}.")
            return int(seen.item())
        cast = seen.astype(self.observations.dtype, copy=False)
        state = self._index.get(cast.tobytes())
        if state is None or not np.array_equal(cast, seen):
            raise ValueError(f"`observation` must be one that the model knows, got {seen.tolist()}.")
        return state


def scales_of(encoder: Encoder | None, memory: Mapping[str, Any] | None, count: int) -> Scales:
    """Shift and gain of K trials: by what their chains have learned, or by the bounds of the space."""
    if encoder is None:
        raise ValueError("`encoder` must be known where observations are vectors, got None.")
    rows = [encoder.scale(Moments.of(memory, k)) for k in range(count)]
    return {"shift": np.stack([row.shift for row in rows]), "gain": np.stack([row.gain for row in rows])}
