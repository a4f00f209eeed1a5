"""Algorithms 1 and 2 once more, in NumPy, float64 and plain loops; nothing of the package but its plain data."""

import itertools
from dataclasses import dataclass

import numpy as np

from moac.config import Average

_ETA = {
    "1/t": lambda t: 1 / t,
    "1/sqrt(t)": lambda t: 1 / np.sqrt(t),
    "1/t^2": lambda t: 1 / t**2,
    "0": lambda t: 0.0,
    "1": lambda t: 1.0,
}


@dataclass
class Transition:
    s: int
    a: int
    r: np.ndarray
    s_next: int
    terminated: bool
    age: int | None


def transitions(batch):
    """A batch [B] as a list."""
    count = len(batch.action)
    ends = np.zeros(count, bool) if batch.terminated is None else np.asarray(batch.terminated)
    ages = [None] * count if batch.age is None else np.asarray(batch.age).tolist()
    s, a, s_next = (np.asarray(x).tolist() for x in (batch.observation, batch.action, batch.next_observation))
    r = np.asarray(batch.reward, np.float64)
    return [Transition(s[k], a[k], r[k], s_next[k], bool(ends[k]), ages[k]) for k in range(count)]


class Reference:
    """A run, one `update` after the other.

    Args:
        config: resolved.
        num_objectives: M.
        Phi: [S, d], the critic's features.
        X: [S, p], the policy's: π(a|s) ∝ exp (X θ)[s, a]. The identity is a table of logits.
        num_actions: A.
    """

    def __init__(self, config, num_objectives, Phi, X, num_actions):
        self.config, self.M, self.Phi, self.X = config, num_objectives, np.array(Phi, float), np.array(X, float)
        self.average = isinstance(config.setting, Average)
        self.gamma = config.setting.discounts(num_objectives)
        self.theta = np.zeros((self.X.shape[1], num_actions))
        self.w = np.zeros((self.Phi.shape[1], num_objectives))
        self.mu = np.zeros(num_objectives)
        self.lam = np.full(num_objectives, 1 / num_objectives) if config.weights is None else np.array(config.weights)
        self.t = 0

    def update(self, critic_batches, actor_batch):
        """One iteration. `critic_batches` holds N lists of D transitions; `actor_batch` is one list of B."""
        config = self.config
        self.t += 1
        if config.critic_start == "cold":
            self.w = np.zeros_like(self.w)
        for batch in critic_batches:
            self.critic_step(batch)
        deltas = self.errors(actor_batch, config.actor_step_size)
        g = np.zeros((self.M, *self.theta.shape))
        for x, delta in zip(actor_batch, deltas, strict=True):
            psi = self.score(x.s, x.a)
            for i in range(self.M):
                g[i] += self.age_weight(i, x.age) * delta[i] * psi / len(actor_batch)
        if config.normalise == "l2":
            for i in range(self.M):
                length = np.sqrt(np.sum(g[i] ** 2))
                g[i] = g[i] / length if length > 0 else g[i]
        self.gram = np.array([[np.sum(g[i] * g[j]) for j in range(self.M)] for i in range(self.M)])
        self.lam = self.weigh(g.reshape(self.M, -1))
        for i in range(self.M):
            self.theta = self.theta + config.actor_step_size * self.lam[i] * g[i]

    def critic_step(self, batch):
        """w ← w + (β/D) Σ δ φ(s), every δ with the w held before the batch."""
        beta, step = self.config.critic_step_size, np.zeros_like(self.w)
        for x, delta in zip(batch, self.errors(batch, beta), strict=True):
            for i in range(self.M):
                step[:, i] += beta / len(batch) * delta[i] * self.Phi[x.s]
        self.w = self.w + step

    def errors(self, batch, step_size):
        """δ of each transition; moves μ before each (the paper) or after all of them."""
        deltas = []
        for x in batch:
            if self.average and self.config.mu == "paper":
                self.mu = (1 - step_size) * self.mu + step_size * x.r
            delta = np.zeros(self.M)
            for i in range(self.M):
                here, there = self.Phi[x.s] @ self.w[:, i], self.Phi[x.s_next] @ self.w[:, i]
                if self.average:
                    delta[i] = x.r[i] - self.mu[i] + there - here
                else:
                    delta[i] = x.r[i] - here + (0.0 if x.terminated else self.gamma[i] * there)
            deltas.append(delta)
        if self.average and self.config.mu == "batch":
            c, mean = self.config.average_step_size, sum(x.r for x in batch) / len(batch)
            self.mu = (1 - c) * self.mu + c * mean
        return deltas

    def score(self, s, a):
        """∇ log π(a|s) = x(s) ⊗ (e_a − π(·|s))."""
        e_a = np.zeros(self.theta.shape[1])
        e_a[a] = 1.0
        return np.outer(self.X[s], e_a - softmax(self.X[s] @ self.theta))

    def age_weight(self, i, age):
        """(γⁱ/c)^k with c the largest discount."""
        return 1.0 if self.config.visitation == "stationary" else (self.gamma[i] / max(self.gamma)) ** age

    def weigh(self, G):
        """λ_t."""
        match self.config.weighting:
            case "uniform":
                return np.full(self.M, 1 / self.M)
            case "fixed":
                return self.lam
            case "first-batch":
                return min_norm(G) if self.t == 1 else self.lam
        name = self.config.momentum
        eta = float(name[6:]) if name.startswith("const:") else _ETA[name](self.t)
        return (1 - eta) * self.lam + eta * min_norm(G)

    @property
    def logits(self):
        """[S, A]."""
        return self.X @ self.theta


def softmax(logits):
    weight = np.exp(logits - np.max(logits))
    return weight / np.sum(weight)


def min_norm(G):
    """λ on the simplex with the shortest Σ λᵢ gⁱ: the best point of every face's plane that lies in the face."""
    best, shortest = None, np.inf
    for size in range(1, len(G) + 1):
        for face in itertools.combinations(range(len(G)), size):
            lam = np.zeros(len(G))
            lam[list(face)] = _nearest_of_plane(G[list(face)])
            length = np.sum((lam @ G) ** 2)
            if lam.min() >= -1e-12 and length < shortest:
                best, shortest = np.maximum(lam, 0), length
    return best / best.sum()


def _nearest_of_plane(rows):
    """The weights, of sum one and any sign, of the point of the rows' plane nearest to the origin."""
    steps = rows[1:] - rows[0]
    z = np.linalg.lstsq(steps.T, -rows[0], rcond=None)[0]
    return np.concatenate([[1 - z.sum()], z])


def uniform_policy_law(model):
    """Stationary law of the restarting chain of the uniform policy, by simple iteration."""
    P = np.zeros((model.num_states, model.num_states))
    for s, a, o in np.ndindex(model.probability.shape):
        p = model.probability[s, a, o] / model.num_actions
        if model.terminated[s, a, o]:
            P[s] += p * model.start_distribution
        else:
            P[s, model.next_state[s, a, o]] += p
    law = model.start_distribution
    for _ in range(5000):
        law = 0.5 * law + 0.5 * law @ P
    return law
