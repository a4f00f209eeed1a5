"""How a log chose its actions, where it does not say: a softmax over all of them, fitted on the log itself.

`fit` makes a model, `dataset.with_behaviour(model)` takes its propensities, `scores` says how good they are.
"""

from moac.offline.behaviour.fitting import fit
from moac.offline.behaviour.model import BehaviourModel, Member
from moac.offline.behaviour.options import Options
from moac.offline.behaviour.scoring import Scores, scores

__all__ = ["BehaviourModel", "Member", "Options", "Scores", "fit", "scores"]
