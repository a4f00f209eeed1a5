"""Trained policies judged beside Behavior-Clone on a split's users: one call, from a dataset to a verdict."""

from moac.offline.evaluation.judge import BASELINE, check, judge
from moac.offline.evaluation.judged import Judged, Weights
from moac.offline.evaluation.weighing import Method

__all__ = ["BASELINE", "Judged", "Method", "Weights", "check", "judge"]
