"""From an id, or a function, to an environment with its description."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.wrappers import OrderEnforcing, TimeLimit

from moac.arguments import checked
from moac.choices import Range, at_least, shown
from moac.envs import interrupts
from moac.envs.environment import Environment
from moac.envs.rollout import Interface, WrongAnswerError, close, described, real_reward, seeded_globally
from moac.policies.encoding import ActionBox, Encoder, Leaf
from moac.policies.observations import of_encoder
from moac.types import Spec

importlib.import_module("mo_gymnasium")  # registers its environments

_NO_LIMIT = -1  # what Gymnasium's `make` takes for no time limit
_EXTRAS = {"box2d": "box2d", "mujoco": "mujoco", "imageio": "mujoco"}
"""The extra that has a package, by a word in what Gymnasium says where it is missing."""
_IMPORTED = " A module of your own is found where PYTHONPATH names its folder, as in PYTHONPATH=. moac train …"
OBJECTIVES = {
    "resource-gathering": ("death", "gold", "diamond"),
    "fishwood": ("fish", "wood"),
    "deep-sea-treasure": ("treasure", "time"),
    "four-room": ("first kind", "second kind", "third kind"),
    "fruit-tree": ("protein", "carbs", "fats", "vitamins", "minerals", "water"),
    "breakable-bottles": ("time", "bottles", "potential"),
    "minecart": ("ore1", "ore2", "fuel"),
    "mo-mountaincar": ("time", "reverse", "forward"),
    "mo-mountaincar-3d": ("time", "move", "speed"),
    "mo-mountaincar-timemove": ("time", "move"),
    "mo-mountaincar-timespeed": ("time", "speed"),
    "mo-mountaincarcontinuous": ("time", "fuel"),
    "water-reservoir": ("flooding", "irrigation"),
    "mo-lunar-lander": ("outcome", "shaping", "main engine", "side engine"),
    "mo-hopper": ("forward", "height", "control"),
    "mo-hopper-2d": ("forward", "height"),
    "mo-hopper-2obj": ("forward", "height"),
    "mo-halfcheetah": ("forward", "control"),
    "mo-walker2d": ("forward", "control"),
    "mo-swimmer": ("forward", "control"),
    "mo-humanoid": ("forward", "control"),
    "mo-ant": ("x velocity", "y velocity", "control"),
    "mo-ant-2d": ("x velocity", "y velocity"),
    "mo-ant-2obj": ("x velocity", "y velocity"),
    "mo-highway": ("high speed", "right lane", "collision"),
    "mo-supermario": ("x position", "time", "death", "coin", "enemy"),
    "mo-reacher": ("first target", "second target", "third target", "fourth target"),
}
"""What the objectives of MO-Gymnasium's environments are, by how their ids begin; the longest such beginning counts."""
_SECONDS = Range("a positive number of seconds", lambda x: 0 < x < math.inf)
_SPACES = "Discrete, MultiDiscrete, MultiBinary, Box, or a Dict or Tuple of these"
_LARGEST_VECTOR = 100_000
"""Numbers of an observation: bounds, scale and moments of each are kept, and every step holds two of them."""
_UNKNOWN_ID = (
    gymnasium.error.UnregisteredEnv,
    gymnasium.error.NamespaceNotFound,
    gymnasium.error.NameNotFound,
    gymnasium.error.Error,  # of an id that is malformed
)
_SMALLEST_IMAGE = 16
"""Pixels along each side; a smaller array of bytes is a board."""
_NO_IMAGES = "images are not supported: a wrapper must extract features, such as positions, and show them as a vector"


@checked
def make(
    env: Any,
    num_envs: int = 16,
    *,
    workers: int = 0,
    time_limit: bool = True,
    evaluation_episodes: int = 10,
    step_timeout: float | None = None,
    **options: Any,
) -> Environment:
    """Copies of an environment to train on.

    Args:
        env: an id of MO-Gymnasium, also in Gymnasium's form `package.module:Id-v0`; or a function that returns a new
            environment, whose `step` returns a vector of rewards; or an environment with a `spec`, from which copies
            are made anew.
        num_envs: copies per trial, stepped side by side; it must divide the batch sizes.
        workers: processes that step them; 0 steps them here. Only slow environments gain.
        time_limit: False lifts the time limit of the registration.
        evaluation_episodes: episodes that an evaluation while training averages over.
        step_timeout: seconds after which a step or a reset that does not return ends its worker, and the run with it;
            None waits for ever. It needs `workers`: a step can only be ended together with its process.
        options: for the environment's constructor.
    """
    sizes = {"num_envs": num_envs, "workers": workers, "evaluation_episodes": evaluation_episodes}
    stepping: dict[str, Any] = {}
    for name, value in sizes.items():
        stepping[name] = at_least(0 if name == "workers" else 1, int).checked(name, value)
    if workers > num_envs:
        raise ValueError(f"`workers` must be at most `num_envs` ({num_envs}), got {workers}.")
    if step_timeout is not None:
        stepping["step_timeout"] = _SECONDS.checked("step_timeout", step_timeout)
        if not workers:
            raise ValueError("`step_timeout` needs `workers`: a step can only be stopped with its process.")
    maker = Maker(_recipe(env), bool(time_limit), tuple(options.items()))
    with seeded_globally(0):
        return _environment(maker, stepping)


def _recipe(env: Any) -> str | EnvSpec | Callable[..., Any]:
    """An id or a function as it is; of an environment its `spec`, with its wrappers and its time limit."""
    if isinstance(env, gymnasium.vector.VectorEnv):
        told = "one environment, not a vector of them: moac.envs.make(id or function, num_envs=…) steps copies of it"
        raise ValueError(f"`env` must be {told}, got {type(env).__name__}.")
    if isinstance(env, gymnasium.Env):
        if env.spec is None:
            raise ValueError(
                f"`env` must have a `spec`, got {type(env).__name__} without: give a function that makes it."
            )
        return env.spec
    if not isinstance(env, str) and not callable(env):
        raise ValueError(f"`env` must be an id, an environment or a function that makes one, got {shown(env)}.")
    return env


def _quiet_mujoco(env_id: str) -> None:
    """Send MuJoCo's warnings to stderr, without deprecations; by default it writes a file into the user's folder."""
    entry = getattr(gymnasium.registry.get(env_id.rpartition(":")[2]), "entry_point", "")
    with contextlib.suppress(ImportError):
        if "mujoco" in str(entry) and (mujoco := importlib.import_module("mujoco")).get_mju_user_warning() is None:
            mujoco.set_mju_user_warning(
                lambda text: None if "deprecated" in text else sys.stderr.write(f"MuJoCo: {text}\n")
            )


@dataclass(frozen=True)
class Maker:
    """How a copy is made."""

    # an id, also `package.module:Id-v0`; the `spec` of an environment; or a function that returns one
    env: str | EnvSpec | Callable[..., Any]
    time_limit: bool  # whether the time limit of the registration holds
    options: tuple[tuple[str, Any], ...] = ()  # of the environment's constructor

    @property
    def name(self) -> str:
        """The id, or the name of the function."""
        if isinstance(self.env, EnvSpec):
            return self.env.id
        return self.env if isinstance(self.env, str) else getattr(self.env, "__name__", type(self.env).__name__)

    def __call__(self, **more: Any) -> tuple[Any, float]:
        """An environment without a time limit of its own around it, and the limit that is to be kept."""
        options: dict[str, Any] = dict(self.options) | more
        if not isinstance(self.env, str):
            make = partial(self.env.make, disable_env_checker=True) if isinstance(self.env, EnvSpec) else self.env
            env = make(**options)
            if type(env) is not TimeLimit:
                return env, math.inf
            return env.env, vars(env)["_max_episode_steps"] if self.time_limit else math.inf
        _quiet_mujoco(self.env)
        made = gymnasium.make(self.env, max_episode_steps=_NO_LIMIT, disable_env_checker=True, **options)
        made = made.env if type(made) is OrderEnforcing else made  # it would cost each step to say what we do anyway
        limit = gymnasium.spec(self.env.rpartition(":")[2]).max_episode_steps
        return made, math.inf if limit is None or not self.time_limit else limit

    def first(self) -> tuple[Any, float]:
        """A first copy, and its time limit; an unknown id, or a package that is missing, is a ValueError."""
        try:
            return self()
        except BaseException as error:  # whatever its packages do where something is missing
            if interrupts.is_of_user(error):
                raise
            if type(error) in _UNKNOWN_ID:
                module = self.name.rpartition(":")[0]
                known = f"an id that {module} registers" if module else f"one of {', '.join(known_ids())}"
                raise ValueError(f"`env` must be {known}, got {shown(self.name)}.") from None
            extra = next((extra for word, extra in _EXTRAS.items() if word in str(error).lower()), None)
            if extra is not None and isinstance(error, ImportError | gymnasium.error.DependencyNotInstalled):
                raise ValueError(
                    f"{self.name} needs a package that is missing: pip install 'moac[{extra}]'."
                ) from error
            hint = _IMPORTED if ":" in self.name and isinstance(error, ModuleNotFoundError) else ""
            raise ValueError(f"{self.name} cannot be made: {described(error)}.{hint}") from error


def known_ids() -> tuple[str, ...]:
    """The ids that MO-Gymnasium registers."""
    registered = gymnasium.registry.items()
    return tuple(sorted(id for id, spec in registered if str(spec.entry_point).startswith("mo_gymnasium")))


def _environment(maker: Maker, stepping: Mapping[str, Any]) -> Environment:
    """The environment; one copy is made to see its spaces, and closed."""
    sample, limit = maker.first()
    if not hasattr(type(sample), "action_space") and not hasattr(sample, "action_space"):
        raise ValueError(f"`env` must make an environment, got {maker.name}, which makes {shown(sample)}.")
    try:
        encoder, actions = encoder_of(sample.observation_space), actions_of(sample.action_space)
        low, high, looking_steps = _reward_bounds(sample)
    except BaseException as error:
        if interrupts.is_of_user(error):
            raise
        told = str(error) if isinstance(error, ValueError) else f"{described(error)}."
        raise ValueError(f"{maker.name} cannot be trained on: {told}") from None
    finally:
        close(sample, maker.name)
    box, num_actions = (actions, 0) if isinstance(actions, ActionBox) else (None, actions)
    interface = Interface(maker, encoder, num_actions, len(low), box, limit=limit, looking_steps=looking_steps)
    bounds = np.abs(np.concatenate([low, high]))
    spec = Spec(
        name=maker.name,
        objective_names=objective_names(maker.name, len(low)),
        observations=of_encoder(encoder),
        num_actions=num_actions,
        reward_bound=float(np.max(bounds, initial=0.0, where=np.isfinite(bounds) & (bounds < 1e30))) or 1.0,
        fingerprint=_fingerprint(maker, interface, stepping["num_envs"]),
        num_chains=stepping["num_envs"],
        options=dict(stepping) | {"time_limit": maker.time_limit} | dict(maker.options),
        action_box=box,
    )
    return Environment(interface, spec)


def _fingerprint(maker: Maker, interface: Interface, num_envs: int) -> str:
    """A short hash of what a run depends on: name, spaces, options, number of copies."""
    sizes = [interface.num_actions, interface.num_objectives, num_envs, maker.time_limit]
    about: list[Any] = [maker.name, interface.encoder.to_json(), *sizes]
    about.append([[key, repr(value)] for key, value in maker.options])
    about += [] if interface.box is None else [interface.box.to_json()]
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]


def _reward_bounds(env: Any) -> tuple[Any, Any, int]:
    """Bounds of the reward vector, and the steps taken to see it: one where no space tells M for certain."""
    layers = [env]
    while isinstance(layers[-1], gymnasium.Wrapper) and not hasattr(layers[-1], "reward_space"):
        layers.append(layers[-1].env)
    space: Any = getattr(layers[-1], "reward_space", None)
    shape = getattr(space, "shape", None) or ()
    if len(shape) != 1 or any(map(_may_reward, layers[:-1])):
        count = _num_rewards(env)
        if shape != (count,):
            return np.full(count, -np.inf), np.full(count, np.inf), 1
        return np.asarray(space.low, np.float64), np.asarray(space.high, np.float64), 1
    return np.asarray(space.low, np.float64), np.asarray(space.high, np.float64), 0


def _may_reward(wrapper: Any) -> bool:
    """Whether a wrapper may give another reward than what it wraps."""
    return isinstance(wrapper, gymnasium.RewardWrapper) or not type(wrapper).__module__.startswith("gymnasium.")


def _num_rewards(env: Any) -> int:
    """M, after one step."""
    try:
        env.reset(seed=0)
        env.action_space.seed(0)
        reward = real_reward(env.step(env.action_space.sample())[1])
    except WrongAnswerError as error:
        raise ValueError(f"{error}.") from None
    except BaseException as error:  # whatever the environment's code does
        if interrupts.is_of_user(error):
            raise
        raise ValueError(f"its first step raised {described(error)}.") from error
    if reward.ndim != 1 or not len(reward):
        raise ValueError(f"its reward must be a vector, got {'a number' if not reward.ndim else reward.tolist()}.")
    return len(reward)


def objective_names(name: str, count: int) -> tuple[str, ...]:
    """What the objectives of an environment are called; numbered where that is not known."""
    known = known_objectives(name)
    return known if len(known) == count else tuple(f"objective {i + 1}" for i in range(count))


def known_objectives(name: str) -> tuple[str, ...]:
    """The names of the objectives of MO-Gymnasium's environments; empty where they are not known."""
    return OBJECTIVES.get(max(filter(name.startswith, OBJECTIVES), key=len, default=""), ())


def encoder_of(space: Any) -> Encoder:
    """The encoder of an observation space; what it cannot hold is a ValueError that names the part."""
    encoder = Encoder(tuple(_leaves(space, ())))
    _check_size(encoder.size)
    if not encoder.size:
        raise ValueError(f"`observation_space` must hold at least one number, got {space}.")
    return encoder


def actions_of(space: Any) -> int | ActionBox:
    """A of a discrete action space, or the box of a continuous one."""
    if isinstance(space, spaces.Discrete):
        if space.start != 0:
            raise ValueError(f"`action_space` must start at 0, got {space}.")
        return int(space.n)
    if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        raise ValueError(f"`action_space` must be Discrete or a Box of real numbers, got {space}.")
    low, high = _bounds(space)
    if not low or not all(a < b for a, b in zip(low, high, strict=True)):
        raise ValueError(f"`action_space` must have a lower bound below the upper one everywhere, got {space}.")
    return ActionBox(tuple(space.shape), np.dtype(space.dtype).name, low, high)


def _leaves(space: Any, path: tuple[str | int, ...]) -> Iterator[Leaf]:
    if isinstance(space, spaces.Dict):
        for key in space.spaces:
            yield from _leaves(space.spaces[key], (*path, key))
    elif isinstance(space, spaces.Tuple):
        for place, part in enumerate(space.spaces):
            yield from _leaves(part, (*path, place))
    else:
        yield _leaf(space, path)


def _check_size(count: int) -> None:
    """Refuse observations of more numbers than are sane, before anything is made of each."""
    if count > _LARGEST_VECTOR:
        right = f"at most {_LARGEST_VECTOR:,} numbers, which a wrapper that extracts features can see to"
        raise ValueError(f"`observation_space` must hold {right}, got {count:,}.")


def _leaf(space: Any, path: tuple[str | int, ...]) -> Leaf:
    if isinstance(space, spaces.Box) and _is_image(space):
        raise ValueError(f"`observation_space` must not be an image, got shape {space.shape}: {_NO_IMAGES}.")
    _check_size(math.prod(getattr(space, "shape", None) or ()))
    if isinstance(space, spaces.Discrete):
        return Leaf(path, "integer", (float(space.start),), (float(space.start + space.n - 1),))
    if isinstance(space, spaces.MultiDiscrete):
        start = np.asarray(space.start)
        return Leaf(path, "integer", _flat(start), _flat(start + space.nvec - 1))
    if isinstance(space, spaces.MultiBinary):
        count = int(np.prod(space.shape))
        return Leaf(path, "binary", (0.0,) * count, (1.0,) * count)
    if isinstance(space, spaces.Box):
        whole = np.issubdtype(space.dtype, np.integer) or np.issubdtype(space.dtype, np.bool_)
        return Leaf(path, "integer" if whole else "float", *_bounds(space))
    where = f" at {'.'.join(map(str, path))}" if path else ""
    raise ValueError(f"`observation_space` must be {_SPACES}, got {space}{where}.")


def _is_image(space: spaces.Box) -> bool:
    """Whether a box holds pictures: bytes along three axes, two of which are as long as those of a picture."""
    if space.dtype != np.uint8 or len(space.shape) != 3:
        return False
    _, shorter_side, _ = sorted(space.shape)
    return shorter_side >= _SMALLEST_IMAGE


def _bounds(space: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Bounds; one that stands for no bound, such as the largest float, is infinite."""
    low, high = np.asarray(space.low, np.float64), np.asarray(space.high, np.float64)
    low, high = np.where(low < -1e30, -np.inf, low), np.where(high > 1e30, np.inf, high)
    return _flat(low), _flat(high)


def _flat(values: Any) -> tuple[float, ...]:
    return tuple(float(value) for value in np.asarray(values).reshape(-1))
