"""The comparison of methods on a log: what is chosen, what stands at equal shares, and what the claims say."""

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from moac.cli.main import main
from moac.kuairand import generate
from moac.offline.evaluate import evaluate
from moac.offline.evaluation import Line
from moac_studies import framework, kuairand_search
from moac_studies import kuairand_comparison as comparison
from moac_studies import recorded as recorded_module
from moac_studies.kuairand_search import MAIN, OnUsers, beside
from moac_studies.recorded import record
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
    return OnUsers(name, lines, share, "trusted", against, gain, draws=draws)


def test_the_admissible_setting_with_the_largest_gain_is_kept():
    found = [
        judgement("near", 0.9, 0.01, 0.0, gain=0.01),
        judgement("far", 0.6, 0.05, 0.0, gain=0.04),
        judgement("too far", 0.3, 0.2, 0.0, against=("a share of 0.3",), gain=0.2),
    ]
    assert kuairand_search.best(found).name == "far"
    assert kuairand_search.best(found[2:]).name == "too far"


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


def test_judgements_survive_json():
    own = judgement("a", 0.9, 0.1, 0.2, against=("why",), common=1.0)
    assert OnUsers.of_dict(json.loads(json.dumps(own.as_dict()))) == own


def test_a_lead_is_a_paired_difference_and_a_cost_leads_downwards():
    """What the draws of users have in common cancels; what they do not have is in the interval."""
    one, other = judgement("a", 0.9, 0.3, -0.2, common=9.0, noise=0.2), judgement("b", 0.9, 0.1, 0.1, common=9.0)
    found = kuairand_search.leads(one, other)
    assert list(found) == ["Click", "Dislike"]
    assert found["Click"].value == pytest.approx(0.2)
    assert (found["Click"].low, found["Click"].high) == pytest.approx((0.2 - 0.19, 0.2 + 0.19))
    assert found["Dislike"].value == pytest.approx(0.3)
    assert (found["Dislike"].low, found["Dislike"].high) == pytest.approx((0.3 - 0.19, 0.3 + 0.19))
    lost = replace(other, lines=(replace(other.lines[0], outcome="not estimable"), other.lines[1]))
    assert list(kuairand_search.leads(one, lost)) == ["Dislike"]


@pytest.mark.parametrize(
    ("learner", "noise", "verdict", "words"),
    [
        ((0.2, 0.0), 0.05, "holds", "it does: "),
        ((0.2, 0.0), 0.2, "does not hold", "it does not: "),
        ((0.1, 0.0), 0.01, "does not hold", "it does not: "),
        ((0.0, 0.0), 0.01, "does not hold", "it does not: "),
        ((0.2, 0.2), 0.05, "holds in part", "only in part, Dislike is behind"),
        ((0.0, -0.2), 0.05, "holds in part", "only in part, Click is behind"),
    ],
)
def test_a_learner_that_does_not_beat_the_tilt_is_said_not_to(learner, noise, verdict, words):
    """Ahead in a signal and behind in none; what is not decided does not beat it."""
    results = {
        "TSCAC": judgement("TSCAC", 0.8, *learner, common=9.0, noise=noise),
        beside("TSCAC"): judgement("tilt", 0.8, 0.1, 0.0, common=9.0),
    }
    claim = comparison.beats("TSCAC", results, NAMES, "Test users")
    assert (claim.verdict, claim.claim) == (verdict, "Test users: TSCAC beats the tilt")
    assert claim.measured.startswith(words)
    assert comparison.beats("TSCAC", results, [], "").verdict == "does not hold"


@pytest.mark.parametrize(
    ("corners", "verdict"), [(21, "does not hold"), (13, "does not hold"), (12, "holds"), (0, "holds")]
)
def test_weights_of_first_batches_are_degenerate_where_most_are_corners(corners, verdict):
    first = np.full((24, 4), 0.25)
    first[:corners] = np.eye(4)[1]
    claim = comparison.degenerate(first)
    assert claim.verdict == verdict
    assert f"{corners} of 24 first batches" in claim.measured


def test_the_papers_baseline_is_a_mean_of_rows_to_the_last_digit():
    paper = framework.load("kuairand-comparison").parameters["paper"]
    assert comparison.printed_means(paper).verdict == "does not hold"
    values = {**paper["values"], "Behavior-Clone": [0.535, *paper["values"]["Behavior-Clone"][1:]]}
    claim = comparison.printed_means({**paper, "values": values})
    assert (claim.verdict, claim.measured[:6]) == ("not decided", "6 of 7")


def test_statements_of_the_paper_are_judged_by_paired_differences():
    names = ("Click", "Like", "Follow", "Comment", "Forward", "Dislike", "WatchTime")

    def own(name, *changes):
        lines = tuple(line(s, c, cost=s == "Dislike") for s, c in zip(names, changes, strict=True))
        return OnUsers(
            name, lines, 0.8, "trusted", draws={s: c + 0 * USERS for s, c in zip(names, changes, strict=True)}
        )

    results = {
        MAIN: own(MAIN, 0.1, 0.1, 0.1, 0.1, -0.1, -0.1, 0.1),
        "PDPG": own("PDPG", 0.0, 0.0, 0.0, 0.0, -0.2, 0.3, 0.3),
        "TSCAC": own("TSCAC", 0.2, 0.0, 0.0, 0.0, -0.2, -0.3, 0.0),
        comparison.FIXED: own("fixed", 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2),
    }
    paper = framework.load("kuairand-comparison").parameters["paper"]
    verdicts = {claim.claim[:3]: claim.verdict for claim in comparison.statements(paper, results)}
    assert verdicts == {"(a)": "holds", "(b)": "holds in part", "(c)": "holds", "Abl": "does not hold"}
    rare = replace(results[MAIN], lines=tuple(replace(x, outcome="not estimable") for x in results[MAIN].lines))
    again = comparison.statements(paper, {**results, MAIN: rare})
    assert {claim.verdict for claim in again} == {"not decided"}


def test_learners_see_the_papers_signals_and_states_stay():
    dataset = generate.log(600, 1, model=MODEL, num_users=60).dataset()
    some = kuairand_search.learned_from(dataset, ["WatchTime", "Click"])
    assert some.signal_names == ("Click", "WatchTime")
    np.testing.assert_array_equal(some.reward, dataset.reward[:, [0, 6]])
    assert some.tables is dataset.tables
    assert some.fingerprint != dataset.fingerprint
    assert kuairand_search.learned_from(dataset, dataset.signal_names) is dataset
    assert kuairand_search.learned_from(dataset, ["Click", "other"]) is dataset


@pytest.mark.parametrize(("fitted", "start"), [(True, "behaviour"), (False, "random")])
def test_policies_start_from_the_behaviour_model_where_there_is_one(monkeypatch, fitted, start):
    dataset, seen = generate.log(600, 1, model=MODEL, num_users=60).dataset(), []
    assert dataset.behaviour is None
    dataset = replace(dataset, behaviour="a model") if fitted else dataset
    learned = {"theta.0": np.zeros((1, 2, 3)), "weights": np.zeros((1, 1, 2))}
    monkeypatch.setattr(kuairand_search, "_learn", lambda *given: seen.append(given[-1]["start"]) or learned)
    parameters = {"methods": {"MOAC": {"learner": "moac"}}, "training": {"discount": 0.5}, "paper": {"signals": ["?"]}}
    work = SimpleNamespace(keep=lambda label, identity, make: make())
    kuairand_search.Bench(dataset, parameters, 0, work).trained("MOAC", {})
    assert seen == [start]


def aims(*lines, verdict="trusted"):
    return comparison.aims(OnUsers("MOAC", lines, 0.9, verdict), ["Click", "WatchTime"], "Test users")


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


@pytest.mark.parametrize(
    ("level", "verdict"), [("trusted", "holds"), ("with care", "not decided"), ("not trusted", "does not hold")]
)
def test_an_estimate_that_is_not_trusted_is_no_effect(level, verdict):
    assert aims(line("Click", 0.1), verdict=level)[2].verdict == verdict


def test_every_method_has_the_same_number_of_settings():
    for quick in (False, True):
        methods = framework.load("kuairand-comparison", quick).parameters["methods"]
        assert {len(table["search"]) for table in methods.values()} == {3}
        assert {"PDPG", "TSCAC", MAIN, comparison.FIXED, comparison.COMPLETE} < set(methods)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--trials", "0"], "`trials` must be a whole number of at least 1"),
        (["--iterations", "0"], "`iterations` must be a whole number of at least 1"),
        ([], "not a dataset: it has no manifest.json"),
        (["--protocol", "tscac-compat", "--test"], "takes --iterations and --seed only"),
    ],
)
def test_mistakes_of_the_command(tmp_path, capsys, more, message):
    assert main(["offline", "compare", str(tmp_path / "nothing"), "--out", str(tmp_path / "out"), *more]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


_CHANGE = re.compile(r"([+-]\d+\.\d) % \[([+-]?\d+\.\d), ([+-]?\d+\.\d)\]")
_NAMES = ("kuairand", "offline-training", "personal", "reproducing", "own-log")
_DOCUMENTS = ("README.md", *(f"docs/{name}.md" for name in _NAMES))


def changes(part):
    """Every change with its interval in a record, as documents write it."""
    if isinstance(part, dict):
        part = list(part.values())
    if not isinstance(part, list):
        return set()
    if len(part) >= 3 and all(isinstance(x, float) for x in part):
        return {"{:+.1f} % [{:+.1f}, {:+.1f}]".format(*part[-3:])}
    return set().union(*map(changes, part))


def test_every_change_in_the_documents_was_recorded():
    """In paragraphs that speak of KuaiRand's signals or of MOAC."""
    recorded, count = changes(record("kuairand")) | changes(record("personal")), 0
    for name in _DOCUMENTS:
        text = (Path(__file__).parents[2] / name).read_text("utf-8").replace("−", "-").replace("**", "")
        for paragraph in text.split("\n\n"):
            if any(word in paragraph for word in ("KuaiRand", "Click", "MOAC")):
                for value, *ends in _CHANGE.findall(paragraph):
                    low, high = (end if end[0] in "+-" else f"+{end}" for end in ends)
                    assert f"{value} % [{low}, {high}]" in recorded, f"{name}: {value} % [{low}, {high}]"
                    count += 1
    assert count > 50


def test_recorded_numbers_stay_small():
    sizes = [path.stat().st_size for path in Path(recorded_module.__file__).with_name("recorded").iterdir()]
    assert sum(sizes) <= 120 * 1024
