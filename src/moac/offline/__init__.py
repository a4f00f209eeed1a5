"""Learning from logs that another policy made, in stages.

`behaviour` fits how a log chose where it does not say, `moac.train` learns, `evaluate` estimates what policies are
worth and how far to trust that (`ncis` does it on plain arrays, without JAX), `choose` takes one of several, and
`recommend` applies it. `baselines` are other methods for the same logs.
"""

from moac.offline import ncis

__all__ = ["ncis"]
