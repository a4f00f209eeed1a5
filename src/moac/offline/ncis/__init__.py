"""Normalised capped importance sampling: vector rewards, intervals over users, and a verdict with its reasons.

`evaluate` is the whole road: sums over users, draws of users, changes, checks, verdict. `accumulate`, `total` (or `+`)
and `analyse` are the same in shards, computed wherever their rows are; checks need rows, of all users or of some:
`Evidence`. NumPy only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from moac import files
from moac.arguments import Numbers, checked
from moac.choices import counted, one_of
from moac.offline.ncis import estimates, trust
from moac.offline.ncis.checks import Checks, Control, Controlled, Evidence, Weighted
from moac.offline.ncis.estimates import Change, Drawn, Estimate, Flip, Sweep, holm
from moac.offline.ncis.limits import LIMITS
from moac.offline.ncis.rows import Logged
from moac.offline.ncis.sums import CAPS, Options, Shard, accumulate, seeds_of, total, values
from moac.offline.ncis.trust import Diagnostics, Reason, Verdict

__all__ = [
    "CAPS", "LIMITS", "Change", "Checks", "Control", "Controlled", "Diagnostics", "Estimate", "Evidence", "Flip",
    "Logged", "Options", "PolicyReport", "Reason", "Report", "Shard", "Sweep", "Verdict", "Weighted", "accumulate",
    "analyse", "evaluate", "evidence_of", "holm", "total", "values",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class PolicyReport:
    """One policy, or one method's training seeds."""

    ncis: Estimate  # with the cap in use
    snips: Estimate  # without a cap
    doubly_robust: Estimate | None  # None without a reward model
    by_seed: Float[np.ndarray, "R M"]  # values of each training seed
    change: Change | None  # to the baseline; None for itself, or without one
    diagnostics: tuple[Diagnostics, ...]  # of each training seed
    estimable: Bool[np.ndarray, " M"]  # enough weighted positives, for every seed
    checks: Checks | None  # controls, balance, sensitivity and tails; None for the baseline, or without rows to check
    verdict: Verdict  # whether all this may be read
    random_exposure: Any = None  # the change on random exposure (`moac.offline.controls`); None where there is none


@dataclass(frozen=True, eq=False)
class Report:
    """All policies on one log."""

    signal_names: tuple[str, ...]  # M of them
    options: Options  # how it was made
    baseline: str | None  # name of the policy that changes are counted from
    policies: Mapping[str, PolicyReport]  # by name
    sweep: Sweep  # over caps

    @property
    def warnings(self) -> tuple[str, ...]:
        """Orders of policies that depend on the cap, a line each."""
        return tuple(str(flip) for flip in self.sweep.flips if flip.separated)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON: arrays are lists, NaN is None, an infinite cap is "inf"."""
        return files.finite(self, name_infinities=True)

    def __str__(self) -> str:
        lines = [line for name, policy in self.policies.items() for line in self._lines(name, policy)]
        return "\n".join([*lines, *self.warnings])

    def _lines(self, name: str, policy: PolicyReport) -> Iterator[str]:
        """The verdict with its reasons, then a line per signal."""
        effective = min(one.row_effective_share for one in policy.diagnostics)
        rows = f"{counted(policy.diagnostics[0].rows, 'row')}, effective {effective:.0%}, cap {self.options.cap:g}"
        yield f"{name}: {policy.verdict.level}; {rows}"
        yield from (f"  ! {reason.text}" for reason in policy.verdict.reasons)
        for k, signal in enumerate(self.signal_names):
            low, high = policy.ncis.interval[k]
            line = f"  {signal:12} {policy.ncis.value[k]:+.5g} [{low:+.5g}, {high:+.5g}]"
            if policy.change is not None:
                low, high = policy.change.relative_interval[k]
                line += f"  {policy.change.relative[k]:+.1%} [{low:+.1%}, {high:+.1%}] to {self.baseline}"
                line += " *" if policy.change.significant[k] else ""
            yield line + ("" if policy.estimable[k] else "  not estimable")


@checked
def evaluate(
    log: Logged,
    policies: Mapping[str, Any],
    *,
    baseline: str | None = None,
    q: Any = None,
    evidence: Evidence | None = None,
    options: Options | None = None,
) -> Report:
    """What the policies are worth on the log's states, and whether that may be read.

        w = min(c, π(a|s) / π_b(a|s)),    V_i = Σ w r_i / Σ w,    intervals by resampling users.

    Args:
        log: rows of users that no choice was made on.
        policies: by name, π(a|s) of the logged action [N] or of all actions [N, K]; a list of such arrays are one
            method's training seeds, whose mean is estimated.
        baseline: the name that changes are counted from: Behavior-Clone, whose weights are all 1.
        q: reward model for a doubly robust second opinion: [N, K, M], or a function of row indices.
        evidence: controls and covariates, from `evidence_of`; None checks tails and sensitivity alone.
        options: cap, draws, level, seed.
    """
    chosen = options or Options()
    evidence = evidence or evidence_of(log, policies)
    return analyse(accumulate(log, policies, q, chosen), baseline=baseline, evidence=evidence, options=chosen)


@checked
def evidence_of(
    log: Logged,
    policies: Mapping[str, Any],
    controls: Sequence[Control] = (),
    covariates: Mapping[str, Any] | None = None,
    *,
    behaviour: Numbers | None = None,
    options: Options | None = None,
) -> Evidence:
    """What the checks of policies on a log are made on.

    `controls` are what no policy can have changed, `covariates` [N] what was known when the items were shown. With
    `behaviour`, b(a|s) of all actions [N, K], controls are under the cap; policies are then given as [N, K] too.
    """
    cap = (options or Options()).cap

    def weighted(name: str, given: Any) -> Weighted:
        tables = seeds_of(given)
        ratio = np.stack([log.importance_ratio(f"`policies[{name!r}]`", table) for table in tables])
        if behaviour is None:
            return Weighted(ratio)
        return Weighted(ratio, np.stack([np.minimum(table, cap * behaviour).sum(axis=1) for table in tables]))

    weights = {name: weighted(name, given) for name, given in policies.items()}
    return Evidence(log, weights, tuple(controls), covariates or {})


@checked
def analyse(
    shard: Shard, *, baseline: str | None = None, evidence: Evidence | None = None, options: Options | None = None
) -> Report:
    """The report of sums, merged from all shards, with the checks of the rows of all users, or of some."""
    chosen = options or Options()
    _check(shard, baseline, chosen)
    at, level = shard.at, chosen.level
    noise = estimates.model_noise({} if evidence is None else evidence.influence, chosen)
    drawn = estimates.draw(shard, chosen, noise)
    swept = estimates.sweep(drawn, shard.caps, shard.signal_names, level, baseline)
    diagnostics = {
        name: tuple(trust.diagnose(*each, at, level) for each in zip(seeds, drawn[name].mean_weight, strict=True))
        for name, seeds in shard.policies.items()
    }
    estimable = {name: trust.estimable(seeds) for name, seeds in diagnostics.items()}
    changes = {} if baseline is None else _changes(drawn, estimable, baseline, at, level)
    checked = {} if evidence is None else {name: evidence for name in evidence.weights if name != baseline}
    checks = {name: rows.check(name, chosen, noise.get(name)) for name, rows in checked.items()}

    def policy(name: str, draws: Drawn) -> PolicyReport:
        ncis, snips, robust = draws.estimate(at, level), draws.estimate(-1, level), draws.doubly_robust(level)
        opinions = {"SNIPS": snips} | ({} if robust is None else {"doubly robust": robust})
        seeds = diagnostics[name]
        verdict = trust.verdict(shard.signal_names, seeds, ncis, opinions, checks.get(name))
        numbers = (ncis, snips, robust, draws.by_seed[:, at], changes.get(name))
        return PolicyReport(*numbers, seeds, estimable[name], checks.get(name), verdict)

    policies = {name: policy(name, draws) for name, draws in drawn.items()}
    return Report(shard.signal_names, chosen, baseline, policies, swept)


def _check(shard: Shard, baseline: str | None, options: Options) -> None:
    if (shard.cap, shard.caps) != (float(options.cap), options.all_caps):
        raise ValueError(f"the sums were made with cap {shard.cap:g} of {shard.caps}; `options` have others.")
    if baseline is not None:
        one_of("baseline", baseline, shard.policies)
    events = shard.first.positives[:, 0].sum(axis=0)
    silent = [shard.signal_names[k] for k in np.flatnonzero(events == 0)]
    if silent:
        rows = f"{shard.first.count.sum():.0f} rows"
        raise ValueError(f"{', '.join(silent)} never occurs in {rows}: leave it out by `log.signals([…])`.")
    shard.check_support()


def _changes(
    drawn: Mapping[str, Drawn], estimable: Mapping[str, Any], baseline: str, at: int, level: float
) -> dict[str, Change]:
    """The change from the baseline to each of the others; significant only where both are estimable."""

    def to(name: str) -> Change:
        change = estimates.change(drawn[name], drawn[baseline], at, level)
        return replace(change, significant=change.significant & estimable[name] & estimable[baseline])

    return {name: to(name) for name in drawn if name != baseline}
