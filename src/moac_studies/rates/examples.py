"""Three problems of one step on which momentum can be seen at work."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from moac.momdp import FiniteMOMDP
from moac_studies.rates.problems import Problem, padded, problem, stacked

NAMES = ("A: two states in conflict", "B: shared action features", "C: unequal scales")


def one_step(reward: Any) -> FiniteMOMDP:
    """Every step ends the episode; r [S, A, M] is certain, the first state is drawn evenly."""
    table = np.asarray(reward, np.float64)[:, :, None]
    shape = table.shape[:3]
    return FiniteMOMDP.from_outcomes(np.zeros(shape, int), np.ones(shape), table, np.ones(shape, bool))


def two_states() -> Problem:
    """Each state offers one objective much and the other little: (1, 0) or (0, .2), and (.2, 0) or (0, 1)."""
    return problem(one_step([[[1, 0], [0, 0.2]], [[0.2, 0], [0, 1]]]))


def action_features() -> Problem:
    """One state, four actions whose logits are x(a)ᵀθ with θ ∈ R²; the first action is best in both objectives."""
    x = np.array([[[-1, 1], [2, 1], [-2, 2], [-1, -1]]], np.float64)
    return problem(one_step([[[1, 1], [0.9, 0.9], [0.2, 0.7], [0.9, 0]]]), x)


def unequal_scales() -> Problem:
    """One state, three actions; the second objective is a tenth of the size of the first.

    r = (1, 0), (.8, .08), (0, .1). The second action improves on the uniform policy in both objectives; equal weights
    see the first objective only and take the first action, which costs the second objective all it had.
    """
    return problem(one_step([[[1, 0], [0.8, 0.08], [0, 0.1]]]))


def single(index: int) -> Problem:
    """One of the three, in the common shape."""
    every = (two_states, action_features, unequal_scales)
    return padded(every[index](), 2, 4, 4)


def together() -> Problem:
    """The three, stacked in the order of `NAMES`."""
    return stacked([single(index) for index in range(len(NAMES))])


def returns(own: Problem, theta: Any) -> Float[np.ndarray, "... M"]:
    """J of θ [..., p] for one problem of one step."""
    logits = np.einsum("sap,...p->...sa", own.features, np.asarray(theta, np.float64)) + own.offset
    weight = np.exp(logits - logits.max(axis=-1, keepdims=True))
    pi = weight / weight.sum(axis=-1, keepdims=True)
    reward = np.einsum("sao,saom->sam", own.probability, own.reward)
    return np.einsum("s,...sa,sam->...m", own.initial, pi, reward)
