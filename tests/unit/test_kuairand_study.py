"""The study that puts the paper's data table beside the data at hand."""

import json

import numpy as np
import pytest

from moac.cli.main import main
from moac.kuairand import generate
from moac.logs import LoggedDataset, build
from moac.logs.building import Options
from moac_studies import spec, studies
from moac_studies.kuairand import judging, measure

DATA = {"actions": 40, "split_seed": 0, "memory_limit": "1GB", "generated_rows": 8000}
PAPER = spec.load("kuairand-statistics").parameters["paper"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return generate.write(generate.Order(8000, num_users=600, num_videos=200), tmp_path_factory.mktemp("rows"))


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return studies.Workspace(tmp_path_factory.mktemp("study") / "tasks", lambda text: None)


@pytest.fixture(scope="module")
def found(files, work):
    return measure.counted(DATA, 0, work, files)


def cells(table):
    return {row[0]: row[1:] for row in table.rows}


def test_the_papers_numbers_are_the_papers():
    """Its shares follow from its amounts."""
    names = ("Click", "Like", "Follow", "Comment", "Forward", "Dislike", "WatchTime")
    total = sum(PAPER[name] for name in names)
    shares = [55.25, 1.125, 0.044, 0.312, 0.076, 0.046, 43.15]
    np.testing.assert_allclose([100 * PAPER[name] / total for name in names], shares, atol=0.005)


def test_amounts_shares_and_rates_are_those_of_the_dataset(found, files, tmp_path):
    build(files, tmp_path / "data", Options(actions=40))
    dataset = LoggedDataset.from_parquet(tmp_path / "data")
    rows = cells(judging.findings(PAPER, found).tables[0])
    amounts = np.count_nonzero(dataset.reward, axis=0)
    for name, amount in zip(dataset.signal_names, amounts, strict=True):
        assert rows[name][2] == f"{amount:,}"
        assert rows[name][3] == f"{amount / amounts.sum():.3%}"
        mean = abs(float(dataset.reward[:, dataset.signal_names.index(name)].mean(dtype=np.float64)))
        assert found.rates[name].value == pytest.approx(mean, rel=1e-5)
    assert rows["Click"][:2] == ("254,940", "55.247%")


def test_intervals_over_users_are_wider_where_a_users_rows_agree():
    user = np.repeat(np.arange(50), 8)
    alike = np.repeat(np.random.default_rng(0).integers(0, 2, 50), 8)[:, None].astype(float)
    (rate,) = measure._rates(user, alike)
    by_hand = 1.96 * alike.std() / np.sqrt(50)
    assert rate.value == pytest.approx(alike.mean())
    assert rate.high - rate.value == pytest.approx(by_hand, rel=0.05)


def test_the_interval_of_a_count_is_the_exact_one():
    low, high = judging._counted_interval(10, 1000)
    assert (low, high) == (pytest.approx(4.795e-3, rel=1e-3), pytest.approx(18.39e-3, rel=1e-3))  # Garwood, 1936


def test_real_rows_are_judged_and_generated_ones_are_not(found, work, tmp_path):
    assert {claim.verdict for claim in judging.findings(PAPER, found).claims} <= {
        "holds", "holds in part", "does not hold"
    }  # fmt: skip
    generated = measure.counted(DATA, 0, work, None)
    assert not generated.real
    shown = judging.findings(PAPER, generated)
    assert {claim.verdict for claim in shown.claims} == {"not measured"}
    assert "generated" in cells(shown.tables[1])["log"][1]
    assert sorted(path.name[:5] for path in work.folder.iterdir()) == ["data-", "data-"]  # no rows left behind


def test_a_second_call_builds_nothing(found, files, work):
    def fail(text):
        raise AssertionError(text)

    again = measure.counted(DATA, 0, studies.Workspace(work.folder, fail), files)
    assert again.description.manifest["content"] == found.description.manifest["content"]


def test_why_they_differ_is_said_with_the_counts(found, files):
    rows = cells(judging.findings(PAPER, found).tables[1])
    log = found.description.manifest["logs"]["standard"]
    assert rows["exact duplicates"][1] == f"{log['duplicates']:,} dropped"
    assert rows["days"][1] == "2022-04-08 to 2022-05-08"
    assert rows["rows on them"][1] == f"{found.description.num_rows:,}"
    assert rows["numbers of a state"][1] == str(found.state)


def test_the_command_writes_a_report_from_the_folder_that_is_named(files, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(measure.VARIABLE, str(files))
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
    monkeypatch.setenv(measure.VARIABLE, str(tmp_path / "nowhere"))
    assert main(["reproduce", "kuairand-statistics", "--out", str(tmp_path / "study")]) == 2
    assert "MOAC_KUAIRAND_DIR must be a folder with KuaiRand's files" in capsys.readouterr().err
