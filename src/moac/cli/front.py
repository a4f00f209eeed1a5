"""`moac front`: the exact Pareto front of an environment's model."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from rich.table import Table

from moac import files, momdp
from moac.cli.console import plain
from moac.cli.problems import model_of
from moac.config import Discounted
from moac.report import figures, style


@final
@dataclass(frozen=True)
class Order:
    """What `moac front` was asked to do."""

    env: str
    setting: Discounted
    memory: bool
    out: Path | None
    json: bool


def run(order: Order) -> int:
    """Compute, print and draw."""
    if order.out is not None:
        files.check_folder("out", order.out)
    model, setting = model_of(order.env), order.setting
    front = momdp.pareto_front(model, setting, memory=order.memory)
    uniform = momdp.evaluate(model, np.zeros((model.num_states, model.num_actions)), setting)
    figure = None if order.out is None else _draw(order.out, order, model, front)
    if not order.json:
        _print(model, front, uniform, setting)
    if figure is not None:
        sys.stderr.write(f"figure: {figure}\n")
    if order.json:
        summary = _summary(order, model, front, uniform) | {"figure": None if figure is None else str(figure)}
        sys.stdout.write(json.dumps(files.finite(summary)) + "\n")
    return 0


def _summary(order: Order, model: momdp.FiniteMOMDP, front: momdp.ParetoFront, uniform: momdp.Exact) -> dict[str, Any]:
    return {
        "env": order.env,
        "objectives": list(model.objective_names),
        "discount": np.atleast_1d(order.setting.discount),
        "memory": order.memory,
        "num_states": model.num_states,
        "points": front.points,
        "hull": [bool(flag) for flag in front.hull],
        "uniform_policy": {"returns": uniform.returns, "stationarity_gap": float(uniform.gap)},
    }


def _print(model: momdp.FiniteMOMDP, front: momdp.ParetoFront, uniform: momdp.Exact, setting: Discounted) -> None:
    kind = "policies with memory" if front.memory else "stationary policies"
    title = f"{model.name}: exact Pareto front of deterministic {kind}, γ = {_gamma(setting)}"
    table = Table(title=title, title_justify="left")
    for name in ("", *model.objective_names, "on the hull"):
        table.add_column(name, justify="right")
    for k, (point, on_hull) in enumerate(zip(front.points, front.hull, strict=True), start=1):
        table.add_row(str(k), *(f"{value + 0.0:.5f}" for value in point), "yes" if on_hull else "no")
    table.add_section()
    table.add_row("uniform", *(f"{value:.5f}" for value in uniform.returns), "")
    console = plain(100)
    console.print(table)
    console.print(
        f"{model.num_states} states. Uniform policy: stationarity gap {uniform.gap:.3e} at λ* = "
        f"({', '.join(f'{w:.3f}' for w in uniform.weights)})",
        highlight=False,
    )


def _draw(out: Path, order: Order, model: momdp.FiniteMOMDP, front: momdp.ParetoFront) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    title = f"{order.env}, γ = {_gamma(order.setting)}: {len(front.points)} points"
    figure = figures.front(front.points, front.hull, model.objective_names, title)
    for kind in ("svg", "png"):
        files.write_bytes(out / f"front.{kind}", style.rendered(figure, kind))
    return out / "front.png"


def _gamma(setting: Discounted) -> str:
    return str(setting.discount).strip("()")
