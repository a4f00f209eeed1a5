"""The exact oracle against simulation, hand calculation, automatic and finite differences, and exact fractions."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax

from moac.config import Average, Discounted
from moac.momdp import FiniteMOMDP, chain, library, oracle
from tests.helpers import closed_form
from tests.helpers.asserts import assert_on_simplex, scaled_kkt

SETTINGS = [Discounted(0.9), Discounted((0.3, 0.99)), Average()]
by_name = pytest.mark.parametrize("setting", SETTINGS, ids=["one discount", "two discounts", "average"])


def ergodic(seed=0, termination=0.0, num_objectives=2, **sizes):
    return library.random_ergodic(seed, num_objectives=num_objectives, termination=termination, **sizes)


def random_logits(model, *leading, seed=0, scale=1.0):
    return scale * np.random.default_rng(seed).normal(size=(*leading, model.num_states, model.num_actions))


def near_deterministic(model, *leading, seed=0, size=40.0):
    chosen = np.random.default_rng(seed).integers(model.num_actions, size=(*leading, model.num_states, 1))
    return np.where(np.arange(model.num_actions) == chosen, size, -size)


def widened(setting, M):
    """The setting for M objectives."""
    return Discounted(tuple(np.linspace(0.3, 0.99, M))) if setting == SETTINGS[1] else setting


MODELS = {
    "endless": ergodic(1),
    "ending": ergodic(2, termination=0.15),
    "sparse": ergodic(3, termination=0.05, num_successors=2),
    "one objective": ergodic(4, termination=0.1, num_objectives=1),
    "resource gathering": library.resource_gathering(),
}
on_models = pytest.mark.parametrize("name", MODELS)
on_problems = pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("endless", SETTINGS[0]),
        ("ending", SETTINGS[1]),
        ("sparse", SETTINGS[2]),
        ("one objective", SETTINGS[2]),
        ("resource gathering", SETTINGS[1]),
        ("resource gathering", SETTINGS[2]),
    ],
    ids=str,
)


# --- returns and values


def test_one_state_by_hand():
    model = FiniteMOMDP.from_dense([[[1.0], [1.0]]], [[[1.0, -2.0], [3.0, 5.0]]])
    logits = [[0.0, np.log(3)]]  # π = (1/4, 3/4), so that r = (2.5, 3.25)
    discounted = oracle.evaluate(model, logits, Discounted((0.5, 0.9)))
    np.testing.assert_allclose(discounted.returns, [2.5 / 0.5, 3.25 / 0.1], rtol=1e-14)
    np.testing.assert_allclose(discounted.values, [discounted.returns], rtol=1e-14)
    # ∂/∂θ_a Σ π r = π_a (r_a − r̄)
    slope = np.array([[0.25 * -1.5, 0.75 * 0.5], [0.25 * -5.25, 0.75 * 1.75]])
    np.testing.assert_allclose(discounted.gradient[:, 0], slope / [[0.5], [0.1]], rtol=1e-13)
    np.testing.assert_allclose(discounted.direction[:, 0], slope, rtol=1e-13)
    average = oracle.evaluate(model, logits, Average())
    np.testing.assert_allclose(average.returns, [2.5, 3.25], rtol=1e-15)
    np.testing.assert_allclose(average.values, [[0, 0]], atol=1e-15)
    np.testing.assert_allclose(average.gradient[:, 0], slope, rtol=1e-13)


def test_two_states_by_hand():
    """From 0 action 1 goes to 1 (r = 0) and action 0 stays (r = 1); from 1 both lead back to 0, r = 4."""
    P = np.array([[[1, 0], [0, 1]], [[1, 0], [1, 0]]], dtype=float)
    r = np.array([[[1.0], [0]], [[4.0], [4]]])
    model = FiniteMOMDP.from_dense(P, r, start=[1, 0])
    p, g = 0.2, 0.9
    logits = np.log([[1 - p, p], [0.5, 0.5]])
    average = oracle.evaluate(model, logits, Average())
    np.testing.assert_allclose(average.stationary, [1 / (1 + p), p / (1 + p)], rtol=1e-15)
    np.testing.assert_allclose(average.returns, [(1 - p + 4 * p) / (1 + p)], rtol=1e-15)
    slope = 2 / (1 + p) ** 2 * p * (1 - p)  # d/dp (1 + 3p)/(1 + p), times dp/dθ
    np.testing.assert_allclose(average.gradient[0], [[-slope, slope], [0, 0]], atol=1e-15)
    discounted = oracle.evaluate(model, logits, Discounted(g))
    V0 = (1 - p + p * g * 4) / (1 - g * (1 - p) - p * g * g)
    np.testing.assert_allclose(discounted.values[:, 0], [V0, 4 + g * V0], rtol=1e-14)


def test_termination_is_worth_nothing_when_discounted_and_leads_to_a_restart_on_average():
    """State 0 pays 1 and moves to 1 or, in two ways of chance 1/8 each, ends; state 1 pays 3 and ends. Starts in 0."""
    model = FiniteMOMDP.from_outcomes(
        next_state=[[[1, 1, 1]], [[0, 0, 0]]],
        probability=[[[0.75, 0.125, 0.125]], [[1, 0, 0]]],
        reward=[[[[1.0], [1.0], [1.0]]], [[[3.0], [0.0], [0.0]]]],
        terminated=[[[False, True, True]], [[True, True, True]]],
        start=[1, 0],
    )
    np.testing.assert_array_equal(chain.induced(model, np.ones((1, 2, 1))).end, [[0.25, 1]])
    discounted = oracle.evaluate(model, np.zeros((2, 1)), Discounted(0.8))
    np.testing.assert_allclose(discounted.values[:, 0], [1 + 0.8 * 0.75 * 3, 3], rtol=1e-15)
    average = oracle.evaluate(model, np.zeros((2, 1)), Average())
    np.testing.assert_allclose(average.returns, [(1 + 0.75 * 3) / 1.75], rtol=1e-15)
    h = average.values[:, 0]  # h1 − h0 = 3 − J + h0 − h0
    np.testing.assert_allclose(h[1] - h[0], 3 - average.returns[0], rtol=1e-14)
    np.testing.assert_allclose(average.stationary, [4 / 7, 3 / 7], rtol=1e-15)


def z_scores(samples, mean):
    """How many standard errors the samples' mean [n, M] is away."""
    return (samples.mean(axis=0) - mean) / (samples.std(axis=0) / np.sqrt(len(samples)))


@pytest.mark.parametrize("name", ["endless", "ending"])
def test_discounted_returns_agree_with_simulated_episodes(name):
    model = MODELS[name]
    setting = Discounted(tuple(np.linspace(0.7, 0.9, model.num_objectives)))
    exact = oracle.evaluate(model, random_logits(model), setting)
    rewards, ends, _ = closed_form.simulate(model, exact.policy, 10_000, 120, np.random.default_rng(0))
    alive = np.cumsum(ends, axis=0) - ends == 0
    powers = np.array(setting.discounts(model.num_objectives)) ** np.arange(120)[:, None]
    episodes = np.einsum("tnm,tn,tm->nm", rewards, alive, powers)
    assert np.max(np.abs(z_scores(episodes, exact.returns))) < 4
    assert np.min(episodes.std(axis=0) / np.sqrt(len(episodes))) < 1e-2  # small against returns of about 5


@pytest.mark.parametrize("name", ["ending", "sparse"])
def test_average_returns_and_law_agree_with_long_chains(name):
    model = MODELS[name]
    exact = oracle.evaluate(model, random_logits(model), Average())
    rewards, _, states = closed_form.simulate(model, exact.policy, 800, 1000, np.random.default_rng(1))
    assert np.max(np.abs(z_scores(rewards[200:].mean(axis=0), exact.returns))) < 4
    visits = (states[200:, :, None] == np.arange(model.num_states)).mean(axis=0)
    assert np.max(np.abs(z_scores(visits, exact.stationary))) < 4.5


@on_problems
def test_returns_are_the_closed_form(name, setting):
    model = MODELS[name]
    setting = widened(setting, model.num_objectives)
    exact = oracle.evaluate(model, random_logits(model), setting)
    np.testing.assert_allclose(exact.returns, closed_form.returns(model, exact.policy, setting), rtol=1e-11, atol=1e-14)


@on_problems
def test_values_satisfy_the_bellman_equation(name, setting):
    model = MODELS[name]
    setting = widened(setting, model.num_objectives)
    exact = oracle.evaluate(model, random_logits(model), setting)
    go, end, reward = closed_form.dense(model)
    Q = reward - exact.returns if isinstance(setting, Average) else reward
    after_end = model.start_distribution @ exact.values if isinstance(setting, Average) else 0
    Q = Q + setting.discounts(model.num_objectives) * (go @ exact.values + end[..., None] * after_end)
    V = np.einsum("sa,sam->sm", exact.policy, Q)
    np.testing.assert_allclose(exact.values, V, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(exact.advantage, np.moveaxis(Q - V[:, None], -1, 0), atol=1e-11)
    if isinstance(setting, Average):
        np.testing.assert_allclose(exact.stationary @ exact.values, 0, atol=1e-12)
    else:
        np.testing.assert_allclose(model.start_distribution @ exact.values, exact.returns, rtol=1e-13, atol=1e-15)


# --- gradient and direction


@on_problems
def test_gradient_is_the_automatic_derivative_of_the_closed_form(name, setting):
    model = MODELS[name]
    setting = widened(setting, model.num_objectives)
    for scale in (0.3, 3.0):
        logits = random_logits(model, scale=scale)
        gradient = oracle.evaluate(model, logits, setting).gradient
        reference = closed_form.jacobian(model, logits, setting)
        assert np.abs(reference).max() > 1e-4
        np.testing.assert_allclose(gradient, reference, atol=1e-12 * max(1.0, np.abs(reference).max()))


@by_name
@pytest.mark.parametrize("name", ["endless", "ending"])
def test_gradient_agrees_with_central_differences_of_the_returns(name, setting):
    model, step = MODELS[name], 1e-5
    logits = random_logits(model)
    exact = oracle.evaluate(model, logits, setting)
    nudge = step * np.eye(logits.size).reshape(-1, *logits.shape)
    ahead, behind = (oracle.evaluate(model, logits + sign * nudge, setting).returns for sign in (1, -1))
    slope = ((ahead - behind) / (2 * step)).T.reshape(exact.gradient.shape)
    np.testing.assert_allclose(exact.gradient, slope, atol=1e-8)
    assert np.abs(slope).max() > 1e-2


@partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
@jax.jacobian
def derivative_of_mean(logits, d, advantage):
    """Of Σ_s d(s) Σ_a π(a|s) Adv(s, a)."""
    return jnp.einsum("s,sa,sam->m", d, jax.nn.softmax(logits), advantage)


@on_models
@pytest.mark.parametrize("setting", SETTINGS[:2], ids=["one discount", "two discounts"])
def test_direction_differentiates_the_policy_with_law_and_advantage_frozen(name, setting):
    model = MODELS[name]
    setting = widened(setting, model.num_objectives)
    logits = random_logits(model)
    exact = oracle.evaluate(model, logits, setting)
    go, end, reward = closed_form.dense(model)
    pi = exact.policy
    restart = np.einsum("sa,sat->st", pi, go) + np.einsum("sa,sa->s", pi, end)[:, None] * model.start_distribution
    d = np.linalg.solve((np.eye(len(pi)) - restart + 1).T, np.ones(len(pi)))
    P, r = np.einsum("sa,sat->st", pi, go), np.einsum("sa,sam->sm", pi, reward)
    gammas = setting.discounts(model.num_objectives)
    V = np.stack([np.linalg.solve(np.eye(len(pi)) - g * P, r[:, i]) for i, g in enumerate(gammas)], axis=1)
    advantage = reward + gammas * (go @ V) - V[:, None]
    with jax.enable_x64(True):
        reference = np.asarray(derivative_of_mean(logits, d, advantage))
    np.testing.assert_allclose(exact.direction, reference, atol=1e-12 * max(1.0, np.abs(reference).max()))
    assert np.abs(reference - exact.gradient).max() > 1e-6  # it is another vector than the gradient


@on_models
def test_direction_is_the_gradient_in_the_average_setting(name):
    exact = oracle.evaluate(MODELS[name], random_logits(MODELS[name]), Average())
    np.testing.assert_array_equal(exact.direction, exact.gradient)


def test_direction_tends_to_the_average_gradient_as_the_discount_tends_to_one():
    model = MODELS["endless"]
    logits = random_logits(model)
    average = oracle.evaluate(model, logits, Average()).gradient
    error = [
        np.abs(oracle.evaluate(model, logits, Discounted(1 - x)).direction - average).max() for x in (1e-3, 1e-5, 1e-7)
    ]
    assert error[1] < error[0] / 50
    assert error[2] < error[1] / 50


@by_name
def test_a_batch_is_its_policies_one_by_one(setting):
    model = MODELS["ending"]
    logits = random_logits(model, 2, 3)
    batch = oracle.evaluate(model, logits, setting)
    fields = (
        *("returns", "values", "advantage", "gradient", "stationary", "direction"),
        *("gap", "weights", "direction_gap", "regret"),
    )
    for index in np.ndindex(2, 3):
        single = oracle.evaluate(model, logits[index], setting)
        for field in fields:
            many, one = getattr(batch, field), getattr(single, field)
            assert many.shape == (2, 3, *one.shape)
            np.testing.assert_allclose(many[index], one, rtol=1e-12, atol=1e-14, err_msg=field)


def test_more_policies_than_a_block_come_back_in_order():
    model = MODELS["endless"]
    logits = random_logits(model, 37)
    many = oracle.evaluate(model, logits, Average()).returns
    for n in (0, 15, 16, 31, 32, 36):
        pi = softmax(logits[n], axis=-1)
        np.testing.assert_allclose(many[n], closed_form.returns(model, pi, Average()), rtol=1e-12)


# --- the gap


@pytest.mark.parametrize(
    ("name", "count", "setting"),
    [("ending", 16, SETTINGS[2]), ("one objective", 16, SETTINGS[0]), ("resource gathering", 32, SETTINGS[1])],
    ids=str,
)
def test_gap_is_the_squared_length_of_the_min_norm_point(name, count, setting):
    model = MODELS[name]
    setting = widened(setting, model.num_objectives)
    exact = oracle.evaluate(model, random_logits(model, count), setting)
    pairs = [(exact.gradient, exact.weights, exact.gap)]
    pairs.append((exact.direction, oracle.shortest(exact.direction).weights, exact.direction_gap))
    for vectors, weights, gap in pairs:
        for n in range(count):
            rows = vectors[n].reshape(model.num_objectives, -1)
            assert_on_simplex(weights[n])
            np.testing.assert_allclose(gap[n], np.sum((weights[n] @ rows) ** 2), rtol=1e-12)
            assert scaled_kkt(weights[n], rows) < 1e-11


@pytest.mark.parametrize("unit", [1e-170, 1e170])
def test_the_min_norm_weights_do_not_depend_on_the_unit_of_gradients(unit):
    """Squares of such numbers underflow or overflow."""
    gradient = np.random.default_rng(0).normal(size=(3, 2, 4)) + 0.5
    found, scaled = oracle.shortest(gradient), oracle.shortest(unit * gradient)
    np.testing.assert_allclose(scaled.weights, found.weights, rtol=1e-9)
    assert (found.weights > 0.05).all()


@pytest.mark.parametrize("setting", [Discounted(0.9), Discounted(0.99), Average()], ids=str)
def test_every_policy_of_fishwood_is_pareto_stationary_when_discounts_are_equal(setting):
    model = library.fishwood()
    exact = oracle.evaluate(model, random_logits(model, 300, scale=3.0), setting)
    assert np.max(exact.gap) <= 1e-14
    assert np.max(np.abs(exact.gradient)) > 1e-2
    np.testing.assert_allclose(exact.weights, np.tile([0.9, 0.1], (300, 1)), rtol=1e-6)  # 9 ∇J_fish = −∇J_wood
    constant = exact.returns @ [9.0, 1.0]
    np.testing.assert_allclose(constant, constant[0], rtol=1e-12)


def test_fishwood_is_no_null_test_when_discounts_differ():
    model = library.fishwood()
    exact = oracle.evaluate(model, random_logits(model, 300), Discounted((0.9, 0.99)))
    assert np.mean(exact.gap > 1e-6) > 0.9


# --- policies that are nearly deterministic


@pytest.mark.parametrize("setting", [Discounted(0.9), Discounted((0.9, 0.95, 0.99)), Average()], ids=str)
@pytest.mark.parametrize("size", [12.0, 40.0])
def test_near_deterministic_policies_have_gradients_no_longer_than_their_returns(setting, size):
    """Each J of resource gathering has rewards of one sign and is a ratio of positive multilinear functions of π."""
    model = library.resource_gathering()
    exact = oracle.evaluate(model, near_deterministic(model, 40, size=size), setting)
    bound = np.abs(exact.returns)[..., None, None] / (1 if isinstance(setting, Average) else 1 - 0.99)
    assert np.all(np.abs(exact.gradient) <= bound * (1 + 1e-9) + 1e-15)
    assert np.all(np.isfinite(exact.direction))
    assert np.all((exact.gap >= 0) & (exact.gap <= 1))


def test_near_deterministic_returns_are_those_of_the_deterministic_policy():
    model = MODELS["ending"]
    logits = near_deterministic(model, 5)
    for setting in SETTINGS:
        sure = oracle.of_policy(model, (logits > 0).astype(float), setting)
        np.testing.assert_allclose(oracle.evaluate(model, logits, setting).returns, sure.returns, rtol=1e-14)
        assert np.all(sure.gradient == 0)


def hardly_connected(seed, S=5):
    """Every state stays where it is by action 0 and goes on, at random, by action 1."""
    rng = np.random.default_rng(seed)
    P = np.stack([np.eye(S), rng.dirichlet(np.ones(S), S)], axis=1)
    return FiniteMOMDP.from_dense(P, rng.random((S, 2, 1)))


@pytest.mark.parametrize(("seed", "size"), [(0, 1.0), (1, 10.0), (2, 40.0), (3, 100.0)])
def test_average_gradient_of_a_chain_that_hardly_moves_is_that_of_exact_fractions(seed, size):
    """With logits ±40 the bias is of order 1e34 while the gradient stays of order one."""
    model = hardly_connected(seed)
    logits = np.random.default_rng(seed).normal(size=(5, 2)) + size * np.array([1, -1])
    exact = oracle.evaluate(model, logits, Average())
    J, gradient = closed_form.rational_average_gradient(model, exact.policy)
    np.testing.assert_allclose(exact.returns, [J], rtol=1e-13)
    np.testing.assert_allclose(exact.gradient[0], gradient, atol=1e-9 if size < 20 else 1e-13)
    assert np.abs(gradient).max() > 1e-3


@pytest.mark.parametrize("seed", range(2))
def test_average_gradient_between_near_classes_is_that_of_exact_fractions(seed):
    """Some states are left at once, some hardly ever: where values differ by 1e34 some small differences count too."""
    rng = np.random.default_rng(seed)
    model = ergodic(seed, num_objectives=1, num_states=6, num_actions=3, num_successors=2)
    go, _, reward = closed_form.dense(model)
    go[:, 0] = np.kron(np.eye(3), [[0.3, 0.7], [0.6, 0.4]])  # action 0 stays in the pair of states
    model = FiniteMOMDP.from_dense(go, reward)
    logits = rng.normal(size=(6, 3)) + np.array([35.0, 0, -5])
    exact = oracle.evaluate(model, logits, Average())
    J, gradient = closed_form.rational_average_gradient(model, exact.policy)
    np.testing.assert_allclose(exact.returns, [J], rtol=1e-13)
    np.testing.assert_allclose(exact.gradient[0], gradient, atol=1e-13)
    assert np.abs(gradient).max() > 1e-3


# --- refusals


def two_classes(S=4):
    """Two absorbing states, 1 and 3, whatever the action."""
    P = np.zeros((S, 2, S))
    P[:, :, 1] = 1.0
    P[2:, :, 1] = 0.0
    P[2:, :, 3] = 1.0
    return FiniteMOMDP.from_dense(P, np.random.default_rng(0).random((S, 2, 2)))


@pytest.mark.parametrize("shape", [(5,), (5, 2), (3, 5), (2, 3, 5), ()])
def test_logits_of_a_wrong_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r"`logits` must have shape \[\.\.\., 5, 3\], got"):
        oracle.evaluate(MODELS["endless"], np.zeros(shape), Average())


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_logits_that_are_not_finite_are_refused(bad):
    logits = np.zeros((2, 5, 3))
    logits[1, 4, 2] = bad
    with pytest.raises(ValueError, match=rf"`logits` must be finite, got {bad} at index \(1, 4, 2\)"):
        oracle.evaluate(MODELS["endless"], logits, Discounted(0.9))


def test_models_with_too_many_states_are_refused():
    def line(S):
        one = np.ones((S, 1, 1))
        return FiniteMOMDP.from_outcomes(np.zeros((S, 1, 1), int), one, one[..., None], one > 0)

    with pytest.raises(ValueError, match="at most 2000 states, model has 2001"):
        oracle.evaluate(line(2001), np.zeros((2001, 1)), Discounted(0.9))
    assert oracle.evaluate(line(2000), np.zeros((2000, 1)), Discounted(0.9)).policy.shape == (2000, 1)


def test_a_wrong_number_of_discounts_is_refused():
    with pytest.raises(ValueError, match=r"`discount` must be one value or one per objective \(2\), got 3"):
        oracle.evaluate(MODELS["endless"], np.zeros((5, 3)), Discounted((0.9, 0.8, 0.7)))


def test_several_recurrent_classes_leave_the_discounted_returns_and_gradient():
    model, logits = two_classes(), np.random.default_rng(1).normal(size=(4, 2))
    with pytest.raises(ValueError, match=r"one recurrent class under this policy, got 2: states \{1\}; \{3\}"):
        oracle.evaluate(model, logits, Average())
    setting = Discounted((0.5, 0.9))
    exact = oracle.evaluate(model, logits, setting)
    np.testing.assert_allclose(exact.returns, closed_form.returns(model, exact.policy, setting), rtol=1e-13)
    np.testing.assert_allclose(exact.gradient, closed_form.jacobian(model, logits, setting), atol=1e-13)
    for name in ("stationary", "direction", "direction_gap"):
        with pytest.raises(ValueError, match=r"states \{1\}; \{3\}"):
            getattr(exact, name)


def test_one_policy_with_several_classes_spoils_its_batch():
    model = FiniteMOMDP.from_dense([[[1, 0], [0, 1]], [[0, 1], [1, 0]]], np.zeros((2, 2, 1)))
    fine, stuck = [[0.0, 0], [0, 0]], [[0.0, -1000], [0, -1000]]
    assert oracle.evaluate(model, [fine, fine], Average()).returns.shape == (2, 1)
    with pytest.raises(ValueError, match=r"states \{0\}; \{1\}"):
        oracle.evaluate(model, [fine, stuck], Average())


# --- the fixed point of TD


@pytest.mark.parametrize(
    ("name", "setting"), [("endless", SETTINGS[0]), ("ending", SETTINGS[1]), ("sparse", SETTINGS[2])], ids=str
)
def test_one_hot_td_finds_the_values(name, setting):
    model = MODELS[name]
    setting = widened(setting, model.num_objectives)
    logits = random_logits(model, 2)
    w = oracle.td_fixed_point(model, logits, setting, np.eye(model.num_states))
    V = np.moveaxis(oracle.evaluate(model, logits, setting).values, -1, -2)
    assert w.shape == (2, model.num_objectives, model.num_states)
    if isinstance(setting, Average):  # up to a constant; the solution of least norm has mean zero
        np.testing.assert_allclose(w, V - V.mean(axis=-1, keepdims=True), atol=1e-9)
    else:
        np.testing.assert_allclose(w, V, rtol=1e-10)


def test_one_hot_td_finds_the_value_of_a_state_that_is_hardly_ever_visited():
    """Singular values of A from 1 down to 1e-9: rare, but not absent."""
    model, logits = MODELS["endless"], random_logits(MODELS["endless"])
    law = 10.0 ** -np.linspace(0, 9, model.num_states)
    w = oracle.td_fixed_point(model, logits, Discounted(0.9), np.eye(model.num_states), law / law.sum())
    np.testing.assert_allclose(w.T, oracle.evaluate(model, logits, Discounted(0.9)).values, rtol=1e-5)


def bellman_defect(model, exact, w, Phi, setting):
    """T(Φw) − Φw for each objective, [M, S]."""
    go, end, reward = closed_form.dense(model)
    pi = exact.policy
    P, r = np.einsum("sa,sat->st", pi, go), np.einsum("sa,sam->ms", pi, reward)
    if isinstance(setting, Average):
        P = P + np.einsum("sa,sa->s", pi, end)[:, None] * model.start_distribution
        r = r - exact.returns[:, None]
    gammas = np.array(setting.discounts(model.num_objectives))[:, None]
    return r + gammas * (w @ Phi.T @ P.T) - w @ Phi.T


@pytest.mark.parametrize(
    ("name", "setting", "law"),
    [("endless", SETTINGS[0], "another"), ("ending", SETTINGS[1], None), ("ending", SETTINGS[2], "another"),
     ("sparse", SETTINGS[2], None)],
    ids=str,
)  # fmt: skip
def test_td_fixed_point_solves_the_projected_bellman_equation(name, setting, law):
    model, rng = MODELS[name], np.random.default_rng(0)
    Phi = rng.normal(size=(model.num_states, 3))
    exact = oracle.evaluate(model, random_logits(model), setting)
    D = exact.stationary if law is None else rng.dirichlet(np.ones(model.num_states))
    w = oracle.td_fixed_point(model, random_logits(model), setting, Phi, None if law is None else D)
    defect = bellman_defect(model, exact, w, Phi, setting)
    np.testing.assert_allclose((defect * D) @ Phi, 0, atol=1e-12)
    assert np.abs(defect).max() > 1e-3  # the features do not hold the values


@by_name
def test_simulated_td_converges_to_its_fixed_point(setting):
    model = ergodic(7, termination=0.1, num_states=3, num_actions=2)
    Phi = np.array([[1.0, 0.2], [-0.3, 0.8], [0.4, -0.9]])
    logits = random_logits(model)
    exact = oracle.evaluate(model, logits, setting)
    rewards, ends, states = closed_form.simulate(model, exact.policy, 1500, 601, np.random.default_rng(2))
    gammas = np.array(setting.discounts(2))
    w, seen = np.zeros((2, 2)), []
    for t in range(600):
        goes_on = 1.0 if isinstance(setting, Average) else 1.0 - ends[t][:, None]
        r = rewards[t] - (exact.returns if isinstance(setting, Average) else 0)
        delta = r + gammas * goes_on * (Phi[states[t + 1]] @ w.T) - Phi[states[t]] @ w.T
        w = w + 0.3 * delta.T @ Phi[states[t]] / 1500
        seen.append(w)
    fixed = oracle.td_fixed_point(model, logits, setting, Phi)
    np.testing.assert_allclose(np.mean(seen[300:], axis=0), fixed, atol=5e-3)
    assert np.abs(fixed).max() > 0.1


def test_one_law_serves_a_batch_of_policies():
    model = ergodic(5, num_states=6)
    logits, law = random_logits(model, 2, 3), np.random.default_rng(1).dirichlet(np.ones(6))
    Phi = np.random.default_rng(0).normal(size=(6, 2))
    batch = oracle.td_fixed_point(model, logits, Discounted(0.9), Phi, law)
    each = oracle.td_fixed_point(model, logits, Discounted(0.9), Phi, np.tile(law, (2, 3, 1)))
    np.testing.assert_array_equal(batch, each)
    for index in np.ndindex(2, 3):
        single = oracle.td_fixed_point(model, logits[index], Discounted(0.9), Phi, law)
        np.testing.assert_allclose(batch[index], single, rtol=1e-11)


@pytest.mark.parametrize("law", [np.ones(4) / 4, np.ones((2, 5)) / 5, 1.0])
def test_a_law_of_a_wrong_shape_is_refused(law):
    with pytest.raises(ValueError, match=r"`law` must have shape \[5\] or \(3, 5\), got"):
        oracle.td_fixed_point(MODELS["endless"], np.zeros((3, 5, 3)), Discounted(0.9), np.eye(5), law)


@pytest.mark.parametrize("shape", [(4, 2), (5,), (1, 5, 2)])
def test_features_of_a_wrong_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r"`features` must have shape \[5, d\], got"):
        oracle.td_fixed_point(MODELS["endless"], np.zeros((5, 3)), Discounted(0.9), np.ones(shape))
