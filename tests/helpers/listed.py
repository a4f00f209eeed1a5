"""A small log whose requests bring their own candidates, and whose law is known."""

import numpy as np

from moac.logs import About, LoggedDataset, Rows

ITEMS, LENGTH = 14, 5


def features(seed=0):
    """[K, 3] of the items."""
    return np.random.default_rng(seed).normal(size=(ITEMS, 3)).round(2)


def rows(count=4_000, users=400, seed=1, num_items=ITEMS):
    """Each user likes one feature; the log shows a candidate with probability ∝ exp of its first feature."""
    rng, x = np.random.default_rng(seed), features()
    user = np.sort(rng.integers(users, size=count))
    lists = [np.sort(rng.permutation(num_items)[: rng.integers(2, LENGTH + 1)]) for _ in range(count)]
    p = [np.exp(x[each, 0]) / np.exp(x[each, 0]).sum() for each in lists]
    place = [rng.choice(len(each), p=q) for each, q in zip(lists, p, strict=True)]
    action = np.array([each[k] for each, k in zip(lists, place, strict=True)])
    taste = np.eye(3)[user % 3]
    click = rng.random(count) < 1 / (1 + np.exp(-(x[action] * taste).sum(axis=1)))
    reward = np.column_stack([click, rng.random(count) * (1 + click)])
    propensity = np.array([q[k] for q, k in zip(p, place, strict=True)])
    return Rows(user, action, reward, candidates=lists, propensity=propensity)


def dataset(known=True, count=4_000, **about):
    """The log, with its propensities or without."""
    given = rows(count)
    given = given if known else Rows(given.user, given.action, given.reward, candidates=given.candidates)
    users = np.eye(3)[np.unique(given.user) % 3]
    described = {"users": users, "actions": features(), "window": 2, "action_ids": np.arange(ITEMS)}
    return LoggedDataset.from_numpy(given, About(**(described | about)))
