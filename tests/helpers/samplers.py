"""Gradient matrices whose min-norm problem is hard in a known way."""

import numpy as np

STATIONARY = ("onezero", "opposite", "lowrank")


def _base(M, rng, d):
    return rng.standard_normal((M, d)), rng.standard_normal(d)


def gauss(M, rng, d):
    return _base(M, rng, d)[0]


def biased(M, rng, d):
    g, u = _base(M, rng, d)
    return (u + g) * 10 ** rng.uniform(-1, 1, (M, 1))


def collinear(M, rng, d):
    g, u = _base(M, rng, d)
    return u + 1e-6 * g


def collinear_perpendicular(M, rng, d):
    g, u = _base(M, rng, d)
    return u + 1e-6 * (g - np.outer(g @ u / (u @ u), u))


def duplicates(M, rng, d):
    return _base(M, rng, d)[0][np.arange(M) % ((M + 1) // 2)]


def onezero(M, rng, d):
    g = _base(M, rng, d)[0]
    g[rng.integers(M)] = 0
    return g


def scales(M, rng, d):
    return _base(M, rng, d)[0] * 10 ** rng.uniform(-8, 8, (M, 1))


def opposite(M, rng, d):
    g = _base(M, rng, d)[0]
    if M > 1:
        g[1] = -g[0]
    return g


def lowrank(M, rng, d):
    rank = max(1, M // 4)
    return rng.standard_normal((M, rank)) @ rng.standard_normal((rank, d))


FAMILIES = {
    f.__name__: f
    for f in (gauss, biased, collinear, collinear_perpendicular, duplicates, onezero, scales, opposite, lowrank)
}


def sample(family, M, seed, d=1000):
    return FAMILIES[family](M, np.random.default_rng([seed, M]), d)


def strongly_stationary(M, rng, d):
    """Rows with a strictly positive combination that vanishes."""
    g = rng.standard_normal((M, d))
    weight = rng.dirichlet(np.ones(M))
    g[-1] = -(weight[:-1] @ g[:-1]) / weight[-1]
    return g


def not_stationary(M, rng, d):
    """Rows that all have a positive product with one vector."""
    g, u = rng.standard_normal((M, d)), rng.standard_normal(d)
    return g + np.outer((1 + np.abs(g @ u)) / (u @ u), u)


def of_all_families(M, count):
    """[count, M, 2M], the families in turn; every other matrix of a family has rank M/2 at most."""
    found = np.zeros((count, M, 2 * M))
    for k in range(count):
        d = 2 * M if k // len(FAMILIES) % 2 else max(M // 2, 1)
        found[k, :, :d] = sample(list(FAMILIES)[k % len(FAMILIES)], M, k, d)
    return found
