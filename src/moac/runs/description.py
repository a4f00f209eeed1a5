"""config.json and provenance.json: what a run is, and with what it was made. What a stranger wrote there is checked."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

from moac import files, training
from moac.config import check_trials
from moac.policies.encoding import ActionBox, Encoder
from moac.policies.observations import LogSpec, StateSpec, of_encoder
from moac.types import Spec

FORMAT = 1
_KEYS: dict[str, type] = {"format": int, "problem": dict, "trials": int, "seed": int, "config": dict, "own": list}
_PROBLEM: dict[str, tuple[type, ...]] = {
    "name": (str,),
    "env": (str, type(None)),  # only a run that was saved from Python has none
    "fingerprint": (str,),
    "num_states": (int, type(None)),
    "num_actions": (int,),
}
_UNFINISHED = {
    "rules": "an exploration",
    "menu": "a menu of policies",
    "tasks": "an experiment",
    "tasks-quick": "an experiment",
}
"""Commands of several runs, by the folder that each makes first."""
_PACKAGES = ("moac", "jax", "jaxlib", "numpy", "scipy", "mo-gymnasium")


def of(run: training.Run, env: str | None, keep_every: int | None = None) -> dict[str, Any]:
    """The description of a run.

    Args:
        run: the run.
        env: the id of its environment; None where only a program has it.
        keep_every: the policies of every so many iterations are kept; None keeps those at the end alone.
    """
    _check_keep_every(keep_every)
    spec = run.source.spec
    problem: dict[str, Any] = {
        "name": spec.name,
        "env": env,
        "objectives": list(spec.objective_names),
        "num_states": spec.num_states,
        "num_actions": spec.num_actions,
        "fingerprint": spec.fingerprint,
    }
    if spec.observations.encoder is not None:
        problem |= {"encoder": spec.observations.encoder.to_json(), "options": files.finite(spec.options)}
    if isinstance(spec.observations, LogSpec):
        problem["log"] = spec.options or {}
    if spec.action_box is not None:
        problem["actions"] = spec.action_box.to_json()
    return {
        "format": FORMAT,
        "problem": problem,
        "trials": run.num_trials,
        "seed": run.seed,
        "config": run.config.to_json(),
        "own": list(run.given),
    } | ({} if keep_every is None else {"keep_every": keep_every})


def read(folder: Path) -> dict[str, Any]:
    """The description of the run in a folder; what is missing or wrong is a ValueError."""
    path = folder / "config.json"
    try:
        data = files.read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{folder} is not a run directory: it has no config.json.{unfinished(folder)}") from None
    if not isinstance(data, dict) or not isinstance(data.get("format"), int):
        raise files.DamagedError(path, "it has no format number")
    if data["format"] > FORMAT:
        raise ValueError(f"{path} has format {data['format']}, newer than {FORMAT}: update moac to read it.")
    for key, kind in _KEYS.items():
        if not isinstance(data.get(key), kind):
            raise files.DamagedError(path, f"`{key}` is missing or not of type {kind.__name__}")
    try:
        _check(data)
    except ValueError as error:
        raise files.DamagedError(path, str(error)) from None
    return data


def _check(data: dict[str, Any]) -> None:
    """Refuse values that are of the right type, and yet cannot be."""
    check_trials(data["trials"], data["seed"])
    _check_keep_every(data.get("keep_every"))
    for key, kinds in _PROBLEM.items():
        if not isinstance(data["problem"].get(key, ...), kinds):
            raise ValueError(f"`problem.{key}` is missing or not a {'text' if str in kinds else 'number'}")
    for key, texts in (("own", data["own"]), ("problem.objectives", data["problem"].get("objectives"))):
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"`{key}` is missing or not a list of names")
    if not data["problem"]["objectives"]:
        raise ValueError("`problem.objectives` is missing or empty")


def _check_keep_every(every: Any) -> None:
    if every is not None and (not isinstance(every, int) or isinstance(every, bool) or every < 1):
        raise ValueError(f"`keep_every` must be a whole number of at least 1, got {every!r}.")


def unfinished(folder: Path) -> str:
    """A sentence, after a space, on the command of several runs that has begun in a folder; empty where none has."""
    command = next((what for name, what in _UNFINISHED.items() if (folder / name).is_dir()), None)
    return "" if command is None else f" It is {command} that was stopped: the same command continues it."


def spec_of(problem: Mapping[str, Any], shown: Any, catalogue: Any) -> Spec:
    """What a policy must know of the problem it was trained on, from the description alone.

    Args:
        problem: of the description.
        shown: what the environment shows in each state, where the run keeps it.
        catalogue: of a log; None where there is no log.
    """
    encoder, box = problem.get("encoder"), problem.get("actions")
    if catalogue is not None:
        observations = LogSpec(catalogue.size, catalogue)
    elif encoder is not None:
        observations = of_encoder(Encoder.from_json(encoder))
    else:
        observations = StateSpec(problem["num_states"], shown)
    return Spec(
        name=problem["name"],
        objective_names=tuple(problem["objectives"]),
        observations=observations,
        num_actions=problem["num_actions"],
        fingerprint=problem["fingerprint"],
        action_box=None if box is None else ActionBox.from_json(box),
    )


def provenance(seed: int) -> dict[str, Any]:
    """Versions, commit, CPU, devices and seed of this process."""
    return {
        "versions": {"python": platform.python_version(), **{name: metadata.version(name) for name in _PACKAGES}},
        "commit": _commit(),
        "cpu": _cpu(),
        "devices": [str(device) for device in jax.local_devices()],
        "seed": seed,
    }


def _commit() -> str | None:
    """The commit of the sources; None for an installed package, whatever repository its folder happens to be in."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return None
    options: dict[str, Any] = {"cwd": root, "capture_output": True, "text": True, "timeout": 5, "check": True}
    try:
        return subprocess.run(["git", "rev-parse", "HEAD"], **options).stdout.strip()  # noqa: S607
    except (OSError, subprocess.SubprocessError):
        return None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
