"""Environments: any of MO-Gymnasium's, or one's own, as a source of training. The only room that knows Gymnasium."""

from moac.envs.environment import Environment
from moac.envs.make import known_ids, make

__all__ = ["Environment", "known_ids", "make"]
