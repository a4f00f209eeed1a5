"""Each command of the README as a call in Python: the same numbers, and nothing on disk unless `out` is given."""

import json

import numpy as np
import pytest

import moac
from moac.cli.main import main

SIZES = {"num_iterations": 4}
TYPED = ("--iterations", 4)
ENV = "fishwood-v0"


@pytest.fixture
def told(capsys, tmp_path, monkeypatch):
    """Runs a command in this process and gives its JSON object."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        assert main([*map(str, words), "--json"]) == 0
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    return run


@pytest.fixture(scope="module")
def result():
    return moac.train(ENV, trials=2, seed=3, **SIZES)


def test_train_resume_evaluate_compare(told, result, tmp_path):
    summary = told("train", ENV, "--trials", 2, "--seed", 3, *TYPED, "--out", "run")
    assert summary["returns"] == result.returns.mean(axis=0).tolist()
    assert summary["weights"] == pytest.approx(result.history.weights[:, -1].mean(axis=0))
    assert summary["env_steps"] == result.env_steps

    values, evaluated = moac.evaluate(result, episodes=3), told("evaluate", "run", "--episodes", 3)
    assert evaluated["points"] == values.points.tolist()
    assert evaluated["returns"] == [mean.value for mean in values.returns]

    longer = moac.resume(result, iterations=6)
    assert told("resume", "run", "--iterations", 6)["returns"] == longer.returns.mean(axis=0).tolist()
    np.testing.assert_array_equal(moac.load("run", trial=1).theta, longer.policy.theta)

    longer.save("saved")
    compared = moac.compare(longer, moac.resume("saved"), names=["run", "saved"])
    shown = told("compare", "run", "saved")
    assert [line["return"] for line in shown["ends"]] == [line["return"] for line in compared.table]
    assert {path.name for path in tmp_path.iterdir()} == {"run", "saved"}


def test_explore(told, tmp_path):
    options = {"preferences": 2, "rules": ["fixed"], "entropies": [0.0], **SIZES, "num_evaluations": 1}
    archive = moac.explore(ENV, **options)
    assert list(tmp_path.iterdir()) == []
    words = ("--preferences", 2, "--rules", "fixed", "--entropy", 0, "--num-evaluations", 1, "--out", "set")
    shown = told("explore", ENV, *TYPED, *words)
    assert [each["returns"] for each in shown["archive"]] == archive.points.tolist()
    assert repr(archive).count("\n") == 0


def test_sweep(told, tmp_path):
    spec = {
        "name": "both",
        "env": ENV,
        "config": {**SIZES, "num_evaluations": 1},
        "grid": {"actor_step_size": [1.0, 4.0]},
    }
    swept = moac.sweep(spec)
    assert list(tmp_path.iterdir()) == []
    lines = [f'env = "{ENV}"', "[config]", *(f"{name} = {value}" for name, value in spec["config"].items())]
    (tmp_path / "both.toml").write_text("\n".join([*lines, "[grid]", "actor_step_size = [1.0, 4.0]"]))
    assert told("sweep", "both.toml", "--executor", "serial", "--out", "swept")["finished"] == 2
    saved = swept.save("memory")
    assert (saved / "results.csv").read_text() == (tmp_path / "swept" / "results.csv").read_text()


def test_front_and_theory(told):
    model, setting = moac.momdp.library.fishwood(), moac.Discounted(0.9)
    assert told("front", ENV, "--discount", 0.9)["points"] == moac.momdp.pareto_front(model, setting).points.tolist()
    promised = moac.theory.guarantees(model, moac.defaults(model), 0.01)
    plans = told("theory", ENV, "--epsilon", 0.01)["plans"]
    assert {name: plan["samples"] for name, plan in plans.items()} == {n: p.samples for n, p in promised.plans.items()}


def test_environments_and_version(told, capsys):
    listed = {row["id"]: row for row in told("envs")["environments"]}
    assert set(listed) == set(moac.envs.known_ids())
    assert listed[ENV] == {"id": ENV, "objectives": ["fish", "wood"], "exact": True}
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"moac {moac.__version__}\n"
