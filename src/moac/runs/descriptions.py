"""config.json: what a run is. Written once; what a stranger has put into one is checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from moac import files, training
from moac.config import check_trials
from moac.runs import unfinished

FORMAT = 1
_KEYS: dict[str, type] = {"format": int, "problem": dict, "trials": int, "seed": int, "config": dict, "own": list}
_TEXTS: dict[str, tuple[type, ...]] = {"name": (str,), "env": (str, type(None)), "fingerprint": (str,)}
"""What the problem must have; only a run that was saved from Python has no `env`."""


def of(run: training.Run, env: str | None, own: tuple[str, ...]) -> dict[str, Any]:
    """The description of a run.

    Args:
        run: the run.
        env: the id of its environment; None where only a program has it.
        own: names of the parts that a program gave in place of the configuration's.
    """
    spec = run.source.spec
    problem: dict[str, Any] = {
        "name": spec.name,
        "env": env,
        "objectives": list(spec.objective_names),
        "num_states": spec.num_states,
        "num_actions": spec.num_actions,
        "fingerprint": spec.fingerprint,
    }
    if spec.encoder is not None:
        problem |= {"encoder": spec.encoder.to_json(), "options": files.finite(spec.options)}
    if spec.logged:
        problem["log"] = spec.options or {}
    if spec.action_box is not None:
        problem["actions"] = spec.action_box.to_json()
    return {
        "format": FORMAT,
        "problem": problem,
        "trials": run.num_trials,
        "seed": run.seed,
        "config": run.config.to_json(),
        "own": list(own),
    }


def read(folder: Path) -> dict[str, Any]:
    """The description of the run in a folder; what is missing or wrong is a ValueError."""
    path = folder / "config.json"
    try:
        data = files.read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{folder} is not a run directory: it has no config.json.{unfinished.hint(folder)}") from None
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
    for key, kinds in _TEXTS.items():
        if not isinstance(data["problem"].get(key, 0), kinds):
            raise ValueError(f"`problem.{key}` is missing or not a text")
    names: Any = data["problem"].get("objectives", [])
    for key, texts in (("own", data["own"]), ("problem.objectives", names)):
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"`{key}` is missing or not a list of names")
