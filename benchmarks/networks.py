"""The actor's update of a network beside TorchJD's: one hidden layer, softmax over actions, M objectives.

An update is a forward pass, the gradients of M losses as their Gram matrix, weights, a direction and a step. Best of
several repeats on either side: both run on two threads, and whoever shares the machine slows them down unevenly.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from _timing import run_peer

from moac import actor, weighting
from moac.networks import Vectors
from moac.policy import SoftmaxMLP
from moac.training.compiled import compiler_options
from moac.types import Batch

INPUTS, HIDDEN, ACTIONS, REPEATS, ROUNDS = 400, 128, 150, 40, 2
SIZES = ((128, 7), (512, 7), (512, 28), (2048, 7), (2048, 28))
TARGETS = {(128, 7): 8.0, (512, 7): 2.0, (2048, 7): 1.2}
CURVE = (1, 2, 4, 7, 14, 28, 64)
POLICY = SoftmaxMLP(Vectors(INPUTS), (HIDDEN,), ACTIONS)
Update = Callable[[Any, Batch, jax.Array], Any]


def report() -> None:
    """TorchJD, growth with M, trials side by side."""
    threads = len(os.sched_getaffinity(0))
    ours = {size: {} for size in SIZES}
    theirs: dict[tuple[int, int], dict[str, float]] = {size: {} for size in SIZES}
    for _ in range(ROUNDS):
        peer = run_peer("torchjd_actor.py", json.dumps(SIZES), str(threads))
        for size, found in zip(SIZES, peer["times"], strict=True):
            _keep(theirs[size], found["ms"])
            _keep(ours[size], _times(*size))
    print(f"obs {INPUTS}, hidden {HIDDEN}, {ACTIONS} actions, {threads} threads; best milliseconds of an update;")
    print(f"  TorchJD {peer['torchjd']}, torch {peer['torch']}, the faster of its two engines")
    for size in SIZES:
        _compare(size, ours[size], theirs[size])
    _growth(ours)
    _curve()
    _trials()


def _compare(size: tuple[int, int], ours: dict[str, float], theirs: dict[str, float]) -> None:
    fastest = {
        rule: min(theirs[f"{engine}, {rule}"] for engine in ("autojac", "autogram")) for rule in ("MGDA", "mean")
    }
    target = f"   target >= {TARGETS[size]}" if size in TARGETS else ""
    print(
        f"  batch {size[0]:4}, M = {size[1]:2}: moac {ours['min-norm']:6.2f}, TorchJD MGDA {fastest['MGDA']:6.2f}: "
        f"{fastest['MGDA'] / ours['min-norm']:.1f} times{target}; without solvers {ours['uniform']:.2f} against "
        f"{fastest['mean']:.2f}: {fastest['mean'] / ours['uniform']:.1f} times; scalarised {ours['scalarised']:.2f} "
        f"(torch {theirs['scalarised']:.2f})"
    )


def _growth(ours: dict[tuple[int, int], dict[str, float]]) -> None:
    for batch, target in ((512, 1.5), (2048, 3.0)):
        ratio = ours[batch, 28]["min-norm"] / ours[batch, 7]["min-norm"]
        print(f"  batch {batch}: M = 28 / M = 7: {ratio:.2f}   target <= {target}")
    ratio = ours[512, 7]["min-norm"] / ours[512, 7]["scalarised"]
    print(f"  batch 512: M = 7 / a scalarised update: {ratio:.2f}   target <= 3")


def _curve() -> None:
    found = {M: _times(512, M)["min-norm"] for M in CURVE}
    print("  batch 512, milliseconds over M: " + ", ".join(f"{M}: {ms:.2f}" for M, ms in found.items()))


def _trials() -> None:
    """Eight seeds and one: as training runs them, each trial on one device, and vmapped."""
    batch, delta, theta = _data(512, 7)
    found = jax.local_devices()
    update = jax.jit(_update("min-norm"), compiler_options=compiler_options())
    placed = [jax.device_put((theta, batch, delta), found[k % len(found)]) for k in range(8)]
    one = _best(lambda: update(*placed[0]))
    eight = _best(lambda: [update(*each) for each in placed])
    print(f"  8 seeds / one, over {len(found)} devices, as training runs them: {eight / one:.2f}   target <= 6")
    stacked = jax.tree.map(lambda x: jnp.stack([x] * 8), (theta, batch, delta))
    together = _best(jax.jit(jax.vmap(_update("min-norm"))), *stacked)
    alone = _best(jax.jit(_update("min-norm")), theta, batch, delta)
    print(f"  8 seeds vmapped / one on all threads: {together / alone:.2f}")


def _times(B: int, M: int) -> dict[str, float]:
    batch, delta, theta = _data(B, M)
    names = ("min-norm", "uniform", "scalarised")
    return {name: _best(jax.jit(_update(name)), theta, batch, delta) for name in names}


def _data(B: int, M: int) -> tuple[Batch, jax.Array, Any]:
    generator = np.random.default_rng(0)
    x = jnp.asarray(generator.random((B, INPUTS)), jnp.float32)
    delta = jnp.asarray(generator.normal(size=(B, M)), jnp.float32)
    batch = Batch(x, jnp.asarray(generator.integers(ACTIONS, size=B)), delta, x)
    return batch, delta, POLICY.init(jax.random.key(0))


def _update(name: str) -> Update:
    if name == "scalarised":
        return _scalarised
    rule = {"min-norm": weighting.min_norm, "uniform": weighting.uniform}[name]()

    def update(theta: Any, batch: Batch, delta: jax.Array) -> Any:
        g = actor.gradients(POLICY, theta, batch, delta)
        _, lam = rule.update((), g.gram, 1)
        keep = jnp.sum(g.gram) * 1e-30  # so that the Gram matrix is computed also where the rule does not look at it
        return jax.tree.map(lambda x, d: x + (1e-3 + keep) * d, theta, g.direction(lam))

    return update


def _scalarised(theta: Any, batch: Batch, delta: jax.Array) -> Any:
    def loss(theta: Any) -> jax.Array:
        log_pi = jax.nn.log_softmax(POLICY.logits(theta, batch.observation))
        return jnp.mean(jnp.take_along_axis(log_pi, batch.action[:, None], 1)[:, 0] * jnp.mean(delta, axis=1))

    return jax.tree.map(lambda x, d: x + 1e-3 * d, theta, jax.grad(loss)(theta))


def _best(update: Callable[..., Any], *arguments: Any) -> float:
    times = []
    for _ in range(REPEATS + 1):
        started = time.perf_counter()
        jax.block_until_ready(update(*arguments))
        times.append(1e3 * (time.perf_counter() - started))
    return min(times[1:])


def _keep(best: dict[str, float], found: dict[str, float]) -> None:
    best.update({name: min(ms, best.get(name, ms)) for name, ms in found.items()})
