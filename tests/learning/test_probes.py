"""Five small problems whose answers are known by hand; each isolates one thing that can go wrong in learning."""

from dataclasses import replace

import numpy as np
import pytest

import moac
from moac import training
from moac.momdp import FiniteMOMDP
from moac.training import result

TRIALS = 8


def config(setting, **options):
    """Weights are uniform where they are not what is probed: they do not matter there, and compile faster."""
    sizes = {"num_critic_steps": 4, "critic_batch_size": 16, "actor_batch_size": 32, "num_evaluations": 1}
    return moac.Config(setting=setting, **{"weighting": "uniform", **sizes, **options})


def trained(model, settings, seed=0):
    """As `moac.train`, and the last snapshot, which also holds the critic."""
    run = result.prepare(model, settings, TRIALS, seed)
    for snapshot in training.iterate(run):
        last = snapshot
    assert last.iteration == settings.num_iterations
    return result.Result.of(run, last), last.trials.state


def final_probabilities(outcome):
    logits = np.asarray(outcome.policy, np.float64)
    weight = np.exp(logits - logits.max(axis=2, keepdims=True))
    return weight / weight.sum(axis=2, keepdims=True)


# --- value

ALWAYS = FiniteMOMDP.from_dense([[[1.0]]], [[[1.0, -2.0]]])


def test_value_of_one_state_and_one_action():
    """V = r/(1 − γ); after n steps of TD a share (1 − β(1 − γ))ⁿ of it is still missing."""
    T, N, beta, gamma = 30, 4, 0.5, np.array([0.5, 0.9])
    _, state = trained(ALWAYS, config(moac.Discounted((0.5, 0.9)), num_iterations=T, critic_step_size=beta))
    V = np.array([1 / 0.5, -2 / 0.1])
    missing = (1 - beta * (1 - gamma)) ** (T * N)
    assert missing[1] > 1e-3 > missing[0]
    np.testing.assert_allclose(state.w[:, 0], np.broadcast_to(V * (1 - missing), (TRIALS, 2)), rtol=1e-4)


# --- one discount per objective

# Two copies of one game, of which each pays one objective: 1 now by action 0, or 3 a step later by action 1.
_STEP, _ENDS, _REWARD = np.zeros((4, 2, 4)), np.zeros((4, 2, 4)), np.zeros((4, 2, 2))
for _i, _choice in enumerate((0, 2)):
    _STEP[_choice, 0, _choice] = _ENDS[_choice, 0, _choice] = _REWARD[_choice, 0, _i] = 1
    _STEP[_choice, 1, _choice + 1] = 1
    _STEP[_choice + 1, :, 0] = _ENDS[_choice + 1, :, 0] = 1
    _REWARD[_choice + 1, :, _i] = 3
PATIENCE = FiniteMOMDP.from_dense(_STEP, _REWARD, start=[0.5, 0, 0.5, 0], terminal=_ENDS)


def test_each_objective_has_its_own_discount():
    """Waiting is worth 3γ: less than 1 for γ = 0.2, more for γ = 0.9. So only the second game is worth waiting."""
    settings = config(moac.Discounted((0.2, 0.9)), num_iterations=300, actor_step_size=5.0, critic_step_size=0.5)
    outcome, state = trained(PATIENCE, settings)
    waits = final_probabilities(outcome)[:, :, 1]
    assert waits[:, 0].max() < 0.05
    assert waits[:, 2].min() > 0.95
    first, second = 1 - waits[:, 0] * (1 - 0.6), 1 + waits[:, 2] * (2.7 - 1)
    np.testing.assert_allclose(outcome.returns, np.stack([first, second], axis=1) / 2, rtol=1e-5)
    V = [[first.mean(), 0], [3, 0], [0, second.mean()], [0, 3]]
    np.testing.assert_allclose(state.w.mean(axis=0), V, atol=0.05)


# --- credit over time


def corridor(length):
    """In state 0 the action chooses one of two corridors of `length` states; the first pays 1 at its end."""
    S = 1 + 2 * length
    step, ends, reward = np.zeros((S, 2, S)), np.zeros((S, 2, S)), np.zeros((S, 2, 1))
    for a in (0, 1):
        step[0, a, 1 + a * length] = 1
        for k in range(length):
            here = 1 + a * length + k
            if k + 1 < length:
                step[here, :, here + 1] = 1
            else:
                step[here, :, 0] = ends[here, :, 0] = 1
                reward[here, :, 0] = 1.0 - a
    return FiniteMOMDP.from_dense(step, reward, start=np.eye(S)[0], terminal=ends)


def test_credit_reaches_an_action_three_steps_back():
    """V falls by γ with each step from the reward; the choice three steps before it is learned from that alone."""
    length, gamma = 3, 0.8
    settings = config(moac.Discounted(gamma), num_iterations=300, actor_step_size=3.0, critic_step_size=0.9)
    outcome, state = trained(corridor(length), settings)
    V = state.w[:, :, 0].mean(axis=0)
    np.testing.assert_allclose(V[1 : 1 + length], [gamma**2, gamma, 1], atol=0.02)
    np.testing.assert_allclose(V[1 + length :], 0, atol=1e-6)
    assert final_probabilities(outcome)[:, 0, 0].min() > 0.95
    np.testing.assert_allclose(outcome.returns, gamma**length, rtol=0.05)


# --- action dependence

# Which state comes next is chance, whatever is done: 2 for the action that names the state, else 0.
NAMING = FiniteMOMDP.from_dense(np.full((3, 3, 3), 1 / 3), 2.0 * np.eye(3)[..., None])


def test_each_state_learns_its_own_action():
    """The best policy earns 2 a step and the uniform one 2/3."""
    settings = config(moac.Average(), num_iterations=200, actor_step_size=3.0, critic_step_size=0.5)
    outcome, state = trained(NAMING, settings)
    right = final_probabilities(outcome)[:, np.arange(3), np.arange(3)]
    assert right.min() > 0.9
    np.testing.assert_allclose(outcome.returns[:, 0], 2 * right.mean(axis=1), rtol=1e-5)
    np.testing.assert_allclose(state.mu, outcome.returns, rtol=0.06)


# --- conflict

REWARDS = np.array([[1.0, 0.0], [0.0, 1.0], [0.7, 0.7], [0.1, 0.1]])
BANDIT = FiniteMOMDP.from_dense(np.ones((1, 4, 1)), REWARDS[None])


def regret_by_hand(J):
    """min over λ of max(λ, 1 − λ, 0.7) − λᵀJ, on a fine grid of λ; J per step."""
    lam = np.linspace(0, 1, 10001)
    return np.min(np.maximum(np.maximum(lam, 1 - lam), 0.7) - lam * J[0] - (1 - lam) * J[1])


def test_a_conflict_ends_on_the_pareto_set():
    """Its Pareto set are the mixtures of the third action with one of the first two: neither both, nor the fourth."""
    gamma = 0.5
    settings = config(moac.Discounted(gamma), num_iterations=600, actor_step_size=2.0, critic_step_size=0.5)
    settings = replace(settings, weighting="min-norm", momentum="1/t")
    outcome, _ = trained(BANDIT, settings)
    pi = final_probabilities(outcome)[:, 0]
    J = pi @ REWARDS
    np.testing.assert_allclose(outcome.returns, J / (1 - gamma), rtol=1e-5)
    by_hand = np.array([regret_by_hand(j) for j in J])
    np.testing.assert_allclose(outcome.history.regret[:, -1], by_hand / (1 - gamma), atol=1e-3)
    assert by_hand.max() < 0.01
    uniform = regret_by_hand(REWARDS.mean(axis=0))
    assert uniform > 0.2  # where every trial began
    assert pi[:, 3].max() < 0.02
    assert np.minimum(pi[:, 0], pi[:, 1]).max() < 0.02


# --- the whole run


@pytest.mark.parametrize(
    ("evaluations", "logged"), [(1, [9]), (2, [1, 9]), (3, [1, 5, 9]), (9, [*range(1, 10)]), (50, [*range(1, 10)])]
)
def test_the_last_iteration_is_always_evaluated(evaluations, logged):
    """Training ends at the last iteration that is evaluated."""
    settings = moac.Config(num_iterations=9, num_evaluations=evaluations)
    assert training.evaluation_iterations(settings).tolist() == logged
