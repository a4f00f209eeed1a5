"""The truth of a generated log, reached through its files: generate, build, weigh by known propensities."""

from dataclasses import replace

import numpy as np
import pytest

from moac.kuairand import generate
from moac.logs import LoggedDataset
from tests.helpers.kuairand import build

ACTIONS = 40


@pytest.fixture(scope="module")
def order():
    return generate.Parameters(120_000, seed=11, num_users=12_000, num_videos=300, random_rows=60_000).resolved()


@pytest.fixture(scope="module")
def dataset(order, tmp_path_factory):
    root = tmp_path_factory.mktemp("truth")
    folder = generate.write(order, root)
    assert generate.read_parameters(folder) == order
    build(folder, root / "data", actions=ACTIONS)
    return LoggedDataset.from_parquet(root / "data")


def seen(order, part):
    """Kind and tab of each row, as the model counts them."""
    return order.users().kind[part.user_ids[part.user]], np.array(
        [generate.TABS.index(tab) for tab in part.context[:, 0]]
    )


def off(part, ratio, truth):
    """How many standard errors, with users as clusters, the weighted mean is away from the truth of each signal."""
    reward = part.reward[:, : len(truth)]  # the model knows the paper's seven
    estimate = (ratio[:, None] * reward).sum(axis=0) / ratio.sum()
    sums = np.zeros((part.num_users, len(truth)))
    np.add.at(sums, part.user, ratio[:, None] * (reward - estimate))
    return (estimate - truth) / (np.sqrt((sums**2).sum(axis=0)) / ratio.sum())


def policy_over(model, videos):
    """Away from the logging policy, by kind and tab."""
    noise = np.exp(np.random.default_rng(0).standard_normal((*model.behaviour.shape[:2], len(videos))))
    policy = np.sqrt(model.logging_policy(videos)) * noise
    return policy / policy.sum(axis=-1, keepdims=True)


def test_the_standard_log_weighted_by_its_propensities_has_the_true_values(order, dataset):
    model, videos = order.model(), dataset.action_ids
    policy, (kind, tab) = policy_over(model, videos), seen(order, dataset)
    ratio = (policy / model.logging_policy(videos))[kind, tab, dataset.action]
    assert abs(off(dataset, ratio, model.true_values(policy, videos))).max() < 4
    unweighted = off(dataset, np.ones(len(ratio)), model.true_values(policy, videos))
    assert abs(unweighted).max() > 8  # without the weights it is another policy's value


def test_the_random_log_weighted_by_uniform_propensities_has_them_too(order, dataset):
    """Every video is as likely in each cell, so a cell's weight is its share of rows, whatever the videos."""
    model, videos, part = order.model(), dataset.action_ids, dataset.random
    np.testing.assert_allclose(part.propensity, 1 / ACTIONS)
    policy, (kind, tab) = policy_over(model, videos), seen(order, part)
    ratio = policy[kind, tab, part.action] / part.propensity
    uniform = replace(model, behaviour=np.full_like(model.behaviour, 1 / model.num_videos))
    assert abs(off(part, ratio, uniform.true_values(policy, videos))).max() < 4
