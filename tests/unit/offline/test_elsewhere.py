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


@pytest.mark.parametrize("keep", [True, False])
def test_ids_and_contexts_of_another_log_may_be_written_in_another_way(tmp_path, keep):
    """Ids were whole numbers, and next week a user and an item have a name; hours have a fraction of zero."""
    item, time = np.arange(400) % 4, np.arange(400)
    frame = {"user_id": time % 50, "item_id": item, "time": time, "click": item % 2, "p": P[item], "hour": item // 2}
    run, other = (
        logs.build(each, signals="click", propensity="p", context="hour", out=tmp_path / str(k) if keep else None)
        for k, each in enumerate((frame, _renamed(frame)))
    )
    mapped, unknown = onto(other, Catalogue.of(run))
    assert unknown == {"users": 1, "items": 1, "views": 1} if keep else unknown["users"] == 1
    before, after = (dict(zip(one.time.tolist(), one.context.tolist(), strict=True)) for one in (run, mapped))
    assert after == {time: code for time, code in before.items() if time != 398}


def _renamed(frame):
    texts = {name: frame[name].astype("U4") for name in ("user_id", "item_id")}
    texts["user_id"][399] = texts["item_id"][398] = "new"
    return frame | texts | {"hour": np.char.add(frame["hour"].astype(str), ".00")}
