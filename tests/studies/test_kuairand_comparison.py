"""The comparison of methods on a log: what is chosen, what stands at equal shares, and what the claims say."""

import json
from dataclasses import replace

import numpy as np
import pytest

from moac.cli.main import main
from moac.kuairand import generate
from moac.offline.evaluate import evaluate
from moac.offline.evaluation import Line
from moac_studies import framework, kuairand_search
from moac_studies import kuairand_comparison as comparison
from moac_studies.kuairand_search import MAIN, OnUsers, Searched, Trained
from tests.helpers.log_policies import MODEL, tabulated
from tests.helpers.logs import tilted


def line(signal, relative, outcome="no difference", cost=False):
    spread = (relative - 0.01, relative + 0.01)
    return Line(signal, cost, 1.0, 1 + relative, (1.0, 1.0), relative, spread, relative, spread, 0.5, outcome)


NAMES = ("Click", "Dislike")
USERS = np.linspace(-1, 1, 1001)
"""What the draws of users have in common, whichever method is looked at."""


def judgement(name, share, *changes, against=(), gain=0.0, common=0.0, noise=0.0):
    """Changes whose draws vary by `common` with the users, and by `noise` on their own."""
    lines = tuple(line(s, c, cost=s == "Dislike") for s, c in zip(NAMES, changes, strict=True))
    draws = {s: c + common * USERS + noise * np.roll(USERS, 500) for s, c in zip(NAMES, changes, strict=True)}
    return OnUsers(name, lines, share, "trusted", against, gain, draws)


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
    assert kuairand_search.best(found).name == "far"
    assert kuairand_search.best(found[2:]).name == "too far"


def test_lines_at_a_share_are_between_their_neighbours():
    found = [judgement("a", 0.9, 0.0, 0.0), judgement("b", 0.7, 0.2, -0.1), judgement("c", 0.5, 0.4, 0.0)]
    at = kuairand_search.at_share(found, 0.75)
    assert at.lines["Click"].relative == pytest.approx(0.15)
    assert at.lines["Click"].relative_interval == pytest.approx((0.14, 0.16))
    assert at.lines["Dislike"].relative == pytest.approx(-0.075)
    assert at.draws["Click"] == pytest.approx(0.15)
    assert at.draws["Dislike"] == pytest.approx(-0.075)
    assert kuairand_search.at_share(found, 0.5).lines["Click"].relative == pytest.approx(0.4)
    assert kuairand_search.at_share(found, 0.9).lines["Click"].relative == pytest.approx(0.0)
    assert kuairand_search.at_share(found, 0.95) is kuairand_search.at_share(found, 0.45) is None


def test_settings_of_one_share_have_nothing_between_them():
    twice = [judgement("a", 0.8, 0.0, 0.0), judgement("b", 0.8, 0.2, 0.0)]
    assert kuairand_search.at_share(twice, 0.8) is None


def test_a_split_is_judged_by_the_worst_seed_and_keeps_its_draws():
    dataset = generate.log(8_000, 1, model=MODEL, num_users=2_000).dataset()
    near, far = tilted(MODEL, 0.9), tilted(MODEL, 0.2)
    methods = {"near": tabulated(dataset, near), "both": tabulated(dataset, near, far), "far": tabulated(dataset, far)}
    found = kuairand_search.on_users(evaluate(dataset, methods))
    assert found["far"].share < found["near"].share
    assert found["both"].share == pytest.approx(found["far"].share)
    for own in found.values():
        assert np.isfinite(own.draws["Click"]).all()
        for each in own.lines:  # a rare signal has draws without it: NaN
            assert np.quantile(own.draws[each.signal], [0.025, 0.975]) == pytest.approx(
                each.relative_interval, nan_ok=True
            )


@pytest.mark.parametrize("spoilt", ["a", "b"])
def test_between_settings_of_which_one_is_not_estimable_nothing_is(spoilt):
    found = [judgement("a", 0.9, 0.0, 0.0), judgement("b", 0.7, 0.2, -0.1)]
    lost = [
        replace(own, lines=(replace(own.lines[0], outcome="not estimable"), own.lines[1]))
        if own.name == spoilt
        else own
        for own in found
    ]
    assert kuairand_search.at_share(found, 0.8).estimable == ("Click", "Dislike")
    assert kuairand_search.at_share(lost, 0.8).estimable == ("Dislike",)


def test_judgements_survive_json():
    own = judgement("a", 0.9, 0.1, 0.2, against=("why",), common=1.0)
    assert OnUsers.of_dict(json.loads(json.dumps(own.as_dict()))) == own


def at(*changes, **spread):
    """A method that is the same at all shares."""
    return kuairand_search.at_share(
        [judgement("a", 0.9, *changes, **spread), judgement("b", 0.7, *changes, **spread)], 0.8
    )


def test_a_lead_is_a_paired_difference_and_a_cost_leads_downwards():
    """What the draws of users have in common cancels; what they do not have is in the interval."""
    found = kuairand_search.leads(at(0.3, -0.2, common=9.0, noise=0.2), at(0.1, 0.1, common=9.0))
    assert list(found) == ["Click", "Dislike"]
    assert found["Click"].value == pytest.approx(0.2)
    assert (found["Click"].low, found["Click"].high) == pytest.approx((0.2 - 0.19, 0.2 + 0.19))
    assert found["Dislike"].value == pytest.approx(0.3)
    assert (found["Dislike"].low, found["Dislike"].high) == pytest.approx((0.3 - 0.19, 0.3 + 0.19))


@pytest.mark.parametrize(
    ("other", "noise", "verdict", "largest"),
    [
        ((0.2, -0.2), 0.01, "does not hold", "does not hold"),
        ((0.2, 0.2), 0.01, "holds", "holds in part"),
        ((0.0, 0.2), 0.01, "holds", "holds"),
        ((0.2, 0.0), 0.01, "not decided", "does not hold"),
        ((0.2, 0.2), 0.9, "not decided", "not decided"),
        ((0.0, 0.2), 0.15, "holds", "not decided"),
        ((0.2, -0.2), 0.15, "not decided", "does not hold"),
    ],
)
def test_dominated_is_worse_in_every_signal_also_where_less_is_better(other, noise, verdict, largest):
    ours = [judgement("a", 0.9, 0.1, 0.0, common=9.0), judgement("b", 0.7, 0.1, 0.0, common=9.0)]
    theirs = [judgement(name, share, *other, common=9.0, noise=noise) for name, share in (("c", 0.9), ("d", 0.7))]
    found = searched(**{MAIN: ours, "PDPG": theirs})
    parameters = {"judging": {"signals": ["Click"], "share": 0.8}, "paper": {}}
    claims = comparison.findings(parameters, found, None, real=False).claims
    assert [claim.verdict for claim in claims] == ["holds", "holds", "holds", verdict, largest]


def test_methods_that_cannot_be_compared_leave_the_claims_open():
    nothing = replace(at(0.2, 0.2), lines={name: line(name, 0.0, "not estimable") for name in NAMES})
    better, worse = at(0.3, -0.3), at(0.0, 0.3)
    ours = at(0.1, 0.0)
    cases = [
        ({MAIN: ours, "A": worse, "B": None}, "not decided", "holds"),
        ({MAIN: ours, "A": worse, "B": nothing}, "not decided", "holds"),
        ({MAIN: ours, "A": better, "B": None}, "does not hold", "does not hold"),
        ({MAIN: ours, "A": worse, "B": better}, "does not hold", "does not hold"),
        ({MAIN: ours, "A": nothing}, "not decided", "not measured"),
        ({MAIN: ours, "A": None}, "not decided", "not measured"),
        ({MAIN: None, "A": worse}, "not measured", "not measured"),
    ]
    for level, dominated, largest in cases:
        assert comparison.not_dominated(level, 0.8).verdict == dominated, level
        assert comparison.largest_gain(level, 0.8).verdict == largest, level


def test_the_largest_gain_is_told_beside_the_closest_method():
    level = {MAIN: at(0.1, 0.0), "A": at(0.05, 0.3), "B": at(0.0, 0.1)}
    found = comparison.largest_gain(level, 0.8).measured
    assert "Click: MOAC +5.0 points [+5.0, +5.0] beside A" in found
    assert "Dislike: MOAC +10.0 points [+10.0, +10.0] beside B" in found


def aims(*lines, share=0.9):
    return comparison.aims(OnUsers("MOAC", lines, share, "trusted"), ["Click", "WatchTime"], "test users", "")


def spread(signal, low, high, outcome="better"):
    return replace(line(signal, (low + high) / 2, outcome), relative_interval=(low, high))


@pytest.mark.parametrize(
    ("click", "watched", "verdict"),
    [
        ((0.01, 0.2), (0.01, 0.2), "holds"),
        ((-0.01, 0.2), (0.01, 0.2), "not decided"),
        ((0.01, 0.2), (0.0, 0.2), "not decided"),
        ((-0.01, 0.2), (-0.2, -0.01), "does not hold"),
        ((-0.2, 0.0), (-0.2, 0.0), "does not hold"),
        ((0.01, 0.2), (-0.2, -0.01), "holds in part"),
    ],
)
def test_above_zero_is_the_whole_interval(click, watched, verdict):
    above, _, _ = aims(spread("Click", *click), spread("WatchTime", *watched))
    assert above.verdict == verdict


def test_a_signal_that_never_fires_is_not_above_zero():
    above, _, _ = aims(spread("Click", 0.1, 0.2))
    assert above.verdict == "not decided"
    assert "WatchTime not estimable" in above.measured


@pytest.mark.parametrize(
    ("outcome", "verdict", "named"),
    [
        ("better", "holds", "worse: none"),
        ("no difference", "holds", "worse: none"),
        ("worse", "does not hold", "worse: Like"),
        ("not estimable", "not decided", "not estimable: Like"),
    ],
)
def test_a_signal_that_is_significantly_worse_matters(outcome, verdict, named):
    _, harmless, _ = aims(spread("Click", 0.1, 0.2), line("Like", -0.1, outcome))
    assert harmless.verdict == verdict
    assert named in harmless.measured


def test_worse_outweighs_not_estimable():
    _, harmless, _ = aims(line("Like", -0.1, "worse"), line("Follow", 0.1, "not estimable"))
    assert harmless.verdict == "does not hold"


@pytest.mark.parametrize(("share", "verdict"), [(0.5, "holds"), (0.499, "does not hold"), (0.51, "holds")])
def test_an_effective_share_of_one_half_is_enough(share, verdict):
    assert aims(line("Click", 0.1), share=share)[2].verdict == verdict


def test_every_method_has_the_same_number_of_settings():
    for quick in (False, True):
        methods = framework.load("kuairand-comparison", quick).parameters["methods"]
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
