"""The page as HTML: it stands alone, and nothing written in a folder can act through it."""

import re
from importlib import resources

from moac.report.page import VERDICTS, Claim, Figure, Page, Table, render
from tests.helpers.outline import Outline, assert_stands_alone
from tests.helpers.run_folders import HOSTILE, SVG

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


def test_hostile_text_is_shown_everywhere_and_makes_no_tag():
    plain = Page(
        *("t", "s", (("a", "b"),), "n"),
        claims=(Claim("c", "m", "holds", "e"), Claim("c", "m", "does not hold", "e")),
        figures=(Figure("f", SVG, "c", "a"),),
        tables=(Table("t", "c", ("h", "h"), (("r", "r"),)),),
        details=(("d", "d"),),
    )
    outline = assert_stands_alone(render(DEEP_HOSTILE_PAGE))
    extra = ["a"]  # evidence that names a figure becomes a link
    assert sorted(outline.tags) == sorted(Outline(render(plain)).tags + extra)
    assert outline.text.count(HOSTILE) == 22
    assert outline.values("img", "alt") == [HOSTILE]
    assert "49" not in outline.text


def test_an_empty_page_has_no_empty_parts():
    outline = assert_stands_alone(render(Page("Title", "Summary.")))
    assert outline.tags.count("h1") == 1
    assert not {"h2", "table", "figure", "dl", "nav"} & set(outline.tags)


def test_headings_are_in_order_and_links_lead_somewhere():
    claims = (Claim("c", "m", "holds", "Fig"), Claim("c", "m", "not measured", "Tab"))
    page = Page(
        "T", "S", (), None, claims, (Figure("Fig", SVG, "c", "a"),), (Table("Tab", "c", ("h",), ()),), (("a", 1),)
    )
    outline = assert_stands_alone(render(page))
    assert [tag for tag in outline.tags if re.fullmatch(r"h\d", tag)] == ["h1"] + ["h2"] * 4
    targets = {value for _, name, value in outline.attributes if name == "id"}
    links = [link.removeprefix("#") for link in outline.values("a", "href")]
    assert set(links) <= targets
    assert {"main", "figure-1", "table-1"} <= set(links)


def test_every_verdict_has_its_word_and_its_shape():
    content = render(Page("T", "S", claims=tuple(Claim("c", "m", verdict) for verdict in VERDICTS)))
    badges = re.findall(r'<td role="cell"><span class="verdict [\w-]+"><svg.*?d="(.*?)"/></svg>(.*?)</span>', content)
    assert [word for _, word in badges] == list(VERDICTS)
    assert len({shape for shape, _ in badges}) == len(VERDICTS)


def test_verdicts_are_counted():
    claims = tuple(Claim("c", "m", verdict) for verdict in ("holds", "does not hold", "holds"))
    tally = re.search(r'class="tally".*?</ul>', render(Page("T", "S", claims=claims)), re.DOTALL)
    assert tally is not None
    assert re.findall(r"</svg>(.*?)</span>", tally[0]) == ["2 hold", "1 does not hold"]


def test_unknown_numbers_are_dashes_in_cells_and_facts():
    page = Page(
        "T", "S", (("fact", float("nan")),), tables=(Table("t", "c", ("a", "b"), (("x", float("nan")), ("y", None))),)
    )
    content = render(page)
    assert content.count(">–<") == 3
    assert "nan" not in Outline(content).text
    assert '<td class="number">–</td>' in content


def test_numbers_have_minus_signs_and_powers_of_ten_in_cells_and_claims():
    table = Table("t", "c", ("a", "b"), (("x", "-0.2 [-1.5, 3], 2022-04-24, v-1, 1e-05, 2.5e-08"),))
    words = Outline(render(Page("T", "S", claims=(Claim("c", "by -.5", "holds"),), tables=(table,)))).text
    assert "−0.2 [−1.5, 3], 2022-04-24, v-1, 1 × 10⁻⁵, 2.5 × 10⁻⁸" in words and "by −.5" in words


def test_the_id_of_an_environment_is_one_word_and_stays_escaped():
    page = Page("Run of mo-car-v0 <b>", "On mo-car-v0.", (("environment", "a-b-v1"), ("steps", 3)))
    content = render(page)
    assert content.count('<span class="name">mo-car-v0</span>') == 2 and '<span class="name">a-b-v1</span>' in content
    assert "<b>" not in content and Outline(content).text.count("mo-car-v0") == 3  # also in the window's title


def test_letters_have_an_index_and_names_with_underscores_have_none():
    table = Table("t", "λ_A, π_b and w_0", ("C_A", "num_envs"), (("x_1", "y_1"),))
    content = render(Page("T", "θ_T̂ of user_id.", tables=(table,)))
    shown = ("θ<sub>T̂</sub>", "λ<sub>A</sub>, π<sub>b</sub> and w<sub>0</sub>", ">C<sub>A</sub><", ">num_envs<")
    assert all(text in content for text in (*shown, "user_id", ">x_1<", ">y_1<"))


def test_a_wide_figure_is_not_made_smaller_than_text():
    one, several = (Figure("f", f"<svg width='2' width=\"{width}pt\"></svg>", "c", "a") for width in (346, 605))
    assert not one.wide and several.wide and not Figure("f", SVG, "c", "a").wide
    assert re.findall(r'<img( class="wide")? src', render(Page("T", "S", figures=(one, several)))) == [
        "",
        ' class="wide"',
    ]


def test_columns_of_numbers_stand_to_the_right_and_words_do_not():
    table = Table("t", "c", ("a", "b", "c", "d"), (("x", 1.5, "(5 ± 1) × 10⁻⁷", "steady"), ("y", -2, None, "2 rise")))
    content = render(Page("T", "S", tables=(table,)))
    assert re.findall(r'<th scope="col"( class="number")?>', content) == ["", ' class="number"', ' class="number"', ""]


def test_the_templates_are_part_of_the_package():
    templates = resources.files("moac.report") / "templates"
    assert {path.name for path in templates.iterdir()} >= {"report.html.jinja", "report.css"}
