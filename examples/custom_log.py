"""A log of your own, with any signals: arrays in, a dataset with split users and assembled states out.

Run: python examples/custom_log.py
"""

import numpy as np

from moac.logs import About, LoggedDataset, Rows

SIGNALS, COST = ("Order", "Minutes", "Complaint"), -1


def newsletter(readers: int = 300, offers: int = 12, weeks: int = 20, seed: int = 0) -> tuple[Rows, np.ndarray]:
    """Every week each reader gets an offer, in some seasons mostly the popular ones; who is older orders less."""
    rng = np.random.default_rng(seed)
    age, appeal = rng.uniform(18, 80, readers), rng.standard_normal(offers)
    user, week = (grid.ravel() for grid in np.meshgrid(np.arange(readers), np.arange(weeks), indexing="ij"))
    season = week % 4
    chance = np.exp(appeal * (1 + season[:, None] / 2))
    chance /= chance.sum(axis=1, keepdims=True)
    action = (rng.random((len(user), 1)) > chance.cumsum(axis=1)[:, :-1]).sum(axis=1)
    order = rng.random(len(user)) < 0.3 / (1 + np.exp((age[user] - 50) / 10 - appeal[action]))
    minutes = rng.exponential(2 + 3 * order)
    complaint = rng.random(len(user)) < 0.02
    rows = Rows(
        user=1000 + user,  # any whole numbers
        action=action,
        reward=np.column_stack([order, minutes, complaint]),  # as logged: a cost is positive
        time=week,
        context=season[:, None],
        propensity=chance[np.arange(len(user)), action],  # leave it out where it is not known
    )
    return rows, (age[:, None] - 50) / 30


def main() -> LoggedDataset:
    """Build the dataset, and print what is in it."""
    rows, readers = newsletter()
    about = About("newsletter", SIGNALS, (1, 1, COST), users=readers, window=5)
    dataset = LoggedDataset.from_numpy(rows, about)
    print(f"{dataset.num_rows} rows of {dataset.num_users} readers, {dataset.num_actions} offers")
    for split in ("train", "validation", "test"):
        chosen = dataset.rows(split)
        values = ", ".join(f"{name} {v:.3f}" for name, v in zip(SIGNALS, dataset.reward[chosen].mean(0), strict=True))
        print(f"  {split}: {len(chosen)} rows; per row {values}")
    state = dataset.features(dataset.observation(np.arange(4)))
    print(f"a state has {state.shape[1]} numbers: the reader, the season and the last {about.window} offers")
    return dataset


if __name__ == "__main__":
    main()
