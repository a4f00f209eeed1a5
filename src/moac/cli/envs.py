"""`moac envs`: the environments that can be trained on by their id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from moac.cli.console import print_lines, print_table
from moac.cli.options import Answer, Command


@dataclass(frozen=True, kw_only=True)
class Envs(Command):
    """List the environments that are installed, with their objectives, and which have an exact model."""

    def answer(self) -> Answer:
        """Print what MO-Gymnasium registers; nothing is made."""
        from moac import envs
        from moac.envs.make import OBJECTIVES
        from moac.momdp import library

        exact = library.known_environments()
        rows: list[dict[str, Any]] = [
            {"id": name, "objectives": list(OBJECTIVES.get(name.rpartition("-v")[0], ())), "exact": name in exact}
            for name in envs.known_ids()
        ]
        shown = [(row["id"], ", ".join(row["objectives"]), "yes" if row["exact"] else "") for row in rows]

        def show() -> None:
            print_table("Environments", ("id", "objectives", "exact model"), shown, ("objectives",))
            extras = "mo-lunar-lander needs pip install 'moac[box2d]', MuJoCo's need 'moac[mujoco]'"
            print_lines([f"Your own: moac train package.module:Id-v0. {extras}."])

        return Answer({"environments": rows}, show)
