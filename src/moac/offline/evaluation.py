"""The result of an evaluation on a log, and the card that is kept of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
from jaxtyping import Float

from moac import files
from moac.choices import counted, shown
from moac.offline.access_log import AccessLog
from moac.offline.behaviour import Calibration
from moac.offline.ncis import Controlled, Report
from moac.offline.ncis.trust import power
from moac.types import Params, Policy

Method = tuple[Policy, Params]
"""A kind of policy, and the parameters of its training seeds: leading axis K."""
Outcome = Literal["better", "worse", "no difference", "not estimable"]
Range = tuple[float, float]
BASELINE = "Behavior-Clone"
"""The policy that made the log, as far as it is known."""
FORMAT = 2
_ROUNDING = 1e-6
"""A change below this share of a value is none: probabilities are computed in single precision."""


@dataclass(frozen=True)
class Line:
    """One signal of one method beside Behavior-Clone, in the signal's own units, also where it is a cost."""

    signal: str
    cost: bool  # less of it is better
    baseline: float  # V of both, of the signal: a cost is positive
    value: float
    interval: Range  # of the value
    relative: float  # V / V_b − 1
    relative_interval: Range
    difference: float  # V − V_b
    difference_interval: Range
    p: float  # adjusted by Holm over the signals
    outcome: Outcome  # in words; better and worse are significant

    @property
    def label(self) -> str:
        """The name; of a cost with a word on it."""
        return f"{self.signal} (cost)" if self.cost else self.signal


@dataclass(frozen=True, eq=False)
class WeightHistogram:
    """How the weights π/π_b of each policy are spread over the rows, without a cap."""

    edges: Float[np.ndarray, " E"]  # of the bins
    shares: dict[str, Float[np.ndarray, " B"]]  # by name, share of the rows, mean over training seeds

    @staticmethod
    def of(weights: Mapping[str, Float[np.ndarray, "K n"]]) -> WeightHistogram:
        """The histogram of each policy's weights, bins a factor 2^¼ wide with 1 in the middle of one."""
        edges = np.array([0.0, *(2.0 ** ((2 * k + 1) / 8) for k in range(-32, 32)), np.inf])
        return WeightHistogram(edges, {name: np.histogram(w, edges)[0] / w.size for name, w in weights.items()})


@dataclass(frozen=True, eq=False, repr=False)
class OfflineEvaluation:
    """Methods beside Behavior-Clone, on one split's users."""

    data: str  # name of the log
    fingerprint: str  # of the log, with its propensities
    size: tuple[int, int]  # rows and users of the whole log
    num_actions: int
    split: str  # whose users
    how_split: dict[str, Any]  # `seed` and `shares` of the splits, None where the log has no folder
    rows: int  # of the split
    users: int
    policies: dict[str, str]  # a hash of the parameters of each method
    seeds: dict[str, int]  # number of policies of each method
    costs: tuple[str, ...]  # signals of which less is better
    report: Report  # values, changes, diagnostics, cap sweep and verdicts
    left_out: tuple[str, ...]  # signals that never fire there: nothing can be said of them
    calibration: Calibration | None  # of the behaviour model; None where the log knows its propensities
    reward_model: dict[str, Any] | None  # of doubly robust: penalty and share of variance explained of each signal
    weights: WeightHistogram  # how they are spread
    accesses: AccessLog | None  # to test users; None on others
    date: str
    page: Callable[[OfflineEvaluation], str] | None = None  # makes the HTML page; `moac.evaluate` hands it down
    unknown: dict[str, int] | None = None  # on another log than the run's: users, items and views that it does not know
    # there, where it has no propensities: the same by the run's own behaviour model, while this is by one fitted there
    carried: OfflineEvaluation | None = None
    without_responses: Report | None = None  # the same by a behaviour model that knows no past responses
    choice: Any = None  # what `moac.offline.choose` says of it, where signals are protected

    def __repr__(self) -> str:
        trust = ", ".join(f"{name} {self.report.policies[name].verdict.level}" for name in self.methods)
        size = f"{counted(self.rows, 'row')} of {counted(self.users, f'{self.split} user')}"
        return f"OfflineEvaluation({self.data!r}, {size}: {trust})"

    @property
    def methods(self) -> tuple[str, ...]:
        """Names, without Behavior-Clone."""
        return tuple(name for name in self.report.policies if name != self.report.baseline)

    @property
    def label(self) -> str:
        """The split; on another log than the run's with the beginning of its fingerprint."""
        return self.split if self.unknown is None else f"{self.split}-{self.fingerprint[:8]}"

    def lines(self, method: str) -> tuple[Line, ...]:
        """One line for each signal."""
        return tuple(self._line(method, k) for k in range(len(self.report.signal_names)))

    def _line(self, method: str, k: int) -> Line:
        signal = self.report.signal_names[k]
        policy, base = self.report.policies[method], self.report.policies[BASELINE]
        if policy.change is None:
            raise ValueError(f"`method` must be one of {', '.join(self.methods)}, got {shown(method)}.")
        cost, change = signal in self.costs, policy.change
        sign = -1.0 if cost else 1.0
        moved = abs(change.difference[k]) > _ROUNDING * abs(base.ncis.value[k])
        return Line(
            signal,
            cost,
            float(sign * base.ncis.value[k]),
            float(sign * policy.ncis.value[k]),
            _range(sign, policy.ncis.interval[k]),
            float(change.relative[k]),
            _range(1.0, change.relative_interval[k]),
            float(sign * change.difference[k]),
            _range(sign, change.difference_interval[k]),
            float(change.holm[k]),
            _effect(policy.estimable[k] and base.estimable[k], moved and change.significant[k], change.difference[k]),
        )

    def card(self) -> dict[str, Any]:
        """All that is known, as plain data ready for JSON: NaN is None, an infinite cap is "inf".

        `methods` has the verdict on each, its reasons and what each signal shows; those of a single one stand at the
        top as well.
        """
        names = ("date", "policies", "seeds", "costs", "left_out", "reward_model", "weights", "report")
        methods = {name: self._method(name) for name in self.methods}
        (rows, users), entries = self.size, None if self.accesses is None else self.accesses.entries
        about = {"name": self.data, "fingerprint": self.fingerprint, "actions": self.num_actions}
        plain = {
            "format": FORMAT,
            "moac": metadata.version("moac"),
            "data": about | {"rows": rows, "users": users},
            "split": {"name": self.split, **self.how_split, "rows": self.rows, "users": self.users},
            **(next(iter(methods.values())) if len(methods) == 1 else {}),
            "methods": methods,
            "test_looks": None if entries is None else len(entries),
            "looks": entries,
            "behaviour": self.calibration,
            "unknown": self.unknown,
            "carried": None if self.carried is None else self.carried.card(),
        }
        return files.finite(plain | {name: getattr(self, name) for name in names}, name_infinities=True)

    def _method(self, name: str) -> dict[str, Any]:
        policy, lines = self.report.policies[name], self.lines(name)
        signals = {line.signal: self._signal(name, line, k) for k, line in enumerate(lines)}
        return {
            "verdict": policy.verdict.level,
            "reasons": [reason.text for reason in policy.verdict.reasons],
            "signals": signals | {name: {"effect": "never fires"} for name in self.left_out},
        }

    def _signal(self, name: str, line: Line, k: int) -> dict[str, Any]:
        """What one signal shows, what would explain it, and what was tried to refute it."""
        policy = self.report.policies[name]
        other = None if self.without_responses is None else self.without_responses.policies[name].change
        without = None if other is None else {"change": other.relative[k], "interval": other.relative_interval[k]}
        shown = {
            "change": line.relative,
            "interval": line.relative_interval,
            "effect": line.outcome,
            "verdict": policy.verdict.of(line.signal),
            "random_exposure": None if policy.random_exposure is None else policy.random_exposure.of(line.signal),
            "without_past_responses": without,
        }
        checks = policy.checks
        if checks is None:
            return shown | dict.fromkeys(("controls", "sensitivity", "balance", "tails"))
        names, sensitive = self.report.signal_names, checks.sensitivity
        powers = [(one, power(one, names, checks.half_width)) for one in checks.controls]
        rest = {
            "controls": {one.name: _control(one, line.signal, why) for one, why in powers},
            "sensitivity": {
                "gamma": sensitive.interval[k],
                "gamma_of_estimate": sensitive.point[k],
                "strongest_covariate": sensitive.strongest,
            },
            "balance": None if checks.balance is None else asdict(checks.balance),
            "tails": {name: values[k] for name, values in vars(checks.tails).items()},
        }
        return shown | rest

    def save(self, folder: str | Path) -> Path:
        """Write `card-LABEL.json`, and `evaluation-LABEL.html` where something makes the page, into the folder."""
        path, shown = Path(folder), None if self.page is None else self.page(self)
        with files.making(path):
            files.write_json(path / f"card-{self.label}.json", self.card())
            if shown is not None:
                files.write_bytes(path / f"evaluation-{self.label}.html", shown.encode())
        return path


def _control(control: Controlled, signal: str, no_power: str | None) -> dict[str, Any]:
    """A control of one signal; one that is no reward is the same for all of them."""
    j = control.columns.index(signal) if signal in control.columns else 0
    return {
        "change": control.change[j],
        "interval": control.interval[j],
        "p": control.p[j],
        "power": no_power is None,
        "no_power": no_power,
        "soft": control.soft,
        "unit": "of its mean" if control.relative else "standard deviations",
    }


def _range(sign: float, interval: Any) -> Range:
    low, high = (float(end) for end in interval)
    return (low, high) if sign > 0 else (-high, -low)


def _effect(estimable: Any, significant: Any, difference: Any) -> Outcome:
    if not estimable:
        return "not estimable"
    if not significant:
        return "no difference"
    return "better" if difference > 0 else "worse"


def fingerprints(methods: Mapping[str, tuple[Any, Params]]) -> dict[str, str]:
    """A hash of each method's parameters: shapes and numbers."""
    leaves = {name: map(np.asarray, jax.tree.leaves(theta)) for name, (_, theta) in methods.items()}
    content = {name: b"".join(repr(x.shape).encode() + x.tobytes() for x in each) for name, each in leaves.items()}
    return {name: hashlib.sha256(each).hexdigest()[:16] for name, each in content.items()}
