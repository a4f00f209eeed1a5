"""A model and a weighting rule of your own, in sixty lines.

Run: python examples/own_model_and_rule.py
"""

import jax.numpy as jnp
import numpy as np

import moac
from moac import momdp, weighting


def two_cities() -> momdp.FiniteMOMDP:
    """Two states, stay or travel: city 0 pays objective 0, city 1 objective 1, travelling a little of both."""
    move = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])
    reward = np.array([[[1.0, 0.0], [0.4, 0.4]], [[0.0, 1.0], [0.4, 0.4]]])
    return momdp.FiniteMOMDP.from_dense(move, reward).named(("museums", "beaches"), "two cities")


def softest() -> weighting.Rule:
    """Weights inversely proportional to each gradient's length: the quiet objective is heard most."""

    def update(state, K, _):  # noqa: ANN001, ANN202 - K is the Gram matrix; the third argument counts from 1
        inverse = 1.0 / jnp.sqrt(jnp.diagonal(K) + 1e-12)
        return state, inverse / jnp.sum(inverse)

    return weighting.Rule(lambda num_objectives: (), update)


def main(iterations: int = 300) -> np.ndarray:
    """Train with the rule, momentum around it, and return the exact returns."""
    model, setting = two_cities(), moac.Discounted((0.9, 0.8))
    config = moac.Config(setting=setting, num_iterations=iterations, num_evaluations=4)
    rule = weighting.with_momentum(softest(), "1/sqrt(t)")
    result = moac.train(model, config, trials=8, rule=rule)
    print("exact returns:", result.returns.mean(axis=0).round(3))
    before, after = result.history.regret[:, [0, -1]].mean(axis=0)
    print(f"regret: {before:.2f} before, {after:.2f} after; 0 is on the front of all policies")
    return result.returns


if __name__ == "__main__":
    main()
