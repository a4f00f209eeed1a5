import json
import subprocess
import sys

import mo_gymnasium  # noqa: F401 - its import warns; here it may
import numpy as np
import pytest
from safetensors.numpy import load_file

import moac as package
from moac import momdp

K, T, L, M, S, A = 9, 400, 50, 3, 93, 4
STEPS = K * T * (2 * 8 + 16)


def test_json_line(finished):
    summary = finished.summary
    assert list(summary)[:14] == [
        "env", "setting", "objectives", "trials", "iterations", "env_steps", "seconds", "env_steps_per_second",
        "returns", "returns_kind", "returns_interval", "stationarity_gap", "regret", "weights",
    ]  # fmt: skip
    assert summary["evaluation_steps"] == 0
    assert summary["env"] == "resource-gathering-v0"
    assert summary["setting"] == "discounted"
    assert summary["objectives"] == ["death", "gold", "diamond"]
    assert (summary["trials"], summary["iterations"], summary["env_steps"]) == (K, T, STEPS)
    assert summary["env_steps_per_second"] == pytest.approx(STEPS / summary["seconds"])
    assert summary["returns_kind"] == "exact"
    assert all(low <= J <= high for J, (low, high) in zip(summary["returns"], summary["returns_interval"], strict=True))
    assert sum(summary["weights"]) == pytest.approx(1)
    assert 0 <= summary["stationarity_gap"] < 1
    assert summary["stopped_trials"] == 0
    assert summary["run_dir"] == str(finished.path)


def test_progress_goes_to_stderr(finished):
    assert len(finished.stdout.splitlines()) == 1
    assert finished.stderr.splitlines()[-1].startswith(f"iteration {T}/{T}  J ")


def test_run_directory_contents(finished):
    names = {path.relative_to(finished.path).as_posix() for path in finished.path.rglob("*") if path.is_file()}
    checkpoints = {name for name in names if name.startswith("checkpoint/")}
    assert names - checkpoints == {
        "config.json", "provenance.json", "metrics.jsonl", "timing.jsonl", "history.safetensors", "policy.safetensors",
        "figures/training.png", "figures/training.svg", "report.html",
    }  # fmt: skip
    assert len(checkpoints) == 2
    assert f"checkpoint/{T:010d}.safetensors" in checkpoints
    others = [name for name in names if not name.endswith(".safetensors")]  # whose first byte is that of a length
    assert not any((finished.path / name).read_bytes().startswith(b"\x80") for name in others)


def test_history_arrays(finished):
    history = load_file(finished.path / "history.safetensors")
    cube, square = (K, L, M), (K, L)
    assert {name: array.shape for name, array in history.items()} == {
        "iteration": (L,), "returns": cube, "weights": cube, "min_norm_weights": cube, "gradient_norm_squared": square,
        "gap": square, "direction_gap": square, "regret": square, "smallest_alignment": square,
        "evaluation_steps": (L,),
    }  # fmt: skip
    assert history["iteration"][0] == 1
    assert history["iteration"][-1] == T
    assert all(np.isfinite(array).all() for array in history.values())
    np.testing.assert_allclose(history["weights"].sum(axis=2), 1, atol=1e-6)
    np.testing.assert_allclose(finished.summary["returns"], history["returns"][:, -1].mean(axis=0))


def test_config_is_resolved(finished):
    data = json.loads((finished.path / "config.json").read_text())
    assert (data["format"], data["trials"], data["seed"], data["own"]) == (1, K, 7, [])
    assert data["config"]["setting"] == {"name": "discounted", "discount": 0.9}
    assert {name for name, value in data["config"].items() if value is None} == {
        "gradient_clip",
        "preferences",
        "weights",
    }
    config = package.Config.from_json(data["config"])
    assert (config.num_iterations, config.actor_batch_size, config.critic_batch_size) == (T, 16, 8)


def test_provenance(finished):
    data = json.loads((finished.path / "provenance.json").read_text())
    assert {"moac", "jax", "numpy", "python"} <= data["versions"].keys()
    assert data["seed"] == 7
    assert data["cpu"]


def test_metrics_are_means_over_trials(finished):
    rows = [json.loads(line) for line in (finished.path / "metrics.jsonl").read_text().splitlines()]
    history = load_file(finished.path / "history.safetensors")
    assert [row["iteration"] for row in rows] == history["iteration"].tolist()
    np.testing.assert_allclose([row["gap"] for row in rows], history["gap"].mean(axis=0))


def test_policies_feed_the_oracle(finished):
    policy = package.load(finished.path, trial=1)
    assert np.asarray(policy).shape == (K, S, A)
    exact = momdp.evaluate(momdp.library.resource_gathering(), policy, package.Discounted(0.9))
    history = load_file(finished.path / "history.safetensors")
    np.testing.assert_allclose(exact.returns, history["returns"][:, -1], rtol=1e-12)
    np.testing.assert_allclose(exact.gap, history["gap"][:, -1], rtol=1e-9)


def test_loaded_policy_acts_in_the_real_environment_from_a_fresh_process(finished, environment):
    script = """
import sys, warnings
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import mo_gymnasium
import jax
import moac

policy = moac.load(sys.argv[1], trial=2)
env = mo_gymnasium.make("resource-gathering-v0").unwrapped
observation, _ = env.reset(seed=0)
seen = set()
for step in range(150):
    action = policy.act(observation, jax.random.key(step))
    assert policy.log_prob(observation, action) <= 0
    seen.add(action)
    observation, _, terminated, _, _ = env.step(action)
    if terminated:
        observation, _ = env.reset()
print(sorted(seen))
"""
    answer = subprocess.run(
        [sys.executable, "-c", script, finished.path],
        env=environment | {"PYTHONWARNINGS": "default"}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.strip() == "[0, 1, 2, 3]"


def test_figures_are_drawn(finished):
    assert (finished.path / "figures" / "training.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (finished.path / "figures" / "training.svg").read_text()
