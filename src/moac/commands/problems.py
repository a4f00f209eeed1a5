"""From an environment's id to the problem it names."""

from __future__ import annotations

import difflib

from moac.momdp import FiniteMOMDP, library


def model_of(env: str) -> FiniteMOMDP:
    """The exact model of an environment; an unknown one is refused with the known ones."""
    model = library.for_environment(env)
    if model is not None:
        return model
    known = library.known_environments()
    near = difflib.get_close_matches(env, known, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise ValueError(f"`ENV` must be one of {', '.join(known)}, got {env!r}.{hint}")
