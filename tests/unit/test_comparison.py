"""The comparison of methods on a log: what is chosen, what stands at equal shares, and what the claims say."""

import json
from dataclasses import replace

import numpy as np
import pytest

from moac.cli.main import main
from moac.offline.evaluation import Line
from moac_studies import spec
from moac_studies.comparison import judgements, judging
from moac_studies.comparison.judgements import Judgement
from moac_studies.comparison.measure import Trained
from moac_studies.comparison.training import MAIN, Searched


def line(signal, relative, outcome="no significant change", cost=False):
    spread = (relative - 0.01, relative + 0.01)
    return Line(signal, cost, 1.0, 1 + relative, (1.0, 1.0), relative, spread, relative, spread, 0.5, outcome)


def judgement(name, share, *changes, against=(), gain=0.0):
    names = ("Click", "Dislike")
    lines = tuple(line(s, c, cost=s == "Dislike") for s, c in zip(names, changes, strict=True))
    return Judgement(name, lines, share, "trusted", against, gain)


def searched(**methods):
    trained, judged = {}, {}
    for method, own in methods.items():
        trained[method] = []
        for k, each in enumerate(own):
            one = Trained(method, {"behaviour_pull": k}, None, (), np.arange(3), np.full((2, 3, 2), 0.5))
            trained[method].append(one)
            judged[one.name] = replace(each, name=one.name)
    return Searched(trained, judged, {})


def test_the_admissible_setting_with_the_largest_gain_is_kept():
    found = [
        judgement("near", 0.9, 0.01, 0.0, gain=0.01),
        judgement("far", 0.6, 0.05, 0.0, gain=0.04),
        judgement("too far", 0.3, 0.2, 0.0, against=("a share of 0.3",), gain=0.2),
    ]
    assert judgements.best(found).name == "far"
    assert judgements.best(found[2:]).name == "too far"


def test_lines_at_a_share_are_between_their_neighbours():
    found = [judgement("a", 0.9, 0.0, 0.0), judgement("b", 0.7, 0.2, -0.1), judgement("c", 0.5, 0.4, 0.0)]
    at = judgements.at_share(found, 0.8)
    assert at["Click"].relative == pytest.approx(0.1)
    assert at["Click"].relative_interval == pytest.approx((0.09, 0.11))
    assert at["Dislike"].relative == pytest.approx(-0.05)
    assert judgements.at_share(found, 0.95) is None


def test_judgements_survive_json():
    own = judgement("a", 0.9, 0.1, 0.2, against=("why",))
    assert Judgement.of_dict(json.loads(json.dumps(own.as_dict()))) == own


@pytest.mark.parametrize(
    ("other", "verdict", "largest"),
    [
        ((0.2, -0.2), "does not hold", "does not hold"),
        ((0.2, 0.2), "holds", "holds in part"),
        ((0.0, 0.2), "holds", "holds"),
    ],
)
def test_dominated_is_worse_in_every_signal_also_where_less_is_better(other, verdict, largest):
    ours = [judgement("a", 0.9, 0.1, 0.0), judgement("b", 0.7, 0.1, 0.0)]
    theirs = [judgement("c", 0.9, *other), judgement("d", 0.7, *other)]
    found = searched(**{MAIN: ours, "PDPG": theirs})
    chosen = {name: found.best(name) for name in found.trained}
    parameters = {"judging": {"signals": ["Click"], "share": 0.8}, "paper": {}}
    claims = judging.findings(parameters, found, chosen, None, real=False).claims
    assert [claim.verdict for claim in claims] == ["holds", "holds", "holds", verdict, largest]


def test_every_method_has_the_same_number_of_settings():
    for quick in (False, True):
        methods = spec.load("kuairand-comparison", quick).parameters["methods"]
        assert {len(table["search"]) for table in methods.values()} == {4}
        assert set(methods) == {
            "PDPG", "TSCAC", "MOAC, fixed weights", "MOAC, uniform weights", "Plain MGDA", "MOAC",
        }  # fmt: skip


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--trials", "0"], "`trials` must be a whole number of at least 1"),
        (["--iterations", "0"], "`iterations` must be at least 1"),
        ([], "no dataset: it has no manifest.json"),
        (["--protocol", "tscac-compat", "--test"], "takes --iterations and --seed only"),
    ],
)
def test_mistakes_of_the_command(tmp_path, capsys, more, message):
    assert main(["offline", "compare", str(tmp_path / "nothing"), "--out", str(tmp_path / "out"), *more]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
