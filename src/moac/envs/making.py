"""From an id, or a function, to an environment with its description."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np

from moac.envs import spaces
from moac.envs.copies import Maker
from moac.envs.environment import Environment, fingerprint
from moac.envs.fleet import Plan
from moac.envs.randomness import kept_globally
from moac.policies.encoding import ActionBox
from moac.types import Spec

OBJECTIVES = {
    "resource-gathering": ("death", "gold", "diamond"),
    "fishwood": ("fish", "wood"),
    "deep-sea-treasure": ("treasure", "time"),
    "deep-sea-treasure-concave": ("treasure", "time"),
    "deep-sea-treasure-mirrored": ("treasure", "time"),
    "four-room": ("first kind", "second kind", "third kind"),
    "fruit-tree": ("protein", "carbs", "fats", "vitamins", "minerals", "water"),
    "breakable-bottles": ("time", "bottles", "potential"),
    "minecart": ("first ore", "second ore", "fuel"),
    "minecart-deterministic": ("first ore", "second ore", "fuel"),
    "mo-mountaincar": ("time", "reverse", "forward"),
    "mo-mountaincarcontinuous": ("time", "fuel"),
    "water-reservoir": ("flooding", "irrigation"),
    "mo-lunar-lander": ("outcome", "shaping", "main engine", "side engine"),
    "mo-lunar-lander-continuous": ("outcome", "shaping", "main engine", "side engine"),
    "mo-hopper": ("forward", "height", "control"),
    "mo-hopper-2obj": ("forward", "height"),
    "mo-halfcheetah": ("forward", "control"),
    "mo-walker2d": ("forward", "control"),
    "mo-swimmer": ("forward", "control"),
    "mo-humanoid": ("forward", "control"),
    "mo-ant": ("x velocity", "y velocity", "control"),
    "mo-ant-2obj": ("x velocity", "y velocity"),
    "mo-reacher": ("first target", "second target", "third target", "fourth target"),
}
"""What the objectives of MO-Gymnasium's environments are, by id without its version."""


@kept_globally()
def environment_of(
    env: str | Callable[..., Any], sizes: Mapping[str, Any], time_limit: bool, options: Mapping[str, Any]
) -> Environment:
    """The environment; one copy is made to see its spaces, and closed."""
    maker = Maker(env, bool(time_limit), tuple(options.items()))
    sample = _made(maker)
    try:
        encoder, actions = spaces.encoder_of(sample.observation_space), spaces.actions_of(sample.action_space)
        low, high = _reward_bounds(sample)
    except ValueError as error:
        raise ValueError(f"{_name(env)} cannot be trained on: {error}") from None
    finally:
        sample.close()
    box = actions if isinstance(actions, ActionBox) else None
    plan = Plan(maker, encoder, actions if isinstance(actions, int) else 0, len(low), box)
    bounds = np.abs(np.concatenate([low, high]))
    spec = Spec(
        name=_name(env),
        objective_names=_objectives(env, len(low)),
        num_states=encoder.num_states,
        num_actions=plan.num_actions,
        reference_state=0,
        reward_bound=float(np.max(bounds, initial=0.0, where=np.isfinite(bounds) & (bounds < 1e30))) or 1.0,
        fingerprint=fingerprint(_name(env), plan, sizes["num_envs"]),
        encoder=encoder,
        num_chains=sizes["num_envs"],
        options=dict(sizes) | {"time_limit": bool(time_limit)} | dict(options),
        action_low=None if box is None else box.low,
        action_high=None if box is None else box.high,
        action_box=box,
    )
    return Environment(plan, spec, sizes["workers"], sizes["evaluation_episodes"], sizes.get("step_timeout"))


def known_ids() -> tuple[str, ...]:
    """The ids that MO-Gymnasium registers."""
    return tuple(
        sorted(id for id, spec in gymnasium.registry.items() if str(spec.entry_point).startswith("mo_gymnasium"))
    )


def _made(maker: Maker) -> Any:
    """A first copy; an unknown id, or a package that is missing, is a ValueError."""
    try:
        return maker()[0]
    except (gymnasium.error.UnregisteredEnv, gymnasium.error.NamespaceNotFound, gymnasium.error.NameNotFound):
        raise ValueError(f"`env` must be one of {', '.join(known_ids())}, got {maker.env!r}.") from None
    except (gymnasium.error.Error, ImportError, TypeError) as error:
        raise ValueError(f"{_name(maker.env)} cannot be made: {' '.join(str(error).split())}") from None
    except Exception as error:  # whatever its packages do where something is missing
        said = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise ValueError(f"{_name(maker.env)} cannot be made: {said}") from error


def _reward_bounds(env: Any) -> tuple[Any, Any]:
    """Bounds of the reward vector: of the reward space where there is one, else unknown, after one step to see M."""
    space = getattr(env.unwrapped, "reward_space", None)
    if space is not None and len(space.shape or ()) == 1:
        return np.asarray(space.low, np.float64), np.asarray(space.high, np.float64)
    env.reset(seed=0)
    env.action_space.seed(0)
    reward = np.asarray(env.step(env.action_space.sample())[1])
    if reward.ndim != 1 or not len(reward):
        raise ValueError(f"its reward must be a vector, got {'a number' if not reward.ndim else reward.tolist()}.")
    return np.full(len(reward), -np.inf), np.full(len(reward), np.inf)


def _name(env: str | Callable[..., Any]) -> str:
    return env if isinstance(env, str) else getattr(env, "__name__", type(env).__name__)


def _objectives(env: str | Callable[..., Any], count: int) -> tuple[str, ...]:
    known = OBJECTIVES.get(_name(env).rpartition("-v")[0], ())
    return known if len(known) == count else tuple(f"objective {i + 1}" for i in range(count))
