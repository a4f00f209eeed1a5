"""`moac evaluate` and `moac certify`: what trained policies are worth, and how far from Pareto-stationary they are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

import moac
from moac.choices import below, counted
from moac.cli import process
from moac.cli.console import print_lines, print_paths, print_table
from moac.cli.options import Answer, Command, Data, Preference, Reference, RunPath, RunPaths, Trial, Trust, option
from moac.config import Config
from moac.progress import say

if TYPE_CHECKING:
    from moac.offline.evaluation import OfflineEvaluation
    from moac.runs.directory import RunDirectory
    from moac.theory.certificate import Certificate

_MOST_TRIALS = 16  # trials of a run that are evaluated unless one is picked


@dataclass(frozen=True, kw_only=True)
class Evaluate(Command):
    """Evaluate trained policies: in episodes of the real environment, or, for a run on a log, by an estimate."""

    runs: tyro.conf.Positional[RunPaths] = ()
    episodes: int = 200
    """Episodes per trial, each with its own seed."""
    trial: Annotated[int | None, option("INT", "default: all, at most 16")] = None
    """Trial of each run."""
    preference: Preference = None
    reference: Reference = None
    data: Data = None
    split: Literal["validation", "test"] = "validation"
    """Users on which a run on a log is evaluated; every evaluation on test users is recorded in an access log."""
    cap: float = 10.0
    """Cap of the importance weights on a log; inf does not cap."""
    control: Annotated[tuple[str, ...], option("COLUMN [COLUMN ...]", "default: earlier and later rewards")] = ()
    """Negative controls: columns of the context, or `time`, that no policy can have changed."""
    trust: Trust = False

    def answer(self) -> Answer:
        """Evaluate every run, compare them, and print."""
        if not self.runs:
            raise ValueError("`RUN` must be given: moac evaluate RUN. See moac evaluate --help.")
        from moac.runs.directory import RunDirectory

        opened = [RunDirectory(path) for path in self.runs]
        logged = any("log" in run.description["problem"] for run in opened)
        return self._on_users(opened) if logged else self._in_episodes(opened)

    def _in_episodes(self, opened: list[RunDirectory]) -> Answer:
        if (self.data, self.split, self.cap, self.control) != (None, Evaluate.split, Evaluate.cap, ()):
            only = "`--data`, `--split`, `--cap` and `--control` are for runs on logs"
            raise ValueError(f"{only}; {self.runs[0]} is on an environment.")
        about = [_about(run) for run in opened]
        for kind in ("env", "setting", "objectives"):
            if any(one[kind] != about[0][kind] for one in about):
                raise ValueError(f"`RUN` must be runs of one problem, got several with different {kind}.")
        M = len(about[0]["objectives"])
        if self.reference is not None and len(self.reference) != M:
            raise ValueError(f"`reference` must be one number per objective ({M}), got {len(self.reference)}.")
        evaluated = [one | self._one(run, one) for run, one in zip(opened, about, strict=True)]
        archive = _archive(evaluated, self.reference)
        record = evaluated[0] if len(evaluated) == 1 else {"runs": evaluated}
        return Answer(record | {"archive": archive}, lambda: _print_episodes(evaluated, archive))

    def _one(self, run: RunDirectory, about: dict[str, Any]) -> dict[str, Any]:
        """What the JSON object of one run says besides what it is about."""
        path, count = run.path, run.description["trials"]
        trials = self._picked(run) or tuple(range(min(count, _MOST_TRIALS)))
        if len(trials) < count and self.trial is None:
            say(f"{path}: the first {len(trials)} of {count} trials; --trial picks another.")
        options: dict[str, Any] = {"episodes": self.episodes, "trials": trials, "trust": self.trust}
        values: Any = moac.evaluate(path, preference=self.preference, **options)
        sizes = {"trials": list(trials), "episodes": self.episodes, "average": about["setting"]["name"] == "average"}
        sizes |= {"certificates": certificates(path), "preference": self.preference}
        return sizes | values.record()

    def _picked(self, run: RunDirectory) -> tuple[int, ...] | None:
        """The trial that was picked, by its own option's name; None where none was."""
        if self.trial is None:
            return None
        return (below(run.description["trials"]).checked("trial", self.trial),)

    def _on_users(self, opened: list[RunDirectory]) -> Answer:
        """Evaluate the run on a split's users, write card and page, and print."""
        (folder, *others) = self.runs
        if others:
            raise ValueError(f"`RUN` must be one run where it is on a log, got {len(self.runs)}.")
        if self.episodes != Evaluate.episodes or self.reference is not None:
            raise ValueError(f"`--episodes` and `--reference` are for runs on environments; {folder} is on a log.")
        trials = self._picked(opened[0])
        evaluated: Any = moac.evaluate(
            folder, data=self.data, split=self.split, trials=trials, cap=self.cap, control=self.control, out=folder
        )
        card, page = folder / f"card-{evaluated.label}.json", folder / f"evaluation-{evaluated.label}.html"

        def show() -> None:
            _print_changes(evaluated)
            print_paths(card=card, page=page)

        return Answer({"run": str(folder), "card": str(card), "page": str(page)} | evaluated.card(), show)


def _about(run: RunDirectory) -> dict[str, Any]:
    """Which run it is, and of what problem."""
    problem, setting = run.description["problem"], run.config.to_json()["setting"]
    return {"run": str(run.path), "env": problem["env"], "setting": setting, "objectives": problem["objectives"]}


def certificates(run: Path) -> list[dict[str, Any]]:
    """What `moac certify` has measured on a run, a short record for each trial."""
    from moac.theory import certificate

    return [{name: each[name] for name in ("trial", *certificate.SHORT)} for each in certificate.read(run).values()]


def certified(run: Path) -> list[str]:
    """The same as sentences."""
    from moac.report.pages.run import ends

    known = [(each["trial"], ends(each["low"], each["high"]), 100 * each["confidence"]) for each in certificates(run)]
    return [f"moac certify: trial {k} has a stationarity gap in {gap}, {p:g} % confidence." for k, gap, p in known]


def _archive(evaluated: list[dict[str, Any]], given: tuple[float, ...] | None) -> dict[str, Any]:
    """The policies that no other dominates, their hypervolume, and their distance to the exact front if it is known."""
    import numpy as np

    points = np.concatenate([one["points"] for one in evaluated])
    kept = moac.momdp.non_dominated(points)
    reference = points.min(axis=0) - 0.1 * np.ptp(points, axis=0) - 1e-9 if given is None else np.array(given)
    front, several = _exact_front(evaluated[0]), len(np.unique(points[kept], axis=0)) > 1 or given is not None
    return {
        "points": points[kept],
        "hypervolume": moac.momdp.hypervolume(points[kept], reference) if several else None,
        "reference": [round(float(value), 6) + 0.0 for value in reference],
        "igd_plus": None if front is None else moac.momdp.igd_plus(points[kept], front),
    }


def _exact_front(one: dict[str, Any]) -> Any:
    model = moac.momdp.library.for_environment(one["env"])
    if model is None or one["average"]:
        return None
    setting: Any = Config.from_json({"setting": one["setting"]}).setting
    try:
        return moac.momdp.pareto_front(model, setting).points
    except ValueError:  # beyond the exact answer's size
        return None


def _print_episodes(evaluated: list[dict[str, Any]], archive: dict[str, Any]) -> None:
    for one in evaluated:
        print_table(*_table(one))
        cut = f"{100 * one['truncated']:.1f} % were cut at the time limit"
        taken = counted(f"{one['evaluation_steps']:,}", "environment step")
        print_lines([f"Episodes have {one['length']:.1f} steps on average; {cut}. They took {taken}."])
        print_lines(certified(Path(one["run"])))
    total = sum(len(one["points"]) for one in evaluated)
    lines = [f"archive: {len(archive['points'])} of {counted(total, 'policy')} not dominated"]
    if archive["hypervolume"] is not None:
        lines.append(f"hypervolume {archive['hypervolume']:.4g} above {archive['reference']}")
    if archive["igd_plus"] is not None:
        lines.append(f"IGD+ {archive['igd_plus']:.4g} to the exact front")
    print_lines(["; ".join(lines)])


def _table(one: dict[str, Any]) -> tuple[str, list[str], list[list[str]]]:
    """Title, header and rows of one run."""
    many = len(one["trials"]) > 1
    episodes = counted(one["episodes"], "episode")
    over = f"{len(one['trials'])} trials × {episodes}" if many else episodes
    about = "means with 95 % intervals" if many or one["episodes"] > 1 else "too few for intervals"
    title = f"{one['run']}: {one['env']}, {over}, {about}"
    names = {"return": "returns", "discounted": "discounted_returns", "per step": "reward_per_step"}
    columns = {head: name for head, name in names.items() if one[name] is not None}
    rows = list[list[str]]()
    for i, objective in enumerate(one["objectives"]):
        cells = [_cell(one[name][i], *one[f"{name}_interval"][i]) for name in columns.values()]
        rows.append([objective, *cells, *([] if one["exact"] is None else [f"{one['exact'][:, i].mean():z.4f}"])])
    return title, ["", *columns, *([] if one["exact"] is None else ["exact"])], rows


def _cell(mean: float, low: float, high: float) -> str:
    return f"{mean:z.4f} [{low:z.4f}, {high:z.4f}]" if low <= high else f"{mean:z.4f}"


def _print_changes(evaluation: OfflineEvaluation) -> None:
    """A table for each method, with its verdict, the reasons and the controls below."""
    from moac.report.pages import checks
    from moac.report.pages import evaluation as page

    for name in evaluation.methods:
        table, policy = page.changes(evaluation, name), evaluation.report.policies[name]
        seeds = "" if evaluation.seeds[name] == 1 else f" ({evaluation.seeds[name]} seeds)"
        users = f"{counted(evaluation.rows, 'row')} of {counted(evaluation.users, f'{evaluation.split} user')}"
        cap = f"cap {evaluation.report.options.cap:g}"
        print_table(f"{evaluation.data}: {name}{seeds} on {users}, {cap}", table.header, table.rows)
        effective = min(one.row_effective_share for one in policy.diagnostics)
        verdict = f"{name}: {policy.verdict.level}; effective share of rows {100 * effective:.0f} %"
        print_lines([verdict, *(f"  - {reason.text}" for reason in policy.verdict.reasons)])
        shown = [f"  {row[0]}, {row[1]}: {row[2]}; {row[3]}" for row in checks.control_rows(evaluation, name)]
        print_lines(["controls, which must not change:", *shown] if shown else [])
        print_lines([text for text in [checks.explained(evaluation, name)] if text])
    if evaluation.carried is not None:
        print_lines(["the same with the run's behaviour model; the table above uses one fitted on this log:"])
        _print_changes(replace(evaluation.carried, accesses=None))
    if evaluation.unknown is not None:
        print_lines([page.unknown(evaluation)])
    if evaluation.accesses is not None:
        missing = evaluation.accesses.missing
        print_lines([str(evaluation.accesses), *([f"not recorded beside the data: {missing}"] if missing else [])])


@dataclass(frozen=True, kw_only=True)
class Certify(Command):
    """Measure how far a trained policy is from Pareto-stationary, with an interval, from episodes alone."""

    run_path: tyro.conf.Positional[RunPath]
    episodes: int = 2000
    """Episodes of the policy, and as many of the untrained one; with --until those of the first round."""
    confidence: float = 0.95
    """Confidence level of each interval."""
    until: Annotated[float | None, option("EPS", "default: one round")] = None
    """Double the episodes until the gap is known to be below or above this value; Ctrl-C keeps the last interval."""
    preferences: Annotated[int | None, option("INT", "default: 6")] = None
    """For a conditioned network: the largest number of preferences, on a grid; they share the confidence level."""
    trial: Trial = 0
    seed: int = 0
    """Random seed of the episodes."""
    data: Data = None
    trust: Trust = False

    def answer(self) -> Answer:
        """Certify, keep certificate.json in the run, write its page again, and print."""
        process.use_all_cores()
        plan = {name: getattr(self, name) for name in ("episodes", "confidence", "until", "seed")}
        plan |= {} if self.preferences is None else {"preferences": self.preferences}
        found = moac.certify(
            self.run_path, self.data, trial=self.trial, out=self.run_path, progress=True, trust=self.trust, **plan
        )
        return Answer({"run": str(self.run_path), **found.record()}, lambda: _print_certificate(self.run_path, found))


def _print_certificate(path: Path, certificate: Certificate) -> None:
    """The intervals, and what they say."""
    from moac.report.numbers import number, typeset

    c, zeta = certificate, number(certificate.zeta, 2)
    rows: list[Any] = [("gap in θ", c.low, c.high), (f"gap in F̂ + ζI, ζ = {zeta}", c.natural.low, c.natural.high)]
    if c.untrained is not None and c.ratio is not None:
        rows += [("gap in θ, untrained policy", c.untrained.low, c.untrained.high), ("trained / untrained", *c.ratio)]
    print_table(f"{path}: {c.episodes} episodes, {100 * c.confidence:g} % intervals", ("", "low", "high"), rows)
    if c.each:
        preferences = [(", ".join(f"{p:g}" for p in each.preference or ()), each.low, each.high) for each in c.each]
        print_table("Gap in θ for each preference", ("preference", "low", "high"), preferences)
    named = zip(c.objectives, c.weights, c.norms, strict=True)
    print_table("At the upper end", ("objective", "weight λ", "‖∇J‖"), [(n, float(w), float(g)) for n, w, g in named])
    print_lines(typeset(text) for text in (c.sentence, f"Objectives: {c.objective}.", c.warning) if text)
    print_paths(report=path / "report.html")
