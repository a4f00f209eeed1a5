"""Five iterations of Algorithm 2 on resource gathering, as they were recorded.

Any change of what is computed, or of the random numbers it uses, shows here. Where the change is meant, record anew:

    python -m tests.learning.test_golden --record
"""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import moac
from moac import momdp, training
from moac.training import result

DATA = Path(__file__).parents[1] / "data"
TRIALS, SEED, T = 3, 11, 5
SETTINGS = {
    "discounted": moac.Discounted((0.9, 0.95, 0.97)),
    "average": moac.Average(),
}


def trace(name):
    """Per iteration, for every trial: the weights, μ, where the chain is, and what summarises θ and w."""
    config = moac.Config(
        setting=SETTINGS[name],
        visitation="discounted" if name == "discounted" else "stationary",
        num_iterations=T,
        num_evaluations=T,
        num_critic_steps=3,
        critic_batch_size=32,
        actor_batch_size=64,
        actor_step_size=20.0,
        critic_step_size=0.5,
        momentum="1/sqrt(t)",
    )
    run = result.prepare(momdp.library.resource_gathering(), config, TRIALS, SEED)
    return [record(snapshot) for snapshot in training.iterate(run)]


def record(snapshot):
    state, chain = snapshot.trials.state, snapshot.trials.chain
    return {
        "theta": summary(state.theta),
        "w": summary(state.w),
        "mu": np.asarray(state.mu, float).tolist(),
        "lambda": snapshot.history.weights[:, -1].tolist(),
        "gradient norm squared": snapshot.history.gradient_norm_squared[:, -1].tolist(),
        "random iteration": np.asarray(state.random_iteration).tolist(),
        "state": np.asarray(chain.state).tolist(),
        "age": np.asarray(chain.age).tolist(),
    }


def summary(table):
    """Of each trial's table: five sums with fixed random signs, in which every entry counts, and its largest entry."""
    flat = np.asarray(table, np.float64).reshape(len(table), -1)
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(flat.shape[1], 5))
    return np.column_stack([flat @ signs, np.abs(flat).max(axis=1)]).tolist()


@pytest.mark.parametrize("name", SETTINGS)
def test_five_iterations_are_as_recorded(name):
    recorded = json.loads((DATA / f"golden_{name}.json").read_text())
    ours = trace(name)
    assert len(ours) == len(recorded) == T
    for t, (now, then) in enumerate(zip(ours, recorded, strict=True), start=1):
        assert now.keys() == then.keys()
        for part, value in then.items():
            where = f"{part} after iteration {t}"
            if part in ("state", "age", "random iteration"):
                assert now[part] == value, where
            else:
                np.testing.assert_allclose(now[part], value, rtol=1e-5, atol=1e-6, err_msg=where)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_recording_is_of_something_that_moves(name):
    last = json.loads((DATA / f"golden_{name}.json").read_text())[-1]
    assert min(row[-1] for row in last["theta"]) > 1e-3
    assert min(row[-1] for row in last["w"]) > 1e-2
    assert len({tuple(row) for row in last["lambda"]}) == TRIALS
    assert (np.abs(last["mu"]).max() > 0) == (name == "average")


if __name__ == "__main__" and sys.argv[1:] == ["--record"]:
    for name in SETTINGS:
        (DATA / f"golden_{name}.json").write_text(json.dumps(trace(name), indent=1) + "\n")
