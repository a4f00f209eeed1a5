"""The published protocol, end to end."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from moac.logs.dataset import LoggedDataset
from moac_studies.compat import agents, buffers
from moac_studies.compat.agents import Recipe
from moac_studies.compat.buffers import Buffer
from moac_studies.compat.table import Table

WIDTH, CAP = 25.0, 10.0
_EVALUATIONS, _BLOCK = 10, 2048


def run(dataset: LoggedDataset | str | Path, steps: int = 500, seed: int = 0) -> Table:
    """Behavior-Clone, stage one, TSCAC and PDPG as published, on the rows at hand.

    Args:
        dataset: its last 6 % of rows are the protocol's test rows, whatever users they are of. Of a folder only train
            and validation users are read: test users are for the sound protocol.
        steps: of each learner, where the published ones took 240,000 to 1,000,000.
        seed: of networks and batches.
    """
    if steps < 1 or seed < 0:
        raise ValueError(f"`steps` must be at least 1 and `seed` not negative, got {steps} and {seed}.")
    if not isinstance(dataset, LoggedDataset):
        dataset = LoggedDataset.from_parquet(dataset).subset(["train", "validation"])
    train, test, lacking = buffers.of(dataset)
    keys = jax.random.split(jax.random.key(seed), 4)
    mode = _over(test, _mode, _clone(test, keys[0], steps))
    judge = partial(_judged, test, mode)
    values, chosen = {"Behavior-Clone": judge(mode)}, {"Behavior-Clone": steps}
    fixed = agents.start(keys[1], train, jnp.zeros(dataset.num_signals)).actor
    for name, recipe, key in zip(("stage one", "TSCAC", "PDPG"), _recipes(dataset), keys[1:], strict=True):
        best, values[name], chosen[name] = _best(train, (recipe, fixed), judge, key, steps)
        fixed = best if name == "stage one" else fixed
    return Table(
        dataset.signal_names, values, chosen, _measured(dataset, test, mode), lacking, _departures(dataset, steps)
    )


def _recipes(dataset: LoggedDataset) -> tuple[Recipe, ...]:
    """The last signal, WatchTime, has weight 30; costs −0.1 and the others 0.1."""
    w = np.array([*(0.1 * sign for sign in dataset.signs[:-1]), 30.0], np.float32)
    main = np.where(np.arange(len(w)) == len(w) - 1, w, 0)
    given = ((w, 0.001, 0.0, 0.0), (main, 0.001, 10.0, 0.0), (w / w.sum(), 1e-4, 0.0, 1e-10))
    return tuple(Recipe(jnp.asarray(own), *map(jnp.float32, numbers)) for own, *numbers in given)


def _clone(test: Buffer, key: Any, steps: int) -> Any:
    """The behaviour model, on the test rows."""
    key_start, key_steps = jax.random.split(key)
    networks = agents.layers(key_start, (test.mean.shape[0], 512, 256, 256, len(test.videos)))
    state = (networks, optax.adam(1e-4).init(networks))
    return _advance(agents.clone_step)((test,), state, key_steps, 0, steps)[0]


def _best(train: Buffer, how: tuple[Recipe, Any], judge: Callable[..., Any], key: Any, steps: int) -> Any:
    """The actor whose WatchTime on the test rows is largest, its values, and after how many steps."""
    key_start, key_steps = jax.random.split(key)
    agent, found = agents.start(key_start, train, how[0].weights), []
    points = np.unique(np.linspace(0, steps, min(_EVALUATIONS, steps) + 1).astype(int))
    for begin, end in pairwise(points):
        agent = _advance(agents.step)((*how, train), agent, key_steps, int(begin), int(end))
        found.append((agent.actor, judge(agent.actor), int(end)))
    return max(found, key=lambda one: one[1][-1])


@lru_cache(maxsize=2)
def _advance(step: Callable[..., Any]) -> Callable[..., Any]:
    """(arguments, state, key, begin, end) ↦ the state after the steps of these numbers."""
    return jax.jit(
        lambda given, state, key, begin, end: jax.lax.fori_loop(
            begin, end, lambda t, own: step(*given, own, jax.random.fold_in(key, t)), state
        )
    )


@jax.jit
def _mode(test: Buffer, clone: Any, rows: Any) -> Any:
    return jnp.argmax(agents.clone_logits(clone, test.states(rows)), axis=1).astype(jnp.float32)


@jax.jit
def _action(test: Buffer, actor: Any, rows: Any) -> Any:
    return agents.mu(actor, test.states(rows), len(test.videos))


def _over(test: Buffer, of: Callable[..., Any], networks: Any) -> Any:
    """A function of rows on all test rows, in blocks of one shape."""
    rows = np.asarray(test.rows)
    blocks = [np.resize(rows[k : k + _BLOCK], _BLOCK) for k in range(0, len(rows), _BLOCK)]
    return np.concatenate([np.asarray(of(test, networks, block), np.float64) for block in blocks])[: len(rows)]


def _judged(test: Buffer, mode: Any, policy: Any) -> Any:
    """Σ ρ r / Σ ρ, ρ = min(10, N(a; μ(s), 25) / N(a; mode of b(s), 25))."""
    rows = np.asarray(test.rows)
    own = policy if isinstance(policy, np.ndarray) else _over(test, _action, policy)
    ratio = np.minimum(CAP, np.exp(_exponents(test, mode, own)))
    return ratio @ np.asarray(test.reward, np.float64)[rows] / ratio.sum()


def _exponents(test: Buffer, mode: Any, own: Any) -> Any:
    a = np.asarray(test.rank)[np.asarray(test.rows)]
    return ((a - mode) ** 2 - (a - own) ** 2) / (2 * WIDTH**2)


def _measured(dataset: LoggedDataset, test: Buffer, mode: Any) -> dict[str, float]:
    rows = np.asarray(test.rows)
    reward, watched = np.asarray(test.reward)[rows], dataset.reward[rows, -1]
    events = {f"test rows with {n}": float((reward[:, k] != 0).sum()) for k, n in enumerate(dataset.signal_names)}
    return {
        "train rows": float(len(test.rank) - len(rows)),
        "test rows": float(len(rows)),
        "inputs of a state": float(test.mean.shape[0]),
        "constant inputs": float((np.asarray(test.spread) < 1.001e-3).sum()),
        "behaviour model names the logged action": float((mode == np.asarray(test.rank)[rows]).mean()),
        f"{dataset.signal_names[-1]} lost by cutting": float(1 - reward[:, -1].sum() / max(watched.sum(), 1e-9)),
        **events,
    }


def _departures(dataset: LoggedDataset, steps: int) -> tuple[str, ...]:
    found = [
        f"{steps} steps of each learner, where 300,000 (stage one), 500,000 (TSCAC), 240,000 (PDPG) and up to "
        "1,000,000 (behaviour model) were published",
        "rows are ordered by user and time and duplicates are dropped, as the dataset has them; users and videos are "
        "looked up by their ids: faults 8 and 10 are not repeated",
        "numbers of users and videos are those of the dataset's encoding, of train users, and scaled; statistics of "
        "videos are left out where it was built without them, and fault 9 with them",
    ]
    if dataset.num_actions != 150:
        found.append(f"{dataset.num_actions} actions in place of 150")
    return tuple(found)
