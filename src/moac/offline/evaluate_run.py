"""A run on a log, judged on a split's users: card and page go into the run's folder."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, final

import jax

from moac import files
from moac.config import Config
from moac.logs.dataset import LoggedDataset
from moac.offline import access_log as looks
from moac.offline import cards, evaluation, ncis
from moac.offline.access_log import Book
from moac.offline.evaluation import Judged, Method
from moac.report import html
from moac.report.pages import evaluation as page
from moac.runs import directory, log_files
from moac.runs.directory import load


@final
@dataclass(frozen=True)
class Order:
    """What to judge, and how.

    Attributes:
        run: folder of the run.
        data: folder of its data; None is where it was.
        split: validation or test.
        trial: which trial alone; None is all of them, as seeds of one method.
        options: of the estimate.
    """

    run: Path
    data: Path | None = None
    split: str = "validation"
    trial: int | None = None
    options: ncis.Options = field(default_factory=ncis.Options)


@final
@dataclass(frozen=True, eq=False)
class Evaluated:
    """What was found, and where it is written.

    Attributes:
        judged: values, changes, verdict.
        book: of looks at test users; None on other users.
        card: as written.
        card_path, page_path: where.
    """

    judged: Judged
    book: Book | None
    card: dict[str, Any]
    card_path: Path
    page_path: Path


def evaluate(order: Order) -> Evaluated:
    """Judge a run's policies beside Behavior-Clone; a look at test users is noted before any number is computed."""
    run = directory.read(order.run)
    methods = {_name(run.config): _method(order)}
    dataset = log_files.dataset_of(order.run, order.data)
    files.check_folder("RUN", order.run)
    evaluation.check(dataset, methods, order.split)
    book = _noted(order, dataset, methods) if order.split == "test" else None
    judged = evaluation.judge(dataset, methods, order.split, order.options)
    card = cards.card(judged, dataset, looks.fingerprints(methods), book)
    shown = html.render(page.of_judged(judged, card, run, book))
    card_path, page_path = order.run / f"card-{order.split}.json", order.run / f"evaluation-{order.split}.html"
    files.write_json(card_path, card)
    files.write_bytes(page_path, shown.encode())
    return Evaluated(judged, book, card, card_path, page_path)


def _noted(order: Order, dataset: LoggedDataset, methods: dict[str, Method]) -> Book:
    options = asdict(order.options) | {"trial": order.trial}
    own = looks.look(order.run, order.split, options, dataset.fingerprint, methods)
    return looks.note(own, order.run, None if dataset.folder is None else Path(dataset.folder))


def _method(order: Order) -> Method:
    """The policies of all trials, or of one."""
    trained = load(order.run, order.trial or 0)
    if order.trial is None:
        return trained.policy, trained.theta
    return trained.policy, jax.tree.map(lambda leaf: leaf[order.trial][None], trained.theta)


def _name(config: Config) -> str:
    return "MOAC" if config.weighting == "min-norm" else f"{config.weighting} weights"
