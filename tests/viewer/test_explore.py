"""The page of ``traceconv explore`` in a browser."""

import shlex
import shutil

import pytest
from paths import NEEDS_CHROMIUM, ROOT

import traceconv
from traceconv.cli import explore as exploring

pytestmark = NEEDS_CHROMIUM

BAD = "<img src=x onerror=\"document.title='owned'\">"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Of the page of the bundled job, in a folder whose name is markup."""
    folder = tmp_path_factory.mktemp("explore") / BAD.replace("/", "")
    shutil.copytree(ROOT / "examples" / "job", folder)
    run = traceconv.explore(folder)
    compared = lambda: traceconv.diff(folder, folder, force_compare=True)  # noqa: E731
    with exploring.Explorer([run], compared, "https://ui.perfetto.dev", 0) as server:
        server.read(lambda done, total, label: None)
        with server.serving():
            yield server.entry_address


@pytest.fixture(params=["light", "dark"])
def shown(browser, address, request):
    """The page; the viewer is a page that says nothing, and nothing else is asked for."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 900}, color_scheme=request.param
    )
    body = "<title>viewer</title>"
    context.route("https://ui.perfetto.dev/**", lambda route: route.fulfill(body=body))
    one = context.new_page()
    asked, errors = [], []
    context.on("request", lambda request: asked.append(request.url))
    one.on("pageerror", lambda error: errors.append(str(error)))
    one.on("console", lambda said: said.type == "error" and errors.append(said.text))
    one.goto(address)
    one.wait_for_selector("canvas")
    yield one
    home = address.split("/")[2]
    assert {url.split("/")[2] for url in asked} <= {home, "ui.perfetto.dev"}
    assert errors == []
    context.close()


def test_the_answer_is_first_and_names_are_texts(shown):
    """The verdict, the path as it is, and no effect of markup in it."""
    assert shown.inner_text("h1").startswith("Rank 5 (dp2 tp1) costs 1.")
    assert BAD.replace("/", "") in shown.inner_text(".chips")
    assert shown.title().startswith("traceconv: ") and shown.title() != "owned"
    assert shown.query_selector(".chips img") is None


def test_a_click_selects_a_cell_and_opens_its_window(shown):
    """The rank that costs most is the first row; its window opens in the viewer."""
    box = shown.locator("canvas").bounding_box()
    shown.mouse.click(box["x"] + 5, box["y"] + 5)
    assert shown.inner_text(".chosen strong") == "Rank 5, step 10"
    with shown.context.expect_page() as opened:
        shown.click("text=Open in Perfetto")
    opened.value.wait_for_url("https://ui.perfetto.dev/**")
    assert "ranks5-steps10" in opened.value.url


def test_the_map_works_by_keyboard(shown):
    """Arrow keys move and select; what is under the cursor is read out."""
    shown.focus("canvas")
    shown.keyboard.press("ArrowRight")
    shown.keyboard.press("Shift+ArrowDown")
    assert shown.inner_text(".chosen strong").endswith("step 11")
    assert "," in shown.inner_text(".chosen strong").split(", step")[0]
    assert shown.text_content("[aria-live]").startswith("rank ")


def test_sliders_are_answered_by_the_replay(shown):
    """The text is that of ``what-if``, and the command that prints it is shown."""
    shown.check(".knob input[type=checkbox]")
    shown.wait_for_selector(".answer .bar")
    assert "rank:5=peers: a step takes" in shown.inner_text(".answer")
    command, path = (
        shlex.split(shown.inner_text("code")),
        shown.inner_text(".chips span:last-child"),
    )
    assert command == ["traceconv", "what-if", "rank:5=peers", path]
    shown.click("text=Reset")
    assert "replay error" in shown.inner_text(".answer")


def test_colours_and_orders_change_what_is_drawn(shown):
    """By cause there is a legend of causes; by rank the first row is rank 0."""
    shown.check("text=Cause of that")
    assert "garbage collection" in shown.inner_text(".legend")
    shown.check("text=By rank")
    box = shown.locator("canvas").bounding_box()
    shown.mouse.move(box["x"] + 5, box["y"] + 5)
    assert shown.inner_text(".tip").startswith("rank 0 ")


def test_reports_of_a_selection_are_shown_in_the_page(shown):
    """The same report as on the command line."""
    shown.click("text=Report of the whole run")
    report = shown.frame_locator("iframe")
    report.locator("h1").wait_for()
    assert report.locator("h1").inner_text().startswith("Rank 5")
    shown.keyboard.press("Escape")
    shown.wait_for_selector("iframe", state="detached")


def test_it_fits_a_phone(shown):
    """Nothing is wider than 390 px."""
    shown.set_viewport_size({"width": 390, "height": 844})
    box = shown.locator("canvas").bounding_box()
    shown.mouse.move(box["x"] + box["width"] - 4, box["y"] + 5)
    assert shown.evaluate("document.documentElement.scrollWidth") <= 390
