"""Multi-objective actor-critic reinforcement learning: policies for several rewards, and how far they are from a front.

Names are imported when they are first used, so that `import moac` and the command line start at once.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # not from `typing`, whose import is most of the time before Ctrl-C is answered in one line
if TYPE_CHECKING:
    from typing import Any

    from moac import api, envs, kuairand, logs, momdp, offline, policies, simplex, theory, weighting
    from moac.api import certify, choose, compare, defaults, evaluate, explore, export, load, resume, sweep, train
    from moac.config import Average, Config, Discounted

_CONFIG = ("Average", "Config", "Discounted")
_MODULES = ("api", "envs", "kuairand", "logs", "momdp", "offline", "policies", "simplex", "theory", "weighting")

__all__ = [
    "Average", "Config", "Discounted", "api", "certify", "choose", "compare", "defaults", "envs", "evaluate",
    "explore", "export", "kuairand", "load", "logs", "momdp", "offline", "policies", "resume", "simplex", "sweep",
    "theory", "train", "weighting",
]  # fmt: skip
__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'moac' has no attribute {name!r}")
    if name in _MODULES:
        return import_module(f"moac.{name}")
    return getattr(import_module("moac.config" if name in _CONFIG else "moac.api"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
