"""The whole road: weigh policies on a log, draw users, compare, diagnose, and judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float

from moac.offline.ncis import estimates, exposure, shards, trust
from moac.offline.ncis.diagnostics import diagnose
from moac.offline.ncis.estimates import Change, Drawn
from moac.offline.ncis.exposure import Agreement
from moac.offline.ncis.options import Options
from moac.offline.ncis.report import PolicyReport, Report
from moac.offline.ncis.rows import Logged
from moac.offline.ncis.shards import Shard
from moac.offline.ncis.sweep import Sweep, sweep
from moac.offline.ncis.trust import Evidence


def evaluate(
    log: Logged,
    policies: Mapping[str, Any],
    *,
    baseline: str | None = None,
    q: Any = None,
    random: tuple[Logged, Mapping[str, Any]] | None = None,
    options: Options | None = None,
) -> Report:
    """What the policies are worth on the log's states, and how far to trust it.

        w = min(c, π(a|s) / π_b(a|s)),    V_i = Σ w r_i / Σ w,    intervals by resampling users.

    Args:
        log: rows of users that no choice was made on.
        policies: by name, π(a|s) of the logged action [N] or of all actions [N, K]; a list of such arrays are one
            method's training seeds, whose mean is estimated.
        baseline: the name that changes are counted from: Behavior-Clone, whose weights are all 1.
        q: reward model for a doubly robust second opinion: [N, K, M], or a function of row indices.
        random: rows of uniformly random exposure, and the same policies there.
        options: cap, draws, level, seed.
    """
    chosen = options or Options()
    there = None if random is None else shards.accumulate(*random, options=exposure.uncapped(chosen))
    return analyse(shards.accumulate(log, policies, q, chosen), baseline=baseline, random=there, options=chosen)


def analyse(
    shard: Shard, *, baseline: str | None = None, random: Shard | None = None, options: Options | None = None
) -> Report:
    """The report of sums, merged from all shards; `random` was accumulated with `uncapped(options)`."""
    chosen = options or Options()
    _check(shard, baseline, chosen)
    drawn = estimates.draw(shard, chosen)
    swept = sweep(drawn, shard.caps, shard.signal_names, chosen.level, baseline)
    agreements = {} if random is None else exposure.agreement(drawn, shard.at, random, chosen)
    evidence = {
        name: _evidence(shard, name, drawn[name], (swept, agreements.get(name)), chosen.level) for name in drawn
    }
    changes = {} if baseline is None else _changes(drawn, evidence, baseline, (shard.at, chosen.level))
    found = {name: _policy(own, drawn[name].by_seed[:, shard.at], changes.get(name)) for name, own in evidence.items()}
    warnings = tuple(str(flip) for flip in swept.flips if flip.separated)
    return Report(shard.signal_names, chosen, baseline, found, swept, warnings)


def _check(shard: Shard, baseline: str | None, options: Options) -> None:
    if (shard.cap, shard.caps) != (float(options.cap), options.all_caps):
        raise ValueError(f"the sums were made with cap {shard.cap:g} of {shard.caps}; `options` have others.")
    if baseline is not None and baseline not in shard.policies:
        raise ValueError(f"`baseline` must be one of {', '.join(shard.policies)}, got {baseline!r}.")
    events = shard.first.positives[:, 0].sum(axis=0)
    silent = [shard.signal_names[k] for k in np.flatnonzero(events == 0)]
    if silent:
        raise ValueError(
            f"{', '.join(silent)} never fires in {shard.first.count.sum():.0f} rows: nothing can be said of it; "
            f"leave it out by `log.signals([…])`."
        )
    shards.supported(shard)


def _evidence(shard: Shard, name: str, own: Drawn, beside: tuple[Sweep, Agreement | None], level: float) -> Evidence:
    swept, agreement = beside
    snips, robust = own.estimate(-1, level), own.doubly_robust(level)
    return Evidence(
        signals=shard.signal_names,
        diagnostics=tuple(
            diagnose(one, shard.at, own.mean_weight[r], level) for r, one in enumerate(shard.policies[name])
        ),
        estimate=own.estimate(shard.at, level),
        opinions={"SNIPS": snips} | ({} if robust is None else {"doubly robust": robust}),
        flips=tuple(flip for flip in swept.flips if name in (flip.better, flip.worse)),
        agreement=agreement,
    )


def _policy(evidence: Evidence, by_seed: Float[np.ndarray, "R M"], change: Change | None) -> PolicyReport:
    return PolicyReport(
        ncis=evidence.estimate,
        snips=evidence.opinions["SNIPS"],
        doubly_robust=evidence.opinions.get("doubly robust"),
        by_seed=by_seed,
        change=change,
        diagnostics=evidence.diagnostics,
        estimable=evidence.estimable,
        agreement=evidence.agreement,
        verdict=trust.verdict(evidence),
    )


def _changes(
    drawn: dict[str, Drawn], evidence: Mapping[str, Evidence], baseline: str, how: tuple[int, float]
) -> dict[str, Change]:
    """From the baseline to each of the others; significant only where both are estimable."""
    both = {name: own.estimable & evidence[baseline].estimable for name, own in evidence.items()}
    found = {name: estimates.change(own, drawn[baseline], *how) for name, own in drawn.items() if name != baseline}
    return {name: replace(own, significant=own.significant & both[name]) for name, own in found.items()}
