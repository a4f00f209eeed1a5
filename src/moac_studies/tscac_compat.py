"""The protocol that published KuaiRand tables follow, end to end, with its faults named: not an estimate to rely on.

`run(dataset, steps)` gives a `Table`; `moac docs baselines` says what it repeats. `moac.offline.ncis` is the sound one.
The learners are fault-for-fault copies: a deterministic actor of popularity ranks, a critic per signal, and a behaviour
model of all ranks, on states of 24 + 6 K + 20·6 numbers (1044 with K = 150), built batch by batch from indices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jaxtyping import Float, Int

from moac import files, simplex
from moac.kuairand.schema import SIGNALS
from moac.logs.dataset import LoggedDataset
from moac.logs.schema import STEPS, WINDOW
from moac.offline.baselines import tilt
from moac.offline.blocks import in_blocks
from moac.policies.networks import dense
from moac_studies.framework import Study, Workspace
from moac_studies.kuairand_search import learned_from

METHODS = ("Behavior-Clone", "stage one", "TSCAC", "PDPG", "MOAC, fixed weights", "MOAC")
GAMMA, TAU, BATCH, CLONE_BATCH, STAGE_TWO_WIDTH = 0.99, 0.001, 512, 64, 30.0
WIDTH, CAP = 25.0, 10.0
TRAIN_SHARE = 450_000 / 480_385
USER_COLUMNS = (
    "user_active_degree", "is_live_streamer", "is_video_author", "follow_user_num_range", "fans_user_num_range",
    "register_days_range", *(f"onehot_feat{k}" for k in range(18)),
)  # fmt: skip
VIDEO_COLUMNS = ("duration", "music_type", "tag", "play_user_num", "play_duration", "like_cnt")
_ADAM, _CRITIC_ADAM = optax.adam(1e-4), optax.chain(optax.add_decayed_weights(1e-2), optax.adam(1e-3))
"""Of actors and the behaviour model; of critics, with L2 added to the gradient."""
_EVALUATIONS = 10

_TEXT = (resources.files("moac_studies") / "recorded" / "tscac-faults.txt").read_text("utf-8")
FAULTS, DEPARTURES = (tuple(part.splitlines()) for part in _TEXT.split("\n\n"))
"""What is wrong with the published protocol, the most harmful first, and what is not repeated of it."""


@dataclass(frozen=True, eq=False)
class Table:
    """Values that the published protocol would report."""

    signal_names: tuple[str, ...]  # as logged, so that of a cost less is better
    values: Mapping[str, Any]  # by method, one per signal; Behavior-Clone's is the mean of the test rows
    steps: Mapping[str, int]  # by method, after which the reported checkpoint was chosen
    measured: Mapping[str, float]  # what the faults amount to on these rows
    # raw columns that the dataset does not hold as such: their place is 0 or an encoded number
    lacking: tuple[str, ...]
    departures: tuple[str, ...]  # where these rows, not the code, differ from the published ones
    faults: tuple[str, ...] = FAULTS  # of the protocol

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return files.finite(self, name_infinities=True)

    def __str__(self) -> str:
        head = f"{'tscac-compat':20}" + "".join(f"{name:>20}" for name in self.signal_names)
        lines = ["The published protocol, repeated with its faults: these are no estimates to rely on.", head]
        base = next(iter(self.values.values()))
        lines += [
            f"{name:20}" + "".join(f"{cell:>20}" for cell in cells(own, base)) for name, own in self.values.items()
        ]
        lines += ["Faults of the protocol:", *(f"  {k}. {fault}" for k, fault in enumerate(self.faults, 1))]
        lines += ["On these rows:", *(f"  {name}: {value:.4g}" for name, value in self.measured.items())]
        lines += ["Other than in the published setting:", *(f"  {text}" for text in self.departures)]
        if self.lacking:
            lines.append(f"  not in the dataset as raw numbers: {', '.join(self.lacking)}")
        return "\n".join(lines)


def cells(values: Any, base: Any) -> list[str]:
    """Each value with its change to another."""
    return [f"{x:.4g}, {x / b - 1:+.1%}" if b else f"{x:.4g}" for x, b in zip(values, base, strict=True)]


def kept(dataset: LoggedDataset, study: Study, work: Workspace) -> dict[str, Any]:
    """Values by method of `run` on train and validation users; those of an earlier call are taken."""
    rows, steps = dataset.subset(["train", "validation"]), study.parameters["paper"]["compat_steps"]
    about = {"data": dataset.fingerprint, "steps": steps, "seed": study.seed}
    return work.keep("published-protocol", about, lambda: dict(run(rows, steps, study.seed).values))


def run(dataset: LoggedDataset | str | Path, steps: int = 500, seed: int = 0) -> Table:
    """Behavior-Clone, stage one, TSCAC and PDPG as published, on the rows at hand; MOAC's weights on the same actor.

    The last 6 % of rows are the protocol's test rows, whatever users they are of. Of a folder only train and
    validation users are read: test users are for the sound protocol. The published learners took 240,000 to
    1,000,000 steps each.
    """
    if steps < 1 or seed < 0:
        raise ValueError(f"`steps` must be at least 1 and `seed` not negative, got {steps} and {seed}.")
    if not isinstance(dataset, LoggedDataset):
        dataset = LoggedDataset.from_parquet(dataset).subset(["train", "validation"])
        dataset = learned_from(dataset, [signal.name for signal in SIGNALS])
    train, test, lacking = buffers(dataset)
    keys = jax.random.split(jax.random.key(seed), len(METHODS))
    mode = _over(test, _mode, _clone(test, keys[0], steps))
    values, chosen = {"Behavior-Clone": estimate(test, mode, mode)}, {"Behavior-Clone": steps}
    fixed = _start(keys[1], train, jnp.zeros(dataset.num_signals)).actor
    for name, recipe, key in zip(METHODS[1:], _recipes(dataset), keys[1:], strict=True):
        best, values[name], chosen[name] = _best(train, (recipe, fixed), partial(estimate, test, mode), key, steps)
        fixed = best if name == "stage one" else fixed
    departures = tuple(text.format(steps=steps, actions=dataset.num_actions) for text in DEPARTURES)
    return Table(dataset.signal_names, values, chosen, _measured(dataset, test, mode), lacking, departures)


def _recipes(dataset: LoggedDataset) -> tuple[Recipe, ...]:
    """The last signal, WatchTime, has weight 30; costs −0.1 and the others 0.1. MOAC's weights are its own."""
    signs = np.array(dataset.signs, np.float32)
    last = np.arange(len(signs)) == len(signs) - 1
    w = np.where(last, 30.0, 0.1 * signs)
    recipes = (
        Recipe(w, supervised=0.001),
        Recipe(np.where(last, w, 0), supervised=0.001, held=10.0),
        Recipe(w / w.sum(), supervised=1e-4, eta=1e-10),
        Recipe(signs / len(w), supervised=1e-4, momentum=math.inf),
        Recipe(signs / len(w), supervised=1e-4, momentum=1.0),
    )
    return tuple(jax.tree.map(jnp.float32, each) for each in recipes)


def _clone(test: Buffer, key: Any, steps: int) -> Any:
    """The behaviour model, on the test rows."""
    key_start, key_steps = jax.random.split(key)
    networks = _layers(key_start, (test.mean.shape[0], 512, 256, 256, len(test.videos)))
    state = (networks, _ADAM.init(networks))
    return _advance(_clone_step)((test,), state, key_steps, 0, steps)[0]


def _best(train: Buffer, how: tuple[Recipe, Any], evaluate: Callable[..., Any], key: Any, steps: int) -> Any:
    """The actor whose WatchTime on the test rows is largest, its values, and after how many steps."""
    key_start, key_steps = jax.random.split(key)
    agent, checkpoints = _start(key_start, train, how[0].weights), []
    points = np.unique(np.linspace(0, steps, min(_EVALUATIONS, steps) + 1).astype(int))
    for begin, end in pairwise(points):
        agent = _advance(_step)((*how, train), agent, key_steps, int(begin), int(end))
        checkpoints.append((agent.actor, evaluate(agent.actor), int(end)))
    return max(checkpoints, key=lambda one: one[1][-1])


@lru_cache(maxsize=2)
def _advance(step: Callable[..., Any]) -> Callable[..., Any]:
    """(arguments, state, key, begin, end) ↦ the state after the steps of these numbers."""

    def advance(given: Any, state: Any, key: Any, begin: Any, end: Any) -> Any:
        return jax.lax.fori_loop(begin, end, lambda t, now: step(*given, now, jax.random.fold_in(key, t)), state)

    return jax.jit(advance)


@jax.jit
def _mode(test: Buffer, clone: Any, rows: Any) -> Any:
    return jnp.argmax(_clone_logits(clone, test.states(rows)), axis=1).astype(jnp.float32)


@jax.jit
def _action(test: Buffer, actor: Any, rows: Any) -> Any:
    return _mu(actor, test.states(rows), len(test.videos))


def _over(test: Buffer, of: Callable[..., Any], networks: Any) -> Any:
    """A function of rows on all test rows, in blocks of one shape."""
    return np.concatenate([block for _, block in in_blocks(partial(of, test, networks), test.rows)]).astype(np.float64)


def estimate(test: Buffer, mode: Any, policy: Any) -> Any:
    """Σ ρ r / Σ ρ, ρ = min(10, N(a; μ(s), 25) / N(a; mode of b(s), 25)), of an actor or of its actions."""
    rows = np.asarray(test.rows)
    actions = policy if isinstance(policy, np.ndarray) else _over(test, _action, policy)
    a = np.asarray(test.rank)[rows]
    ratio = np.minimum(CAP, np.exp(((a - mode) ** 2 - (a - actions) ** 2) / (2 * WIDTH**2)))
    return ratio @ np.asarray(test.reward, np.float64)[rows] / ratio.sum()


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


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Buffer:
    """Rows of one part, train or test, and what a state of theirs is made of."""

    # `user, rank, reward, place`: of all N rows; `rank` is the action, `place` counts a user's rows from 0
    user: Int[Array, " N"]
    rank: Int[Array, " N"]
    reward: Float[Array, "N M"]
    place: Int[Array, " N"]
    rows: Int[Array, " n"]  # [n] the part's
    users: Float[Array, "U d"]  # `users, videos`: tables of numbers, a video's by rank
    videos: Float[Array, "K e"]
    mean: Any = 0.0  # `mean, spread`: that states of the part are standardised by
    spread: Any = 1.0

    def states(self, rows: Int[Array, " B"]) -> Float[Array, "B F"]:
        """(user, all videos, ring), standardised; the ring's slot `place mod 20` holds the row's own video."""
        age = (self.place[rows][:, None] - jnp.arange(WINDOW)) % WINDOW
        ring = self.videos[self.rank[rows[:, None] - age]] * (age <= self.place[rows][:, None])[..., None]
        static = jnp.broadcast_to(self.videos.ravel(), (len(rows), self.videos.size))
        x = jnp.concatenate([self.users[self.user[rows]], static, ring.reshape(len(rows), -1)], axis=1)
        return (x - self.mean) / self.spread

    def following(self, rows: Int[Array, " B"]) -> tuple[Float[Array, "B F"], Float[Array, " B"]]:
        """The state of the part's next row, whosever it is, and whether the user goes on."""
        after = jnp.minimum(rows + 1, self.rows[-1])
        return self.states(after), (self.user[after] == self.user[rows]).astype(jnp.float32)


def buffers(dataset: LoggedDataset) -> tuple[Buffer, Buffer, tuple[str, ...]]:
    """The train part, the test part, and the raw columns that the dataset does not have."""
    count = np.bincount(dataset.action, minlength=dataset.num_actions)
    by_rank = np.argsort(-count, kind="stable")
    rank = np.argsort(by_rank)[dataset.action]
    reward = np.trunc(dataset.reward * np.array(dataset.signs)).astype(np.float32)  # of all rows, as integers
    changed = np.append(True, dataset.user[1:] != dataset.user[:-1])
    place = np.arange(len(rank)) - np.maximum.accumulate(np.where(changed, np.arange(len(rank)), 0))
    users, lacking = _columns(dataset.tables.users, dataset.feature_names, USER_COLUMNS, np.bincount(dataset.user))
    items = np.asarray(dataset.tables.items)[dataset.action_items[by_rank]]
    videos, more = _columns(items, tilt.item_features(dataset), VIDEO_COLUMNS, np.ones(len(items)))
    split = int(len(rank) * TRAIN_SHARE)
    columns: tuple[Any, Any, Any, Any] = (dataset.user, rank.astype(np.int32), reward, place.astype(np.int32))
    parts: Any = (np.arange(split), np.arange(split, len(rank)))
    if not all(len(part) for part in parts):
        raise ValueError(f"{dataset.name} must have at least 16 rows for a train and a test part, got {len(rank)}.")
    train, test = (_standardised(Buffer(*columns, part.astype(np.int32), users, videos)) for part in parts)
    return train, test, (*lacking, *more)


def _columns(table: Any, names: tuple[str, ...], wanted: tuple[str, ...], count: Any) -> tuple[Any, tuple[str, ...]]:
    """Numbers of the wanted columns: as they are, or the rank by frequency of a category; 0 where nothing is left."""
    values = np.asarray(table, np.float32) / (STEPS if table.dtype == np.int8 else 1)
    columns, lacking = np.zeros((len(values), len(wanted)), np.float32), []
    count = np.pad(count, (0, max(0, len(values) - len(count))))[: len(values)]
    for k, name in enumerate(wanted):
        codes = [j for j, own in enumerate(names) if own.startswith(f"{name}=")]
        same = [j for j, own in enumerate(names) if own in (name, f"{name}:0")]
        if codes:
            order = np.argsort(-(values[:, codes] * count[:, None]).sum(axis=0), kind="stable")
            columns[:, k] = np.argsort(order)[values[:, codes].argmax(axis=1)]
        elif same:
            columns[:, k] = values[:, same[0]]
        elif not names and k < values.shape[1]:
            columns[:, k] = values[:, k]
        if not codes and name not in names:
            lacking.append(name)
    return columns, tuple(lacking)


def _standardised(buffer: Buffer) -> Buffer:
    """With the moments of the part's own states."""
    device = jax.tree.map(jnp.asarray, buffer)
    blocks = (x.astype(np.float64) for _, x in in_blocks(partial(jax.jit(Buffer.states), device), buffer.rows))
    sums = [np.stack([x.sum(axis=0), (x**2).sum(axis=0)]) for x in blocks]
    mean, square = np.sum(sums, axis=0) / len(buffer.rows)
    spread = np.sqrt(np.maximum(square - mean**2, 0)) + 1e-3
    return replace(device, mean=jnp.float32(mean), spread=jnp.float32(spread))


class Recipe(NamedTuple):
    """What the three learners differ in; numbers, so that one compiled program serves them all."""

    weights: Any  # [M] of the signals
    supervised: Any  # coefficient of MSE(μ, mean action of the batch)
    # coefficient of MSE(μ, μ_c) to the policy of stage one; where positive, Q is also weighted by its density
    held: Any = 0.0
    eta: Any = 0.0  # step of PDPG's weights; 0 leaves them
    momentum: Any = 0.0  # p of MOAC's, which move by 1/t^p towards the min-norm point; 0 leaves them, ∞ keeps the first


class Agent(NamedTuple):
    """Networks as lists of matrices with biases in the last row, targets, Adam's moments, and the weights."""

    actor: Any
    critics: Any
    actor_target: Any
    critics_target: Any
    moments: Any
    weights: Any
    t: Any = 0.0  # steps taken


def _layers(key: Any, sizes: tuple[int, ...]) -> list[Any]:
    """Uniform in ±1/√inputs, biases too."""
    pairs = list(pairwise(sizes))
    drawn = zip(jax.random.split(key, len(pairs)), pairs, strict=True)
    return [jax.random.uniform(k, (n + 1, m), jnp.float32, -1, 1) / n**0.5 for k, (n, m) in drawn]


def _mu(actor: Any, x: Float[Array, "B F"], K: int) -> Float[Array, " B"]:
    """K·sigmoid of a network with 32 hidden units."""
    return K * jax.nn.sigmoid(dense(actor[1], jax.nn.relu(dense(actor[0], x)))[:, 0])


def _values(critics: Any, x: Float[Array, "B F"], a: Float[Array, " B"]) -> Float[Array, "B M"]:
    """Q_i(s, a); the action joins after the first layer. Networks have a leading axis M."""

    def one(W: Any) -> Any:
        joined = jnp.concatenate([jax.nn.relu(dense(W[0], x)), a[:, None]], axis=1)
        return dense(W[2], jax.nn.relu(dense(W[1], joined)))[:, 0]

    return jax.vmap(one, out_axes=1)(critics)


def _clone_logits(clone: Any, x: Float[Array, "B F"]) -> Float[Array, "B K"]:
    """Of ranks."""
    for W in clone[:-1]:
        x = jax.nn.relu(dense(W, x))
    return dense(clone[-1], x)


def _start(key: Any, buffer: Buffer, weights: Any) -> Agent:
    """Random networks; targets equal to them."""
    inputs, M = buffer.mean.shape[0], buffer.reward.shape[1]
    key_actor, key_critics = jax.random.split(key)
    actor = _layers(key_actor, (inputs, 32, 1))
    first = jax.vmap(lambda k: _layers(k, (inputs, 32)))(jax.random.split(key_critics, M))
    rest = jax.vmap(lambda k: _layers(k, (33, 32, 1)))(jax.random.split(jax.random.fold_in(key_critics, 1), M))
    critics = [*first, *rest]
    moments = (_ADAM.init(actor), _CRITIC_ADAM.init(critics))
    return Agent(actor, critics, actor, critics, moments, weights)


def _step(recipe: Recipe, fixed: Any, buffer: Buffer, agent: Agent, key: Any) -> Agent:
    """Critics, weights, actor, targets; `fixed` is the actor of stage one."""
    rows = buffer.rows[jax.random.randint(key, (BATCH,), 0, len(buffer.rows))]
    x, a, K = buffer.states(rows), buffer.rank[rows].astype(jnp.float32), len(buffer.videos)
    after, alive = buffer.following(rows)
    ahead = _values(agent.critics_target, after, _mu(agent.actor_target, after, K))
    y = buffer.reward[rows] + GAMMA * alive.mean() * ahead
    slope = jax.grad(lambda critics: jnp.sum(jnp.mean((_values(critics, x, a) - y) ** 2, axis=0)))(agent.critics)
    change, critic_moments = _CRITIC_ADAM.update(slope, agent.moments[1], agent.critics)
    critics = optax.apply_updates(agent.critics, change)

    def worth(actor: Any) -> Float[Array, "B M"]:
        return _values(critics, x, _mu(actor, x, K))

    t = agent.t + 1.0
    moved, nearer = (lambda: _moved(recipe.eta, agent, worth)), (lambda: _nearer(recipe, agent, worth, t))
    w = jax.lax.switch(
        jnp.where(recipe.momentum > 0, 2, jnp.where(recipe.eta > 0, 1, 0)), (lambda: agent.weights, moved, nearer)
    )
    pinned = _mu(fixed, x, K)

    def actor_loss(actor: Any) -> Any:
        own = _mu(actor, x, K)
        density = jax.scipy.stats.norm.pdf(jax.lax.stop_gradient(own), pinned, STAGE_TWO_WIDTH)
        rho = jnp.where(recipe.held > 0, jnp.clip(density, 0, 1), 1.0)
        near = recipe.supervised * jnp.mean((own - a.mean()) ** 2) + recipe.held * jnp.mean((own - pinned) ** 2)
        return near - jnp.mean(rho * (worth(actor) @ w))

    change, actor_moments = _ADAM.update(jax.grad(actor_loss)(agent.actor), agent.moments[0])
    actor = optax.apply_updates(agent.actor, change)
    before: Any = (agent.actor_target, agent.critics_target)
    targets: Any = optax.incremental_update((actor, critics), before, TAU)
    return Agent(actor, critics, targets[0], targets[1], (actor_moments, critic_moments), w, t)


def _gradients(agent: Agent, worth: Any) -> Float[Array, "M P"]:
    """Of the mean Q_i, one row for each signal."""
    G = jax.jacrev(lambda actor: jnp.mean(worth(actor), axis=0))(agent.actor)
    return jnp.concatenate([layer.reshape(len(layer), -1) for layer in G], axis=1)


def _moved(eta: Any, agent: Agent, worth: Any) -> Any:
    """w ← max(0, w − η clip(⟨g, g_i⟩, ±1000)), g = Σ w_j g_j, divided by its sum."""
    flat = _gradients(agent, worth)
    w = jnp.maximum(0, agent.weights - eta * jnp.clip(flat @ (agent.weights @ flat), -1000, 1000))
    w = jnp.where(w.sum() > 0, w, agent.weights)
    return w / w.sum()


def _nearer(recipe: Recipe, agent: Agent, worth: Any, t: Any) -> Any:
    """MOAC's λ_t = (1 − η_t) λ_{t−1} + η_t λ̂, η_t = 1/t^p, with the signs of the signals."""
    signs = jnp.sign(recipe.weights)
    flat = signs[:, None] * _gradients(agent, worth)
    eta = jnp.where(t == 1, 1.0, t**-recipe.momentum)
    return agent.weights + eta * (signs * simplex.min_norm_from_gram(flat @ flat.T).weights - agent.weights)


def _clone_step(buffer: Buffer, state: tuple[Any, Any], key: Any) -> tuple[Any, Any]:
    """A step of Adam on the cross-entropy of the rows' ranks."""
    rows = buffer.rows[jax.random.randint(key, (CLONE_BATCH,), 0, len(buffer.rows))]
    x, target = buffer.states(rows), buffer.rank[rows]
    entropy = optax.softmax_cross_entropy_with_integer_labels
    slope = jax.grad(lambda W: entropy(_clone_logits(W, x), target).mean())(state[0])
    change, moments = _ADAM.update(slope, state[1])
    return optax.apply_updates(state[0], change), moments
