"""The error of the weighted policy gradient against the batch size: E‖(∇J − g)λ‖² at a fixed policy."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from moac import settings, simplex
from moac.config import Average, Config, Discounted, Setting
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


def findings(work: Workspace, p: dict[str, Any], seed: int) -> Findings:
    """Squared errors [C, W, K, L] by setting, for C critics and W kinds of weights."""
    measured = {
        kind: work.keep("gradient-noise", {"seed": seed, **p, "setting": kind}, lambda k=kind: _measure(p, k, seed))
        for kind in p["settings"]
    }
    critics = (_EXACT, *(f"learned, D = {D}" for D in p["critic_batches"]))
    slopes = {
        (kind, critic, way): compare.slope(p["batches"], arrays["error"][c, w])
        for kind, arrays in measured.items()
        for c, critic in enumerate(critics)
        for w, way in enumerate(WEIGHTS)
    }
    return Findings(
        _claims(slopes, measured, critics),
        (_table(slopes, measured, p, critics),),
        (_figure(slopes, measured, p, critics),),
    )


def _measure(p: dict[str, Any], kind: str, seed: int) -> Arrays:
    """At one random policy of one random model; the learned critics are each trial's own."""
    setting: Setting = Average() if kind == "average" else Discounted(p["discount"])
    model = library.random_ergodic(seed, p["states"], p["actions"], p["objectives"])
    theta = p["spread"] * np.random.default_rng(seed).normal(size=p["states"] * p["actions"])
    problem, logits = small.problem_of(model, theta=theta), theta.reshape(p["states"], -1)
    with jax.enable_x64(True):
        H = np.asarray(small.gradients(problem, jnp.asarray(theta), setting, "stationary"))
    w = oracle.td_fixed_point(model, logits, setting, np.eye(p["states"])).T
    mu = oracle.evaluate(model, logits, setting).returns if kind == "average" else np.zeros(p["objectives"])
    config = Config(setting, 1, p["critic_steps"], 1, p["batches"][-1], 1.0, p["critic_step"])
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


def _claims(slopes: dict[Any, Mean], measured: dict[str, Arrays], critics: tuple[str, ...]) -> tuple[Claim, ...]:
    exact = {f"{kind}, {way}": s for (kind, critic, way), s in slopes.items() if critic == _EXACT}
    last = {kind: arrays["error"][:, 1, :, -1] for kind, arrays in measured.items()}
    return (
        compare.claim(
            "E‖(∇J − g)λ_t‖² falls as 1/B, also for weights chosen by the same batch.",
            f"Slopes with the critic at its fixed point: {compare.listed(exact)}; asked: −1 ± {TOLERANCE}.",
            [compare.slope_near(s, -1.0, TOLERANCE) for s in exact.values()],
            _FIGURE,
        ),
        _floor_claim(last, critics),
        _batch_claim(last, critics),
    )


def _floor_claim(last: dict[str, Float[np.ndarray, "C K"]], critics: tuple[str, ...]) -> Claim:
    """By the error at the largest B, batch by batch: twice that with the exact critic, or more."""
    excess = {kind: compare.paired(errors[1], 2 * errors[0]) for kind, errors in last.items()}
    return compare.claim(
        "A learned critic leaves a floor that no actor batch removes.",
        f"Error at the largest B over that with w*: {compare.listed(_times(last, critics))}. Of {critics[1]}, minus "
        f"twice that with w*: {compare.listed(excess)}.",
        map(compare.above, excess.values()),
        _FIGURE,
    )


def _batch_claim(last: dict[str, Float[np.ndarray, "C K"]], critics: tuple[str, ...]) -> Claim:
    """By the same error: with the largest D half of that with the smallest, or less."""
    text = "The floor of a learned critic falls with the critic's batch D."
    if len(critics) < 3:
        return Claim(text, compare.NOT_RUN, "not measured")
    rest = {kind: compare.paired(2 * errors[-1], errors[1]) for kind, errors in last.items()}
    return compare.claim(
        text,
        f"Twice the error at the largest B of {critics[-1]}, minus that of {critics[1]}: {compare.listed(rest)}.",
        map(compare.below, rest.values()),
        _FIGURE,
    )


def _times(last: dict[str, Float[np.ndarray, "C K"]], critics: tuple[str, ...]) -> dict[str, str]:
    """The mean error of each learned critic as a multiple of that with the exact one."""
    return {
        f"{kind}, {critics[c]}": f"{errors[c].mean() / errors[0].mean():.1f}×"
        for kind, errors in last.items()
        for c in range(1, len(critics))
    }


def _table(slopes: dict[Any, Mean], measured: dict[str, Arrays], p: dict[str, Any], critics: tuple[str, ...]) -> Table:
    rows = tuple(
        (
            f"{kind}, {critic}, {way}",
            compare.with_interval(slopes[kind, critic, way]),
            float(arrays["error"][c, w, :, 0].mean()),
            float(arrays["error"][c, w, :, -1].mean()),
        )
        for kind, arrays in measured.items()
        for c, critic in enumerate(critics)
        for w, way in enumerate(WEIGHTS)
    )
    return Table(
        _TABLE,
        f"Mean over {p['trials']} batches of B consecutive transitions, 95 % intervals over batches. With w* the slope "
        "agrees with the bound's rate 1/B; a slope does not test the bound's constant. With a learned critic it mixes "
        "a falling part with a floor and is no rate.",
        ("setting, critic, weights", "slope in B", f"error at B = {p['batches'][0]}", f"at B = {p['batches'][-1]}"),
        rows,
    )


def _figure(slopes: dict[Any, Mean], measured: dict[str, Arrays], p: dict[str, Any], critics: tuple[str, ...]) -> Shown:
    def panel(kind: str, w: int) -> drawings.Panel:
        error = measured[kind]["error"]
        curves = tuple(
            drawings.Curve(name, p["batches"], error[c, w], c, slopes[kind, name, WEIGHTS[w]].value if c == 0 else None)
            for c, name in enumerate(critics)
        )
        title = f"{kind[0].upper()}{kind[1:]}, {WEIGHTS[w]}"
        return drawings.Panel(title, ("B", "E‖(∇J − g)λ‖²"), curves)

    return Shown(
        _FIGURE,
        "gradient-noise",
        drawings.curves(tuple(panel(kind, w) for kind in measured for w in range(len(WEIGHTS)))),
        "Mean squared error of the weighted gradient at a fixed policy, with 95 % bands; in the discounted setting ∇J "
        "stands for Lemma 1's direction under the stationary law, which the samples follow. With the exact critic the "
        "error falls as 1/B; with a learned one it meets the critic's own error.",
        "Log–log charts of the squared error of the gradient against the batch size, one line per critic.",
    )
