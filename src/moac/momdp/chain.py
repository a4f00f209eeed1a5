"""The Markov chain that a policy makes of a finite MOMDP: its classes, stationary law and discounted visitation.

All functions take policies as probabilities π [n, S, A] and work on n of them at once, in float64.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # loads its parts at first use, which takes .4 s: training does that while XLA compiles
from jaxtyping import Float, Int

from moac.arguments import checked
from moac.kept import with_owner
from moac.momdp.model import FiniteMOMDP

Policies = Float[np.ndarray, "n S A"]
_PANEL = 12  # states that are eliminated before the others are updated by one matrix product
_SHORT = 1e3  # episodes up to this mean length give the stationary law to about twelve digits by an ordinary solve


@dataclass(frozen=True, eq=False)
class InducedChain:
    """The Markov chains that n policies make of a model."""

    proceed: Float[np.ndarray, "n S S"]  # chance to go from s to s' without ending the episode
    end: Float[np.ndarray, "n S"]  # chance that the step from s ends the episode
    reward: Float[np.ndarray, "n S M"]  # expected reward vector of the step from s
    restart: Float[np.ndarray, "n S S"]  # chance to go from s to s' when an ended episode starts anew; rows sum to one


def induced(model: FiniteMOMDP, pi: Policies) -> InducedChain:
    """The chain of each policy, with and without restarts."""
    proceed = (pi[:, :, None, :] @ _dense_moves(model))[:, :, 0, :]
    end = np.einsum("nsa,sa->ns", pi, end_chance(model), optimize=True)
    reward = np.einsum("nsa,sam->nsm", pi, expected_reward(model), optimize=True)
    return InducedChain(proceed, end, reward, proceed + end[:, :, None] * model.start_distribution)


@with_owner
def moves(model: FiniteMOMDP) -> scipy.sparse.csr_array:
    """[S·A, S]: chance to go from s to s' by a without ending the episode."""
    goes_on = (model.probability * ~model.terminated).reshape(-1, model.num_outcomes)
    pair = np.repeat(np.arange(len(goes_on)), model.num_outcomes)
    entries, shape = (goes_on.ravel(), (pair, model.next_state.ravel())), (len(goes_on), model.num_states)
    return scipy.sparse.csr_array(entries, shape=shape)


@with_owner
def _dense_moves(model: FiniteMOMDP) -> Float[np.ndarray, "S A S"]:
    return moves(model).toarray().reshape(model.num_states, model.num_actions, -1)


def end_chance(model: FiniteMOMDP) -> Float[np.ndarray, "S A"]:
    """Chance that (s, a) ends the episode."""
    return (model.probability * model.terminated).sum(axis=2)


def expected_reward(model: FiniteMOMDP) -> Float[np.ndarray, "S A M"]:
    """E[r | s, a]."""
    return np.einsum("sao,saom->sam", model.probability, model.reward)


def recurrent_classes(restart: Any) -> list[Int[np.ndarray, " k"]]:
    """The closed communicating classes of a chain [S, S], dense or sparse, each as its states."""
    graph = scipy.sparse.csr_array(restart > 0)
    count, label = scipy.sparse.csgraph.connected_components(graph, directed=True, connection="strong")
    source, target = graph.nonzero()
    leaks = np.zeros(count, dtype=bool)
    leaks[label[source[label[source] != label[target]]]] = True
    return [np.flatnonzero(label == k) for k in range(count) if not leaks[k]]


def several_classes(model: FiniteMOMDP) -> str:
    """The message that policies that try every action have several recurrent classes; empty where they have one.

    An ended episode passes through one more state, which leads to all starts: the chain of a large model stays sparse.
    """
    S = ended = model.num_states
    state, action, outcome = np.nonzero(model.probability)
    successor = np.where(model.terminated, ended, model.next_state)[state, action, outcome]
    starts = np.flatnonzero(model.start_distribution)
    edges = np.append(state, np.full(len(starts), ended)), np.append(successor, starts)
    moves = scipy.sparse.csr_array((np.ones(len(edges[0])), edges), shape=(S + 1, S + 1))
    return _message(model, [members[members < S] for members in recurrent_classes(moves)], "")


@checked
def stationary_distribution(model: FiniteMOMDP, pi: Policies) -> Float[np.ndarray, "n S"]:
    """d with dᵀP = dᵀ for the restarting chain, by the elimination of Grassmann, Taksar and Heyman (1985).

    It subtracts nothing, so every entry keeps full relative accuracy, however weakly the states communicate. A
    ValueError names the classes where a policy's chain has more than one recurrent class.
    """
    restart = induced(model, pi).restart
    law = np.zeros(restart.shape[:2])
    for members, order in _state_orders(model, restart, np.all(pi > 0)):
        law[members[:, None], order] = _law(_eliminate(model, restart[np.ix_(members, order, order)]))
    return law


def episodic_law(model: FiniteMOMDP, pi: Policies) -> Float[np.ndarray, "n S"]:
    """The stationary law as visits per episode, where episodes are short; elsewhere by `stationary_distribution`.

    If every state ends its episode within `_SHORT` steps on average, I − P is safely regular, the chain has one
    recurrent class, and d ∝ startᵀ(I − P)⁻¹ costs two small solves.
    """
    proceed = induced(model, pi).proceed
    short = np.zeros(len(pi), dtype=bool)
    if model.terminated.any():
        with contextlib.suppress(np.linalg.LinAlgError):
            steps = np.linalg.solve(np.eye(model.num_states) - proceed, np.ones((len(pi), model.num_states, 1)))[..., 0]
            short = np.all((steps >= 1 - 1e-9) & (steps <= _SHORT), axis=1)
    law = np.empty(pi.shape[:2])
    if short.any():
        visits = np.maximum(visitation(proceed[short], model.start_distribution, 1.0), 0.0)
        law[short] = visits / visits.sum(axis=1, keepdims=True)
    if not short.all():
        law[~short] = stationary_distribution(model, pi[~short])
    return law


def average_reward(model: FiniteMOMDP, pi: Policies) -> tuple[np.ndarray[Any, Any], ...]:
    """J [n, M], the bias h [n, S, M] with (I − P) h = r − J and dᵀh = 0, and d [n, S] as `stationary_distribution`.

    All come from one elimination, so that a chain whose parts hardly communicate is no trouble.
    """
    chain = induced(model, pi)
    law, h, J = np.zeros_like(chain.end), np.zeros_like(chain.reward), np.zeros_like(chain.reward[:, 0])
    for members, order in _state_orders(model, chain.restart, np.all(pi > 0)):
        where = members[:, None], order
        F = _eliminate(model, chain.restart[np.ix_(members, order, order)])
        law[where] = _law(F)
        J[members] = np.einsum("ns,nsm->nm", law[members], chain.reward[members])
        # (I − P) h = r − J is singular, and a dense solve of it loses the digits by which parts of the chain hardly
        # communicate. Eliminated, h of state 0 is free, here 0; each higher state is what the chain gathers from there
        # until it goes lower, and the mixture of where it then is. The constant is set below by dᵀh = 0.
        leave, c = _excess(F, chain.reward[where] - J[members, None])
        solution = np.zeros_like(c)
        for k in range(1, len(order)):
            solution[:, k] = c[:, k] + np.einsum("nj,njm->nm", leave[:, k, :k], solution[:, :k])
        h[where] = solution
    return J, h - np.einsum("ns,nsm->nm", law, h)[:, None], law


def bias_differences(model: FiniteMOMDP, pi: Float[np.ndarray, "S A"]) -> Float[np.ndarray, "S S M"]:
    """h(s') − h(s) at [s', s], computed without forming h.

    Where the chain leaves a set of states with chance ε only, h is of order 1/ε there and its differences drown in
    rounding. Built up state by state they are accurate in proportion to what they are worth: with d(s) P(s, s')
    before them, to rounding.
    """
    chain = induced(model, pi[None])
    ((_, order),) = _state_orders(model, chain.restart, shared=True)
    F = _eliminate(model, chain.restart[:, order[:, None], order])
    J = np.einsum("ns,nsm->nm", _law(F), chain.reward[:, order])
    leave, c = (x[0] for x in _excess(F, chain.reward[:, order] - J[:, None]))
    S, M = model.num_states, model.num_objectives
    difference = np.zeros((S, S, M))
    for k in range(1, S):
        known = np.ascontiguousarray(difference[:k, :k]).reshape(k, -1)
        difference[k, :k] = c[k] + (leave[k, :k] @ known).reshape(k, M)
        difference[:k, k] = -difference[k, :k]
    back = np.argsort(order)
    return difference[back[:, None], back]


def _state_orders(model: FiniteMOMDP, restart: Float[np.ndarray, "n S S"], shared: Any) -> list[tuple[Any, Any]]:
    """Pairs (policies, their order of all states, the recurrent ones first).

    Policies of full support have the same recurrent class, so that one order may be `shared` by all.
    """
    if shared:
        return [(np.arange(len(restart)), _recurrent_first(model, restart[0]))]
    return [(np.array([n]), _recurrent_first(model, restart[n])) for n in range(len(restart))]


def _recurrent_first(model: FiniteMOMDP, restart: Float[np.ndarray, "S S"]) -> Int[np.ndarray, " S"]:
    classes = recurrent_classes(restart)
    if len(classes) > 1:
        raise ValueError(_message(model, classes, " under this policy"))
    return np.concatenate([classes[0], np.setdiff1d(np.arange(len(restart)), classes[0])])


def _message(model: FiniteMOMDP, classes: list[Int[np.ndarray, " k"]], under: str) -> str:
    """The message that names several recurrent classes; empty for one."""
    if len(classes) == 1:
        return ""
    shown = "; ".join("{" + ", ".join(map(str, c[:8])) + (", …" if len(c) > 8 else "") + "}" for c in classes[:6])
    more = f"; and {len(classes) - 6} more" if len(classes) > 6 else ""
    return f"the chain of {model.name} must have one recurrent class{under}, got {len(classes)}: states {shown}{more}."


def _eliminate(model: FiniteMOMDP, P: Float[np.ndarray, "n k k"]) -> Float[np.ndarray, "n k k"]:
    """Censor the last state, one after the other; what a panel of states does to the rest is one matrix product.

    Below the diagonal of the result, row k says where the chain watched on states 0 … k goes from k; above it, column
    k holds how often it is in k between two visits to lower states, per visit to each.
    """
    P = P.copy()
    size = P.shape[1]
    # Within a panel one state after the other, which is memory-bound; the large rest is updated once for all of a
    # panel's states. Rows below `low` are complete when their own panel comes. Chances to leave are summed from what
    # is left, never as one less the chance to stay: that difference would cancel where a state is hardly ever left.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for top in range(size, 0, -_PANEL):
            low = max(top - _PANEL, 0)
            for k in range(top - 1, max(low, 1) - 1, -1):
                P[:, :k, k] /= P[:, k, :k].sum(axis=1)[:, None]
                P[:, low:k, :k] += P[:, low:k, k, None] * P[:, k, None, :k]
                P[:, :low, low:k] += P[:, :low, k, None] * P[:, k, None, low:k]
            P[:, :low, :low] += P[:, :low, low:top] @ P[:, low:top, :low]
    if not np.all(np.isfinite(P)):
        must = f"the chain of {model.name} must connect its states under this policy"
        raise ValueError(f"{must}, got a transition probability that underflows.")
    return P


def _law(F: Float[np.ndarray, "n k k"]) -> Float[np.ndarray, "n k"]:
    """The stationary law, from lower states to higher ones."""
    law = np.zeros(F.shape[:2])
    law[:, 0] = 1.0
    for k in range(1, F.shape[1]):
        law[:, k] = np.einsum("nj,nj->n", law[:, :k], F[:, :k, k])
        if law[:, k].max() > 1e100:  # state 0 is very rare: lest the others overflow
            law[:, : k + 1] /= np.maximum(law[:, k, None], 1.0)
    return law / law.sum(axis=1, keepdims=True)


def _excess(F: Float[np.ndarray, "n k k"], c: Float[np.ndarray, "n k M"]) -> tuple[np.ndarray[Any, Any], ...]:
    """Where the chain goes from k once it goes lower, and the sum of c until then: h_k = sum_k + Σ_j leave_kj h_j."""
    c = c.copy()
    for k in range(F.shape[1] - 1, 0, -1):
        c[:, :k] += F[:, :k, k, None] * c[:, k, None]
    rows = np.tril(F, -1)
    chance = rows.sum(axis=2, keepdims=True)
    chance[:, 0] = 1.0
    return rows / chance, c / chance


def visitation(
    proceed: Float[np.ndarray, "n S S"], start: Float[np.ndarray, " S"], discount: float
) -> Float[np.ndarray, "n S"]:
    """η(s) = Σ_t γᵗ Pr(s_t = s, the episode goes on), not normalised: ηᵀ(I − γP) = startᵀ with P = `proceed`."""
    system = np.eye(proceed.shape[1]) - discount * proceed.transpose(0, 2, 1)
    return np.linalg.solve(system, np.broadcast_to(start[:, None], (len(proceed), len(start), 1)))[..., 0]
