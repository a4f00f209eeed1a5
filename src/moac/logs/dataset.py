"""A log of recommendations as a source of training: struct of arrays, split by users, sampled on the device."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Bool, Float, Int

from moac.arguments import Numbers, checked
from moac.choices import counted, one_of, shown
from moac.logs import states
from moac.logs.catalogue import Catalogue
from moac.logs.schema import RECENT
from moac.logs.splits import SPLITS
from moac.logs.states import CandidateLists, Data, Observation, Tables
from moac.policies import ItemsPolicy, SoftmaxMLP
from moac.policies.networks import Weights
from moac.policies.observations import LogSpec
from moac.types import Batch, Evaluation, Key, Params, Policy, Sampling, Spec

if TYPE_CHECKING:
    from moac.logs import arrays


WITH_TASTE = ":taste"
"""What `with_taste` marks a fingerprint by."""


class Behaviour(Protocol):
    """What estimates how the log chose: `moac.offline.behaviour.fit` makes one."""

    @property
    def policy(self) -> SoftmaxMLP | ItemsPolicy:
        """Gives the logits of all that can be chosen."""
        ...

    @property
    def clone(self) -> Weights:
        """The policy's weights for users it has not seen."""
        ...

    @property
    def method(self) -> tuple[Any, Weights]:
        """The policy, and the weights with a leading axis of one."""
        ...

    def propensities(self, dataset: LoggedDataset) -> Any:
        """[N] probability of each row's action, from a model that has not seen the row's user."""


@dataclass(frozen=True, eq=False, repr=False)
class LoggedDataset:
    """Rows of a log: who was shown what, and how they liked it. A user's rows stand together, in the order of time."""

    name: str  # of the data
    user: Int[np.ndarray, " N"]  # [N] index of the user
    action: Int[np.ndarray, " N"]  # [N] index of the action
    reward: Float[np.ndarray, "N M"]  # [N, M] signs × signals: more is better, also where the signal is a cost
    time: Int[np.ndarray, " N"]  # [N] of the row, in the log's unit
    context: Int[np.ndarray, "N C"]  # [N, C] codes of the request, such as the hour and the day of the week
    end: Int[np.ndarray, " N"]  # [N] the user's history before the row ends here: position in `tables.history`
    terminated: Bool[np.ndarray, " N"]  # [N] nothing follows, and its successor is worth 0
    truncated: Bool[np.ndarray, " N"]  # [N] the log ends here: the user's last row
    # [N] probability with which the log chose the action; None where it is not known
    propensity: Float[np.ndarray, " N"] | None
    split: Int[np.ndarray, " U"]  # [U] of each user: 0 train, 1 validation, 2 test
    tables: Tables  # users, items and histories, as host arrays
    user_ids: np.ndarray[Any, Any]  # [U] as the log names them: whole numbers or texts
    action_ids: np.ndarray[Any, Any]  # [K] as the log names them; of a built dataset the most viewed first
    action_items: Int[np.ndarray, " K"]  # [K] the item of each action, in `tables.items`
    item_ids: np.ndarray[Any, Any]  # [I] of all items, as the log names them
    signal_names: tuple[str, ...]  # M of them
    signs: tuple[int, ...]  # −1 where the signal is a cost
    fingerprint: str  # two datasets with one fingerprint hold the same numbers
    # the rows of uniformly random exposure, with the same users, actions and tables; None if there are none
    random: LoggedDataset | None = None
    behaviour: Behaviour | None = None  # the model that `with_behaviour` took the propensities from
    folder: str | None = None  # where `load` read it
    context_names: tuple[str, ...] = ()  # of the columns of the context; empty where they have none
    context_values: tuple[tuple[str, ...], ...] = ()  # of each column, in the order of its codes; none: only codes
    # [N] where states hold responses: those to the history are known up to here, as of `end`
    answered: Int[np.ndarray, " N"] | None = None
    response_scale: tuple[float, ...] = ()  # of each signal, where states hold responses
    # of the numbers of users, and of items; if known
    table_names: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    row_split: Int[np.ndarray, " N"] | None = None  # [N] of each row, where users alone do not say; −1 is none
    how_split: str = "users"  # the rule
    # [N] index of each request's list of candidates, in `lists`; None where all actions are candidates of all requests
    candidates: Int[np.ndarray, " N"] | None = None
    lists: CandidateLists | None = None
    known_actions: Bool[np.ndarray, " K"] | None = None  # [K] which of the actions train rows show; None is all
    bound_data: Data | None = None  # see `bound`
    # of what policies are worth on it; `moac.offline.evaluate.with_estimator` hands it down
    estimator: Callable[[LoggedDataset, Policy, Params], Evaluation] | None = None

    compiled = True  # rows are drawn inside the compiled program
    shape = None  # programs are its own: they are compiled for its columns

    @staticmethod
    @checked
    def load(path: str | Path) -> LoggedDataset:
        """A dataset that `logs.build` or `save` wrote into the folder `path`."""
        from moac.logs import folder

        return folder.load(Path(path))

    from_parquet = load

    @checked
    def save(self, directory: str | Path) -> Path:
        """Write the dataset into a folder that is not there yet, which `load` and `moac data describe` read."""
        from moac.logs import folder

        return folder.save(self, Path(directory))

    @staticmethod
    @checked
    def from_numpy(rows: arrays.Rows, about: arrays.About | None = None) -> LoggedDataset:
        """A log of one's own, in any order: `rows`, and what is known beyond them."""
        from moac.logs import arrays

        return arrays.dataset(rows, about or arrays.About())

    def __repr__(self) -> str:
        named = {"row": self.num_rows, "user": self.num_users, "action": self.num_actions, "signal": self.num_signals}
        about = ", ".join(counted(count, noun) for noun, count in named.items())
        return f"LoggedDataset({self.name!r}: {about}, {self.num_features} features)"

    @property
    def num_rows(self) -> int:
        """N."""
        return len(self.user)

    @property
    def num_users(self) -> int:
        """U."""
        return len(self.user_ids)

    @property
    def num_actions(self) -> int:
        """K."""
        return len(self.action_ids)

    @property
    def num_signals(self) -> int:
        """M."""
        return len(self.signal_names)

    @property
    def num_features(self) -> int:
        """Length of a feature vector."""
        return self.tables.size

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Of each number of a feature vector, in the order of `states.features`; numbered where they have none."""
        sizes, window, signals = self.tables.context_sizes, self.tables.window, self.signal_names
        widths = {"user features": self.tables.users.shape[1], "item features": self.tables.items.shape[1]}
        numbered = ([f"{what} {k}" for k in range(width)] for what, width in widths.items())
        user_names, item_names = self.table_names or numbered
        codes = [f"{name}={k}" for name, size in zip(self.context_labels, sizes, strict=True) for k in range(size)]
        viewed = [f"item -{k}: {name}" for k in range(1, window + 1) for name in ("seen", *item_names)]
        recent = [f"{signal} -{k}" for k in range(1, min(RECENT, window) + 1) for signal in signals]
        taste = [f"{signal} with {name}" for signal in signals for name in item_names] if self.tables.taste else []
        responses = [*(f"mean {signal}" for signal in signals), *recent, *taste] if self.response_scale else []
        return (*user_names, *codes, *viewed, *responses)

    @property
    def context_labels(self) -> tuple[str, ...]:
        """Names of the columns of the context, numbered where they have none."""
        return self.context_names or tuple(f"context {k}" for k in range(len(self.tables.context_sizes)))

    @property
    def nbytes(self) -> int:
        """Memory of all arrays together, those of `random` not counted twice."""
        return sum(leaf.nbytes for leaf in jax.tree.leaves((self._columns, self.tables, self.user_ids, self.split)))

    @checked
    def rows(self, split: str) -> Int[np.ndarray, " n"]:
        """The rows of a split's users."""
        return np.flatnonzero(self.row_splits == SPLITS.index(one_of("split", split, SPLITS)))

    @property
    def row_splits(self) -> Int[np.ndarray, " N"]:
        """The split of each row: its user's, unless the rule has a date."""
        return self.split[self.user] if self.row_split is None else self.row_split

    @checked
    def subset(self, split: str | Sequence[str]) -> LoggedDataset:
        """Only the rows of one split's users, or of several; tables and users stay as they are."""
        named = [split] if isinstance(split, str) else split
        chosen = [SPLITS.index(one_of("split", name, SPLITS)) for name in named]
        kept = np.isin(self.row_splits, chosen)
        columns = {name: None if column is None else column[kept] for name, column in self._columns.items()}
        random = None if self.random is None else self.random.subset(split)
        label = f"{self.fingerprint}:{'+'.join(SPLITS[k] for k in chosen)}"
        return replace(self, **columns, random=random, fingerprint=label)

    @checked
    def with_behaviour(self, model: Behaviour, propensity: Any = None) -> LoggedDataset:
        """The same rows with the model's propensities, where the log does not know its own; `random` keeps its own.

        `propensity` [N] is what the model gave for these rows before; None is to ask it.
        """
        from moac.logs import arrays

        if self.propensity is not None:
            raise ValueError(f"{self.name} knows its propensities already: a behaviour model has nothing to add.")
        given = model.propensities(self) if propensity is None else propensity
        checked = arrays.propensities(given, self.num_rows)
        label = f"{self.fingerprint}:behaviour-{hashlib.sha256(checked.tobytes()).hexdigest()[:8]}"
        return replace(self, propensity=checked, fingerprint=label, behaviour=model)

    def with_taste(self) -> LoggedDataset:
        """The same rows, with states that also hold how responses go with the features of items (`states.tasted`).

        It comes before a behaviour model, which sees states.
        """
        if self.tables.responses is None or self.behaviour is not None:
            raise ValueError(f"{self.name} must have past responses in its states, and no behaviour model yet.")
        random = None if self.random is None else self.random.with_taste()
        tables, label = replace(self.tables, taste=True), f"{self.fingerprint}{WITH_TASTE}"
        return replace(self, tables=tables, random=random, fingerprint=label)

    def initial(self) -> Params:
        """θ of Behavior-Clone: the behaviour model is a network like the policy."""
        return self.data.behaviour

    @checked
    def observation(self, rows: Numbers) -> Observation:
        """What was known when each of the rows was shown; an index for each, any shape."""
        return states.observation(self.data, jnp.asarray(self._checked_rows(rows)))

    def next_observation(self, rows: Any) -> Observation:
        """What is known when the user's next row is shown; after the last, the history including it, same context."""
        return states.next_observation(self.data, jnp.asarray(rows))

    def _checked_rows(self, rows: Any) -> Any:
        """Indices of rows, whole and in range unless they are traced; JAX would take the nearest row for another."""
        if isinstance(rows, Tracer):
            return rows
        index = np.asarray(rows, dtype=None if np.size(rows) else np.int32)
        if index.dtype.kind not in "iu" or ((index < 0) | (index >= self.num_rows)).any():
            raise ValueError(f"`rows` must be indices in [0, {self.num_rows}), got {shown(rows)}.")
        return index

    def features(self, observation: Observation) -> Any:
        """The numbers an observation stands for [..., F]. Compiled programs call `states.features(tables, …)`."""
        return states.features(self.data.tables, observation)

    @cached_property
    def data(self) -> Data:
        """The arrays on the device, as one pytree: hand it to a compiled program as an argument, see `bound`."""
        if self.bound_data is not None:
            return self.bound_data
        with jax.ensure_compile_time_eval():  # kept for good, also where a function that is traced asks first
            return states.on_device(self)

    def bound(self, data: Data) -> LoggedDataset:
        """This dataset with `data` in place of its own arrays.

        Inside a compiled program that takes `data` as an argument, `dataset.bound(data).sample(…)` traces without
        writing the arrays into the program as constants.
        """
        return replace(self, bound_data=data)

    @property
    def spec(self) -> Spec:
        """What the source is: observations are vectors, made from indices of this dataset."""
        return self._spec

    @cached_property
    def _spec(self) -> Spec:
        bound = float(np.abs(self.reward[self.rows("train")]).max(initial=0.0)) or 1.0
        policy: Any = None if self.behaviour is None else self.behaviour.policy
        embedding = getattr(policy, "embedding", None)
        modelled = None if policy is None else ("mlp" if embedding is None else "items", policy.hidden, bool(embedding))
        observations = LogSpec(self.num_features, Catalogue.of(self), modelled, self.lists is not None)
        again = None if self.folder is None else {"data": self.folder}
        about = (self.name, self.signal_names, observations, self.num_actions, bound, self.fingerprint)
        return Spec(*about, options=again)

    def start(self, key: Key) -> tuple[()]:
        """Rows are drawn independently: there is no chain. A log that cannot be learned from is refused at once."""
        del key
        self.check_known()
        if self.estimator is not None:
            self.known_rows("validation")
        return ()

    def sample(
        self, chain: tuple[()], policy: Policy, theta: Params, key: Key, sizes: Sampling
    ) -> tuple[tuple[()], Batch, Batch]:
        """N·D + B rows of train users, uniformly with replacement; the policy has no say in what was logged."""
        del policy, theta
        self.check_known()
        critic, actor = (states.with_features(self.data, batch) for batch in states.draw(sizes, self.data, key))
        if self.behaviour is not None:
            logits = self.behaviour.policy.logits(self.data.behaviour, actor.observation)
            actor = replace(actor, behaviour_log_probs=jax.nn.log_softmax(logits))
        return chain, critic, actor

    def evaluate(self, policy: Policy, theta: Params, setting: Any) -> Evaluation:
        """What the policies `theta` are worth on validation users, by the estimator."""
        del setting  # an estimate is of the immediate reward, whatever the discount
        self.check_known()
        if self.estimator is None:
            raise ValueError(
                "a log needs an estimator to evaluate policies: moac.offline.evaluate.with_estimator(log)."
            )
        return self.estimator(self, policy, theta)

    def known_rows(self, split: str, why: str = "policies are evaluated on them") -> Int[np.ndarray, " n"]:
        """The rows of a split; a ValueError that says what they are for where there are none."""
        rows = self.rows(split)
        if not len(rows):
            raise ValueError(f"{self.name} has no rows of {split} users: {why}.")
        return rows

    def check_known(self) -> None:
        """Refuse a log that does not know how it chose."""
        if self.propensity is None:
            raise ValueError(
                f"{self.name} has no propensities: fit a model and give it, "
                "dataset.with_behaviour(moac.offline.behaviour.fit(dataset))."
            )

    @property
    def _columns(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _COLUMNS}


_COLUMNS = (
    "user", "action", "reward", "time", "context", "end", "terminated", "truncated", "propensity", "answered",
    "row_split", "candidates",
)  # fmt: skip
