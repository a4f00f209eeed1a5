"""What is derived from an object lives as long as the object."""

import copy
import gc
import pickle
import weakref
from dataclasses import dataclass, replace

import numpy as np

from moac import api
from moac.config import Config
from moac.kept import with_owner
from moac.kuairand import generate
from moac.offline.evaluate import with_estimator


@dataclass(frozen=True, eq=False)
class Owner:
    """Frozen, as models and logs are."""

    size: int = 3


@with_owner
def made(owner, times=1, *, plus=0):
    return np.full(owner.size, times + plus)


def test_made_once_for_each_owner_and_value():
    one, other = Owner(), Owner()
    assert made(one) is made(one)
    assert made(one, 2) is made(one, 2)
    assert made(one, plus=1) is made(one, plus=1)
    assert len({id(x) for x in (made(one), made(one, 2), made(one, plus=1), made(other))}) == 4
    assert made(one, 2, plus=1).tolist() == [3, 3, 3]


def test_gone_with_its_owner():
    owner = Owner()
    value = weakref.ref(made(owner))
    assert value() is not None
    del owner
    assert value() is None


def test_copies_begin_with_nothing():
    owner = Owner()
    value = made(owner)
    for other in (copy.deepcopy(owner), pickle.loads(pickle.dumps(owner)), replace(owner)):
        assert made(other) is not value
        assert other.size == owner.size


def test_a_log_is_freed_with_the_programs_that_were_compiled_for_it():
    log = generate.log(400, 1, num_users=60).dataset()
    result = api.train(with_estimator(log), Config(policy="mlp", num_iterations=2, num_evaluations=1), trials=1)
    gone = weakref.ref(log)
    assert gone() is not None
    del log, result
    gc.collect()
    assert gone() is None
