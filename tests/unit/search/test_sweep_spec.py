"""What a sweep's file may say, and what it becomes."""

import math
import re
import statistics
from pathlib import Path

import pytest

from moac.config import Discounted
from moac.search import sweep_spec as spec

GRID = """
env = "fishwood-v0"
trials = 3
seed = 5
[config]
setting = { name = "discounted", discount = 0.8 }
num_iterations = 4
[methods]
"MOAC" = { momentum = "1/t" }
"fixed" = { weighting = "fixed", weights = [0.25, 0.75] }
[grid]
seed = [0, 1]
actor_step_size = [1.0, 10]
"""
RANDOM = """
env = "fishwood-v0"
[random]
count = 200
actor_step_size = { low = 0.01, high = 100.0, log = true }
num_critic_steps = [1, 4]
gae = [0, 1]
momentum = ["1/t", "0"]
hidden = { choices = [[8], [16, 16]] }
"""


def test_a_grid_is_every_combination_in_the_order_of_the_file():
    sweep = spec.parse("name", GRID)
    assert (sweep.name, sweep.trials, sweep.axes) == ("name", 3, ("method", "seed", "actor_step_size"))
    told = [(c.values["method"], c.seed, c.config.actor_step_size) for c in sweep.cells]
    assert told == [(m, s, a) for m in ("MOAC", "fixed") for s in (0, 1) for a in (1.0, 10.0)]
    assert all(c.env == "fishwood-v0" and c.config.num_iterations == 4 for c in sweep.cells)
    assert all(c.config.setting == Discounted(0.8) for c in sweep.cells)
    assert [c.config.weights for c in sweep.cells] == [None] * 4 + [(0.25, 0.75)] * 4
    assert sweep.cells[1].label == "method = MOAC, seed = 0, actor_step_size = 10"


def test_environments_vary_and_are_stepped_as_told():
    sweep = spec.parse(
        "x", '[grid]\nenv = ["a-v0", "b-v0"]\n[stepping]\nnum_envs = 4\nblackbox = true\nstep_timeout = 5\n'
    )
    assert [c.env for c in sweep.cells] == ["a-v0", "b-v0"]
    assert sweep.stepping == (("blackbox", True), ("num_envs", 4), ("step_timeout", 5))
    assert (sweep.trials, sweep.seed) == (1, 0)


def test_random_draws_stay_in_their_ranges_and_fill_them():
    cells = spec.parse("x", RANDOM).cells
    assert len(cells) == 200
    steps = [math.log10(c.config.actor_step_size) for c in cells]
    assert -2 <= min(steps) < -1.8
    assert 1.8 < max(steps) <= 2
    assert abs(statistics.mean(steps)) < 4 * (4 / math.sqrt(12)) / math.sqrt(200)  # four standard errors of the middle
    assert {c.config.num_critic_steps for c in cells} == {1, 2, 3, 4}
    assert {c.config.momentum for c in cells} == {"1/t", "0"}
    assert {c.config.hidden for c in cells} == {(8,), (16, 16)}
    assert len({c.config.gae for c in cells}) == 200  # a real number, though its ends are whole


def test_draws_depend_on_the_seed_and_their_name_alone():
    def drawn(text):
        return [c.config.actor_step_size for c in spec.parse("x", text).cells]

    assert drawn(RANDOM) == drawn(RANDOM)
    assert drawn(RANDOM.replace("count = 200", "count = 50")) == drawn(RANDOM)[:50]
    assert drawn(RANDOM.replace('momentum = ["1/t", "0"]\n', "")) == drawn(RANDOM)
    assert drawn("seed = 1\n" + RANDOM) != drawn(RANDOM)
    assert drawn(RANDOM)[:2] == pytest.approx([83.29113714, 0.0132145243])  # recorded: the same everywhere


def test_every_draw_meets_every_cell_of_the_grid():
    sweep = spec.parse("x", RANDOM.replace("200", "3") + "[grid]\nseed = [7, 8]\n")
    assert [c.seed for c in sweep.cells] == [7, 7, 7, 8, 8, 8]
    assert sweep.cells[0].config == sweep.cells[3].config


def test_ranges_end_where_they_say():
    _, axes = spec._random({"count": 1, "num_critic_steps": [1, 3], "gae": {"low": 1e-3, "high": 10.0, "log": True}})
    assert [axes["num_critic_steps"](share) for share in (0.0, 0.34, 0.999999)] == [1, 2, 3]
    assert [axes["gae"](share) for share in (0.0, 0.5)] == pytest.approx([1e-3, 0.1])


BASE = 'env = "a-v0"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("env = ", "Invalid value"),
        (BASE + "grd = 1", "`grd` is not a key of a sweep; known are env, trials, seed, config, grid"),
        (BASE, "must have a table of what varies"),
        ("[grid]\nseed = [1]", "`env` must be given, at the top or in"),
        ("env = 3\n[grid]\nseed = [1]", "`env` must be the id of an environment, got 3"),
        ("[grid]\nenv = [3]", "env = 3: `env` must be the id"),
        (BASE + "trials = 0\n[grid]\nseed = [1]", "`trials` must be a whole number of at least 1, got 0"),
        (BASE + "grid = 3", "`grid` must be a table"),
        (BASE + "[grid]\nactor_stepsize = [1]", "`grid.actor_stepsize` is neither env nor seed nor a field"),
        (BASE + "[grid]\nseed = 1", "`grid.seed` must be a list of values, got 1"),
        (BASE + "[grid]\nseed = []", "`grid.seed` must be a list of values"),
        (BASE + "[grid]\nseed = [-1]", "seed = -1: `seed` must be a whole number in"),
        (BASE + "[grid]\nactor_step_size = [1, -2]", "actor_step_size = -2: `actor_step_size` must be positive"),
        (BASE + "[config]\nfoo = 1\n[grid]\nseed = [1]", "`foo` is not a field of the configuration"),
        (BASE + "[config]\ngae = 1\n[grid]\ngae = [1]", "`gae` must be in one place, got it in .config. and in .grid."),
        (BASE + "[grid]\nenv = ['b']", "`env` must be in one place, got it in .grid. and in the top"),
        (BASE + "[methods]\na = 1", "`methods.a` must be a table of fields, got 1"),
        (
            BASE + "[stepping]\nspeed = 1\n[grid]\nseed = [1]",
            "`stepping` must hold numbers for blackbox, .*got speed = 1",
        ),
        (BASE + "[random]\ngae = [0, 1]", "`random.count` must be a whole number of at least 1, got None"),
        (BASE + "[random]\ncount = 2", "`random` must have a field"),
        (BASE + "[random]\ncount = 2\nfoo = [0, 1]", "`random.foo` is neither env nor seed nor a field"),
        (BASE + "[random]\ncount = 2\ngae = [1, 0]", "from low to a larger high, got .1, 0."),
        (BASE + "[random]\ncount = 2\ngae = [0, 0.5, 1]", "`random.gae` must be a range .low, high."),
        (
            BASE + "[random]\ncount = 2\ngae = { low = 0, high = 1, log = true }",
            "`random.gae` must be a range whose low is positive",
        ),
        (BASE + "[random]\ncount = 2\nnum_iterations = [1.5, 3]", "must be a range of whole numbers"),
        (BASE + "[random]\ncount = 2\nmomentum = [0, 1]", "it is not a number"),
        (BASE + "[random]\ncount = 200000\ngae = [0, 1]", "at most 100000 tasks, got 200000"),
        (BASE + "[random]\ncount = 1000000000000000\ngae = [0, 1]", "at most 100000 tasks, got 1000000000000000"),
        (BASE + "[random]\ncount = 2\nseed = [-1e308, 1e308]", "`random.seed` must be a range"),
        (BASE + "[random]\ncount = 2\nseed = { low = 1e-300, high = 1e300, log = true }", "`random.seed` must be"),
        (BASE + f"trials = 1{'0' * 400}\n[grid]\nseed = [1]", "needs more than 64 bits"),
        (BASE + f"[grid]\nactor_step_size = [1{'0' * 400}]", "needs more than 64 bits"),
        (BASE + f"[grid]\nactor_step_size = [1{'0' * 5000}]", "."),
        (BASE + f"[grid]\nweights = {'[' * 99}{']' * 99}", "nested more than"),
        (BASE + f"[grid]\nweights = {'[' * 9999}{']' * 9999}", "nested too deeply"),
        (BASE + f"[{'a.' * 99}a]\nb = 1", "nested more than"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_file(text, message, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        spec.load(path)
    assert str(caught.value).startswith(f"{path}: ")


ROOT = Path(__file__).parents[3]


def test_the_files_of_the_documentation_and_the_examples_parse():
    (written,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "sweeps.md").read_text(), re.DOTALL)
    assert len(spec.parse("docs", written).cells) == 2 * 2 * 3 * 20
    assert len(spec.load(ROOT / "examples" / "sweep.toml").cells) == 12
