"""What a built dataset costs in use: the features of a batch beside one update on it, and memory."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from _timing import measure
from _usage import measured

import moac
from moac import algorithm, settings, weighting
from moac.critic import MLPCritic
from moac.logs import LoggedDataset, states
from moac.logs.states import next_observation, observation
from moac.policies import SoftmaxMLP
from moac.policies.networks import Network, Vectors
from moac.types import Batch

HIDDEN, BATCH = 128, 512
TARGET_BATCH, TARGET_RESIDENT, ROWS = 0.1, 100e6, 500_000
PUBLISHED_STATE = 1044
"""Numbers of a state in the public TSCAC code, kept twice for each row, in float64."""
_LOAD = """
import json, os, sys
from pathlib import Path
import jax
from moac.logs import LoggedDataset
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
jax.block_until_ready(jax.numpy.zeros(3) + 1)
before = resident()
dataset = LoggedDataset.from_parquet(sys.argv[1])
total = sum(float(array.sum()) for array in (dataset.user, dataset.reward, dataset.end, dataset.tables.history))
print(json.dumps({"rows": dataset.num_rows, "bytes": dataset.nbytes, "resident": resident() - before}))
"""


def report_batch(folder: Path) -> None:
    """Features of a batch's rows and of their successors, beside one update on them; neither includes compilation."""
    dataset = LoggedDataset.from_parquet(folder)
    rows = jax.random.randint(jax.random.key(0), (BATCH,), 0, dataset.num_rows)
    assemble = jax.jit(
        lambda data, rows: [states.features(data.tables, look(data, rows)) for look in (observation, next_observation)]
    )
    assembling = _best(lambda: assemble(dataset.data, rows))
    update, arguments = _update(dataset, rows, *assemble(dataset.data, rows))
    updating = _best(lambda: update(*arguments))
    print(
        f"  {BATCH} rows of {dataset.num_features} features and their successors: {1e3 * assembling:.2f} ms; one "
        f"update on them, hidden {HIDDEN}, {dataset.num_actions} actions: {1e3 * updating:.2f} ms\n"
        f"  batch / update: {assembling / updating:.3f}   target < {TARGET_BATCH}"
    )


def report_memory(folder: Path) -> None:
    """Of the dataset once loaded, in a process of its own, scaled to half a million rows."""
    loaded = measured([sys.executable, "-c", _LOAD, str(folder)]).answer
    scale, dense = ROWS / loaded["rows"], 2 * 8 * PUBLISHED_STATE * ROWS
    print(
        f"  {ROWS:,} rows: {loaded['bytes'] * scale / 1e6:.0f} MB of arrays, {loaded['resident'] * scale / 1e6:.0f} MB "
        f"resident   target <= {TARGET_RESIDENT / 1e6:.0f}; the published dense form {dense / 1e9:.1f} GB"
    )


def _update(dataset: LoggedDataset, rows: Any, x: Any, x_next: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """One iteration of the algorithm, compiled, and its arguments; the critic learns from the actor's batch."""
    config = moac.Config(
        setting=moac.Discounted(0.9), num_critic_steps=1, critic_batch_size=BATCH, actor_batch_size=BATCH,
        actor_step_size=0.01, critic_step_size=0.01,
    )  # fmt: skip
    inputs = Vectors(x.shape[1])
    policy = SoftmaxMLP(inputs, (HIDDEN,), dataset.num_actions)
    critic = MLPCritic(Network(inputs, (HIDDEN,), dataset.num_signals))
    rule = weighting.with_momentum(weighting.min_norm(), "1/t")
    init, update = algorithm.build(settings.resolve(config, dataset.spec), dataset.spec, policy, critic, rule)
    data = dataset.data
    batch = Batch(x, data.action[rows].astype(jnp.int32), data.reward[rows], x_next, data.terminated[rows])
    return jax.jit(update), (init(jax.random.key(1)), jax.tree.map(lambda leaf: leaf[None], batch), batch)


def _best(call: Callable[[], Any], repeats: int = 30) -> float:
    jax.block_until_ready(call())
    return measure(lambda: jax.block_until_ready(call()), repeats).best
