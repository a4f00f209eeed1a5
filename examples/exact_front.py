"""How far from the exact Pareto front does MOAC end? Train on a known model, compare with the truth.

Run: python examples/exact_front.py
"""

import numpy as np

import moac
from moac import momdp


def main(iterations: int = 600, trials: int = 16) -> float:
    """Train, and return the mean distance of the trials to the nearest point of the exact hull."""
    model = momdp.library.resource_gathering()
    setting = moac.Discounted(0.9)
    front = momdp.pareto_front(model, setting)
    print(f"{len(front.points)} exact Pareto points, {int(front.hull.sum())} of them on the hull")

    config = moac.Config(setting=setting, num_iterations=iterations, momentum="1/t", num_evaluations=5)
    result = moac.train(model, config, trials=trials, seed=0)

    exact = momdp.evaluate(model, result.policy, setting)
    hull = front.points[front.hull]
    distance = np.linalg.norm(exact.returns[:, None] - hull, axis=2).min(axis=1)
    print("returns (mean over trials):", exact.returns.mean(axis=0).round(4))
    print(f"stationarity gap: {exact.gap.mean():.1e}   distance to the hull: {distance.mean():.4f}")
    return float(distance.mean())


if __name__ == "__main__":
    main()
