"""The report in a real browser: what it shows and asks for, on a desk and on a phone, by day and by night."""

from pathlib import Path

import pytest

from moac.report import pages
from moac.report.page import VERDICTS, Claim, Figure, Page, Table, render
from tests.helpers.browser import PROGRAM, Browser
from tests.helpers.run_folders import SVG, invented, make_hostile, trained

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium here: apt-get install chromium runs these tests")
PHONE, DESK = 375, 1280
CONTRAST = """(selector => {
  const luminance = colour => colour.match(/[\\d.]+/g).slice(0, 3).map(c => c / 255)
    .map(c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
  const own = e => getComputedStyle(e).backgroundColor;
  const behind = e => /, 0\\)$/.test(own(e)) ? behind(e.parentElement) : own(e);
  return [...document.querySelectorAll(selector)].map(e => {
    const pair = [luminance(getComputedStyle(e).color), luminance(behind(e))].sort((a, b) => b - a);
    return (pair[0] + .05) / (pair[1] + .05);
  });
})"""


@pytest.fixture(scope="module")
def browser():
    with Browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def run_report(tmp_path_factory):
    """The report of a real run, its figure as `moac train` draws it."""
    return pages.write(trained(tmp_path_factory.mktemp("runs") / "run"))


@pytest.fixture(scope="module")
def hostile_report(tmp_path_factory):
    folder = invented(tmp_path_factory.mktemp("hostile") / "run")
    make_hostile(folder)
    return pages.write(folder)


@pytest.fixture(scope="module")
def full_report(tmp_path_factory):
    """Every part that a page can have, with cells and words that are wider than a phone."""
    path = tmp_path_factory.mktemp("full") / "report.html"
    claims = tuple(Claim("A claim. " * 9, "1.25 ± 0.01, " * 9, verdict, "Drawing") for verdict in VERDICTS)
    wide = Table("Wide", "c", tuple(f"column {k}" for k in range(16)), (tuple(1 / (k + 3) for k in range(16)),))
    drawing = SVG.replace("width='30'", 'width="3000pt"')
    facts = (("x" * 90, "y" * 200),)
    path.write_text(render(Page("T" * 120, "S" * 300, facts, "N" * 200, claims,
                                     (Figure("Drawing", drawing, "c", "a"),), (wide,), facts)))  # fmt: skip
    return path


@pytest.fixture(params=["run", "hostile", "full"])
def page(request) -> Path:
    return request.getfixturevalue(f"{request.param}_report")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_the_page_is_quiet_stands_alone_and_fits(browser, page, width, dark):
    visit = browser.visit(page, width, dark)
    assert visit.errors == []
    assert visit.requests == [page.as_uri()]
    assert visit.evaluate("document.documentElement.scrollWidth") <= width
    assert visit.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 0)")
    assert visit.evaluate("document.images.length") == 1
    assert visit.evaluate("document.title") != "owned"
    assert visit.evaluate("document.scripts.length") == 0


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_word_can_be_read(browser, full_report, dark):
    visit = browser.visit(full_report, DESK, dark)
    words = "h1, h2, p, dt, dd, th, td, caption, figcaption, strong, a, .verdict, .notice span, .evidence"
    contrast = visit.evaluate(f"{CONTRAST}({words!r})")
    assert len(contrast) > 60
    assert min(contrast) >= 4.5
    background = visit.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(20, 23, 27)" if dark else "rgb(251, 251, 249)")
    sheet = visit.evaluate("getComputedStyle(document.querySelector('.drawing')).backgroundColor")
    shown = visit.evaluate("getComputedStyle(document.querySelector('.drawing img')).filter")
    assert sheet == ("rgb(31, 31, 31)" if dark else "rgb(255, 255, 255)")  # what invert(0.88) makes of white
    assert shown == ("invert(0.88) hue-rotate(180deg)" if dark else "none")


def test_what_is_wider_than_a_phone_scrolls_in_its_own_box(browser, full_report):
    visit = browser.visit(full_report, PHONE)
    for box in (".scroll", ".drawing"):
        inside, outside = visit.evaluate(f"(e => [e.scrollWidth, e.clientWidth])(document.querySelector('{box}'))")
        assert inside > outside
        assert outside < PHONE
    assert visit.evaluate("document.querySelector('.claims').getBoundingClientRect().right") <= PHONE


def test_the_page_can_be_printed(browser, full_report):
    visit = browser.visit(full_report, DESK, dark=True)
    assert visit.pdf().startswith(b"%PDF-")
    browser.call("Emulation.setEmulatedMedia", {"media": "print"}, visit.session)
    assert visit.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert visit.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert visit.evaluate("getComputedStyle(document.querySelector('.drawing img')).filter") == "none"


def test_these_tests_would_see_what_is_wrong(browser, tmp_path):
    bad = tmp_path / "bad.html"
    body = "<img src='http://127.0.0.1:9/x.png'><div style='width: 2000px'>wide</div><script>nothing()</script>"
    bad.write_text(f"<!doctype html><meta name='viewport' content='width=device-width'><title>bad</title>{body}")
    visit = browser.visit(bad, PHONE)
    assert visit.requests == [bad.as_uri(), "http://127.0.0.1:9/x.png"]
    assert any("nothing is not defined" in error for error in visit.errors)
    assert visit.evaluate("document.documentElement.scrollWidth") > PHONE
    assert not visit.evaluate("[...document.images].every(image => image.naturalWidth > 0)")


def test_the_policy_of_the_page_stops_what_escaping_would_have_missed(browser, run_report, tmp_path):
    """A second lock: markup put into the page by force neither runs nor loads."""
    forced = tmp_path / "forced.html"
    evil = "<script>document.title = 'owned'</script><img src='http://127.0.0.1:9/x.png' onerror='document.title = 1'>"
    forced.write_text(run_report.read_text().replace("</main>", f"{evil}</main>"))
    visit = browser.visit(forced)
    assert "owned" not in visit.evaluate("document.title")
    assert any("Content Security Policy" in error for error in visit.errors)
    assert not visit.evaluate("[...document.images].at(-1).naturalWidth")
