"""The fields of a configuration as options of a command. Imports no JAX."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, make_dataclass
from typing import Annotated, Any, final, get_type_hints

import tyro

from moac.choices import CHOICES
from moac.config import Average, Config, Discounted

_ATTRIBUTE = re.compile(r"^    (\w+): (.+?)(?=^    \w+: |\Z)", re.MULTILINE | re.DOTALL)
_EXPLAINED = dict(_ATTRIBUTE.findall(inspect.cleandoc(Config.__doc__ or "")))
_HINTS = get_type_hints(Config)
ALIASES = {"num_iterations": ["--iterations"]}
_METAVARS = {int: "INT", float: "FLOAT"}


def _argument(name: str, default: Any) -> Any:
    """An option like the field of `Config`: its help, and what it takes."""
    text = _EXPLAINED.get(name, "")
    kind = str(_HINTS[name])
    word = next((word for part, word in _METAVARS.items() if part.__name__ in kind), None)
    metavar = f"{word} [{word} ...]" if "tuple" in kind else word
    metavar = f"{{{','.join(CHOICES[name])}}}" if name in CHOICES else metavar
    hint = "(default: by the problem)" if default is None and name not in ("weights", "gradient_clip") else None
    return tyro.conf.arg(
        help=" ".join(text.split()), aliases=ALIASES.get(name), metavar=metavar, help_behavior_hint=hint
    )


def options_of(name: str, left_out: Sequence[str] = (), **defaults: Any) -> type:
    """The fields of `Config` as options, but for those left out; names and help are its own, and so are defaults."""
    given = {f.name: defaults.get(f.name, f.default) for f in fields(Config)}
    kept = [key for key in given if key not in ("setting", "preferences", *left_out)]
    rows = [(key, Annotated[_HINTS[key], _argument(key, given[key])], field(default=given[key])) for key in kept]
    return make_dataclass(name, rows, frozen=True)


ConfigOptions = options_of("ConfigOptions")
"""All of them that a run takes."""
Discounts = Annotated[
    tuple[float, ...] | None,
    tyro.conf.arg(metavar="FLOAT [FLOAT ...]", help_behavior_hint="(default: by the problem)"),
]
Count = Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: by moac.envs.make)")]


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
    step_timeout: Annotated[
        float | None, tyro.conf.arg(metavar="SECONDS", help_behavior_hint="(default: none; needs --workers)")
    ] = None
    """End the worker of a step that does not return in time, and with it the run, which can be resumed."""

    @property
    def given(self) -> dict[str, float]:
        """Those that were given; the others are left to `moac.envs.make`."""
        return {name: value for name, value in asdict(self).items() if name != "blackbox" and value is not None}


def setting_of(name: str, discount: tuple[float, ...] | None) -> Average | Discounted | None:
    """The setting that two options name; None leaves it to the problem."""
    if name == "average":
        if discount is not None:
            raise ValueError(f"`discount` must be left out in the average setting, got {list(discount)}.")
        return Average()
    return None if discount is None else Discounted(discount)
