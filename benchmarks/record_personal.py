"""What survives of learning from a log: options of offline MOAC and the personal tilt, beside the tilt.

    python benchmarks/record_personal.py generated 10 20          seeds of generated logs whose best policy is known
    python benchmarks/record_personal.py kuairand validation DATA WORK
    python benchmarks/record_personal.py kuairand test DATA WORK  notes the access to test users before it reads them

Each merges its part into src/moac_studies/recorded/personal.json. DATA is built by `moac data kuairand build` with 150
actions and past responses; WORK keeps trained policies, so that validation and test users judge the same ones.
"""

import json
import pickle
import re
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

import moac
from moac.config import Config, Discounted
from moac.logs import LoggedDataset, splits
from moac.offline import behaviour, evaluate, reward_model
from moac.offline.baselines import tilt
from moac.policies import SoftmaxMLP
from moac.policies.networks import Plain
from moac_studies.kuairand_search import leads, learned_from, on_users

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "src/moac_studies/recorded/personal.json"
SIGNALS, PAPERS = ("Click", "WatchTime"), ("Click", "Like", "Follow", "Comment", "Forward", "Dislike", "WatchTime")
SHARE = 0.6  # of the tilts
COMMON = {
    "setting": Discounted(0.5), "num_iterations": 1000, "num_evaluations": 1, "critic_batch_size": 256,
    "actor_batch_size": 256,
}  # fmt: skip
TILT = "Tilt"
_NUMBER = re.compile(r"[+-]\d+\.\d")
TESTED = (
    TILT,
    "Personal tilt",
    "Personal tilt, permuted rewards",
    "MOAC",
    "MOAC, permuted rewards",
    "Advantages of q alone",
)
"""What test users are asked about, once."""


def trained(dataset, source, start=None, **fields):
    """MOAC on `source`, rows of `dataset` with other rewards or signals; from a method if one is given."""
    if start is None:
        outcome = moac.train(source, Config(**COMMON, **fields))
    else:
        hidden = tuple(layer.shape[2] for layer in start[1][:-1])
        config = Config(**COMMON, hidden=hidden, start="random", **fields)
        outcome = moac.train(source, config, start=tilt.trained(dataset, start))
    return outcome.policy.policy, tuple(np.asarray(layer) for layer in outcome.policy.theta)


def residual(dataset, source):
    """Rewards less the mean of the user's own past responses, shrunk by three views of the mean user."""
    M, e, x = (
        dataset.num_signals,
        dataset.tables.items.shape[1],
        evaluate.features(dataset, np.arange(dataset.num_rows)),
    )
    kept = [dataset.signal_names.index(name) for name in source.signal_names]
    mean = x[:, x.shape[1] - M * (6 + e) :][:, kept] * np.array(dataset.response_scale)[kept]
    n = np.clip(dataset.answered - dataset.tables.first[dataset.user], 0, dataset.tables.window)[:, None]
    own = (n * mean + 3 * source.reward[source.rows("train")].mean(axis=0)) / (n + 3)
    return replace(source, reward=np.float32(source.reward - own), fingerprint=f"{source.fingerprint}:residual")


def doubly_robust(dataset, signals, pull=0.3, step_size=1e-4, logged=1.0):
    """Ascent on Σ_a π q + ρ (r − q) of the standardised sum of signals, q cross-fitted; `logged` = 0 leaves out ρ."""
    columns, train = [dataset.signal_names.index(name) for name in signals], dataset.rows("train")
    sd, fold = dataset.reward[train][:, columns].std(axis=0), splits.fold_users(dataset.user_ids, 1, 2)
    x, q = evaluate.features(dataset, np.arange(dataset.num_rows)), np.zeros((dataset.num_rows, dataset.num_actions))
    for k in range(2):
        half = replace(dataset, split=np.where((dataset.split == 0) & (fold == k), 2, dataset.split))
        model = reward_model.fit_rewards(half, signals)
        for rows in np.array_split(train[fold[dataset.user[train]] == k], 20):
            q[rows] = (model.values(x[rows]) / sd).sum(axis=-1)
    r, network = (dataset.reward[:, columns] / sd).sum(axis=1), dataset.behaviour.policy.network
    first, optimiser = jax.tree.map(jnp.asarray, tuple(dataset.data.behaviour)), optax.adam(step_size)
    arrays = [jnp.asarray(each, jnp.float32) for each in (x, q, r, np.log(dataset.propensity))]
    action, train = jnp.asarray(dataset.action), jnp.asarray(train)

    def loss(theta, rows, x, q, r, log_b):
        log_pi, row = jax.nn.log_softmax(network(theta, x[rows])), jnp.arange(len(rows))
        taken, b = log_pi[row, action[rows]], jnp.exp(jax.nn.log_softmax(network(first, x[rows])))
        rho = jax.lax.stop_gradient(jnp.minimum(10.0, jnp.exp(taken - log_b[rows])))
        direct = (jnp.exp(log_pi) * q[rows]).sum(axis=1)
        gain = direct + logged * rho * (r[rows] - q[rows, action[rows]]) * taken
        return -jnp.mean(gain + pull * (b * log_pi).sum(axis=1))

    @jax.jit
    def run(key, *arrays):
        def step(carry, key):
            theta, moments = carry
            rows = train[jax.random.randint(key, (256,), 0, len(train))]
            change, moments = optimiser.update(jax.grad(loss)(theta, rows, *arrays), moments)
            return (optax.apply_updates(theta, change), moments), None

        return jax.lax.scan(step, (first, optimiser.init(first)), jax.random.split(key, 1000))[0][0]

    policy = SoftmaxMLP(Plain(dataset.num_features), network.hidden, dataset.num_actions)
    return policy, tuple(np.asarray(layer)[None] for layer in run(jax.random.key(0), *arrays))


def makers(dataset, source, signals):
    """By name, what makes each method; what several need is made once, where it is needed."""

    @cache
    def plain():
        return tilt.tilted_to(dataset, tilt.signal_scores(dataset, signals), SHARE)[0]

    @cache
    def personal():
        return tilt.tilted_to(dataset, tilt.personal_scores(dataset, signals), SHARE)[0]

    def permuted():
        shuffled = tilt.permuted(dataset, 0)
        return tilt.tilted_to(shuffled, tilt.personal_scores(shuffled, signals), SHARE)[0]

    return {
        TILT: plain,
        "Personal tilt": personal,
        "Personal tilt, permuted rewards": permuted,
        "MOAC": lambda: trained(dataset, source, behaviour_pull=0.03),
        "MOAC, permuted rewards": lambda: trained(dataset, tilt.permuted(source, 0), behaviour_pull=0.03),
        "MOAC, residual rewards": lambda: trained(dataset, residual(dataset, source), behaviour_pull=0.03),
        "MOAC, from the tilt": lambda: trained(dataset, source, plain(), behaviour_pull=0.3),
        "MOAC, from the personal tilt": lambda: trained(dataset, source, personal(), behaviour_pull=0.3),
        "Doubly robust advantages": lambda: doubly_robust(dataset, signals),
        "Advantages of q alone": lambda: doubly_robust(dataset, signals, 0.5, 1e-3, 0.0),
    }


def generated(first, last):
    """Share of the best policy's gain at the method's own effective share, for each seed: exact, on test users."""
    sys.path.insert(0, str(ROOT))
    from tests.helpers import personal_logs

    found = {}
    for seed in range(first, last):
        log = personal_logs.generate(seed)
        dataset = log.dataset.with_taste()
        options = behaviour.Options(hidden=(32,), max_rounds=6, patience=2)
        dataset = dataset.with_behaviour(behaviour.fit(dataset, options))
        rows = dataset.rows("test")
        x, b = evaluate.features(dataset, rows), log.behaviour[rows]
        clone = evaluate._tables(dataset.behaviour.method, x, dataset)[0]
        for name, make in makers(dataset, dataset, personal_logs.SIGNALS).items():
            (table,) = evaluate._tables(make(), x, dataset)
            share = personal_logs.share_of(table, b)
            best = log.gain(log.best(rows, share), rows)
            part = (log.gain(table, rows) - log.gain(clone, rows)) / best
            found.setdefault(name, []).append(round(part, 3))
            print(seed, name, f"{part:.3f} at {share:.2f}", flush=True)
    return {"generated": {"first seed": first} | found}


def kuairand(split, data, work):
    """Changes to Behavior-Clone, leads over the tilt at the same share, controls and verdicts on a split's users."""
    work.mkdir(parents=True, exist_ok=True)
    dataset = LoggedDataset.load(data).with_taste()
    dataset = dataset.with_behaviour(kept(work / "behaviour.pickle", lambda: behaviour.fit(dataset)))
    source, scores = learned_from(dataset, PAPERS), tilt.signal_scores(dataset, SIGNALS)
    methods = {
        name: kept(work / f"{name.lower().replace(' ', '-')}.pickle", make)
        for name, make in makers(dataset, source, SIGNALS).items()
    }
    rows = dataset.rows("validation")

    def share(method):
        policy, theta = method
        w = np.minimum(evaluate.probabilities(dataset, policy, theta, rows) / dataset.propensity[rows], 10)
        return float((w.sum(axis=1) ** 2 / (w * w).sum(axis=1)).min() / len(rows))

    methods = {name: own for name, own in methods.items() if split != "test" or name in TESTED}
    far = {name: share(own) for name, own in methods.items() if TILT.lower() not in name.lower() or "MOAC" in name}
    beside = {f"{TILT} beside {name}": tilt.tilted_to(dataset, scores, own)[0] for name, own in far.items()}
    about = {"run": work, "about": {"study": "personal"}} if split == "test" else {}
    evaluation = evaluate.evaluate(dataset, methods | beside, split, **about)
    results, record = on_users(evaluation), {"personal": {s: evaluation.reward_model[s]["personal"] for s in SIGNALS}}
    for name in methods:
        own = results[name]
        ahead = leads(own, results.get(f"{TILT} beside {name}", results[TILT]))
        record[name] = {"share": round(own.share, 2), "verdict": own.verdict}
        for signal in SIGNALS:
            line, control = own.line(signal), [float(x) for x in _NUMBER.findall(own.checks(signal)[0])]
            numbers = (
                (line.relative, *line.relative_interval),
                (ahead[signal].value, ahead[signal].low, ahead[signal].high),
            )
            change, lead = ([round(100 * float(x), 1) for x in each] for each in numbers)
            record[name][signal] = {
                "change": change,
                "lead": lead,
                "control": control,
                "verdict": own.verdict_of(signal),
            }
        print(name, json.dumps(record[name], ensure_ascii=False), flush=True)
    return {split: record}


def kept(path, make):
    """What an earlier call made, or made now; files of our own."""
    if not path.exists():
        path.write_bytes(pickle.dumps(make()))
        print("made", path.stem, flush=True)
    return pickle.loads(path.read_bytes())


def main(what, *arguments):
    """Merge a part into the record."""
    part = generated(*map(int, arguments)) if what == "generated" else kuairand(arguments[0], *map(Path, arguments[1:]))
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {"format": 1}
    write(record | part)


def write(record):
    """One line for each method."""
    parts = [
        f'"{name}":'
        + (
            json.dumps(part)
            if not isinstance(part, dict)
            else "{"
            + ",\n ".join(f'"{key}":{json.dumps(value, ensure_ascii=False)}' for key, value in part.items())
            + "}"
        )
        for name, part in record.items()
    ]
    RECORD.write_text("{" + ",\n".join(parts) + "}\n", "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
