"""A log on the actions of another run."""

import numpy as np
import pytest

from moac import logs
from moac.logs.catalogue import Catalogue
from moac.offline.elsewhere import onto, seen

P = np.array([0.4, 0.3, 0.2, 0.1])


@pytest.mark.parametrize("keep", [True, False])
def test_propensities_are_among_the_actions_of_the_run(tmp_path, keep):
    """A log on four items, of which the run knows two as actions: from a folder and from memory alike."""
    rng = np.random.default_rng(0)
    item = rng.choice(4, 2_000, p=P)
    frame = {"user_id": np.arange(2_000) % 100, "item_id": item, "time": np.arange(2_000), "p": P[item]}
    frame |= {"click": item % 2}
    run, other = (
        logs.build(frame, signals="click", propensity="p", actions=k, out=tmp_path / str(k) if keep else None)
        for k in (2, 4)
    )
    mapped, unknown = onto(other, Catalogue.of(run))
    share = np.isin(item, run.action_ids).mean()
    np.testing.assert_allclose(mapped.propensity, P[mapped.action_ids][mapped.action] / share, rtol=1e-6)
    assert unknown == {"users": 0, "items": 0, "views": 0}


@pytest.mark.parametrize("own", [True, False])
def test_another_log_with_the_catalogue_of_the_run_is_another_log(own):
    """Its results are not stored in place of the run's."""
    item = np.arange(400) % 4
    frame = {"user_id": np.arange(400) % 50, "item_id": item, "time": np.arange(400), "p": P[item], "click": item % 2}
    dataset = logs.build(frame, signals="click", propensity="p")
    assert (seen(dataset, Catalogue.of(dataset), None, own).unknown is None) is own
