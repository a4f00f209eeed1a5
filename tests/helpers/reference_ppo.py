"""The `ppo` learner once more, in NumPy, float64 and plain loops; nothing of the package but its plain data.

Networks are lists of matrices, whose gradients are written out. Random orders of samples are given.
"""

import numpy as np

from tests.helpers.reference import min_norm, softmax


class Layers:
    """x ↦ W_Lᵀ tanh(… W_1ᵀ x); a matrix with one row more than its input has has a bias."""

    def __init__(self, matrices):
        self.W = [np.array(W, float) for W in matrices]

    def __call__(self, x):
        self.inputs = []
        for k, W in enumerate(self.W):
            x = np.append(x, 1.0) if len(W) == len(x) + 1 else x
            self.inputs.append(x)
            x = x @ W
            x = np.tanh(x) if k < len(self.W) - 1 else x
        return x

    def gradient(self, signal):
        """Of ⟨signal, output⟩ by each matrix, after a call."""
        parts = []
        for k in range(len(self.W) - 1, -1, -1):
            parts.insert(0, np.outer(self.inputs[k], signal))
            if k:
                hidden = self.inputs[k][: self.W[k - 1].shape[1]]
                signal = (self.W[k] @ signal)[: len(hidden)] * (1 - hidden**2)
        return parts


class Softmax:
    def __init__(self, matrices, see):
        self.layers, self.see = Layers(matrices), see

    @property
    def leaves(self):
        return self.layers.W

    def log_prob(self, s, a):
        return np.log(softmax(self.layers(self.see(s)))[a])

    def score(self, s, a):
        pi = softmax(self.layers(self.see(s)))
        return self.layers.gradient(np.eye(len(pi))[a] - pi)

    def entropy_gradient(self, s):
        pi = softmax(self.layers(self.see(s)))
        H = -np.sum(pi * np.log(pi))
        return self.layers.gradient(-pi * (np.log(pi) + H))


class Gaussian:
    """u ~ N(m(x), σ²) with log σ = −2 + 3 tanh ρ, squashed to a = u/√(1 + u²) in (−1, 1)."""

    def __init__(self, leaves, see):
        self.layers, self.rho, self.see = Layers(leaves[:-1]), np.array(leaves[-1], float), see

    @property
    def leaves(self):
        return [*self.layers.W, self.rho]

    def law(self, s):
        return self.layers(self.see(s)), np.exp(-2 + 3 * np.tanh(self.rho[0]))

    def log_prob(self, s, a):
        (m, sigma), u = self.law(s), a / np.sqrt(1 - a**2)
        slope = (1 + u**2) ** -1.5
        return np.sum(-0.5 * ((u - m) / sigma) ** 2 - np.log(sigma) - 0.5 * np.log(2 * np.pi) - np.log(slope))

    def score(self, s, a):
        (m, sigma), u = self.law(s), a / np.sqrt(1 - a**2)
        z = (u - m) / sigma
        return [*self.layers.gradient(z / sigma), ((z**2 - 1) * self._slope)[None]]

    def entropy_gradient(self, s):
        del s
        return [*[np.zeros_like(W) for W in self.layers.W], self._slope[None]]

    @property
    def _slope(self):
        """d log σ / dρ."""
        return 3 * (1 - np.tanh(self.rho[0]) ** 2)


class Adam:
    def __init__(self, leaves, size, clip):
        self.m, self.v = [np.zeros_like(x) for x in leaves], [np.zeros_like(x) for x in leaves]
        self.size, self.clip, self.count = size, clip, 0

    def step(self, leaves, gradient, left):
        """Ascend: leaves change in place."""
        norm = np.sqrt(sum(np.sum(g**2) for g in gradient))
        gradient = [g * min(1.0, self.clip / norm) for g in gradient]
        self.count += 1
        for k, g in enumerate(gradient):
            self.m[k] = 0.9 * self.m[k] + 0.1 * g
            self.v[k] = 0.999 * self.v[k] + 0.001 * g**2
            m, v = self.m[k] / (1 - 0.9**self.count), self.v[k] / (1 - 0.999**self.count)
            leaves[k] += left * self.size * m / (np.sqrt(v) + 1e-5)


class Reference:
    """Iterations on rollouts of E copies; `policy` is one of the above, `values` a `Layers` that sees `see(s)`."""

    def __init__(self, config, policy, values, num_copies):
        self.config, self.policy, self.values, self.E = config, policy, values, num_copies
        self.M = values.W[-1].shape[1]
        self.gamma = np.array(config.setting.discounts(self.M))
        self.lam, self.t = np.full(self.M, 1 / self.M), 0
        self.seen, self.sums = [], np.zeros((num_copies, self.M))
        self.actor = Adam(policy.leaves, config.actor_step_size, config.gradient_clip)
        self.critic = Adam(values.W, config.critic_step_size, config.gradient_clip)

    def value(self, s):
        return self.values(self.policy.see(s))

    def update(self, steps, orders):
        """One iteration on transitions in the order of time, copies side by side; `orders` holds one per epoch."""
        self.t += 1
        self.observe(steps)
        A, R = self.estimates(steps)
        A = A - A.mean(axis=0)
        unit = {"raw": self.sigma, "return": 1.0, "advantage": 1 / (A.std(axis=0) + 1e-4)}[self.config.units]
        A = A * unit
        scores = [self.policy.score(x.s, x.a) for x in steps]
        flat = np.array([np.concatenate([np.ravel(part) for part in score]) for score in scores])
        G = A.T @ flat / len(steps)
        self.gram = G @ G.T
        if self.config.weighting == "min-norm":
            self.lam = (1 - 1 / self.t) * self.lam + 1 / self.t * min_norm(G)
        if self.config.conditioned:  # p stands behind each observation
            self.lam = np.mean([x.s[-self.M :] for x in steps], axis=0)
            mixed = np.array([x.s[-self.M :] @ a for x, a in zip(steps, A, strict=True)])
        else:
            mixed = A @ self.lam
        mixed = mixed / (mixed.std() + 1e-8)
        old = [self.policy.log_prob(x.s, x.a) for x in steps]
        for order in orders:
            for part in np.reshape(order, (-1, self.config.minibatch_size)):
                self.step([(steps[k], mixed[k], R[k], old[k]) for k in part])

    def observe(self, steps):
        """σ from the discounted sums of rewards so far, of every copy at every time."""
        for k, x in enumerate(steps):
            self.sums[k % self.E] = self.gamma * self.sums[k % self.E] + x.r
            self.seen.append(self.sums[k % self.E].copy())
            if x.terminated or (k + self.E < len(steps) and not goes_on(x, steps[k + self.E])):
                self.sums[k % self.E] = 0
        sigma = np.std(self.seen, axis=0)
        self.sigma = np.maximum(sigma, 1e-3 * sigma.max())

    def estimates(self, steps):
        """GAE of each objective, from the last step to the first, and the critic's targets; in units of σ."""
        A, V = np.zeros((len(steps), self.M)), np.array([self.value(x.s) for x in steps])
        for k in range(len(steps) - 1, -1, -1):
            x, later = steps[k], k + self.E
            A[k] = x.r / self.sigma - V[k] + (0.0 if x.terminated else self.gamma * self.value(x.s_next))
            if later < len(steps) and not x.terminated and goes_on(x, steps[later]):
                A[k] += self.gamma * self.config.gae * A[later]
        return A, A + V

    def step(self, samples):
        """One step of policy and critic."""
        config, left = self.config, 1 - (self.t - 1) / self.config.num_iterations
        up = [np.zeros_like(leaf) for leaf in self.policy.leaves]
        down = [np.zeros_like(W) for W in self.values.W]
        for x, A, R, old in samples:
            ratio = np.exp(self.policy.log_prob(x.s, x.a) - old)
            stopped = ratio > 1 + config.ratio_clip if A > 0 else ratio < 1 - config.ratio_clip
            parts = zip(self.policy.score(x.s, x.a), self.policy.entropy_gradient(x.s), strict=True)
            for k, (score, entropy) in enumerate(parts):
                gain = 0.0 if stopped else A * ratio * score
                up[k] += (gain + left * config.entropy * entropy) / len(samples)
            error = R - self.value(x.s)
            for k, part in enumerate(self.values.gradient(error)):
                down[k] += part / len(samples)
        self.actor.step(self.policy.leaves, up, left)
        self.critic.step(self.values.W, down, left)


def goes_on(x, later):
    return np.array_equal(x.s_next, later.s)
