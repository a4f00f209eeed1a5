"""Finite MDPs worked out again from their tables: dense, slow, and sharing no code with the package."""

import itertools
from fractions import Fraction
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import linprog

from moac.config import Average


def dense(model):
    """Chance to go on [S, A, S'], chance to end [S, A] and expected reward [S, A, M], one outcome at a time."""
    go = np.zeros((model.num_states, model.num_actions, model.num_states))
    end = np.zeros(go.shape[:2])
    reward = np.zeros((*end.shape, model.num_objectives))
    for s, a, o in np.ndindex(model.probability.shape):
        p = model.probability[s, a, o]
        if model.terminated[s, a, o]:
            end[s, a] += p
        else:
            go[s, a, model.next_state[s, a, o]] += p
        reward[s, a] += p * model.reward[s, a, o]
    return go, end, reward


def returns(model, pi, setting):
    """J [M] of π [S, A]."""
    return _returns(dense(model), model.start_distribution, pi, _gammas(model, setting), np)


def jacobian(model, logits, setting):
    """∂J/∂logits [M, S, A] of a softmax policy, by automatic differentiation in float64."""
    with jax.enable_x64(True):
        tables, logits = jax.tree.map(jnp.asarray, (dense(model), np.asarray(logits, np.float64)))
        return np.asarray(_jacobian(logits, tables, model.start_distribution, _gammas(model, setting)))


@partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
@jax.jacobian
def _jacobian(logits, tables, start, gammas):
    return _returns(tables, start, jax.nn.softmax(logits), gammas, jnp)


def _gammas(model, setting):
    return None if isinstance(setting, Average) else np.array(setting.discounts(model.num_objectives))


def _returns(tables, start, pi, gammas, xp):
    """One linear system per objective, or, without discounts, one for the stationary law."""
    go, end, reward = tables
    P, r = xp.einsum("sa,sat->st", pi, go), xp.einsum("sa,sam->ms", pi, reward)
    if gammas is None:
        P = P + xp.einsum("sa,sa->s", pi, end)[:, None] * start
        return r @ xp.linalg.solve((xp.eye(len(P)) - P + 1).T, xp.ones(len(P)))
    return xp.linalg.solve(xp.eye(len(P)) - gammas[:, None, None] * P, r[..., None])[..., 0] @ start


def deterministic_policies(model):
    """All of them, [Aˢ, S, A]."""
    S, A = model.num_states, model.num_actions
    return np.eye(A)[np.array(list(itertools.product(range(A), repeat=S)))]


def deterministic_values(model, setting):
    """J of every deterministic stationary policy."""
    return np.stack([returns(model, pi, setting) for pi in deterministic_policies(model)])


def mixture_gain(points, J):
    """max t such that some mixture of the points is better than J by t in every objective."""
    V, M = points.shape
    solution = linprog(
        np.append(np.zeros(V), -1.0),
        A_ub=np.column_stack([-points.T, np.ones(M)]),
        b_ub=-J,
        A_eq=np.append(np.ones(V), 0.0)[None],
        b_eq=[1.0],
        bounds=[(0, None)] * V + [(None, None)],
    )
    return -solution.fun


def simulate(model, pi, num_chains, num_steps, rng):
    """Rewards [num_steps, num_chains, M], whether each step ended an episode, and the states; chains restart."""
    draw = np.cumsum(model.probability, axis=2)
    policy, start = np.cumsum(pi, axis=1), np.cumsum(model.start_distribution)
    s = np.searchsorted(start, rng.random(num_chains) * start[-1])
    rewards, ends, states = [], [], []
    for _ in range(num_steps):
        a = (policy[s] < rng.random((num_chains, 1)) * policy[s, -1:]).sum(axis=1)
        o = (draw[s, a] < rng.random((num_chains, 1)) * draw[s, a, -1:]).sum(axis=1)
        fresh = np.searchsorted(start, rng.random(num_chains) * start[-1])
        states.append(s)
        rewards.append(model.reward[s, a, o])
        ends.append(model.terminated[s, a, o])
        s = np.where(ends[-1], fresh, model.next_state[s, a, o])
    return np.array(rewards), np.array(ends), np.array(states)


def rational_solve(A, b):
    """x with A x = b in fractions."""
    rows = [[*row, value] for row, value in zip(A, b, strict=True)]
    n = len(rows)
    for k in range(n):
        pivot = next(i for i in range(k, n) if rows[i][k] != 0)
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [x / rows[k][k] for x in rows[k]]
        for i in range(n):
            if i != k and rows[i][k] != 0:
                rows[i] = [x - rows[i][k] * y for x, y in zip(rows[i], rows[k], strict=True)]
    return [row[-1] for row in rows]


def rational_law(chances):
    """Stationary law of a chain in fractions, given its floats off the diagonal; the diagonal is what is left."""
    P = _rational_chain(chances)
    n = len(P)
    balance = [[P[j][i] - (i == j) for j in range(n)] for i in range(n - 1)]
    return rational_solve([*balance, [Fraction(1)] * n], [Fraction(0)] * (n - 1) + [Fraction(1)])


def rational_average_gradient(model, pi):
    """J and ∇J with respect to the logits in the average setting for M = 1 and no termination, in fractions."""
    go, _, reward = dense(model)
    S, A = pi.shape
    p = [[[Fraction(float(x)) for x in go[s, a]] for a in range(A)] for s in range(S)]
    weight = [[Fraction(float(x)) for x in pi[s]] for s in range(S)]
    weight = [[x / sum(row) for x in row] for row in weight]
    r = [[Fraction(float(x)) for x in reward[s, :, 0]] for s in range(S)]
    moves = [[sum(weight[s][a] * p[s][a][t] for a in range(A)) for t in range(S)] for s in range(S)]
    d = rational_law(moves)
    gain = [sum(weight[s][a] * r[s][a] for a in range(A)) for s in range(S)]
    J = sum(x * y for x, y in zip(d, gain, strict=True))
    P = _rational_chain(moves)
    poisson = [[(i == j) - P[i][j] + d[j] for j in range(S)] for i in range(S)]
    h = rational_solve(poisson, [x - J for x in gain])
    Q = [[r[s][a] - J + sum(p[s][a][t] * (h[t] - h[s]) for t in range(S)) for a in range(A)] for s in range(S)]
    return float(J), np.array([[float(d[s] * weight[s][a] * Q[s][a]) for a in range(A)] for s in range(S)])


def _rational_chain(chances):
    P = [[x if isinstance(x, Fraction) else Fraction(float(x)) for x in row] for row in chances]
    for i, row in enumerate(P):
        row[i] = 1 - sum(x for j, x in enumerate(row) if j != i)
    return P
