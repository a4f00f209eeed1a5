"""From an environment's id to the problem it names."""

from __future__ import annotations

from functools import lru_cache

from moac.commands.mistakes import did_you_mean
from moac.momdp import FiniteMOMDP, library


@lru_cache(maxsize=4)
def model_of(env: str) -> FiniteMOMDP:
    """The exact model of an environment; an unknown one is refused with the known ones."""
    model = library.for_environment(env)
    if model is not None:
        return model
    known = library.known_environments()
    raise ValueError(f"`ENV` must be one of {', '.join(known)}, got {env!r}.{did_you_mean(env, known)}")
