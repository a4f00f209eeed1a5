"""Coverage and width of `moac.certify` against the exact oracle: the table of docs/certificates.md.

    python benchmarks/certificates.py OUT.jsonl [REPETITIONS [EPISODES …]]

A line of OUT.jsonl is one case at one number of episodes; what is there is not computed again, and after four minutes
the exit code 3 asks for another call. `--table OUT.jsonl` prints the page's table, `--draw OUT.svg` writes its figure.

The episodes have a seed of their own: nothing about the intervals was chosen by it. How the episodes are split, the
margin and the variance along g were chosen by seed 1 of the same cases (100 repetitions of 1,000 episodes), and by
normal draws of known covariance.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from scipy.stats import binom

from moac import Discounted, momdp, simplex
from moac.momdp import oracle
from moac.momdp.sampling import _theta_gradients, action_probabilities
from moac.policies import SoftmaxMLP, SoftmaxTable
from moac.policies.networks import States
from moac.report import figures
from moac.theory.episodes import sampler
from moac.theory.gap import Look
from moac.theory.scores import Scores
from moac.training.trained import TrainedPolicy

SIZES = (250, 1000, 4000)
ALPHA = 0.05
SEED = 2027
"""Of the episodes."""
MEANINGLESS = 1e6
"""Times the oracle's width, where a reward that was never seen makes the oracle's own error nearly 0."""
PATIENCE = 240
"""CPU seconds of one call."""
EIGHT = Discounted(0.8)


def random_model(M: int, opposed: float | None = None) -> momdp.FiniteMOMDP:
    """Six states, three actions, rewards with noise.

    The last expected reward is minus the mean of the others but for `opposed` times itself: if that is 0, every policy
    is stationary.
    """
    generator = np.random.default_rng(M)
    P, r = generator.dirichlet(np.ones(6), (6, 3)), generator.normal(size=(6, 3, M))
    if opposed is not None:
        r[..., -1] = -r[..., :-1].mean(axis=-1) + opposed * r[..., -1]
    noise = generator.normal(size=(6, 3, 6, M))
    return momdp.FiniteMOMDP.from_dense(P, r[:, :, None] + noise - np.einsum("sat,satm->sam", P, noise)[:, :, None])


Case = tuple[Any, Any, Any, Discounted]
"""Model, policy, θ, setting."""


def cases() -> dict[str, Case]:
    """All of them by their names."""
    found: dict[str, Case] = {}

    def add(name: str, model: Any, scale: float, setting: Discounted = EIGHT) -> None:
        policy = SoftmaxTable(model.num_states, model.num_actions)
        theta = scale * np.random.default_rng(7).normal(size=(model.num_states, model.num_actions))
        found[name] = model, policy, theta.astype(np.float32), setting

    for M in (2, 3, 7):
        add(f"random, M = {M}", random_model(M), 0.3)
        add(f"random, M = {M}, nearly stationary", random_model(M, opposed=0.1), 0.3)
        add(f"random, M = {M}, saturated", random_model(M), 8.0)
    add("random, M = 3, stationary", random_model(3, opposed=0.0), 0.3)
    unequal = Discounted((0.5, 0.8, 0.9))
    add("random, M = 3, γ = .5, .8, .9", random_model(3), 0.3, unequal)
    add("random, M = 3, γ = .5, .8, .9, saturated", random_model(3), 8.0, unequal)
    nine = Discounted(0.9)
    add("fishwood", momdp.library.fishwood(), 0.5, nine)
    for name in ("resource_gathering", "deep_sea_treasure"):
        model = getattr(momdp.library, name)()
        add(name.replace("_", "-"), model, 0.5, nine)
        add(f"{name.replace('_', '-')}, saturated", model, 8.0, nine)
    for M in (2, 3, 7):
        model, policy = random_model(M), SoftmaxMLP(States(6), (8,), 3)
        theta = jax.tree.map(lambda leaf: 1.5 * leaf, policy.init(jax.random.key(M)))
        found[f"random, M = {M}, MLP"] = model, policy, (*theta[:-1], 50 * theta[-1]), Discounted(0.8)
    return found


def exact(model: Any, policy: Any, theta: Any, setting: Discounted) -> np.ndarray[Any, Any]:
    """True gradients in θ [M, P]."""
    one = jax.tree.map(lambda leaf: np.asarray(leaf)[None], theta)
    pi = action_probabilities(model, policy, one)
    gradient = oracle.of_policy(model, pi, setting).gradient
    with jax.enable_x64(True):
        double = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), one)
        return np.asarray(_theta_gradients(policy, double, gradient))[0, :, :, 0]


class _Values:
    """The exact V as a baseline."""

    def __init__(self, V: Any) -> None:
        self._V = V

    def __call__(self, x: Any) -> Any:
        return self._V[x]


def oracle_width(case: Case, n: int, G: Any) -> float:
    """3.92 standard errors of who knows V and λ*, from all n episodes."""
    model, policy, theta, setting = case
    gamma = setting.discounts(model.num_objectives)
    one = jax.tree.map(lambda leaf: np.asarray(leaf)[None], theta)
    trained = TrainedPolicy(policy, one, model.spec.observations, 0, setting)
    episodes = sampler(model, trained, gamma, 10**6)(0, 2000)
    V = oracle.of_policy(model, action_probabilities(model, policy, one)[0], setting).values
    lam = np.asarray(simplex.min_norm(G).weights)
    edges = np.searchsorted(episodes.number, np.arange(episodes.count + 1))
    signal = episodes.advantages(_Values(V), gamma) @ lam  # pyright: ignore[reportArgumentType]
    Y = Scores(policy, trained.trial_theta).sums(episodes.x, signal[:, None], edges)[:, 0].astype(np.float64)
    g, Y = lam @ G, Y - Y.mean(axis=0)
    K = Y @ Y.T / (len(Y) - 1)
    variance = 4 * np.mean((Y @ g) ** 2) / n + 2 * ((K**2).sum() - (np.diag(K) ** 2).sum()) / n**2
    return 3.92 * float(np.sqrt(variance))


def measured(case: Case, n: int, repetitions: int, natural: bool) -> dict[str, Any]:
    """Coverage and widths of one case."""
    model, policy, theta, setting = case
    gamma, G = setting.discounts(model.num_objectives), exact(*case)
    gap = float(simplex.min_norm(G).squared_norm)
    one = jax.tree.map(lambda leaf: np.asarray(leaf)[None], theta)
    trained = TrainedPolicy(policy, one, model.spec.observations, 0, setting)
    scores, rows, rarest = Scores(policy, trained.trial_theta), [], 1.0
    sample = sampler(model, trained, gamma, SEED)
    for repetition in range(repetitions):
        episodes = sample(n * repetition, n)
        look = Look(scores, episodes, gamma, model.spec.reward_bound)
        interval, truth = (look.natural if natural else look.theta).interval(ALPHA), gap
        if natural:
            truth = float(simplex.min_norm_from_gram(G @ look.metric.solve(G).T).squared_norm)
        rows.append((interval.low, interval.high, truth))
        rarest = min(rarest, float(episodes.rarest.min()))
    low, high, truth = np.array(rows).T
    covered = int(((low <= truth * (1 + 1e-9) + 1e-14) & (truth <= high)).sum())
    return {
        "gap": float(np.median(truth)),
        "episodes": n,
        "repetitions": repetitions,
        "covered": covered,
        "above": int((low > truth * (1 + 1e-9) + 1e-14).sum()),
        "p_value": float(binom.cdf(covered, repetitions, 1 - ALPHA)),
        "low": float(np.median(low)),
        "high": float(np.median(high)),
        "width": float(np.median(high - low)),
        "oracle_width": None if natural else oracle_width(case, n, G),
        "rarest": rarest,
    }


def main(out: Path, repetitions: int, sizes: tuple[int, ...]) -> None:
    """Go through what is missing, the small sizes first."""

    def done() -> set[tuple[str, int]]:
        lines = out.read_text().splitlines() if out.exists() else []
        return {(row["case"], row["episodes"]) for row in map(json.loads, lines)}

    everything = cases()
    for n in sizes:
        for name, case in everything.items():
            if time.process_time() > PATIENCE:
                sys.exit(3)
            for natural in (False, True) if name in ("random, M = 3", "random, M = 3, saturated") else (False,):
                label = f"{name}, metric F̂ + ζI" if natural else name
                if (label, n) not in done():
                    row = {"case": label, **measured(case, n, repetitions, natural)}
                    with out.open("a") as file:
                        file.write(json.dumps(row) + "\n")


def _cells(row: dict[str, Any] | None) -> tuple[str, str, str]:
    """Coverage, median interval and width beside the oracle's."""
    if row is None:
        return "not run", "not run", "not run"
    wider = row["width"] / (row["oracle_width"] or np.nan)
    interval = f"[{row['low']:.2g}, {row['high']:.2g}]"
    return f"{row['covered'] / row['repetitions']:.3f}", interval, f"{wider:.1f}" if wider < MEANINGLESS else "–"


def table(path: Path) -> str:
    """The table of docs/certificates.md: a line for each case."""
    by_case: dict[str, dict[int, dict[str, Any]]] = {}
    for row in map(json.loads, path.read_text().splitlines()):
        by_case.setdefault(row["case"], {})[row["episodes"]] = row
    header = ("case", "exact gap", "covers: 250, 1,000, 4,000", "median interval at 1,000", "at 4,000")
    lines = [(*header, "width / oracle's: 250, 1,000, 4,000"), ("---",) * 6]
    for case, rows in by_case.items():
        cells = [_cells(rows.get(n)) for n in SIZES]
        covers, ends, widths = zip(*cells, strict=True)
        gap = f"{next(iter(rows.values()))['gap']:.2g}"
        lines.append((case, gap, ", ".join(covers), *ends[1:], ", ".join(widths)))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@figures.styled
def draw() -> Any:
    """One certificate over the number of its episodes, far from a stationary point and at one."""
    found = cases()
    panels = {"Far from stationary": found["random, M = 3"], "Stationary: fishwood, whose gap is 0": found["fishwood"]}
    figure, axes = figures.grid(1, 2, (9.6, 3.4))
    for ax, (title, case) in zip(axes, panels.items(), strict=True):
        model, policy, theta, setting = case
        gamma, gap = setting.discounts(model.num_objectives), float(simplex.min_norm(exact(*case)).squared_norm)
        one = jax.tree.map(lambda leaf: np.asarray(leaf)[None], theta)
        trained = TrainedPolicy(policy, one, model.spec.observations, 0, setting)
        sizes, scores = [125 << k for k in range(9)], Scores(policy, trained.trial_theta)
        sample = sampler(model, trained, gamma, 0)
        looks = [Look(scores, sample(0, n), gamma, 1.0).theta.interval(ALPHA) for n in sizes]
        ends = np.array([(each.low, each.high) for each in looks])
        floor = ends[ends > 0].min() / 3
        ax.fill_between(sizes, np.maximum(ends[:, 0], floor), ends[:, 1], alpha=0.25, color=figures.COLOURS[0])
        ax.plot(sizes, ends[:, 1], color=figures.COLOURS[0], marker="o", markersize=3, label="95 % interval")
        if gap > floor:
            ax.axhline(gap, color="#333333", linestyle="--", label="exact gap")
        ax.set(xscale="log", yscale="log", xlabel="episodes", title=title)
    axes[0].set_ylabel("stationarity gap")
    axes[0].legend(loc="upper right")
    return figure


if __name__ == "__main__":
    if sys.argv[1] == "--table":
        print(table(Path(sys.argv[2])))
        sys.exit()
    if sys.argv[1] == "--draw":
        Path(sys.argv[2]).write_bytes(figures.rendered(draw(), "svg"))
        sys.exit()
    numbers = tuple(map(int, sys.argv[2:]))
    main(Path(sys.argv[1]), numbers[0] if numbers else 500, numbers[1:] or SIZES)
