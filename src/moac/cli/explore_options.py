"""What `moac explore` takes. Imports no JAX."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from moac.choices import CHOICES
from moac.cli.config_options import Discounts, Stepping, options_of, setting_of
from moac.cli.mistakes import did_you_mean
from moac.config import Config, check_trials, is_choice
from moac.search import EXPLORING

_LEFT_OUT = ("weighting", "weights", "entropy")
ExploreConfig = options_of("ExploreConfig", _LEFT_OUT, **EXPLORING)
"""As `moac train` has them, but for what an exploration varies; GAE, since traps are fewer with it."""
Place = Annotated[
    str, tyro.conf.arg(metavar="ENV", help="A MO-Gymnasium id, such as resource-gathering-v0, or a dataset's folder.")
]
Rules = Annotated[
    tuple[str, ...] | None,
    tyro.conf.arg(
        metavar=f"{{{','.join(CHOICES['weighting'])}}} [...]",
        help_behavior_hint="(default: fixed and preferred on a model, else fixed)",
    ),
]
Entropies = Annotated[
    tuple[float, ...] | None,
    tyro.conf.arg(metavar="FLOAT [FLOAT ...]", help_behavior_hint="(default: falling to 0 on a model, else 0)"),
]
Number = Annotated[
    int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="(default: 128 on a model, 16 elsewhere)")
]
Given = Annotated[str | None, tyro.conf.arg(metavar="FILE|VECTORS", help_behavior_hint="(default: drawn)")]
Reference = Annotated[
    tuple[float, ...] | None,
    tyro.conf.arg(metavar="FLOAT [FLOAT ...]", help_behavior_hint="(default: below the worst of the front)"),
]


@dataclass(frozen=True)
class Explore:
    """Train policies for many preferences at once, and keep those that none dominates: a Pareto archive."""

    env: tyro.conf.Positional[Place]
    config: Annotated[ExploreConfig, tyro.conf.arg(name="")]  # pyright: ignore[reportInvalidTypeForm]
    stepping: Annotated[Stepping, tyro.conf.arg(name="")]
    preferences: Number = None
    """Preference vectors: a trial of each rule for each."""
    draw: Literal["random", "grid"] = "random"
    """At random on the simplex, with its corners and its centre, or all multiples of 1/k."""
    given: Given = None
    """Preferences of one's own: a file with a vector on each line, or "0.2,0.8;0.5,0.5"."""
    rules: Rules = None
    """How preferences become weights: `fixed` is linear scalarisation; rules without preferences vary the start."""
    entropy: Entropies = None
    """Entropy bonuses, one after the other, each from where the one before it ended; they share the iterations."""
    setting: Literal["discounted", "average"] = "discounted"
    """Discounted return, or reward per step."""
    discount: Discounts = None
    """One discount, or one per objective."""
    reference: Reference = None
    """Reference point of the hypervolume, one number per objective."""
    seed: int = 0
    """Of preferences and trials."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(default: runs/ENV-explore)")] = None
    """Folder of the exploration; the same command continues what was interrupted."""
    json: bool = False
    """End with one JSON object on stdout."""

    def config_of(self) -> Config:
        """The configuration that all rules share, with all that can be checked before JAX is imported."""
        check_trials(1 if self.preferences is None else self.preferences, self.seed)
        known = CHOICES["weighting"]
        for rule in self.rules or ():
            if not is_choice("weighting", rule):
                near = did_you_mean(rule, known)
                raise ValueError(f"`rules` must be some of {', '.join(known)}, got {rule!r}.{near}")
        if self.given is not None and self.preferences is not None:
            raise ValueError("`preferences` must be left out with --given: those given are all there are.")
        for entropy in self.entropy or ():
            Config(entropy=entropy)
        options: Any = self.config
        return Config(setting=setting_of(self.setting, self.discount), **vars(options))
