"""The behaviour model's error in an estimate: its influence function beside full refits on generated logs.

For each log b is fitted once and refitted on train users drawn with replacement; each fit estimates the same policy on
the same validation users. The spread of these estimates stands beside what `moac.offline.model_error` says from the
first fit alone. `python benchmarks/behaviour_error.py [logs] [refits] [first]` prints a line for each log.
"""

import sys
from dataclasses import replace

import numpy as np

from moac.kuairand import generate
from moac.offline import behaviour, evaluate, model_error, ncis
from moac.policies import SoftmaxMLP
from moac.policies.networks import Plain

MODEL = generate.UserModel.of(0, 12)
SIGNALS = ("Click", "WatchTime")


def main(logs=20, refits=50, first=0):
    options = behaviour.Options(hidden=(16,))
    for seed in range(first, first + logs):
        dataset = generate.log(8_000, 100 + seed, model=MODEL, num_users=800).dataset(
            known=False, history_responses=True
        )
        rows, rng = dataset.rows("validation"), np.random.default_rng(seed)
        lift = rng.standard_normal(12).astype(np.float32)
        policy = SoftmaxMLP(Plain(dataset.num_features), (), 12)
        theta = (np.zeros((1, dataset.num_features + 1, 12), np.float32),)
        model = behaviour.fit(dataset, options, cross_fit=False)
        popular = np.bincount(dataset.action[dataset.rows("train")], minlength=12) + 1
        theta[0][0, -1] = np.log(popular / popular.sum()) + 0.7 * lift
        found = _one(dataset, model, (policy, theta), rows)
        train, user = dataset.rows("train"), dataset.user
        users = np.unique(user[train])
        changes = []
        for _ in range(refits):
            drawn = rng.choice(users, len(users))
            picked = np.concatenate([train[user[train] == u] for u in drawn])
            again = behaviour.fit(dataset, options, cross_fit=False, train=picked)
            changes.append(_one(dataset, again, (policy, theta), rows)[0])
        spread, told = np.std(changes, axis=0, ddof=1), found[1]
        print(
            seed, "refits", spread.round(5), "influence", told.round(5), "ratio", (told / spread).round(2), flush=True
        )


def _one(dataset, model, method, rows):
    b = model.probabilities(dataset, rows)
    action, n = dataset.action[rows], np.arange(len(rows))
    table = evaluate.tables(method, evaluate.features(dataset, rows), dataset.num_actions)[0]
    weight = ncis.Weighted((table[n, action] / b[n, action])[None])
    reward = np.asarray(dataset.reward[rows], float)[:, [dataset.signal_names.index(name) for name in SIGNALS]]
    w = np.minimum(10.0, weight.ratio[0])
    mean = reward.mean(axis=0)
    psi = model_error.influence(replace(dataset, behaviour=model), rows, {"p": weight}, reward, 10.0)["p"]
    return w @ reward / w.sum() / mean - 1, np.sqrt((psi**2).sum(axis=0)) / mean


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
