"""Generated logs with a personal effect: what a user likes shows in past responses alone, and the truth is known."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, softmax

from moac.logs import About, LoggedDataset, Rows

LEVELS, LEVEL_SHARE = np.array([-2.0, -1.0, 0.0, 1.0, 2.0]), np.array([1, 4, 6, 4, 1]) / 16
SIGNALS = ("Click", "Watch")


@dataclass(frozen=True, eq=False)
class PersonalLog:
    """A log, what each user is truly worth, and what can be known of it."""

    dataset: LoggedDataset
    behaviour: np.ndarray  # [N, K] how the log chose, given earlier rows
    mean: np.ndarray  # [N, K, 2] mean reward of every item, for the row's user
    expected: np.ndarray  # [N, K, 2] the same given earlier rows: no policy can know more

    def gain(self, policy, rows):
        """Σ_i (V_i(π) − V_i(b)) / spread_i over some rows, spread over items, for π [n, K]."""
        return float(np.einsum("nk,nkm->m", policy - self.behaviour[rows], self.mean[rows] / len(rows)) @ self.units)

    def best(self, rows, share):
        """The tilt by the true expectation, at an effective share."""
        scores, b = self.expected[rows] @ self.units, self.behaviour[rows]

        def at(tau):
            return softmax(np.log(b) + tau * scores, axis=1)

        return at(brentq(lambda tau: share_of(at(tau), b) - share, 0, 50))

    @property
    def units(self):
        """One over the spread of each signal's mean over items."""
        return 1 / self.mean.mean(axis=0).std(axis=0)


def share_of(policy, behaviour):
    """Effective share of rows, in expectation."""
    return float(1 / (policy**2 / behaviour).sum(axis=1).mean())


def generate(seed, users=2_500, items=20, kappa=0.0, strength=1.0):
    """A row: its user's taste z of six and level e, both hidden, an item a of four features v_a, a click, a time.

    b(a|e) ∝ exp(0.8 popularity_a + κ e g_a),   P(click) = σ(−0.7 + 0.4 quality_a + strength T_z·v_a + 0.8 e).
    """
    rng = np.random.default_rng([seed, 77])
    v, tastes = rng.standard_normal((items, 4)), rng.standard_normal((6, 4))
    tastes = tastes - tastes.mean(axis=0)
    tastes /= np.sqrt((tastes**2).sum(axis=1).mean())
    popularity, quality, other = rng.standard_normal((3, items))
    shown = softmax(0.8 * popularity + kappa * LEVELS[:, None] * (0.8 * quality + 0.6 * other), axis=1)  # [E, K]
    odds = -0.7 + 0.4 * quality + strength * (tastes @ v.T)[:, None] + 0.8 * LEVELS[:, None]
    click, length = expit(odds), np.exp(0.3 * rng.standard_normal(items))
    mean = np.stack([click, click * length], axis=-1)  # [Z, E, K, 2]
    count = rng.poisson(18, users) + 2
    user = np.repeat(np.arange(users), count)
    z, e = rng.integers(6, size=users)[user], rng.choice(5, size=users, p=LEVEL_SHARE)[user]
    action = np.minimum((shown[e].cumsum(axis=1) < rng.random(len(user))[:, None]).sum(axis=1), items - 1)
    clicked = rng.random(len(user)) < click[z, e, action]
    reward = np.stack([clicked, clicked * length[action] * rng.standard_exponential(len(user))], axis=1)
    chance = np.where(clicked, click[:, :, action], 1 - click[:, :, action]) * shown[:, action]  # [Z, E, N]
    seen = np.cumsum(np.log(chance), axis=2) - np.log(chance)
    seen -= seen[:, :, np.searchsorted(user, user)]
    posterior = np.exp(seen - seen.max(axis=(0, 1))) * LEVEL_SHARE[:, None]
    posterior /= posterior.sum(axis=(0, 1))
    about = About("personal", SIGNALS, actions=v.astype(np.float32), shares=(0.7, 0.15, 0.15))
    dataset = LoggedDataset.from_numpy(Rows(user, action, reward.astype(float)), about)
    expected, behaviour = np.einsum("zen,zekm->nkm", posterior, mean), np.einsum("zen,ek->nk", posterior, shown)
    return PersonalLog(dataset, behaviour, mean[z, e], expected)
