"""The run directory: everything a run leaves behind, as JSON and safetensors. Nothing in it can run code."""

from __future__ import annotations

import json
import platform
import subprocess
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, final

import jax
import numpy as np

from moac import result, training
from moac.config import Config
from moac.experiments import files
from moac.history import History
from moac.types import Source

FORMAT = 1
_KEPT = 2
_RUN_KEYS = ("format", "problem", "trials", "seed", "config")


@final
@dataclass(frozen=True)
class RunDirectory:
    """A run on disk.

    Attributes:
        path: the folder.
    """

    path: Path

    @classmethod
    def create(cls, path: Path, run: training.Run, env: str | None = None) -> RunDirectory:
        """A new folder with the run's configuration and provenance; an existing one is refused."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise ValueError(f"{path} exists: give `--out` a new folder, or continue it with moac resume {path}.")
        try:
            (path / "checkpoint").mkdir(parents=True)
        except OSError as error:
            raise ValueError(f"{path} cannot be written: {error.strerror}.") from None
        directory = cls(path)
        files.write_json(path / "provenance.json", provenance(run.seed))
        files.write_json(path / "config.json", _description(run, env))
        return directory

    def description(self) -> dict[str, Any]:
        """config.json, checked."""
        path = self.path / "config.json"
        data = files.read_json(path)
        if not isinstance(data, dict) or not isinstance(data.get("format"), int):
            raise ValueError(f"{path} is damaged: it has no format number.")
        if data["format"] > FORMAT:
            raise ValueError(f"{path} has format {data['format']}, newer than {FORMAT}: update moac to read it.")
        missing = [key for key in _RUN_KEYS if key not in data]
        if missing:
            raise ValueError(f"{path} is damaged: it lacks {', '.join(missing)}.")
        return data

    def checkpoint(self, snapshot: training.Snapshot) -> None:
        """Store all that is needed to go on; the last two are kept."""
        arrays = {f"trials{name}": np.asarray(leaf) for name, leaf in _named_leaves(snapshot.trials)}
        arrays |= {f"history.{name}": array for name, array in snapshot.history.arrays().items()}
        about = {"format": str(FORMAT), "iteration": str(snapshot.iteration), "kind": snapshot.history.kind}
        files.write_arrays(self._checkpoint_path(snapshot.iteration), arrays, about)
        for old in self._checkpoints()[:-_KEPT]:
            old.unlink()

    def latest(self, run: training.Run) -> training.Snapshot | None:
        """The newest checkpoint that can be read, or None where there is none yet."""
        damaged: ValueError | None = None
        for path in reversed(self._checkpoints()):
            try:
                return _snapshot(path, run)
            except ValueError as error:
                damaged = damaged or error
        if damaged is not None:
            raise damaged
        return None

    def finish(self, outcome: result.Result) -> None:
        """Write history, metrics, policies and the figure."""
        (self.path / "figures").mkdir(exist_ok=True)
        files.write_arrays(self.path / "history.safetensors", outcome.history.arrays(), {"format": str(FORMAT)})
        files.write_bytes(self.path / "metrics.jsonl", _metrics(outcome.history))
        figure = outcome.plot()
        for kind in ("png", "svg"):
            figure.savefig(self.path / "figures" / f"training.{kind}", dpi=144)
        files.write_arrays(self.path / "policy.safetensors", _policies(outcome), {"format": str(FORMAT)})

    @property
    def finished(self) -> bool:
        """Whether the run has ended; the policies are written last."""
        return (self.path / "policy.safetensors").exists()

    def _checkpoint_path(self, iteration: int) -> Path:
        return self.path / "checkpoint" / f"{iteration:010d}.safetensors"

    def _checkpoints(self) -> list[Path]:
        return sorted((self.path / "checkpoint").glob("[0-9]*.safetensors"))


def save(outcome: result.Result, path: Path) -> Path:
    """Write the run directory of a result."""
    directory = RunDirectory.create(path, outcome.run)
    directory.finish(outcome)
    return path


def load(directory: str | Path, trial: int = 0) -> result.TrainedPolicy:
    """The trained policy of a run directory; `.act(observation, key)` acts on the real environment's observations."""
    path = Path(directory)
    description = RunDirectory(path).description()
    arrays, _ = files.read_arrays(path / "policy.safetensors")
    policies = prepared_policy(description, arrays)
    return policies.of_trial(trial)


def prepared_policy(description: dict[str, Any], arrays: files.Arrays) -> result.TrainedPolicy:
    """The policy of what a run directory holds, without the problem it was trained on."""
    from moac.features import Table
    from moac.policy import SoftmaxLinear, SoftmaxTable

    theta = arrays["theta"]
    if description["config"]["policy"] == "table":
        policy = SoftmaxTable(theta.shape[1], theta.shape[2])
    else:
        policy = SoftmaxLinear(Table(arrays["features"]), theta.shape[2])
    return result.TrainedPolicy(policy, theta, arrays.get("observations"))


def resume(directory: str | Path, problem: Source) -> result.Result:
    """Continue a run to its end and write it; it ends as if it had never stopped."""
    own, run = reopen(Path(directory), problem)
    for snapshot in training.iterate(run, own.latest(run)):
        own.checkpoint(snapshot)
    final = own.latest(run)
    if final is None:
        raise ValueError(f"{directory} has nothing to resume.")
    outcome = result.Result.of(run, final)
    own.finish(outcome)
    return outcome


def reopen(path: Path, problem: Source) -> tuple[RunDirectory, training.Run]:
    """A run directory and its run, checked against the problem."""
    directory = RunDirectory(path)
    data = directory.description()
    if data["problem"]["fingerprint"] != problem.spec.fingerprint:
        raise ValueError(f"{path} was trained on another problem than {problem.spec.name}: the fingerprints differ.")
    if data["own"]:
        raise ValueError(f"{path} used a {', '.join(data['own'])} of its own: resume it by moac.train's iterator.")
    run = result.prepare(problem, Config.from_json(data["config"]), data["trials"], data["seed"])
    return directory, run


def provenance(seed: int) -> dict[str, Any]:
    """Where and with what a run was made."""
    names = ("moac", "jax", "jaxlib", "numpy", "scipy", "mo-gymnasium")
    return {
        "versions": {"python": platform.python_version(), **{name: metadata.version(name) for name in names}},
        "commit": _commit(),
        "cpu": _cpu(),
        "devices": [str(device) for device in jax.local_devices()],
        "seed": seed,
    }


def _commit() -> str | None:
    here = Path(__file__).parent
    try:
        answer = subprocess.run(
            ["git", "rev-parse", "HEAD"],  # noqa: S607
            cwd=here,
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _description(run: training.Run, env: str | None) -> dict[str, Any]:
    spec = run.source.spec
    problem = {
        "name": spec.name,
        "env": env,
        "objectives": list(spec.objective_names),
        "num_states": spec.num_states,
        "num_actions": spec.num_actions,
        "fingerprint": spec.fingerprint,
    }
    named = result.prepare(run.source, run.config, run.num_trials, run.seed).parts
    own = [name for name in named._fields if getattr(named, name) is not getattr(run.parts, name)]
    config = run.config.to_json()
    return {
        "format": FORMAT,
        "problem": problem,
        "trials": run.num_trials,
        "seed": run.seed,
        "config": config,
        "own": own,
    }


def _policies(outcome: result.Result) -> files.Arrays:
    arrays: files.Arrays = {
        "random_iteration": outcome.random_iteration,
        "stopped": outcome.stopped,
    }
    for name, policy in (("theta", outcome.policy), ("theta_random", outcome.random_iterate_policy)):
        leaves = jax.tree.leaves(policy.theta)
        arrays |= {name if len(leaves) == 1 else f"{name}.{k}": np.asarray(x) for k, x in enumerate(leaves)}
    features = getattr(outcome.policy.policy, "features", None)
    if features is not None:
        arrays["features"] = features.table()
    if outcome.policy.observations is not None:
        arrays["observations"] = outcome.policy.observations
    return arrays


def _metrics(history: History) -> bytes:
    lines: list[str] = []
    for index, iteration in enumerate(history.iteration):
        row: dict[str, Any] = {"iteration": int(iteration)}
        for name, array in history.arrays().items():
            if name != "iteration":
                row[name] = training.mean_over_trials(array[:, index])
        lines.append(json.dumps(files.finite(row)))
    return ("\n".join(lines) + "\n").encode()


def _named_leaves(tree: Any) -> list[tuple[str, Any]]:
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)]


def _snapshot(path: Path, run: training.Run) -> training.Snapshot:
    arrays, about = files.read_arrays(path)
    template = training.template(run)
    leaves: list[Any] = []
    for name, expected in _named_leaves(template):
        found = arrays.get(f"trials{name}")
        if found is None or found.shape != expected.shape or found.dtype != expected.dtype:
            raise ValueError(f"{path} does not fit the run's configuration: array {name} is missing or differs.")
        leaves.append(found)
    trials = jax.tree.unflatten(jax.tree.structure(template), leaves)
    try:
        logged = {name: arrays[f"history.{name}"] for name in History.empty().arrays()}
        return training.Snapshot(int(about["iteration"]), trials, History(**logged, kind=about["kind"]))
    except (KeyError, ValueError):
        raise ValueError(f"{path} is damaged: its history is incomplete.") from None
