"""The page of a report in a browser: what can be done with it, and what names cannot do."""

import pytest
from paths import NEEDS_CHROMIUM, ROOT
from report_job import document, matrix, operators
from synthetic_job import Job

import traceconv
from traceconv.report.html import page as page_of

pytestmark = NEEDS_CHROMIUM

PICTURES = ROOT / "build" / "viewer"

BAD = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """The page of eight ranks with twenty-four steps, and an operator with a bad name."""
    told = document(
        Job(1, 8, 1, steps=24, jitter=20_000, slow=(5, 300_000)),
        link=matrix(8),
        type=operators([BAD, *(f"Operator{i}" for i in range(40))]),
    )
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page_of(told), encoding="utf-8")
    return path


@pytest.fixture
def shown(browser, file):
    """The page, with a clipboard; nothing but the page itself is asked for, and nothing fails."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    one = context.new_page()
    asked, errors = [], []
    one.on("request", lambda request: asked.append(request.url))
    one.on("pageerror", lambda error: errors.append(str(error)))
    one.goto(file.as_uri())
    yield one
    assert asked == [file.as_uri()]
    assert errors == []
    context.close()


def unfold(shown, *keys):
    """Open folded sections, as the list of sections does."""
    for key in keys:
        shown.click(f'nav a[href="#{key}"]')


def texts(shown, css):
    """Texts of what can be seen."""
    return [one.inner_text() for one in shown.query_selector_all(css) if one.is_visible()]


def test_tables_sort_by_their_figures(shown):
    """The largest first, then the smallest; units count."""
    shown.click("#overlap summary")
    column = "#overlap tbody td:nth-child(5)"
    heading = "#overlap th:nth-child(5)"
    figures = []
    for way in ("descending", "ascending"):
        shown.click(f"{heading} button")
        assert shown.get_attribute(heading, "aria-sort") == way
        figures.append([float(text.split()[0]) for text in texts(shown, column)])
    assert len(figures[0]) == 8
    assert figures == [sorted(figures[0], reverse=True), sorted(figures[0])]


def test_tables_filter_by_words(shown):
    """What is typed is in every row that is left."""
    shown.click("#operators summary")
    shown.fill("#operators .filter input", "nothing")
    assert texts(shown, "#operators .filter span") == ["no row of 20 fits"]
    shown.fill("#operators .filter input", "operator1")
    left = texts(shown, "#operators tbody td:first-child")
    assert left and all("Operator1" in text for text in left)
    assert texts(shown, "#operators .filter span")[0].startswith(f"{len(left)} of ")


def test_ranks_and_steps_are_chosen_everywhere(shown):
    """Bars, the map and tables of ranks; the line of steps shows these; what is wrong is said."""
    unfold(shown, "heat", "clock")
    shown.fill(".choose label:nth-of-type(1) input", "2,5-6")
    shown.fill(".choose label:nth-of-type(2) input", "8-11")
    assert sorted(texts(shown, "#overlap .bar .name")) == ["rank 2", "rank 5", "rank 6"]
    assert texts(shown, "#heat .left span") == ["rank 2", "rank 5", "rank 6"]
    assert len(texts(shown, "#heat .cells b")) == 3 * 4
    assert texts(shown, "#clock tbody td:first-child") == ["2", "5", "6"]
    low, _, wide, _ = map(float, shown.get_attribute("#steps svg", "viewBox").split())
    assert (low, wide) == pytest.approx((1000 * 7.5 / 23, 1000 * 4 / 23), abs=1)
    for wrong, said in (("x", "ranks: write numbers, as in 0-3,7"),
                        ("70", "no such ranks: there are 0-7")):  # fmt: skip
        shown.fill(".choose label:nth-of-type(1) input", wrong)
        assert texts(shown, ".choose output") == [said]
        assert len(texts(shown, "#overlap .bar .name")) == 3
    shown.click(".choose button")
    assert len(texts(shown, "#overlap .bar .name")) == 8
    assert len(texts(shown, "#heat .cells b")) == 8 * 24
    assert shown.get_attribute("#steps svg", "viewBox").startswith("0 0 1000")


def test_dragging_over_the_line_of_steps_zooms(shown):
    """To the steps that were dragged over, in all drawings."""
    unfold(shown, "heat")
    shown.locator("#steps svg").scroll_into_view_if_needed()
    box = shown.locator("#steps svg").bounding_box()
    shown.mouse.move(box["x"] + 0.48 * box["width"], box["y"] + 80)
    shown.mouse.down()
    shown.mouse.move(box["x"] + 0.75 * box["width"], box["y"] + 90, steps=4)
    shown.mouse.up()
    assert shown.input_value(".choose label:nth-of-type(2) input") == "11-17"
    assert len(texts(shown, "#heat .cells b")) == 8 * 7


def test_pointing_shows_the_exact_figure(shown):
    """The words of the drawing, whatever the browser does with titles."""
    shown.hover("#overlap .track i")
    (words,) = texts(shown, ".tip")
    assert words.startswith("computing: ") and words.endswith("%)")


def test_places_are_copied(shown):
    """Of a finding as it stands; of a cell, that of the step on the rank."""
    assert texts(shown, ".place code") == []
    shown.click(".place .copy >> nth=0")
    told = shown.text_content(".place code >> nth=0")
    assert shown.evaluate("navigator.clipboard.readText()") == told
    unfold(shown, "heat")
    shown.click("#heat .cells b >> nth=30")  # the second row begins with the 24th
    found = shown.evaluate("navigator.clipboard.readText()")
    assert found.startswith("SELECT ")
    assert found.endswith("process.name || ' ' GLOB 'Rank 1 *' AND "
                          "EXTRACT_ARG(slice.arg_set_id, 'debug.step') = 6")  # fmt: skip


def test_bad_names_stay_text(shown):
    """With our script on: through hovering, sorting and filtering."""
    shown.locator("#operators .track i").first.scroll_into_view_if_needed()
    shown.wait_for_timeout(300)  # scrolling hides what is shown
    shown.hover("#operators .track i >> nth=0")
    assert BAD in texts(shown, ".tip")[0]
    shown.click("#operators summary")
    shown.click("#operators th:nth-child(1) button")
    shown.fill("#operators .filter input", "onerror")
    assert BAD in texts(shown, "#operators tbody tr")[0]
    assert shown.title() != "owned"
    assert shown.query_selector_all("img") == []


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_the_screen(browser, file, width, scheme):
    """On a phone, too; tables scroll by themselves. On paper, what is to be clicked is left out."""
    one = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    one.goto(file.as_uri())
    assert one.evaluate("document.documentElement.scrollWidth") == width
    one.emulate_media(media="print")
    assert not one.locator(".choose, .copy, .filter").filter(visible=True).count()
    one.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert one.locator("table").filter(visible=True).count() == one.locator("table").count()
    one.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Reports of the bundled samples, and of 64 ranks with one that is slow."""
    folder = tmp_path_factory.mktemp("pages")
    large = document(
        Job(8, 8, 1, steps=6, jitter=20_000, slow=(37, 600_000)),
        link=matrix(64),
        type=operators([f"Operator{i}" for i in range(400)]),
    )
    samples = {2: ROOT / "golden" / "trace_view" / "demo" / "input", 8: ROOT / "examples" / "job"}
    texts_of = {64: page_of(large)}
    for ranks, sample in samples.items():
        texts_of[ranks] = traceconv.diagnose(sample, analyse=True, jobs=1).html_text()
    for ranks, text in texts_of.items():
        (folder / f"{ranks}.html").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize("ranks", [2, 8, 64])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_reports_can_be_scrolled(browser, pages, ranks, width, scheme):
    """64 ranks are at most 6000 px high; nothing is wider than the screen. Pictures are left."""
    one = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    one.goto((pages / f"{ranks}.html").as_uri())
    PICTURES.mkdir(parents=True, exist_ok=True)
    one.screenshot(path=PICTURES / f"report_{ranks}_{width}_{scheme}.png", full_page=True)
    assert one.evaluate("document.documentElement.scrollWidth") == width
    assert ranks < 64 or one.evaluate("document.documentElement.scrollHeight") <= 6000
    one.close()
