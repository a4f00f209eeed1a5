"""Runs on logs that need no training: random weights recommend as well as any."""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np

import moac
from moac.logs.dataset import LoggedDataset
from moac.offline.behaviour import BehaviourModel, Member, Options, identity
from moac.policies import SoftmaxMLP
from moac.policies.networks import Plain
from moac.runs.directory import RunDirectory
from moac.training import result
from moac.training.run import History
from tests.helpers.kuairand import build, generated


@dataclass
class LogRun:
    """A run on a log, with what it was made from."""

    data: Path
    path: Path
    dataset: LoggedDataset
    result: result.Result


def built_run(folder):
    """A run of two trials on a small built dataset, with a behaviour model."""
    source = generated(folder / "source", rows=1500, num_users=120, num_videos=60, random_rows=60)
    build(source, folder / "data", actions=12, threads=1)
    plain = LoggedDataset.from_parquet(folder / "data")
    dataset = plain.with_behaviour(model_of(plain))
    outcome = untrained(dataset, moac.Config())
    return LogRun(folder / "data", saved(outcome, folder / "run"), dataset, outcome)


def model_of(dataset):
    """A behaviour model of a log, with weights by chance."""
    rng, options = np.random.default_rng(0), Options(hidden=(5,))
    shapes = (dataset.num_features + 1, 5), (6, dataset.num_actions)
    members = tuple(
        Member(
            tuple(rng.normal(0, 0.3, shape).astype(np.float32) for shape in shapes), 0.9 + k / 30, k, (2.5, 2.4 - k / 7)
        )
        for k in range(3)
    )
    policy = SoftmaxMLP(Plain(dataset.num_features), (5,), dataset.num_actions)
    return BehaviourModel(policy, members, options, identity(dataset))


def untrained(dataset, config, trials=2):
    """What training would end with, but for the training."""
    run = result.prepare(dataset, config, trials, 0)
    rng, shapes = np.random.default_rng(1), jax.eval_shape(run.parts.policy.init, jax.random.key(0))
    theta = jax.tree.map(lambda leaf: rng.normal(0, 0.3, (trials, *leaf.shape)).astype(np.float32), shapes)
    zeros = np.zeros(trials, int)
    state = SimpleNamespace(theta=theta, theta_random=theta, random_iteration=zeros)
    end = SimpleNamespace(
        iteration=1, trials=SimpleNamespace(state=state, stopped=zeros), history=history(dataset, trials)
    )
    return result.Result.of(run, end)


def history(dataset, trials):
    """One iteration, of which nothing is known."""
    shape = (trials, 1)
    cubes = dict.fromkeys(("returns", "weights", "min_norm_weights"), np.zeros((*shape, dataset.num_signals)))
    names = ("gradient_norm_squared", "smallest_alignment", "gap", "direction_gap", "regret")
    return History(
        np.ones(1, int), **cubes, **dict.fromkeys(names, np.zeros(shape)), evaluation_steps=np.zeros(1), kind="ncis"
    )


def saved(outcome, path):
    """The run's folder, without figures."""
    RunDirectory.create(path, outcome.run).finish(outcome)
    return path
