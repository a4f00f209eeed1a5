"""What a run is, in config.json and provenance.json, and its problem: by that, or by an environment's id.

What a stranger wrote there is checked.
"""

from __future__ import annotations

import platform
import shlex
import subprocess
from collections.abc import Mapping
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

from moac import files, training
from moac.choices import COUNT, did_you_mean, shown
from moac.config import check_trials
from moac.momdp import FiniteMOMDP, library
from moac.policies.encoding import ActionBox, Encoder
from moac.policies.observations import LogSpec, StateSpec, of_encoder
from moac.types import Source, Spec

FORMAT = 1
_KEYS: dict[str, tuple[type, ...]] = {
    "problem": (dict,),
    "trials": (int,),
    "seed": (int,),
    "config": (dict,),
    "own": (list,),
    "problem.name": (str,),
    "problem.env": (str, type(None)),
    "problem.fingerprint": (str,),
    "problem.num_states": (int, type(None)),
    "problem.num_actions": (int,),
    "problem.objectives": (list,),
}
"""What config.json must have; only a run that was saved from Python has no `env`."""
_UNFINISHED = {"rules": "an exploration", "menu": "a set of candidates"}
_UNFINISHED |= dict.fromkeys(("tasks", "tasks-quick"), "an experiment")
"""Commands of several runs, by the folder that each makes first."""
LOG_FILES = ("behaviour.safetensors", "catalogue.safetensors")
"""Files of a run on a log: see `log_files`."""
_PACKAGES = ("moac", "jax", "jaxlib", "numpy", "scipy", "mo-gymnasium")


def described(run: training.Run, keep_every: int | None = None) -> dict[str, Any]:
    """What config.json says of a run."""
    spec = run.source.spec
    problem: dict[str, Any] = {
        "name": spec.name,
        "env": id_of(run.source),
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
    description = {
        "format": FORMAT,
        "problem": problem,
        "trials": run.num_trials,
        "seed": run.seed,
        "config": run.config.to_json(),
        "own": list(run.given),
    } | ({} if keep_every is None else {"keep_every": keep_every})
    _check(description)
    return description


def description(folder: Path) -> dict[str, Any]:
    """What config.json says of the run in a folder; what is missing or wrong is a ValueError."""
    path = folder / "config.json"
    try:
        data = files.read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{folder} is not a run directory: it has no config.json.{unfinished(folder)}") from None
    if not isinstance(data, dict) or not isinstance(data.get("format"), int):
        raise files.DamagedError(path, "it has no format number")
    if data["format"] > FORMAT:
        raise ValueError(f"{path} has format {data['format']}, newer than {FORMAT}: update moac to read it.")
    with files.interpreting(path):
        _check(data)
    return data


def _check(data: dict[str, Any]) -> None:
    """Refuse what cannot be."""
    for key, kinds in _KEYS.items():
        place, _, name = key.rpartition(".")
        if not isinstance((data[place] if place else data).get(name, ...), kinds):
            raise ValueError(f"`{key}` is missing or not of type {kinds[0].__name__}")
    check_trials(data["trials"], data["seed"])
    for key, texts in (("own", data["own"]), ("problem.objectives", data["problem"]["objectives"])):
        if not all(isinstance(text, str) for text in texts):
            raise ValueError(f"`{key}` is not a list of names")
    if not data["problem"]["objectives"]:
        raise ValueError("`problem.objectives` is empty")
    if data.get("keep_every") is not None:
        COUNT.checked("keep_every", data["keep_every"])


def is_run(path: Path) -> bool:
    """Whether a folder holds a run."""
    try:
        description(path)
    except (ValueError, OSError):
        return False
    return True


def check_vacant(path: Path) -> None:
    """Refuse what is not nothing, an empty folder, or what a run left that was killed as it began."""
    there = f"{path} exists already"
    if is_run(path) and (path / "policy.safetensors").exists():
        more = f"replace it by result.save(…, overwrite=True), or train it longer by moac resume {path} --iterations …"
        raise ValueError(f"{there}, a run that has finished: choose a new folder, {more}")
    if is_run(path):
        raise ValueError(f"{there}, a run that was stopped: choose a new folder, or continue it by moac resume {path}.")
    begun = ("checkpoint", "provenance.json", ".lock", *LOG_FILES)
    others = [p.name for p in path.glob("*") if p.name not in begun and p.suffix != ".tmp"]
    others += [p.name for p in path.glob("checkpoint/*")]
    if others:
        raise ValueError(f"{there} and holds other files ({others[0]}): choose a new folder.")


def unfinished(folder: Path) -> str:
    """A sentence, after a space, on what a folder that is no run holds: a stopped command, or runs; else nothing."""
    runs = sorted(path.parent.name for path in folder.glob("*/config.json"))
    begun = next((name for name in _UNFINISHED if (folder / name).is_dir()), None)
    if (folder / "choice.json").exists():
        return _of_candidates(files.read_json(folder / "choice.json"))
    if begun is None:
        return f" It holds runs: {', '.join([*runs[:5], *['…'] * (len(runs) > 5)])}." if runs else ""
    if (folder / "report.html").exists():
        return f" It holds several runs, each a folder in {folder / begun}."
    return f" It is {_UNFINISHED[begun]} that was stopped: repeat the command to continue it."


def _of_candidates(choice: Any) -> str:
    """A sentence on a folder of candidates, by its choice.json: the one that is chosen is copied at the end."""
    chosen = choice.get("chosen") if isinstance(choice, dict) else None
    if chosen is None:
        return " It holds candidates of which none was chosen: choice.json says why."
    return f" It holds candidates, and {chosen} was chosen but not copied: repeat the command to continue it."


def spec_of(problem: Mapping[str, Any], shown: Any, catalogue: Any) -> Spec:
    """What a policy must know of the problem that a description names.

    `shown` is what the environment shows in each state, where the run keeps it; `catalogue` that of a log.
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


def provenance(seed: int | None) -> dict[str, Any]:
    """Versions, commit, CPU, devices and seed of this process."""
    return {
        "versions": {"python": platform.python_version(), **{name: metadata.version(name) for name in _PACKAGES}},
        "commit": _commit(),
        "cpu": _cpu(),
        "devices": [str(device) for device in jax.local_devices()],
        "seed": seed,
    }


def origin(folder: Path) -> dict[str, Any]:
    """What provenance.json says of the run in a folder."""
    path = folder / "provenance.json"
    try:
        data = files.read_json(path)
    except OSError:
        raise ValueError(f"{path} is missing.") from None
    if not isinstance(data, dict) or not isinstance(data.get("versions"), dict):
        raise files.DamagedError(path, "`versions` is missing or not of type dict")
    return data


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


def model_of(env: str) -> FiniteMOMDP:
    """The exact model of an environment; an unknown one is refused with the known ones."""
    model = library.for_environment(env)
    if model is not None:
        return model
    known = library.known_environments()
    raise ValueError(
        f"`ENV` must have an exact model ({', '.join(known)}), got {shown(env)}.{did_you_mean(env, known)}"
    )


def problem_of(env: str, *, argument: str = "ENV", blackbox: bool = False, **options: Any) -> Source:
    """The exact model of an environment where the library holds it, else the environment itself.

    `env` is a MO-Gymnasium id, also as `package.module:Id-v0`. With `blackbox` the real environment is stepped also
    where its exact model is known; `options` are those of `moac.envs.make`. A message calls it `argument`.
    """
    model = None if blackbox else library.for_environment(env)
    if model is None:
        return _environment_of(env, options, argument)
    for name in options:
        raise ValueError(f"`{name}` must be left out where the exact model is used, or given with --blackbox.")
    return model


def id_of(source: Source) -> str | None:
    """The id by which an environment can be made again, None where only a program has it; the name of a log."""
    if isinstance(source.spec.observations, LogSpec):
        return source.spec.name
    model = library.for_environment(source.spec.name)
    if model is not None and model.spec.fingerprint == source.spec.fingerprint:
        return source.spec.name
    maker: Any = getattr(getattr(source, "interface", None), "make", None)
    env = getattr(maker, "env", None)
    return env if isinstance(env, str) else None


def real(source: Source) -> Source:
    """The real environment of a problem, where a model of the library stands for it; a log as it is."""
    if not source.compiled or isinstance(source.spec.observations, LogSpec):
        return source
    if (name := id_of(source)) is None:
        told = "moac.momdp.evaluate gives the exact values of a model's policies"
        raise ValueError(f"`problem` must be an environment to play episodes in, got {shown(source)}: {told}.")
    from moac import envs

    return envs.make(name)


@lru_cache(maxsize=8)
def problem_of_task(env: str, options: tuple[tuple[str, Any], ...]) -> Source:
    """The same by plain data, kept: the tasks of a sweep, in any process, ask for few problems many times."""
    return problem_of(env, **dict(options))


def problem_of_run(directory: Path, trust: bool = False) -> Source:
    """The problem of a run, by what its config.json says; `trust` as in `environment_of_run`."""
    problem = description(directory)["problem"]
    if "log" in problem:
        from moac.runs import log_files

        return log_files.dataset_of(directory)
    if problem["env"] is None:
        raise ValueError(f"{directory} {_given_in_python('resume', directory)}")
    return model_of(problem["env"]) if problem.get("encoder") is None else environment_of_run(directory, trust)


def _given_in_python(function: str, directory: Path) -> str:
    call = f"moac.{function}({str(directory)!r}, problem)"
    return f"was saved from Python and its problem has no id by which it could be made: give it there, as in {call}."


def typed(command: str, directory: Path) -> str:
    """A command on a run as one types it: with `--trust` where it would import the module of the environment."""
    env = description(directory)["problem"]["env"] if (directory / "config.json").exists() else None
    return f"moac {command} {shlex.quote(str(directory))}{' --trust' if ':' in (env or '') else ''}"


def environment_of_run(directory: Path, trust: bool = False) -> Source:
    """The environment that a run's config.json names, with the options that it was trained with.

    `trust` says that a module which it names may be imported, which runs the code in it.
    """
    problem = description(directory)["problem"]
    env, options = problem["env"], problem.get("options") or {}
    if (directory / LOG_FILES[1]).exists():
        raise ValueError(f"{directory} is a run on a log: it has no environment whose episodes could be played.")
    if env is None:
        raise ValueError(f"{directory} {_given_in_python('evaluate', directory)}")
    if not isinstance(options, dict):
        raise files.DamagedError(directory / "config.json", "`problem.options` is not a table of options")
    if ":" in env and not trust:
        told = f"{directory} names the environment {env!r}, which would import the module {env.partition(':')[0]!r}"
        raise ValueError(f"{told}: give --trust if you trust its code.")
    return _environment_of(env, options)


def _environment_of(env: str, options: Mapping[str, Any], argument: str = "ENV") -> Source:
    from moac import envs

    if ":" not in env and env not in (known := envs.known_ids()):
        raise ValueError(
            f"`{argument}` must be an id that moac envs lists, got {shown(env)}.{did_you_mean(env, known)}"
        )
    return envs.make(env, **options)
