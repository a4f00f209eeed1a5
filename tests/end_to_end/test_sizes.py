"""What cannot fit into memory is refused in one line before any is taken, and leaves nothing; what fits is trained."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
from gymnasium import spaces

import moac
from moac import api, envs, memory, training
from moac.cli.main import main
from moac.runs import runner
from moac.training import needs, result
from tests.helpers.environments import Line

HUGE = 10**13
MOST = 2**32 - 1
"""Trials that seeds can be counted for."""
STEPPED = "train tests.helpers.misbehaving:Well-v0"
TRAIN = "train fishwood-v0"
EXPLORE = "explore fishwood-v0"
LINES = {
    f"{TRAIN} --trials {MOST}": "trials",
    f"{TRAIN} --actor-batch-size {HUGE}": "actor_batch_size",
    f"{TRAIN} --critic-batch-size {HUGE}": "critic_batch_size",
    f"{TRAIN} --num-critic-steps {HUGE}": "num_critic_steps",
    f"{TRAIN} --iterations {2**31 - 1} --num-evaluations {2**31 - 1} --trials 9": "num_evaluations",
    f"{TRAIN} --features random:{HUGE}": "features",
    f"{TRAIN} --policy mlp --hidden {HUGE}": "hidden",
    f"{TRAIN} --policy mlp --hidden {10**6} {10**6}": "hidden",
    f"{STEPPED} --num-envs {HUGE}": "num_envs` or `actor_batch_size",
    f"{STEPPED} --actor-batch-size {16 * HUGE}": "actor_batch_size",
    f"{STEPPED} --evaluation-episodes {HUGE}": "evaluation_episodes",
    f"{STEPPED} --epochs {HUGE}": "epochs",
    f"{STEPPED} --trials {MOST}": "trials",
    f"{STEPPED} --workers {10**6} --num-envs {10**6}": "workers",
    f"train minecart-v0 --learner paper --features fourier:{10**7}": "features",
    f"train minecart-v0 --learner paper --features rbf:{HUGE}": "features",
    f"{EXPLORE} --preferences {HUGE}": "preferences",
    f"{EXPLORE} --preferences {HUGE} --draw grid": "preferences",
    f"{EXPLORE} --preferences {10**6} --num-evaluations 200000 --rules fixed": "num_evaluations` or `trials",
    f"{EXPLORE} --actor-batch-size {HUGE}": "actor_batch_size",
    f"explore tests.helpers.misbehaving:Well-v0 --episodes {HUGE}": "episodes",
    f"explore tests.helpers.misbehaving:Well-v0 --num-envs {HUGE}": "num_envs` or `actor_batch_size",
}
COUNTED = {
    f"{TRAIN} --trials {2**63}": "`trials` must be a whole number below 2^32, got 9223372036854775808.",
    f"{TRAIN} --trials {HUGE}": "`trials` must be a whole number below 2^32, got 10000000000000.",
    f"{TRAIN} --iterations {HUGE}": "`num_iterations` must be below 2^31, got 10000000000000.",
    f"{TRAIN} --num-evaluations {HUGE}": "`num_evaluations` must be below 2^31, got 10000000000000.",
    f"{EXPLORE} --entropy": "`entropy` must hold at least one number, got none.",
    f"{EXPLORE} --entropy -1": "`entropy` must be at least 0 and finite, got -1.0.",
}


@pytest.mark.parametrize("line", LINES)
def test_what_cannot_fit_is_one_line_and_leaves_nothing(line, capsys, tmp_path):
    assert main([*line.split(), "--out", str(tmp_path / "run")]) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith(f"moac: `{LINES[line]}` must be smaller, got ")
    assert re.search(r": this would take at least \S+ \S+ of memory, most of it for .*, and there are \S+ \wB\.$", told)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("line", COUNTED)
def test_what_cannot_be_counted_is_one_line_and_leaves_nothing(line, capsys, tmp_path):
    assert main([*line.split(), "--out", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err == f"moac: {COUNTED[line]}\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: moac.train("fishwood-v0", trials=MOST), "trials"),
        (lambda: moac.train("fishwood-v0", actor_batch_size=HUGE), "actor_batch_size"),
        (lambda: moac.train("fishwood-v0", policy="mlp", hidden=(10**30,)), "hidden"),
        (lambda: moac.train(envs.make(Line, num_envs=HUGE)), "num_envs"),
        (lambda: moac.explore("fishwood-v0", preferences=HUGE), "preferences"),
        (lambda: moac.explore("fishwood-v0", hidden=(10**30,), policy="mlp"), "hidden"),
    ],
)
def test_python_raises_a_value_error(call, name):
    with pytest.raises(ValueError, match=rf"^`{name}`.* must be smaller, got "):
        call()


SHORT = {"num_iterations": 2, "num_evaluations": 1, "actor_batch_size": 8, "minibatch_size": 8, "epochs": 1}


@pytest.fixture(scope="module")
def trained():
    return moac.train(envs.make(Line, num_envs=1, evaluation_episodes=1, limit=4), **SHORT)


@pytest.mark.parametrize("play", [moac.evaluate, moac.certify])
def test_episodes_that_cannot_fit_are_refused(play, trained):
    with pytest.raises(ValueError, match=r"^`episodes` must be smaller, got 10000000000000: "):
        play(trained, episodes=HUGE)


def total(source, trials, **options):
    run = result.prepare(source, moac.Config(**options), trials, 0)
    return sum(need.size for need in (*needs.of_sizes(source, run.config, trials), needs.of_state(run)))


@pytest.mark.parametrize("problem", ["fishwood-v0", "minecart-v0"])
def test_a_run_that_just_fits_is_trained_and_a_byte_less_is_not_enough(problem, monkeypatch, tmp_path):
    source = api.source_of(problem)
    options = SHORT | {"actor_batch_size": 16, "minibatch_size": 16} | ({"epochs": None} if source.compiled else {})
    needed = total(source, 2, **options)
    monkeypatch.setattr(memory, "allowed", lambda: needed)
    assert moac.train(source, trials=2, **options).iteration == 2
    monkeypatch.setattr(memory, "allowed", lambda: needed - 1)
    with pytest.raises(ValueError, match="must be smaller, got "):
        moac.train(source, trials=2, **options, out=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_the_usual_runs_need_little():
    """Every default, and features that no network looks at, however many there would be."""
    vectors = envs.make(lambda: Line(observation_space=spaces.Box(0.0, 4.0, (50_000,))), num_envs=16)
    for source in (api.source_of("fishwood-v0"), envs.make("minecart-v0"), vectors):
        assert total(source, 1) < 2e9
    with pytest.raises(ValueError, match=r"^`features` must be smaller, got 'fourier:3'"):
        total(vectors, 1, learner="paper")


def test_any_error_before_the_first_iteration_leaves_no_folder(monkeypatch, tmp_path):
    """Of a run, and of an exploration whose first run it is."""

    def fails(*_):
        raise IndexError("at once")

    monkeypatch.setattr(training, "iterate", fails)
    with pytest.raises(IndexError):
        moac.train("fishwood-v0", num_iterations=2, out=tmp_path / "run")
    with pytest.raises(IndexError):
        moac.explore("fishwood-v0", num_iterations=10, preferences=2, out=tmp_path / "exploration")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("RESOURCE_EXHAUSTED: Out of memory")])
def test_memory_that_is_exhausted_all_the_same_is_one_line(error, capsys, monkeypatch, tmp_path):
    def fails(*_):
        raise error

    monkeypatch.setattr(runner, "train", fails)
    assert main([*TRAIN.split(), "--out", str(tmp_path / "run")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("moac: there is too little memory: ")
    assert list(tmp_path.iterdir()) == []


MEASURED = """
import json, resource, sys
import moac
from moac.training import needs
from moac.training import result
from tests.end_to_end import test_sizes

problem, trials, options = test_sizes.LARGE[sys.argv[1]]
moac.train("fishwood-v0", num_iterations=1, num_evaluations=1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
source = moac.api.source_of(problem())
needed = test_sizes.total(source, trials, **options)
moac.train(source, trials=trials, **options)
taken = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
print(json.dumps({"needed": needed, "taken": taken}))
"""


class Wide(Line):
    """Shows many numbers."""

    def __init__(self):
        super().__init__(observation_space=spaces.Box(0.0, 4.0, (2000,)), limit=4)

    def shown(self):
        return np.full(2000, float(self.place), np.float32)


ONCE = {"num_iterations": 1, "num_evaluations": 1}
ON_MODEL = ONCE | {"num_critic_steps": 1, "critic_batch_size": 8, "actor_batch_size": 8}
LARGE = {
    "trials": (lambda: "fishwood-v0", 60_000, ON_MODEL),
    "batch": (lambda: "fishwood-v0", 1, ON_MODEL | {"actor_batch_size": 1_000_000}),
    "widths": (lambda: "fishwood-v0", 1, ON_MODEL | {"policy": "mlp", "hidden": (2000, 2000)}),
    "history": (lambda: "fishwood-v0", 12_000, ON_MODEL | {"num_iterations": 100, "num_evaluations": 100}),
    "layer": (
        lambda: envs.make("minecart-v0", evaluation_episodes=1),
        1,
        ONCE | {"hidden": (4000,), "actor_batch_size": 8192, "minibatch_size": 8192, "epochs": 1},
    ),
    "epochs": (
        lambda: envs.make("minecart-v0", evaluation_episodes=1),
        1,
        ONCE | {"hidden": (), "actor_batch_size": 256, "minibatch_size": 256, "epochs": 100_000},
    ),
    "vectors": (
        lambda: envs.make(Wide, evaluation_episodes=1),
        1,
        ONCE | {"hidden": (4,), "actor_batch_size": 4096, "minibatch_size": 256, "epochs": 1},
    ),
    "states": (
        lambda: envs.make(Line, evaluation_episodes=1, limit=4),
        1,
        ONCE | {"actor_batch_size": 1_200_000, "minibatch_size": 1_200_000, "epochs": 1},
    ),
    "copies": (
        lambda: envs.make(Line, num_envs=40_000, evaluation_episodes=1, limit=4),
        1,
        ONCE | {"actor_batch_size": 40_000, "minibatch_size": 40_000, "epochs": 1},
    ),
    "features": (
        lambda: envs.make("minecart-v0", evaluation_episodes=1),
        1,
        ONCE | {"learner": "paper", "features": "fourier:100", "critic_batch_size": 16, "actor_batch_size": 16},
    ),
}
"""Runs that are large in one way."""


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_what_is_said_to_be_needed_is_less_than_what_is_taken(name):
    done = subprocess.run([sys.executable, "-c", MEASURED, name], capture_output=True, text=True, check=True)
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["taken"] / 20 < told["needed"] < told["taken"]
