"""`moac envs` and `moac front`: the environments there are, and the exact Pareto front where a model is known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

import moac
from moac.cli.console import print_lines, print_table
from moac.cli.options import Answer, Command, Environment, option
from moac.config import Discounted
from moac.progress import say

if TYPE_CHECKING:
    from moac import momdp


@dataclass(frozen=True, kw_only=True)
class Front(Command):
    """Compute the exact Pareto front of an environment's model."""

    env: tyro.conf.Positional[Environment]
    discount: Annotated[tuple[float, ...], tyro.conf.arg(metavar="FLOAT [FLOAT ...]")] = (0.9,)
    """One discount factor, or one per objective."""
    memory: bool = False
    """Include policies that remember the past."""
    out: Annotated[Path | None, option("DIR", "default: no figure")] = None
    """Folder for the figure."""

    def answer(self) -> Answer:
        """Compute and draw."""
        setting = Discounted(self.discount)
        import numpy as np

        from moac import files
        from moac.runs import problems

        if self.out is not None:
            files.check_folder("out", self.out)
        model = problems.model_of(self.env)
        front = moac.momdp.pareto_front(model, setting, memory=self.memory)
        uniform = moac.momdp.evaluate(model, np.zeros((model.num_states, model.num_actions)), setting)
        figure = None if self.out is None else str(self._draw(self.out, model, front))
        if figure is not None:
            say(f"figure: {figure}")
        record = {
            "env": self.env, "objectives": list(model.objective_names), "discount": np.atleast_1d(setting.discount),
            "memory": self.memory, "num_states": model.num_states, "points": front.points,
            "hull": [bool(flag) for flag in front.hull],
            "uniform_policy": {"returns": uniform.returns, "stationarity_gap": float(uniform.gap)}, "figure": figure,
        }  # fmt: skip
        return Answer(record, lambda: self._print(model, front, uniform))

    def _print(self, model: momdp.FiniteMOMDP, front: momdp.ParetoFront, uniform: momdp.Exact) -> None:
        kind = "policies with memory" if front.memory else "stationary policies"
        points = enumerate(zip(front.points, front.hull, strict=True), start=1)
        rows = [[k, *(f"{value:z.5f}" for value in point), on_hull] for k, (point, on_hull) in points]
        print_table(
            f"{model.name}: exact Pareto front of deterministic {kind}, γ = {', '.join(map(str, self.discount))}",
            ("", *model.objective_names, "on the hull"),
            [*rows, None, ["uniform", *(f"{value:.5f}" for value in uniform.returns), ""]],
        )
        weights = ", ".join(f"{w:.3f}" for w in uniform.weights)
        gap = f"stationarity gap {uniform.gap:.3e} at λ* = ({weights})"
        print_lines([f"{model.num_states} states. Uniform policy: {gap}"])

    def _draw(self, out: Path, model: momdp.FiniteMOMDP, front: momdp.ParetoFront) -> Path:
        from moac.report import figures, style

        out.mkdir(parents=True, exist_ok=True)
        title = f"{self.env}, γ = {', '.join(map(str, self.discount))}: {len(front.points)} points"
        style.write(out, "front", figures.front(front.points, front.hull, model.objective_names, title))
        return out / "front.png"


@dataclass(frozen=True, kw_only=True)
class Envs(Command):
    """List the installed environments with their objectives, and which have an exact model."""

    def answer(self) -> Answer:
        """Print what MO-Gymnasium registers; nothing is made."""
        from moac import envs
        from moac.envs.make import known_objectives
        from moac.momdp import library

        exact = library.known_environments()
        rows: list[dict[str, Any]] = [
            {"id": name, "objectives": list(known_objectives(name)), "exact": name in exact}
            for name in envs.known_ids()
        ]
        shown = [(row["id"], ", ".join(row["objectives"]), "yes" if row["exact"] else "") for row in rows]

        def show() -> None:
            print_table("Environments", ("id", "objectives", "exact model"), shown, ("objectives",))
            extras = "mo-lunar-lander needs pip install 'moac[box2d]', MuJoCo's need 'moac[mujoco]'"
            print_lines([f"Your own: moac train package.module:Id-v0. {extras}."])

        return Answer({"environments": rows}, show)
