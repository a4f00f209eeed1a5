"""The behaviour model's error: derivative, curvature and influence against finite differences and dense solutions."""

from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest

from moac.kuairand import generate
from moac.logs import states
from moac.offline import model_error, ncis
from tests.helpers.log_policies import MODEL, modelled

CAP = 3.0


@pytest.fixture(scope="module")
def case():
    """A log with an unfitted b; a policy's probabilities and two signals on its validation rows."""
    dataset = modelled(generate.log(1_500, 3, model=MODEL, num_users=150).dataset(known=False))
    rows, rng = dataset.rows("validation"), np.random.default_rng(0)
    return dataset, rows, rng.uniform(0, 0.6, len(rows)), np.asarray(dataset.reward[rows][:, [0, 6]], float)


def value(dataset, rows, policy, reward, last):
    """V with another last layer of b, in double precision."""
    *others, _ = dataset.behaviour.clone
    x = np.asarray(states.of_rows(dataset.data, rows), float)
    logits = dataset.behaviour.policy.logits(tuple(np.asarray(W, float) for W in (*others, last)), x)
    b = np.exp(logits - logits.max(axis=1, keepdims=True))
    b = (b / b.sum(axis=1, keepdims=True))[np.arange(len(rows)), dataset.action[rows]]
    w = np.minimum(CAP, policy / b)
    return w @ reward / w.sum(), b


def layer_of(dataset):
    model = dataset.behaviour
    return partial(model_error._layer, model.policy, model.clone, dataset.data)


def test_the_derivative_of_values_by_the_last_layer(case):
    dataset, rows, policy, reward = case
    last = np.asarray(dataset.behaviour.clone[-1], float)
    values, b = value(*case, last)
    w = np.minimum(CAP, policy / b)
    assert (w == CAP).any() and (w < CAP).any()
    c = -np.where(w < CAP, w, 0)[:, None] / w.sum() * (reward - values)
    found = model_error._gradient(dataset, layer_of(dataset), rows, c)
    rng = np.random.default_rng(1)
    for _ in range(4):
        step = 1e-5 * rng.standard_normal(last.shape)
        moved = value(*case, last + step)[0] - value(*case, last - step)[0]
        np.testing.assert_allclose(np.einsum("mpk,pk->m", found, step), moved / 2, rtol=2e-3, atol=1e-10)


def test_the_curvature_is_the_hessian_of_the_log_loss_with_weight_decay(case):
    dataset, *_ = case
    train = dataset.rows("train")[:300]
    curvature = model_error._Curvature(dataset, layer_of(dataset), train, dataset.behaviour)
    h, action, shape = curvature.h, dataset.action[train], curvature.penalty.shape
    signal, options = np.eye(dataset.num_actions)[action] - curvature.b, dataset.behaviour.options
    squares = sum(np.outer(x, e) ** 2 for x, e in zip(h, signal, strict=True)) / len(h)
    np.testing.assert_allclose(
        curvature.penalty, options.weight_decay * np.sqrt(squares / options.batch_size), rtol=1e-4
    )

    def loss(flat):
        log_b = jax.nn.log_softmax(h @ flat.reshape(shape))
        return -log_b[np.arange(len(h)), action].mean()

    last = np.asarray(dataset.behaviour.clone[-1]).ravel()
    dense = np.asarray(jax.hessian(loss)(last), float) + np.diag(curvature.penalty.ravel())
    right = np.random.default_rng(2).standard_normal((2, *shape))
    right -= right.mean(axis=2, keepdims=True)  # the same for all actions changes nothing
    solved = np.asarray(curvature.solve(right), float).reshape(2, -1)
    np.testing.assert_allclose(solved @ dense, right.reshape(2, -1), atol=0.02)


def test_influence_is_what_a_user_more_would_change(case):
    """Σ over a user's rows of ∇V · H⁻¹ s / n, put together from dense pieces."""
    dataset, rows, policy, reward = case
    _, b = value(*case, np.asarray(dataset.behaviour.clone[-1], float))
    weights = {"p": ncis.Weighted((policy / b)[None]), "b": ncis.Weighted(np.ones((1, len(rows))))}
    alone = replace(dataset, behaviour=replace(dataset.behaviour, members=dataset.behaviour.members[:1]))
    found = model_error.influence(alone, rows, weights, reward, CAP)
    assert list(found) == ["p"]  # the policy that made the log has weights of 1 whatever b is
    agrees = {"p": ncis.Weighted(np.where(np.arange(len(rows)) == 0, 1.0, policy / b)[None])}
    assert list(model_error.influence(alone, rows, agrees, reward, CAP)) == ["p"]  # in one row it does what b does
    train, layer = dataset.rows("train"), layer_of(dataset)
    values, w = value(*case, np.asarray(dataset.behaviour.clone[-1], float))[0], np.minimum(CAP, policy / b)
    c = -np.where(w < CAP, w, 0)[:, None] / w.sum() * (reward - values)
    gradient = model_error._gradient(dataset, layer, rows, c)
    curvature = model_error._Curvature(dataset, layer, train, dataset.behaviour)
    solved = np.asarray(curvature.solve(gradient), float)
    scores = np.eye(dataset.num_actions)[dataset.action[train]] - curvature.b
    by_row = np.einsum("np,mpk,nk->nm", curvature.h, solved, scores) / len(train)
    users, index = np.unique(dataset.user[train], return_inverse=True)
    expected = np.stack([np.bincount(index, column, len(users)) for column in by_row.T], axis=1)
    np.testing.assert_allclose(found["p"], expected, rtol=1e-3, atol=1e-7)
    noise = ncis.estimates.model_noise(found, ncis.Options(draws=2000))["p"]
    spread = np.sqrt(((found["p"] - found["p"].mean(axis=0)) ** 2).sum(axis=0))
    np.testing.assert_allclose(noise.std(axis=0), spread, rtol=0.1)
    assert (np.abs(noise.mean(axis=0)) < 0.1 * spread).all()


def test_influences_are_scaled_to_what_two_halves_of_the_users_disagree_by(case):
    dataset, rows, policy, reward = case
    own = np.asarray(dataset.propensity, float)[rows]
    weights, model = {"p": ncis.Weighted((policy / own)[None])}, dataset.behaviour
    first, other, last = model.members
    apart = replace(last, weights=(last.weights[0], 4 * last.weights[1]))

    def influence(*members):
        each = replace(dataset, behaviour=replace(model, members=members))
        return model_error.influence(each, rows, weights, reward, CAP)["p"]

    plain = influence(first)
    np.testing.assert_array_equal(influence(first, other, other), plain)  # no disagreement makes nothing smaller
    alone = [replace(dataset, behaviour=replace(model, members=(member,))) for member in (other, apart)]
    halves = [value(each, rows, policy, reward, each.behaviour.clone[-1])[0] for each in alone]
    factor = np.sqrt(((halves[0] - halves[1]) ** 2 / 4 / (plain**2).sum(axis=0)).mean())
    assert factor > 1
    np.testing.assert_allclose(influence(first, other, apart), factor * plain, rtol=1e-3)


@pytest.mark.parametrize("constant", [1.0, -0.1, 1 / 3])
def test_a_signal_that_never_varies_moves_no_interval(case, constant):
    """By rounding two halves disagree on it by far more than influences say, which are rounding as well."""
    dataset, rows, policy, reward = case
    own = np.asarray(dataset.propensity, float)[rows]
    weights = {"p": ncis.Weighted((policy / own)[None])}
    both = np.column_stack([reward, np.full(len(rows), constant)])
    plain, found = (model_error.influence(dataset, rows, weights, each, CAP)["p"] for each in (reward, both))
    np.testing.assert_allclose(found[:, :2], plain, rtol=1e-2, atol=1e-5)
    assert not found[:, 2].any()


def test_the_strongest_covariate_is_what_b_looks_at_most(case):
    dataset, rows, *_ = case
    name, factor = model_error.strongest(dataset, rows)
    assert name in ("user features", "context 0", "viewed items") and factor > 1
    (first, last), tab = dataset.behaviour.clone, dataset.tables.users.shape[1]
    blind = first.copy()
    blind[:tab] = blind[tab + sum(dataset.tables.context_sizes) : -1] = 0  # only the context is left
    members = tuple(replace(member, weights=(blind, last)) for member in dataset.behaviour.members)
    other = replace(dataset, behaviour=replace(dataset.behaviour, members=members))
    x = np.asarray(states.of_rows(dataset.data, rows), float)
    mean = x.copy()
    mean[:, tab : tab + dataset.tables.context_sizes[0]] = mean[:, tab : tab + dataset.tables.context_sizes[0]].mean(0)
    b = [np.asarray(jax.nn.softmax(dataset.behaviour.policy.logits((blind, last), each))) for each in (x, mean)]
    odds = [each / (1 - each) for each in (own[np.arange(len(rows)), dataset.action[rows]] for own in b)]
    moved = np.exp(np.quantile(np.abs(np.log(odds[0] / odds[1])), 0.9))
    assert model_error.strongest(other, rows) == ("context 0", pytest.approx(moved, rel=1e-4))
    known = generate.log(300, 3, model=MODEL, num_users=30).dataset()
    assert model_error.strongest(known, known.rows("test")) is None
    assert model_error.influence(known, known.rows("test"), {}, reward=np.zeros((0, 1)), cap=CAP) == {}
