"""Files saved with a run on a log: its behaviour model and its catalogue of users, items and actions."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import numpy as np

from moac import files
from moac.logs.catalogue import Catalogue
from moac.logs.dataset import WITH_TASTE, LoggedDataset
from moac.offline.behaviour import BehaviourModel, Member, Options, identity
from moac.offline.evaluate import with_estimator
from moac.policies import ItemsPolicy, SoftmaxMLP
from moac.policies.networks import Plain
from moac.runs.problems import LOG_FILES, description

FORMAT = 1
BEHAVIOUR, CATALOGUE = LOG_FILES
KNOWN = "known_actions"
_EXPECTED = {
    "user_ids": (1, "iuU", "user_ids"), "users": (2, "if", "user_ids"), "item_ids": (1, "iuU", "item_ids"),
    "items": (2, "if", "item_ids"), "action_ids": (1, "iuU", "action_ids"), "action_items": (1, "iu", "action_ids"),
    KNOWN: (1, "b", "action_ids"),
}  # fmt: skip
"""Arrays of a catalogue: axes, kinds of numbers, and the ids they belong to."""
_LISTS = ("context_sizes", "context_names", "signal_names", "signs", "response_scale")
_OF_MEMBER = ("temperature", "rounds", "log_loss")
_OF_MODEL = ":behaviour-"  # what `with_behaviour` marks a fingerprint by


def write(folder: Path, dataset: LoggedDataset) -> None:
    """Write the dataset's catalogue, and its behaviour model with the propensities that it gave."""
    catalogue = Catalogue.of(dataset)
    about = {"format": FORMAT, "fingerprint": dataset.fingerprint, "window": catalogue.window, "taste": catalogue.taste}
    about |= {name: getattr(catalogue, name) for name in (*_LISTS, "context_values")}
    arrays = {name: getattr(catalogue, name) for name in _EXPECTED}
    kept = {name: array for name, array in arrays.items() if array is not None}
    files.write_arrays(folder / CATALOGUE, kept, about)
    if isinstance(dataset.behaviour, BehaviourModel):
        _write_model(folder / BEHAVIOUR, dataset.behaviour, dataset.propensity)


def _write_model(path: Path, model: BehaviourModel, propensity: Any) -> None:
    arrays = {
        f"weights.{k}.{layer}": np.asarray(W)
        for k, member in enumerate(model.members)
        for layer, W in enumerate(member.weights)
    }
    arrays |= {name: np.array([getattr(m, name) for m in model.members]) for name in _OF_MEMBER}
    policy = model.policy
    about: dict[str, Any] = {"format": FORMAT, "features": policy.inputs.size, "hidden": policy.hidden}
    about |= {"actions": policy.num_actions, "options": asdict(model.options), "identity": model.identity}
    files.write_arrays(path, arrays | {"propensity": propensity}, about)


def catalogue_of(folder: Path, fingerprint: str | None = None) -> Catalogue:
    """The catalogue that a run on the log of that fingerprint keeps, its sizes checked."""
    path = folder / CATALOGUE
    arrays, about = files.read_arrays(path)
    if fingerprint is not None and about.get("fingerprint") != fingerprint:
        raise ValueError(f"{path} belongs to another log than the run: its fingerprint is not {fingerprint}.")
    with files.interpreting(path):
        given: dict[str, Any] = {name: arrays[name] for name in _EXPECTED if name != KNOWN or name in arrays}
        given |= {name: tuple(about[name]) for name in _LISTS if name in about or name != "response_scale"}
        given["context_values"] = tuple(tuple(map(str, values)) for values in about.get("context_values", ()))
        catalogue = Catalogue(**given, window=about["window"], taste=bool(about.get("taste")))
        _check_catalogue(catalogue)
        return catalogue


def _check_catalogue(catalogue: Catalogue) -> None:
    for name, (axes, kinds, ids) in _EXPECTED.items():
        given: Any = getattr(catalogue, name)
        array = np.ones(len(catalogue.action_ids), bool) if given is None else given
        fits = array.ndim == axes and len(array) and array.dtype.kind in kinds
        if not fits or len(array) != len(getattr(catalogue, ids)):
            raise ValueError(f"`{name}` has shape {array.shape} and type {array.dtype}")
    if catalogue.action_items.min() < 0 or catalogue.action_items.max() >= len(catalogue.items):
        raise ValueError("`action_items` names items that are not there")
    sizes: tuple[Any, ...] = (catalogue.window, *catalogue.context_sizes)
    if not all(isinstance(size, int) and size >= 0 for size in sizes):
        raise ValueError("`window` and `context_sizes` must be whole numbers")
    if len(catalogue.context_names) not in (0, len(catalogue.context_sizes)):
        raise ValueError("`context_names` and `context_sizes` differ in length")
    if catalogue.context_values and tuple(map(len, catalogue.context_values)) != catalogue.context_sizes:
        raise ValueError("`context_values` and `context_sizes` differ")
    scale: tuple[Any, ...] = catalogue.response_scale
    if len(scale) not in (0, len(catalogue.signs)) or not all(isinstance(s, int | float) and s > 0 for s in scale):
        raise ValueError("`response_scale` must be a positive number for each signal")


def behaviour_of(folder: Path) -> BehaviourModel | None:
    """The behaviour model that a run keeps; None where its log knew its own propensities."""
    return _read_model(folder / BEHAVIOUR)[0] if (folder / BEHAVIOUR).exists() else None


def _read_model(path: Path) -> tuple[BehaviourModel, Any]:
    """The model and the propensities that it gave."""
    arrays, about = files.read_arrays(path)
    with files.interpreting(path):
        options = Options(**about["options"] | {"hidden": tuple(about["options"]["hidden"])})
        inputs, hidden = Plain(int(about["features"])), tuple(map(int, about["hidden"]))
        policy = SoftmaxMLP(inputs, hidden, int(about["actions"]))
        if options.policy == "items":
            items = catalogue_of(path.parent).described
            policy = ItemsPolicy(inputs, hidden, items, options.item_embedding)
        members = tuple(_member(policy, arrays, k) for k in range(1 + options.folds))
        return BehaviourModel(policy, members, options, str(about["identity"])), arrays["propensity"]


def _member(policy: SoftmaxMLP | ItemsPolicy, arrays: files.Arrays, k: int) -> Member:
    """Member k; a matrix of another shape than the policy's is refused."""
    weights: list[Any] = []
    for layer, wanted in enumerate(jax.eval_shape(policy.init, jax.random.key(0))):
        name = f"weights.{k}.{layer}"
        matrix = arrays[name]
        if matrix.shape != wanted.shape or matrix.dtype != np.float32:
            raise ValueError(f"`{name}` has shape {matrix.shape} and type {matrix.dtype}")
        weights.append(matrix)
    T, rounds, (plain, calibrated) = (arrays[name][k].tolist() for name in _OF_MEMBER)
    return Member(tuple(weights), T, rounds, (plain, calibrated))


def dataset_of(folder: Path, data: Path | None = None) -> LoggedDataset:
    """The dataset that a run was trained on, with its behaviour model put back; another is refused.

    `data` is where the dataset is; None is where it was.
    """
    problem = description(folder)["problem"]
    where, wanted = _place(folder, problem, data), str(problem["fingerprint"])
    without_model, marked, _ = wanted.partition(_OF_MODEL)
    dataset = LoggedDataset.from_parquet(where)
    dataset = with_estimator(dataset.with_taste() if without_model.endswith(WITH_TASTE) else dataset)
    _check_same(folder, where, dataset.fingerprint, without_model)
    if not marked:
        return dataset
    restored_dataset = restored(dataset, folder)
    if restored_dataset is None:
        raise files.DamagedError(folder / BEHAVIOUR, "it is missing")
    _check_same(folder, where, restored_dataset.fingerprint, wanted)
    return restored_dataset


def own_or_other(folder: Path, data: Path | None) -> LoggedDataset:
    """The run's own dataset, with its behaviour model, or another as it is."""
    own = str(description(folder)["problem"]["fingerprint"]).partition(_OF_MODEL)[0].removesuffix(WITH_TASTE)
    other = None if data is None else LoggedDataset.load(data)
    return dataset_of(folder, data) if other is None or other.fingerprint == own else other


def restored(dataset: LoggedDataset, folder: Path) -> LoggedDataset | None:
    """The dataset with the behaviour model that a folder keeps, and the propensities it gave; None if it has none."""
    path = folder / BEHAVIOUR
    if not path.exists():
        return None
    model, propensity = _read_model(path)
    if model.identity != identity(dataset):
        raise ValueError(f"{path} was fitted on other data than {dataset.folder or dataset.name}: choose a new folder.")
    return dataset.with_behaviour(model, propensity)


def _place(folder: Path, problem: dict[str, Any], data: Path | None) -> Path:
    if not isinstance(problem.get("log"), dict):
        raise ValueError(f"{folder} was trained on {problem['name']}, which is not a log.")
    if data is not None:
        return data
    kept = problem["log"].get("data")
    if not isinstance(kept, str):
        raise ValueError(f"{folder} was trained on arrays in Python: give `data`, their dataset.save(folder).")
    if not Path(kept).is_dir():
        raise ValueError(f"{kept}, on which {folder} was trained, is not there: give its new place with `data`.")
    return Path(kept)


def _check_same(folder: Path, where: Path, actual: str, wanted: str) -> None:
    if actual != wanted:
        raise ValueError(f"{folder} was trained on other data than {where}: its fingerprint is {wanted}, not {actual}.")
