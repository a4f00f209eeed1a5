"""`moac theory`: do the assumptions hold, what do the theorems promise, and what was needed in practice."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, final

from rich.table import Table

from moac import files, settings
from moac.cli.console import plain
from moac.cli.problems import model_of
from moac.config import Average, Config, Discounted
from moac.momdp import FiniteMOMDP
from moac.report.numbers import number
from moac.runs.directory import reopen
from moac.theory import Constants, Mixing, guarantees
from moac.theory.guarantees import Guarantees
from moac.training import result

_CONSTANTS = {
    "num_objectives": ("M", "number of objectives, a factor of the derived bound"),
    "r_max": ("r_max", "largest |r|, at every policy"),
    "lambda_A": ("λ_A", "contraction of TD"),
    "lambda_A_modulo_constants": ("λ_A modulo constants", "the same where Φw is no constant"),
    "C_A": ("C_A", "largest ‖(γφ' − φ)φᵀ‖ of a sample (derived)"),
    "C_A_mean": ("C_A of the mean", "‖A‖ (printed)"),
    "C_b": ("C_b", "largest ‖(r − J)φ‖ or ‖rφ‖ of a sample (derived)"),
    "C_b_mean": ("C_b of the mean", "‖b‖ (printed)"),
    "w_star": ("‖w*‖", "largest over objectives, exact"),
    "R_w": ("R_w", "the paper's bound on it"),
    "C_psi": ("‖ψ‖", "largest over states and actions"),
    "C_psi_bound": ("C_ψ", "bound on it, at every policy"),
    "zeta": ("ζ", "approximation error of the critic"),
    "rarest": ("min d(s)", "the rarest state under the stationary law"),
    "mixing": ("ρ, κ certified", "by Dobrushin's coefficient"),
    "spectral": ("ρ, κ spectral", "second eigenvalue and what the distances need"),
    "L_J": ("‖∇²J‖", "by Lanczos: a lower bound on L_J"),
    "L_J_bound": ("L_J at most", "proved"),
}


@final
@dataclass(frozen=True)
class Order:
    """What `moac theory` was asked to do."""

    env: str
    epsilon: float
    config: Config
    run: Path | None
    json: bool


def run(order: Order) -> int:
    """Compute and print."""
    model = model_of(order.env)
    outcome = None if order.run is None else _outcome(order.run, model)
    config = settings.complete(order.config, model.spec) if outcome is None else outcome.config
    seed = 0 if outcome is None else outcome.run.seed
    found = guarantees.of(model, config, order.epsilon, outcome, seed)
    if order.json:
        sys.stdout.write(json.dumps(files.finite(_summary(order, config, found))) + "\n")
        return 0
    console = plain(120)
    for table in (_assumptions(order, config, found), _constants(found), _plans(order, found)):
        if table is not None:
            console.print(table)
    for note in found.notes:
        console.print(f"• {note}", highlight=False)
    return 0


def _outcome(path: Path, model: FiniteMOMDP) -> result.Result:
    directory, prepared = reopen(path, model)
    if not directory.finished:
        raise ValueError(f"{path} must have finished: continue it with moac resume {path}.")
    return directory.outcome(prepared)


def _setting(config: Config) -> str:
    match config.setting:
        case Discounted(discount):
            return f"discounted, γ = {str(discount).strip('()')}"
        case _:
            return "average"


def _assumptions(order: Order, config: Config, found: Guarantees) -> Table:
    title = f"{order.env}, {_setting(config)}, features {config.features}: assumptions"
    table = Table(title=title, title_justify="left")
    for name in ("assumption", "verdict", "number", "why, and what to change"):
        table.add_column(name)
    for checked in found.assumptions:
        verdict, status = checked.assumption, checked.assumption.status
        status = (
            f"{status} at {checked.failing} of {found.policies}" if checked.failing and found.policies > 1 else status
        )
        shown = "" if verdict.number is None else f"{verdict.measure} {_number(verdict.number)}"
        why = f"{verdict.reason}. To change: {verdict.remedy}" if verdict.remedy else verdict.reason
        table.add_row(verdict.name, status, shown, why)
    return table


def _constants(found: Guarantees) -> Table | None:
    if found.start is None or found.worst is None:
        return None
    table = Table(title="Constants", title_justify="left")
    several = found.policies > 1
    for name in ("", "at the start", *(("worst along the run",) if several else ()), "what it is"):
        table.add_column(name, justify="left" if name.startswith("what") else "right")
    for name, (symbol, meaning) in _CONSTANTS.items():
        columns = (found.start, found.worst) if several else (found.start,)
        scope = _scope(found.worst) if name == "L_J_bound" else ""
        table.add_row(symbol, *(_shown(getattr(c, name)) for c in columns), meaning + scope)
    return table


def _scope(c: Constants) -> str:
    return ", at every policy" if c.L_J_everywhere else ", at these policies"


def _plans(order: Order, found: Guarantees) -> Table | None:
    if not found.plans:
        return None
    title = f"Sizes for a mean gap ≤ ε = {order.epsilon:g}, by Theorem 2 and Theorem 1"
    table = Table(title=title, title_justify="left")
    practice = found.practice
    headers = ("", "corollaries, printed", "our plan, printed", "our plan, derived")
    for name in (*headers, *(() if practice is None else ("the run",))):
        table.add_column(name, justify="right")
    plans = list(found.plans.values())
    run: dict[str, Any] = {} if practice is None else _run_column(practice)
    rows: dict[str, list[float]] = {
        "T": [p.T for p in plans], "N": [p.N for p in plans], "D": [p.D for p in plans], "B": [p.B for p in plans],
        "α": [p.alpha for p in plans], "β": [p.beta for p in plans], "samples": [p.samples for p in plans],
        "smallest D of Theorem 1": [found.smallest_batch[p.derivation] for p in plans],
        "bound, ascent": [p.shares[0] for p in plans], "bound, critic": [p.shares[1] for p in plans],
        "bound, noise": [p.shares[2] for p in plans], "bound": [p.bound for p in plans],
    }  # fmt: skip
    for name, values in rows.items():
        table.add_row(name, *map(_number, values), *(() if practice is None else (run.get(name, ""),)))
    return table


def _run_column(practice: guarantees.Practice) -> dict[str, str]:
    config = practice.config
    reached = "ε not reached" if practice.iterations is None else f"gap ≤ ε after {practice.iterations}"
    samples = "" if practice.samples is None else f" ({_number(practice.samples)} until then)"
    return {
        "T": f"{config.num_iterations}, {reached}",
        "N": str(config.num_critic_steps),
        "D": str(config.critic_batch_size),
        "B": str(config.actor_batch_size),
        "α": _number(config.actor_step_size),
        "β": _number(config.critic_step_size),
        "samples": f"{_number(practice.total)}{samples}",
        "bound": f"measured {_number(practice.mean_gap)}",
    }


def _summary(order: Order, config: Config, found: Guarantees) -> dict[str, Any]:
    practice = found.practice
    return {
        "env": order.env,
        "setting": "average" if isinstance(config.setting, Average) else "discounted",
        "features": config.features,
        "momentum": config.momentum,
        "epsilon": order.epsilon,
        "policies": found.policies,
        "assumptions": [{**asdict(c.assumption), "failing": c.failing} for c in found.assumptions],
        "constants_at_start": None if found.start is None else asdict(found.start),
        "constants": None if found.worst is None else asdict(found.worst),
        "plans": {name: {**asdict(plan), "bound": plan.bound} for name, plan in found.plans.items()},
        "smallest_critic_batch": found.smallest_batch,
        "practice": None
        if practice is None
        else {f.name: getattr(practice, f.name) for f in fields(practice) if f.name != "config"},
        "notes": list(found.notes),
    }


def _shown(value: Any) -> str:
    return f"{_number(value.rho)}, {_number(value.kappa)}" if isinstance(value, Mixing) else _number(value)


def _number(value: Any) -> str:
    """Whole numbers below a million as they are, the rest with four digits, scientific where they are large."""
    if value is not None and float(value).is_integer() and abs(value) < 1e6:
        return number(int(value))
    return number(None if value is None else float(value))
