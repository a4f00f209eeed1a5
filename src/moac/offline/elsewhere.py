"""Another log as a run sees it: next week's rows with the catalogue, the features and the vocabulary of the run.

How that log chose is fitted anew, and beside it the run's own model is kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from moac import files
from moac.choices import did_you_mean
from moac.files import Arrays
from moac.logs import buckets, candidates, engine, folder
from moac.logs.buckets import Views
from moac.logs.catalogue import Catalogue, code_of, codes_of
from moac.logs.dataset import LoggedDataset
from moac.logs.numbering import as_ids
from moac.logs.schema import Signal
from moac.logs.splits import Rule
from moac.logs.states import CandidateLists, Tables, lists_of
from moac.offline import behaviour
from moac.offline.behaviour import BehaviourModel


@dataclass(frozen=True, eq=False)
class Seen:
    """A log as the policies of a run see it."""

    dataset: LoggedDataset  # with propensities: the log's, or those of a model fitted on it
    carried: LoggedDataset | None = None  # with those of the run's own model, where the log has none
    unknown: dict[str, int] | None = None  # how many users, items and views the run does not know; None on its own log


def seen(dataset: LoggedDataset, catalogue: Any, model: BehaviourModel | None, own: bool = True) -> Seen:
    """The run's own log, or another, with the run's catalogue and the behaviour model that the run keeps, if any.

    Where nothing is known of the run's log, `own`, one with its catalogue is taken for it.
    """
    if dataset.propensity is not None and Catalogue.of(dataset).same(catalogue):
        return Seen(dataset, unknown=None if own else {"users": 0, "items": 0, "views": 0})
    mapped, unknown = onto(dataset, catalogue)
    if mapped.propensity is not None:
        return Seen(mapped, None, unknown)
    refitted = mapped.with_behaviour(behaviour.fit(mapped, None if model is None else model.options))
    if model is None:
        return Seen(refitted, None, unknown)
    kept = replace(model, identity=behaviour.identity(mapped))
    return Seen(refitted, mapped.with_behaviour(kept), unknown)


def onto(other: LoggedDataset, catalogue: Catalogue) -> tuple[LoggedDataset, dict[str, int]]:
    """A dataset's rows on the actions of a catalogue, in its states; and how many users, items and views are unknown.

    Where the dataset has a folder that a build made, these are all rows of the log; else those on its own actions. An
    unknown user has zeros for features; an unknown item is left out of histories, as if it had not been viewed. Splits
    are the other log's own.
    """
    built = other.folder is not None and any(Path(other.folder).glob("rows/*.parquet"))
    pieces, shown, unknown = _indexed(_built(other, catalogue) if built else _held(other, catalogue), catalogue)
    if not sum(len(piece["user"]) for piece in pieces):
        raise ValueError(f"{other.name} has no row on an action of the run: nothing can be evaluated.")
    shared, parts = buckets.join(pieces, primary_is_random=False)
    rows = parts["rows"]
    if "propensity" in rows:
        rows["propensity"] = buckets.among(rows["propensity"], len(rows["user"]) / shown)
    user_ids = other.user_ids[shared["user_ids"]]
    users, exposed = catalogue.users_at(user_ids), parts.get("random")
    features = catalogue.users[np.maximum(users, 0)] * (users >= 0)[:, None].astype(catalogue.users.dtype)
    history, sizes = shared["item_ids"][shared["history"]], (catalogue.context_sizes, catalogue.window)
    parts_of: tuple[Any, ...] = (features, catalogue.items, history, shared["first"], *sizes, shared.get("responses"))
    tables = Tables(*parts_of, taste=catalogue.taste)
    kept = ("item_ids", "action_ids", "action_items", "signal_names", "signs", "context_names", "context_values")
    common: dict[str, Any] = {name: getattr(catalogue, name) for name in (*kept, "response_scale")}
    common |= {"tables": tables, "user_ids": user_ids, "split": other.split[shared["user_ids"]]}
    common |= {"known_actions": catalogue.known_actions, "lists": _lists(other, catalogue)}
    hashed = (catalogue.action_ids.astype(str), catalogue.item_ids.astype(str), catalogue.users, catalogue.items)
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in hashed)).hexdigest()
    label = f"{other.fingerprint}:on-{digest[:8]}"
    dataset = LoggedDataset(other.name, **folder.columns(rows, None), **common, fingerprint=label)
    dataset = replace(_split(dataset, other), folder=other.folder)
    if exposed is not None:
        columns = folder.columns(exposed, 1 / len(catalogue.action_ids))
        random = LoggedDataset(f"{other.name}-random", **columns, **common, fingerprint=f"{label}:random")
        dataset = replace(dataset, random=_split(random, other))
    return dataset, {"users": int((users < 0).sum()), **unknown}


def _lists(other: LoggedDataset, catalogue: Catalogue) -> CandidateLists | None:
    """The other log's lists of candidates as actions of the run; those that it does not know are left out."""
    if other.lists is None:
        return None
    arrays = {candidates.FIRST: other.lists.first, candidates.ACTIONS: other.lists.actions}
    return lists_of(candidates.mapped(arrays, catalogue.actions_of(catalogue.items_at(other.action_ids))))


def _indexed(views: Iterator[Views], catalogue: Catalogue) -> tuple[list[Arrays], int, dict[str, int]]:
    """Arrays of each bucket, items by their place in the catalogue; how many rows there are; what is unknown."""
    pieces, strange, unknown, shown = list[Arrays](), set[Any](), 0, 0
    for each in views:
        shown += int((~each.random).sum())
        place = catalogue.items_at(each.item)
        known = place >= 0
        strange |= set(np.unique(each.item[~known]).tolist())
        unknown += int((~known).sum())
        if known.any():
            values = {name: column[known] for name, column in each.values.items()}
            rows = {name: getattr(each, name)[known] for name in ("user", "time", "random")}
            kept = replace(each, **rows, item=place[known].astype(np.int32), values=values)
            pieces.append(buckets.indexed(kept, catalogue.window, catalogue.action_items, catalogue.response_scale))
    if not pieces:
        raise ValueError("the log has no item that the run knows: nothing can be evaluated.")
    return pieces, shown, {"items": len(strange), "views": unknown}


def _built(other: LoggedDataset, catalogue: Catalogue) -> Iterator[Views]:
    """All rows of a built dataset, bucket by bucket, users by their place in it."""
    place = Path(str(other.folder))
    about, users = folder.read_manifest(place), 0
    if "columns" not in about:
        raise ValueError(f"{place} was built by an older version of moac: build the dataset again.")
    with files.interpreting(place / folder.MANIFEST):
        columns, signals = about["columns"], _signals(about["signals"], catalogue, other.name)
        context = _context(list(about["context"]), other, catalogue)
        wanted = [columns["user"], columns["item"], columns["time"], "random", *(signals[n]["column"] for n in signals)]
        wanted += [f"context{k}" for k in range(len(about["context"]))]
        more = columns["propensity"], columns.get("candidates")
        wanted += [name for name in more if name]
        names = as_ids(engine.columns_of(place / "items.parquet", ["name", "whole"])) if columns["named"] else None
    for path in sorted(place.glob("rows/*.parquet")):
        found = engine.columns_of(path, list(dict.fromkeys(wanted)))
        ids, user = np.unique(found[columns["user"]], return_inverse=True)
        item, time = (found[columns[name]] for name in ("item", "time"))
        shown = (users + user).astype(np.int32), item if names is None else names[item], time, found["random"]
        codes = context([found[f"context{k}"] for k in range(len(about["context"]))])
        declared = tuple(Signal(name, s["column"], s["sign"], s.get("unit", 1)) for name, s in signals.items())
        yield Views(*shown, found | codes, declared, tuple(codes), *more)
        users += len(ids)


def _held(other: LoggedDataset, catalogue: Catalogue) -> Iterator[Views]:
    """The rows that a dataset in memory holds."""
    signed = {name: {"sign": sign} for name, sign in zip(other.signal_names, other.signs, strict=True)}
    order = [other.signal_names.index(name) for name in _signals(signed, catalogue, other.name)]
    codes = _context(list(other.context_labels), other, catalogue)(list(other.context.T))
    signals = tuple(Signal(other.signal_names[k], f"signal {k}") for k in order)  # with their signs already
    values = codes | {signal.column: other.reward[:, k] for signal, k in zip(signals, order, strict=True)}
    known = other.propensity is not None and other.behaviour is None
    values |= {"propensity": other.propensity} if known else {}
    values |= {} if other.candidates is None else {"candidates": other.candidates}
    shown = other.user, other.action_ids[other.action], other.time, np.zeros(other.num_rows, bool)
    more = ("propensity" if known else None, None if other.candidates is None else "candidates")
    yield Views(*shown, values, signals, tuple(codes), *more)


def _signals(there: dict[str, Any], catalogue: Catalogue, name: str) -> dict[str, Any]:
    """The other log's signals in the order of the run's; one that is missing, or has another sign, is refused."""
    for signal, sign in zip(catalogue.signal_names, catalogue.signs, strict=True):
        if signal not in there or there[signal]["sign"] != sign:
            near = did_you_mean(signal, list(there)) or f" It has {', '.join(there)}."
            what = "as a gain" if sign > 0 else "as a cost"
            raise ValueError(f"{name} must have the signal `{signal}`, {what}, which the run was trained on.{near}")
    return {signal: there[signal] for signal in catalogue.signal_names}


def _context(names: list[str], other: LoggedDataset, catalogue: Catalogue) -> Any:
    """From columns of the other log's codes to columns of the run's."""
    wanted = catalogue.context_names or tuple(f"context {k}" for k in range(len(catalogue.context_sizes)))
    for name in wanted:
        if name not in names:
            raise ValueError(f"{other.name} must have the context `{name}`, which the run was trained on.")
    order = [names.index(name) for name in wanted]
    if bool(catalogue.context_values) != bool(other.context_values) and wanted:
        raise ValueError(f"{other.name} must have its context as the run's log has: as values, or as codes.")
    theirs = (other.context_values[at] for at in order if other.context_values)
    tables = list[Any]()  # the run's code of each of the other's values; the last one is for what is unknown, −1
    for known, values in zip(catalogue.context_values, theirs, strict=True):
        ours = codes_of(known)
        tables.append(np.array([*(code_of(ours, value) for value in values), -1]))

    def mapped(codes: list[Any]) -> dict[str, Any]:
        return {f"code {k}": tables[k][codes[at]] if tables else codes[at] for k, at in enumerate(order)}

    return mapped


def _split(dataset: LoggedDataset, other: LoggedDataset) -> LoggedDataset:
    """With the split of each row, where the other log's rule has a date."""
    if other.row_split is None:
        return dataset
    rule = Rule.of(other.how_split, 0, (0.4, 0.3, 0.3))  # users have their splits already
    since = rule.since(int(max(other.time.max(), dataset.time.max())))
    by_row = rule.rows(dataset.split[dataset.user], dataset.time, since)
    return replace(dataset, row_split=by_row, how_split=other.how_split)
