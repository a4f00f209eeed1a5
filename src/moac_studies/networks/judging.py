"""What the runs of the study show, as claims, tables and figures. Every verdict is computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moac import statistics
from moac.files import Arrays
from moac.report.numbers import Value
from moac.report.page import Claim, Table
from moac.statistics import Mean
from moac_studies import compare, playing, tasks
from moac_studies.networks import figures, peers
from moac_studies.networks.measure import MAIN, START
from moac_studies.networks.peers import Peer
from moac_studies.playing import Table as Parameters
from moac_studies.studies import Findings

Methods = Mapping[str, Arrays]


def findings(tables: Mapping[str, Parameters], found: Mapping[str, Methods], missing: Mapping[str, str]) -> Findings:
    """Everything, in reading order; of an environment that is `missing` only why."""
    claims = [Claim(_improves_claim(name), why, "not measured") for name, why in missing.items()]
    listed, shown = [], []
    for name, methods in found.items():
        table, peer = tables[name], peers.of(str(tables[name]["env"]))
        claims += [_improves(name, table, methods), _task(name, methods), _beats_controls(name, table, methods)]
        claims += [] if peer is None else [_beats_peer(name, table, methods, peer)]
        listed.append(_table(name, table, methods, peer))
        shown.append(figures.over_steps(name, table, methods, peer))
    return Findings(tuple(claims), tuple(listed), tuple(shown))


def _volume(table: Parameters, points: Any) -> Any:
    return playing.volumes(points, table["reference"])


def _improves_claim(name: str) -> str:
    return f"On {name} MOAC improves the hypervolume over the untrained policy"


def _improves(name: str, table: Parameters, methods: Methods) -> Claim:
    ours, start = (_volume(table, methods[key]["discounted"]) for key in (MAIN, START))
    change = compare.paired(ours, start)
    return compare.claim(
        _improves_claim(name),
        f"change {change}, untrained {statistics.mean(start)}, {len(ours)} trials.",
        [compare.above(change)],
        figures.title(name),
    )


def _task(name: str, methods: Methods) -> Claim:
    """Whether MOAC learns what the environment is about."""
    ours, start = methods[MAIN], methods[START]
    if name.startswith("minecart"):
        claim, finding = "sells more of both ores", tasks.sells_more_ore(ours["returns"], start["returns"])
    elif name.startswith("mo-mountaincar"):
        claim, finding = "reaches the flag", _flag(methods)
    else:
        claim, finding = "lands more often than it crashes", tasks.lands(ours["returns"][:, 0])
    return compare.claim(f"On {name} MOAC {claim}", *finding, _title(name))


def _flag(methods: Methods) -> tasks.Finding:
    measured, parts = tasks.reaches_the_flag(methods[MAIN]["ended"])
    others = ", ".join(f"{key} {_share(found):.3g}" for key, found in methods.items() if key != MAIN)
    return f"{measured} The others: {others}.", parts


def _beats_controls(name: str, table: Parameters, methods: Methods) -> Claim:
    """Against the other methods trial by trial, since they share seeds."""
    ours = _volume(table, methods[MAIN]["discounted"])
    differences = {
        key: compare.paired(ours, _volume(table, found["discounted"]))
        for key, found in methods.items()
        if key not in (MAIN, START)
    }
    return compare.claim(
        f"On {name} MOAC ends with a larger hypervolume than {', '.join(differences)}",
        f"difference to each: {'; '.join(f'{key} {_told(change)}' for key, change in differences.items())}.",
        map(compare.above, differences.values()),
        _title(name),
    )


def _told(difference: Mean) -> str:
    """A difference and what it means."""
    above, below = (decide(difference).verdict == "holds" for decide in (compare.above, compare.below))
    return f"{difference} ({'larger' if above else 'smaller' if below else 'not told apart'})"


def _beats_peer(name: str, table: Parameters, methods: Methods, peer: Peer) -> Claim:
    """Against an agent with seeds of its own."""
    ours, theirs = (_volume(table, points) for points in (methods[MAIN]["discounted"], peer.discounted))
    difference = compare.apart(ours, theirs)
    return compare.claim(
        f"On {name} MOAC has a larger hypervolume after {methods[MAIN]['steps'][-1]:,} steps than morl-baselines' "
        f"{peer.name} after {peer.steps:,}",
        f"{statistics.mean(ours)} against {statistics.mean(theirs)}, difference {_told(difference)}; {len(ours)} "
        f"trials against {len(theirs)} seeds.",
        [compare.above(difference)],
        _title(name),
    )


def _title(name: str) -> str:
    return f"{name}: where methods end"


def _table(name: str, table: Parameters, methods: Methods, peer: Peer | None) -> Table:
    """Discounted returns and hypervolume of the final policies, and of those that training begins with."""
    names = playing.objectives(str(table["env"]), methods[MAIN]["discounted"].shape[1])
    rows: list[tuple[Value, ...]] = [
        (key, int(found["steps"][-1]) if "steps" in found else 0, *_row(table, found["discounted"]), _share(found))
        for key, found in methods.items()
    ]
    caption = (
        f"Discounted returns of the final policies in {table['episodes']} episodes: means over {table['trials']} "
        f"trials with 95 % intervals. The hypervolume is the mean of the trials', each above {table['reference']}; "
        "`ended` is the share of episodes that end before their time limit."
    )
    if peer is not None:
        rows.append((peer.name, peer.steps, *_row(table, peer.discounted), None))
        caption += (
            f" {peer.name} ({peer.settings}; {len(peer.discounted)} seeds, {peer.cpu_seconds:.0f} CPU seconds each): "
            f"{peers.where_from()}."
        )
    return Table(_title(name), caption, ("method", "steps", *names, "hypervolume", "ended"), tuple(rows))


def _share(found: Arrays) -> float:
    return float(found["ended"].mean())


def _row(table: Parameters, points: Any) -> tuple[str, ...]:
    columns = [*points.T, _volume(table, points)]
    return tuple(str(statistics.mean(column)) for column in columns)
