"""What a built dataset holds: the paper's data table for it, and what a reader asks next. Needs no JAX."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from moac.logs import manifest, stored
from moac.logs.splits import SPLITS


@final
@dataclass(frozen=True, eq=False)
class Description:
    """A dataset in numbers.

    Attributes:
        manifest: of the dataset; `parts["rows"]` is what is trained on, `logs` are the whole logs.
        rows_per_user: [n] rows trained on, for each user that has any.
        user_splits: [n] the split of each.
        action_views: [K] rows of each action, the most viewed by train users first.
    """

    manifest: dict[str, Any]
    rows_per_user: np.ndarray[Any, Any]
    user_splits: np.ndarray[Any, Any]
    action_views: np.ndarray[Any, Any]

    @property
    def name(self) -> str:
        """Of the data."""
        return self.manifest["name"]

    @property
    def signals(self) -> dict[str, dict[str, float]]:
        """The paper's table: for each signal `amount`, `share` of all amounts, `sum`, and `mean` per row."""
        return self.manifest["parts"]["rows"]["signals"]

    @property
    def splits(self) -> dict[str, dict[str, Any]]:
        """Users, rows and signals of each split."""
        return self.manifest["parts"]["rows"]["splits"]

    @property
    def num_rows(self) -> int:
        """N: every row has a state of its own."""
        return self.manifest["parts"]["rows"]["rows"]

    @property
    def num_actions(self) -> int:
        """K."""
        return len(self.action_views)

    @property
    def days(self) -> dict[str, dict[str, int]]:
        """Rows of each whole log, by day."""
        return {name: log["days"] for name, log in self.manifest["logs"].items()}

    def summary(self) -> dict[str, Any]:
        """As one object for `--json`."""
        about = self.manifest
        counts = np.bincount(self.user_splits, minlength=len(SPLITS))
        return {
            "name": self.name,
            "content": about["content"],
            "rows": self.num_rows,
            "states": self.num_rows,
            "actions": self.num_actions,
            "users": len(self.rows_per_user),
            "signals": self.signals,
            "rows_per_user": about["parts"]["rows"]["rows_per_user"],
            "users_per_split": dict(zip(SPLITS, counts.tolist(), strict=True)),
            "splits": self.splits,
            "random": about["parts"].get("random"),
            "logs": about["logs"],
            "absent": about["absent"],
            "options": about["options"],
            "warnings": about["warnings"],
        }


def describe(path: str | Path) -> Description:
    """The description of a dataset that `moac data kuairand build` wrote."""
    folder = Path(path)
    about = manifest.read(folder)
    shared = stored.shared(folder)
    rows = stored.rows(folder, "rows", shared)
    ids, counts = np.unique(rows["user"], return_counts=True)
    views = np.bincount(rows["action"], minlength=len(shared["action_ids"]))
    return Description(about, counts, np.asarray(shared["split"])[ids], views)
