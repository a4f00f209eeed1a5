"""What estimates of five policies on half a million rows cost, with intervals and a cap sweep; and recommendations."""

from __future__ import annotations

from typing import Any

import _recommending
from _timing import measure

from moac.kuairand import generate
from moac.offline import ncis

ROWS, VIDEOS, POLICIES = 500_000, 150, 5
TARGET_SECONDS = 10.0


def report() -> None:
    """From checked arrays to the report, with 1,000 draws of users and seven caps."""
    log = _rows()
    rows = ncis.Logged.of(log.user, log.reward, log.propensity, log.action)
    policies = _policies(log)
    found: list[ncis.Shard] = []
    weighed = measure(lambda: found.append(ncis.accumulate(_again(rows), policies)), repeats=2)
    drawn = measure(lambda: ncis.analyse(found[0], baseline="Behavior-Clone"), repeats=2)
    total, cpu = weighed.best + drawn.best, weighed.best_cpu + drawn.best_cpu
    users = len(found[0].first.user)
    print(
        f"  NCIS, {POLICIES} policies, {ROWS:,} rows of {users:,} users, 7 signals, {len(ncis.CAPS)} caps, 1,000 draws:"
    )
    print(f"    {total:.1f} s, {cpu:.1f} CPU s (weighing {weighed.best:.1f} s, users drawn {drawn.best:.1f} s)", end="")
    print(f"   target <= {TARGET_SECONDS:.0f} s")
    _recommending.report()


def _rows() -> generate.Log:
    return generate.log(ROWS, seed=1, model=generate.UserModel.of(0, VIDEOS))


def _policies(log: generate.Log) -> dict[str, Any]:
    """The logging policy, and others that are flatter or sharper."""
    found, behaviour = {"Behavior-Clone": log.propensity}, log.model.logging_policy()
    for power in (0.6, 0.8, 1.2, 1.4):
        table = behaviour**power
        chosen = table / table.sum(axis=-1, keepdims=True)
        found[f"power {power}"] = chosen[log.kind, log.tab, log.action]
    return found


def _again(rows: ncis.Logged) -> ncis.Logged:
    """The same rows without what is remembered of them."""
    return ncis.Logged.of(rows.user, rows.reward, rows.propensity, rows.action)
