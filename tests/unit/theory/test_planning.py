"""What `moac theory` says of a model and of a run: the worst assumption, the notes, what practice needed."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from moac import momdp, policies, settings, theory
from moac.config import Average, Config, Discounted
from moac.theory import Assumption, planning

MODEL = momdp.library.random_ergodic(0, 3, 2, 2)


def assumption(status, number=None):
    return Assumption("name", status, "measure", number, "reason", "remedy")


def test_the_first_policy_at_which_an_assumption_fails_speaks_for_all():
    column = [assumption("holds", 3), assumption("not applicable"), assumption("fails", 1), assumption("fails", 2)]
    checked = planning._over_policies(tuple(column))
    assert (checked.assumption.number, checked.failing) == (1, 2)
    checked = planning._over_policies(tuple(column[:2]))
    assert (checked.assumption.status, checked.failing) == ("not applicable", 0)


def test_of_an_assumption_that_holds_everywhere_the_smallest_number_is_shown():
    checked = planning._over_policies(tuple(assumption("holds", x) for x in (3, None, 1, 2)))
    assert (checked.assumption.number, checked.failing) == (1, 0)


def test_failing_assumptions_are_named():
    held, failed = (planning.Checked(replace(assumption("holds"), name=n), k) for n, k in (("good", 0), ("bad", 2)))
    one, both = (" ".join(planning._notes(Config(), told, 1)) for told in ((held,), (held, failed)))
    assert "Assumptions that fail" not in one
    assert "Assumptions that fail here: bad." in both


def outcome(gaps):
    """A run of 20 iterations with N = 2, D = 3 and B = 4, whose trials have these gaps at iterations 1, 10 and 20."""
    config = Config(num_critic_steps=2, critic_batch_size=3, actor_batch_size=4)
    history = SimpleNamespace(gap=np.array(gaps), iteration=np.array([1, 10, 20]))
    run = SimpleNamespace(settings=settings.resolve(config, MODEL.spec))
    return SimpleNamespace(run=run, config=config, history=history, iteration=20)


@pytest.mark.parametrize(
    ("epsilon", "iterations", "samples"), [(0.5, 10, 100), (0.25, 20, 200), (0.2, None, None), (9.0, 1, 10)]
)
def test_practice_counts_the_samples_of_one_trial_until_the_mean_gap_is_small(epsilon, iterations, samples):
    found = planning._practice(outcome([[2.0, 0.25, 0.0], [4.0, 0.75, 0.5]]), epsilon)
    assert (found.iterations, found.samples, found.total) == (iterations, samples, 200)
    assert found.mean_gap == pytest.approx((3 + 0.5 + 0.25) / 3)


def test_a_trial_without_a_gap_is_left_out_and_no_run_has_no_practice():
    assert planning._practice(outcome([[1.0, np.nan, np.nan], [3.0, 0.1, 0.1]]), 0.1).iterations == 10
    assert planning._practice(None, 0.1) is None


def notes(**fields):
    config = Config(**({"setting": Discounted(0.9)} | fields))
    return " ".join(planning.guarantees(MODEL, config, fields.pop("epsilon", 0.1)).notes)


def test_notes_say_what_the_theorems_do_not_cover():
    usual = notes()
    assert "not ∇J" in usual
    assert "not ∇J" not in notes(visitation="discounted")
    for words, fields in (
        ("running μ", {"setting": Average()}),
        ("do not cover Adam", {"optimiser": "adam"}),
        ("No number of iterations", {"momentum": "1"}),
        ("ζ adds", {"features": "random:2"}),
    ):
        assert words in notes(**fields)
        assert words not in usual


def test_an_epsilon_above_the_gap_of_the_start_asks_for_nothing():
    gap = float(momdp.evaluate(MODEL, np.zeros((3, 2)), Discounted(0.9)).gap)
    for factor, asked in ((1.01, True), (0.99, False)):
        found = planning.guarantees(MODEL, Config(setting=Discounted(0.9)), factor * gap)
        assert any("asks for nothing" in note for note in found.notes) == asked


def test_the_usual_epsilon_asks_for_something_and_plans_beyond_reach_are_called_vacuous():
    config = Config(setting=Discounted(0.9))
    found = planning.guarantees(MODEL, config)
    gap = float(momdp.evaluate(MODEL, np.zeros((3, 2)), Discounted(0.9)).gap)
    assert found.epsilon == pytest.approx(gap / 10) and found.policies == 1
    assert found.vacuous is not None and "moac certify" in found.vacuous
    one = next(iter(found.plans.values()))
    for samples, vacuous in ((1e12, False), (1.01e12, True)):
        beyond = {"plan": replace(one, samples=samples), "dearer": replace(one, samples=1e20)}
        assert (replace(found, plans=beyond).vacuous is not None) == vacuous
    assert (
        planning.guarantees(momdp.library.fishwood(), config).epsilon == planning.EPSILON
    )  # every policy is stationary


@pytest.mark.parametrize(("trials", "picked"), [(2, [0, 1]), (17, [*range(8), *range(9, 17)])])
def test_policies_are_those_of_trials_from_the_first_to_the_last(trials, picked):
    logits = np.random.default_rng(0).normal(size=(2, trials, 3, 2))
    early, late = (SimpleNamespace(policy=policies.SoftmaxTable(3, 2), theta=theta) for theta in logits)
    outcome = SimpleNamespace(run=SimpleNamespace(num_trials=trials), random_iterate_policy=early, policy=late)
    first, *found = planning._policies(MODEL, outcome)
    assert (first == 0).all() and len(found) == 2 * len(picked)
    expected = np.concatenate([theta[picked] for theta in logits])
    np.testing.assert_allclose(np.diff(found, axis=-1), np.diff(expected, axis=-1), rtol=1e-4, atol=1e-5)


def test_an_epsilon_that_is_not_positive_is_refused():
    for epsilon in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="`epsilon` must be positive"):
            planning.guarantees(MODEL, Config(setting=Discounted(0.9)), epsilon)


def test_plans_are_made_from_the_worst_constants_and_say_how_far_the_corollaries_are_off():
    found = planning.guarantees(MODEL, Config(setting=Discounted(0.9)), 0.1)
    assert list(found.plans) == ["corollaries", "plan, printed", "plan, derived"]
    assert [plan.derivation for plan in found.plans.values()] == ["printed", "printed", "derived"]
    assert found.smallest_batch.keys() == set(theory.DERIVATIONS)
    assert f"{found.plans['corollaries'].bound / 0.1:.2f} ε" in " ".join(found.notes)
    for kind, size in found.smallest_batch.items():
        terms = theory.critic_terms(found.worst, kind)
        assert size == terms.smallest_batch(terms.largest_beta)


def test_a_plan_has_no_critic_step_and_no_iteration_too_many():
    c = theory.constants(MODEL, np.zeros((3, 2)), Discounted(0.5))
    actor, critic = theory.actor_terms(c, "derived"), theory.critic_terms(c, "derived")
    shares = np.array([0.1, 1e-6, 0.1, 0.1])
    N, D, B, T, samples = planning._sizes(actor, critic, c.w_star**2, shares, "1/t")
    beta, steps = critic.largest_beta, (int(N) - 1, int(N))
    fewer, enough = (actor.critic * theory.critic_bound(c, n, 1e9, beta, "derived").transient for n in steps)
    assert enough <= 1e-6 < fewer
    assert samples == (B + N * D) * T
