"""A log in several files."""

import numpy as np


def parts_of_a_log(folder, count=4):
    """Files of whole users, and the rows they were made from."""
    rng = np.random.default_rng(3)
    user = np.sort(rng.integers(0, 40, 300))
    arrays = {"user": user, "reward": rng.random((300, 2)), "propensity": rng.uniform(0.2, 0.9, 300)}
    arrays["policy"] = rng.uniform(0.1, 1.0, 300)
    for k in range(count):
        np.savez(folder / f"part-{k}.npz", **{name: array[user % count == k] for name, array in arrays.items()})
    return arrays, [folder / f"part-{k}.npz" for k in range(count)]
