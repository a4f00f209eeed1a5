"""The report: what it says, that it stands alone, and that nothing in a run's folder can act through it."""

import base64
import json
import re
from html.parser import HTMLParser
from importlib import resources

import numpy as np
import pytest

from moac.cli.report import Report
from moac.report import html, numbers, pages
from moac.report.page import VERDICTS, Claim, Figure, Page, Table
from moac.report.pages import experiment
from moac.report.pages import run as run_page
from tests.helpers.run_folders import HOSTILE, SVG, invented, make_hostile, rewrite, rewrite_history

VOID = {"meta", "link", "img"}
LOADING = {"src", "href", "srcset", "data", "action", "poster", "background", "style"}
DEEP_HOSTILE_PAGE = Page(
    HOSTILE,
    HOSTILE,
    ((HOSTILE, HOSTILE),),
    HOSTILE,
    (Claim(HOSTILE, HOSTILE, "holds", HOSTILE), Claim(HOSTILE, HOSTILE, "does not hold", "</td>" + HOSTILE)),
    (Figure(HOSTILE, SVG, HOSTILE, HOSTILE),),
    (Table(HOSTILE, HOSTILE, (HOSTILE, HOSTILE), ((HOSTILE, HOSTILE),)),),
    ((HOSTILE, HOSTILE),),
)


class Outline(HTMLParser):
    """Tags, attributes and text, as a browser's parser sees them; every tag must close where it should."""

    def __init__(self, content):
        super().__init__()
        self.tags, self.attributes, self.text, self._open = [], [], "", []
        self.feed(content)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.text += data

    def values(self, tag, name):
        return [value for t, n, value in self.attributes if (t, n) == (tag, name)]


@pytest.fixture
def folder(tmp_path):
    return invented(tmp_path / "run")


def assert_stands_alone(content):
    outline = Outline(content)
    assert not {"script", "iframe", "object", "embed", "base", "form", "audio", "video"} & set(outline.tags)
    assert not [name for _, name, _ in outline.attributes if name.startswith("on")]
    for tag, name, value in outline.attributes:
        if name in LOADING:
            assert value.startswith(("data:", "#")), (tag, name, value[:80])
    assert "@import" not in content
    assert "url(" not in content
    assert outline.values("meta", "content")[0].startswith(
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    )
    return outline


def test_hostile_text_is_shown_everywhere_and_makes_no_tag():
    plain = Page(
        *("t", "s", (("a", "b"),), "n"),
        claims=(Claim("c", "m", "holds", "e"), Claim("c", "m", "does not hold", "e")),
        figures=(Figure("f", SVG, "c", "a"),),
        tables=(Table("t", "c", ("h", "h"), (("r", "r"),)),),
        details=(("d", "d"),),
    )
    outline = assert_stands_alone(html.render(DEEP_HOSTILE_PAGE))
    extra = ["a"]  # evidence that names a figure becomes a link
    assert sorted(outline.tags) == sorted(Outline(html.render(plain)).tags + extra)
    assert outline.text.count(HOSTILE) == 22
    assert outline.values("img", "alt") == [HOSTILE]
    assert "49" not in outline.text


def test_a_hostile_folder_is_shown_and_makes_no_tag(folder):
    tags = Outline(html.render(run_page.of_run(folder))).tags
    make_hostile(folder)
    outline = assert_stands_alone(html.render(run_page.of_run(folder)))
    assert sorted(set(outline.tags)) == sorted(set(tags))
    assert outline.text.count(HOSTILE) >= 8


def test_the_drawing_is_carried_as_an_image(folder):
    (source,) = Outline(html.render(run_page.of_run(folder))).values("img", "src")
    assert source.startswith("data:image/svg+xml;base64,")
    assert base64.b64decode(source.partition(",")[2]).decode() == SVG


def test_halves_of_surrogate_pairs_can_be_written(folder):
    content = (folder / "config.json").read_text().replace('"name": "model"', '"name": "a\\ud800b"')
    (folder / "config.json").write_text(content)
    pages.write(folder)
    assert "<h1>a?b</h1>" in (folder / "report.html").read_text()


def test_an_empty_page_has_no_empty_parts():
    outline = assert_stands_alone(html.render(Page("Title", "Summary.")))
    assert outline.tags.count("h1") == 1
    assert not {"h2", "table", "figure", "dl", "nav"} & set(outline.tags)


def test_headings_are_in_order_and_links_lead_somewhere():
    claims = (Claim("c", "m", "holds", "Fig"), Claim("c", "m", "not measured", "Tab"))
    page = Page(
        "T", "S", (), None, claims, (Figure("Fig", SVG, "c", "a"),), (Table("Tab", "c", ("h",), ()),), (("a", 1),)
    )
    outline = assert_stands_alone(html.render(page))
    assert [tag for tag in outline.tags if re.fullmatch(r"h\d", tag)] == ["h1"] + ["h2"] * 4
    targets = {value for _, name, value in outline.attributes if name == "id"}
    links = [link.removeprefix("#") for link in outline.values("a", "href")]
    assert set(links) <= targets
    assert {"main", "figure-1", "table-1"} <= set(links)


def test_every_verdict_has_its_word_and_its_shape():
    content = html.render(Page("T", "S", claims=tuple(Claim("c", "m", verdict) for verdict in VERDICTS)))
    badges = re.findall(r'<td role="cell"><span class="verdict [\w-]+"><svg.*?d="(.*?)"/></svg>(.*?)</span>', content)
    assert [word for _, word in badges] == list(VERDICTS)
    assert len({shape for shape, _ in badges}) == len(VERDICTS)


def test_verdicts_are_counted():
    claims = tuple(Claim("c", "m", verdict) for verdict in ("holds", "does not hold", "holds"))
    tally = re.search(r'class="tally".*?</ul>', html.render(Page("T", "S", claims=claims)), re.DOTALL)
    assert tally is not None
    assert re.findall(r"</svg>(.*?)</span>", tally[0]) == ["2 hold", "1 does not hold"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (float("nan"), "–"),
        (None, "–"),
        (float("-inf"), "−∞"),
        (0.0, "0"),
        (-0.25, "−0.25"),
        (1 / 3, "0.3333"),
        (5.584e-7, "5.584 × 10⁻⁷"),
        (123456.0, "1.235 × 10⁵"),
        (9.99996, "10"),
        (2000, "2000"),
        (2_000_000, "2\u202f000\u202f000"),
        (np.int64(-3), "−3"),
        (np.float32(0.5), "0.5"),
        (True, "yes"),
        ("as it is -1", "as it is -1"),
    ],
)
def test_values_as_people_read_them(value, expected):
    assert numbers.text(value) == expected


@pytest.mark.parametrize(
    ("mean", "half", "expected"),
    [
        (-0.010365, 0.00146, "−0.0104 ± 0.0015"),
        (5.74e-7, 8.3e-8, "(5.74 ± 0.83) × 10⁻⁷"),
        (123.4, 21.0, "123 ± 21"),
        (1.0, 0.0, "1.000 ± 0.000"),
        (0.0, 0.0, "0.000 ± 0.000"),
        (1.0, 1e-12, "1 ± 1.0 × 10⁻¹²"),
        (0.5, float("nan"), "0.5"),
        (float("nan"), float("nan"), "–"),
    ],
)
def test_a_mean_with_its_interval(mean, half, expected):
    assert numbers.plus_minus(mean, half) == expected


def test_unknown_numbers_are_dashes_in_cells_and_facts():
    page = Page(
        "T", "S", (("fact", float("nan")),), tables=(Table("t", "c", ("a", "b"), (("x", float("nan")), ("y", None))),)
    )
    content = html.render(page)
    assert content.count(">–<") == 3
    assert "nan" not in Outline(content).text
    assert '<td class="number">–</td>' in content


def test_columns_of_numbers_stand_to_the_right_and_words_do_not():
    table = Table("t", "c", ("a", "b", "c", "d"), (("x", 1.5, "(5 ± 1) × 10⁻⁷", "steady"), ("y", -2, None, "2 rise")))
    content = html.render(Page("T", "S", tables=(table,)))
    assert re.findall(r'<th scope="col"( class="number")?>', content) == ["", ' class="number"', ' class="number"', ""]


def test_the_page_of_a_run_says_what_was_run_and_came_out(folder):
    page = run_page.of_run(folder)
    facts = dict(page.facts)
    assert page.title == "model"
    assert "momentum η = 1/t trained 3 independent policies for 4 iterations, discounted, γ = 0.9." in page.summary
    assert "return of objective 1 rose between iterations 1 and 4; that of the others did not." in page.summary
    assert (facts["Trials"], facts["Iterations"], facts["Seed"]) == (3, 4, "7")
    assert facts["Environment steps"] == 3 * 4 * (1 * 2 + 3)
    assert facts["Steps that hurt an objective"] == "16.7 % (1 of 6 logged)"
    assert facts["Stopped trials"] == "2 of 3"
    assert page.notice is not None
    assert "2 of 3 trials stopped, the first at iteration 2" in page.notice
    assert dict(page.details)["momentum"] == "1/t"


def test_the_table_of_returns_holds_students_interval(folder):
    returns, signals = run_page.of_run(folder).tables
    half = 4.302652729911275 / np.sqrt(3)  # 95 % of Student's t with 2 degrees of freedom; the trials end at 1, 2 and 3
    assert returns.header == ("Objective", "Iteration 1", "Iteration 4", "Change", "Last weight λ")
    assert returns.rows[0][2] == f"2.0 ± {half:.1f}"
    assert returns.rows[0][3] == f"2.0 ± {half:.1f}"
    assert returns.rows[1][3] == "0.000 ± 0.000"
    assert [row[0] for row in signals.rows][:2] == [
        "Stationarity gap, true gradient",
        "Stationarity gap, stationary-law direction",
    ]


def test_what_a_run_does_not_know_is_a_dash(folder):
    rewrite_history(folder, {"gap": np.full((3, 2), np.nan), "smallest_alignment": np.full((3, 2), np.nan)})
    (folder / "policy.safetensors").unlink()
    page = run_page.of_run(folder)
    assert page.tables[1].rows[0][1:] == ("–", "–")
    assert dict(page.facts)["Steps that hurt an objective"] == "–"
    assert dict(page.facts)["Stopped trials"] == "–"
    assert page.notice is None


@pytest.mark.parametrize("damage", ["missing", "cut off", "not a text"])
def test_a_figure_that_cannot_be_used_is_drawn_again(folder, damage):
    path = folder / "figures" / "training.svg"
    {
        "missing": path.unlink,
        "cut off": lambda: path.write_text(SVG[:-8]),
        "not a text": lambda: path.write_bytes(b"\xff\xfe<svg></svg>"),
    }[damage]()
    (figure,) = run_page.of_run(folder).figures
    assert len(figure.svg) > 10_000
    assert figure.svg == run_page.of_run(folder).figures[0].svg


def damaged(name, content):
    return lambda folder: (folder / name).write_text(content)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damaged("config.json", "{"), r"config\.json is damaged"),
        (damaged("config.json", "[]"), r"config\.json is damaged: it has no format number"),
        (lambda f: rewrite(f / "config.json", {"problem.objectives": 3}), r"`problem\.objectives` is missing"),
        (lambda f: rewrite(f / "config.json", {"config.momentum": "often"}), r"config\.json is wrong: `momentum`"),
        (
            lambda f: rewrite(f / "config.json", {"config.actor_batch_size": None}),
            r"`config\.actor_batch_size` is missing",
        ),
        (lambda f: rewrite(f / "config.json", {"trials": 5}), r"history\.safetensors is damaged: `returns` has shape"),
        (lambda f: rewrite_history(f, {"gap": None}), r"history\.safetensors is damaged: 'gap' is missing"),
        (lambda f: rewrite_history(f, {"iteration": np.zeros(0, int)}), r"`iteration` has shape \(0,\)"),
        (damaged("history.safetensors", "x"), r"history\.safetensors is damaged"),
        (lambda f: (f / "history.safetensors").unlink(), r"has not finished: continue it with moac resume"),
        (lambda f: (f / "provenance.json").unlink(), r"provenance\.json is missing"),
        (damaged("provenance.json", '{"versions": 3}'), r"provenance\.json is damaged: `versions`"),
        (damaged("policy.safetensors", "x"), r"policy\.safetensors is damaged"),
        (lambda f: (f / "config.json").unlink(), r"neither a run nor an experiment"),
    ],
)
def test_what_is_missing_or_damaged_is_named_in_one_line(folder, damage, message):
    damage(folder)
    with pytest.raises(ValueError, match=message) as caught:
        Report(path=folder, json=False).run()
    assert "\n" not in str(caught.value)
    assert not (folder / "report.html").exists()


def test_a_path_that_is_no_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is not a folder"):
        Report(path=tmp_path / "nowhere", json=False).run()


def test_the_command_writes_the_page_again_and_says_where(folder, capsys):
    (folder / "report.html").write_text("old")
    assert Report(path=folder, json=True).run() == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"report": str(folder / "report.html")}
    content = (folder / "report.html").read_text()
    assert content.startswith("<!doctype html>")
    assert Report(path=folder, json=False).run() == 0
    assert capsys.readouterr().out == f"report: {folder / 'report.html'}\n"
    assert (folder / "report.html").read_text() == content
    assert not list(folder.glob(".*"))


def test_an_experiment_has_a_page_of_its_own(tmp_path):
    about = experiment.About("e", "Three <models>", 3, "S", "W", {"trials": 5}, {"beta": 0.5}, seconds=1.0)
    findings = experiment.Findings((Claim("it falls", "by half", "holds"),), (), ())
    experiment.write(about, findings, tmp_path)
    Report(path=tmp_path, json=False).run()
    page = (tmp_path / "report.html").read_text()
    assert "<h1>Three &lt;models&gt;</h1>" in page
    assert "it falls" in page


def test_parts_that_do_not_fit_are_refused():
    with pytest.raises(
        ValueError, match="`verdict` must be one of holds, holds in part, does not hold, not decided, not measured"
    ):
        Claim("c", "m", "maybe")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="must have 2 cells each, got 1"):
        Table("t", "c", ("a", "b"), (("x",),))
    with pytest.raises(ValueError, match="must be an SVG document"):
        Figure("f", "<html></html>", "c", "a")


def test_the_templates_are_part_of_the_package():
    templates = resources.files("moac.report") / "templates"
    assert {path.name for path in templates.iterdir()} >= {"report.html.jinja", "report.css"}
