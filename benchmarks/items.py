"""Items by their features: one update beside the softmax of 150 actions, lists ranked a second, coverage by K."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from _timing import measure
from scipy.optimize import brentq

from moac import algorithm, parts, settings
from moac.config import Config, Discounted
from moac.kuairand import generate, simulator
from moac.logs import About, LoggedDataset, Rows, requests
from moac.offline import ncis, recommend
from moac.policies import Items, ItemsPolicy
from moac.policies.networks import Plain
from moac.policies.observations import LogSpec
from moac.training.compiled import compiler_options
from moac.training.result import prepare
from moac.training.trained import TrainedPolicy
from moac.types import Batch, Request, Spec

FEATURES, HIDDEN, BATCH, SIGNALS, CATALOGUE, DESCRIBED, LISTED = 460, 64, 512, 7, 7583, 12, 1000
STEPS, ROUNDS, ASKED, USERS, LOGS, ROWS = 5, 10, 4000, 5000, 200, 20_000
SHARES = (0.8, 0.5, 0.2)
"""Effective shares of rows that policies are made to have."""


def report() -> None:
    """States and items as large as KuaiRand-Pure's."""
    _updates()
    _ranking()
    for K in (150, 1000):
        print(f"  {K} actions, {LOGS} logs of {ROWS:,} rows, share of 95 % intervals that hold the truth:")
        print(_coverage(K))


def _updates() -> None:
    """CPU time of one update inside a program of several, as in training; all kinds in turn, under the same load."""
    kinds = {
        "softmax of 150 actions": _update(150, described=False),
        "150 items": _update(150),
        "1,000 items": _update(1000),
        f"lists of 1,000 out of {CATALOGUE:,} items": _update(CATALOGUE, LISTED),
        f"{CATALOGUE:,} items": _update(CATALOGUE),
    }
    spent: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(ROUNDS):
        for name, once in kinds.items():
            began = time.process_time()
            once()
            spent[name].append(1e3 * (time.process_time() - began) / STEPS)
    first = min(next(iter(spent.values())))
    for name, each in spent.items():
        print(
            f"  update, batch {BATCH}, {SIGNALS} signals, {name}: {min(each):.1f} CPU ms, {min(each) / first:.1f} times"
        )


def _update(K: int, listed: int = 0, described: bool = True) -> Any:
    config = Config(
        Discounted(0.5), 1, 1, BATCH, BATCH, 1e-4, 1e-3, policy="mlp", hidden=(HIDDEN,), optimiser="adam",
        critic_optimiser="adam", features="plain", normalise="l2", behaviour_pull=0.1,
    )  # fmt: skip
    spec = Spec("log", tuple("abcdefg"), LogSpec(FEATURES), K)
    resolved = settings.resolve(config, spec)
    built = parts.build(resolved, spec, 0)
    if described:
        items = Items.of(np.random.default_rng(0).normal(size=(K, DESCRIBED)))
        built = built._replace(policy=ItemsPolicy(Plain(FEATURES), (HIDDEN,), items))
    init, update = algorithm.build(resolved, spec, *built)
    state, critic, actor = init(jax.random.key(0)), _batch(K, listed, 0), _batch(K, listed, 1)
    stacked = jax.tree.map(lambda leaf: leaf[None], critic)

    def advance(state: Any, critic: Batch, actor: Batch) -> Any:
        return jax.lax.fori_loop(0, STEPS, lambda _, each: update(each, critic, actor)[0], state)

    compiled = jax.jit(advance, compiler_options=compiler_options())
    jax.block_until_ready(compiled(state, stacked, actor))
    return lambda: jax.block_until_ready(compiled(state, stacked, actor))


def _batch(K: int, listed: int, seed: int) -> Batch:
    rng = np.random.default_rng(seed)
    x, action = jnp.asarray(rng.random((BATCH, FEATURES)), jnp.float32), rng.integers(K, size=BATCH)
    seen: Any = x
    if listed:
        lists = np.sort([_with(rng.permutation(K)[:listed], one) for one in action], axis=1)
        seen = Request(x, jnp.asarray(lists, jnp.int32))
    every = jax.nn.log_softmax(jnp.asarray(rng.normal(size=(BATCH, listed or K)), jnp.float32)) if seed else None
    reward, ends = jnp.asarray(rng.random((BATCH, SIGNALS)), jnp.float32), jnp.zeros(BATCH, bool)
    known = {"behaviour_log_prob": jnp.full(BATCH, -5.0), "behaviour_log_probs": every}
    return Batch(seen, jnp.asarray(action), reward, seen, ends, **known)


def _with(ids: Any, one: Any) -> Any:
    """With an id in the place of the first, unless it is there."""
    return ids if one in ids else np.append(ids[1:], one)


def _ranking() -> None:
    """Requests with 1,000 candidates each: ranked, and from a CSV file to a Parquet file."""
    rng = np.random.default_rng(0)
    user, action = np.repeat(np.arange(USERS), 4), rng.integers(CATALOGUE, size=4 * USERS)
    rows = Rows(user, action, rng.random((len(user), SIGNALS)), context=rng.integers((15, 24, 7), size=(len(user), 3)))
    about = About(
        users=rng.random((USERS, 133)), actions=rng.random((CATALOGUE, DESCRIBED)), action_ids=range(CATALOGUE)
    )
    dataset = replace(LoggedDataset.from_numpy(rows, about), context_names=("tab", "hour", "day"))
    policy = prepare(dataset, Config(policy="items", hidden=(HIDDEN,)), 1, 0).parts.policy
    theta = jax.tree.map(lambda leaf: 0.1 * rng.normal(size=(1, *leaf.shape)), policy.init(jax.random.key(0)))
    trained = TrainedPolicy(policy, jax.tree.map(np.float32, theta), dataset.spec.observations)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "requests.csv"
        history, lists = ("|".join(map(str, rng.permutation(CATALOGUE)[:n])) for n in (20, LISTED))
        lines = (f"{k % USERS},{k % 15},{k % 24},{k % 7},{history},{lists}\n" for k in range(ASKED))
        path.write_text("user_id,tab,hour,day,history,candidates\n" + "".join(lines))
        blocks = list(requests.read(path, trained.catalogue, lambda: dataset))
        ranking = measure(lambda: list(recommend.answered(trained, blocks, 20)), repeats=3)

        def score() -> None:
            read = requests.read(path, trained.catalogue, lambda: dataset)
            recommend.write(Path(folder) / "scores.parquet", recommend.answered(trained, read, 20))

        file = measure(score, repeats=3)
    rates = [f"{ASKED / each.best_cpu:,.0f}" for each in (ranking, file)]
    print(f"  {LISTED:,} candidates each: {rates[0]} requests ranked a CPU second, {rates[1]} from CSV to Parquet")


def _coverage(K: int) -> str:
    """Tilts of the logging policy to some effective shares; propensities are known, as are the policies' values."""
    model = generate.UserModel.of(seed=0, num_videos=K)
    z = np.random.default_rng(1).normal(size=K) + np.random.default_rng(2).normal(size=32)[model.video_class]
    weight = model.row_share[:, None] * simulator.TAB_SHARE

    def tilted(tau: float) -> Any:
        p = model.behaviour * np.exp(tau * z)
        return p / p.sum(axis=-1, keepdims=True)

    def share(tau: float) -> float:
        return 1 / float((weight * (tilted(tau) ** 2 / model.behaviour).sum(axis=-1)).sum())

    policies = {s: tilted(float(brentq(lambda tau, s=s: share(tau) - s, 0, 20))) for s in SHARES}  # pyright: ignore
    names, lines = ("Click", "WatchTime"), list[str]()
    held: dict[float, list[Any]] = {s: [] for s in SHARES}
    seen: dict[float, list[Any]] = {s: [] for s in SHARES}
    for seed in range(LOGS):
        log = generate.log(ROWS, seed, model=model)
        given = ncis.Logged.of(log.user, log.reward[:, [0, 6]], log.propensity, signal_names=names)
        taken = {str(s): p[log.kind, log.tab, log.action] for s, p in policies.items()}
        found = ncis.evaluate(given, taken, options=ncis.Options(draws=400, caps=())).policies
        for s, p in policies.items():
            truth, one = model.true_values(p)[[0, 6]], found[str(s)]
            held[s].append((one.ncis.interval[:, 0] <= truth) & (truth <= one.ncis.interval[:, 1]))
            seen[s].append((one.diagnostics[0].row_effective_share, one.verdict.level == "not trusted"))
    for s in SHARES:
        told = ", ".join(f"{name} {share:.3f}" for name, share in zip(names, np.mean(held[s], axis=0), strict=True))
        share_seen, refused = np.mean(seen[s], axis=0)
        lines.append(f"    share {s:g} (seen {share_seen:.2f}): {told}; not trusted {refused:.2f}")
    return "\n".join(lines)
