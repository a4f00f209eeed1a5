"""Every reachable (state, action) of each library model against the real MO-Gymnasium environment.

The real environment is put into the state and stepped; only its random source is scripted. It draws at most one uniform
number u per step, so its law is read off exactly: [0, 1) is cut where the model says that outcomes change, and at both
ends and in the middle of every piece the outcome must be the same; the lengths of its pieces are its chance.
"""

import itertools

import mo_gymnasium
import numpy as np
import pytest

from moac.momdp import library

pytestmark = pytest.mark.filterwarnings("ignore:.*precision lowered by casting.*:UserWarning")  # Gymnasium's Box

CASES = {
    "resource-gathering-v0": (library.resource_gathering, {}),
    "fishwood-v0": (library.fishwood, {}),
    "fishwood-v0, other chances": (lambda: library.fishwood(0.25, 0.7), {"fishproba": 0.25, "woodproba": 0.7}),
    "deep-sea-treasure-v0": (lambda: library.deep_sea_treasure("convex"), {}),
    "deep-sea-treasure-concave-v0": (lambda: library.deep_sea_treasure("concave"), {}),
    "deep-sea-treasure-mirrored-v0": (lambda: library.deep_sea_treasure("mirrored"), {}),
    "fruit-tree-v0": (library.fruit_tree, {}),
}
NUM_STATES = {
    "resource-gathering-v0": 93,
    "fishwood-v0": 2,
    "deep-sea-treasure-v0": 62,
    "deep-sea-treasure-concave-v0": 62,
    "deep-sea-treasure-mirrored-v0": 112,
    "fruit-tree-v0": 63,
}


class Scripted:
    """A random source that returns one chosen number, once."""

    def __init__(self, u):
        self.left = [u]

    def random(self):
        return self.left.pop()


@pytest.fixture(params=CASES)
def pair(request):
    """A library model and its real environment."""
    build, arguments = CASES[request.param]
    environment = mo_gymnasium.make(request.param.split(",")[0], **arguments).unwrapped
    environment.reset(seed=0)
    yield build(), environment
    environment.close()


def place(environment, observation):
    """Put the real environment into the state that it shows as `observation`."""
    name = environment.spec.id
    if name == "resource-gathering-v0":
        environment.current_pos = observation[:2].copy()
        environment.has_gold, environment.has_gem = (int(x) for x in observation[2:])
    elif name == "fishwood-v0":
        environment._state = observation.copy()
        environment._timestep = 0
    else:
        environment.current_state = observation.copy()


def outcome(environment, observation, action, u):
    """What the real environment does when its random number is `u`."""
    place(environment, observation)
    environment.np_random = Scripted(u)
    seen, reward, terminated, truncated, _ = environment.step(action)
    assert not truncated
    assert seen.dtype == np.int32
    assert reward.dtype == np.float32
    return (None if terminated else tuple(seen.tolist()), tuple(reward.tolist()), bool(terminated))


def law_of_environment(environment, observation, action, chances):
    """Chances of all that the real environment can do, cut at `chances` and their complements."""
    cuts = sorted({0.0, 1.0, *chances, *(1.0 - chances)})
    law = {}
    for low, high in itertools.pairwise(cuts):
        if high - low < 1e-12:  # one cut twice, up to rounding
            continue
        inside = (low + 1e-15, (low + high) / 2, high - 1e-15)
        found = {outcome(environment, observation, action, u) for u in inside}
        assert len(found) == 1, f"the chance of an outcome lies inside ({low}, {high})"
        (one,) = found
        law[one] = law.get(one, 0.0) + high - low
    return law


def law_of_model(model, state, action):
    """The same from the model's tables, with rewards rounded to the environment's float32."""
    law = {}
    for o in np.flatnonzero(model.probability[state, action] > 0):
        terminated = bool(model.terminated[state, action, o])
        shown = model.observations[model.next_state[state, action, o]]
        reward = model.reward[state, action, o].astype(np.float32)
        one = (None if terminated else tuple(shown.tolist()), tuple(reward.tolist()), terminated)
        law[one] = law.get(one, 0.0) + model.probability[state, action, o]
    return law


def test_every_state_and_action_has_the_law_of_the_environment(pair):
    model, environment = pair
    assert model.num_actions == environment.action_space.n
    for state, action in itertools.product(range(model.num_states), range(model.num_actions)):
        expected = law_of_model(model, state, action)
        found = law_of_environment(environment, model.observations[state], action, model.probability[state, action])
        assert found.keys() == expected.keys(), (state, action)
        assert found == pytest.approx(expected, abs=1e-12, rel=0), (state, action)


def test_the_check_of_laws_notices_a_wrong_chance():
    environment = mo_gymnasium.make("fishwood-v0", woodproba=0.901).unwrapped
    environment.reset(seed=0)
    with pytest.raises(AssertionError, match="the chance of an outcome lies inside"):
        law_of_environment(environment, np.array([1], np.int32), 0, np.array([0.1, 0.9]))


def test_start_and_states_are_those_of_the_environment(pair):
    model, environment = pair
    first, _ = environment.reset(seed=1)
    assert model.start_distribution.tolist().count(1.0) == 1
    assert np.count_nonzero(model.start_distribution) == 1
    np.testing.assert_array_equal(model.observations[model.start_distribution.argmax()], first)
    assert model.observations.dtype == first.dtype
    assert model.observations.shape == (NUM_STATES[environment.spec.id], *first.shape)
    assert len(np.unique(model.observations, axis=0)) == model.num_states
    assert all(environment.observation_space.contains(shown) for shown in model.observations)


def test_every_state_is_reachable(pair):
    model, _ = pair
    possible = (model.probability > 0) & ~model.terminated
    reached = set(np.flatnonzero(model.start_distribution).tolist())
    for _ in range(model.num_states):
        here = sorted(reached)
        reached |= set(model.next_state[here][possible[here]].tolist())
    assert len(reached) == model.num_states


def test_a_long_rollout_never_leaves_the_model(pair):
    model, environment = pair
    index = {tuple(shown.tolist()): state for state, shown in enumerate(model.observations)}
    actions = np.random.default_rng(0).integers(model.num_actions, size=3000).tolist()
    seen, _ = environment.reset(seed=2)
    num_ends = 0
    for action in actions:
        state = index[tuple(seen.tolist())]
        seen, reward, terminated, truncated, _ = environment.step(action)
        ended = terminated and not truncated  # fishwood reports its time limit as both
        one = (None if ended else tuple(seen.tolist()), tuple(reward.tolist()), ended)
        assert one in law_of_model(model, state, action)
        num_ends += terminated or truncated
        if terminated or truncated:
            seen, _ = environment.reset()
    assert num_ends >= 5


@pytest.mark.parametrize("last_step", [False, True])
def test_the_end_of_fishwood_is_a_time_limit(last_step):
    environment = mo_gymnasium.make("fishwood-v0").unwrapped
    environment.reset(seed=0)
    environment._timestep = environment.MAX_TS - (1 if last_step else 2)
    _, _, terminated, truncated, _ = environment.step(0)
    assert (terminated, truncated) == (last_step, last_step)
    assert not library.fishwood().terminated.any()


def test_bumping_at_home_ends_the_episode_and_death_keeps_the_loot_away():
    model = library.resource_gathering()
    at = {tuple(shown.tolist()): state for state, shown in enumerate(model.observations)}
    down, right = 1, 3
    assert law_of_model(model, at[4, 2, 0, 0], down) == {(None, (0.0, 0.0, 0.0), True): 1.0}
    assert law_of_model(model, at[1, 1, 1, 1], right) == {
        ((1, 2, 1, 1), (0.0, 0.0, 0.0), False): 0.9,
        (None, (-1.0, 0.0, 0.0), True): 0.1,
    }
    assert law_of_model(model, at[4, 1, 1, 0], right) == {(None, (0.0, 1.0, 0.0), True): 1.0}


def test_environments_are_found_by_their_id():
    assert set(library.known_environments()) == set(NUM_STATES)
    for env_id in library.known_environments():
        model = library.for_environment(env_id)
        assert model.name == env_id
        assert model.num_states == NUM_STATES[env_id]
        assert model.num_objectives == mo_gymnasium.make(env_id).unwrapped.reward_space.shape[0]
    assert library.for_environment("minecart-v0") is None


def test_rewards_are_kept_in_double_precision():
    assert library.deep_sea_treasure().reward[..., 0].max() == 23.7
    assert library.resource_gathering().objective_names == ("death", "gold", "diamond")
    assert library.fishwood().objective_names == ("fish", "wood")


def test_unknown_variants_and_chances_are_refused():
    with pytest.raises(ValueError, match="'convex', 'concave', 'mirrored', got 'flat'"):
        library.deep_sea_treasure("flat")
    with pytest.raises(ValueError, match=r"`wood_probability` must be in \[0, 1\], got 1.5\."):
        library.fishwood(wood_probability=1.5)
    with pytest.raises(ValueError, match=r"`fish_probability` must be in \[0, 1\], got nan\."):
        library.fishwood(fish_probability=float("nan"))
