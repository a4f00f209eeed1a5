"""What `moac evaluate` says of all policies together."""

import numpy as np
import pytest

from moac.cli.evaluate import _archive


@pytest.mark.parametrize("points, volume", [([[1.0, 2.0], [1.0, 2.0]], None), ([[0.0, 1.0], [1.0, 0.0]], 0.21)])
def test_points_that_are_one_have_no_hypervolume(points, volume):
    archive = _archive([{"env": "minecart-v0", "average": False, "points": np.array(points)}], None)
    assert archive["hypervolume"] == (None if volume is None else pytest.approx(volume))
