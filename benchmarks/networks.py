"""The actor's update of a network beside TorchJD's: one hidden layer, softmax over actions, M objectives.

An update is a forward pass, the gradients of M losses as their Gram matrix, weights, a direction and a step. Best of
several repeats on either side: both run on two threads, and whoever shares the machine slows them down unevenly.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from _recorded import keep
from _timing import run_peer
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from moac import actor, weighting
from moac.policies import SoftmaxMLP
from moac.policies.networks import Vectors
from moac.training.compiled import compiler_options
from moac.types import Batch

INPUTS, HIDDEN, ACTIONS, REPEATS, ROUNDS = 400, 128, 150, 20, 4
SIZES = ((128, 7), (512, 7), (512, 28), (2048, 7), (2048, 28))
TARGETS = {(128, 7): 8.0, (512, 7): 2.0, (2048, 7): 1.2}
STEPS = 20
"""Updates in one call when trials are timed."""
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
        fastest = _compare(size, ours[size], theirs[size])
        keep(f"networks, {size[0]}, {size[1]}", ms=ours[size]["min-norm"], peer_ms=fastest["MGDA"],
             without=[ours[size]["uniform"], fastest["mean"]], scalarised_ms=ours[size]["scalarised"],
             peer=f"TorchJD {peer['torchjd']}")  # fmt: skip
    _growth(ours)
    _curve()
    _trials()


def _compare(size: tuple[int, int], ours: dict[str, float], theirs: dict[str, float]) -> dict[str, float]:
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
    return fastest


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
    """Eight seeds and one, as training runs them, each trial on one device.

    Beside one seed on one core, and beside one that has the machine to itself: XLA spreads its independent products
    over all cores, which leaves eight seeds nothing to gain.
    """
    devices = len(jax.local_devices())
    for batch in (128, 512):
        eight, one, core = _row(devices, batch) * 8 / devices, _row(1, batch), _on_one_core(batch)
        target = "   target <= 6" if batch == 512 else ""
        print(
            f"  batch {batch}: 8 seeds on {devices} devices, as training runs them: {eight / core:.2f} times one on "
            f"one core{target}; {eight / one:.2f} times one with all cores, where the cores full would be "
            f"{8 * core / devices / one:.2f}"
        )


def _row(devices: int, B: int) -> float:
    """Milliseconds of an update of as many seeds as devices, in the compiled loop of the driver."""
    mesh, along = Mesh(np.array(jax.local_devices()[:devices]), ("device",)), PartitionSpec("device")
    batch, delta, theta = _data(B, 7)
    update = _update("min-norm")

    def steps(theta: Any, batch: Batch, delta: jax.Array) -> Any:
        return jax.lax.fori_loop(0, STEPS, lambda _, x: jax.vmap(update)(x, batch, delta), theta)

    program = jax.shard_map(steps, mesh=mesh, in_specs=along, out_specs=along, check_vma=False)
    stacked = jax.tree.map(lambda x: jnp.stack([x] * devices), (theta, batch, delta))
    placed = jax.device_put(stacked, NamedSharding(mesh, along))
    return _best(jax.jit(program, compiler_options=compiler_options()), *placed) / STEPS


def _on_one_core(B: int) -> float:
    """Milliseconds of an update of one seed in a process that may use one core only."""
    core = str(min(os.sched_getaffinity(0)))
    command = ["taskset", "-c", core, sys.executable, __file__, str(B)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


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


if __name__ == "__main__":
    print(_row(1, int(sys.argv[1])))
