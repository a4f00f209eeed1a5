"""`moac offline`: policies that learn from a log, and what they recommend."""

from __future__ import annotations

from typing import Any

from moac.cli.offline_options import Compare, Score, Train
from moac.config import check_trials


def run(command: Any) -> int:
    """Do it, and say what came out."""
    if isinstance(command, Train):
        return _train(command)
    if isinstance(command, Compare):
        return _compare(command)
    from moac.cli import recommend

    return recommend.score(command) if isinstance(command, Score) else recommend.show(command)


def _train(command: Train) -> int:
    """Check what can be checked before JAX is imported, then train on all cores."""
    config = command.config_of()
    check_trials(command.trials, command.seed)
    if command.out is None:
        raise ValueError("`--out` must be given, with a folder.")
    if command.pulls and config.behaviour_pull is not None:
        raise ValueError("`--pulls` and `--behaviour-pull` must not both be given: several policies, or one.")
    if len(set(command.pulls)) < len(command.pulls) or any(not pull >= 0 for pull in command.pulls):
        raise ValueError(f"`pulls` must be different numbers of at least 0, got {list(command.pulls)}.")
    from moac.cli import devices

    devices.set_up()
    from moac.cli import offline_train

    names = ("data", "preferences", "protect", "trials", "seed", "out", "json")
    chosen = {name: getattr(command, name) for name in names}
    pulls = command.pulls or (() if config.behaviour_pull is None else (config.behaviour_pull,))
    return offline_train.run(offline_train.Order(**chosen, config=config, pulls=pulls))


def _compare(command: Compare) -> int:
    check_trials(1 if command.trials is None else command.trials, command.seed)
    if command.out is None:
        raise ValueError("`--out` must be given, with a folder.")
    if command.iterations is not None and command.iterations < 1:
        raise ValueError(f"`iterations` must be at least 1, got {command.iterations}.")
    from moac.cli import devices

    devices.set_up()
    from moac.cli import offline_compare

    given: dict[str, Any] = vars(command) | {"out": command.out}
    return offline_compare.run(offline_compare.Order(**given))
