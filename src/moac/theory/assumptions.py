"""Do the theorems' assumptions hold here? If not: where, by how much, and what to change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from moac.arguments import checked
from moac.momdp import chain
from moac.theory.ground import Ground, contraction

Status = Literal["holds", "fails", "not applicable"]
_LISTED = 8  # states that a message names, at most


@dataclass(frozen=True)
class Assumption:
    """One assumption, checked."""

    name: str  # what is assumed
    status: Status  # `holds`, `fails` or `not applicable`
    measure: str  # what the number is
    number: float | None  # the number that decides; None where there is none
    reason: str = ""  # where it fails, why, in words
    remedy: str = ""  # where it fails, what to change


@checked
def check(g: Ground) -> tuple[Assumption, ...]:
    """All assumptions at the policy of `g`. The paper asks for them at every policy: check those of a run."""
    bounded = _verdict("rewards are bounded", "r_max", float(np.abs(g.rewards).max(initial=0.0)))  # of a finite model
    of_samples = _irreducible(g), _aperiodic(g), bounded, _non_negative(g)
    return *of_samples, _normalised(g), _full_rank(g), _no_constant(g), _contracting(g)


def _verdict(name: str, measure: str, number: float, reason: str = "", remedy: str = "") -> Assumption:
    """Fails where there is a reason."""
    return Assumption(name, "fails" if reason else "holds", measure, number, reason, remedy if reason else "")


def _irreducible(g: Ground) -> Assumption:
    """Every state is reached from every state."""
    count, _ = connected_components(csr_array(g.P > 0), directed=True, connection="strong")
    classes, reason, remedy = chain.recurrent_classes(g.P), "", ""
    if len(classes) > 1:
        reason = f"{len(classes)} sets of states cannot reach each other: {'; '.join(map(named, classes[:4]))}"
        remedy = "connect them, or let every episode end, so that the chain restarts"
    elif count > 1:
        reason = f"states {named(np.setdiff1d(np.arange(len(g.P)), classes[0]))} are never visited again once left"
        remedy = "drop them from the model, or let episodes start there; the critic learns nothing about them"
    return _verdict("the chain is irreducible", "communicating classes", count, reason, remedy)


def _aperiodic(g: Ground) -> Assumption:
    """The lengths of all ways back have no common divisor."""
    longest = max(period(g.P, members) for members in chain.recurrent_classes(g.P))
    reason = f"every return takes a multiple of {longest} steps" if longest > 1 else ""
    remedy = "let some action stay in place with a small probability; a period changes the mixing rate, not averages"
    return _verdict("the chain is aperiodic", "period", longest, reason, remedy)


def _non_negative(g: Ground) -> Assumption:
    """r ≥ 0, which the paper assumes of every reward."""
    lowest = g.rewards.min(axis=0)
    i, worst = int(np.argmin(lowest)), float(lowest.min())
    reason = f"objective {g.model.objective_names[i]!r} has a reward of {worst:g}" if worst < 0 else ""
    remedy = "nothing: the derived bound allows it (1 + Σ2η becomes 2 + Σ2η); shifted rewards favour long episodes"
    return _verdict("rewards are not negative", "smallest reward", worst, reason, remedy)


def _normalised(g: Ground) -> Assumption:
    """‖φ(s)‖ ≤ 1."""
    lengths = np.linalg.norm(g.Phi, axis=1)
    over, longest = np.flatnonzero(lengths > 1 + 1e-9), float(lengths.max())
    reason = f"states {named(over)}" if len(over) else ""
    return _verdict("‖φ(s)‖ ≤ 1", "longest φ", longest, reason, f"divide the features by {longest:.6g}")


def _full_rank(g: Ground) -> Assumption:
    """The columns of Φ are linearly independent."""
    singular = np.linalg.svd(g.Phi, compute_uv=False)
    S, d = g.Phi.shape
    rank = int((singular > singular.max(initial=0.0) * max(S, d) * np.finfo(float).eps).sum())
    smallest = float(singular[-1]) if d <= S else 0.0
    reason = f"{d} features of {S} states have rank {rank}: {d - rank} of the singular values are zero"
    name, remedy = "Φ has full column rank", f"keep {rank} independent columns"
    return _verdict(name, "smallest singular value", smallest, reason if rank < d else "", remedy)


def _no_constant(g: Ground) -> Assumption:
    """No u with Φu = 1, in the average setting: else w* is unique up to a constant only."""
    name, measure = "no u with Φu = 1", "distance of 1 from the span of Φ"
    if not g.is_average:
        return Assumption(name, "not applicable", measure, None, "not needed in the discounted setting")
    ones = np.ones(len(g.Phi))
    u = np.linalg.lstsq(g.Phi, ones, rcond=None)[0]
    reason = "the features span the constants, so w* is unique up to a constant; δ and g do not depend on it"
    remedy = "drop a reference state (features one-hot-reference), or read critic errors modulo constants"
    distance = float(np.linalg.norm(g.Phi @ u - ones))
    return _verdict(name, measure, distance, "" if g.constant is None else reason, remedy)


def _contracting(g: Ground) -> Assumption:
    """λ_max(A + Aᵀ) ≤ −λ_A < 0."""
    if len(chain.recurrent_classes(g.P)) > 1:
        return Assumption("λ_A > 0", "not applicable", "λ_A", None, "there is no unique stationary law")
    value, rarest = contraction(g), int(np.argmin(g.stationary))
    if g.is_average and g.constant is not None:
        modulo = contraction(g, modulo_constants=True)
        reason = f"the constant in the span of Φ does not contract; modulo constants λ_A is {modulo:.3g}"
        remedy = "drop a reference state (features one-hot-reference)"
    else:
        reason = f"some direction is never corrected; the rarest state is {rarest} with d = {g.stationary[rarest]:.3g}"
        remedy = "drop dependent features and states that are never visited"
    return _verdict("λ_A > 0", "λ_A", value, "" if value > 0 else reason, remedy)


def period(P: Float[np.ndarray, "S S"], members: Any) -> int:
    """The greatest common divisor of the lengths of all cycles within a communicating class."""
    graph = csr_array(P[np.ix_(members, members)] > 0)
    order, parent = breadth_first_order(graph, 0)
    depth = np.zeros(len(members), dtype=np.int64)
    for node in order[1:]:
        depth[node] = depth[parent[node]] + 1
    source, target = graph.nonzero()
    return int(np.gcd.reduce(np.abs(depth[source] + 1 - depth[target])))


def named(states: Any) -> str:
    """A few states by their index."""
    shown = ", ".join(map(str, states[:_LISTED]))
    return "{" + shown + (f", … {len(states)} in all" if len(states) > _LISTED else "") + "}"
