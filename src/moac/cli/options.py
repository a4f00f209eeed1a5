"""Options that several commands share, and the fields of a configuration as options. Imports no JAX."""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, final, get_type_hints

import tyro

from moac.choices import CHOICES
from moac.config import Average, Config, Discounted


@dataclass(frozen=True, kw_only=True)
class Command(ABC):
    """A command: its fields are its options, its docstring is its help."""

    json: bool = False
    """End with one JSON object on stdout."""

    @abstractmethod
    def run(self) -> int:
        """Check what can be checked without JAX, call the library, print; the exit code."""


def option(metavar: str, default: str) -> Any:
    """How an option is shown in the help: what it takes, and what happens without it."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"({default})")


Environment = Annotated[str, tyro.conf.arg(metavar="ENV", help="A MO-Gymnasium id, such as resource-gathering-v0.")]
RunPath = Annotated[Path, tyro.conf.arg(metavar="RUN", help="A run directory.")]
DataPath = Annotated[Path, tyro.conf.arg(metavar="DATA", help="A dataset that build made.")]
RequiredFolder = Annotated[Path | None, option("DIR", "required")]
Discounts = Annotated[tuple[float, ...] | None, option("FLOAT [FLOAT ...]", "default: by the problem")]
SettingName = Literal["discounted", "average"]
ExecutorName = Literal["serial", "process", "ray"]
Workers = Annotated[int | None, option("INT", "default: one per core")]
Address = Annotated[str | None, option("ADDRESS", "default: start Ray here")]

ALIASES = {"num_iterations": ["--iterations"]}
_ATTRIBUTE = re.compile(r"^    (\w+): (.+?)(?=^    \w+: |\Z)", re.MULTILINE | re.DOTALL)
_EXPLAINED = dict(_ATTRIBUTE.findall(inspect.cleandoc(Config.__doc__ or "")))
_HINTS = get_type_hints(Config)
_METAVARS = {int: "INT", float: "FLOAT"}


def _argument(name: str, default: Any) -> Any:
    """An option like the field of `Config`: its help, and what it takes."""
    kind = str(_HINTS[name])
    word = next((word for part, word in _METAVARS.items() if part.__name__ in kind), None)
    metavar = f"{word} [{word} ...]" if "tuple" in kind else word
    metavar = f"{{{','.join(CHOICES[name])}}}" if name in CHOICES else metavar
    hint = "(default: by the problem)" if default is None and name not in ("weights", "gradient_clip") else None
    text = " ".join(_EXPLAINED.get(name, "").split())
    return tyro.conf.arg(help=text, aliases=ALIASES.get(name), metavar=metavar, help_behavior_hint=hint)


def options_of(name: str, left_out: Sequence[str] = (), **defaults: Any) -> type:
    """The fields of `Config` as options, but for those left out; names and help are its own, and so are defaults."""
    given = {f.name: defaults.get(f.name, f.default) for f in fields(Config)}
    kept = [key for key in given if key not in ("setting", "preferences", *left_out)]
    rows = [(key, Annotated[_HINTS[key], _argument(key, given[key])], field(default=given[key])) for key in kept]
    return make_dataclass(name, rows, frozen=True)


if TYPE_CHECKING:

    class ConfigOptions:
        """All fields of a configuration that a run takes."""
else:
    ConfigOptions = options_of("ConfigOptions")


def config_of(options: Any, setting: str, discount: tuple[float, ...] | None) -> Config:
    """The configuration that the options describe."""
    return Config(setting=setting_of(setting, discount), **vars(options))


def setting_of(name: str, discount: tuple[float, ...] | None) -> Average | Discounted | None:
    """The setting that two options name; None leaves it to the problem."""
    if name == "average" and discount is not None:
        raise ValueError(f"`discount` must be left out in the average setting, got {list(discount)}.")
    return Average() if name == "average" else None if discount is None else Discounted(discount)


Count = Annotated[int | None, option("INT", "default: by moac.envs.make")]


@final
@dataclass(frozen=True)
class Stepping:
    """How the real environment is stepped, where it is."""

    blackbox: bool = False
    """Step the real environment, also where its exact model is known."""
    num_envs: Count = None
    """Copies of the real environment per trial; it divides the batch sizes."""
    workers: Count = None
    """Processes that step them; only slow environments gain."""
    evaluation_episodes: Count = None
    """Episodes of the real environment per evaluation while training."""
    step_timeout: Annotated[float | None, option("SECONDS", "default: none; needs --workers")] = None
    """End the worker of a step that does not return in time, and with it the run, which can be resumed."""

    @property
    def given(self) -> dict[str, Any]:
        """Those that were given; the others are left to `moac.envs.make`."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def check_episodes(episodes: int) -> None:
    """Refuse fewer than one."""
    if episodes < 1:
        raise ValueError(f"`episodes` must be at least 1, got {episodes}.")


def required(name: str, value: Any, what: str) -> Any:
    """The value of an option that must be given."""
    if value is None:
        raise ValueError(f"`--{name}` must be given, {what}.")
    return value
