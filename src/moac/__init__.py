"""Multi-objective actor-critic reinforcement learning: policies for several rewards, and how far they are from a front.

Names are imported when they are first used, so that `import moac` and the command line start at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moac import api as api
    from moac import envs as envs
    from moac import kuairand as kuairand
    from moac import logs as logs
    from moac import momdp as momdp
    from moac import offline as offline
    from moac import policies as policies
    from moac import simplex as simplex
    from moac import theory as theory
    from moac import weighting as weighting
    from moac.api import certify as certify
    from moac.api import choose as choose
    from moac.api import compare as compare
    from moac.api import defaults as defaults
    from moac.api import evaluate as evaluate
    from moac.api import explore as explore
    from moac.api import export as export
    from moac.api import load as load
    from moac.api import resume as resume
    from moac.api import sweep as sweep
    from moac.api import train as train
    from moac.config import Average as Average
    from moac.config import Config as Config
    from moac.config import Discounted as Discounted

_HOME = {
    "moac.api": (
        "certify", "choose", "compare", "defaults", "evaluate", "explore", "export", "load", "resume", "sweep", "train",
    ),
    "moac.config": ("Average", "Config", "Discounted"),
}  # fmt: skip
_MODULES = ("api", "envs", "kuairand", "logs", "momdp", "offline", "policies", "simplex", "theory", "weighting")

__all__ = [
    "Average", "Config", "Discounted", "api", "certify", "choose", "compare", "defaults", "envs", "evaluate",
    "explore", "export", "kuairand", "load", "logs", "momdp", "offline", "policies", "resume", "simplex", "sweep",
    "theory", "train", "weighting",
]  # fmt: skip
__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            return getattr(import_module(module), name)
    if name in _MODULES:
        return import_module(f"moac.{name}")
    raise AttributeError(f"module 'moac' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
