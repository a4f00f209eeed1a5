"""The study that puts the paper's data table beside the data at hand."""

import json
from dataclasses import replace

import numpy as np
import pytest

from moac.cli.main import main
from moac.kuairand import generate
from moac.logs import LoggedDataset
from moac_studies import framework
from moac_studies import kuairand_statistics as statistics
from tests.helpers.kuairand import build

DATA = {"actions": 40, "split_seed": 0, "memory_limit": "1GB", "generated_rows": 8000}
PAPER = framework.load("kuairand-statistics").parameters["paper"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return generate.write(generate.Parameters(8000, num_users=600, num_videos=200), tmp_path_factory.mktemp("rows"))


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return framework.Workspace(tmp_path_factory.mktemp("study") / "tasks", lambda text: None)


@pytest.fixture(scope="module")
def found(files, work):
    return statistics.counted(DATA, 0, work, files)


def cells(table):
    return {row[0]: row[1:] for row in table.rows}


def test_the_papers_numbers_are_the_papers():
    """Its shares follow from its amounts."""
    names = ("Click", "Like", "Follow", "Comment", "Forward", "Dislike", "WatchTime")
    total = sum(PAPER[name] for name in names)
    shares = [55.25, 1.125, 0.044, 0.312, 0.076, 0.046, 43.15]
    np.testing.assert_allclose([100 * PAPER[name] / total for name in names], shares, atol=0.005)


def test_amounts_shares_and_rates_are_those_of_the_dataset(found, files, tmp_path):
    build(files, tmp_path / "data", actions=40)
    dataset = LoggedDataset.from_parquet(tmp_path / "data")
    rows = cells(statistics.findings(PAPER, found).tables[0])
    amounts = np.count_nonzero(dataset.reward, axis=0)[:7]  # the paper's
    for name, amount in zip(dataset.signal_names[:7], amounts, strict=True):
        assert rows[name][2] == f"{amount:,}"
        assert rows[name][3] == f"{amount / amounts.sum():.3%}"
        mean = abs(float(dataset.reward[:, dataset.signal_names.index(name)].mean(dtype=np.float64)))
        assert found.rates[name].value == pytest.approx(mean, rel=1e-5)
    assert rows["Click"][:2] == ("254,940", "55.247%")


def test_intervals_over_users_are_wider_where_a_users_rows_agree():
    user = np.repeat(np.arange(50), 8)
    alike = np.repeat(np.random.default_rng(0).integers(0, 2, 50), 8)[:, None].astype(float)
    (rate,) = statistics.rates_of(user, alike)
    by_hand = 1.96 * alike.std() / np.sqrt(50)
    assert rate.value == pytest.approx(alike.mean())
    assert rate.high - rate.value == pytest.approx(by_hand, rel=0.05)


def test_the_interval_of_a_count_is_the_exact_one():
    low, high = statistics.counted_interval(10, 1000)
    assert (low, high) == (pytest.approx(4.795e-3, rel=1e-3), pytest.approx(18.39e-3, rel=1e-3))  # Garwood, 1936


def with_rates(found, times=None):
    """A paper that counted what this data has, but for some signals, which it has so many times as often."""
    rows = 10_000_000
    counts = {name: round(rate.value * rows * (times or {}).get(name, 1)) for name, rate in found.rates.items()}
    return {**PAPER, **counts, "rows": rows}


RARE = ("Click", "Like", "Follow", "Comment", "Forward", "Dislike")


@pytest.mark.parametrize(
    ("times", "verdict"),
    [
        ({}, "not decided"),  # equality takes more than that no difference was seen
        ({"WatchTime": 9}, "not decided"),  # nobody knows what the paper counts
        ({"Click": 1.5}, "does not hold"),
        ({"Click": 0.5}, "does not hold"),
        ({"Like": 30}, "does not hold"),
        (dict.fromkeys(RARE, 30), "does not hold"),
    ],
)
def test_rates_differ_where_their_intervals_do_not_overlap(found, times, verdict):
    claim = statistics.same_rates(with_rates(found, times), found)
    assert claim.verdict == verdict
    apart = [name for name in times if name != "WatchTime"]
    assert all(name in claim.measured for name in apart)
    assert not any(name in claim.measured for name in RARE if name not in apart)


def test_intervals_that_touch_overlap_and_those_beside_each_other_do_not(found):
    low, high = statistics.counted_interval(PAPER["Click"], PAPER["rows"])
    beside = {"below": (0, low * 0.999), "above": (high * 1.001, 1)}
    touching = {"below": (0, low), "within": (low * 1.001, high * 0.999), "above": (high, 1)}
    for apart, cases in ((True, beside), (False, touching)):
        for name, ends in cases.items():
            rate = replace(found.rates["Click"], low=ends[0], high=ends[1])
            assert statistics.rates_differ(PAPER, replace(found, rates={"Click": rate}), "Click") == apart, name


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        (lambda paper: paper, "holds"),
        (lambda paper: {**paper, "Click": paper["WatchTime"], "WatchTime": paper["Click"]}, "holds in part"),
        (lambda paper: {**paper, "Like": paper["Follow"], "Follow": paper["Like"]}, "does not hold"),
        (lambda paper: {name: 10**6 - amount for name, amount in paper.items()}, "does not hold"),
    ],
)
def test_the_order_is_from_the_most_frequent(found, ours, verdict):
    amounts = ours({name: PAPER[name] for name in (*RARE, "WatchTime")})
    claim = statistics.same_order(PAPER, described(found, {name: {"amount": n} for name, n in amounts.items()}))
    assert claim.verdict == verdict
    assert claim.measured.endswith("in the paper Click > WatchTime > Like > Comment > Forward > Dislike > Follow")


def described(found, signals):
    """The same data with other counts of its signals."""
    parts = {"rows": {**found.description.manifest["parts"]["rows"], "signals": signals}}
    manifest = {**found.description.manifest, "parts": parts}
    return replace(found, description=replace(found.description, manifest=manifest))


@pytest.mark.parametrize(("click", "watched", "verdict"), [(0.5, 0.481, "holds"), (0.5, 0.479, "does not hold")])
def test_click_and_watch_time_together_have_nearly_all(found, click, watched, verdict):
    claim = statistics.imbalanced(described(found, {"Click": {"share": click}, "WatchTime": {"share": watched}}))
    assert claim.verdict == verdict


def test_what_is_counted_of_watch_time_is_relative_to_clicks(found):
    signals = np.zeros((4, 7))
    signals[:, 0], signals[:, -1] = [1, 1, 0, 0], [0, 0.9, 1.0, 1.8]
    rows = cells(statistics.watched_table({"WatchTime": 3, "Click": 4}, replace(found, signals=signals)))
    assert [value for (value,) in rows.values()] == pytest.approx([0.75, 1.5, 1.0, 0.5, 1.85])


def test_real_rows_are_judged_and_generated_ones_are_not(found, work, tmp_path):
    assert {claim.verdict for claim in statistics.findings(PAPER, found).claims} <= {
        "holds", "holds in part", "does not hold", "not decided"
    }  # fmt: skip
    generated = statistics.counted(DATA, 0, work, None)
    assert not generated.real
    shown = statistics.findings(PAPER, generated)
    assert {claim.verdict for claim in shown.claims} == {"not measured"}
    assert "generated" in cells(shown.tables[1])["log"][1]
    assert sorted(path.name[:5] for path in work.folder.iterdir()) == ["data-", "data-"]  # no rows left behind


def test_a_second_call_builds_nothing(found, files, work):
    def fail(text):
        raise AssertionError(text)

    again = statistics.counted(DATA, 0, framework.Workspace(work.folder, fail), files)
    assert again.description.manifest["content"] == found.description.manifest["content"]


def test_why_they_differ_is_said_with_the_counts(found, files):
    rows = cells(statistics.findings(PAPER, found).tables[1])
    log = found.description.manifest["logs"]["standard"]
    assert rows["exact duplicates"][1] == f"{log['duplicates']:,} dropped"
    assert rows["days"][1] == "2022-04-08 to 2022-05-08"
    assert rows["rows on them"][1] == f"{found.description.num_rows:,}"
    assert rows["numbers of a state"][1] == str(found.state)


def test_the_command_writes_a_report_from_the_folder_that_is_named(files, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(statistics.VARIABLE, str(files))
    out = tmp_path / "study"
    assert main(["reproduce", "kuairand-statistics", "--quick", "--out", str(out), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert len(summary["claims"]) == 3
    page = (out / "report.html").read_text()
    assert "Why they differ" in page
    assert {path.name for path in (out / "figures").iterdir()} == {
        f"{name}.{kind}" for name in ("rates", "description") for kind in ("svg", "png")
    }


def test_a_folder_that_is_named_and_not_there_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(statistics.VARIABLE, str(tmp_path / "nowhere"))
    assert main(["reproduce", "kuairand-statistics", "--out", str(tmp_path / "study")]) == 2
    assert "MOAC_KUAIRAND_DIR must be a folder with KuaiRand's files" in capsys.readouterr().err
