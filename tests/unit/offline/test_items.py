"""Policies over described items on logs whose requests bring candidates: every stage against a plain reading."""

from dataclasses import replace

import jax
import numpy as np
import pytest

import moac
from moac.logs import About, LoggedDataset, Rows
from moac.logs.catalogue import Catalogue
from moac.offline import behaviour, elsewhere, ncis, recommend, reward_model
from moac.offline.baselines import pdpg, tilt, tscac
from moac.offline.behaviour import BehaviourModel, Member, Options
from moac.offline.evaluate import evaluate, features, probabilities
from moac.policies import ItemsPolicy
from moac.policies.networks import Plain
from moac.training.trained import TrainedPolicy
from tests.helpers import listed
from tests.helpers.log_policies import modelled

HIDDEN = (3,)


def drawn(policy, seed):
    rng, shapes = np.random.default_rng(seed), jax.eval_shape(policy.init, jax.random.key(0))
    return tuple(rng.normal(0, 0.4, leaf.shape).astype(np.float32) for leaf in shapes)


@pytest.fixture(scope="module")
def log():
    """With a behaviour model that nobody has fitted, of two folds."""
    plain = listed.dataset(known=False, count=1500)
    policy = ItemsPolicy(Plain(plain.num_features), HIDDEN, Catalogue.of(plain).described)
    members = tuple(Member(drawn(policy, k), 0.8 + k / 5, 0, (0.0, 0.0)) for k in range(3))
    options = Options(policy="items", hidden=HIDDEN, max_rounds=1)
    return plain.with_behaviour(BehaviourModel(policy, members, options, behaviour.identity(plain)))


@pytest.fixture(scope="module")
def method(log):
    policy = log.behaviour.policy
    return policy, tuple(np.stack(pair) for pair in zip(drawn(policy, 7), drawn(policy, 8), strict=True))


def by_hand(log, policy, theta, rows):
    """π of each row's candidates, one row after the other, and the place of what was shown."""
    scores = policy.logits(theta, np.asarray(log.features(log.observation(rows)))).astype(np.float64)
    for row, score in zip(rows, scores, strict=True):
        padded = log.lists.padded(log.candidates[row])
        candidates = padded[padded >= 0]
        p = np.exp(score[candidates])
        yield p / p.sum(), list(candidates).index(log.action[row])


def test_probabilities_are_among_the_candidates_of_each_row(log, method):
    policy, theta = method
    rows = log.rows("validation")
    for k, p in enumerate(probabilities(log, policy, theta, rows)):
        expected = [q[at] for q, at in by_hand(log, policy, tuple(W[k] for W in theta), rows)]
        np.testing.assert_allclose(p, expected, rtol=1e-4)
    model = log.behaviour
    tables, places = model.probabilities(log, rows), behaviour.places(log, rows)
    for table, (q, at), place in zip(tables, by_hand(log, policy, model.clone, rows), places, strict=True):
        np.testing.assert_allclose(table, np.pad(q, (0, len(table) - len(q))), rtol=1e-3, atol=1e-6)
        assert at == place
    np.testing.assert_allclose(tables[np.arange(len(rows)), places], log.propensity[rows], rtol=1e-4)


def test_an_evaluation_is_ncis_of_these_probabilities_with_all_controls(log, method):
    found = evaluate(log, {"MOAC": method}, options=ncis.Options(draws=100))
    rows, policy = log.rows("validation"), found.report.policies["MOAC"]
    p = probabilities(log, *method, rows)
    w = np.minimum(10, p / log.propensity[rows])
    values = [weight @ log.reward[rows] / weight.sum() for weight in w]
    np.testing.assert_allclose(policy.ncis.value, np.mean(values, axis=0), rtol=1e-5)
    assert policy.doubly_robust is not None and np.isfinite(policy.doubly_robust.value).all()
    assert {one.name for one in policy.checks.controls} == {"earlier rewards", "later rewards"}
    assert policy.checks.balance is not None and found.without_responses is not None
    assert found.report.policies["Behavior-Clone"].verdict.reasons is not None


def test_a_reward_model_values_the_candidates_of_each_row(log):
    rows, model = log.rows("validation")[:40], reward_model.fit_rewards(log, log.signal_names)
    seen, chosen = features(log, rows), np.array([3, 17, 5])
    for values, row, x in zip(model.of_choices(seen, chosen), rows[chosen], seen.x[chosen], strict=True):
        padded = log.lists.padded(log.candidates[row])
        np.testing.assert_allclose(values[: (padded >= 0).sum()], model.values(x[None])[0, padded[padded >= 0]])


def test_what_is_fitted_learns_the_law_of_the_log():
    plain, true = listed.dataset(known=False), listed.dataset()
    options = Options(policy="items", hidden=(), item_embedding=False, max_rounds=12, step_size=0.02, weight_decay=0.0)
    model = behaviour.fit(plain, options, cross_fit=False)
    rows = plain.rows("validation")
    b = np.array(
        [table[at] for table, at in zip(model.probabilities(plain, rows), behaviour.places(plain, rows), strict=True)]
    )
    best = -np.log(true.propensity[rows]).mean()
    assert best <= -np.log(b).mean() < best + 0.03
    assert np.corrcoef(np.log(b), np.log(true.propensity[rows]))[0, 1] > 0.95


def test_a_run_is_trained_kept_and_serves_lists(log, tmp_path):
    run = moac.train(
        log, num_iterations=3, num_evaluations=1, critic_batch_size=16, actor_batch_size=16, out=tmp_path / "run"
    )
    assert run.config.policy == "items" and np.isfinite(run.returns).all()
    loaded = moac.load(tmp_path / "run")
    assert loaded.policy == log.behaviour.policy
    x = np.asarray(log.features(log.observation(np.array([3]))))
    np.testing.assert_allclose(loaded.logits(x), run.policy.logits(x), rtol=1e-6)
    user, history = log.user_ids[log.user[3]], [2, 5]
    few = loaded.recommend(user, history=history, k=3, eligible=[1, 4, 6, 9])
    score = loaded.recommend(user, history=history, k=listed.ITEMS)
    ranks = {name: p for name, p in score if name in (1, 4, 6, 9)}
    assert list(few.ids) == list(ranks)[:3]
    np.testing.assert_allclose(few.probabilities, np.array(list(ranks.values()))[:3] / sum(ranks.values()), rtol=1e-5)
    block = recommend.requests.of_dataset(log, np.array([3, 700]), False)
    left = np.ones((2, listed.ITEMS), bool)
    left[0, [1, 4, 6, 9]], left[1, 2] = False, False
    best = next(recommend.answered(loaded, [replace(block, left_out=left)], 3))
    assert best.counts.tolist() == [3, 1] and best.ids[1, 0] == 2 and best.probabilities[1, 0] == 1
    assert set(best.ids[0]) <= {1, 4, 6, 9}


def test_tilts_and_closed_forms_are_over_the_candidates(log):
    rows, z = log.rows("validation"), np.linspace(-1, 1, log.num_actions)
    model = log.behaviour
    tilted = probabilities(log, *tilt.tilted(log, z, 0.7), rows)[0]
    expected = []
    for row, (q, at) in zip(rows, by_hand(log, model.policy, model.clone, rows), strict=True):
        padded = log.lists.padded(log.candidates[row])
        known = np.ones(log.num_actions, bool) if log.known_actions is None else log.known_actions
        p = q * np.exp(0.7 * np.where(known, z, 0)[padded[padded >= 0]])
        expected.append(p[at] / p.sum())
    np.testing.assert_allclose(tilted, expected, rtol=1e-3)
    uniform = probabilities(log, *tilt.uniform(log), rows)[0]
    lengths = np.diff(log.lists.first)[log.candidates[rows]]
    np.testing.assert_allclose(uniform, 1 / lengths, rtol=1e-5)
    small = {"steps": 2, "batch_size": 8}
    for learned in (
        pdpg.train(log, pdpg.Options(**small)),
        tscac.train(log, tscac.Options(auxiliary_steps=2, **small)),
    ):
        assert learned.policy == model.policy and all(np.isfinite(layer).all() for layer in learned.theta)


def test_what_goes_wrong_is_one_line(log, method):
    plain = listed.dataset(known=False, count=1500)
    with pytest.raises(ValueError, match="`policy` must be items on log, whose requests have candidates, got 'mlp'"):
        behaviour.fit(plain)
    with pytest.raises(ValueError, match="`policy` must be items on log, whose requests have candidates, got 'mlp'"):
        moac.train(listed.dataset(count=1500), policy="mlp", num_iterations=1)
    mlp = modelled(replace(plain, lists=None, candidates=None)).behaviour.method
    with pytest.raises(ValueError, match="does not choose among candidates"):
        evaluate(log, {"MOAC": mlp})
    with pytest.raises(ValueError, match="item_embedding=True, as the behaviour model, to start from it"):
        moac.train(log, item_embedding=False, num_iterations=1)
    with pytest.raises(ValueError, match="`policy` must be items on logs only"):
        moac.train("fishwood-v0", policy="items", num_iterations=1)
    many = About(action_ids=np.arange(10_001), actions=np.zeros((10_001, 2)), shares=(0.5, 0.5, 0.0))
    large = LoggedDataset.from_numpy(Rows([0, 1, 2, 3], [0, 1, 2, 3], np.eye(4)[:, :2], propensity=np.ones(4)), many)
    for method_of in (pdpg, tscac):
        with pytest.raises(ValueError, match="must have at most 10,000 actions, got 10,001"):
            method_of.train(large, method_of.Options(start="random"))


def test_new_items_are_actions_that_no_embedding_knows():
    given = listed.rows(600)
    rows = Rows(given.user, np.minimum(given.action, 9), given.reward)
    about = About(action_ids=np.arange(listed.ITEMS), actions=listed.features(), window=2)
    dataset = LoggedDataset.from_numpy(rows, about)
    assert dataset.known_actions.tolist() == [True] * 10 + [False] * 4
    policy = ItemsPolicy(Plain(dataset.num_features), HIDDEN, Catalogue.of(dataset).described)
    trained = TrainedPolicy(policy, tuple(W[None] for W in drawn(policy, 1)), dataset.spec.observations)
    found = trained.recommend(dataset.user_ids[0], k=listed.ITEMS)
    assert {10, 11, 12, 13} <= set(found.ids)


def test_explore_values_each_preference_by_the_users_of_the_log(log):
    sizes = {"num_iterations": 3, "num_evaluations": 1, "critic_batch_size": 16, "actor_batch_size": 16}
    archive = moac.explore(log, preferences=[[1, 0], [0, 1], [0.5, 0.5]], **sizes)
    first = archive.policy(0)
    assert first.policy == log.behaviour.policy
    alone = first.policy, tuple(W[:1] for W in first.theta)
    found = evaluate(log, {"MOAC": alone}, control=None).report.policies["MOAC"].ncis
    np.testing.assert_allclose(archive.points[0], found.value, rtol=1e-5)
    assert (archive.low <= archive.points).all() and (archive.points <= archive.high).all()


def test_another_log_is_read_with_the_items_of_the_run(log, method):
    """Next week's requests hold an item that the run does not know, which nobody could have chosen by it."""
    given, x = listed.rows(900, seed=5), listed.features()
    strange = [np.append(each, listed.ITEMS) if k % 3 == 0 else each for k, each in enumerate(given.candidates)]
    about = About(action_ids=np.arange(listed.ITEMS + 1), actions=np.vstack([x, x[:1]]), window=2)
    other = LoggedDataset.from_numpy(Rows(given.user, given.action, given.reward, candidates=strange), about)
    seen = elsewhere.seen(other, Catalogue.of(log), log.behaviour)
    mapped, carried = seen.dataset, seen.carried
    assert mapped.num_rows == 900 and mapped.num_actions == log.num_actions
    for row in range(0, 900, 50):
        listed_there = mapped.lists.padded(mapped.candidates[row])
        at = np.flatnonzero((given.user == other.user_ids[mapped.user[row]]) & (given.action == mapped.action[row]))
        assert sorted(listed_there[listed_there >= 0]) in [sorted(given.candidates[k]) for k in at]
    rows = carried.rows("validation")
    b = [q[at] for q, at in by_hand(carried, log.behaviour.policy, log.behaviour.clone, rows)]
    np.testing.assert_allclose(carried.propensity[rows], b, rtol=1e-3)
    assert np.abs(mapped.propensity[rows] / carried.propensity[rows] - 1).max() > 0.01  # the other is fitted anew
    p = probabilities(mapped, *method, rows)
    w = np.minimum(10, p / mapped.propensity[rows])
    values = [weight @ mapped.reward[rows] / weight.sum() for weight in w]
    found = evaluate(mapped, {"MOAC": method}, control=None).report.policies["MOAC"]
    np.testing.assert_allclose(found.ncis.value, np.mean(values, axis=0), rtol=1e-5)
