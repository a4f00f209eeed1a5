"""Calls of the public functions, drawn from their signatures, as lines of Python in the namespace of `world`."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields, replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import moac
from moac import momdp, simplex, theory, weighting
from moac.logs import About, LoggedDataset, Rows
from moac.offline import ncis
from moac.policies import SoftmaxTable
from tests.fuzz import values
from tests.helpers.archives import archive
from tests.helpers.run_folders import CONFIG, model

MODULES = {
    "moac": moac, "moac.momdp": momdp, "moac.momdp.library": momdp.library, "moac.simplex": simplex,
    "moac.weighting": weighting, "moac.theory": theory, "moac.theory.mixing": theory.mixing,
    "moac.theory.smoothness": theory.smoothness, "moac.logs": moac.logs, "moac.envs": moac.envs,
    "moac.kuairand": moac.kuairand, "moac.offline.ncis": ncis,
}  # fmt: skip
OBJECTS = ("result", "policy", "learned", "archive", "fishwood", "log", "support", "config", "logged")
"""Names of `world` whose methods are called."""
PLUMBING = {
    "start", "sample", "prepare", "bound", "rollout", "undisturbed", "play", "with_taste", "check_known", "of", "write",
    "record", "arrays", "picked", "features", "fishwood.evaluate", "log.evaluate", "next_observation", "known_rows",
    "user_sums",
}  # fmt: skip
"""Methods that are called with what the program has made itself."""
MADE = {
    "Exact", "FiniteMOMDP", "ParetoFront", "Support", "MinNorm", "Seen", "Environment", "LoggedDataset", "Guarantees",
    "Ground", "Plan", "Constants", "Assumption", "ActorBound", "CriticBound", "Hessian", "Outcome", "Change", "Checks",
    "Controlled", "Diagnostics", "Estimate", "Evidence", "Flip", "PolicyReport", "Reason", "Report", "Shard", "Sweep",
    "Verdict", "Weighted", "Logged", "Control", "LogFiles", "Schema", "Mixing",
}  # fmt: skip
"""Records that functions return; nobody calls their constructors."""

SIZES = {"num_iterations": "1", "num_critic_steps": "1", "critic_batch_size": "2", "actor_batch_size": "2"}
SIZES |= {"num_evaluations": "1"}
"""With which training takes no time."""
TRAINS = {"moac.train": "config_fields", "moac.explore": "config_fields", "moac.choose": "config_fields"}
COUNTS = {
    *SIZES, "trials", "steps", "episodes", "preferences", "num_states", "num_actions", "num_objectives", "iterations",
    "num_successors", "num_envs", "workers", "hidden", "minibatch_size", "epochs", "k", "max_points", "draws", "window",
    "evaluation_episodes", "threads", "pulls", "entropies", "until", "features", "preference_draw",
}  # fmt: skip
HUGE = ("2**63", "10**400", "10**5000", "1e308", "1e200", "inf")

VALID: dict[str, tuple[str, ...]] = {
    "problem": ("'fishwood-v0'", "fishwood", "log", "'data'"),
    "config": ("config", "None", "moac.Config()"),
    "run": ("result", "'run'", "policy", "Path('run')", "learned"),
    "runs": ("result", "'run'"),
    "directory": ("'run'", "'new'"),
    "path": ("'run'", "'data'", "'new/policy.onnx'"),
    "out": ("None", "'new'", "Path('new')"),
    "data": ("None", "log", "'data'"),
    "model": ("fishwood", "model"),
    "setting": ("moac.Discounted(0.9)", "moac.Average()", "moac.Discounted((0.9, 0.5))"),
    "logits": ("np.zeros((2, 2))", "[[0, 1], [1, 0]]", "np.zeros((3, 2, 2))"),
    "features": ("np.eye(2)", "None"),
    "points": ("np.eye(2)", "[[1, 2], [2, 1]]"),
    "front": ("np.eye(2)",),
    "reference": ("[0, 0]", "np.zeros(2)", "(-1, -1)"),
    "returns": ("[1.0, 2.0]",),
    "preference": ("[0.5, 0.5]", "None", "(0.2, 0.8)"),
    "preferences": ("2", "[[0.5, 0.5]]"),
    "weights": ("None", "[0.5, 0.5]"),
    "initial": ("None", "[0.5, 0.5]"),
    "ideal": ("None", "[1.0, 1.0]"),
    "G": ("np.eye(2)", "[[1, 0], [0, 1]]", "jnp.eye(2)"),
    "K": ("np.eye(2)", "[[1, 0], [0, 1]]", "np.ones((1, 2, 2))"),
    "A": ("jnp.eye(2)", "np.eye(2)"),
    "b": ("jnp.ones(2)", "np.ones(2)"),
    "x": ("jnp.ones(2)",),
    "P": ("np.full((2, 2, 2), 0.5)", "np.full((2, 2), 0.5)"),
    "r": ("np.ones((2, 2, 2))",),
    "power": ("np.full((2, 2), 0.5)",),
    "d": ("np.full(2, 0.5)",),
    "pi": ("np.full((1, 2, 2), 0.5)",),
    "policy": ("None", "table"),
    "rule": ("None", "rule"),
    "schedule": ("'1/t'", "lambda t: 0.5"),
    "momentum": ("'1/t'", "'const:0.5'"),
    "name": ("'min-norm'", "'cagrad:0.4'", "'chebyshev'"),
    "g": ("ground",),
    "ground": ("ground",),
    "c": ("constants", "0.4"),
    "several": ("[constants]",),
    "epsilon": ("0.1",),
    "trial": ("0", "1", "None"),
    "index": ("0", "1"),
    "key": ("jax.random.key(0)",),
    "observation": ("0", "1"),
    "action": ("0", "1"),
    "obs": ("0",),
    "user": ("1", "'user_id'", "[0, 0, 1]"),
    "log": ("columns", "logged", "'data'"),
    "signals": ("'click'", "['click']"),
    "rows": ("rows", "[0, 1]"),
    "about": ("About()", "None"),
    "protect": ("()", "['objective 1=0.1']"),
    "env": ("'fishwood-v0'",),
    "spec": ("{'env': 'fishwood-v0', 'config': {'num_iterations': 1, 'num_evaluations': 1}}",),
    "env_id": ("'fishwood-v0'",),
    "variant": ("'convex'", "'concave'"),
    "split": ("'train'", "'validation'", "'users'"),
    "next_state": ("np.zeros((2, 2, 1), int)",),
    "probability": ("np.ones((2, 2, 1))",),
    "reward": ("np.ones((2, 2, 1, 2))", "[[1.0], [0.0], [1.0]]"),
    "terminated": ("np.zeros((2, 2, 1), bool)",),
    "propensity": ("[0.5, 0.5, 0.5]", "np.full((2, 2, 1), 0.5)"),
    "policies": ("{'a': np.full(60, 0.5)}", "{'a': np.full((60, 3), 1 / 3)}"),
    "objective_names": ("('a', 'b')",),
    "discount": ("0.9", "(0.5, 0.9)"),
    "draw": ("'random'", "'grid'", "None"),
    "rules": ("None", "['fixed']"),
    "num_objectives": ("2",),
    "callback": ("None", "print"),
    "check": ("None", "print"),
    "folder": ("'data'",),
    "executor": ("None",),
    "names": ("None", "['a', 'b']"),
    "chosen": ("None", "config"),
    "tracking": ("0.5",),
    "num_actions": ("2",),
    "prefer": ("()", "'objective 1'"),
    "shard": ("shard",),
    "shards": ("[shard]",),
    "dataset": ("log",),
    "baseline": ("None", "'a'"),
    "evidence": ("None",),
    "options": ("None", "moac.offline.ncis.Options(draws=100)"),
    "episodes": ("2", "80"),
    "p": ("np.array([0.1, 0.5])",),
    "init": ("rule.init",),
    "update": ("rule.update",),
    "needs": ("weighting.Needs()",),
}  # fmt: skip
BY_TYPE = {"int": ("1", "2"), "float": ("0.5", "0.1"), "bool": ("True", "False"), "str": ("'x'",)}
MORE = {
    "plan": ("episodes", "confidence", "until", "seed", "untrained", "preferences"),
    "watching": ("progress", "sinks", "callback", "checkpoint_every"),
    "config_fields": tuple(inspect.signature(moac.Config).parameters),
    "result.evaluate": ("problem", "episodes", "trials", "preference", "split", "cap", "control", "out", "protect"),
    "moac.logs.build": ("users", "items", "name", "actions", "shares", "split", "threads", "split_seed"),
    "moac.envs.make": ("render_mode", "x"),
}
"""Names behind `**`."""
ALSO = ("observation", "env")
"""Names in messages of what `obs` and `problem` are to the functions that these go to."""


def world(folder):
    """The names of a call, and folders of a run and of a log in `folder`."""
    outcome = moac.train(model(), CONFIG, trials=2, seed=7)
    outcome.save(folder / "run")
    log = a_log()
    log.save(folder / "data")
    logged = ncis.Logged.from_dataset(log)
    learned = moac.train(log, **{name: int(size) for name, size in SIZES.items()}, hidden=(4,))
    points = archive([[1.0, 0.0], [0.5, 0.5]])
    names = ("objective 1", "objective 2")
    fishwood, discounted = momdp.library.fishwood(), moac.Discounted(0.9)
    ground = theory.ground(fishwood, np.zeros((2, 2)), discounted)
    columns = {"user_id": [0, 0, 1, 1], "item_id": [0, 1, 1, 0], "time": [0, 1, 2, 3], "click": [0, 1, 1, 0]}
    return {
        "np": np, "jnp": jnp, "jax": jax, "Path": Path, "Fraction": Fraction, "Decimal": Decimal, "moac": moac,
        "weighting": weighting, "About": About, "deep": values.deep, "endless": values.endless, "Rude": values.Rude,
        "model": model(), "fishwood": fishwood, "config": CONFIG, "result": outcome, "policy": outcome.policy,
        "archive": replace(points, objectives=names, policies=outcome.policy), "log": log, "columns": columns,
        "rows": Rows([0, 0, 1], [0, 1, 1], [[1.0], [0.0], [1.0]], propensity=[0.5, 0.5, 0.5]),
        "learned": learned.policy, "logged": logged, "table": SoftmaxTable(2, 2), "ground": ground,
        "constants": theory.constants_of(ground), "support": momdp.support_of(fishwood, discounted),
        "rule": weighting.min_norm(), "shard": ncis.accumulate(logged, {"a": np.full(len(logged.user), 0.5)}),
    }  # fmt: skip


def a_log():
    """Sixty rows of twenty users, who are split into all three parts."""
    rng = np.random.default_rng(0)
    user, action = np.repeat(np.arange(20), 3), rng.integers(0, 3, 60)
    rows = Rows(user, action, rng.integers(0, 2, (60, 2)), propensity=np.full(60, 0.4))
    return LoggedDataset.from_numpy(rows, About(shares=(0.6, 0.2, 0.2)))


def targets(names):
    """Every public function by the text that names it, and methods of what they return."""
    found = {}
    for path, module in MODULES.items():
        public = getattr(module, "__all__", None) or [
            name for name, each in vars(module).items() if getattr(each, "__module__", "") == module.__name__
        ]
        for name in public:
            each = getattr(module, name)
            if callable(each) and not name.startswith("_") and name not in MADE:
                found[f"{path}.{name}"] = each
    for path in OBJECTS:
        owner = names[path]
        for name in dir(type(owner)):
            method = getattr(type(owner), name)
            public = not name.startswith("_") and not PLUMBING.intersection((name, f"{path}.{name}"))
            if public and (inspect.isfunction(method) or inspect.ismethod(method)):
                found[f"{path}.{name}"] = getattr(owner, name)
    return {path: each for path, each in found.items() if inspect.signature(each).parameters}


def one_value(name, annotation, rng, hostile):
    if rng.random() < hostile:
        drawn = rng.choice(values.HOSTILE)
        if name in COUNTS and any(huge in drawn for huge in HUGE):
            return "-1"
        return drawn
    if name in VALID:
        return rng.choice(VALID[name])
    kinds = [kind for kind in BY_TYPE if re.search(rf"\b{kind}\b", str(annotation))]
    return rng.choice(BY_TYPE[kinds[0]] if kinds else ("None", "1"))


def one_call(path, function, rng):
    """A line of Python, and the names of its arguments."""
    parameters, hostile = inspect.signature(function).parameters, rng.choice((0.05, 0.2, 0.5))
    given, named = [], {}
    for name, each in parameters.items():
        if each.kind is each.VAR_KEYWORD:
            for other in rng.sample(MORE.get(path) or MORE[name], rng.choice((0, 0, 1, 2))):
                named[other] = one_value(other, "", rng, max(hostile, 0.5))
        elif each.kind is each.VAR_POSITIONAL:
            given += [one_value(name, each.annotation, rng, hostile) for _ in range(rng.randrange(4))]
        elif each.default is each.empty and each.kind is not each.KEYWORD_ONLY:
            given.append(one_value(name, each.annotation, rng, hostile))
        elif rng.random() < 0.25:
            named[name] = one_value(name, each.annotation, rng, hostile)
    if path in TRAINS:
        named = SIZES | named
    texts = [*given, *(f"{name}={text}" for name, text in named.items())]
    behind = [*MORE["config_fields"], *MORE.get(path, ()), *(each.name for each in (*fields(Rows), *fields(About)))]
    return f"{path}({', '.join(texts)})", {*parameters, *named, *behind, *ALSO}
