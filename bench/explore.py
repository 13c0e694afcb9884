"""``python -m bench.explore``: what ``traceconv explore`` costs with 2, 64 and 4096 ranks.

Each job is the sample of ``examples/make_job.py`` with more ranks and 50 steps, packed into a
store. The command runs as a user starts it, and a headless Chromium opens its page::

    python -m bench.explore --ranks 2,64 --keep /tmp/jobs --pictures /tmp/pictures

A line per figure. "first" reads the ranks, "again" has what the first one kept. From the start of
the command: "link" until it is printed, "page" until the map is drawn, "read" until all ranks are
read. "moves" are 40 of the pointer over the map, "window" is two ranks by two steps, from the click
until the viewer has its address, "what-if" from a click until the replayed answer, "reload" of the
page. CPU and memory are of the command with its workers: seconds, and the peak that no file backs.
"heap" is of the page. A job of 4096 ranks takes 6 GB of memory and 20 minutes to make, and 0.8 GB
below ``--keep``.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any

from bench.measure import Peak

ROOT = Path(__file__).parents[1]
VIEWER = "https://ui.perfetto.dev"
STEPS, LAYERS = 50, 1

_IS_READ = "fetch('about/0').then((answer) => answer.json()).then((about) => about.is_read)"

PATIENCE_MS = 3_600_000
"""A busy machine reads 4096 ranks in less."""


def main() -> int:
    """Measure the jobs that are asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.explore", description=__doc__)
    parser.add_argument("--ranks", default="2,64,4096", help="sizes of the jobs")
    parser.add_argument("--keep", type=Path, help="folder that keeps the jobs for the next time")
    parser.add_argument("--pictures", type=Path, help="folder for pictures of the page")
    given = parser.parse_args()
    browser = next(filter(None, map(which, ("chromium", "chromium-browser", "google-chrome"))), "")
    try:
        import playwright.sync_api as playwright
    except ImportError:
        browser = ""
    if not browser:
        print("skipped: this needs Chromium and the extra viewer-test (playwright)")
        return 0
    with tempfile.TemporaryDirectory() as folder, playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for ranks in map(int, given.ranks.split(",")):
            store = job(ranks, given.keep or Path(folder))
            cache = Path(folder) / f"cache{ranks}"
            for name in ("first", "again"):
                pictures = given.pictures if name == "again" else None
                for what, figure in explored(chromium, store, cache, pictures):
                    print(f"{ranks:5} ranks  {name}  {what:8} {figure}", flush=True)
        chromium.close()
    return 0


def job(ranks: int, folder: Path) -> Path:
    """The store of a job with so many ranks; made if it is not there."""
    store = folder / f"job{ranks}.tcz"
    if not store.exists():
        captures = folder / f"job{ranks}"
        if not captures.exists():
            sys.path.insert(0, str(ROOT / "examples"))
            import make_job

            make_job.RANKS, make_job.STEPS, make_job.LAYERS = ranks, STEPS, LAYERS
            make_job.SLOW, make_job.GROUPS = min(5, ranks - 1), make_job.groups(ranks)
            dice = random.Random(1)
            make_job.CLOCK_NS = [dice.randrange(2_000_000) for _ in range(ranks // 4 + 1)]
            make_job.main(str(captures))
        pack = [sys.executable, "-m", "traceconv", "pack", str(captures), "-o", str(store), "-q"]
        subprocess.run(pack, check=True)
    return store


def explored(
    chromium: Any, store: Path, cache: Path, pictures: Path | None
) -> Iterator[tuple[str, str]]:
    """Each figure of one call of the command: its name, and the figure with its unit."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "traceconv", "explore", str(store), "--no-browser", "-q"]
    environment = {**os.environ, "TRACECONV_CACHE": str(cache)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    peak = Peak(process.pid)
    assert process.stdout
    with process.stdout as printed:
        address = printed.readline().strip()
        yield "link", since(start)
        page = opened(chromium, address)
        page.wait_for_selector("canvas", timeout=PATIENCE_MS)
        yield "page", since(start)
        yield "moves", moves(page)
        yield "window", window(page)
        page.wait_for_function(_IS_READ, polling=100, timeout=PATIENCE_MS)
        yield "read", since(start)
        yield "what-if", what_if(page)
        page.reload()
        begun = time.perf_counter()
        page.wait_for_selector("canvas")
        yield "reload", since(begun)
        yield "heap", f"{page.evaluate('performance.memory.usedJSHeapSize') / 1e6:.1f} MB"
        page.context.close()
        if pictures:
            photograph(chromium, address, pictures / store.stem)
        process.terminate()
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0
    yield "CPU", f"{usage.ru_utime + usage.ru_stime:.1f} s"
    yield "memory", f"{peak.stop() / 1e6:.0f} MB"


def since(start: float) -> str:
    """The time since then."""
    return f"{time.perf_counter() - start:.2f} s"


def opened(chromium: Any, address: str, **options: Any) -> Any:
    """The page, where the viewer is a page that says nothing."""
    context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
    context.route(f"{VIEWER}/**", lambda route: route.fulfill(body="<title>viewer</title>"))
    page = context.new_page()
    page.goto(address)
    return page


def moves(page: Any) -> str:
    """40 moves of the pointer over the map, and the figures under it."""
    box, begun = page.locator("canvas").bounding_box(), time.perf_counter()
    for move in range(40):
        page.mouse.move(box["x"] + 5 + 9 * move, box["y"] + 5 + move % 20)
        page.wait_for_selector(".tip")
    return since(begun)


def window(page: Any) -> str:
    """Two ranks by two steps in the viewer."""
    box = page.locator("canvas").bounding_box()
    page.mouse.move(box["x"] + 5, box["y"] + 5)
    page.mouse.down()
    page.mouse.move(box["x"] + 25, box["y"] + 15)
    page.mouse.up()
    begun = time.perf_counter()
    with page.context.expect_page() as tab:
        page.click("text=Open in Perfetto")
    tab.value.wait_for_url(f"{VIEWER}/**")
    return f"{since(begun)}, {page.inner_text('.chosen strong')}"


def what_if(page: Any) -> str:
    """The answer of the replay to the first change that is offered."""
    begun = time.perf_counter()
    page.check(".knob input[type=checkbox]")
    page.wait_for_selector(".answer .bar", timeout=PATIENCE_MS)
    return since(begun)


def photograph(chromium: Any, address: str, place: Path) -> None:
    """Pictures of the page: light and dark, wide and narrow."""
    place.mkdir(parents=True, exist_ok=True)
    for scheme, width in (("light", 1280), ("dark", 1280), ("light", 390)):
        size = {"width": width, "height": 900}
        page = opened(chromium, address, viewport=size, color_scheme=scheme)
        page.wait_for_selector("canvas")
        page.wait_for_timeout(300)
        page.screenshot(path=place / f"{scheme}{width}.png", full_page=True)
        page.context.close()


if __name__ == "__main__":
    sys.exit(main())
