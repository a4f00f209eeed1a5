"""The study `trust`: how often the verdict on an estimate is right, on generated logs whose truth is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from moac.offline import ncis

KINDS, ITEMS, LEVELS = 4, 20, np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
LEVEL_SHARE = np.array([1, 4, 6, 4, 1]) / 16
SIGNALS = ("Click", "Watch")
FAMILIES = (
    "clean", "hidden taste", "drift", "heavy tails", "near-deterministic", "few users", "tiny propensities", "wrong b",
)  # fmt: skip
_TIMES = np.linspace(-1, 1, 11)


@dataclass(frozen=True, eq=False)
class Pair:
    """A log and a policy, with the truth."""

    log: ncis.Logged
    behaviour: Any  # b(a|s) of all actions [N, K], as the estimate has it
    policy: Any  # π(a|s) [N, K]
    controls: tuple[ncis.Control, ...]
    covariates: dict[str, Any]
    truth: Any  # V_π / V_b − 1 of each signal


def _softmax(logits: Any) -> Any:
    p = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


def pair(family: str, kappa: float, users: int, seed: int) -> Pair:
    """A log of one family, and a policy that shows items more which the log's users clicked more.

    A row: its user's kind z and hidden taste e, a time t in [-1, 1], an item a, a click, and a time watched.

        b(a|z,e,t) ∝ exp(popularity_a + taste[z,a] + κ e g_a + drift t d_a),   P(click) = σ(c + q_a + e + drift t d_a).

    The estimate knows b(a|z), the mean over e and t; in `wrong b` only that over z as well.
    """
    rng = np.random.default_rng([seed, FAMILIES.index(family), round(1000 * kappa)])
    users = int(rng.integers(30, 120)) if family == "few users" else users
    drift = 0.15 if family == "drift" else 0.0
    steep = 3.0 if family == "near-deterministic" else 1.0
    popularity, quality, other, trend = rng.standard_normal((4, ITEMS))
    loading = 0.8 * quality + 0.6 * other
    taste, liking = rng.standard_normal((2, KINDS, ITEMS))
    rare = np.arange(ITEMS) < 3
    popularity = np.where(rare, -8.0, popularity) if family == "tiny propensities" else popularity
    appeal = steep * (0.7 * popularity + 0.5 * taste)[:, None, None]
    kappa_e = kappa * LEVELS[:, None, None] * loading
    shown = _softmax(appeal + kappa_e + drift * _TIMES[:, None] * trend)  # [Z, E, T, K]
    odds = -0.7 + 0.5 * quality + 0.4 * liking[:, None, None] + LEVELS[:, None, None] + drift * _TIMES[:, None] * trend
    click = 1 / (1 + np.exp(-odds))
    known = np.einsum("zetk,e->zk", shown, LEVEL_SHARE) / len(_TIMES)
    cells = shown * LEVEL_SHARE[:, None, None] / len(_TIMES) / KINDS
    seen = (cells * click).sum(axis=(0, 1, 2)) / cells.sum(axis=(0, 1, 2))
    lift = (seen - seen.mean()) / seen.std()
    flat = 0.6 if family == "near-deterministic" else 1.0
    policy = _softmax(flat * np.log(known) + 0.5 * lift + (6.0 * rare if family == "tiny propensities" else 0.0))
    where = (LEVEL_SHARE[:, None] / len(_TIMES) / KINDS)[None, :, :, None]
    true = (where * policy[:, None, None] * click).sum() / (cells * click).sum() - 1
    return _drawn(rng, family, users, (shown, click, known, policy), true)


def _drawn(rng: Any, family: str, users: int, tables: Any, truth: float) -> Pair:
    shown, click, known, policy = tables
    rows = rng.poisson(8, users) + 2
    user = np.repeat(np.arange(users), rows)
    position = np.arange(len(user)) - np.repeat(np.cumsum(rows) - rows, rows)
    z, e = rng.integers(KINDS, size=users)[user], rng.choice(len(LEVELS), size=users, p=LEVEL_SHARE)[user]
    t = np.minimum(((position + rng.random(len(user))) / rows[user] * len(_TIMES)).astype(int), len(_TIMES) - 1)
    p = shown[z, e, t]
    action = np.minimum((p.cumsum(axis=1) < rng.random(len(user))[:, None]).sum(axis=1), ITEMS - 1)
    clicked = rng.random(len(user)) < click[z, e, t, action]
    length = rng.standard_exponential(len(user))
    if family == "heavy tails":
        length = rng.pareto(1.3, len(user)) + 1 if rng.random() < 0.5 else np.exp(2 * rng.standard_normal(len(user)))
    reward = np.stack([clicked, clicked * length], axis=1).astype(float)
    b = known[z] if family != "wrong b" else np.broadcast_to(known.mean(axis=0), (len(user), ITEMS))
    log = ncis.Logged.of(user, reward, b[np.arange(len(user)), action], action, SIGNALS)
    totals = np.cumsum(reward, axis=0) - reward
    before = totals - totals[np.arange(len(user)) - position]
    earlier = np.divide(before, position[:, None], out=np.full_like(before, np.nan), where=position[:, None] > 0)
    covariates = {f"kind={k}": z == k for k in range(KINDS)} | {f"time {k}": t == k for k in range(len(_TIMES))}
    covariates["rows before"] = position
    control = ncis.Control("earlier rewards", earlier, SIGNALS)
    return Pair(log, b, policy[z], (control,), covariates, np.full(2, truth))


def estimated(one: Pair, options: ncis.Options | None = None) -> ncis.PolicyReport:
    """The report on the policy."""
    policies = {"log": one.behaviour, "policy": one.policy}
    evidence = ncis.evidence_of(one.log, policies, one.controls, one.covariates, behaviour=one.behaviour)
    report = ncis.evaluate(one.log, policies, baseline="log", evidence=evidence, options=options)
    return report.policies["policy"]
