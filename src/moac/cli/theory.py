"""`moac theory` and `moac front`: what theorems promise and practice needs; the exact Pareto front of a model."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

import moac
from moac.choices import counted
from moac.cli.console import print_lines, print_table
from moac.cli.evaluate import certificates, certified
from moac.cli.options import Answer, Command, Environment, SettingName, option, setting_of
from moac.config import CHOICES, Average, Config, Discounted
from moac.progress import say

if TYPE_CHECKING:
    from moac.momdp import Exact, FiniteMOMDP, ParetoFront
    from moac.theory.planning import Guarantees, Practice
    from moac.training.result import Result

_CONSTANTS = {
    "num_objectives": ("M", "number of objectives, a factor of the derived bound"),
    "r_max": ("r_max", "largest |r|, at every policy"),
    "lambda_A": ("λ_A", "contraction rate of TD"),
    "lambda_A_modulo_constants": ("λ_A modulo constants", "the same for Φw that are not constant"),
    "C_A": ("C_A", "largest ‖(γφ' − φ)φᵀ‖ of a sample (derived)"),
    "C_A_mean": ("C_A of the mean", "‖A‖ (printed)"),
    "C_b": ("C_b", "largest ‖(r − J)φ‖ or ‖rφ‖ of a sample (derived)"),
    "C_b_mean": ("C_b of the mean", "‖b‖ (printed)"),
    "w_star": ("‖w*‖", "largest over objectives, exact"),
    "R_w": ("R_w", "the paper's bound on it"),
    "C_psi": ("‖ψ‖", "largest over states and actions"),
    "C_psi_bound": ("C_ψ", "bound on it, at every policy"),
    "zeta": ("ζ", "approximation error of the critic"),
    "rarest": ("min d(s)", "probability of the least visited state, stationary law"),
    "mixing": ("ρ, κ certified", "by Dobrushin's coefficient"),
    "spectral": ("ρ, κ spectral", "from the second eigenvalue and the measured distances"),
    "L_J": ("‖∇²J‖", "by Lanczos: a lower bound on L_J"),
    "L_J_bound": ("L_J at most", "proved"),
}

Finished = Annotated[Path | None, tyro.conf.arg(name="run", metavar="RUN", help_behavior_hint="(default: none)")]


@dataclass(frozen=True, kw_only=True)
class Theory(Command):
    """Check the theorems' assumptions, and compute their constants and the sample sizes that guarantee a gap ε."""

    env: tyro.conf.Positional[Environment]
    epsilon: Annotated[float | None, option("FLOAT", "default: a tenth of the uniform policy's gap")] = None
    """Stationarity gap to guarantee."""
    setting: Annotated[SettingName | None, option("{discounted,average}", "default: discounted")] = None
    """Discounted return, or average reward per step."""
    discount: Annotated[tuple[float, ...] | None, option("FLOAT [FLOAT ...]", "default: 0.9")] = None
    """One discount factor, or one per objective."""
    features: Annotated[str | None, option(f"{{{','.join(CHOICES['features'])}}}", "default: one-hot")] = None
    """The critic's features."""
    momentum: Annotated[str | None, option("STR", "default: 1/t")] = None
    """Schedule of η_t."""
    finished: Finished = None
    """A finished run of ENV: its settings, the worst constants along it, what it needed, and its certificate."""

    def answer(self) -> Answer:
        """Compute."""
        config = self.config()
        from moac import settings
        from moac.runs import problems
        from moac.theory import guarantees

        model = problems.model_of(self.env)
        outcome = None if self.finished is None else _outcome(self.finished, model)
        config = settings.complete(config, model.spec) if outcome is None else outcome.config
        guaranteed = guarantees(model, config, self.epsilon, outcome, 0 if outcome is None else outcome.run.seed)
        return Answer(_summary(self, config, guaranteed), lambda: self._print(config, guaranteed))

    def _print(self, config: Config, guaranteed: Guarantees) -> None:
        from moac.report.numbers import number, typeset

        setting = str(vars(config.setting).get("discount", "average")).strip("()")
        about = f"{self.env}, {setting if setting == 'average' else f'discounted, γ = {setting}'}"
        print_lines(typeset(line) for line in (guaranteed.vacuous, *self._certified(config)) if line)
        title = f"{about}, features {config.features}: assumptions"
        print_table(title, *_assumptions(guaranteed), left=("verdict", "why, and what to change"))
        if guaranteed.start is not None:
            print_table("Constants", *_constants(guaranteed), left=("what it is",))
        if guaranteed.plans:
            title = f"Sizes for a mean gap ≤ ε = {number(guaranteed.epsilon)}, by Theorem 2 and Theorem 1"
            print_table(title, *_plans(guaranteed))
        print_lines(f"• {typeset(note)}" for note in guaranteed.notes)

    def _certified(self, config: Config) -> list[str]:
        """What `moac certify` measured on the run, or how to measure it."""
        if self.finished is None or isinstance(config.setting, Average):  # which has no certificate
            return []
        how = f"{self.finished} has no certificate yet: moac certify {self.finished} measures its gap from episodes."
        return certified(self.finished) or [how]

    def config(self) -> Config:
        """The configuration that the options describe; with a run they must be left out."""
        options = {name: getattr(self, name) for name in ("setting", "discount", "features", "momentum")}
        given = {name: value for name, value in options.items() if value is not None}
        if self.finished is not None and given:
            raise ValueError(f"`{next(iter(given))}` must be left out with --run: the run's own is used.")
        chosen: Any = {name: given[name] for name in ("features", "momentum") if name in given}
        return Config(setting=setting_of(self.setting or "discounted", self.discount), **chosen)


Rows = tuple[list[str], list[list[str]]]
"""Header and rows of a table."""


def _outcome(path: Path, model: FiniteMOMDP) -> Result:
    from moac.runs.directory import reopen

    directory, prepared = reopen(path, model)
    if not directory.finished:
        raise ValueError(f"{path} must have finished: continue it with moac resume {path}.")
    return directory.outcome(prepared)


def _assumptions(guaranteed: Guarantees) -> Rows:
    from moac.report.numbers import typeset

    rows: list[list[str]] = []
    for checked in guaranteed.assumptions:
        verdict, status = checked.assumption, checked.assumption.status
        if checked.failing and guaranteed.policies > 1:
            status = f"{status} at {checked.failing} of {guaranteed.policies}"
        number = "" if verdict.number is None else f"{verdict.measure} {_number(verdict.number)}"
        why = f"{verdict.reason}. To change: {verdict.remedy}" if verdict.remedy else verdict.reason
        rows.append([verdict.name, status, number, typeset(why)])
    return ["assumption", "verdict", "number", "why, and what to change"], rows


def _constants(guaranteed: Guarantees) -> Rows:
    """Of the start, and where there are several policies the worst along the run."""
    columns: dict[str, Any] = {"at the start": guaranteed.start}
    if guaranteed.policies > 1:
        columns["worst along the run"] = guaranteed.worst
    everywhere = guaranteed.worst is not None and guaranteed.worst.L_J_everywhere
    scope = {"L_J_bound": ", at every policy" if everywhere else ", at these policies"}
    rows = [
        [symbol, *(_number(getattr(constants, name)) for constants in columns.values()), meaning + scope.get(name, "")]
        for name, (symbol, meaning) in _CONSTANTS.items()
    ]
    return ["", *columns, "what it is"], rows


def _plans(guaranteed: Guarantees) -> Rows:
    plans, practice = list(guaranteed.plans.values()), guaranteed.practice
    sizes = {"T": "T", "N": "N", "D": "D", "B": "B", "α": "alpha", "β": "beta", "samples": "samples"}
    rows = {symbol: [getattr(plan, name) for plan in plans] for symbol, name in sizes.items()}
    rows["smallest D of Theorem 1"] = [guaranteed.smallest_batch[plan.derivation] for plan in plans]
    for k, part in enumerate(("ascent", "critic", "noise")):
        rows[f"bound, {part}"] = [plan.shares[k] for plan in plans]
    rows["bound"] = [plan.bound for plan in plans]
    header = ["", "corollaries, printed", "our plan, printed", "our plan, derived"]
    if practice is None:
        return header, [[name, *map(_number, values)] for name, values in rows.items()]
    measured = _run_column(practice)
    return [*header, "the run"], [[n, *map(_number, values), measured.get(n, "")] for n, values in rows.items()]


def _run_column(practice: Practice) -> dict[str, str]:
    """What a run had, and what it needed, by the rows of the table."""
    config, reached = practice.config, practice.iterations
    until = "" if practice.samples is None else f" ({_number(practice.samples)} until then)"
    return {
        "T": f"{config.num_iterations}, {'ε not reached' if reached is None else f'gap ≤ ε after {reached}'}",
        "N": str(config.num_critic_steps),
        "D": str(config.critic_batch_size),
        "B": str(config.actor_batch_size),
        "α": _number(config.actor_step_size),
        "β": _number(config.critic_step_size),
        "samples": f"{_number(practice.total)}{until}",
        "bound": f"measured {_number(practice.mean_gap)}",
    }


def _summary(command: Theory, config: Config, guaranteed: Guarantees) -> dict[str, Any]:
    practice, start, worst = guaranteed.practice, guaranteed.start, guaranteed.worst
    return {
        "env": command.env,
        "setting": "average" if isinstance(config.setting, Average) else "discounted",
        "features": config.features,
        "momentum": config.momentum,
        "epsilon": guaranteed.epsilon,
        "policies": guaranteed.policies,
        "assumptions": [{**asdict(c.assumption), "failing": c.failing} for c in guaranteed.assumptions],
        "constants_at_start": None if start is None else asdict(start),
        "constants": None if worst is None else asdict(worst),
        "plans": {name: {**asdict(plan), "bound": plan.bound} for name, plan in guaranteed.plans.items()},
        "smallest_critic_batch": guaranteed.smallest_batch,
        "practice": practice and {f.name: getattr(practice, f.name) for f in fields(practice) if f.name != "config"},
        "vacuous": guaranteed.vacuous,
        "certificates": [] if command.finished is None else certificates(command.finished),
        "notes": list(guaranteed.notes),
    }


def _number(value: Any) -> str:
    """Whole numbers below a million as they are, the rest with four digits; both of a mixing law side by side."""
    from moac.report.numbers import number
    from moac.statistics import without_rounding

    if hasattr(value, "rho"):
        return f"{_number(value.rho)}, {_number(value.kappa)}"
    value = float(without_rounding(value))
    return number(int(value) if value.is_integer() and abs(value) < 1e6 else value)


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

    def _print(self, model: FiniteMOMDP, front: ParetoFront, uniform: Exact) -> None:
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
        print_lines([f"{counted(model.num_states, 'state')}. Uniform policy: {gap}"])

    def _draw(self, out: Path, model: FiniteMOMDP, front: ParetoFront) -> Path:
        from moac import files
        from moac.report import figures

        title = f"{self.env}, γ = {', '.join(map(str, self.discount))}: {counted(len(front.points), 'point')}"
        with files.making(out):
            figures.write(out, "front", figures.front(front.points, front.hull, model.objective_names, title))
        return out / "front.png"
