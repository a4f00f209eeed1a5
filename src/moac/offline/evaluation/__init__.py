"""Trained policies judged beside Behavior-Clone on a split's users: one call, from a dataset to a verdict."""

from moac.offline.evaluation.judge import check, judge
from moac.offline.evaluation.judged import Judged, Weights
from moac.offline.evaluation.lines import Line, Outcome, lines
from moac.offline.evaluation.weighing import BASELINE, Method

__all__ = ["BASELINE", "Judged", "Line", "Method", "Outcome", "Weights", "check", "judge", "lines"]
