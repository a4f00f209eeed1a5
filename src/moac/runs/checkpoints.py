"""Arrays of a run by name, checked when read: checkpoints beside the training, history and policies at its end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Int

from moac import files, parts, settings, training
from moac.files import Arrays
from moac.policies import SoftmaxLinear, features
from moac.policies.observations import StateSpec, VectorSpec, scaled
from moac.settings import Settings
from moac.training.result import Result
from moac.training.run import History
from moac.training.trained import TrainedPolicy
from moac.types import Params, Policy, Spec

_KEPT = 2
_LENGTH = "config.num_iterations"


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one run."""

    folder: Path  # where they are
    description: Mapping[str, Any]  # of the run, as config.json has it; a checkpoint of another is refused

    def write(self, snapshot: training.Snapshot) -> None:
        """Store all that is needed to go on; the last two are kept."""
        with ThreadPoolExecutor(1) as pool:  # a thread that waits for a disk hears of no signal: it is not the main one
            pool.submit(self.writing(snapshot)).result()

    def writing(self, snapshot: training.Snapshot) -> Callable[[], None]:
        """What `write` does, to be called in any thread; the devices are asked for their numbers now."""
        named = [_named_leaves(block) for block in snapshot.blocks()]
        arrays: dict[str, Any] = {}
        for leaves in zip(*named, strict=True):
            arrays[f"trials{leaves[0][0]}"] = [leaf for _, leaf in leaves]
        arrays |= {f"history.{name}": array for name, array in snapshot.history.arrays().items()}
        about = {"iteration": snapshot.iteration, "kind": snapshot.history.kind, "run": self.description}
        return partial(self._write, self.folder / f"{snapshot.iteration:010d}.safetensors", arrays, about)

    def _write(self, path: Path, arrays: Mapping[str, Any], about: Mapping[str, Any]) -> None:
        files.write_arrays(path, arrays, about)
        for old in self._paths()[:-_KEPT]:
            old.unlink(missing_ok=True)

    def newest(self, run: training.Run) -> training.Snapshot | None:
        """The newest checkpoint that can be read, or None where there is none yet."""
        damaged: ValueError | None = None
        for path in reversed(self._paths()):
            try:
                return self._read(path, run)
            except files.DamagedError as error:
                damaged = damaged or error
        if damaged is not None:
            raise ValueError(f"{damaged} Delete {self.folder}/*.safetensors to start the run over.") from None
        return None

    def _paths(self) -> list[Path]:
        return sorted(self.folder.glob("[0-9]*.safetensors"))

    def _read(self, path: Path, run: training.Run) -> training.Snapshot:
        arrays, about = files.read_arrays(path)
        longer = not settings.length_dependent(run.config)
        check_same_run(self.folder.parent / "config.json", self.description, about, longer)
        template = training.template(run)
        leaves: list[Any] = []
        for name, expected in _named_leaves(template):
            leaf = arrays.get(f"trials{name}")
            if leaf is None or leaf.shape != expected.shape or leaf.dtype != expected.dtype:
                raise files.DamagedError(path, f"array {name} is missing or has another shape")
            leaves.append(leaf)
        trials = jax.tree.unflatten(jax.tree.structure(template), leaves)
        logged = {name.removeprefix("history."): a for name, a in arrays.items() if name.startswith("history.")}
        with files.interpreting(path):
            history = History.of_arrays(logged, about["kind"])
            return training.Snapshot.of(int(about["iteration"]), trials, history)


def _named_leaves(tree: Any) -> list[tuple[str, Any]]:
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)]


def check_same_run(
    config: Path, description: Mapping[str, Any], about: Mapping[str, Any], longer: bool = False
) -> None:
    """Refuse to mix a configuration with arrays that another one made; `longer` allows it more iterations."""
    made_by = about.get("run")
    before, now = _flat(made_by if isinstance(made_by, Mapping) else {}), _flat(description)
    for name in sorted(before.keys() | now.keys()):
        then, today = before.get(name), now.get(name)
        lengthened = longer and name == _LENGTH and isinstance(then, int) and isinstance(today, int) and then < today
        if then != today and not lengthened:
            raise ValueError(
                f"{config} was edited after the run began: `{name}` is {json.dumps(today)}, "
                f"was {json.dumps(then)}. Put it back, or start a new run."
            )


def _flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in data.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def read_history(path: Path, size: tuple[int, int]) -> History:
    """The history in a file, with arrays of the shapes that K trials and M objectives ask for."""
    arrays, about = files.read_arrays(path)
    with files.interpreting(path):
        stored = History.of_arrays(arrays, str(about["kind"]))
        (K, M), L = size, len(np.atleast_1d(stored.iteration))
        if L == 0:
            raise ValueError("`iteration` has shape (0,): nothing is logged")
        for name, array in stored.arrays().items():
            expected = (K, L)
            if name in ("returns", "weights", "min_norm_weights"):
                expected = (K, L, M)
            elif name not in stored.arrays_per_trial():
                expected = (L,)
            _check(name, array, expected, "fiu")
    return stored


def _check(name: str, array: np.ndarray[Any, Any], shape: tuple[int, ...], kinds: str) -> None:
    if array.shape != shape or array.dtype.kind not in kinds:
        raise ValueError(f"`{name}` has shape {array.shape} and type {array.dtype}, not {shape} and one of {kinds!r}")


def policy_arrays(outcome: Result) -> Arrays:
    """The parameters of all policies, and what else it takes to let them act."""
    stored: Arrays = {"random_iteration": outcome.random_iteration, "stopped": outcome.stopped}
    for name, trained in (("theta", outcome.policy), ("theta_random", outcome.random_iterate_policy)):
        leaves = jax.tree.leaves(trained.theta)
        stored |= dict(zip(_names(name, len(leaves)), map(np.asarray, leaves), strict=True))
    if isinstance(outcome.policy.policy, SoftmaxLinear):
        stored["features"] = outcome.policy.policy.features.table()
    observations = outcome.policy.observations
    if isinstance(observations, StateSpec) and observations.shown is not None:
        stored["observations"] = observations.shown
    return stored | {f"observation_{name}": array for name, array in (observations.scales or {}).items()}


def policy(stored: Arrays, chosen: Settings, spec: Spec) -> Policy:
    """The policy that the settings name; features that were drawn at random are those that the run keeps."""
    if "features" not in stored:
        return parts.policy(chosen, spec, features.by_name(chosen.features, spec, parts.run_key(0)))
    table = stored["features"]
    if table.ndim != 2 or table.dtype.kind != "f":
        raise ValueError(f"`features` has shape {table.shape} and type {table.dtype}")
    return parts.policy(chosen, spec, features.Table(table))


def trained(stored: Arrays, name: str, trials: int, policy: Policy, spec: Spec, setting: Any) -> TrainedPolicy:
    """The policies with the parameters of that name (`theta`, `theta_random`), which act on observations as stored."""
    theta = parameters(stored, name, trials, policy)
    needed, scales = isinstance(spec.observations, VectorSpec), dict[str, Any]()
    for key in ("shift", "gain"):
        if needed or f"observation_{key}" in stored:
            scales[key] = stored[f"observation_{key}"]
            _check(f"observation_{key}", scales[key], (trials, spec.observation_size), "f")
    return TrainedPolicy(policy, theta, scaled(spec.observations, scales or None), 0, setting, spec.action_box)


def parameters(stored: Arrays, name: str, trials: int, policy: Policy) -> Params:
    """The parameters of that name as the policy has them, leading axis `trials`; ValueError for other shapes."""
    expected, structure = jax.tree.flatten(jax.eval_shape(policy.init, jax.random.key(0)))
    names = _names(name, len(expected))
    for leaf, one in zip(names, expected, strict=True):
        _check(leaf, stored[leaf], (trials, *one.shape), np.dtype(one.dtype).kind)
    return jax.tree.unflatten(structure, [stored[leaf] for leaf in names])


def per_trial(stored: Arrays, name: str, trials: int) -> Int[np.ndarray, " K"]:
    """An array with one whole number for each trial."""
    _check(name, stored[name], (trials,), "iu")
    return stored[name]


def _names(name: str, count: int) -> list[str]:
    return [name] if count == 1 else [f"{name}.{k}" for k in range(count)]


class Writer:
    """Writes the checkpoints of one training, one at a time, in a thread of its own.

    A training that is killed repeats at most `every` seconds and the present chunk; seconds count from when the state
    of the newest complete checkpoint was taken. A state is taken where the one after the next chunk might be complete
    too late, judged by the last checkpoint and by twice the last chunk, since machines are shared. While a checkpoint
    is being written no other is taken; the training waits for it only where the complete one is older than `every`, so
    with 0 after each chunk.
    """

    def __init__(self, checkpoints: Checkpoints, every: float, written: int | None) -> None:
        self._checkpoints, self._every = checkpoints, every
        self._pool = ThreadPoolExecutor(1)  # a thread that waits for a disk hears of no signal: not the main one
        self._work: Future[float] | None = None
        self._written, self._next = written, written  # iterations: of the newest complete one, of the newest taken
        self._complete = self._taken = self._seen = time.monotonic()  # when both were taken; when the last chunk began
        self._cost = 0.0  # seconds that the last one took to write

    def offer(self, snapshot: training.Snapshot) -> None:
        """Take a snapshot, which the training has just reached, if one is due."""
        now = time.monotonic()
        overdue = now - self._complete >= self._every
        if overdue or self._work is None or self._work.done():
            self._wait()
            if now - self._taken + 2 * (now - self._seen) + self._cost >= self._every:
                self._take(snapshot, now)
        if now - self._complete >= self._every:
            self._wait()
        self._seen = time.monotonic()

    def finish(self, snapshot: training.Snapshot | None) -> None:
        """Store the last snapshot of the training, if it has one, and return when that is complete."""
        try:
            self._wait()
        finally:
            try:
                if snapshot is not None and snapshot.iteration != self._written:
                    self._take(snapshot, time.monotonic())
                    self._wait()
            finally:
                self._pool.shutdown()

    def _take(self, snapshot: training.Snapshot, now: float) -> None:
        self._work = self._pool.submit(_timed, self._checkpoints.writing(snapshot))
        self._next, self._taken = snapshot.iteration, now

    def _wait(self) -> None:
        """Let the checkpoint at work be complete; if it cannot be written, the error is raised here."""
        if self._work is not None:
            work, self._work = self._work, None
            self._cost = work.result()
            self._written, self._complete = self._next, self._taken


def _timed(write: Callable[[], None]) -> float:
    began = time.monotonic()
    write()
    return time.monotonic() - began
