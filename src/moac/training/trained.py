"""Trained policies as one uses them: to act on an environment's own observations, to recommend to users of a log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from moac import choices
from moac.arguments import Numbers, checked
from moac.choices import shown
from moac.config import Setting
from moac.policies.encoding import ActionBox
from moac.policies.observations import LogSpec, Observations, VectorSpec
from moac.policies.protocols import OnHost, log_probs
from moac.types import Key, Params, Policy, Request, Spec


@dataclass(frozen=True, eq=False)
class TrainedPolicy:
    """The policies of K trials.

    Attributes:
        policy: the policy class that all of them share.
        theta: parameters, leading axis K.
        observations: from an environment's observation, or a request to a log, to the input of the policy.
        trial: the trial that `act` uses.
        preference: p of conditioned networks; None leaves it to each call.
        setting: the setting that they were trained in.
        box: the bounds of continuous actions; None where actions are indices.
        archive: of the policies of an exploration, the Pareto archive (`moac.search.archive`).
    """

    policy: Policy
    theta: Params
    observations: Observations
    trial: int = 0
    setting: Setting | None = None
    box: ActionBox | None = None
    archive: Any = None
    preference: tuple[float, ...] | None = None

    @classmethod
    def of(cls, policy: Policy, theta: Params, spec: Spec, memory: Any, setting: Setting | None) -> TrainedPolicy:
        """The policies of a source, whose chains have learned `memory` (leading axis K)."""
        observations = spec.observations
        if isinstance(observations, VectorSpec):
            observations = observations.learned(memory, len(jax.tree.leaves(theta)[0]))
        return cls(policy, theta, observations, 0, setting, spec.action_box)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the compiled functions that are cached."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def __repr__(self) -> str:
        bound = "" if self.preference is None else f", preference {shown(self.preference)}"
        return f"TrainedPolicy({type(self.policy).__name__}, trial {self.trial} of {self.num_trials}{bound})"

    @property
    def gamma(self) -> Any:
        """The discount: a number, or an array of one per objective; 1 in the average setting."""
        if self.setting is None:
            raise ValueError("`setting` must be known for a discount, got None.")
        discount = getattr(self.setting, "discount", 1.0)
        return discount if isinstance(discount, float) else np.array(discount)

    @property
    def num_trials(self) -> int:
        """The number of trials, K."""
        return len(jax.tree.leaves(self.theta)[0])

    @property
    def catalogue(self) -> Any:
        """The catalogue of the log that the policies were trained on; a ValueError where there was none."""
        if not isinstance(self.observations, LogSpec):
            raise ValueError("the policy was not trained on a log and cannot recommend: use `act`.")
        return self.observations.known_catalogue

    @property
    def conditioned_on(self) -> int:
        """M where each call of `act` must pass a preference, M numbers; else 0."""
        encoder = self.observations.encoder
        return 0 if encoder is None or self.preference is not None else encoder.preference_size

    @checked
    def at(self, preference: Numbers) -> TrainedPolicy:
        """The policy for one preference, of networks that are conditioned on it."""
        if not self.conditioned_on:
            why = "it acts for one already" if self.preference is not None else "`conditioned=True` trains one that is"
            raise ValueError(f"`preference` must be left out: the policy is not conditioned on a preference: {why}.")
        p = choices.on_simplex("preference", np.asarray(preference).tolist())
        if len(p) != self.conditioned_on:
            raise ValueError(f"`preference` must hold one number per objective ({self.conditioned_on}), got {len(p)}.")
        return replace(self, preference=p)

    @checked
    def act(self, observation: Any, key: Key, preference: Numbers | None = None) -> Any:
        """An action for an observation of the environment, drawn from the policy: an index, or an array in its box.

        Conditioned networks take the preference, non-negative numbers that sum to 1. The key is JAX's.
        """
        seen = self.see(observation, preference)
        action = self._sample(self.trial_theta, seen, key)
        return int(action) if self.box is None else self.box(np.asarray(action))

    def eval(self, obs: Any, w: Any = None) -> Any:
        """An action drawn with the next of the policy's own keys: the method that morl-baselines calls on an agent.

        The weights `w` are the preference of conditioned networks; other policies ignore them.
        """
        self._num_draws[0] += 1
        return self.act(obs, jax.random.key(self._num_draws[0]), w if self.conditioned_on else None)

    @checked
    def log_prob(self, observation: Any, action: Any, preference: Numbers | None = None) -> float:
        """log π(a|s); a log-density where actions are continuous."""
        seen = jnp.asarray(self.see(observation, preference))
        return float(self.policy.log_prob(self.trial_theta, seen, self._checked_action(action)))

    @checked
    def see(self, observation: Any, preference: Numbers | None = None) -> Any:
        """The input of the policy for an observation: the index of a state, a vector in [0, 1]^d, or a log's features.

        Conditioned networks have the preference at the end of the vector: the policy's own, or this one.
        """
        p = self.preference if preference is None else self.at(preference).preference
        if p is None and self.conditioned_on:
            raise ValueError(
                "`preference` must be given, here or by `.at(preference)`: the policy is conditioned on it."
            )
        return self.observations.see(observation, self.trial, p)

    @checked
    def of_trial(self, trial: int) -> TrainedPolicy:
        """The same policies, acting as another trial's."""
        if trial != 0 and self.conditioned_on and self.num_trials == 1:
            raise ValueError(f"`trial` must be 0: one network acts for every `preference`, got {trial}.")
        return replace(self, trial=choices.below(self.num_trials).checked("trial", trial))

    @checked
    def recommend(  # noqa: PLR0913 - the parts of a request are optional but the user
        self,
        user: Any,
        context: Any = None,
        history: Sequence[Any] = (),
        k: int | None = None,
        *,
        responses: Any = None,
        exclude_seen: bool = False,
        eligible: Iterable[Any] | None = None,
    ) -> Recommendation:
        """The k most probable actions for a user of the log; what is unknown of the request is in `.notes`.

        Args:
            user: id as the log names it; an unknown user has zeros for features.
            context: values, or codes as the dataset has them, in order or by name: {"tab": …, "hour": …}. None is none.
            history: ids of viewed items, oldest first; unknown ones are skipped.
            k: how many to recommend; None is 10, or all actions where there are fewer.
            responses: [n, M] responses to the history, signals as logged, a cost positive; None where unknown.
            exclude_seen: leave out actions of the history; probabilities are then among the others, and there may be
                fewer than k.
            eligible: ids of actions that may be recommended; None is all of them.
        """
        catalogue = self.catalogue
        names = catalogue.action_ids
        most = count_of(k, len(names))
        x, notes = catalogue.see(user, context, history, responses)
        left_out, skipped = catalogue.not_eligible(eligible)
        if exclude_seen:
            left_out |= np.isin(names.astype(str), np.asarray(history).astype(str))
        first = ranked(self.logits(x[None]), most, left_out[None] if left_out.any() else None)
        count = first.counts[0]
        ids, p = names[first.places[0, :count]], first.probabilities[0, :count]
        return Recommendation.of(ids, p, [*notes, *skipped])

    @checked
    def logits(self, x: Request | Numbers, num_actions: int | None = None) -> Float[np.ndarray, "n K"]:
        """The logits of all actions, by default those of the log, for n feature vectors: π(·|x) is their softmax."""
        self._check_inputs(x)
        if isinstance(self.policy, OnHost):
            return self.policy.logits(self._host_theta, x)
        count = len(self.catalogue.action_ids) if num_actions is None else num_actions
        return np.asarray(self._log_probs(self.trial_theta, x, count))

    def _check_inputs(self, x: Any) -> None:
        """Refuse what is no row of inputs of the policy; what compiled code checks would not name it."""
        if isinstance(x, Request):
            return
        S, size, inputs = self.observations.num_states, self.observations.size, np.asarray(x)
        if S is None and (inputs.ndim != 2 or inputs.shape[1] != size):
            raise ValueError(f"`x` must have shape [n, {size}], got {inputs.shape}.")
        if S is not None and inputs.dtype.kind not in "iu":
            raise ValueError(f"`x` must hold states, which are whole numbers, got {shown(x)}.")
        if S is not None:
            for state in inputs.ravel():
                choices.below(S).checked("x", state)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """θ of all K trials as an array, where it is one: for a table, logits [K, S, A] ready for `momdp.evaluate`."""
        return np.array(self.theta, dtype=dtype, copy=copy)

    @cached_property
    def trial_theta(self) -> Params:
        """θ of the trial."""
        return jax.tree.map(lambda leaf: jnp.asarray(leaf[self.trial]), self.theta)

    @cached_property
    def _host_theta(self) -> Params:
        return jax.tree.map(lambda leaf: np.asarray(leaf[self.trial]), self.theta)

    def _checked_action(self, action: Any) -> Any:
        """An action as the policy takes it; JAX would read an index beyond the last as the last."""
        if self.box is not None:
            return self.box.flat(action)
        count = getattr(self.policy, "num_actions", None)
        return action if count is None else choices.below(count).checked("action", action)

    @cached_property
    def _log_probs(self) -> Any:
        return jax.jit(partial(log_probs, self.policy), static_argnums=2)

    @cached_property
    def _num_draws(self) -> list[int]:
        return [0]

    @cached_property
    def _sample(self) -> Any:
        return jax.jit(self.policy.sample)


@dataclass(frozen=True, repr=False)
class Recommendation:
    """Actions, the most probable first; as a sequence, pairs of id and probability.

    Attributes:
        ids: as the log names them.
        probabilities: π(a|s) of each.
        notes: in words, what of the request was unknown, and whether it left nothing to recommend.
    """

    ids: tuple[Any, ...]
    probabilities: tuple[float, ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, ids: np.ndarray[Any, Any], probabilities: np.ndarray[Any, Any], notes: Sequence[str]) -> Recommendation:
        """From arrays and what was noted before."""
        nothing = () if len(ids) else ("no action is left to recommend",)
        return cls(tuple(ids.tolist()), tuple(probabilities.tolist()), (*notes, *nothing))

    def __iter__(self) -> Iterator[tuple[Any, float]]:
        return zip(self.ids, self.probabilities, strict=True)

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        pairs = ", ".join(f"{name}: {p:.3g}" for name, p in self)
        return f"Recommendation({pairs}{''.join(f'; {note}' for note in self.notes)})"


@dataclass(frozen=True, eq=False)
class Ranked:
    """The first k actions of n states."""

    places: Int[np.ndarray, "n k"]  # indices of actions, the most probable first; the earlier of two equal ones first
    probabilities: Float[np.ndarray, "n k"]  # of each
    counts: Int[np.ndarray, " n"]  # how many of the k there are; fewer where too many are left out


def ranked(logits: Float[np.ndarray, "n K"], k: int, left_out: Bool[np.ndarray, "n K"] | None = None) -> Ranked:
    """The k most probable actions under softmax(logits), in float64; among the others, where some are left out."""
    z = logits.astype(np.float64)
    z = z if left_out is None else np.where(left_out, -np.inf, z)
    weight = np.exp(z - np.maximum(z.max(axis=1, keepdims=True), np.finfo(np.float64).min))  # rows may be all −∞
    p = weight / np.maximum(weight.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    places = _smallest(-z, k)
    counts = np.full(len(z), z.shape[1]) if left_out is None else np.count_nonzero(~left_out, axis=1)
    return Ranked(places, np.take_along_axis(p, places, axis=1), np.minimum(counts, k))


def _smallest(cost: Float[np.ndarray, "n K"], k: int) -> Int[np.ndarray, "n k"]:
    """Indices of the k smallest of each row, in order, the earlier of two equal ones first; a small k sorts little."""
    if 2 * k > cost.shape[1]:
        return np.argsort(cost, axis=1, kind="stable")[:, :k]
    few = np.sort(np.argpartition(cost, k - 1, axis=1)[:, :k], axis=1)
    least = np.take_along_axis(cost, few, axis=1)
    places = np.take_along_axis(few, np.argsort(least, axis=1, kind="stable"), axis=1)
    last = least.max(axis=1, keepdims=True)
    tied = np.flatnonzero(np.count_nonzero(cost <= last, axis=1) > k)  # argpartition takes any of equal ones
    places[tied] = np.argsort(cost[tied], axis=1, kind="stable")[:, :k]
    return places


def count_of(k: Any, num_actions: int) -> int:
    """The number of recommendations, k if it is valid; None is 10, or all actions where there are fewer."""
    if k is None:
        return min(10, num_actions)
    numbers = choices.Range(
        f"a whole number in [1, {num_actions}], the number of actions", lambda x: 1 <= x <= num_actions, int
    )
    return numbers.checked("k", k)
