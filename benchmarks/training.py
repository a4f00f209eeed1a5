"""Training on a finite model: environment steps per second, beside the same algorithm in C and a tabular peer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
from _recorded import keep
from _timing import Timing, measure, run_peer
from kernel import FLAGS, Kernel

import moac
from moac import momdp
from moac.types import Evaluation

TRIALS, ITERATIONS = 500, 200
DISCOUNT, ACTOR_STEP_SIZE, CRITIC_STEP_SIZE = 0.9, 20.0, 0.5
NUM_CRITIC_STEPS, CRITIC_BATCH, ACTOR_BATCH = 10, 32, 64
STEPS_PER_ITERATION = NUM_CRITIC_STEPS * CRITIC_BATCH + ACTOR_BATCH
TARGET_OVER_C, LIMIT_OVER_C, TARGET_OVER_PEER = 2.5, 3.0, 500
STEPS_PER_CELL = 2_000_000


def report() -> None:
    """The comparison on resource-gathering-v0, then how the speed changes with trials, objectives and states."""
    print(
        f"resource-gathering-v0, discount {DISCOUNT}, N = {NUM_CRITIC_STEPS}, D = {CRITIC_BATCH}, B = {ACTOR_BATCH}, "
        f"{TRIALS} trials x {ITERATIONS} iterations = {TRIALS * ITERATIONS * STEPS_PER_ITERATION / 1e6:.0f} M steps;\n"
        "best of 3 after a run of the same shapes: neither compilation nor the exact evaluation of policies is in the\n"
        "times. CPU seconds count all threads."
    )
    model = momdp.library.resource_gathering()
    in_c = _report_kernel(model)
    ours = _report_ours(model)
    print(f"  CPU per step, moac / C kernel: {ours / in_c:.2f}   target <= {TARGET_OVER_C}, must be <= {LIMIT_OVER_C}")
    peer = _report_peer(ours)
    keep("training", ns=1e9 * ours, c_ns=1e9 * in_c, **peer)
    _report_scaling()


def config(iterations: int, actor_step_size: float = ACTOR_STEP_SIZE) -> moac.Config:
    """The run's settings, logged once."""
    return moac.Config(
        setting=moac.Discounted(DISCOUNT),
        num_iterations=iterations,
        num_critic_steps=NUM_CRITIC_STEPS,
        critic_batch_size=CRITIC_BATCH,
        actor_batch_size=ACTOR_BATCH,
        actor_step_size=actor_step_size,
        critic_step_size=CRITIC_STEP_SIZE,
        num_evaluations=1,
    )


class Unevaluated(momdp.FiniteMOMDP):
    """A model whose policies are not evaluated while they train."""

    @classmethod
    def of(cls, model: momdp.FiniteMOMDP) -> Unevaluated:
        """The same model."""
        return cls(**{field.name: getattr(model, field.name) for field in fields(model)})

    def evaluate(self, policy: object, theta: np.ndarray, setting: object) -> Evaluation:
        """Nothing is known."""
        del policy, setting
        nothing = np.full(len(theta), np.nan)
        return Evaluation(np.full((len(theta), self.spec.num_objectives), np.nan), nothing, nothing, nothing, "exact")


def _report_kernel(model: momdp.FiniteMOMDP) -> float:
    """C's CPU seconds per step; its returns are printed as evidence that it learns."""
    kernel = Kernel(model)

    def run() -> tuple[np.ndarray, np.ndarray]:
        return kernel.run(
            TRIALS,
            iterations=ITERATIONS,
            critic_steps=NUM_CRITIC_STEPS,
            critic_batch=CRITIC_BATCH,
            actor_batch=ACTOR_BATCH,
            discount=DISCOUNT,
            actor_step_size=ACTOR_STEP_SIZE,
            critic_step_size=CRITIC_STEP_SIZE,
        )

    per_step = _line(f"C kernel, one core, cc {' '.join(FLAGS)}", _timed(run))
    theta, lam = run()
    setting = moac.Discounted(DISCOUNT)
    before = momdp.evaluate(model, np.zeros(theta.shape[1:]), setting).returns
    after = momdp.evaluate(model, theta.astype(np.float64), setting).returns.mean(axis=0)
    print(f"    returns {_vector(before)} before, {_vector(after)} after; weights {_vector(lam.mean(axis=0))}")
    return per_step


def _report_ours(model: momdp.FiniteMOMDP) -> float:
    """Our CPU seconds per step; the returns must agree with the C kernel's."""
    source = Unevaluated.of(model)
    per_step = _line("moac", _timed(lambda: moac.train(source, config(ITERATIONS), trials=TRIALS, seed=0)))
    result = moac.train(source, config(ITERATIONS), trials=TRIALS, seed=0)
    exact = measure(lambda: momdp.evaluate(model, result.policy, moac.Discounted(DISCOUNT)).gap, repeats=3)
    returns = momdp.evaluate(model, result.policy, moac.Discounted(DISCOUNT)).returns.mean(axis=0)
    print(f"    returns {_vector(returns)} after; weights {_vector(result.history.weights[:, -1].mean(axis=0))}")
    print(f"    the exact oracle: {1e3 * exact.best_cpu / TRIALS:.2f} CPU ms a policy (returns, gradient, gap)")
    return per_step


def _report_peer(ours: float) -> dict[str, Any]:
    peer = run_peer("moqlearning.py")
    rate = peer["steps_per_cpu_second"]
    print(
        f"  MOQLearning, morl-baselines {peer['morl-baselines']}: {peer['steps_per_second']:,.0f} steps/s, "
        f"{1e9 / rate:,.0f} CPU ns/step"
    )
    print(f"  steps per CPU second, moac / MOQLearning: {1 / (ours * rate):,.0f}   target >= {TARGET_OVER_PEER}")
    return {"peer_ns": 1e9 / rate, "peer": f"morl-baselines {peer['morl-baselines']} MOQLearning"}


def _timed(run: Callable[[], object]) -> Timing:
    run()
    return measure(run, repeats=3)


def _line(name: str, timing: Timing) -> float:
    """Print one line, return the CPU seconds per step."""
    steps = TRIALS * ITERATIONS * STEPS_PER_ITERATION
    per_step = timing.best_cpu / steps
    print(
        f"  {name:56} {steps / timing.best / 1e6:8.2f} M steps/s wall   {1e9 * per_step:7.1f} CPU ns/step", flush=True
    )
    return per_step


def _report_scaling() -> None:
    """Random models with 4 actions and 4 successors; 100 states, 3 objectives and 64 trials unless varied."""
    print("Scaling, M steps/s wall (CPU ns/step), random models: 100 states, 3 objectives, 64 trials unless varied")
    _table("trials", [1, 4, 16, 64, 256, 1024, 4096], lambda n: _cell(trials=n))
    _table("objectives", [1, 2, 4, 8, 16, 32], lambda n: _cell(objectives=n))
    _table("states", [10, 100, 1_000, 10_000], lambda n: _cell(states=n))


def _table(name: str, values: list[int], cell: Callable[[int], str]) -> None:
    print(f"  {name}")
    for value in values:
        print(f"    {value:6,} {cell(value)}", flush=True)


def _cell(trials: int = 64, objectives: int = 3, states: int = 100) -> str:
    model = momdp.library.random_ergodic(0, states, 4, objectives, num_successors=4)
    iterations = int(np.clip(STEPS_PER_CELL / (trials * STEPS_PER_ITERATION), 5, 500))
    source = Unevaluated.of(model)
    timing = _timed(lambda: moac.train(source, config(iterations, actor_step_size=0.1), trials=trials, seed=0))
    steps = trials * iterations * STEPS_PER_ITERATION
    return f"{steps / timing.best / 1e6:8.2f} ({1e9 * timing.best_cpu / steps:.0f})"


def _vector(values: np.ndarray) -> str:
    return "(" + ", ".join(f"{value:.4f}" for value in values) + ")"
