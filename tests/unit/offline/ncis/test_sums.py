"""Sums of shards, and one line for each mistake with them: arguments by name and value."""

import numpy as np
import pytest

from moac.offline import ncis

USER, REWARD, HALF, TABLE = np.arange(6) // 2, np.ones((6, 2)), np.full(6, 0.5), np.full((6, 2), 0.5)
LOG = ncis.Logged.of(USER, REWARD, HALF, USER % 2)


def test_one_user_has_a_value_without_an_interval():
    log = ncis.Logged.of(np.zeros(6), REWARD, HALF)
    np.testing.assert_array_equal(ncis.values(ncis.accumulate(log, {"p": HALF}))["p"], [1, 1])


@pytest.mark.parametrize(("option", "value"), [("cap", 0), ("level", 95), ("draws", 10), ("seed", -1)])
def test_a_wrong_option_is_named_with_its_value(option, value):
    with pytest.raises(ValueError, match=rf"`{option}` must .*got {value}"):
        ncis.Options(**{option: value})


@pytest.mark.parametrize(
    ("q", "value"),
    [
        (np.zeros((6, 2)), "[6, 2]"),
        (lambda rows: np.zeros(1), "[6, 2, 2], got [1]"),
        (np.full((6, 2, 2), np.nan), "finite"),
    ],
)
def test_a_wrong_reward_model_is_named(q, value):
    with pytest.raises(ValueError) as raised:
        ncis.accumulate(LOG, {"p": TABLE}, q)
    assert str(raised.value).startswith("`q` must") and value in str(raised.value)


def test_what_sums_need():
    with pytest.raises(ValueError, match="`policies` must"):
        ncis.accumulate(LOG, {})
    with pytest.raises(ValueError, match=r"all actions' probabilities .* of `policies\['p'\]`"):
        ncis.accumulate(LOG, {"p": HALF}, np.zeros((6, 2, 2)))
    with pytest.raises(ValueError, match="'p' gives probability 0"):
        ncis.values(ncis.accumulate(LOG, {"p": np.zeros(6)}))


def test_shards_must_be_alike():
    one = ncis.accumulate(LOG, {"p": HALF})
    with pytest.raises(ValueError, match="the same policies"):
        one + ncis.accumulate(LOG, {"q": HALF})
    with pytest.raises(ValueError, match="the same caps"):
        one + ncis.accumulate(LOG, {"p": HALF}, options=ncis.Options(cap=3))
    with pytest.raises(ValueError, match="the same signals"):
        one + ncis.accumulate(LOG.signals(["signal 0"]), {"p": HALF})
    modelled = ncis.accumulate(LOG, {"p": TABLE}, np.zeros((6, 2, 2)))
    with pytest.raises(ValueError, match="a reward model, or none"):
        one + modelled


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_the_total_of_shards_is_that_of_all_rows(count):
    """Users may be in several shards; the heaviest row stays the heaviest."""
    rng = np.random.default_rng(0)
    user, reward, policy = rng.integers(4, size=30), rng.random((30, 2)), rng.random(30)
    whole = ncis.accumulate(ncis.Logged.of(user, reward, np.full(30, 0.5)), {"p": policy})
    parts = [ncis.Logged.of(user[k::count], reward[k::count], np.full(len(user[k::count]), 0.5)) for k in range(count)]
    together = ncis.total(ncis.accumulate(log, {"p": policy[k::count]}) for k, log in enumerate(parts))
    for name, column in vars(whole.policies["p"][0]).items():
        if column is not None:
            np.testing.assert_allclose(vars(together.policies["p"][0])[name], column, err_msg=name)
    with pytest.raises(ValueError, match="at least one part"):
        ncis.total([])
