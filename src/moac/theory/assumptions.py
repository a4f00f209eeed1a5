"""Do the theorems' assumptions hold here? If not: where, by how much, and what to change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from moac.momdp import FiniteMOMDP, chain
from moac.theory import quantities
from moac.theory.ground import Ground

Status = Literal["holds", "fails", "not applicable"]
_LISTED = 8
"""States that a message names, at most."""


@final
@dataclass(frozen=True)
class Assumption:
    """One assumption, checked.

    Attributes:
        name: what is assumed.
        status: `holds`, `fails` or `not applicable`.
        measure: what the number is.
        number: the number that decides; None where there is none.
        reason: where it fails, why, in words.
        remedy: where it fails, what to change.
    """

    name: str
    status: Status
    measure: str
    number: float | None
    reason: str = ""
    remedy: str = ""


def check(g: Ground) -> tuple[Assumption, ...]:
    """All assumptions at the policy of `g`. The paper asks for them at every policy: check those of a run."""
    classes = chain.recurrent_classes(g.P)
    law = len(classes) == 1
    return (
        irreducible(g),
        aperiodic(g),
        bounded(g.model),
        non_negative(g.model),
        normalised(g),
        full_rank(g),
        no_constant(g),
        contracting(g)
        if law
        else Assumption("λ_A > 0", "not applicable", "λ_A", None, "there is no one stationary law"),
    )


def irreducible(g: Ground) -> Assumption:
    """Every state is reached from every state."""
    name, measure = "the chain is irreducible", "communicating classes"
    count, _ = connected_components(csr_array(g.P > 0), directed=True, connection="strong")
    if count == 1:
        return Assumption(name, "holds", measure, 1)
    classes = chain.recurrent_classes(g.P)
    if len(classes) > 1:
        reason = f"{len(classes)} sets of states never reach one another: {'; '.join(map(named, classes[:4]))}"
        remedy = "connect them, or let every episode end, so that the chain restarts"
        return Assumption(name, "fails", measure, count, reason, remedy)
    transient = np.setdiff1d(np.arange(len(g.P)), classes[0])
    reason = f"states {named(transient)} are left for ever"
    remedy = "drop them from the model, or let episodes start there; the critic learns nothing about them"
    return Assumption(name, "fails", measure, count, reason, remedy)


def aperiodic(g: Ground) -> Assumption:
    """The lengths of all ways back have no common divisor."""
    periods = [period(g.P, members) for members in chain.recurrent_classes(g.P)]
    longest = max(periods)
    if longest == 1:
        return Assumption("the chain is aperiodic", "holds", "period", 1)
    reason = f"every return takes a multiple of {longest} steps"
    remedy = (
        "let some action stay in place with a small chance; a period does not disturb averages, only the mixing rate"
    )
    return Assumption("the chain is aperiodic", "fails", "period", longest, reason, remedy)


def bounded(model: FiniteMOMDP) -> Assumption:
    """|r| ≤ r_max: a finite model always has one."""
    largest = float(np.abs(quantities.possible_rewards(model)).max(initial=0.0))
    return Assumption("rewards are bounded", "holds", "r_max", largest)


def non_negative(model: FiniteMOMDP) -> Assumption:
    """r ≥ 0, which the paper assumes of every reward."""
    lowest = quantities.possible_rewards(model).min(axis=0)
    name, measure = "rewards are not negative", "smallest reward"
    if lowest.min() >= 0:
        return Assumption(name, "holds", measure, float(lowest.min()))
    worst = int(np.argmin(lowest))
    reason = f"objective {model.objective_names[worst]!r} pays {lowest[worst]:g}"
    remedy = "nothing: the derived bound allows for it (1 + Σ2η becomes 2 + Σ2η); a shift would pay for lingering"
    return Assumption(name, "fails", measure, float(lowest.min()), reason, remedy)


def normalised(g: Ground) -> Assumption:
    """‖φ(s)‖ ≤ 1."""
    lengths = np.linalg.norm(g.Phi, axis=1)
    longest, name, measure = float(lengths.max()), "‖φ(s)‖ ≤ 1", "longest φ"
    if longest <= 1 + 1e-9:
        return Assumption(name, "holds", measure, longest)
    over = np.flatnonzero(lengths > 1 + 1e-9)
    return Assumption(name, "fails", measure, longest, f"states {named(over)}", f"divide the features by {longest:.6g}")


def full_rank(g: Ground) -> Assumption:
    """The columns of Φ are linearly independent."""
    singular = np.linalg.svd(g.Phi, compute_uv=False)
    S, d = g.Phi.shape
    name, measure = "Φ has full column rank", "smallest singular value"
    rank = int((singular > singular.max(initial=0.0) * max(S, d) * np.finfo(float).eps).sum())
    if rank == d:
        return Assumption(name, "holds", measure, float(singular.min()))
    value = float(singular[-1]) if d <= S else 0.0
    reason = f"{d} features of {S} states have rank {rank}: {d - rank} of the singular values are zero"
    return Assumption(name, "fails", measure, value, reason, f"keep {rank} independent columns")


def no_constant(g: Ground) -> Assumption:
    """No u with Φu = 1, in the average setting: else w* is unique up to a constant only."""
    name, measure = "no u with Φu = 1", "distance of 1 from the span of Φ"
    if not g.is_average:
        return Assumption(name, "not applicable", measure, None, "the discounted setting needs it not")
    ones = np.ones(len(g.Phi))
    u = np.linalg.lstsq(g.Phi, ones, rcond=None)[0]
    distance = float(np.linalg.norm(g.Phi @ u - ones))
    if g.constant is None:
        return Assumption(name, "holds", measure, distance)
    reason = "the features span the constants, so w* is unique up to a constant; δ and g do not feel it"
    remedy = "drop a reference state (features one-hot-reference), or read critic errors modulo constants"
    return Assumption(name, "fails", measure, distance, reason, remedy)


def contracting(g: Ground) -> Assumption:
    """λ_max(A + Aᵀ) ≤ −λ_A < 0."""
    value = quantities.contraction(g)
    if value > 0:
        return Assumption("λ_A > 0", "holds", "λ_A", value)
    rarest = int(np.argmin(g.stationary))
    if g.is_average and g.constant is not None:
        modulo = quantities.contraction(g, modulo_constants=True)
        reason = f"the constant in the span of Φ does not contract; modulo constants λ_A is {modulo:.3g}"
        return Assumption(
            "λ_A > 0", "fails", "λ_A", value, reason, "drop a reference state (features one-hot-reference)"
        )
    reason = f"some direction is never corrected; the rarest state is {rarest} with d = {g.stationary[rarest]:.3g}"
    return Assumption(
        "λ_A > 0", "fails", "λ_A", value, reason, "drop dependent features and states that are never visited"
    )


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
