"""One off-policy update beside TorchJD's: ρ, a TD step, the gradients of M losses, a pull to the behaviour, Adam."""

from __future__ import annotations

import os
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from _timing import run_peer

from moac import algorithm, parts, settings
from moac.config import Config, Discounted
from moac.policies.observations import LogSpec
from moac.types import Batch, Spec

INPUTS, HIDDEN, ACTIONS, OBJECTIVES, REPEATS, ROUNDS = 400, 128, 150, 7, 40, 2
BATCHES = {512: 2.0, 2048: None}
"""Rows of a batch, and the target."""


def report() -> None:
    """The same losses, optimisers and batches on either side; no sampling, no data."""
    threads = len(os.sched_getaffinity(0))
    print(f"obs {INPUTS}, hidden {HIDDEN}, {ACTIONS} actions, {OBJECTIVES} objectives, {threads} threads; best ms")
    for batch, target in BATCHES.items():
        ours, theirs = [], []
        for _ in range(ROUNDS):
            peer = run_peer("torchjd_offpolicy.py", str(batch), str(OBJECTIVES), str(threads))
            theirs.append(min(peer["ms"].values()))
            ours.append(_ours(batch))
        ratio = min(theirs) / min(ours)
        print(
            f"  batch {batch:4}: moac {min(ours):6.2f}, TorchJD {peer['torchjd']} (torch {peer['torch']}) "
            f"{min(theirs):6.2f}: {ratio:.1f} times" + ("" if target is None else f"   target >= {target}")
        )


def _ours(batch: int) -> float:
    config = Config(
        Discounted(0.5), 1, 1, batch, batch, 1e-4, 1e-3, policy="mlp", hidden=(HIDDEN,), optimiser="adam",
        critic_optimiser="adam", features="plain", normalise="none", behaviour_pull=0.3, momentum="1",
    )  # fmt: skip
    spec = Spec("log", tuple("abcdefg"), LogSpec(INPUTS), ACTIONS)
    resolved = settings.resolve(config, spec)
    init, update = algorithm.build(resolved, spec, *parts.build(resolved, spec, 0))
    state, critic, actor = init(jax.random.key(0)), _data(batch, 0), _data(batch, 1)
    stacked = jax.tree.map(lambda leaf: leaf[None], critic)
    compiled = jax.jit(update)
    times = []
    for _ in range(REPEATS + 1):
        started = time.perf_counter()
        state, _ = jax.block_until_ready(compiled(state, stacked, actor))
        times.append(1e3 * (time.perf_counter() - started))
    return min(times[1:])


def _data(B: int, seed: int) -> Batch:
    rng = np.random.default_rng(seed)

    def floats(*shape: int) -> Any:
        return jnp.asarray(rng.random(shape), jnp.float32)

    every = jax.nn.log_softmax(jnp.asarray(rng.normal(size=(B, ACTIONS)), jnp.float32)) if seed else None
    return Batch(
        floats(B, INPUTS), jnp.asarray(rng.integers(ACTIONS, size=B)), floats(B, OBJECTIVES), floats(B, INPUTS),
        jnp.zeros(B, bool), behaviour_log_prob=jnp.full(B, -5.0), behaviour_log_probs=every,
    )  # fmt: skip
