"""FiniteMOMDP: what it accepts, what it refuses, what it keeps."""

import re

import jax
import numpy as np
import pytest

import moac
from moac.choices import LARGEST_REWARD
from moac.momdp import FiniteMOMDP

S, A, M = 3, 2, 2
TABLE = (S, A, 2)


def outcomes():
    """A valid table of outcomes, fresh for every test."""
    generator = np.random.default_rng(0)
    return {
        "next_state": generator.integers(S, size=TABLE),
        "probability": np.full(TABLE, 0.5),
        "reward": generator.random((*TABLE, M)),
        "terminated": np.zeros(TABLE, dtype=bool),
        "start": np.array([0.5, 0.25, 0.25]),
        "observations": np.arange(S * 4).reshape(S, 4),
    }


def dense():
    """A valid dense model with no impossible successor, fresh for every test."""
    generator = np.random.default_rng(1)
    P = generator.random((S, A, S)) + 0.1
    return {
        "P": P / P.sum(axis=2, keepdims=True),
        "r": generator.random((S, A, S, M)),
        "start": np.array([0.5, 0.25, 0.25]),
        "terminal": generator.random((S, A, S)) * 0.8 + 0.1,
    }


def as_dense(model):
    """Chances [S, A, S', ended] and expected rewards [S, A, M], by summing outcomes one at a time."""
    chance = np.zeros((model.num_states, model.num_actions, model.num_states, 2))
    reward = np.zeros((model.num_states, model.num_actions, model.num_objectives))
    for s, a, o in np.ndindex(model.probability.shape):
        p = model.probability[s, a, o]
        chance[s, a, model.next_state[s, a, o], int(model.terminated[s, a, o])] += p
        reward[s, a] += p * model.reward[s, a, o]
    return chance, reward


def changed(table, index, value):
    """A copy of `table` with one entry replaced."""
    copy = table.astype(np.result_type(table, type(value)))
    copy[index] = value
    return copy


# --- construction


def test_from_outcomes_keeps_the_tables():
    tables = outcomes()
    model = FiniteMOMDP.from_outcomes(**tables)
    for name, table in tables.items():
        np.testing.assert_array_equal(getattr(model, {"start": "start_distribution"}.get(name, name)), table)
    sizes = (model.num_states, model.num_actions, model.num_outcomes, model.num_objectives)
    assert sizes == (*TABLE, M)
    assert (model.next_state.dtype, model.probability.dtype, model.terminated.dtype) == (np.int32, np.float64, bool)
    assert model.objective_names == ("objective 1", "objective 2")


def test_from_dense_and_from_outcomes_agree_table_by_table():
    P, r, start = (dense()[name] for name in ("P", "r", "start"))
    every = np.broadcast_to(np.arange(S), P.shape)
    by_outcomes = FiniteMOMDP.from_outcomes(every, P, r, np.zeros(P.shape, bool), start)
    assert FiniteMOMDP.from_dense(P, r, start).fingerprint == by_outcomes.fingerprint


def test_from_dense_keeps_possible_outcomes_only():
    P = np.zeros((3, 1, 3))
    P[0, 0, 2] = P[1, 0, 0] = 1.0
    P[2, 0] = [0.25, 0.0, 0.75]
    r = np.arange(9.0).reshape(3, 1, 3, 1)
    model = FiniteMOMDP.from_dense(P, r)
    assert model.num_outcomes == 2
    chance, reward = as_dense(model)
    np.testing.assert_array_equal(chance[..., 0], P)
    np.testing.assert_array_equal(reward, (P[..., None] * r).sum(axis=2))


def test_terminal_splits_outcomes():
    tables = dense()
    model = FiniteMOMDP.from_dense(**tables)
    P, r, terminal = tables["P"], tables["r"], tables["terminal"]
    assert model.num_outcomes == 2 * S
    chance, reward = as_dense(model)
    np.testing.assert_allclose(chance[..., 0], P * (1 - terminal), rtol=1e-15)
    np.testing.assert_allclose(chance[..., 1], P * terminal, rtol=1e-15)
    np.testing.assert_allclose(reward, np.einsum("ijk,ijkm->ijm", P, r), rtol=1e-14)


def test_a_certain_end_leaves_no_outcome_that_goes_on():
    tables = dense()
    model = FiniteMOMDP.from_dense(tables["P"], tables["r"], terminal=np.ones((S, A, S)))
    assert model.num_outcomes == S
    assert model.terminated.all()


def test_rewards_without_a_successor_axis_hold_for_all_successors():
    tables = dense()
    short = tables["r"][:, :, 0, :]
    long = np.repeat(short[:, :, None, :], S, axis=2)
    assert (
        FiniteMOMDP.from_dense(tables["P"], short).fingerprint == FiniteMOMDP.from_dense(tables["P"], long).fingerprint
    )


@pytest.mark.parametrize("build", ["from_outcomes", "from_dense"])
def test_start_none_is_uniform(build):
    tables = outcomes() if build == "from_outcomes" else dense()
    model = getattr(FiniteMOMDP, build)(**{**tables, "start": None})
    np.testing.assert_array_equal(model.start_distribution, np.full(S, 1 / 3))


def test_lists_and_jax_arrays_are_welcome():
    tables = outcomes()
    lists = FiniteMOMDP.from_outcomes(**{name: table.tolist() for name, table in tables.items()})
    assert lists.fingerprint == FiniteMOMDP.from_outcomes(**tables).fingerprint
    tables["next_state"] = jax.numpy.asarray(tables["next_state"])
    assert FiniteMOMDP.from_outcomes(**tables).fingerprint == lists.fingerprint


def test_named_keeps_the_tables_and_counts_the_names():
    model = FiniteMOMDP.from_outcomes(**outcomes())
    renamed = model.named(("fish", "wood"), "river")
    assert (renamed.objective_names, renamed.name) == (("fish", "wood"), "river")
    assert renamed.named(("a", "b")).name == "river"
    assert renamed.fingerprint == model.fingerprint
    with pytest.raises(ValueError, match="`objective_names` must be 2 names, got 1"):
        model.named(("fish",))


# --- the caller's arrays


@pytest.mark.parametrize("build", ["from_outcomes", "from_dense"])
def test_the_callers_arrays_are_neither_changed_nor_shared(build):
    tables, untouched = (outcomes(), outcomes()) if build == "from_outcomes" else (dense(), dense())
    model = getattr(FiniteMOMDP, build)(**tables)
    before = model.fingerprint
    for name, table in tables.items():
        np.testing.assert_array_equal(table, untouched[name])
        table[...] = 0
    assert model.fingerprint == before


@pytest.mark.parametrize("name", outcomes())
def test_no_table_shares_memory_whatever_its_dtype(name):
    tables = outcomes()
    tables["next_state"] = tables["next_state"].astype(np.int32)
    model = FiniteMOMDP.from_outcomes(**tables)
    assert not np.shares_memory(getattr(model, name), tables[name])


# --- fingerprint


CONTENT = {
    "next_state": lambda table: (table + 1) % S,
    "probability": lambda table: changed(table, (2, 1), 0.5) * np.array([0.5, 1.5]),
    "reward": lambda table: changed(table, (0, 0, 0, 0), 9.0),
    "terminated": lambda table: changed(table, (1, 1, 1), True),
    "start": lambda table: table[::-1],
    "observations": lambda table: changed(table, (0, 0), 77),
}


@pytest.mark.parametrize("name", CONTENT)
def test_fingerprint_changes_with_content(name):
    tables = outcomes()
    before = FiniteMOMDP.from_outcomes(**tables).fingerprint
    assert FiniteMOMDP.from_outcomes(**outcomes()).fingerprint == before
    tables[name] = CONTENT[name](tables[name])
    assert FiniteMOMDP.from_outcomes(**tables).fingerprint != before


# --- refusals


REFUSED_OUTCOMES = {
    "rows that do not sum to 1": ("probability", lambda t: changed(t, (1, 0, 1), 0.4), "got 0.9 at index (1, 0)"),
    "a NaN chance": ("probability", lambda t: changed(t, (2, 1, 0), np.nan), "be finite, got nan at index (2, 1, 0)"),
    "a negative chance": ("probability", lambda t: changed(t, (0, 1), [-0.5, 1.5]), "got -0.5 at index (0, 1, 0)"),
    "chances of two axes": ("probability", lambda t: t[0], "shape [S, A, O], none of them 0, got (2, 2)"),
    "no outcomes": ("probability", lambda t: t[..., :0], "none of them 0, got (3, 2, 0)"),
    "a NaN reward": ("reward", lambda t: changed(t, (0, 1, 1, 1), np.nan), "got nan at index (0, 1, 1, 1)"),
    "an infinite reward": ("reward", lambda t: changed(t, (2, 0, 0, 1), -np.inf), "got -inf at index (2, 0, 0, 1)"),
    "a reward too large": ("reward", lambda t: changed(t, (1, 0, 1, 0), -1e16), "-1e+16 at index (1, 0, 1, 0)"),
    "rewards of another shape": ("reward", lambda t: t[:, :1], "leading shape (3, 2, 2), got (3, 1, 2, 2)"),
    "rewards of three axes": ("reward", lambda t: t[..., 0], "shape [S, A, O, M]"),
    "no objectives": ("reward", lambda t: t[..., :0], "none of them 0"),
    "ragged rewards": ("reward", lambda _: [[1.0], [1.0, 2.0]], "must be an array"),
    "words": ("reward", lambda _: "high", "must be an array"),
    "rewards as texts": ("reward", lambda t: t.astype(str), "an array of real numbers, got array("),
    "complex rewards": ("reward", lambda t: t + 1j, "an array of real numbers, got array("),
    "rewards that are not there": ("reward", lambda t: np.full(t.shape, None), "real numbers, got array("),
    "rewards beyond floats": ("reward", lambda t: np.full(t.shape, 10**400), "an array of real numbers, got array("),
    "complex chances": ("probability", lambda t: t + 0j, "an array of real numbers, got array("),
    "texts for ends": ("terminated", lambda t: t.astype(str), "an array of real numbers, got array("),
    "texts for states": ("next_state", lambda t: t.astype(str), "an array of real numbers, got array("),
    "a start as texts": ("start", lambda t: t.astype(str), "an array of real numbers, got array("),
    "fractional states": ("next_state", lambda t: t + 0.5, "must hold integers, got float64"),
    "flags for states": ("next_state", lambda t: t > 0, "must hold integers, got bool"),
    "a state too many": ("next_state", lambda t: changed(t, (1, 1, 0), 3), "in [0, 3), got 3 at index (1, 1, 0)"),
    "a negative state": ("next_state", lambda t: changed(t, (0, 0, 1), -1), "in [0, 3), got -1 at index (0, 0, 1)"),
    "states of another shape": ("next_state", lambda t: t[..., :1], "must have shape (3, 2, 2), got (3, 2, 1)"),
    "ends that are no flags": ("terminated", lambda t: changed(t, (0, 1, 0), 0.5), "got 0.5 at index (0, 1, 0)"),
    "ends of another shape": ("terminated", lambda t: t[0], "must have shape (3, 2, 2), got (2, 2)"),
    "start that does not sum to 1": ("start", lambda t: t / 2, "must sum to 1, got 0.5"),
    "a negative start": ("start", lambda _: [1.5, -0.5, 0.0], "not be negative, got -0.5 at index (1,)"),
    "a NaN start": ("start", lambda t: changed(t, 2, np.nan), "be finite, got nan at index (2,)"),
    "start of another length": ("start", lambda _: [0.5, 0.5], "leading shape (3,), got (2,)"),
    "a state for the start": ("start", lambda _: 0, "shape [S], none of them 0, got ()"),
    "too few observations": ("observations", lambda t: t[:2], "one entry per state (3), got shape (2, 4)"),
    "one observation": ("observations", lambda _: 7, "one entry per state (3), got shape ()"),
    "ragged observations": ("observations", lambda _: [[1], [1, 2], [3]], "must be an array"),
}


@pytest.mark.parametrize("case", REFUSED_OUTCOMES)
def test_from_outcomes_refuses(case):
    name, spoil, message = REFUSED_OUTCOMES[case]
    tables = outcomes()
    tables[name] = spoil(tables[name])
    with pytest.raises(ValueError, match=rf"^`{name}` .*{re.escape(message)}"):
        FiniteMOMDP.from_outcomes(**tables)


REFUSED_DENSE = {
    "rows that do not sum to 1": ("P", lambda t: changed(t, (2, 0), [0.5, 0.25, 0.0]), "got 0.75 at index (2, 0)"),
    "a negative chance": ("P", lambda t: changed(t, (0, 1), [-0.5, 1.5, 0.0]), "got -0.5 at index (0, 1, 0)"),
    "a NaN chance": ("P", lambda t: changed(t, (1, 1, 2), np.nan), "be finite, got nan at index (1, 1, 2)"),
    "an infinite chance": ("P", lambda t: changed(t, (1, 1, 2), np.inf), "be finite, got inf at index (1, 1, 2)"),
    "a matrix that is not square": ("P", lambda t: t[..., :2], "must have shape [S, A, S], got (3, 2, 2)"),
    "a matrix of two axes": ("P", lambda t: t[0], "shape [S, A, S], none"),
    "a NaN reward": ("r", lambda t: changed(t, (0, 1, 2, 0), np.nan), "got nan at index (0, 1, 2, 0)"),
    "a NaN short reward": ("r", lambda t: changed(t[:, :, 0], (2, 1, 1), np.nan), "got nan at index (2, 1, 1)."),
    "a reward too large": ("r", lambda t: changed(t, (0, 1, 2, 1), 1e20), "got 1e+20 at index (0, 1, 2, 1)"),
    "a short reward too large": ("r", lambda t: changed(t[:, :, 0], (2, 1, 1), 1e300), "at index (2, 1, 1)."),
    "short rewards of another shape": ("r", lambda t: t[:2, :, 0], "leading shape (3, 2), got (2, 2, 2)"),
    "rewards of another shape": ("r", lambda t: t[:, :, :2], "leading shape (3, 2, 3), got (3, 2, 2, 2)"),
    "rewards of two axes": ("r", lambda t: t[..., 0, 0], "shape [S, A, M] or [S, A, S, M]"),
    "rewards as texts": ("r", lambda t: t.astype(str), "an array of real numbers, got array("),
    "complex rewards": ("r", lambda t: t + 1j, "an array of real numbers, got array("),
    "short complex rewards": ("r", lambda t: t[:, :, 0] + 1j, "an array of real numbers, got array("),
    "a matrix of texts": ("P", lambda t: t.astype(str), "an array of real numbers, got array("),
    "complex ends": ("terminal", lambda t: t + 0j, "an array of real numbers, got array("),
    "an end likelier than 1": ("terminal", lambda t: changed(t, (2, 1, 0), 1.5), "got 1.5 at index (2, 1, 0)"),
    "an end likelier to not be": ("terminal", lambda t: changed(t, (0, 0, 1), -0.1), "got -0.1 at index (0, 0, 1)"),
    "a NaN end": ("terminal", lambda t: changed(t, (0, 0, 1), np.nan), "got nan at index (0, 0, 1)"),
    "ends of another shape": ("terminal", lambda t: t[:, :1], "leading shape (3, 2, 3), got (3, 1, 3)"),
    "a start that does not sum to 1": ("start", lambda t: t * 3, "must sum to 1, got 3"),
}


@pytest.mark.parametrize("case", REFUSED_DENSE)
def test_from_dense_refuses(case):
    name, spoil, message = REFUSED_DENSE[case]
    tables = dense()
    tables[name] = spoil(tables[name])
    with pytest.raises(ValueError, match=rf"^`{name}` .*{re.escape(message)}"):
        FiniteMOMDP.from_dense(**tables)


def test_the_largest_rewards_that_training_can_hold_are_welcome():
    tables = outcomes()
    tables["reward"] = np.where(tables["reward"] > 0.5, LARGEST_REWARD, -LARGEST_REWARD)
    model = FiniteMOMDP.from_outcomes(**tables)
    result = moac.train(model, num_iterations=20, num_evaluations=1, setting=moac.Discounted(0.99))
    assert not result.stopped.any()
    assert np.isfinite(result.history.weights).all()
