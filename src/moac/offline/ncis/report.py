"""What is known of policies on a log: values, changes, diagnostics, second opinions, and a verdict on each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Bool, Float

from moac.offline.ncis import plain
from moac.offline.ncis.diagnostics import Diagnostics
from moac.offline.ncis.estimates import Change, Estimate
from moac.offline.ncis.exposure import Agreement
from moac.offline.ncis.options import Options
from moac.offline.ncis.sweep import Sweep
from moac.offline.ncis.trust import Verdict


@final
@dataclass(frozen=True, eq=False)
class PolicyReport:
    """One policy, or one method's training seeds.

    Attributes:
        ncis: with the cap in use.
        snips: without a cap.
        doubly_robust: None without a reward model.
        by_seed: [R, M] values of each training seed.
        change: to the baseline; None for itself, or without one.
        diagnostics: of each training seed.
        estimable: [M] enough weighted positives, for every seed.
        agreement: with random exposure; None without it.
        verdict: whether to trust all this.
    """

    ncis: Estimate
    snips: Estimate
    doubly_robust: Estimate | None
    by_seed: Float[np.ndarray, "R M"]
    change: Change | None
    diagnostics: tuple[Diagnostics, ...]
    estimable: Bool[np.ndarray, " M"]
    agreement: Agreement | None
    verdict: Verdict


@final
@dataclass(frozen=True, eq=False)
class Report:
    """All policies on one log.

    Attributes:
        signal_names: M of them.
        options: how it was made.
        baseline: name of the policy that changes are counted from.
        policies: by name.
        sweep: over caps.
        warnings: one line each; empty where there are none.
    """

    signal_names: tuple[str, ...]
    options: Options
    baseline: str | None
    policies: Mapping[str, PolicyReport]
    sweep: Sweep
    warnings: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON: arrays are lists, NaN is None, an infinite cap is "inf"."""
        return plain.plain(self)

    def __str__(self) -> str:
        return plain.table(self)
