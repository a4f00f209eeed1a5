"""What arrays of a log and of a policy must be; each mistake is one line that names the argument and the row."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, Int

ROUNDING = 1e-6
"""By how much a probability may exceed 1: single precision."""
SUM_TOLERANCE = 1e-3
"""By how much the probabilities of all actions may miss 1 in sum."""


def column(name: str, given: Any, count: int | None = None) -> Any:
    """A column [N], of the given length."""
    found = np.asarray(given)
    if found.ndim != 1 or (count is not None and len(found) != count):
        raise ValueError(f"{name} must have shape [{'N' if count is None else count}], got {list(found.shape)}.")
    return found


def rewards(given: Any, count: int) -> Float[np.ndarray, "N M"]:
    """Finite rewards [N, M]; [N] is one signal."""
    found = np.asarray(given, dtype=np.float64)
    found = found[:, None] if found.ndim == 1 else found
    if found.ndim != 2 or len(found) != count or not found.shape[1]:
        raise ValueError(f"`reward` must have shape [{count}, M], got {list(np.shape(given))}.")
    return _finite("`reward`", found)


def propensities(given: Any, count: int) -> Float[np.ndarray, " N"]:
    """Probabilities of logged actions: in (0, 1], since what was logged was possible."""
    found = column("`propensity`", given, count).astype(np.float64)
    _require("`propensity` must be in (0, 1]", found, (found > 0) & (found <= 1 + ROUNDING))
    return found


def weights(name: str, given: Any, count: int) -> Float[np.ndarray, " N"]:
    """Importance weights: finite, not negative."""
    found = column(name, given, count).astype(np.float64)
    _require(f"{name} must hold weights that are finite and not negative", found, (found >= 0) & np.isfinite(found))
    return found


def actions(given: Any, count: int) -> Int[np.ndarray, " N"]:
    """Indices of actions, from 0."""
    found = column("`action`", given, count)
    if found.dtype.kind not in "iu":
        raise ValueError(f"`action` must hold whole numbers, got {found.dtype}.")
    _require("`action` must hold indices from 0", found, found >= 0)
    return found


def probabilities(name: str, given: Any, count: int) -> Float[np.ndarray, "N ..."]:
    """Probabilities [N] of the logged actions, or [N, K] of all, which then sum to 1."""
    found = np.asarray(given, dtype=np.float64)
    if found.ndim not in (1, 2) or len(found) != count or not found.size:
        raise ValueError(f"{name} must have shape [{count}] or [{count}, K], got {list(found.shape)}.")
    _require(f"{name} must hold probabilities in [0, 1]", found, (found >= 0) & (found <= 1 + ROUNDING))
    if found.ndim == 2:
        total = found.sum(axis=1)
        _require(f"{name} must sum to 1 over the actions", total, np.abs(total - 1) <= SUM_TOLERANCE)
    return found


def taken(name: str, table: Float[np.ndarray, "N K"], action: Any) -> Float[np.ndarray, " N"]:
    """π(a|s) [N] of the logged actions."""
    if action is None:
        raise ValueError(f"{name} has all actions' probabilities [N, K]; the log then needs `action` [N].")
    _require(f"`action` must be below {table.shape[1]}, the actions of {name}", action, action < table.shape[1])
    return table[np.arange(len(table)), action]


def signal_names(given: Any, count: int) -> tuple[str, ...]:
    """M names, each there once."""
    names = tuple(f"signal {k}" for k in range(count)) if given is None else tuple(map(str, given))
    if len(names) != count or len(set(names)) != count:
        raise ValueError(f"`signal_names` must hold {count} different names, got {list(names)}.")
    return names


def _finite(name: str, found: Any) -> Any:
    _require(f"{name} must be finite", found, np.isfinite(found))
    return found


def _require(rule: str, found: Any, holds: Any) -> None:
    if not holds.all():
        at = tuple(int(k) for k in np.argwhere(~holds)[0])
        raise ValueError(f"{rule}, got {found[at]} in row {at[0]}.")
