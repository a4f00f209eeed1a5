"""Which of several policies is chosen, on logs made so that the answer is known."""

from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

from moac.offline import choose, ncis

SIGNALS = ("Click", "Hate")


def report(n=20_000, seed=0):
    """Two actions, logged evenly: the second is clicked more, and hated more."""
    rng = np.random.default_rng(seed)
    action = rng.integers(0, 2, n)
    click = rng.random(n) < np.array([0.4, 0.5])[action]
    hate = rng.random(n) < np.array([0.1, 0.2])[action]
    reward = np.column_stack([click, -1.0 * hate])
    log = ncis.Logged.of(rng.integers(0, 2_000, n), reward, np.full(n, 0.5), action, SIGNALS)
    policies = {f"{share}": np.where(action == 1, share, 1 - share) for share in (0.5, 0.52, 0.7, 0.05)}
    return ncis.evaluate(log, {"Behavior-Clone": policies.pop("0.5"), **policies}, baseline="Behavior-Clone")


def chosen(report, costs=("Hate",), protect=()):
    """The choice on an evaluation that has this report."""
    methods = [name for name in report.policies if name != report.baseline]
    evaluation = SimpleNamespace(report=report, costs=costs, left_out=(), methods=methods)
    return choose.choose(evaluation, protect)


def reasons(choice):
    return {each.name: " ".join(each.against) for each in choice.candidates}


def test_what_makes_a_signal_significantly_worse_is_not_chosen():
    choice = chosen(report())
    assert "Hate is significantly worse" in reasons(choice)["0.7"]
    assert "Click is significantly worse" in reasons(choice)["0.05"]
    assert choice.chosen is None


def test_floors_are_kept_at_the_worse_end_of_the_interval():
    found = report()
    loose = chosen(found, protect=["Click=-30%", "Hate=+60%"])
    assert "beyond" not in reasons(loose)["0.7"]
    tight = chosen(found, protect=["Hate=+1%", "Click=+5%"])
    assert "Hate may change by" in reasons(tight)["0.7"]
    assert "beyond Hate=+1%" in reasons(tight)["0.7"]
    assert "beyond Click=+5%" in reasons(tight)["0.05"]
    low, high = found.policies["0.7"].change.relative_interval[1]
    just = chosen(found, protect=[choose.Floor("Hate", high + 1e-9)])
    assert "Hate may" not in reasons(just)["0.7"]
    assert "Hate may" in reasons(chosen(found, protect=[choose.Floor("Hate", low)]))["0.7"]


def test_the_largest_gain_among_the_admissible_wins():
    rng, n = np.random.default_rng(1), 20_000
    action = rng.integers(0, 2, n)
    reward = (rng.random(n) < np.array([0.4, 0.5])[action]).astype(float)
    log = ncis.Logged.of(rng.integers(0, 2_000, n), reward, np.full(n, 0.5), action, ("Click",))
    policies = {str(share): np.where(action == 1, share, 1 - share) for share in (0.6, 0.8, 0.999)}
    found = ncis.evaluate(log, {"clone": np.full(n, 0.5), **policies}, baseline="clone")
    choice = chosen(found, (), ["Click=-1%"])
    assert choice.chosen == "0.999"
    assert [each.gain for each in choice.candidates] == sorted(each.gain for each in choice.candidates)


def test_too_little_of_the_log_is_a_reason_and_so_is_a_signal_that_is_not_estimable():
    rng, n = np.random.default_rng(2), 2_000
    action = rng.integers(0, 10, n)
    rare = (rng.random(n) < 0.005).astype(float)
    log = ncis.Logged.of(rng.integers(0, 300, n), rare, np.full(n, 0.1), action, ("Like",))
    policies = {"clone": np.full(n, 0.1), "sharp": np.where(action == 0, 0.91, 0.01)}
    found = ncis.evaluate(log, policies, baseline="clone")
    choice = chosen(found, (), ["Like=-1%"])
    assert "an effective share of rows of 0.1" in reasons(choice)["sharp"]
    assert "Like is not estimable on these users, so Like=-1% cannot be shown" in reasons(choice)["sharp"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Like", "`protect` must be a signal and a change in per cent, such as Like=-1%, got 'Like'"),
        ("Click=1", "`protect` must be a signal and a change"),
        ("Likes=-1%", "`protect` must name one of Click, Hate, got 'Likes'"),
    ],
)
def test_refused(text, message):
    with pytest.raises(ValueError, match=message):
        choose.floors([text], SIGNALS)
    with pytest.raises(ValueError, match="a signal once, got 'Click' twice"):
        choose.floors(["Click=-1%", "Click=-2%"], SIGNALS)


@cache
def whole():
    return report(2_000)


def made(share=0.9, level="trusted", estimable=(True, True), **change):
    """A report on one policy whose numbers are these: by default Click rises and Hate falls."""
    given = {"relative_interval": [[0.1, 0.2], [-0.2, -0.1]], "significant": [True, True], "difference": [0.1, 0.1]}
    own = whole().policies["0.7"]
    own = replace(
        own,
        change=replace(own.change, **{name: np.array(value) for name, value in (given | change).items()}),
        diagnostics=tuple(replace(own.diagnostics[0], row_effective_share=one) for one in np.atleast_1d(share)),
        verdict=ncis.Verdict(level, (ncis.Reason("support", level, "because"),)),
        estimable=np.array(estimable),
    )
    return replace(whole(), policies={"Behavior-Clone": whole().policies["Behavior-Clone"], "p": own})


def only(*given, **named):
    (found,) = chosen(made(*given, **named)).candidates
    return found


def test_a_gain_is_the_mean_of_the_worse_ends_also_of_a_cost():
    assert only().gain == pytest.approx((0.1 + 0.1) / 2)
    assert only(relative_interval=[[0.3, 0.4], [-0.05, 0.2]]).gain == pytest.approx((0.3 - 0.2) / 2)
    assert only(relative_interval=[[0.3, 0.4], [-0.05, 0.2]], estimable=(True, False)).gain == pytest.approx(0.3)
    assert only(estimable=(False, False)).gain == -np.inf


@pytest.mark.parametrize(
    ("named", "against"),
    [
        ({}, ()),
        ({"share": 0.5}, ()),
        ({"share": 0.499}, ("an effective share of rows of 0.50, below 0.5",)),
        ({"share": (0.9, 0.3)}, ("an effective share of rows of 0.30, below 0.5",)),
        ({"level": "with care"}, ()),
        ({"level": "not trusted"}, ("because",)),
        ({"difference": [-0.1, 0.1]}, ("Click is significantly worse",)),
        ({"difference": [0.1, -0.1]}, ("Hate is significantly worse",)),
        ({"difference": [-0.1, -0.1], "significant": [False, False]}, ()),
    ],
)
def test_what_speaks_against_a_policy(named, against):
    found = only(**named)
    assert found.against == against
    assert chosen(made(**named)).chosen == (None if against else "p")


@pytest.mark.parametrize(
    ("signal", "change", "kept"),
    [("Click", 0.1, True), ("Click", 0.101, False), ("Hate", -0.1, True), ("Hate", -0.101, False), ("Hate", 0.0, True)],
)
def test_a_floor_is_kept_up_to_the_worse_end(signal, change, kept):
    (found,) = chosen(made(), protect=[choose.Floor(signal, change)]).candidates
    assert (not found.against) == kept
