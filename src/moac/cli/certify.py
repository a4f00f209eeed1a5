"""`moac certify`: how far a trained policy is from Pareto-stationary, with an interval."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

import moac
from moac.cli import process
from moac.cli.console import print_lines, print_paths, print_table
from moac.cli.options import Answer, Command, RunPath, Trust, check_run, option

if TYPE_CHECKING:
    from moac.theory.certificate import Certificate


@dataclass(frozen=True, kw_only=True)
class Certify(Command):
    """Say how far a trained policy is from Pareto-stationary, with an interval, from its episodes alone."""

    path: tyro.conf.Positional[RunPath]
    episodes: int = 2000
    """Episodes of the policy, and as many of the untrained one; with --until those of the first look."""
    confidence: float = 0.95
    """Of each interval."""
    until: Annotated[float | None, option("EPS", "default: one look")] = None
    """Look again with twice the episodes until the gap is known to be below or above this; Ctrl-C keeps the last."""
    trial: int = 0
    """Which trial of the run."""
    seed: int = 0
    """Of the episodes."""
    data: Annotated[Path | None, option("DATA", "default: where it was")] = None
    """Folder of the data of a run on a log."""
    trust: Trust = False

    def answer(self) -> Answer:
        """Certify, keep certificate.json in the run, write its page again, and print."""
        check_run(self.path)
        process.use_all_cores()
        found = moac.certify(
            self.path, episodes=self.episodes, confidence=self.confidence, until=self.until, trial=self.trial,
            seed=self.seed, data=self.data, out=self.path, progress=True, trust=self.trust,
        )  # fmt: skip
        return Answer({"run": str(self.path), **found.record()}, lambda: show(self.path, found))


def show(path: Path, certificate: Certificate) -> None:
    """The intervals, and what they say."""
    c = certificate
    rows: list[Any] = [("gap in θ", c.low, c.high), (f"gap in F̂ + ζI, ζ = {c.zeta:.2g}", c.natural.low, c.natural.high)]
    if c.untrained is not None and c.ratio is not None:
        rows += [("gap in θ, untrained policy", c.untrained.low, c.untrained.high), ("ratio of the two", *c.ratio)]
    print_table(f"{path}: {c.episodes} episodes, {100 * c.confidence:g} % intervals", ("", "low", "high"), rows)
    named = zip(c.objectives, c.weights, c.norms, strict=True)
    print_table("The upper end", ("objective", "weight λ", "‖∇J‖"), [(n, float(w), float(g)) for n, w, g in named])
    print_lines([c.sentence, f"Objectives: {c.objective}.", *([] if c.warning is None else [c.warning])])
    print_paths(report=path / "report.html")
