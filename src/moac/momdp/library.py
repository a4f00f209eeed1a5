"""Exact models of MO-Gymnasium environments, and random models, built from their rules alone.

Each environment is described by one function, `step(state, action)`, that lists the outcomes. A state is the tuple that
the environment returns as its observation. The models have no time limit: where the environment truncates an episode,
the model goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from moac.arguments import checked
from moac.choices import COUNT, SHARE, Range, at_least, shown
from moac.momdp.model import FiniteMOMDP
from moac.types import Key

State = tuple[int, ...]


class Outcome(NamedTuple):
    """One outcome of an action; `state` is ignored when `terminated`."""

    probability: float
    state: State
    reward: tuple[float, ...]
    terminated: bool = False


Step = Callable[[State, int], list[Outcome]]

_MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))  # up, down, left, right

_HOME, _GOLD, _DIAMOND, _ENEMIES = (4, 2), (0, 2), (1, 4), ((0, 3), (1, 2))
_DEATH_PROBABILITY = 0.1

_DEPTHS = (1, 2, 3, 4, 4, 4, 7, 7, 9, 10)
_CONVEX = (0.7, 8.2, 11.5, 14.0, 15.1, 16.1, 19.6, 20.3, 22.4, 23.7)
_CONCAVE = (1.0, 2.0, 3.0, 5.0, 8.0, 16.0, 24.0, 50.0, 74.0, 124.0)
_BARE = (0.0,) * len(_DEPTHS)
_SEAS = {  # variant: environment, start, and per column its lowest row and the treasure that lies there
    "convex": ("deep-sea-treasure-v0", (0, 0), (*_DEPTHS, 10), (*_CONVEX, 0.0)),
    "concave": ("deep-sea-treasure-concave-v0", (0, 0), (*_DEPTHS, 10), (*_CONCAVE, 0.0)),
    "mirrored": ("deep-sea-treasure-mirrored-v0", (0, 10), (*_DEPTHS[::-1], *_DEPTHS), (*_BARE, *_CONCAVE)),
}
_NUTRIENTS = ("protein", "carbs", "fats", "vitamins", "minerals", "water")


def resource_gathering() -> FiniteMOMDP:
    """resource-gathering-v0 (Barrett and Narayanan, 2008): fetch gold and a diamond home past two enemies.

    A 5×5 grid of states (row, column, has gold, has diamond), 93 of them reachable. Entering an enemy's cell, or
    bumping into a wall inside it, is death with probability 0.1: r¹ = −1 and the episode ends. Coming home ends it too,
    with r² = 1 for gold and r³ = 1 for the diamond. All other rewards are 0.
    """

    def step(state: State, action: int) -> list[Outcome]:
        row, column, gold, diamond = state
        moved = row + _MOVES[action][0], column + _MOVES[action][1]
        position = moved if all(0 <= x < 5 for x in moved) else (row, column)
        loot = gold | (position == _GOLD), diamond | (position == _DIAMOND)
        if position == _HOME:
            return [Outcome(1.0, state, (0.0, *map(float, loot)), terminated=True)]
        survived, nothing = (*position, *loot), (0.0, 0.0, 0.0)
        if position not in _ENEMIES:
            return [Outcome(1.0, survived, nothing)]
        died = Outcome(_DEATH_PROBABILITY, state, (-1.0, 0.0, 0.0), terminated=True)
        return [Outcome(1 - _DEATH_PROBABILITY, survived, nothing), died]

    model = _tabulate((*_HOME, 0, 0), num_actions=4, step=step)
    return model.named(("death", "gold", "diamond"), "resource-gathering-v0")


@checked
def fishwood(fish_probability: float = 0.1, wood_probability: float = 0.9) -> FiniteMOMDP:
    """fishwood-v0 (Roijers et al., 2018): fish at the river or collect wood in the woods.

    The action names the next place, 0 the river and 1 the woods; the reward comes from the place one is leaving. The
    first place is the woods. The environment stops after 200 steps, which is a time limit, so the model never ends.
    The chances are those of a fish, r¹ = 1, per step at the river and of wood, r² = 1, per step in the woods.
    """
    for name, chance in (("fish_probability", fish_probability), ("wood_probability", wood_probability)):
        SHARE.checked(name, chance)

    def step(state: State, action: int) -> list[Outcome]:
        chance, reward = (fish_probability, (1.0, 0.0)) if state == (0,) else (wood_probability, (0.0, 1.0))
        return [Outcome(chance, (action,), reward), Outcome(1 - chance, (action,), (0.0, 0.0))]

    return _tabulate((1,), num_actions=2, step=step).named(("fish", "wood"), "fishwood-v0")


@checked
def deep_sea_treasure(variant: str = "convex") -> FiniteMOMDP:
    """deep-sea-treasure (Vamplew et al., 2011): a submarine trades the worth of a treasure against time.

    States are (row, column), 11 rows deep. A move into rock or out of the sea leaves the submarine where it is. Every
    step costs r² = −1; reaching a treasure pays r¹, its worth, and ends the episode.

    Args:
        variant: the treasures and the sea floor. "convex" (Yang et al., 2019) and "concave" (Vamplew et al., 2018)
            share a sea of 11 columns that falls off from the start; "mirrored" (Felten et al., 2022) starts in the
            middle of 20 columns, with the concave treasures on the right and the same floor, but bare, on the left.
    """
    if variant not in _SEAS:
        raise ValueError(f"`variant` must be one of {', '.join(map(repr, _SEAS))}, got {shown(variant)}.")
    name, start, bottom, treasure = _SEAS[variant]

    def step(state: State, action: int) -> list[Outcome]:
        row, column = state[0] + _MOVES[action][0], state[1] + _MOVES[action][1]
        if not (0 <= column < len(bottom) and 0 <= row <= bottom[column]):
            row, column = state
        worth = treasure[column] if row == bottom[column] else 0.0
        return [Outcome(1.0, (row, column), (worth, -1.0), terminated=worth > 0)]

    return _tabulate(start, num_actions=4, step=step).named(("treasure", "time"), name)


def fruit_tree() -> FiniteMOMDP:
    """fruit-tree-v0 (Yang et al., 2019): six levels down a binary tree to one of 64 fruits, of six nutrients each.

    States are (level, place in it) of the branches. The fruits are MO-Gymnasium's, drawn at random once: no one of them
    dominates another.
    """
    from mo_gymnasium.envs.fruit_tree.fruit_tree import FRUITS

    fruits = np.array(FRUITS["6"], np.float32).astype(float)

    def step(state: State, action: int) -> list[Outcome]:
        level, place = state[0] + 1, 2 * state[1] + action
        ripe = level == 6
        return [Outcome(1.0, (level, place), tuple(fruits[place]) if ripe else (0.0,) * 6, terminated=ripe)]

    return _tabulate((0, 0), num_actions=2, step=step).named(_NUTRIENTS, "fruit-tree-v0")


@checked
def random_ergodic(
    key: int | Key,
    num_states: int = 5,
    num_actions: int = 3,
    num_objectives: int = 2,
    *,
    num_successors: int | None = None,
    termination: float = 0.0,
) -> FiniteMOMDP:
    """A random model whose chain is irreducible and aperiodic under every policy.

    Whatever the action, state s can move to s + 1 (mod S), so the chain visits all states, and state 0 can stay, so it
    has period 1. No successor of (s, a) is rarer than 0.1/O before termination. The reward of each outcome is uniform
    in [0, 1]ᴹ. The start distribution is random and reaches every state.

    `key` is an integer seed or a JAX key; the same key gives the same model. `num_successors` states can follow each
    (s, a), at least 2 (or S if that is 1), all of them if None. Each transition ends the episode with the chance
    `termination`.
    """
    for name, size in (("num_states", num_states), ("num_actions", num_actions), ("num_objectives", num_objectives)):
        COUNT.checked(name, size)
    width, fewest = num_states if num_successors is None else num_successors, min(2, num_states)
    Range(f"in [{fewest}, {num_states}]", lambda n: fewest <= n <= num_states, int).checked("num_successors", width)
    SHARE.checked("termination", termination)
    generator = _generator(key)
    successors = _random_successors(generator, num_states, num_actions, width)
    chances = (1 - termination) * _random_distributions(generator, successors.shape)
    the_end = ((0, 0), (0, 0), (0, int(termination > 0)))  # padding: one more outcome, where episodes can end
    model = FiniteMOMDP.from_outcomes(
        next_state=np.pad(successors, the_end),
        probability=np.pad(chances, the_end, constant_values=termination),
        reward=generator.random((num_states, num_actions, width + the_end[2][1], num_objectives)),
        terminated=np.pad(np.zeros(successors.shape, bool), the_end, constant_values=True),
        start=_random_distributions(generator, (num_states,)),
    )
    return model.named(model.objective_names, "random-ergodic")


_ENVIRONMENTS: dict[str, Callable[[], FiniteMOMDP]] = {
    "resource-gathering-v0": resource_gathering,
    "fishwood-v0": fishwood,
    "deep-sea-treasure-v0": deep_sea_treasure,
    "deep-sea-treasure-concave-v0": partial(deep_sea_treasure, "concave"),
    "deep-sea-treasure-mirrored-v0": partial(deep_sea_treasure, "mirrored"),
    "fruit-tree-v0": fruit_tree,
}


@checked
@cache
def for_environment(env_id: str) -> FiniteMOMDP | None:
    """The exact model of a MO-Gymnasium environment with its default arguments, or None where there is none.

    The same object each time: programs are compiled for a model, and runs on it share them. Its arrays are read-only.
    """
    build = _ENVIRONMENTS.get(env_id)
    if build is None:
        return None
    model = build()
    for array in vars(model).values():
        if isinstance(array, np.ndarray):
            array.setflags(write=False)
    return model


def known_environments() -> tuple[str, ...]:
    """Ids of the environments that `for_environment` has a model of."""
    return tuple(_ENVIRONMENTS)


def _tabulate(start: State, num_actions: int, step: Step) -> FiniteMOMDP:
    """The model that `step` describes, with the decision states reachable from `start` in the order of their tuples.

    An action with fewer outcomes than others is filled up by copies of its last one, with probability 0.
    """
    states = sorted(_reachable(start, num_actions, step))
    index = {state: i for i, state in enumerate(states)}
    rows = [[step(state, action) for action in range(num_actions)] for state in states]
    width = max(len(outcomes) for row in rows for outcomes in row)
    for outcomes in (outcomes for row in rows for outcomes in row):
        outcomes += [outcomes[-1]._replace(probability=0.0)] * (width - len(outcomes))

    def column(pick: Callable[[Outcome], Any]) -> np.ndarray[Any, Any]:
        return np.array([[[pick(x) for x in outcomes] for outcomes in row] for row in rows])

    return FiniteMOMDP.from_outcomes(
        next_state=column(lambda x: index[start if x.terminated else x.state]),
        probability=column(lambda x: x.probability),
        reward=column(lambda x: x.reward),
        terminated=column(lambda x: x.terminated),
        start=np.eye(len(states))[index[start]],
        observations=np.array(states, dtype=np.int32),
    )


def _reachable(start: State, num_actions: int, step: Step) -> set[State]:
    """All states in which an action is chosen: breadth first from `start`, not past a terminated outcome."""
    seen, frontier = {start}, {start}
    while frontier:
        outcomes = [x for state in frontier for action in range(num_actions) for x in step(state, action)]
        frontier = {x.state for x in outcomes if x.probability > 0 and not x.terminated} - seen
        seen |= frontier
    return seen


def _random_successors(
    generator: np.random.Generator, num_states: int, num_actions: int, width: int
) -> Int[np.ndarray, "S A O"]:
    """Distinct successors of each (s, a) in rising order: always s + 1 (mod S), from 0 always 0, the others random."""

    def of_state(s: int) -> Int[np.ndarray, "A O"]:
        priority = generator.random((num_actions, num_states))
        priority[:, (s + 1) % num_states] = 2.0
        if s == 0:
            priority[:, 0] = 2.0
        return np.sort(np.argpartition(-priority, width - 1, axis=1)[:, :width], axis=1)

    return np.stack([of_state(s) for s in range(num_states)])


def _random_distributions(generator: np.random.Generator, shape: tuple[int, ...]) -> Float[np.ndarray, "..."]:
    """Distributions over the last axis: nine tenths uniform on the simplex, one tenth the uniform distribution."""
    weight = generator.standard_exponential(shape)
    return 0.9 * weight / weight.sum(axis=-1, keepdims=True) + 0.1 / shape[-1]


def _generator(key: Any) -> np.random.Generator:
    """NumPy's generator seeded by an integer or by the data of one JAX key, typed or raw."""
    if isinstance(key, int | np.integer):
        return np.random.default_rng(at_least(0, int).checked("key", key))
    import jax

    return np.random.default_rng(np.asarray(jax.random.key_data(key)))
