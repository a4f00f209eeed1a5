"""Random exposure beside the same users' standard rows: by hand, and where nothing can be said."""

from dataclasses import replace

import numpy as np
import pytest

from moac.kuairand import generate
from moac.offline import controls, ncis
from moac.offline.baselines import tilt
from moac.offline.evaluate import probabilities
from tests.helpers.log_policies import MODEL, modelled

KEPT = [0, 6]
"""Click and WatchTime, which fire often enough."""
OPTIONS = ncis.Options(draws=100, cap=2.0)


@pytest.fixture(scope="module")
def log():
    """Some rows of some users, of all splits, stand for random exposure."""
    plain = generate.log(3_000, 1, model=MODEL, num_users=300).dataset(known=False)
    chosen = np.flatnonzero((plain.user % 3 == 0) & (np.arange(plain.num_rows) % 2 == 0))
    columns = {name: getattr(plain, name)[chosen] for name in ("user", "action", "reward", "time", "context", "end")}
    columns |= {name: getattr(plain, name)[chosen] for name in ("terminated", "truncated")}
    uniform = np.full(len(chosen), 1 / plain.num_actions)
    return replace(modelled(plain), random=replace(plain, **columns, propensity=uniform))


def found(log, method):
    return controls.exposures(log, {"one": method}, probabilities, OPTIONS)["one"]


def test_changes_by_hand_and_their_difference(log):
    method = tilt.tilted(log, np.linspace(-1, 1, log.num_actions), 0.8)
    own, random = found(log, method), log.random
    rows = np.arange(random.num_rows)
    (p,) = probabilities(random, *method, rows)
    (clone,) = probabilities(random, *tilt.tilted(log, np.zeros(log.num_actions), 0.0), rows)
    reward = np.abs(random.reward[:, KEPT]).astype(float)
    by_chance = (p @ reward / p.sum()) / (clone @ reward / clone.sum()) - 1
    np.testing.assert_allclose(own.change[KEPT], by_chance, rtol=1e-5)
    mine = np.flatnonzero(np.isin(log.user, np.unique(random.user)))
    w = np.minimum(probabilities(log, *method, mine)[0] / log.propensity[mine], 2.0)
    reward = np.abs(log.reward[mine][:, KEPT]).astype(float)
    np.testing.assert_allclose(own.standard[KEPT], (w @ reward / w.sum()) / reward.mean(axis=0) - 1, rtol=1e-5)
    np.testing.assert_allclose(own.difference[KEPT], (own.standard - own.change)[KEPT], rtol=1e-6)
    assert (own.rows, own.users) == (random.num_rows, len(np.unique(random.user)))
    inside = own.estimable
    assert (own.interval[inside, 0] < own.change[inside]).all()
    assert (own.change[inside] < own.interval[inside, 1]).all()
    low, high = own.difference_interval[inside].T
    assert (low < own.difference[inside]).all()
    assert (own.difference[inside] < high).all()
    middle = (low + high) / 2
    assert (np.abs(middle - own.difference[inside]) < np.abs(middle + own.difference[inside])).all()
    np.testing.assert_allclose(own.standard_level[KEPT], reward.mean(axis=0), rtol=1e-6)


def test_the_behaviour_itself_changes_nothing(log):
    own = found(log, tilt.tilted(log, np.zeros(log.num_actions), 0.0))
    np.testing.assert_allclose(own.change[own.estimable], 0, atol=1e-6)
    np.testing.assert_allclose(own.interval[own.estimable], 0, atol=1e-6)


def test_few_events_say_nothing(log):
    own = found(log, tilt.uniform(log))
    np.testing.assert_array_equal(own.estimable, own.events >= 50)
    assert own.estimable.any()
    assert not own.estimable.all()
    told = {name: own.of(name) for name in (*own.signals, "no signal")}
    assert [each is not None for each in told.values()] == [*own.estimable, False]
    click = told["Click"]
    assert click["change"] == [own.change[0], *own.interval[0]] and click["difference"][1:] == [
        *own.difference_interval[0]
    ]
    assert (click["rows"], click["users"], click["events"]) == (own.rows, own.users, own.events[0])
    assert (click["level"], click["standard_level"]) == (own.level[0], own.standard_level[0])
    with_less = replace(log, random=replace(log.random, user=np.zeros_like(log.random.user)))
    assert controls.exposures(with_less, {"one": tilt.uniform(log)}, probabilities, OPTIONS) == {}
    assert controls.exposures(replace(log, random=None), {}, probabilities, OPTIONS) == {}
