"""`moac evaluate` of a run on a log: card, page and access log, and what it says when something is wrong."""

import contextlib
import io
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

import moac
from moac import files
from moac.cli import main as cli
from moac.logs import LoggedDataset
from moac.offline import ncis
from moac.offline.access_log import ACCESS_LOG, record_access
from tests.helpers.browser import PROGRAM, Browser
from tests.helpers.kuairand import generated
from tests.helpers.log_policies import modelled, saved
from tests.helpers.run_folders import HOSTILE, invented, rewrite


def moac_evaluate(*arguments):
    return cli.main(["evaluate", *map(str, arguments)])


@dataclass(frozen=True)
class Evaluated:
    run: Path
    data: Path
    text: str

    def card(self, split):
        return json.loads((self.run / f"card-{split}.json").read_text())


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A built dataset with a name that tries to run; its random log gives rows whose propensities are known."""
    folder = tmp_path_factory.mktemp("data")
    source = generated(folder / "source", rows=2500, num_users=250, num_videos=40, random_rows=1500)
    built = ["data", "kuairand", "build", source / "data", "--out", folder / "built", "--actions", "10"]
    assert cli.main([*map(str, built), "--json"]) == 0
    rewrite(folder / "built" / "manifest.json", {"name": HOSTILE})
    return folder / "built"


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    return saved(modelled(LoggedDataset.from_parquet(data)), tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="module")
def judged(run, data, tmp_path_factory):
    """A run that was judged by validation users, and, after somebody had looked at them, by test users."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert moac_evaluate(run, "--trial", 1, "--control", "hour", "time", "--json") == 0
        assert not (run / ACCESS_LOG).exists()
        assert not (data / ACCESS_LOG).exists()
        other = SimpleNamespace(fingerprint="abc", folder=str(data))
        record_access(tmp_path_factory.mktemp("other"), other, {}, {})
        assert moac_evaluate(run, "--split", "test", "--cap", "5") == 0
    return Evaluated(run, data, said.getvalue())


def test_the_card_says_all(judged):
    card, dataset = judged.card("validation"), LoggedDataset.from_parquet(judged.data)
    assert card["split"]["rows"] == len(dataset.rows("validation"))
    assert card["split"]["seed"] == 0
    assert card["data"]["fingerprint"].startswith(dataset.fingerprint)
    assert card["behaviour"]["mean_weight"]["Behavior-Clone"] == pytest.approx(1, abs=1e-6)
    assert card["report"]["options"]["cap"] == 10
    assert card["report"]["sweep"]["caps"][-1] == "inf"
    assert card["report"]["policies"]["MOAC"]["doubly_robust"]
    assert set(card["signals"]) == set(dataset.signal_names)
    assert card["verdict"] == card["methods"]["MOAC"]["verdict"] in ("trusted", "with care", "not trusted")
    own = card["signals"]["Click"]
    assert {"change", "interval", "effect", "controls", "sensitivity", "balance", "tails", "random_exposure"} <= set(
        own
    )
    assert list(own["controls"]) == ["earlier rewards", "later rewards", "hour", "time"]
    assert own["controls"]["hour"]["no_power"] == "it is an input of the behaviour model"
    assert card["looks"] is None
    assert card["seeds"] == {"MOAC": 1}
    line = next(line for line in judged.text.splitlines() if line.startswith("{"))
    assert card.items() <= json.loads(line).items()


def test_python_gives_the_numbers_of_the_command(judged):
    evaluated = moac.evaluate(judged.run, trials=[1], control=["hour", "time"])
    assert files.finite(evaluated.card(), name_infinities=True)["methods"] == judged.card("validation")["methods"]
    assert (
        files.finite(evaluated.card(), name_infinities=True)["report"]["policies"]
        == judged.card("validation")["report"]["policies"]
    )


def test_the_table_says_what_matters(judged):
    for word in (
        "MOAC (2 seeds)",
        "Behavior-Clone",
        "Click",
        "WatchTime",
        "not estimable",
        "effective share of rows",
        "earlier rewards",
    ):
        assert word in judged.text


def test_every_look_at_test_users_is_noted(judged):
    assert "test users were accessed 2 times, 1 of them for this run" in judged.text
    assert len((judged.data / ACCESS_LOG).read_text().splitlines()) == 2
    assert len((judged.run / ACCESS_LOG).read_text().splitlines()) == 1
    card = judged.card("test")
    assert (card["test_looks"], card["report"]["options"]["cap"]) == (2, 5)
    (own,) = [one for one in card["looks"] if one["run"] == str(judged.run)]
    assert own["options"] | {"cap": 5, "trial": None, "draws": 1000} == own["options"]
    assert own["policies"] == card["policies"] != judged.card("validation")["policies"]
    assert own["data"] == card["data"]["fingerprint"]


@pytest.mark.skipif(PROGRAM is None, reason="no Chromium here: apt-get install chromium runs these tests")
def test_the_page_in_a_browser(judged):
    page = judged.run / "evaluation-test.html"
    with Browser() as browser:
        for width, dark in ((375, True), (1280, False)):
            visit = browser.visit(page, width, dark)
            assert visit.errors == []
            assert visit.requests == [page.as_uri()]
            assert visit.evaluate("document.documentElement.scrollWidth") <= width
            assert visit.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 0)")
            assert visit.evaluate("document.images.length") == 4
            assert visit.evaluate("document.title") != "owned"
        headings = visit.evaluate("[...document.querySelectorAll('h2')].map(h => h.textContent)")
        assert headings == ["Results", "Figures", "Numbers", "Details"]
        assert visit.evaluate("document.querySelectorAll('#table-1 tbody tr').length") == 9  # signals
        text = visit.evaluate("document.body.innerText")
    for words in (
        "accessed 2 times",
        "Behaviour model",
        "Limits of the estimate",
        "Cap sweep",
        "Negative controls",
        "Two behaviour models",
    ):
        assert words in text


def test_a_look_is_noted_before_there_are_numbers(run, tmp_path, monkeypatch):
    def failing(*_):
        raise KeyboardInterrupt

    copy = shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("*test*", ACCESS_LOG))
    monkeypatch.setattr(ncis, "accumulate", failing)
    assert moac_evaluate(copy, "--split", "test") == 130
    assert len((copy / ACCESS_LOG).read_text().splitlines()) == 1
    assert not (copy / "card-test.json").exists()


def test_mistakes_are_one_line(run, tmp_path, capsys):
    copy = shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("card*", "evaluation*", ACCESS_LOG))
    for arguments, message in (
        ((copy, "--data", tmp_path / "nowhere"), "is not a dataset"),
        ((copy, "--episodes", 10), "`--episodes` and `--reference` are for runs on environments"),
        ((copy, copy), "`RUN` must be one run where it is on a log, got 2"),
        ((copy, "--cap", 0), "`cap` must be positive, got 0.0"),
        ((copy, "--split", "train"), "`--split` must be one of validation, test, got 'train'"),
        ((copy, "--trial", 7), "`trial` must be a whole number in [0, 2), got 7"),
        ((copy, "--control", "age"), "`control` must be one of tab, hour, day, time, got 'age'"),
    ):
        assert moac_evaluate(*arguments) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert message in said.err
        assert said.err.count("\n") == 1
    assert not list(copy.glob("card-*"))
    assert not (copy / ACCESS_LOG).exists()


def test_options_of_logs_are_refused_for_environments(tmp_path, capsys):
    assert moac_evaluate(invented(tmp_path / "run"), "--split", "test") == 2
    assert "are for runs on logs" in capsys.readouterr().err
