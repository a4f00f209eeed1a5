"""The findings of the actor's study at sizes that show them: rates in T and B, the wrong law, M, momentum."""

import numpy as np
import pytest

from moac_studies import actor_law, actor_momentum, actor_noise, actor_rate, framework
from moac_studies.actor_momentum import LABELS
from moac_studies.framework import Workspace

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def parameters():
    return {name: dict(table) for name, table in framework.load("actor-rate").parameters.items()}


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return Workspace(tmp_path_factory.mktemp("tasks"), lambda text: None)


def test_exact_ascent_falls_as_one_over_t_under_every_schedule(parameters, work):
    exact = parameters["exact"] | {"models": 8, "theory_iterations": 0, "settings": ["discounted"]}
    found = actor_rate.horizon(work, exact, parameters["learned"] | {"settings": []}, 0)
    verdicts = [claim.verdict for claim in found.claims]
    assert verdicts == ["holds", "does not hold", "not measured"]


def test_the_gradients_error_falls_as_one_over_b_down_to_the_critics(parameters, work):
    small = parameters["noise"] | {"trials": 256, "settings": ["average"]}
    exact, floor, batch = actor_noise.findings(work, small, 0).claims
    assert [claim.verdict for claim in (exact, floor, batch)] == ["holds", "holds", "holds"]


def test_stationary_sampling_stops_where_the_true_gap_does_not(parameters):
    small = parameters["law"] | {"first": 208, "models": 16}
    found = actor_law.search(small)
    row = actor_law.pick(found)
    assert small["first"] + row == 214
    vanished, gap = actor_law.law_ends(found)
    assert np.all(vanished[row])
    assert np.all(gap[row] > 0.02)


def test_plain_mgda_pays_for_more_objectives_and_momentum_does_not(parameters, work):
    small = parameters["objectives"] | {"objectives": [2, 8], "models": 0, "steps": [0.5], "trials": 16}
    found = actor_law.objectives_findings(work, small, 0)
    (noise, _) = found.claims
    assert noise.verdict == "holds in part"
    assert "grows with M for: η = 1" in noise.measured


def test_momentum_in_the_three_examples(parameters):
    found = actor_momentum.measure(parameters["momentum"], 1, 0)
    gap, change = (found[name].mean(axis=2) for name in ("gap", "change"))
    at = {label: e for e, label in enumerate(LABELS)}
    assert gap[0, at["η = 1"]] == pytest.approx(1e-2, rel=0.05)
    assert gap[0, at["η = 1/t"]] < 2e-6
    assert gap[0, at["η = 0"]] < 2e-6
    assert change[2, at["η = 1/t"]] > 0.4
    assert change[2, at["η = 0"]] < -1


def test_the_expected_step_stops_at_the_gaps_that_were_found_before(parameters):
    found = actor_momentum.expected(parameters["momentum"])
    np.testing.assert_allclose(found["gap"], [6.1e-3, 1.1e-3, 1.8e-4, 2.7e-5, 5.1e-6], rtol=0.06)
