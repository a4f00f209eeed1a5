"""∇²J against automatic differentiation and differences of the exact gradient; its norm against the bounds on L_J."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from moac import theory
from moac.config import Average, Discounted
from moac.momdp import FiniteMOMDP, evaluate, library
from moac.theory import smoothness
from tests.helpers import closed_form

SETTINGS = {"one discount": Discounted(0.9), "two discounts": Discounted((0.3, 0.95)), "average": Average()}
MODELS = {
    "endless": library.random_ergodic(1, 4, 3),
    "ending": library.random_ergodic(2, 4, 3, termination=0.2),
    "sparse": library.random_ergodic(3, 4, 3, num_successors=2),
}
INPUTS = {"table": None, "linear": np.random.default_rng(7).normal(size=(4, 3)) @ np.eye(3, 4, 1)}
on_models = pytest.mark.parametrize("name", MODELS)
by_setting = pytest.mark.parametrize("setting", SETTINGS)


def at(model, setting, inputs=None, seed=0, scale=1.0):
    """The ground of a random policy, and its θ."""
    rows = model.num_states if inputs is None else inputs.shape[1]
    theta = scale * np.random.default_rng(seed).normal(size=(rows, model.num_actions))
    logits = theta if inputs is None else inputs @ theta
    return theory.ground(model, logits, setting, inputs=inputs), theta


def full(hessian):
    """The matrix of the products with all unit vectors."""
    return np.stack([hessian(e) for e in np.eye(hessian.size)], axis=1)


@functools.partial(jax.jit, static_argnames="average", compiler_options={"xla_backend_optimization_level": 0})
def second_derivative(theta, X, tables, start, gammas, average):
    """Of J as a function of θ, for all objectives [M, n, n]."""
    go, end, reward = tables

    def returns(flat):
        pi = jax.nn.softmax(X @ flat.reshape(X.shape[1], -1))
        P, r = jnp.einsum("sa,sat->st", pi, go), jnp.einsum("sa,sam->ms", pi, reward)
        if average:
            P = P + jnp.einsum("sa,sa->s", pi, end)[:, None] * start
            return r @ jnp.linalg.solve((jnp.eye(len(P)) - P + 1).T, jnp.ones(len(P)))
        return jnp.linalg.solve(jnp.eye(len(P)) - gammas[:, None, None] * P, r[..., None])[..., 0] @ start

    return jax.hessian(returns)(theta.ravel())


def automatic(model, theta, setting, inputs):
    X = np.eye(model.num_states) if inputs is None else inputs
    gammas = np.array(setting.discounts(model.num_objectives))
    with jax.enable_x64(True):
        data = jax.tree.map(jnp.asarray, (theta, X, closed_form.dense(model), model.start_distribution, gammas))
        return np.asarray(second_derivative(*data, average=isinstance(setting, Average)))


# --- the Hessian


@pytest.mark.parametrize(
    ("name", "setting", "inputs"),
    [
        ("endless", "one discount", "table"),
        ("ending", "two discounts", "linear"),
        ("sparse", "two discounts", "table"),
        ("ending", "average", "table"),
        ("sparse", "average", "linear"),
    ],
)
def test_products_are_those_of_the_automatic_second_derivative(name, setting, inputs):
    model, X = MODELS[name], INPUTS[inputs]
    g, theta = at(model, SETTINGS[setting], X)
    reference = automatic(model, theta, SETTINGS[setting], X)
    for i in range(model.num_objectives):
        matrix = full(smoothness.Hessian(g, i))
        np.testing.assert_allclose(matrix, reference[i], atol=1e-11 * max(1.0, np.abs(reference[i]).max()))
        assert np.abs(matrix).max() > 1e-3
    np.testing.assert_allclose(smoothness.at(g), np.linalg.norm(reference, 2, axis=(1, 2)), rtol=1e-9)


@by_setting
def test_products_at_near_deterministic_policies(setting):
    model = MODELS["ending"]
    g, theta = at(model, SETTINGS[setting], scale=12.0)
    reference = automatic(model, theta, SETTINGS[setting], None)
    for i in range(model.num_objectives):
        np.testing.assert_allclose(full(smoothness.Hessian(g, i)), reference[i], atol=1e-11)


@pytest.mark.parametrize(
    ("setting", "inputs"),
    [(Discounted((0.9, 0.95, 0.99)), "linear"), (Average(), "table")],
    ids=["discounted", "average"],
)
def test_products_are_differences_of_the_exact_gradient(setting, inputs):
    model, rng, step = library.resource_gathering(), np.random.default_rng(1), 1e-5
    X = None if inputs == "table" else rng.normal(size=(model.num_states, 6)) / 3
    g, theta = at(model, setting, X)
    v = rng.normal(size=theta.shape)
    along = v if X is None else X @ v
    ahead, behind = evaluate(model, np.stack([g.logits + step * along, g.logits - step * along]), setting).gradient
    for i, slope in enumerate((ahead - behind) / (2 * step)):
        product = smoothness.Hessian(g, i)(v.ravel())
        expected = slope if X is None else X.T @ slope
        np.testing.assert_allclose(product, expected.ravel(), atol=1e-8 * max(1.0, np.abs(expected).max()))
        assert np.abs(product).max() > 1e-4


@pytest.mark.parametrize(("setting", "inputs"), [("two discounts", "table"), ("average", "linear")])
def test_the_hessian_is_symmetric_and_blind_to_a_shift_of_logits(setting, inputs):
    model = MODELS["ending"]
    g, theta = at(model, SETTINGS[setting], INPUTS[inputs])
    for i in range(model.num_objectives):
        matrix = full(smoothness.Hessian(g, i))
        np.testing.assert_allclose(matrix, matrix.T, atol=1e-12)
        for row in range(len(theta)):
            shift = np.zeros_like(theta)
            shift[row] = 1.0
            np.testing.assert_allclose(matrix @ shift.ravel(), 0, atol=1e-12)


def test_a_bandit_by_hand():
    """J = (r₀(1 − p) + r₁p)/(1 − γ) has J'' = (r₁ − r₀)p(1 − p)(1 − 2p)/(1 − γ) along θ₁, so ‖∇²J‖ is twice that."""
    model = FiniteMOMDP.from_dense(np.ones((1, 2, 1)), [[[1.0, -2.0], [3.0, 5.0]]])
    p = 0.25
    slope = p * (1 - p) * (1 - 2 * p)
    logits = [[np.log(1 - p), np.log(p)]]
    discounted = theory.ground(model, logits, Discounted((0.5, 0.9)))
    np.testing.assert_allclose(smoothness.at(discounted), [2 * 2 * slope / 0.5, 2 * 7 * slope / 0.1], rtol=1e-12)
    np.testing.assert_allclose(
        smoothness.at(theory.ground(model, logits, Average())), [2 * 2 * slope, 2 * 7 * slope], rtol=1e-12
    )


# --- its norm


@pytest.mark.parametrize("setting", [Discounted(0.9), Average()], ids=["discounted", "average"])
def test_the_norm_by_lanczos_is_the_largest_eigenvalue(setting):
    model = library.random_ergodic(5, 21, 10, num_successors=4, termination=0.05)
    g, _ = at(model, setting)
    for i in range(model.num_objectives):
        hessian = smoothness.Hessian(g, i)
        assert hessian.size == 210
        eigenvalues = np.linalg.eigvalsh(full(hessian))
        assert hessian.norm() == pytest.approx(np.abs(eigenvalues).max(), rel=1e-6)


@pytest.mark.parametrize(("setting", "inputs"), [("two discounts", "linear"), ("average", "table")])
def test_both_ways_to_the_norm_agree(setting, inputs, monkeypatch):
    g, _ = at(MODELS["sparse"], SETTINGS[setting], INPUTS[inputs])
    dense = smoothness.at(g)
    monkeypatch.setattr(smoothness, "_DENSE", 0)
    np.testing.assert_allclose(smoothness.at(g), dense, rtol=1e-6)


def test_a_return_that_no_policy_changes_has_norm_zero():
    stay = np.broadcast_to(np.eye(60)[:, None], (60, 4, 60))
    model = FiniteMOMDP.from_dense(stay, np.ones((60, 4, 1)))  # 240 parameters
    g = theory.ground(model, np.zeros((60, 4)), Discounted(0.9))
    np.testing.assert_allclose(smoothness.at(g), 0, atol=1e-10)


# --- its bounds


def largest(model, setting, inputs=None, count=12):
    scales = np.linspace(0.1, 3.0, count)
    return max(smoothness.at(at(model, setting, inputs, seed, s)[0]).max() for seed, s in enumerate(scales))


@pytest.mark.parametrize(("name", "gamma"), [("endless", 0.05), ("ending", 0.5), ("sparse", 0.9)])
def test_the_discounted_bound_covers_every_policy(name, gamma):
    model = MODELS[name]
    g, _ = at(model, Discounted(gamma))
    r_max = np.abs(model.reward).max()
    bound = smoothness.bound_everywhere(g, r_max)
    assert bound == pytest.approx(r_max / (1 - gamma) ** 3, rel=1e-12)
    assert 0 < largest(model, Discounted(gamma)) <= bound


def test_a_short_horizon_comes_near_the_discounted_bound():
    """One state, r = ±1, γ → 0: ‖∇²J‖ reaches 0.38 r_max, so the bound is not idle."""
    model = FiniteMOMDP.from_dense(np.ones((1, 2, 1)), [[[1.0], [-1.0]]])
    found = max(smoothness.at(theory.ground(model, [[0.0, x]], Discounted(1e-6)))[0] for x in np.linspace(0, 3, 31))
    assert 0.35 < found <= 1


def test_the_largest_discount_decides_and_inputs_multiply():
    model = MODELS["endless"]
    g, _ = at(model, Discounted((0.3, 0.95)))
    assert smoothness.bound_everywhere(g, 2.0) == pytest.approx(2 / 0.05**3, rel=1e-12)
    X = 3 * INPUTS["linear"]
    g, _ = at(model, Discounted(0.5), X)
    longest = max(x @ x for x in X)
    assert smoothness.scale(g) == pytest.approx(longest)
    assert smoothness.bound_everywhere(g, 2.0) == pytest.approx(2 / 0.5**3 * longest, rel=1e-12)
    assert largest(model, Discounted(0.5), X) <= smoothness.bound_everywhere(g, 1.0)


def test_the_average_setting_has_no_bound_without_mixing():
    assert smoothness.bound_everywhere(at(MODELS["endless"], Average())[0], 1.0) is None


@pytest.mark.parametrize(("name", "inputs"), [("endless", "linear"), ("ending", "table")])
def test_the_average_bound_by_uniform_mixing_covers_every_policy(name, inputs):
    model, X = MODELS[name], INPUTS[inputs]
    c = theory.constants_of(at(model, Average(), X)[0])
    assert c.L_J_everywhere
    go, end, _ = closed_form.dense(model)
    common = (go + end[..., None] * model.start_distribution).min(axis=(0, 1)).sum()
    half = max(np.ptp(model.reward[..., i][model.probability > 0]) for i in range(2)) / 2
    stretch = 1 if X is None else max(x @ x for x in X)
    assert c.L_J_bound == pytest.approx(stretch * half * (1 + 1 / common) ** 2, rel=1e-9)
    assert 0 < largest(model, Average(), X) <= c.L_J_bound


@pytest.mark.parametrize("seed", range(2))
def test_the_average_bound_at_a_policy_by_its_own_mixing(seed):
    model = library.random_ergodic(seed, 6, 3, num_successors=2)
    g, _ = at(model, Average(), seed=seed)
    c = theory.constants_of(g)
    assert not c.L_J_everywhere
    sigma = c.mixing.power / (1 - c.mixing.rho**c.mixing.power)
    assert c.L_J_bound == pytest.approx(smoothness.bound_by_mixing(g, sigma), rel=1e-12)
    assert 0 < c.L_J <= c.L_J_bound < np.inf
    tau = [theory.mixing.dobrushin(np.linalg.matrix_power(g.P, t)) for t in range(300)]
    assert sum(tau) <= sigma  # what σ stands for


def test_a_chain_that_does_not_mix_has_no_bound():
    swap = np.eye(2)[::-1][:, None].repeat(2, axis=1)
    c = theory.constants(FiniteMOMDP.from_dense(swap, np.ones((2, 2, 1))), np.zeros((2, 2)), Average())
    assert c.L_J_bound == np.inf
    assert not c.L_J_everywhere


# --- where (s, a) leads


@on_models
def test_successors_are_those_of_the_tables(name):
    model = MODELS[name]
    go, end, _ = closed_form.dense(model)
    discounted = at(model, Discounted(0.9))[0].successors.todense()
    np.testing.assert_allclose(discounted, go.reshape(-1, 4), atol=1e-15)
    average = at(model, Average())[0].successors.todense()
    restarts = go + end[..., None] * model.start_distribution
    np.testing.assert_allclose(average, restarts.reshape(-1, 4), atol=1e-15)
