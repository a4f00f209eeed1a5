"""What a policy is worth on a log that another one made: estimates, their uncertainty, and whether to trust them."""

from moac.offline import ncis

__all__ = ["ncis"]
