"""The page of an experiment."""

from moac.cli.report import Report
from moac.report.page import Claim
from moac.report.pages import experiment


def test_an_experiment_has_a_page_of_its_own(tmp_path):
    about = experiment.About("e", "Three <models>", 3, "S", "W", {"trials": 5}, {"beta": 0.5}, seconds=1.0)
    findings = experiment.Findings((Claim("it falls", "by half", "holds"),), (), ())
    experiment.write(about, findings, tmp_path)
    Report(run_path=tmp_path, json=False).run()
    page = (tmp_path / "report.html").read_text()
    assert "<h1>Three &lt;models&gt;</h1>" in page
    assert "it falls" in page
