"""The page of a report: whole, small, asking nothing of anybody, and safe from names."""

import base64
import hashlib
import http.server
import json
import re
import subprocess
import threading

import orjson
import pytest
from click.testing import CliRunner
from html_page import SECTIONS, Reader
from paths import CHROMIUM, NEEDS_CHROMIUM
from report_job import curve, document, matrix, operators, page, small, texts
from synthetic_job import Job

from traceconv.analysis.inferred_shape import job_shape
from traceconv.analysis.rank_summary import RankSummary
from traceconv.cli import cli
from traceconv.core.errors import Issues
from traceconv.core.job_shape import ParallelGroup, Placement
from traceconv.core.markup import el, esc
from traceconv.report import excerpts, markdown, page_charts, sections
from traceconv.report.charts import HEIGHT, Line, lines
from traceconv.report.figures import exact

HOSTILE = (
    "<script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "\"><svg onload=document.title='owned'>",
    "' onmouseover='document.title=1' style='background:url(//127.0.0.1/)",
    "</style></title></section></main><script>document.title='owned'</script>",
    "javascript:document.title='owned'",
    "&lt;b&gt; ${title} $body %s {0}",
    "\x00\x1b[31m\u202egnp.\u2066 \ud800 \ufffe",
)


def hostile():
    """A report in which everything that comes from outside has such a name."""
    issues = Issues()
    for name in HOSTILE:
        issues.add("truncated", name, name)
    links = {**matrix(4), "Group": texts(*HOSTILE * 2), "Transport": texts(*HOSTILE * 2)}
    return small(
        issues=issues,
        type=operators(HOSTILE),
        link=links,
        curves=curve(HOSTILE[0]),
    )


@pytest.fixture(scope="module")
def told():
    """The document of a job of four ranks."""
    return small()


@pytest.mark.parametrize("name", HOSTILE)
def test_text_shows_and_does_nothing(name):
    """Read back, an element holds nothing but the text, and an attribute stays one."""
    read = Reader(el("p", name, title=name))
    assert read.tags == ["p"]
    assert [key for _, key, _ in read.attributes] == ["title"]
    assert (
        re.search("[\x00-\x08\x1b\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe]", esc(name)) is None
    )


def test_every_section_is_there(told):
    """All of them, in this order, each once."""
    assert list(SECTIONS) == [key for key in Reader(page(told)).ids if key in SECTIONS]


def test_every_section_has_its_drawing(told):
    """None of them falls back to saying that data are missing."""
    overview = told["overview"]
    assert [k for k in SECTIONS if "missing" in overview.get(k, ())] == []


def test_ranks_are_drawn_at_their_coordinates(told):
    """Stages beside each other, the rest below; ranks with an unknown coordinate are named."""
    assert "missing" in told["overview"]["shape"]
    groups = [ParallelGroup("pp", (r % 2, r % 2 + 2), "a list") for r in range(3)]
    groups += [ParallelGroup("tp", (r // 2 * 2, r // 2 * 2 + 1), "a list") for r in (0, 1)]
    every = [RankSummary(rank=rank, placement=Placement(tuple(groups))) for rank in range(4)]
    section = sections.job_shape(
        job_shape(every),
        {"rows": [{"rank": 1, "pure_compute_ns": 5_250_000, "overlapped_ns": 1_000_000}]},
    )
    assert section["rows"][1] == {"rank": 1, "pp": 0, "tp": 1, "computing_ns": 6_250_000}
    assert section["rows"][3] == {"rank": 3, "pp": 1, "tp": None, "computing_ns": None}
    drawn = str(page_charts.shape(section))
    assert 'title="rank 1 pp0 tp1: computing 6.25 ms">1<' in drawn
    assert 'title="rank 0 pp0 tp0: computing –">0<' in drawn
    assert "unknown of ranks 2-3: tp: no group of it is named" in drawn
    assert "tp 2 (unknown of 2 of 4 ranks)" in drawn
    table = "\n".join(markdown.lines({**told["overview"], "shape": section}))
    assert "| 3 | 1 | – | – |" in table


def test_sections_without_data_say_what_they_need():
    """A single rank without a matrix has neither a map of ranks nor of traffic."""
    told = document(Job(1, 2, 1, steps=3), ranks=1, link={}, type={}, op={}, curves={})
    words = " ".join(Reader(page(told)).text)
    assert "no data: needs two ranks with the same steps" in words
    assert "no data: needs Ascend planes, or communication_matrix.json" in words
    assert "no data: needs counters of memory, or records of a data queue" in words


def test_without_an_analysis_the_account_stands_alone(told):
    """A conversion is not analysed, but has issues, clocks and ranks."""
    bare = {key: value for key, value in told.items() if key != "overview"}
    assert Reader(page(bare)).ids == ["findings", "clock", "issues", "dropped", "ranks"]


def test_the_verdict_is_three_sentences_and_names_the_slow_rank(told):
    """The planted rank, 300 us late, for which three of four ranks wait."""
    assert len(told["overview"]["sentences"]) == 3
    start = "Ranks 0-3: 1.24 ms per step. Lost: waiting for rank 2 299 µs (24 %), "
    assert start in told["overview"]["headline"]
    assert told["overview"]["headline"].startswith("Rank 2 costs 299 µs per step (24 % of 1.24 ms)")
    assert told["overview"]["sentences"][1].startswith("Straggler: rank 2 takes 300 µs longer ")


@pytest.mark.parametrize("slow", [(2, 300_000), None])
def test_microseconds_are_spelled_one_way(slow):
    """In all that people read of a run, with a straggler or without."""
    told = document(Job(1, 4, 1, steps=6, jitter=2000, slow=slow))
    html_text, plain = page(told), "\n".join(markdown.lines(told["overview"]))
    assert "µs" in html_text
    assert re.findall(r"[0-9.] ?us\b.{20}", html_text + plain) == []


def test_the_slow_rank_is_the_darkest_row_of_the_map(told):
    """In every step but the first it comes latest, by about what it computes longer."""
    rows = told["overview"]["heat"]["rows"]
    late = {row["ranks"][0]: row["late_ns"] for row in rows}
    latest = [max(late, key=lambda rank, i=i: late[rank][i]) for i in range(5)]
    assert latest == [2] * 5
    assert all(abs(ns - 300_000) < 50_000 for ns in late[2])


def test_classes_add_up_to_what_is_known(told):
    """The parts of a bar are the whole bar, but for rounding."""
    for row in told["overview"]["overlap"]["rows"]:
        keys = ("pure_compute_ns", "overlapped_ns", "exposed_ns", "idle_ns")
        assert abs(sum(row[key] for key in keys) - row["known_ns"]) <= 2


def test_nothing_is_fetched_and_nothing_runs(told):
    """No script but ours, no address, no attribute that could ask for one or act; a policy that
    forbids."""
    text = page(told)
    read = Reader(text)
    assert read.tags.count("script") == 1
    script = re.search(r"<script>(.*?)</script>", text, re.S)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in text
    assert (
        re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval|fetch\(", script)
        is None
    )
    assert not {"img", "link", "iframe", "object", "form", "base"} & set(read.tags)
    assert {"href"} >= {k for _, k, _ in read.attributes if k in ("src", "href", "srcset")}
    assert all(v.startswith("#") for _, k, v in read.attributes if k == "href")
    assert not [k for _, k, _ in read.attributes if k.startswith("on")]
    assert re.search(r"https?://|url\(|@import", text) is None
    assert "default-src 'none'" in text


def test_hostile_names_stay_text():
    """The page of a capture full of them has the elements of any other."""
    text = page(hostile())
    read = Reader(text)
    assert (read.tags.count("script"), read.tags.count("img")) == (1, 0)
    assert not [k for _, k, _ in read.attributes if k.startswith("on")]
    assert HOSTILE[0] in " ".join(read.text)


def test_texts_of_an_overview_can_be_written():
    """Halves of surrogate pairs are spelled out, and a name does not fill the page."""
    told = small(type=operators([*HOSTILE, "x" * 1_000_000]))["overview"]
    assert len(orjson.dumps(told)) < 100_000
    assert max(len(row["name"]) for row in told["operators"]["rows"]) < 2100


def test_long_names_are_not_pasted():
    """What finds a slice stays a line; quotes in names are doubled."""
    assert "ts - trace_start() = 5 AND name = 'it''s' ORDER" in excerpts.query("it's", 5, 7)
    assert excerpts.query("x" * 1000, 5, 7).endswith("= 5 ORDER BY abs(dur - 7)")
    assert excerpts.query("a\nb", 5, 7).endswith("= 5 ORDER BY abs(dur - 7)")


def test_curves_of_any_values_can_be_drawn():
    """Figures below zero stand below its line; all equal and all zero are lines, too."""
    for y in ([-5.0, -1.0], [-3.0, 4.0], [0.0, 0.0], [7.0, 7.0]):
        drawn = lines([Line("c0", [0, 1], y)], ([0, 1], ["a", "b"]), ("", 1))
        path = re.search(r'd="M([^"]*)" class="line c0"', drawn)[1]
        heights = [float(point.split()[1]) for point in path.split("L")]
        assert all(-0.1 <= height <= HEIGHT + 0.1 for height in heights), y


def test_64_ranks_and_20_steps_are_small():
    """Below 2 MB, with a full matrix and many operators."""
    job = Job(8, 8, 1, steps=20, jitter=20_000, slow=(37, 600_000))
    names = [f"Operator{i}" for i in range(400)]
    told = document(job, link=matrix(64), type=operators(names))
    text = page(told)
    Reader(text)
    assert len(text.encode()) < 2_000_000
    assert len(told["overview"]["heat"]["rows"]) == 64


def test_more_ranks_than_can_be_drawn_are_condensed():
    """Bars of both ends and the mean of the rest; neighbours share a row of the map."""
    keys = ("pure_compute_ns", "overlapped_ns", "exposed_ns", "copy_ns", "idle_ns")
    row = {**dict.fromkeys(keys, 10), "input_wait_ns": None, "input_wait_steps": 0}
    rows = [{"rank": r, "steps": 1, "known_ns": 40, **row} for r in range(1000)]
    told = small()
    told["overview"]["overlap"] = {"per": "step", "rows": rows}
    words = Reader(page(told)).text
    assert "968 others (mean)" in words


def test_equal_input_gives_an_equal_page():
    """No clock, no random numbers, no order of sets."""
    assert page(small()) == page(small())


def test_markdown_and_json_have_the_figures_of_the_page(told):
    """Every exact figure of the overlap and of the clocks stands in all three."""
    again = json.loads(orjson.dumps(told))
    words = " ".join(Reader(page(told)).text)
    told_in_lines = "\n".join(markdown.lines(again["overview"]))
    for row in again["overview"]["overlap"]["rows"]:
        for key in ("known_ns", "pure_compute_ns", "exposed_ns", "idle_ns"):
            assert exact(row[key]) in words
            assert exact(row[key]) in told_in_lines
    for finding in again["overview"]["findings"]:
        assert finding["title"] in words
        assert finding["title"] in told_in_lines


def test_markdown_holds_no_markup_of_names():
    """What could be a tag, a link or a cell is spelled out."""
    lines = "\n".join(markdown.lines(hostile()["overview"]))
    assert re.search(r"(?<!\\)<(script|img|svg)", lines) is None


# -- from the command line ----------------------------------------------------------------


@pytest.fixture
def sample(root):
    """Two ranks."""
    return str(root / "golden" / "trace_view" / "demo" / "input")


def merged(tmp_path, *more):
    """Run a merge in a folder of its own."""
    return CliRunner().invoke(cli, ["merge", *more, "-o", str(tmp_path / "t.txt"), "-q"])


@pytest.mark.parametrize("how", [["--jobs", "1"], ["--jobs", "2"], ["--ranks", "1"]])
def test_a_merge_writes_the_page(sample, tmp_path, how):
    """Summaries are made where ranks are read; the page does not depend on who did it."""
    out = tmp_path / "r.html"
    done = merged(tmp_path, sample, "--report", str(out), *how)
    assert done.exit_code == 0, done.output
    known = set(Reader(out.read_text()).ids)
    assert set(SECTIONS) | {"written"} == known


def test_places_lie_in_the_trace(sample, tmp_path):
    """A slice of that name begins there, on that rank."""
    out = tmp_path / "r.json"
    assert merged(tmp_path, sample, "-m", "detail", "--report", str(out)).exit_code == 0
    told = json.loads(out.read_text())["overview"]
    lines = (tmp_path / "t.txt").read_text().splitlines()
    places = [*told["places"], *(p for f in told["findings"] for p in f["places"])]
    assert places
    for place in places:
        stamp = f"{place['start_ns']}"
        assert [n for n in lines if stamp in n.split() and place["name"] in n], place


def test_shards_carry_what_the_report_needs(sample, tmp_path):
    """The page of joined shards is that of one run, but for the name of the output."""
    report = str(tmp_path / "s.json")
    for i in range(2):
        merged_shard = ["merge", sample, "--shard", f"{i}/2", "-o", f"{tmp_path}/{i}.shard", "-q"]
        done = CliRunner().invoke(cli, [*merged_shard, "--report", f"{tmp_path}/{i}.json"])
        assert done.exit_code == 0, done.output
    shards = [f"{tmp_path}/{i}.shard" for i in range(2)]
    joined = ["join", *shards, "-o", str(tmp_path / "j.txt"), "--report", report, "-q"]
    assert CliRunner().invoke(cli, joined).exit_code == 0
    assert merged(tmp_path, sample, "--report", str(tmp_path / "m.json")).exit_code == 0
    one, two = (json.loads((tmp_path / f"{n}.json").read_text())["overview"] for n in "sm")
    assert one == two


def test_diagnose_writes_the_page(sample, tmp_path):
    """With the drawings its findings rest on, and nothing said of an output."""
    out = tmp_path / "d.html"
    done = CliRunner().invoke(cli, ["diagnose", sample, "-o", str(out), "-q"])
    assert done.exit_code == 0, done.output
    assert list(SECTIONS) == Reader(out.read_text()).ids


# -- in a browser -------------------------------------------------------------------------


class Listener(http.server.BaseHTTPRequestHandler):
    """Notes what is asked for."""

    def do_GET(self):
        self.server.asked.append(self.path)
        self.send_error(404)

    def log_message(self, *_):
        pass


@pytest.fixture
def listener():
    """A server of this machine."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Listener)
    server.asked = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def shown(path, folder):
    """The page as the browser has it after everything ran."""
    done = subprocess.run(
        [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
            "--no-first-run", "--disable-background-networking", "--disable-component-update",
            "--disable-sync", f"--user-data-dir={folder}", "--virtual-time-budget=2000",
            "--dump-dom", path.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return done.stdout


@NEEDS_CHROMIUM
@pytest.mark.parametrize("guard", ["neither", "escaping", "policy", "both"])
def test_names_that_are_scripts_neither_run_nor_ask(tmp_path, listener, guard):
    """In a browser, with each of the two guards alone; without both the same names do run."""
    address = f"http://127.0.0.1:{listener.server_port}"
    attack = (
        f"<script src='{address}/a'></script><img src='{address}/b' onerror=\"document.title="
        f"'owned'\"><script>document.title='owned'</script>"
    )
    text = page(small(type=operators([attack, "Add"])))
    assert str(esc(attack)) in text
    if guard in ("neither", "policy"):
        text = text.replace(str(esc(attack)), attack)
    if guard in ("neither", "escaping"):
        text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    file = tmp_path / "r.html"
    file.write_text(text, encoding="utf-8")
    seen = shown(file, tmp_path / "profile")
    ran = "<title>owned</title>" in seen
    assert (guard == "neither") == ran
    assert (guard == "neither") == bool(listener.asked)
