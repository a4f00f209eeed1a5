"""The public functions: what they join, and what a result can do without them."""

import subprocess
import sys

import numpy as np
import pytest

import moac
from moac import Config, api, momdp
from moac.runs.directory import RunDirectory
from moac.training import result

CONFIG = Config(num_iterations=3, num_critic_steps=1, critic_batch_size=2, actor_batch_size=2, num_evaluations=2)


@pytest.fixture(scope="module")
def trained():
    return api.train("fishwood-v0", CONFIG, trials=2)


def test_an_id_is_the_model_of_the_library(trained):
    assert trained.run.source.spec.fingerprint == momdp.library.fishwood().spec.fingerprint
    with pytest.raises(ValueError, match=r"got 'fishwod-v0'. Did you mean fishwood-v0\?$"):
        api.train("fishwod-v0", CONFIG)


def test_a_saved_result_has_figures_and_is_read_again(trained, tmp_path):
    assert trained.save(tmp_path / "run") == tmp_path / "run"
    assert {path.name for path in (tmp_path / "run" / "figures").iterdir()} == {"training.png", "training.svg"}
    again = api.resume(tmp_path / "run", momdp.library.fishwood())
    np.testing.assert_array_equal(again.returns, trained.returns)
    assert again.plot().axes
    assert (tmp_path / "run" / "report.html").exists()
    np.testing.assert_array_equal(api.resume(tmp_path / "run").returns, trained.returns)  # its id is known


def test_resuming_and_evaluating_by_what_the_run_names(trained, tmp_path):
    RunDirectory.create(tmp_path / "run", trained.run, "fishwood-v0").finish(trained)
    np.testing.assert_array_equal(api.resume(tmp_path / "run").returns, trained.returns)
    values = api.evaluate(tmp_path / "run", episodes=2, trials=(1,))
    assert values.points.shape == (1, 2)
    np.testing.assert_allclose(values.exact, trained.returns[1:], rtol=1e-5)


def test_a_result_without_outputs_says_what_gives_it_them(trained, tmp_path):
    bare = result.Result.of(trained.run, trained.snapshot)
    for output in (bare.plot, lambda: bare.save(tmp_path / "run")):
        with pytest.raises(ValueError, match=r"moac.api.with_outputs"):
            output()


def test_names_are_imported_when_they_are_used():
    script = "import sys, moac; assert 'jax' not in sys.modules; moac.Config; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    assert all(hasattr(moac, name) for name in moac.__all__)
    with pytest.raises(AttributeError, match="'policy'"):
        moac.policy  # noqa: B018
