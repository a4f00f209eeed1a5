"""Options that several commands share, and the fields of a configuration as options. Imports no JAX."""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import tyro

from moac.choices import COUNT, did_you_mean, shown
from moac.cli.console import only_for_json, print_json
from moac.config import CHOICES, Average, Config, Discounted


@dataclass(frozen=True)
class Answer:
    """What a command says: a JSON object, or what `show` prints; and its exit code."""

    record: Mapping[str, Any]
    show: Callable[[], Any]
    code: int = 0


@dataclass(frozen=True, kw_only=True)
class Command(ABC):
    """A command: its fields are its options, its docstring is its help."""

    json: bool = False
    """Print one JSON object as the last line of stdout."""

    def run(self) -> int:
        """Do it and print; the exit code. What can be checked by an option's name is refused before JAX is imported."""
        for name, check in _CHECKS.items():
            if hasattr(self, name):
                check(getattr(self, name))
        if not self.json:
            answer = self.answer()
            answer.show()
            return answer.code
        with only_for_json():
            answer = self.answer()
        print_json(answer.record)
        return answer.code

    @abstractmethod
    def answer(self) -> Answer:
        """Check what can be checked without JAX, then call the library."""


def _check_runs(paths: tuple[Path, ...]) -> None:
    """Refuse a folder that is missing or empty; what others hold is checked by those who read it."""
    for path in paths:
        if not (path / "config.json").exists() and not any(path.glob("*")):
            raise ValueError(f"{path} is not a run directory: it has no config.json.")


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "run_path": lambda path: _check_runs((path,)),
    "runs": _check_runs,
    "episodes": lambda count: COUNT.checked("episodes", count),
}


def option(metavar: str, default: str, about: str | None = None) -> Any:
    """How an option is shown in the help: what it takes, what happens without it, and what it is about."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"({default})", help=about)


def group(name: str) -> Any:
    """A dataclass of options under a heading of its own in the help; "" is under that of what it stands in."""
    return tyro.conf.arg(name=name)


FLOATS = "FLOAT [FLOAT ...]"
Environment = Annotated[str, tyro.conf.arg(metavar="ENV", help="An id listed by moac envs, or package.module:Id.")]
RunPath = Annotated[Path, tyro.conf.arg(metavar="RUN", help="A run directory.")]
RunPaths = Annotated[tuple[Path, ...], option("RUN [RUN ...]", "required", "Run directories.")]
Trial = Annotated[int, tyro.conf.arg(help="Trial of the run.")]
Data = Annotated[Path | None, option("DATA", "default: its former place", "Folder of the data of a run on a log.")]
Trust = Annotated[bool, tyro.conf.arg(help="Allow importing the module that the run's environment comes from.")]
_OF_NETWORK = "Preference of a conditioned network: one number per objective, summing to 1."
Preference = Annotated[tuple[float, ...] | None, option(FLOATS, "default: drawn for each episode", _OF_NETWORK)]
DataPath = Annotated[Path, tyro.conf.arg(metavar="DATA", help="A dataset, as moac data build writes it.")]
Folder = Annotated[Path, tyro.conf.arg(metavar="DIR")]
_OF_VOLUME = "Reference point of the hypervolume, one number per objective."
_BELOW = "default: a tenth of the range below the worst point"
Reference = Annotated[tuple[float, ...] | None, option(FLOATS, _BELOW, _OF_VOLUME)]
Discounts = Annotated[tuple[float, ...] | None, option(FLOATS, "default: 0.9 for states, 0.99 for vectors")]
SettingName = Literal["discounted", "average"]
ExecutorName = Literal["serial", "process", "ray"]
Workers = Annotated[int | None, option("INT", "default: one per core")]
_ON_RAY = "Address of a running Ray cluster, or auto."
Address = Annotated[str | None, option("ADDRESS", "default: the cluster that runs on this machine", _ON_RAY)]
ShowConfig = Annotated[bool, tyro.conf.arg(help="Print the configuration with all defaults filled in, and stop.")]

ALIASES = {"num_iterations": ["--iterations"]}
_GROUPS: dict[str, Sequence[str]] = {
    "run": ("num_iterations", "num_evaluations"),
    "algorithm": (
        *("learner", "weighting", "weights", "conditioned", "momentum", "num_critic_steps", "critic_batch_size"),
        *("actor_batch_size", "actor_step_size", "critic_step_size", "epochs", "minibatch_size", "units", "gae"),
        *("entropy", "behaviour_pull"),
    ),
    "networks": ("policy", "critic", "hidden", "features", "optimiser", "critic_optimiser"),
}
"""Headings of the help, and the fields of a configuration below them; all others are for experts."""
_HEADED = {
    "run": "Length of the training and what is saved.",
    "algorithm": "Weighting of the objectives, steps of actor and critic.",
    "networks": "Policy and critic.",
    "expert": "Rarely changed.",
}
DEFAULTS = {
    "learner": "ppo on environments, paper on models", "num_iterations": "200 with ppo, else 2000",
    "num_critic_steps": "0 with ppo, else 5", "critic_batch_size": "64", "epochs": "10 with ppo",
    "actor_batch_size": "1024 with ppo (64 per copy), else 128", "minibatch_size": "256 with ppo", "ratio_clip": "0.2",
    "actor_step_size": "0.001 for networks; tables 0.05 with ppo, else min(2 × states, 200) / largest reward",
    "critic_step_size": "0.001 for networks; tables 0.05 with ppo, else 0.5", "hidden": "64 64",
    "units": "advantage, or return with constant weights", "whitening": "rollout with ppo, else none",
    "schedule": "linear with ppo, else constant", "weighting": "min-norm, or fixed with --conditioned",
    "entropy": "0.1 with ppo and discrete actions, else 0", "gae": "0.95 with ppo, else 0", "normalise": "none",
    "policy": "gaussian for continuous actions, table for states, else mlp with ppo or linear",
    "critic": "mlp for networks with ppo, else linear", "optimiser": "adam with ppo or networks, else constant",
    "critic_optimiser": "adam with ppo or an mlp critic, else constant", "start": "random", "behaviour_pull": "0",
    "features": "one-hot for states, tile for up to 3 inputs, else fourier:3", "weights": "none",
    "gradient_clip": "0.5 with ppo, else none", "evaluation_share": "0.1",
    "observation_scale": "standard for networks with ppo, running where a bound is infinite, else bounds",
}  # fmt: skip
"""What `moac.defaults` fills in on models and environments."""
LOG_DEFAULTS = DEFAULTS | {
    "num_iterations": "1000", "num_critic_steps": "1", "critic_batch_size": "512", "actor_batch_size": "512",
    "actor_step_size": "0.0001", "critic_step_size": "0.001", "policy": "mlp", "critic": "linear",
    "optimiser": "adam", "critic_optimiser": "adam", "hidden": "as the behaviour model, else 64", "normalise": "l2",
    "start": "behaviour, or random without a behaviour model", "behaviour_pull": "0.1", "entropy": "0",
    "weighting": "min-norm", "gradient_clip": "none",
}  # fmt: skip
"""The same on logs."""
LOG_ONLY = ("start", "importance_cap", "behaviour_pull", "item_embedding")
NEVER_ON_A_LOG = ("visitation", "action_scale", "features", "observation_scale", "gae", "mu", "average_step_size")
NEVER_ON_A_LOG += ("conditioned", "preference_draw", "learner", "epochs", "minibatch_size", "ratio_clip", "units")
NEVER_ON_A_LOG += ("whitening", "schedule", "action_spread")
_ATTRIBUTE = re.compile(r"^    (\w+): (.+?)(?=^    \w+: |\Z)", re.MULTILINE | re.DOTALL)
_EXPLAINED = dict(_ATTRIBUTE.findall(inspect.cleandoc(Config.__doc__ or "")))
_HINTS = get_type_hints(Config)
_METAVARS = {int: "INT", float: "FLOAT"}


def _argument(name: str, default: Any, choices: Sequence[str], filled: str) -> Any:
    """An option like the field of `Config`: its help, and what it takes."""
    kind = str(_HINTS[name])
    word = next((word for part, word in _METAVARS.items() if part.__name__ in kind), None)
    metavar = f"{word} [{word} ...]" if "tuple" in kind else word
    metavar = f"{{{','.join(choices)}}}" if choices else metavar
    hint = f"(default: {filled})" if filled else f"(default: {default:.4g})" if word == "FLOAT" else None
    text = _about(" ".join(_EXPLAINED.get(name, "").split()), set(CHOICES.get(name, ())) - set(choices))
    text = text[:1].upper() + text[1:] if text[:1].isascii() else text  # letters such as η stay small
    return tyro.conf.arg(help=text, aliases=ALIASES.get(name), metavar=metavar, help_behavior_hint=hint)


def _about(text: str, untaken: set[str]) -> str:
    """A help without the parts, between commas outside of brackets, that name what the command does not take."""
    if not untaken:
        return text
    parts = [(part, re.search(r"`([^`]+)`", part)) for part in re.split(r"(?<=[,;]) (?![^()]*\))", text)]
    return " ".join(part for part, named in parts if not named or named[1] not in untaken).rstrip(",;.") + "."


def _hint(filled: Mapping[str, str], name: str, default: Any) -> str:
    """What happens without an option, in words; empty where its default says it."""
    return filled.get(name, "none" if default is None else "")


def config_options(
    left_out: Sequence[str],
    choices: Mapping[str, Sequence[str]] | None = None,
    filled: Mapping[str, str] = DEFAULTS,
    **defaults: Any,
) -> type:
    """The fields of `Config` as options, by groups; names and help are its own, `defaults` are the command's.

    The command cannot use fields that are `left_out`, and of a field that names a part only `choices`; `filled` says
    in words what happens without an option, such as what a field that is None becomes.
    """
    shown = {**CHOICES, **(choices or {})}
    rows: dict[str, list[Any]] = {name: [] for name in (*_GROUPS, "expert")}
    for each in fields(Config):
        if each.name not in ("setting", "preferences", *left_out):
            default = defaults.get(each.name, each.default)
            told = _argument(each.name, default, shown.get(each.name, ()), _hint(filled, each.name, default))
            place = next((name for name, names in _GROUPS.items() if each.name in names), "expert")
            rows[place].append((each.name, Annotated[_HINTS[each.name], told], field(default=default)))
    groups = {name: make_dataclass(f"{name}_options", given, frozen=True) for name, given in rows.items()}
    for name, made in groups.items():
        made.__doc__ = _HEADED[name]
    nested = [(name, Annotated[made, group(name)], field(default_factory=made)) for name, made in groups.items()]
    return make_dataclass("ConfigOptions", nested, frozen=True)


if TYPE_CHECKING:

    class TrainConfig:
        """What shapes a run on an environment."""
else:
    TrainConfig = config_options(
        LOG_ONLY,
        {name: [one for one in CHOICES[name] if one not in ("plain", "items")] for name in ("features", "policy")},
    )


def config_of(options: Any, setting: str, discount: tuple[float, ...] | None) -> Config:
    """The configuration that the options describe."""
    given = {name: value for part in vars(options).values() for name, value in vars(part).items()}
    return Config(setting=setting_of(setting, discount), **given)


def setting_of(name: str, discount: tuple[float, ...] | None) -> Average | Discounted | None:
    """The setting that two options name; None leaves it to the problem."""
    if name == "average" and discount is not None:
        raise ValueError(f"`discount` must be left out in the average setting, got {list(discount)}.")
    return Average() if name == "average" else None if discount is None else Discounted(discount)


@dataclass(frozen=True)
class Problem:
    """What is learned, and how a real environment is stepped."""

    setting: SettingName = "discounted"
    """Maximise the discounted return, or the average reward per step."""
    discount: Discounts = None
    """One discount factor, or one per objective."""
    blackbox: bool = False
    """Step the real environment even if its exact model is known."""
    num_envs: Annotated[int | None, option("INT", "default: 16")] = None
    """Copies of the real environment per trial; the batch sizes must be multiples of it."""
    workers: Annotated[int | None, option("INT", "default: 0")] = None
    """Worker processes that step the copies; 0 steps them in this process, which is faster unless steps are slow."""
    evaluation_episodes: Annotated[int | None, option("INT", "default: 10")] = None
    """Episodes of the real environment per evaluation while training."""
    step_timeout: Annotated[float | None, option("SECONDS", "default: none; needs --workers")] = None
    """Stop the run if a step takes longer than this; it can be resumed."""

    @property
    def stepping(self) -> dict[str, Any]:
        """How the real environment is stepped, as far as it was said; the rest is left to `moac.envs.make`."""
        names = ("num_envs", "workers", "evaluation_episodes", "step_timeout")
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return given | {"blackbox": self.blackbox}


def check_environment(env: str, beside: str = "") -> None:
    """Refuse an id that MO-Gymnasium does not register, by the text of its registrations: importing it takes long.

    `beside` says what else it may be.
    """
    package = find_spec("mo_gymnasium")
    if ":" in env or package is None or package.origin is None:
        return
    texts = (path.read_text() for path in Path(package.origin).parent.glob("envs/*/__init__.py"))
    known = [name for text in texts for name in re.findall(r'id="([\w-]+)"', text)]
    if env not in known:
        log = Path(env).suffix in (".csv", ".parquet", ".gz")
        near = " moac data build makes a dataset of a log." if log else did_you_mean(env, known)
        raise ValueError(f"`ENV` must be an id that moac envs lists{beside}, got {shown(env)}.{near}")
