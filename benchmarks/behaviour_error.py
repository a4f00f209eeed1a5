"""The behaviour model's error in an estimate: its influence function beside full refits on generated logs.

For each log b is fitted once and refitted on train users drawn with replacement; each fit estimates the same policy on
the same validation users. The spread of these estimates stands beside what `moac.offline.model_error` says from the
first fit alone. `python benchmarks/behaviour_error.py [logs] [refits] [first]` prints a line for each log.
On 20 logs with 50 refits each, Click and WatchTime, plain influences give 0.77 of the refits' spread in the median
(0.45 to 1.15), scaled ones 0.98 (0.50 to 2.15).
"""

import sys
from dataclasses import replace

import numpy as np

from moac.kuairand import generate
from moac.offline import behaviour, model_error, ncis

MODEL = generate.UserModel.of(0, 12)
SIGNALS, CAP = ("Click", "WatchTime"), 10.0


def main(logs=20, refits=50, first=0):
    """Print a line for each log: the spread of refits, and the influence's, plain and scaled, relative to it."""
    options = behaviour.Options(hidden=(16,))
    for seed in range(first, first + logs):
        dataset = generate.log(4_000, 100 + seed, model=MODEL, num_users=400).dataset(
            known=False, history_responses=True
        )
        rows, rng, train = dataset.rows("validation"), np.random.default_rng(seed), dataset.rows("train")
        model = behaviour.fit(dataset, options)
        dataset = dataset.with_behaviour(model)
        popular = np.bincount(dataset.action[train], minlength=12) + 1
        policy = np.exp(0.7 * rng.standard_normal(12)) * popular
        _, told = estimated(dataset, model, policy / policy.sum(), rows)
        by_user = np.split(train, np.flatnonzero(np.diff(dataset.user[train])) + 1)
        changes = []
        for _ in range(refits):
            picked = np.concatenate([by_user[u] for u in rng.integers(len(by_user), size=len(by_user))])
            member = behaviour._member(model.policy, dataset, (picked, rows), options, 0)
            changes.append(estimated(dataset, replace(model, members=(member,)), policy / policy.sum(), rows, False)[0])
        spread = np.std(changes, axis=0, ddof=1)
        ratio = told / np.tile(spread, 2)
        print(seed, "refits", *(f"{x:.5f}" for x in spread), "ratio", *(f"{x:.2f}" for x in ratio), flush=True)


def estimated(dataset, model, policy, rows, with_error=True):
    """Relative change of the signals to the log, and its standard deviation by the influence function."""
    b, action = model.probabilities(dataset, rows), dataset.action[rows]
    weight = ncis.Weighted((policy[action] / b[np.arange(len(rows)), action])[None])
    reward = np.asarray(dataset.reward[rows], float)[:, [dataset.signal_names.index(name) for name in SIGNALS]]
    w, mean = np.minimum(CAP, weight.ratio[0]), reward.mean(axis=0)
    change = w @ reward / w.sum() / mean - 1
    if not with_error:
        return change, None
    alone = replace(dataset, behaviour=replace(model, members=model.members[:1]))
    psi = [model_error.influence(each, rows, {"p": weight}, reward, CAP)["p"] for each in (alone, dataset)]
    return change, np.concatenate([np.sqrt((each**2).sum(axis=0)) / mean for each in psi])


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
