"""Every constant of the theorems against a second computation: loops over all transitions, iteration, simulation."""

from dataclasses import fields

import numpy as np
import pytest

from moac import momdp, theory
from moac.config import Average, Config, Discounted
from moac.momdp import FiniteMOMDP, library
from moac.theory.ground import contraction
from tests.helpers import closed_form

SETTINGS = {"one discount": Discounted(0.9), "two discounts": Discounted((0.3, 0.95)), "average": Average()}


def signed(seed, termination=0.0):
    """A model with rewards of both signs."""
    model = library.random_ergodic(seed, 5, 3, termination=termination, num_successors=3)
    arrays = (model.next_state, model.probability, 3 * model.reward - 1, model.terminated)
    return FiniteMOMDP.from_outcomes(*arrays, start=model.start_distribution)


MODELS = {
    "endless": library.random_ergodic(1, 5, 3),
    "ending": library.random_ergodic(2, 5, 3, termination=0.15),
    "signed": signed(3, termination=0.1),
}
FEATURES = {
    "one-hot": np.eye(5),
    "reference": np.eye(5)[:, [0, 1, 3, 4]],
    "three": np.random.default_rng(5).normal(size=(5, 3)) / 3,
}
on_problems = pytest.mark.parametrize(
    ("name", "setting", "features"),
    [
        ("endless", "one discount", "one-hot"),
        ("ending", "two discounts", "reference"),
        ("signed", "two discounts", "three"),
        ("ending", "average", "one-hot"),
        ("signed", "average", "reference"),
    ],
)


def logits_of(model, seed=0, scale=1.0):
    return scale * np.random.default_rng(seed).normal(size=(model.num_states, model.num_actions))


class Transitions:
    """All (chance, s, a, r, s') of the stationary chain, in loops. s' is None where nothing is bootstrapped."""

    def __init__(self, model, logits, setting):
        self.average = isinstance(setting, Average)
        self.gammas = setting.discounts(model.num_objectives)
        weight = np.exp(logits)
        self.pi = weight / weight.sum(axis=1, keepdims=True)
        go, end, reward = closed_form.dense(model)
        self.go = np.einsum("sa,sat->st", self.pi, go)
        self.P = self.go + np.einsum("sa,sa->s", self.pi, end)[:, None] * model.start_distribution
        self.r = np.einsum("sa,sam->sm", self.pi, reward)
        self.d = np.linalg.solve((np.eye(len(self.P)) - self.P + 1).T, np.ones(len(self.P)))
        self.J = self.d @ self.r if self.average else np.zeros(model.num_objectives)
        self.all = list(self._enumerate(model))

    def _enumerate(self, model):
        for s, a, o in np.ndindex(model.probability.shape):
            chance = self.d[s] * self.pi[s, a] * model.probability[s, a, o]
            r = model.reward[s, a, o] - self.J
            if chance == 0:
                continue
            if not model.terminated[s, a, o]:
                yield chance, s, a, r, int(model.next_state[s, a, o])
            elif self.average:
                for t, p in enumerate(model.start_distribution):
                    yield chance * p, s, a, r, t
            else:
                yield chance, s, a, r, None

    def samples(self, Phi):
        """For each objective a list of (chance, A of the sample, b of the sample)."""
        for i, gamma in enumerate(self.gammas):
            yield [
                (p, np.outer(Phi[s], (0 if t is None else gamma * Phi[t]) - Phi[s]), r[i] * Phi[s])
                for p, s, _, r, t in self.all
            ]

    def values(self):
        """Vⁱ(s) by value iteration, [M, S]; in the average setting up to a constant."""
        V = np.zeros((len(self.gammas), len(self.P)))
        for _ in range(2000):
            for i, gamma in enumerate(self.gammas):
                V[i] = self.r[:, i] - self.J[i] + gamma * (self.P if self.average else self.go) @ V[i]
        return V


def expected_td(A, b, step=1.0, iterations=60_000):
    """w ← w + β(b + Aw) from 0, its first 2ᵏ steps at a time: the mean path of TD(0)."""
    M, w = np.eye(len(b)) + step * A, step * b
    for _ in range(int(np.log2(iterations)) + 1):
        w, M = w + M @ w, M @ M
    return w


def case(name, setting, features):
    model, Phi = MODELS[name], FEATURES[features]
    logits = logits_of(model)
    found = theory.constants(model, logits, SETTINGS[setting], Phi)
    return found, Transitions(model, logits, SETTINGS[setting]), Phi


@on_problems
def test_constants_of_samples_and_of_their_means_by_enumeration(name, setting, features):
    found, transitions, Phi = case(name, setting, features)
    assert sum(p for p, *_ in transitions.all) == pytest.approx(1, rel=1e-12)
    largest = dict.fromkeys(("C_A", "C_A_mean", "C_b", "C_b_mean"), 0.0)
    for samples in transitions.samples(Phi):
        new = {
            "C_A": max(np.linalg.norm(A) for _, A, _ in samples),
            "C_A_mean": np.linalg.norm(sum(p * A for p, A, _ in samples)),
            "C_b": max(np.linalg.norm(b) for _, _, b in samples),
            "C_b_mean": np.linalg.norm(sum(p * b for p, _, b in samples)),
        }
        largest = {key: max(largest[key], value) for key, value in new.items()}
    for key, value in largest.items():
        assert getattr(found, key) == pytest.approx(value, rel=1e-10), key
    assert found.C_A_mean <= found.C_A <= (1 + found.gamma) * np.linalg.norm(Phi, axis=1).max() ** 2
    assert found.C_b_mean <= found.C_b


@on_problems
def test_the_contraction_by_a_search_for_the_slowest_direction(name, setting, features):
    found, transitions, Phi = case(name, setting, features)
    slowest, slowest_modulo = np.inf, np.inf
    for samples in transitions.samples(Phi):
        A = sum(p * A for p, A, _ in samples)
        symmetric = -(A + A.T)
        slowest = min(slowest, smallest_quotient(symmetric))
        away = np.ones(5) / np.sqrt(5) if features == "one-hot" and transitions.average else None
        slowest_modulo = min(slowest_modulo, smallest_quotient(symmetric, away))
    assert found.lambda_A == pytest.approx(slowest, rel=1e-6, abs=1e-9)
    assert found.lambda_A_modulo_constants == pytest.approx(slowest_modulo, rel=1e-6)
    assert found.lambda_A_modulo_constants > 0
    if transitions.average and features == "one-hot":
        assert found.lambda_A == 0
    else:
        assert found.lambda_A == found.lambda_A_modulo_constants


def smallest_quotient(K, away=None):
    """min vᵀKv/vᵀv, among v orthogonal to `away`: 2¹⁸ power iterations on what is left of the largest."""
    within = np.eye(len(K)) if away is None else np.eye(len(K)) - np.outer(away, away)
    power = within @ (np.abs(K).sum(axis=1).max() * np.eye(len(K)) - K) @ within
    for _ in range(18):
        power = within @ (power / np.linalg.norm(power)) @ within
        power = power @ power
    v = power @ np.random.default_rng(0).normal(size=len(K))
    return v @ K @ v / (v @ v)


@on_problems
def test_the_fixed_point_is_where_expected_td_ends(name, setting, features):
    found, transitions, Phi = case(name, setting, features)
    V, lengths, errors = transitions.values(), [], []
    for i, samples in enumerate(transitions.samples(Phi)):
        A, b = (sum(sample[0] * sample[k] for sample in samples) for k in (1, 2))
        w = expected_td(A, b)
        np.testing.assert_allclose(A @ w + b, 0, atol=1e-12)
        lengths.append(np.linalg.norm(w))
        error = V[i] - Phi @ w
        if transitions.average:
            error = error - transitions.d @ error
        errors.append(sum(p * e * e for p, e in zip(transitions.d, error, strict=True)))
    assert found.w_star == pytest.approx(max(lengths), rel=1e-8)
    assert found.zeta == pytest.approx(max(errors), rel=1e-7, abs=1e-15)
    assert found.w_star <= found.R_w
    if features == "one-hot" or (features == "reference" and transitions.average):
        assert found.zeta < 1e-15
    else:
        assert found.zeta > 1e-6


@pytest.mark.parametrize(
    ("name", "setting"), [("endless", "one discount"), ("ending", "two discounts"), ("signed", "average")]
)
def test_rewards_scores_and_the_radius(name, setting):
    found, transitions, _ = case(name, setting, "three")
    model = MODELS[name]
    rewards = [
        model.reward[s, a, o] for s, a, o in np.ndindex(model.probability.shape) if model.probability[s, a, o] > 0
    ]
    assert found.r_max == np.abs(rewards).max()
    assert found.non_negative == (np.min(rewards) >= 0) == (name != "signed")
    factor = 4 if transitions.average else 2
    assert found.R_w == pytest.approx(factor * found.r_max / found.lambda_A, rel=1e-12)
    scores = [np.linalg.norm(np.eye(3)[a] - transitions.pi[s]) for s in range(5) for a in range(3)]
    assert found.C_psi == pytest.approx(max(scores), rel=1e-12)
    assert found.C_psi <= found.C_psi_bound == pytest.approx(np.sqrt(2))
    assert found.rarest == pytest.approx(transitions.d.min(), rel=1e-10)
    assert found.average == transitions.average
    assert found.gamma == max(transitions.gammas)


def test_scores_of_a_linear_policy_are_as_long_as_its_inputs():
    model, X = MODELS["endless"], np.random.default_rng(2).normal(size=(5, 2))
    theta = np.random.default_rng(3).normal(size=(2, 3))
    found = theory.constants(model, X @ theta, Discounted(0.9), inputs=X)
    pi = Transitions(model, X @ theta, Discounted(0.9)).pi
    scores = [np.linalg.norm(np.outer(X[s], np.eye(3)[a] - pi[s])) for s in range(5) for a in range(3)]
    assert found.C_psi == pytest.approx(max(scores), rel=1e-12)
    assert found.C_psi_bound == pytest.approx(np.sqrt(2) * max(np.linalg.norm(x) for x in X), rel=1e-12)


@pytest.mark.parametrize("name", ["endless", "ending"])
def test_the_stationary_law_is_that_of_a_long_simulation(name):
    """400 chains of 600 steps, the first 100 left out; the chains' spread gives the standard error."""
    model = MODELS[name]
    g = theory.ground(model, logits_of(model), Discounted(0.9))
    _, _, states = closed_form.simulate(model, g.policy, 400, 600, np.random.default_rng(4))
    visits = (states[100:, :, None] == np.arange(5)).mean(axis=0)
    error = visits.std(axis=0) / np.sqrt(len(visits))
    assert np.all(np.abs(visits.mean(axis=0) - g.stationary) < 4.5 * error)
    assert error.max() < 2e-3


def test_the_stationary_law_of_resource_gathering_by_power_iteration():
    model = library.resource_gathering()
    g = theory.ground(model, logits_of(model, scale=0.5), Average())
    law = model.start_distribution
    for _ in range(5000):
        law = law @ g.P
    np.testing.assert_allclose(g.stationary, law, rtol=1e-9)


# --- by hand


def uniform_chain(gamma_or_average):
    """Three states, from each to each with chance 1/3; state 0 pays 1."""
    model = FiniteMOMDP.from_dense(np.full((3, 1, 3), 1 / 3), np.array([[[1.0]], [[0.0]], [[0.0]]]))
    return theory.constants(model, np.zeros((3, 1)), gamma_or_average)


def test_three_uniform_states_by_hand():
    c = uniform_chain(Discounted(0.5))
    # A = −(I − γ/3 11ᵀ)/3, so that λ_A = 2(1 − γ)/3 and ‖A‖_F² = (2 + (1 − γ)²)/9
    assert c.lambda_A == pytest.approx(1 / 3, rel=1e-14)
    assert c.C_A_mean**2 == pytest.approx(0.25, rel=1e-14)
    np.testing.assert_allclose(c.C_A**2, 1.25, rtol=1e-14)  # to another state: γ² + 1
    assert (c.C_b, c.C_b_mean) == (1, pytest.approx(1 / 3, rel=1e-14))
    # V = r + γ/3 ΣV and ΣV = 1/(1 − γ) = 2: V = (4/3, 1/3, 1/3)
    assert c.w_star**2 == pytest.approx(2, rel=1e-14)
    assert c.R_w == pytest.approx(6, rel=1e-14)
    assert (c.mixing.rho, c.mixing.kappa, c.mixing.factor) == (0, 1, 1)
    assert c.spectral.rho == pytest.approx(0, abs=1e-12)
    assert (c.L_J, c.C_psi) == (0, 0)
    assert c.L_J_bound == pytest.approx(8, rel=1e-14)


def test_three_uniform_states_on_average_by_hand():
    c = uniform_chain(Average())
    assert c.lambda_A == 0
    assert c.lambda_A_modulo_constants == pytest.approx(2 / 3, rel=1e-14)
    np.testing.assert_allclose(c.C_A**2, 2, rtol=1e-14)
    assert c.C_b == pytest.approx(2 / 3, rel=1e-14)
    assert c.w_star**2 == pytest.approx(2 / 3, rel=1e-14)  # (2/3, −1/3, −1/3)
    assert c.R_w == pytest.approx(6, rel=1e-14)


# --- several policies


def test_the_worst_of_several_is_worst_in_each():
    model = MODELS["signed"]
    several = [theory.constants(model, logits_of(model, seed), Discounted(0.9), FEATURES["three"]) for seed in range(4)]
    worst = theory.worst(several)
    for field in fields(worst):
        values, value = [getattr(c, field.name) for c in several], getattr(worst, field.name)
        if field.name in ("mixing", "spectral"):
            assert value.rho == max(v.rho for v in values)
            assert value.kappa == max(v.kappa for v in values)
            assert value.kind == values[0].kind
        elif isinstance(value, bool):
            assert value == all(values)
        else:
            bad = min if field.name in ("lambda_A", "lambda_A_modulo_constants", "rarest") else max
            assert value == bad(values), field.name
    assert {several.index(c) for c in several if c.lambda_A == worst.lambda_A} != {
        several.index(c) for c in several if c.L_J == worst.L_J
    }  # they need not come from one policy


def test_the_worst_of_one_is_itself_and_of_none_is_refused():
    c = uniform_chain(Discounted(0.5))
    worst = theory.worst([c])
    assert all(getattr(worst, f.name) == getattr(c, f.name) for f in fields(c) if f.name not in ("mixing", "spectral"))
    with pytest.raises(ValueError, match="`several` must hold the constants of at least one policy, got none"):
        theory.worst([])


# --- sizes and edges


@pytest.mark.parametrize("setting", [Discounted(0.9), Average()], ids=["discounted", "average"])
def test_two_hundred_states(setting):
    model = library.random_ergodic(0, 200, 2, num_successors=4)
    c = theory.constants(model, np.zeros((200, 2)), setting)
    for field in fields(c):
        value = getattr(c, field.name)
        assert isinstance(value, theory.Mixing) or np.isfinite(value), field.name
    assert 0 < c.L_J <= c.L_J_bound
    assert 0 < c.spectral.rho <= c.mixing.rho < 1
    assert c.w_star <= c.R_w


@pytest.mark.parametrize("setting", ["one discount", "average"])
def test_one_state(setting):
    c = theory.constants(FiniteMOMDP.from_dense(np.ones((1, 2, 1)), [[[1.0], [3.0]]]), [[0.0, 0.0]], SETTINGS[setting])
    assert (c.mixing.rho, c.mixing.kappa, c.rarest) == (0, 1, 1)
    if setting == "average":
        assert (c.lambda_A, c.w_star, c.C_A) == (0, 0, 0)
        assert c.R_w == np.inf
    else:
        assert c.lambda_A == pytest.approx(0.2)
        assert c.w_star == pytest.approx(20)


def test_the_last_step_of_an_episode_is_the_largest_where_features_change_little():
    """One state that ends its episode half the time: γφ' − φ is −0.1 or, at the end, −1."""
    model = FiniteMOMDP.from_dense(np.ones((1, 1, 1)), np.ones((1, 1, 1)), terminal=np.full((1, 1, 1), 0.5))
    np.testing.assert_allclose(theory.constants(model, [[0.0]], Discounted(0.9)).C_A, 1, rtol=1e-15)
    np.testing.assert_allclose(theory.constants(model, [[0.0]], Average()).C_A, 0)


def test_one_objective_and_equal_objectives_agree():
    model = library.random_ergodic(8, 4, 2, 1)
    arrays = (model.next_state, model.probability, model.reward.repeat(2, axis=3), model.terminated)
    double = FiniteMOMDP.from_outcomes(*arrays, start=model.start_distribution)
    for setting in (Discounted(0.8), Average()):
        one, two = (theory.constants(m, logits_of(model), setting) for m in (model, double))
        for field in fields(one):
            if field.name not in ("mixing", "spectral", "num_objectives"):
                expected = pytest.approx(getattr(one, field.name), rel=1e-9, abs=1e-20)
                assert getattr(two, field.name) == expected, field.name


def test_dependent_features_have_no_radius():
    Phi = np.eye(5)[:, [0, 1, 1]]
    c = theory.constants(MODELS["endless"], np.zeros((5, 3)), Discounted(0.9), Phi)
    assert c.lambda_A == 0
    assert c.R_w == np.inf
    assert np.isfinite(c.w_star)


# --- refusals


def two_classes():
    P = np.zeros((4, 2, 4))
    P[:2, :, 1] = 1.0
    P[2:, :, 3] = 1.0
    return FiniteMOMDP.from_dense(P, np.ones((4, 2, 2)))


@pytest.mark.parametrize("setting", [Discounted(0.9), Average()], ids=["discounted", "average"])
def test_a_chain_of_two_classes_has_no_constants_and_the_message_names_them(setting):
    with pytest.raises(ValueError, match=r"one recurrent class under this policy, got 2: states \{1\}; \{3\}"):
        theory.constants(two_classes(), np.zeros((4, 2)), setting)
    g = theory.ground(two_classes(), np.zeros((4, 2)), setting)
    with pytest.raises(ValueError, match=r"states \{1\}; \{3\}"):
        _ = g.stationary


@pytest.mark.parametrize("setting", [Discounted(0.9), Average()], ids=["discounted", "average"])
def test_a_periodic_chain_has_all_constants_but_a_rate(setting):
    cycle = np.roll(np.eye(3), 1, axis=1)[:, None]
    c = theory.constants(FiniteMOMDP.from_dense(cycle, np.arange(3.0).reshape(3, 1, 1)), np.zeros((3, 1)), setting)
    assert c.mixing.rho == c.spectral.rho == 1
    assert c.mixing.factor == np.inf
    assert c.lambda_A_modulo_constants > 0
    assert np.isfinite([c.w_star, c.R_w, c.C_A, c.C_b, c.zeta, c.L_J]).all()


def test_logits_of_a_wrong_shape_are_refused():
    for shape in ((5,), (3, 5), (1, 5, 3), ()):
        with pytest.raises(ValueError, match="`logits` must have shape"):
            theory.ground(MODELS["endless"], np.zeros(shape), Discounted(0.9))


@pytest.mark.parametrize(
    "asked",
    [
        lambda model: theory.ground(model, np.zeros((2, 2)), Discounted(0.9)),
        lambda model: theory.constants(model, np.zeros((2, 2)), Discounted(0.9)),
        lambda model: theory.guarantees(model, Config()),
        lambda model: momdp.evaluate(model, np.zeros((2, 2)), Discounted(0.9)),
        lambda model: momdp.pareto_front(model, Discounted(0.9)),
    ],
)
def test_an_id_is_no_model(asked):
    with pytest.raises(ValueError, match=r"`model` must be a FiniteMOMDP such as .*, got 'fishwood-v0'\."):
        asked("fishwood-v0")


@pytest.mark.parametrize("name", ["features", "inputs"])
def test_rows_of_a_wrong_shape_or_not_finite_are_refused(name):
    for shape in ((4, 2), (5,), (5, 0), (1, 5, 2)):
        with pytest.raises(ValueError, match=rf"`{name}` must have shape \[5, d\], got"):
            theory.ground(MODELS["endless"], np.zeros((5, 3)), Discounted(0.9), **{name: np.ones(shape)})
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match=f"`{name}` must be finite"):
            theory.ground(MODELS["endless"], np.zeros((5, 3)), Discounted(0.9), **{name: np.full((5, 2), bad)})


@pytest.mark.parametrize("setting", [Discounted(0.9), Average()], ids=["discounted", "average"])
def test_logits_that_are_not_finite_are_refused(setting):
    with pytest.raises(ValueError, match="`logits` must be finite, got nan"):
        theory.constants(MODELS["endless"], np.full((5, 3), np.nan), setting)


def test_a_wrong_number_of_discounts_is_refused():
    with pytest.raises(ValueError, match=r"`discount` must be one value or one per objective \(2\), got 3"):
        theory.ground(MODELS["endless"], np.zeros((5, 3)), Discounted((0.9, 0.8, 0.7)))


def test_what_a_ground_holds():
    g = theory.ground(MODELS["ending"], logits_of(MODELS["ending"]), Discounted((0.3, 0.95)), FEATURES["three"])
    transitions = Transitions(MODELS["ending"], logits_of(MODELS["ending"]), Discounted((0.3, 0.95)))
    np.testing.assert_allclose(g.P, transitions.P, atol=1e-15)
    np.testing.assert_allclose(g.moves, transitions.go, atol=1e-15)
    for i, samples in enumerate(transitions.samples(FEATURES["three"])):
        np.testing.assert_allclose(g.A[i], sum(p * A for p, A, _ in samples), atol=1e-15)
        np.testing.assert_allclose(g.b[i], sum(p * b for p, _, b in samples), atol=1e-15)
    assert g.constant is None
    spanning = theory.ground(MODELS["ending"], np.zeros((5, 3)), Average(), np.eye(5) / 2)
    np.testing.assert_allclose(spanning.constant, 2, rtol=1e-12)
    assert contraction(spanning) == 0
