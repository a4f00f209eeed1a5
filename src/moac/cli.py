"""The command line: parse and dispatch. Imports no JAX before a command runs."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from dataclasses import dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import tyro

from moac.config import Average, Config, Discounted

_ATTRIBUTE = re.compile(r"^        (\w+): (.+?)(?=^        \w+: |\Z)", re.MULTILINE | re.DOTALL)
_EXPLAINED = dict(_ATTRIBUTE.findall(Config.__doc__ or ""))
_HINTS = get_type_hints(Config)
_ALIASES = {"num_iterations": ["--iterations"]}

ConfigOptions = make_dataclass(
    "ConfigOptions",
    [
        (
            f.name,
            Annotated[
                _HINTS[f.name],
                tyro.conf.arg(help=" ".join(_EXPLAINED[f.name].split()), aliases=_ALIASES.get(f.name)),
            ],
            field(default=f.default),
        )
        for f in fields(Config)
        if f.name != "setting"
    ],
    frozen=True,
)
"""The fields of `Config` as options; names, defaults and help are its own."""

Environment = Annotated[str, tyro.conf.arg(metavar="ENV", help="A MO-Gymnasium id, such as resource-gathering-v0.")]
RunPath = Annotated[Path, tyro.conf.arg(metavar="RUN", help="A run directory.")]


@dataclass(frozen=True)
class Train:
    """Train MOAC on an environment and save the run."""

    env: tyro.conf.Positional[Environment]
    config: Annotated[ConfigOptions, tyro.conf.arg(name="")]  # pyright: ignore[reportInvalidTypeForm]
    setting: Literal["discounted", "average"] = "discounted"
    """Discounted return, or reward per step."""
    discount: tuple[float, ...] | None = None
    """One discount, or one per objective."""
    trials: int = 1
    """Independent runs, trained together."""
    seed: int = 0
    """Trial i depends on (seed, i) alone."""
    out: Path | None = None
    """Run directory; it must not exist. Default: a new one under runs/."""
    json: bool = False
    """End with one JSON object on stdout."""

    def config_of(self) -> Config:
        """The configuration that the options describe."""
        options: Any = self.config
        return Config(setting=self._setting(), **vars(options))

    def _setting(self) -> Average | Discounted | None:
        if self.setting == "average":
            if self.discount is not None:
                raise ValueError("`--discount` must not be given in the average setting.")
            return Average()
        return None if self.discount is None else Discounted(self.discount)


@dataclass(frozen=True)
class Resume:
    """Continue a run that was stopped; it ends as if it had not been."""

    run: tyro.conf.Positional[RunPath]
    json: bool = False
    """End with one JSON object on stdout."""


@dataclass(frozen=True)
class Front:
    """Compute the exact Pareto front of an environment's model."""

    env: tyro.conf.Positional[Environment]
    discount: tuple[float, ...] = (0.9,)
    """One discount, or one per objective."""
    memory: bool = False
    """Let policies remember what they have seen."""
    out: Path | None = None
    """Folder for the figure."""
    json: bool = False
    """End with one JSON object on stdout."""


Command = Annotated[
    Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Resume, tyro.conf.subcommand("resume")]
    | Annotated[Front, tyro.conf.subcommand("front")],
    tyro.conf.FlagCreatePairsOff,
]


def main(arguments: list[str] | None = None) -> int:
    """Run one command; a user's mistake ends with one line and exit code 2."""
    command: Any = _parse(sys.argv[1:] if arguments is None else arguments)
    try:
        return _dispatch(command)
    except (ValueError, OSError) as error:
        return _complain(_one_line(str(error)))


def _dispatch(command: Any) -> int:
    if isinstance(command, Front):
        from moac.commands import front

        return front.run(front.Order(**vars(command)))
    from moac.commands import train

    if isinstance(command, Resume):
        return train.resume(command.run, command.json)
    order = train.Order(command.env, command.config_of(), command.trials, command.seed, command.out, command.json)
    return train.run(order)


def _parse(arguments: list[str]) -> Any:
    """tyro, with its box of an error reduced to one line."""
    box = io.StringIO()
    try:
        with contextlib.redirect_stderr(box):
            return tyro.cli(Command, prog="moac", description="Multi-objective actor-critic.", args=arguments)
    except SystemExit as exit_:
        if exit_.code == 0:
            raise
        raise SystemExit(_complain(_message(box.getvalue()))) from None


def _message(box: str) -> str:
    """The first paragraph inside tyro's box."""
    lines = [line.strip(" │┃╭╮╰╯") for line in box.splitlines()]
    inside = [line for line in lines if line]
    body: list[str] = []
    for line in inside[1:]:
        if set(line) <= {"─", "━"} or line.startswith(("For full helptext", "Argument helptext")):
            break
        body.append(line)
    return _one_line(" ".join(body)) or "the options could not be parsed; see moac --help."


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _complain(line: str) -> int:
    sys.stderr.write(f"moac: {line}\n")
    return 2
