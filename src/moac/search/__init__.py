"""Many runs, one answer: explorations, sweeps, candidates for a log."""

from typing import Any

CONDITIONED = "conditioned"
"""The rule of an exploration that trains one network for every preference: the default on environments."""
EXPLORING: dict[str, Any] = {"gae": 0.95, "num_evaluations": 25}
"""What an exploration changes in a configuration's defaults; with GAE fewer trials end where nothing is earned."""
GROWTH = 8
"""So often the front of one network is looked at while it is trained, at most."""
