"""The configuration of a run, as plain data. Imports neither JAX nor NumPy, so that the command line starts at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from moac import choices
from moac.arguments import checked
from moac.choices import shown


@dataclass(frozen=True)
class Average:
    """Average-reward setting: Jⁱ is the reward per step, lim (1/T) E Σ rⁱ."""

    def discounts(self, num_objectives: int) -> tuple[float, ...]:
        """The factor on the successor's value in the TD error: 1 for every objective."""
        return (1.0,) * num_objectives


@dataclass(frozen=True)
class Discounted:
    """Discounted setting: Jⁱ = E Σ_{t≥0} (γⁱ)ᵗ rⁱ_t from the start distribution.

    Args:
        discount: γ, one value for all objectives or one value per objective, each in (0, 1).
    """

    discount: float | tuple[float, ...] = 0.9

    def __post_init__(self) -> None:
        values: tuple[Any, ...] = choices.several(self.discount)
        if not values:
            raise ValueError("`discount` must hold at least one value, got none.")
        floats = tuple(choices.DISCOUNT.checked("discount", value) for value in values)
        object.__setattr__(self, "discount", floats[0] if len(floats) == 1 else floats)

    def discounts(self, num_objectives: int) -> tuple[float, ...]:
        """One γ per objective; a single value serves them all."""
        if isinstance(self.discount, int | float):
            return (self.discount,) * num_objectives
        if len(self.discount) != num_objectives:
            raise ValueError(
                f"`discount` must be one value or one per objective ({num_objectives}), got {len(self.discount)}."
            )
        return self.discount


Setting = Average | Discounted


def _one_of(*names: str, default: str | None = None) -> Any:
    """A field that names a part."""
    return field(default=default, metadata={"choices": names})


def _within(numbers: choices.Range, default: float | None = None) -> Any:
    """A field that holds one of these numbers."""
    return field(default=default, metadata={"range": numbers})


@dataclass(frozen=True)
class Config:
    """The configuration of a run. Fields that are None are filled by `moac.defaults(problem)`.

    Attributes:
        setting: `Discounted` or `Average`.
        learner: `paper` is Algorithm 2, which uses each sample once; `ppo` goes over each rollout several times and is
            outside the theory.
        num_iterations: T, the number of policy updates.
        num_critic_steps: N, TD steps per policy update; 0 with `ppo`, where one rollout serves actor and critic.
        critic_batch_size: D, transitions per TD step.
        actor_batch_size: B, transitions per policy gradient; with `ppo` the rollout of all copies together.
        epochs: passes of `ppo` over a rollout.
        minibatch_size: transitions per gradient step of `ppo`; it must divide `actor_batch_size`.
        ratio_clip: ε of `ppo`: a step gains nothing from moving π/π_old out of [1 − ε, 1 + ε].
        units: what `ppo` divides each objective's advantages by before they are weighted: nothing (`raw`), the standard
            deviation of its discounted `return`, or that of the `advantage` itself.
        whitening: `rollout` centres the advantages of each objective and divides their weighted sum by its standard
            deviation; `none` is the paper.
        schedule: whether the step sizes and the entropy of `ppo` stay `constant` or decay to 0 (`linear`).
        actor_step_size: step size α of the policy.
        critic_step_size: step size β of the critic.
        visitation: state distribution of the policy gradient: `stationary` is the paper's; `discounted` gives the true
            gradient of the discounted return.
        policy: `table` (one logit per state and action), `linear` (logits linear in the features), `mlp` (logits from a
            network), `gaussian` (continuous actions; mean from a network), `items` (on a log: scores of items by their
            features, among a request's candidates or all of them).
        critic: `linear` is the paper's; `mlp` is a network with one output per objective, outside the theory.
        hidden: widths of the hidden layers of the networks.
        item_embedding: whether `items` also learns an embedding of each item that train rows show, beside its features.
        action_spread: initial standard deviation σ of a Gaussian policy, before actions are squashed into their bounds.
        action_scale: σ of a Gaussian policy: `shared` by all states, or from the network for each `state`.
        optimiser: optimiser of the actor: `constant` is the paper's step; `adam` is outside the theory.
        critic_optimiser: optimiser of the critic, likewise.
        gradient_clip: largest norm of the actor's and of the critic's direction; None does not clip.
        entropy: coefficient of an entropy bonus, added to the direction after the weighting; 0 is the paper.
        gae: λ of generalised advantage estimation; 0 is the paper's one-step TD error.
        features: of states `one-hot`, `one-hot-reference` (without the most visited state), `random:<d>`; of vectors
            `tile`, `tile:<tiles per input>`, `fourier:<order>`, `rbf:<centres>`, `raw`; of a log's vectors `plain`.
        observation_scale: how vectors are scaled to [0, 1]: by the `bounds` of their space, or by running moments that
            are saved with the policy: `running` clips at 3 standard deviations, `standard` at 10.
        weighting: the rule that gives λ̂ (`moac docs rules`). `capped:0.5`, `cagrad:0.4`, `fairgrad:2`, `chebyshev:0.1`
            set the rule's number. All but the first five are outside the theory.
        weights: λ of `fixed`; otherwise the initial λ_0 of the momentum, or of a rule that takes steps. None: uniform.
        preferences: preference vector p of each trial, in turn, for `preferred`, `chebyshev` and `sdmgrad`; for `fixed`
            its λ. None is one uniform p for all.
        conditioned: train one network for all preferences: p is part of the observation, each episode draws one, and p
            weights the advantages of its samples. It needs a stepped environment, networks and `ppo`.
        preference_draw: distribution of an episode's p: `dirichlet:1` is uniform on the simplex, `dirichlet:0.5` nearer
            to its corners; `corners` puts a quarter of the episodes at the corners and a tenth in the centre.
        momentum: schedule of η_t: `1/t`, `1/sqrt(t)`, `1/t^2`, `0`, `1`, `const:<value>`; for rules whose λ̂ lies on the
            simplex and that take no steps of their own.
        normalise: `none` is the paper; `l2` divides each objective's gradient by its norm, outside the theory.
        start: initial policy: `random`, or on a log `behaviour`, the weights of the behaviour model.
        importance_cap: cap c of the importance ratios min{c, π/π_b} that weight a log's TD errors and gradients.
        behaviour_pull: coefficient of the KL regularisation towards the log's behaviour policy: −∇KL(π_b ‖ π) is added
            to the direction after the weighting.
        mu: update of the average reward μ: `batch` moves it after each batch; `paper` follows the paper's recursion.
        average_step_size: step size of μ with `mu="batch"`.
        critic_start: `warm` keeps the critic between iterations; `cold` restarts it from zero.
        num_evaluations: number of evenly spaced iterations that are evaluated and logged; fewer on an environment whose
            episodes would exceed `evaluation_share`.
        evaluation_share: environment steps that evaluations may take, as a share of those of the training. The last
            policies are evaluated in at least one episode each.
    """

    setting: Average | Discounted | None = None
    num_iterations: int | None = _within(choices.COUNT)
    num_critic_steps: int | None = _within(choices.COUNT_OR_OFF)
    critic_batch_size: int | None = _within(choices.COUNT)
    actor_batch_size: int | None = _within(choices.COUNT)
    actor_step_size: float | None = _within(choices.POSITIVE)
    critic_step_size: float | None = _within(choices.POSITIVE)
    learner: str | None = _one_of("paper", "ppo")
    epochs: int | None = _within(choices.COUNT)
    minibatch_size: int | None = _within(choices.COUNT)
    ratio_clip: float | None = _within(choices.POSITIVE)
    units: str | None = _one_of("return", "raw", "advantage")
    whitening: str | None = _one_of("rollout", "none")
    schedule: str | None = _one_of("linear", "constant")
    visitation: str = _one_of("stationary", "discounted", default="stationary")
    policy: str | None = _one_of("table", "linear", "mlp", "gaussian", "items")
    critic: str | None = _one_of("linear", "mlp")
    hidden: tuple[int, ...] | None = None
    item_embedding: bool = True
    action_scale: str = _one_of("shared", "state", default="shared")
    action_spread: float = _within(choices.SPREAD, 0.6065306597126334)  # log σ = −1/2
    optimiser: str | None = _one_of("constant", "adam")
    critic_optimiser: str | None = _one_of("constant", "adam")
    gradient_clip: float | None = _within(choices.POSITIVE)
    entropy: float | None = _within(choices.NOT_NEGATIVE)
    gae: float | None = _within(choices.SHARE)
    features: str | None = _one_of(
        *("one-hot", "one-hot-reference", "random:<d>"),
        *("tile", "tile:<n>", "fourier:<order>", "rbf:<n>", "raw", "plain"),
    )
    observation_scale: str | None = _one_of("bounds", "running", "standard")
    weighting: str | None = _one_of(*choices.WEIGHTING_CHOICES)
    weights: tuple[float, ...] | None = None
    preferences: tuple[tuple[float, ...], ...] | None = None
    conditioned: bool = False
    preference_draw: str = _one_of("dirichlet:<alpha>", "corners", default="dirichlet:1")
    momentum: str = "1/t"
    normalise: str | None = _one_of("none", "l2")
    start: str | None = _one_of("random", "behaviour")
    importance_cap: float = _within(choices.POSITIVE, 10.0)
    behaviour_pull: float | None = _within(choices.NOT_NEGATIVE)
    mu: str = _one_of("batch", "paper", default="batch")
    average_step_size: float = _within(choices.POSITIVE_SHARE, 0.05)
    critic_start: str = _one_of("warm", "cold", default="warm")
    num_evaluations: int = _within(choices.COUNT, 50)
    evaluation_share: float | None = _within(choices.NOT_NEGATIVE)

    def __post_init__(self) -> None:
        if self.setting is not None:
            check_setting(self.setting)
        for name in ("conditioned", "item_embedding"):
            _check_type(name, getattr(self, name), (bool,), "True or False")
        _check_type("momentum", self.momentum, (str,), f"a text, one of {', '.join(choices.schedule_names())}")
        for each in fields(self):
            value = getattr(self, each.name)
            if value is None and each.default is None:  # the problem decides, or the option is off
                continue
            if "choices" in each.metadata and not is_choice(each.name, value):
                near = choices.did_you_mean(value, [name for name in CHOICES[each.name] if "<" not in name])
                known = ", ".join(CHOICES[each.name])
                raise ValueError(f"`{each.name}` must be one of {known}, got {shown(value)}.{near}")
            if "range" in each.metadata:
                object.__setattr__(self, each.name, each.metadata["range"].checked(each.name, value))
        if self.hidden is not None:
            widths = tuple(choices.COUNT.checked("hidden", width) for width in choices.several(self.hidden))
            object.__setattr__(self, "hidden", widths)
        object.__setattr__(self, "weights", _weights(self))
        object.__setattr__(self, "preferences", _preferences(self.weighting, self.preferences))
        choices.schedule_of(self.momentum)
        _check_together(self)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON data; `from_json` reads it back."""
        data = {each.name: getattr(self, each.name) for each in fields(self)}
        if self.setting is not None:
            data["setting"] = {"name": type(self.setting).__name__.lower(), **vars(self.setting)}
        return data

    @classmethod
    @checked
    def from_json(cls, data: Mapping[str, Any]) -> Config:
        """A configuration from what `to_json` made; an unknown key is an error."""
        known = [each.name for each in fields(cls)]
        for key in data:
            if key not in known:
                raise ValueError(f"`{key}` is not a field of the configuration; known are {', '.join(known)}.")
        values: dict[str, Any] = {key: _tuple_if_list(value) for key, value in data.items()}
        if values.get("setting") is not None:
            values["setting"] = _setting(values["setting"])
        return cls(**values)


def check_trials(trials: Any, seed: Any) -> None:
    """Refuse a number of trials below one, or a seed that JAX cannot take."""
    choices.TRIALS.checked("trials", choices.COUNT.checked("trials", trials))
    choices.SEED.checked("seed", seed)


def check_setting(setting: Any) -> None:
    """Refuse what is not a setting, such as a bare discount."""
    _check_type("setting", setting, (Average, Discounted), "Average() or Discounted(discount)")


def _tuple_if_list(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _setting(data: Any) -> Setting:
    match data:
        case {"name": "average", **rest} if not rest:
            return Average()
        case {"name": "discounted", "discount": discount, **rest} if not rest:
            return Discounted(_tuple_if_list(discount))
        case _:
            raise ValueError(f"`setting` must be average or discounted with its discount, got {shown(data)}.")


def _check_type(name: str, value: Any, kinds: tuple[type, ...], right: str) -> None:
    if not isinstance(value, kinds):
        raise ValueError(f"`{name}` must be {right}, got {shown(value)}.")


CHOICES: dict[str, tuple[str, ...]] = {f.name: f.metadata["choices"] for f in fields(Config) if "choices" in f.metadata}
"""What the fields that name a part may say."""


def is_choice(name: str, value: Any) -> bool:
    """Whether a value is one of `CHOICES`, or one of them with its number."""
    known = CHOICES[name]
    if not isinstance(value, str):
        return False
    kind, colon, size = value.partition(":")
    sized = any(choice.startswith(f"{kind}:<") for choice in known)
    if colon and sized and size.replace(".", "", name != "features").isdecimal():  # features take whole numbers
        return float(size) > 0 and value == f"{kind}:{size}"
    return value in known and "<" not in value


_OF_PAPER = {"epochs": 1, "units": "raw", "whitening": "none", "schedule": "constant"}
"""What the paper's learner does of what `ppo` has a choice in."""


def _check_together(config: Config) -> None:
    """What fields must not say beside each other."""
    _check_counted(config)
    if config.visitation == "discounted" and isinstance(config.setting, Average):
        raise ValueError("`visitation` must be stationary in the average setting, got 'discounted'.")
    if config.critic == "mlp" and config.critic_start == "cold":
        raise ValueError("`critic_start` must be warm with an mlp critic, since zeros cannot learn, got 'cold'.")
    for name, right in _OF_PAPER.items():
        if config.learner == "paper" and getattr(config, name) not in (None, right):
            raise ValueError(f"`{name}` must be {right} with learner='paper', got {shown(getattr(config, name))}.")
    if config.conditioned:
        _check_conditioned(config)
    if config.learner == "ppo":
        _check_ppo(config)
    elif config.num_critic_steps is not None:
        choices.COUNT.checked("num_critic_steps", config.num_critic_steps)


def _check_counted(config: Config) -> None:
    """Compiled programs count in 32 bits."""
    for name in ("num_iterations", "num_evaluations"):
        count = getattr(config, name)
        if count is not None and count >= 2**31:
            raise ValueError(f"`{name}` must be below 2^31, got {count}.")


def _check_conditioned(config: Config) -> None:
    """What one network for every preference does not go together with."""
    if config.weighting not in (None, "fixed"):
        why = "each sample is weighted by its own p"
        raise ValueError(f"`weighting` must be fixed with conditioned=True: {why}, got {shown(config.weighting)}.")
    for name in ("weights", "preferences"):
        if getattr(config, name) is not None:
            raise ValueError(f"`{name}` must be None with conditioned=True: each episode draws its own p.")
    known = {"learner": ("ppo",), "policy": ("mlp", "gaussian"), "critic": ("mlp",)}
    for name, right in known.items():
        value = getattr(config, name)
        if value not in (None, *right):
            raise ValueError(f"`{name}` must be {' or '.join(right)} with conditioned=True, got {shown(value)}.")


def _check_ppo(config: Config) -> None:
    """What reusing a rollout does not go together with."""
    if isinstance(config.setting, Average):
        raise ValueError("`learner` must be paper in the average setting, got 'ppo'.")
    if config.num_critic_steps:
        raise ValueError(f"`num_critic_steps` must be 0 with learner='ppo', got {config.num_critic_steps}.")
    B, b = config.actor_batch_size, config.minibatch_size
    if B is not None and b is not None and B % b:
        raise ValueError(f"`minibatch_size` must divide `actor_batch_size` ({B} = copies × steps of each), got {b}.")


def _weights(config: Config) -> tuple[float, ...] | None:
    weighting, weights = config.weighting, config.weights
    if weights is None:
        if weighting == "fixed" and config.preferences is None and not config.conditioned:
            raise ValueError("`weights` must be given with weighting='fixed', one per objective, got None.")
        return None
    if weighting is not None and weighting in choices.WEIGHTINGS and choices.WEIGHTINGS[weighting].takes is None:
        raise ValueError(f"`weights` must be None with weighting={weighting!r}, got {shown(weights)}.")
    return choices.on_simplex("weights", weights)


def _preferences(weighting: str | None, preferences: Any) -> tuple[tuple[float, ...], ...] | None:
    if preferences is None:
        return None
    if weighting is None or not choices.takes_preferences(weighting):
        raise ValueError(f"`preferences` must be None unless `weighting` is {' or '.join(choices.WITH_PREFERENCES)}.")
    vectors = tuple(choices.on_simplex("preferences", each) for each in choices.several(preferences))
    if not vectors or len({len(each) for each in vectors}) != 1:
        raise ValueError("`preferences` must hold at least one vector, all with one number per objective.")
    return vectors
