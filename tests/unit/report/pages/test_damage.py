"""Files that `report` reads with an entry of another kind: a page, or one line that names the folder."""

import json

import pytest

from moac import files
from moac.report import pages
from moac.report.page import Claim, Figure, Page, Table
from moac.report.pages import experiment
from tests.helpers.damage import damaged
from tests.helpers.run_folders import SVG, invented

INTERVAL = {"low": 0.0, "high": 1.5, "weights": [0.5, 0.5]}
CERTIFICATE = INTERVAL | {
    "metric": "theta",
    "norms": [0.5, 0.25],
    "confidence": 0.95,
    "episodes": 100,
    "objective": "discounted return, γ = 0.9",
    "objectives": ["objective 1", "objective 2"],
    "rarest": 0.25,
    "natural": INTERVAL | {"metric": "fisher", "zeta": 0.01},
    "untrained": INTERVAL,
    "ratio": [0.0, None],
    "looks": [[100, 0.0, 1.5]],
    "trial": 0,
    "preference": [0.5, 0.5],
    "sentence": "A sentence.",
    "warning": None,
}
CERTIFICATES = {"certificates": [CERTIFICATE | {"each": [CERTIFICATE | {"each": []}]}]}


def survives(path):
    """Every damage of a JSON file ends in a page, or in one line that names a file of the folder."""
    whole, refused = json.loads(path.read_text()), 0
    pages.write(path.parent)
    for place, data in damaged(whole):
        path.write_text(json.dumps(data))
        try:
            pages.write(path.parent)
        except ValueError as error:
            refused += 1
            assert str(path.parent) in str(error), place
            assert "\n" not in str(error), place
    assert refused


@pytest.mark.parametrize("name", ["config.json", "provenance.json", "certificate.json"])
def test_every_damage_of_a_run_ends_in_a_page_or_one_line(name, tmp_path):
    folder = invented(tmp_path / "run")
    files.write_json(folder / "certificate.json", CERTIFICATES)
    survives(folder / name)


def test_a_list_in_place_of_a_number_is_named_with_its_file(tmp_path):
    folder = invented(tmp_path / "run")
    files.write_json(folder / "certificate.json", {"certificates": [CERTIFICATE | {"rarest": [1, 2]}]})
    with pytest.raises(files.DamagedError, match=r"certificate\.json is damaged: .* got \[1, 2\]\.$"):
        pages.write(folder)


def test_every_damage_of_an_experiment_ends_in_a_page_or_one_line(tmp_path):
    about = experiment.About("e", "T", 3, "S", "W", {"trials": 5}, {"beta": 0.5}, seconds=1.0)
    table = Table("t", "c", ("a", "b"), (("x", 1.0),))
    experiment.write(about, experiment.Findings((Claim("it falls", "by half", "holds"),), (table,), ()), tmp_path)
    record = json.loads((tmp_path / "experiment.json").read_text())
    (tmp_path / "figures" / "drawing.svg").write_text(SVG)
    record["figures"] = [{"name": "F", "file": "drawing.svg", "caption": "C", "alt": "A"}]
    files.write_json(tmp_path / "experiment.json", record)
    survives(tmp_path / "experiment.json")


@pytest.mark.parametrize(
    "make",
    [
        lambda: Page([1], "s"),
        lambda: Page("t", "s", facts=(("a", [1]),)),
        lambda: Page("t", "s", details=(("a", {}),)),
        lambda: Table("t", "c", ("a",), (([1],),)),
        lambda: Table("t", "c", ([1],), ()),
        lambda: Figure("f", SVG, [1], "a"),
        lambda: Claim("c", [1], "holds"),
    ],
)
def test_a_page_shows_texts_and_numbers_alone(make):
    with pytest.raises(ValueError, match=r"must be texts or numbers, got (\[1\]|\{\})\.$"):
        make()
