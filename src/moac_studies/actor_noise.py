"""The error of the weighted policy gradient against the batch size: E‖(∇J − g)λ‖² at a fixed policy."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from moac import settings, simplex
from moac.config import Average, Config
from moac.critic import TD, LinearCritic
from moac.files import Arrays
from moac.momdp import library, oracle
from moac.policies.features import OneHot
from moac.report.page import Claim, Table
from moac.report.pages.experiment import Findings, Shown
from moac.statistics import Mean
from moac.types import Batch, Sampling
from moac_studies import compare, drawings
from moac_studies import small_problems as small
from moac_studies.compare import TOLERANCE
from moac_studies.framework import Workspace
from moac_studies.small_problems import Problem

_FIGURE, _TABLE = "Error of the gradient against B", "Slopes in B"
WEIGHTS = ("λ fixed", "λ̂ of the same batch")
_EXACT = "exact critic w*"


Errors = dict[tuple[str, str, str], Float[np.ndarray, "K L"]]
"""Squared errors by setting, critic and weights, of K batches at L sizes."""


def findings(work: Workspace, p: dict[str, Any], seed: int) -> Findings:
    """Measure every setting with every critic."""
    critics, errors = (_EXACT, *(f"learned, D = {D}" for D in p["critic_batches"])), Errors()
    for kind in p["settings"]:
        about = {"seed": seed, **p, "setting": kind}
        arrays = work.keep("gradient-noise", about, lambda kind=kind: _measure(p, kind, seed))
        for (c, critic), (w, weights) in product(enumerate(critics), enumerate(WEIGHTS)):
            errors[kind, critic, weights] = arrays["error"][c, w]
    slopes = {key: compare.slope(p["batches"], values) for key, values in errors.items()}
    return Findings(claims_of(slopes, errors, critics), (_table(slopes, errors, p),), (_figure(slopes, errors, p),))


def _measure(p: dict[str, Any], kind: str, seed: int) -> Arrays:
    """At one random policy of one random model; the learned critics are each trial's own."""
    setting = small.setting_of(kind, p["discount"])
    model = library.random_ergodic(seed, p["states"], p["actions"], p["objectives"])
    theta = p["spread"] * np.random.default_rng(seed).normal(size=p["states"] * p["actions"])
    problem, logits = small.problem_of(model, theta=theta), theta.reshape(p["states"], -1)
    with jax.enable_x64(True):
        H = np.asarray(small.gradients(problem, jnp.asarray(theta), setting, "stationary"))
    w = oracle.td_fixed_point(model, logits, setting, np.eye(p["states"])).T
    mu = oracle.evaluate(model, logits, setting).returns if kind == "average" else np.zeros(p["objectives"])
    sizes = {"iterations": 1, "critic_batch": 1, "actor_batch": p["batches"][-1]}
    config = small.config_of({**p, **sizes}, setting, 1.0, 1)
    how = (config, tuple(p["critic_batches"]), tuple(p["batches"]), p["burn_in"])
    exact_critic = jnp.asarray(w, float), jnp.asarray(mu, float)
    keys = jax.random.split(jax.random.key(seed), p["trials"])
    return {"error": np.asarray(_errors(how, problem, jnp.asarray(H, float), exact_critic, keys))}


@partial(jax.jit, static_argnums=0)
def _errors(how: tuple[Config, Any, Any, int], problem: Problem, H: Any, exact: Any, keys: Any) -> Any:
    """‖(H − g)λ‖² [C, W, K, L], each trial with a chain and learned critics of its own."""
    config, critic_batches, batches, burn_in = how
    average, M = isinstance(config.setting, Average), H.shape[0]
    theta = jnp.asarray(problem.theta, float)
    learning = Sampling(config.num_critic_steps or 1, max(critic_batches), 1, average, None)
    acting = Sampling(1, burn_in, batches[-1], average, None)
    td = _td(problem, config)

    def one(key: Any) -> Any:
        key_start, key_learn, key_act = jax.random.split(key, 3)
        state, seen, _ = small.sample(problem, small.first_state(problem, key_start), theta, key_learn, learning)
        _, _, batch = small.sample(problem, state, theta, key_act, acting)
        critics = [exact, *(_learn(problem, config, D, seen) for D in critic_batches)]

        def of_critic(critic: Any) -> Any:
            G = prefix_gradients(problem, theta, batch, td.errors(critic[0], critic[1], batch)[0], batches)
            lam = simplex.min_norm_from_gram(G @ jnp.swapaxes(G, 1, 2)).weights
            weights = jnp.stack([jnp.full_like(lam, 1 / M), lam])
            return jnp.sum(jnp.einsum("wlm,lmp->wlp", weights, H - G) ** 2, axis=-1)

        return jax.vmap(of_critic)(jax.tree.map(lambda *x: jnp.stack(x), *critics))

    return jnp.moveaxis(jax.lax.map(one, keys, batch_size=64), 0, 2)


def _td(problem: Problem, config: Config) -> TD:
    spec = small.spec_of(problem)
    resolved = settings.resolve(config, spec)
    M = spec.num_objectives
    return TD(LinearCritic(OneHot(problem.reward.shape[0]), M), resolved, resolved.setting.discounts(M))


def _learn(problem: Problem, config: Config, D: int, seen: Batch) -> Any:
    """w and μ of Algorithm 1 with the first D transitions of each batch."""
    td = _td(problem, replace(config, critic_batch_size=D))
    w, mu = td.critic.init(None), jnp.zeros(problem.reward.shape[-1])
    return td.learn(w, mu, td.steps.init(w), jax.tree.map(lambda x: x[:, :D], seen))[:2]


def prefix_gradients(
    problem: Problem, theta: Any, batch: Batch, delta: Float[jax.Array, "B M"], sizes: tuple[int, ...]
) -> Float[jax.Array, "L M p"]:
    """gⁱ = (1/B) Σ_{l ≤ B} δⁱ_l ψ_l for each B of `sizes`: one rollout serves them all."""
    psi = small.LinearLogits(problem).scores(theta)[batch.observation, batch.action]
    total = jnp.cumsum((delta[:, :, None] * psi[:, None, :]).reshape(len(psi), -1), axis=0)
    B = np.asarray(sizes)
    return total[B - 1].reshape(len(B), delta.shape[1], -1) / B[:, None, None]


def claims_of(slopes: dict[Any, Mean], errors: Errors, critics: tuple[str, ...]) -> tuple[Claim, ...]:
    """By slopes with the exact critic; and by errors at the largest B, batch by batch."""
    exact = {f"{kind}, {weights}": s for (kind, critic, weights), s in slopes.items() if critic == _EXACT}
    last = {key[:2]: values[:, -1] for key, values in errors.items() if key[2] == WEIGHTS[1]}
    kinds, smallest = dict.fromkeys(kind for kind, _ in last), critics[1]
    excess = {kind: compare.paired(last[kind, smallest], 2 * last[kind, _EXACT]) for kind in kinds}
    rest = {kind: compare.paired(2 * last[kind, critics[-1]], last[kind, smallest]) for kind in kinds}
    learned = {key: values.mean() for key, values in last.items() if key[1] != _EXACT}
    times = {", ".join(key): f"{value / last[key[0], _EXACT].mean():.1f}×" for key, value in learned.items()}
    falls = "The floor of a learned critic falls with the critic's batch D."
    return (
        compare.claim(
            "E‖(∇J − g)λₜ‖² falls as 1/B, also for weights chosen by the same batch.",
            f"Slopes with the critic at its fixed point: {compare.listed(exact)}; required: −1 ± {TOLERANCE}.",
            [compare.near(s, -1.0, TOLERANCE) for s in exact.values()],
            _FIGURE,
        ),
        compare.claim(
            "A learned critic leaves a floor that no actor batch removes.",
            f"Error at the largest B over that with w*: {compare.listed(times)}. Of {smallest}, minus "
            f"twice that with w*: {compare.listed(excess)}.",
            map(compare.above, excess.values()),
            _FIGURE,
        ),
        compare.claim(
            falls,
            f"Twice the error at the largest B of {critics[-1]}, minus that of {smallest}: {compare.listed(rest)}.",
            map(compare.below, rest.values()),
            _FIGURE,
        )
        if len(critics) > 2
        else Claim(falls, compare.NOT_RUN, "not measured"),
    )


def _table(slopes: dict[Any, Mean], errors: Errors, p: dict[str, Any]) -> Table:
    rows = tuple(
        (", ".join(key), compare.with_interval(slopes[key]), *(float(values[:, k].mean()) for k in (0, -1)))
        for key, values in errors.items()
    )
    return Table(
        _TABLE,
        f"Mean over {p['trials']} batches of B consecutive transitions, 95 % intervals over batches. With w* the slope "
        "agrees with the bound's rate 1/B; a slope does not test the bound's constant. With a learned critic it mixes "
        "a falling part with a floor and is no rate.",
        ("setting, critic, weights", "slope in B", f"error at B = {p['batches'][0]}", f"at B = {p['batches'][-1]}"),
        rows,
    )


def _figure(slopes: dict[Any, Mean], errors: Errors, p: dict[str, Any]) -> Shown:
    panels: dict[str, list[drawings.Curve]] = {}
    for (kind, critic, weights), values in errors.items():
        curves = panels.setdefault(f"{kind[0].upper()}{kind[1:]}, {weights}", [])
        slope = slopes[kind, critic, weights].value if critic == _EXACT else None
        curves.append(drawings.Curve(critic, p["batches"], values, len(curves), slope))
    labels = ("batch size B", r"$E\|(\nabla J - g)\lambda\|^2$")
    return Shown(
        _FIGURE,
        "gradient-noise",
        drawings.curves([drawings.Panel(title, labels, tuple(curves)) for title, curves in panels.items()]),
        "Mean squared error of the weighted gradient at a fixed policy, with 95 % bands; in the discounted setting ∇J "
        "stands for Lemma 1's direction under the stationary law, which the samples follow. With the exact critic the "
        "error falls as 1/B; with a learned one it meets the critic's own error.",
        "Log–log charts of the squared error of the gradient against the batch size, one line per critic.",
    )
