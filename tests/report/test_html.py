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
from traceconv.report import excerpts, markdown, report_page, sections
from traceconv.report.blocks import Line, Lines
from traceconv.report.figures import exact, time
from traceconv.report.html import HEIGHT, blocks

HOSTILE = (
    "<script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "\"><svg onload=document.title='owned'>",
    "' onmouseover='document.title=1' style='background:url(//127.0.0.1/)",
    "</style></title></section></main><script>document.title='owned'</script>",
    "javascript:document.title='owned'",
    "&lt;b&gt; ${title} $body %s {0}",
    "\x00\x1b[31m\u202egnp.\u2066 \ud800 \ufffe \u061c \U000e0041",
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
    acts = "[\x00-\x08\x1b\u061c\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\U000e0041]"
    assert re.search(acts, esc(name)) is None


def drawn(overview, key):
    """The markup of one section."""
    return next(str(blocks(one.blocks)) for one in report_page.analysis(overview) if one.key == key)


def test_the_sections_are_there_in_this_order(told):
    """Those with data, each once; the others are named in one list."""
    lacking = {"stages", "shape", "idle_causes", "efficiency", "graphs", "memory_at_peak"}
    assert {key for key in SECTIONS if "missing" in told["overview"].get(key, ())} == lacking
    assert Reader(page(told)).ids == [key for key in SECTIONS if key not in lacking]
    assert "Pipeline stages" in drawn(told["overview"], "missing")


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
    shown = drawn({**told["overview"], "shape": section}, "shape")
    assert 'title="rank 1 pp0 tp1: computing 6.25 ms">1<' in shown
    assert 'title="rank 0 pp0 tp0: computing –">0<' in shown
    assert "unknown of ranks 2-3: tp: no group of it is named" in shown
    assert "tp 2 (unknown of 2 of 4 ranks)" in shown
    table = "\n".join(markdown.lines({**told["overview"], "shape": section}))
    assert "| 3 | 1 | – | – |" in table


def test_sections_without_data_say_what_they_need():
    """A single rank without a matrix has neither a map of ranks nor of traffic."""
    told = document(Job(1, 2, 1, steps=3), ranks=1, link={}, type={}, op={}, curves={})
    read = Reader(page(told))
    words = " ".join(read.text)
    assert "needs two ranks with the same steps" in words
    assert "needs Ascend planes, or communication_matrix.json" in words
    assert "needs counters of memory, or records of a data queue" in words
    assert not {"heat", "links", "curves", "operators"} & set(read.ids)


def test_without_an_analysis_the_account_stands_alone(told):
    """A conversion is not analysed, but has issues, clocks and ranks."""
    bare = {key: value for key, value in told.items() if key != "overview"}
    assert Reader(page(bare)).ids == ["findings", "clock", "issues", "ranks"]


def test_the_verdict_comes_first(told):
    """What is lost, whose it is, what to do, and what would help."""
    verdict = told["overview"]["verdict"]
    assert verdict["text"] == "Rank 2 costs 299 µs per step (24 %), mostly computing."
    assert verdict["lost"].startswith(
        "Mean of ranks 0-3: 1.24 ms per step. Lost: waiting for rank 2"
    )
    assert verdict["advice"].startswith("Compare clock rates")
    first = told["overview"]["what_if"][0]
    assert (first["change"], first["text"]) == (
        "rank:2=peers", "299 µs less per step (24 %) if rank 2 took as long as the others"
    )  # fmt: skip
    text = page(told)
    assert 0 < text.index("Rank 2 costs") < text.index("<nav aria-label")


def test_one_step_of_all_ranks_shows_who_waits(told):
    """The slow rank computes while the others wait for it."""
    section = told["overview"]["timeline"]
    moments = {row["rank"]: row["moments"] for row in section["rows"]}
    assert next(iter(moments)) == 2
    assert set(map(len, moments.values())) == {240}
    shares = {rank: text.count("w") / len(text) for rank, text in moments.items()}
    assert shares[2] < 0.05
    assert all(0.15 < shares[rank] < 0.35 for rank in (0, 1, 3))
    assert all(text.count("c") / len(text) > 0.5 for text in moments.values())
    assert 1_000_000 < section["dur_ns"] < 1_500_000


def test_without_a_loss_the_card_is_no_warning():
    """Equal ranks."""
    verdict = document(Job(1, 4, 1, steps=6))["overview"]["verdict"]
    assert (verdict["severity"], verdict["lost"]) == ("note", "")


def test_the_verdict_is_three_sentences_and_names_the_slow_rank(told):
    """The planted rank, 300 us late, for which three of four ranks wait."""
    assert len(told["overview"]["sentences"]) == 3
    start = "Mean of ranks 0-3: 1.24 ms per step. Lost: waiting for rank 2 224 µs (18 %), "
    assert start in told["overview"]["headline"]
    assert told["overview"]["headline"].startswith("Rank 2 costs 299 µs per step (24 %)")
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
        line = Lines([Line("c0", [0, 1], y)], ([0, 1], ["a", "b"]), ("", 1))
        path = re.search(r'd="M([^"]*)" class="line c0"', blocks([line]))[1]
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
    """Bars of both ends and the mean of the rest; the table has all."""
    keys = ("pure_compute_ns", "overlapped_ns", "exposed_ns", "copy_ns", "idle_ns")
    row = {**dict.fromkeys(keys, 10), "input_wait_ns": None, "input_wait_steps": 0}
    rows = [{"rank": r, "steps": 1, "known_ns": 40, **row} for r in range(1000)]
    told = small()
    told["overview"]["overlap"] = {"per": "step", "rows": rows}
    words = Reader(page(told)).text
    assert "984 others (mean)" in words
    assert page(told).count('class="bar') < 200


def test_equal_input_gives_an_equal_page():
    """No clock, no random numbers, no order of sets."""
    assert page(small()) == page(small())


def test_markdown_and_json_have_the_figures_of_the_page(told):
    """Every figure of the overlap; the page has the exact one where one points at it."""
    again = json.loads(orjson.dumps(told))
    read = Reader(page(told))
    words = " ".join(read.text)
    tips = " ".join(value for _, key, value in read.attributes if key == "title")
    told_in_lines = "\n".join(markdown.lines(again["overview"]))
    for row in again["overview"]["overlap"]["rows"]:
        for key in ("known_ns", "pure_compute_ns", "exposed_ns", "idle_ns"):
            assert exact(row[key]) in tips
            assert time(row[key]) in words
            assert time(row[key]) in told_in_lines
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
    assert {"overlap", "findings", "operators", "clock", "issues", "ranks", "written"} <= known


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
    ids = Reader(out.read_text()).ids
    assert ids == [key for key in SECTIONS if key in ids] and "written" not in ids


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


@pytest.mark.sample(2)
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
