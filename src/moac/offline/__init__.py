"""What a policy is worth on a log that another one made: estimates, their uncertainty, and whether to trust them.

`moac.offline.behaviour` needs JAX and is imported by those who use it.
"""

from moac.offline import ncis

__all__ = ["ncis"]
