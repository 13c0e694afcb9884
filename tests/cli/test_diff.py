"""``traceconv diff``: what it prints, and how it ends."""

import csv
import io
import json
import re
import runpy
from dataclasses import replace
from pathlib import Path

import pytest
from html_page import Reader
from paths import ROOT
from perfetto_decoded import decoded
from training_runs import Plan, model, slower, write

from traceconv.cli import run

PLAN = Plan(steps=6)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two equal runs, and a third whose matrices take a fifth longer."""
    folder = tmp_path_factory.mktemp("runs")
    slow = replace(PLAN, seed=3, works=slower(model(), "aten::mm", 1.2))
    plans = {"a": replace(PLAN, seed=1), "b": replace(PLAN, seed=2), "slow": slow}
    return {name: write(folder / name, plan) for name, plan in plans.items()}


def test_a_page_says_what_changed(runs, capsys):
    """Verdict, both runs, the parts of a step, and the way from one to the other."""
    assert run(["diff", runs["a"], runs["slow"], "-q", "--top", "10"]) == 0
    page = capsys.readouterr().out
    verdict, proven, _, before, after, _, head, *_ = page.splitlines()
    assert verdict.startswith("slower: a step takes ")
    assert proven.startswith("proven: aten::mm slower: +1.6")
    assert before.startswith(f"before  {runs['a']}: rank 0; 6 steps (1-6), ")
    assert after.startswith(f"after   {runs['slow']}: rank 0; 6 steps (1-6), ")
    assert head.split() == ["per", "step", "before", "after", "change"]
    assert "\nfrom before to after\nbefore " in page and "\naten::mm " in page
    assert "others" not in page


def test_what_is_not_shown_is_summed_up(runs, capsys):
    """And listed on request: nothing is left out."""
    assert run(["diff", runs["a"], runs["slow"], "-q", "--top", "1"]) == 0
    assert " others " in capsys.readouterr().out
    assert run(["diff", runs["a"], runs["slow"], "-q", "--top", "none"]) == 2
    assert "'none' is neither a number of rows nor all" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("gates", "code"),
    [(["step>40%"], 0), (["step>2%"], 10), (["step>40%", "op:aten::mm>5%"], 10),
     (["step>12.3%"], 11), (["step>12.3%", "computing>1%"], 10)],
)  # fmt: skip
def test_gates_decide_on_the_exit_code(runs, gates, code, capsys):
    """10 for a proven regression, 11 where that cannot be told, and one line where all pass."""
    options = [word for gate in gates for word in ("--fail-on", gate)]
    assert run(["diff", runs["a"], runs["slow"], *options]) == code
    out, err = capsys.readouterr()
    if code == 0:
        assert out.startswith("gate step>40% passed: ") and out.count("\n") == 1
        assert err == ""
    else:
        assert out.startswith("slower: ")
        assert out.count("gate step>") == sum(gate.startswith("step>") for gate in gates)
        assert "gate" not in err


def test_gates_without_a_verdict_may_pass(runs, tmp_path, capsys):
    """Where noise must not stop a pipeline; a proven failure and other jobs do."""
    gates = ["--fail-on", "step>12.3%", "--on-unknown", "pass"]
    assert run(["diff", runs["a"], runs["slow"], *gates]) == 0
    assert "step>12.3% no verdict" in capsys.readouterr().out
    assert run(["diff", runs["a"], runs["slow"], *gates, "--fail-on", "computing>1%"]) == 10
    other = write(tmp_path / "other", replace(PLAN, ranks=2))
    assert run(["diff", runs["a"], other, *gates]) == 11
    assert "error: the runs cannot be compared" in capsys.readouterr().err


def test_runs_that_cannot_be_compared_end_in_11(runs, tmp_path, capsys):
    """With the reason, and what shows them all the same; gates or not."""
    other = write(tmp_path / "other", replace(PLAN, ranks=2))
    assert run(["diff", runs["a"], other]) == 11
    message = capsys.readouterr().err
    assert "error: the runs cannot be compared: other world size: 1 ranks before, 2" in message
    assert "(--force-compare shows what there is, without verdict)" in message
    assert run(["diff", runs["a"], other, "--fail-on", "step>2%"]) == 11
    assert run(["diff", runs["a"], other, "--force-compare"]) == 0
    assert capsys.readouterr().out.startswith("not comparable: other world size")
    assert run(["diff", runs["a"], other, "--force-compare", "--fail-on", "step>90%"]) == 11


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a"], "one run needs two sides: --ranks 0:3, --steps 1-5:6-10, or another run"),
        (["a", "b", "--fail-on", "stp>2%"], "--fail-on: no figure 'stp' (did you mean 'step'?)"),
        (["a", "b", "--fail-on", "op:nope>2%"], "--fail-on: no operator 'nope' in either run"),
        (["a", "b", "--tolerance", "x"], "is not a percentage from 0 to 100"),
        (["a", "--ranks", "0-1:3"], "--ranks: 2 ranks before and 1 after do not pair"),
        (["a", "b", "--steps", "1:x"], "--steps: 'x' is not a list like 0-7,12"),
    ],
)
def test_what_is_not_understood_ends_in_2(runs, words, message, capsys):
    """The message says what is valid."""
    assert run(["diff", *(runs.get(word, word) for word in words)]) == 2
    assert message in capsys.readouterr().err


def test_steps_and_ranks_that_are_not_there_end_in_3(runs, tmp_path, capsys):
    """The message lists those there are; of reports as of captures."""
    assert run(["diff", runs["a"], "--steps", "1:99"]) == 3
    assert "step 99 is in none of the ranks; steps found: 1-6" in capsys.readouterr().err
    assert run(["diff", runs["a"], "--steps", "1:2,8-9"]) == 3
    assert "steps 8-9 are in none of the ranks; steps found: 1-6" in capsys.readouterr().err
    report = str(tmp_path / "r.json")
    assert run(["merge", runs["a"], "-q", "-o", str(tmp_path / "t.json"), "--report", report]) == 0
    assert run(["diff", report, "--ranks", "0:5"]) == 3
    assert "no rank 5; there are 0" in capsys.readouterr().err


def test_a_range_selects_the_steps_that_exist_in_it(runs, capsys):
    """A range may reach beyond the captured steps; one of its numbers must exist."""
    assert run(["diff", runs["a"], "--steps", "0-3:4-900"]) == 0
    said = capsys.readouterr().out
    assert "3 steps (1-3)" in said
    assert "3 steps (4-6)" in said


def test_json_fits_its_schema(runs, capsys):
    """The document is what schemas/json/diff.schema.json describes, an item a line."""
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((ROOT / "schemas" / "json" / "diff.schema.json").read_text())
    words = ["--format", "json", "-q", "--fail-on", "step>90%", "--fail-on", "step>12%"]
    assert run(["diff", runs["a"], runs["slow"], *words]) == 11
    text = capsys.readouterr().out
    document = json.loads(text)
    jsonschema.validate(document, schema)
    assert document["verdict"] == "slower" and len(document["gates"]) == 2
    assert sum(one["change_ns"] for one in document["items"]) == document["classes"][0]["change_ns"]
    assert text.count('{"sort":"compute"') == 16 + 3  # items, and the operators they are of


def test_a_report_fits_its_schema(runs, tmp_path, capsys):
    """With the items of steps, on one line."""
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((ROOT / "schemas" / "json" / "report.schema.json").read_text())
    report = tmp_path / "r.json"
    assert run(["merge", runs["a"], "-q", "-o", str(tmp_path / "t.json"),
                "--report", str(report)]) == 0  # fmt: skip
    jsonschema.validate(json.loads(report.read_text()), schema)
    [line] = [line for line in report.read_text().splitlines() if '"step_items"' in line]
    assert line.lstrip().startswith('"step_items": {"version":1,')


def test_csv_has_a_row_per_item(runs, capsys):
    """That add up to the step, in us with three decimals."""
    assert run(["diff", runs["a"], runs["slow"], "--format", "csv", "-q"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert run(["diff", runs["a"], runs["slow"], "--format", "json", "-q"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(rows) == len(document["items"])
    added = sum(round(1000 * float(row["Change(us)"])) for row in rows)
    assert added == document["classes"][0]["change_ns"]


def test_markdown_has_the_same_tables(runs, capsys):
    """Parts of the step, and the way from one run to the other."""
    assert run(["diff", runs["a"], runs["slow"], "--format", "md", "-q"]) == 0
    page = capsys.readouterr().out
    assert page.startswith("# slower: a step takes ")
    assert "| aten::mm | " in page and "\n## From before to after\n" in page
    assert "of it for input | 0" not in page  # parts that take no time in either run
    assert "The axis" not in page  # of the drawing on the page
    assert "| per step | before | after | change | % | interval | verdict |" in page


@pytest.fixture(scope="module")
def unmarked(runs, tmp_path_factory):
    """The runs without marked steps."""
    folder = tmp_path_factory.mktemp("unmarked")
    for name in ("a", "slow"):
        (folder / name).mkdir()
        for path in Path(runs[name]).iterdir():
            document = json.loads(path.read_text())
            rows = document["traceEvents"]
            document["traceEvents"] = [row for row in rows if "ProfilerStep" not in row["name"]]
            (folder / name / path.name).write_text(json.dumps(document))
    return {name: str(folder / name) for name in ("a", "slow")}


def test_a_gate_without_a_verdict_says_why(unmarked, capsys):
    """In its line, with the option that helps."""
    words = ["diff", unmarked["a"], unmarked["slow"], "--fail-on", "step>2%", "-q"]
    assert run(words) == 11
    gate = "gate step>2% no verdict: "
    why = "(no steps marked: --step-marker)"
    [line] = [one for one in capsys.readouterr().out.splitlines() if gate in one]
    assert line.startswith(gate) and line.endswith(why)
    assert run([*words, "--on-unknown", "pass"]) == 0
    line = capsys.readouterr().out.rstrip()
    assert line.startswith(gate) and line.endswith(why)


def test_markdown_names_options(unmarked, capsys):
    """As they are typed."""
    assert run(["diff", unmarked["a"], unmarked["slow"], "--format", "md", "-q"]) == 0
    page = capsys.readouterr().out
    assert "--step-marker takes the host ranges" in page and "step\\_marker" not in page


def test_names_are_as_wide_as_the_screen_allows(tmp_path, monkeypatch, capsys):
    """Up to half of it."""
    long = "reduce_scatter_of_gradients_and_norms_of_the_sharded_optimizer"
    works = tuple(replace(work, operator=f"aten::{long}") for work in model(1))
    one = write(tmp_path / "one", replace(PLAN, works=works))
    other = write(
        tmp_path / "other", replace(PLAN, seed=1, works=slower(works, f"aten::{long}", 2))
    )
    monkeypatch.setattr("traceconv.cli.say.fits", lambda: True)
    for width, whole in ((200, True), (100, False)):
        monkeypatch.setattr("traceconv.cli.say.width", lambda width=width: width)
        assert run(["diff", one, other, "-q"]) == 0
        rows = capsys.readouterr().out.partition("from before to after")[2]
        assert (long in rows) == whole


@pytest.mark.parametrize("damage", ["cut", "version", "ranks", "sum", "text", "none"])
def test_reports_that_are_broken_are_refused(runs, tmp_path, damage, capsys):
    """With what is wrong, and no traceback."""
    report = tmp_path / "r.json"
    assert run(["merge", runs["a"], "-q", "-o", str(tmp_path / "t.json"),
                "--report", str(report)]) == 0  # fmt: skip
    document = json.loads(report.read_text())
    items = document["step_items"]
    if damage == "version":
        items["version"] = 99
    elif damage == "ranks":
        items["ranks"][0]["at"][0] = 10**6
    elif damage == "sum":
        items["ranks"][0]["ns"][0] += 1
    elif damage == "text":
        items["ranks"][0]["items"]["name"][0] = -5
    elif damage == "none":
        del document["step_items"]
    text = json.dumps(document)
    report.write_text(text[: len(text) // 2] if damage == "cut" else text)
    assert run(["diff", str(report), runs["a"]]) == 3
    said = capsys.readouterr().err
    assert "r.json" in said and "Traceback" not in said


# -- pages and traces --------------------------------------------------------------------------


def test_a_page_draws_the_waterfall(runs, tmp_path, capsys):
    """Closed markup, all sections, a bar per change, the same figures; no script but ours."""
    page = tmp_path / "diff.html"
    assert run(["diff", runs["a"], runs["slow"], "-q", "--report", str(page),
                "--fail-on", "step>90%"]) == 0  # fmt: skip
    read = Reader(page.read_text())
    sections = ["waterfall", "parts", "steps", "items"]
    assert [key for key in read.ids if key in (*sections, "ranks")] == sections
    kinds = [value for tag, key, value in read.attributes if tag == "i" and key == "class"]
    assert kinds.count("k-worse") + kinds.count("k-better") - 2 >= 4  # two are in the legend
    words = " ".join(read.text)
    assert "slower: a step takes " in words and "step>90% passed: " in words
    assert not {"img", "link"} & set(read.tags) and read.tags.count("script") == 1


def test_names_on_a_page_stay_text(tmp_path):
    """Whatever a kernel is called, in every form of the result."""
    bad = "</td><script>x</script>\u202e${body}`|\x1b[31m"
    works = tuple(replace(work, kernel=bad, module=bad) for work in model(1))
    one = write(tmp_path / "one", replace(PLAN, works=works))
    other = write(tmp_path / "other", replace(PLAN, works=slower(works, "aten::mm", 1.5)))
    for name in ("d.html", "d.md", "d.json", "d.csv", "d.txt"):
        assert run(["diff", one, other, "-q", "-o", str(tmp_path / name)]) == 0
    read = Reader((tmp_path / "d.html").read_text())
    assert read.tags.count("script") == 1
    assert "<script>" not in (tmp_path / "d.md").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-o", "d.xyz"], "no format ends in '.xyz'"),
        (["--report", "d.pftrace"], "no format ends in '.pftrace'"),
        (["--report", "nowhere/d.html"], "its folder nowhere does not exist"),
        (["-o", "nowhere/d.pftrace"], "nowhere"),
        (["-o", "there.pftrace"], "exists"),
        (["--json", "--format", "md"], "both want stdout"),
    ],
)
def test_outputs_are_refused_before_anything_is_read(runs, tmp_path, monkeypatch, words, message,
                                                     capsys):  # fmt: skip
    """With what is wrong."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.pftrace").write_text("mine")
    assert run(["diff", runs["a"], runs["slow"], *words]) == 2
    assert message in capsys.readouterr().err
    assert (tmp_path / "there.pftrace").read_text() == "mine"


def test_a_trace_has_both_runs_side_by_side(runs, tmp_path, capsys):
    """Steps begin together, lengths are those of the captures, and what changed is marked."""
    out = tmp_path / "diff.pftrace"
    assert run(["diff", runs["a"], runs["slow"], "-o", str(out), "--steps", "2-5:1-4"]) == 0
    assert f"wrote {out}" in capsys.readouterr().err
    found = decoded(out.read_bytes())
    by_lane = {}
    for mark in found.marks:
        by_lane.setdefault(tuple(found.path(mark.track)), []).append(mark)
    steps = {
        path[0]: [one for one in marks if one.name.startswith("ProfilerStep")]
        for path, marks in by_lane.items()
        if path[-1] == "Step Trace · iterations"
    }
    assert sorted(steps) == ["Rank 0 after", "Rank 0 before"]
    starts = [[one.start for one in marks] for marks in steps.values()]
    assert starts[0] == starts[1] and len(starts[0]) == 4
    changed = {path[0]: marks for path, marks in by_lane.items() if path[-1].endswith("Changed")}
    assert sorted(changed) == ["Rank 0 after", "Rank 0 before"]
    assert all("slower by +" in one.name for marks in changed.values() for one in marks)
    assert len(changed["Rank 0 after"]) == 4 * 8  # steps, matrices
    original = json.loads((Path(runs["slow"]) / "rank0.pt.trace.json").read_text())["traceEvents"]
    lengths = [round(1000 * one["dur"]) for one in original if "cutlass" in one.get("name", "")
               and one["ph"] == "X"][: 4 * 8]  # fmt: skip
    kernels = [one for path, marks in by_lane.items() if path[0] == "Rank 0 after"
               and path[-1] == "Stream 7" for one in marks if "cutlass" in one.name]  # fmt: skip
    assert [one.dur for one in sorted(kernels, key=lambda one: one.start)] == lengths
    assert all("difference" in one.args for one in kernels)


def test_a_report_cannot_be_drawn(runs, tmp_path, capsys):
    """It keeps sums, no slices."""
    report = str(tmp_path / "r.json")
    assert run(["merge", runs["a"], "-q", "-o", str(tmp_path / "t.json"), "--report", report]) == 0
    assert run(["diff", report, runs["slow"], "-o", str(tmp_path / "d.pftrace")]) == 2
    assert "r.json is a report; a trace is made of the captures" in capsys.readouterr().err
    assert not (tmp_path / "d.pftrace").exists()


# -- a job with one slow rank ------------------------------------------------------------------


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """The example job, whose rank 5 computes a quarter slower, and the same without a slow rank."""
    folder = tmp_path_factory.mktemp("jobs")
    made = {"slow": {"FACTOR": 1.25}, "even": {"FACTOR": 1.0}, "other": {"SLOW": 2}}
    for name, settings in made.items():
        job = runpy.run_path(str(ROOT / "examples" / "make_job.py"))
        job["main"].__globals__.update(settings)
        job["main"](str(folder / name))
    return {name: str(folder / name) for name in made}


@pytest.mark.parametrize(
    ("sides", "verdict", "waits"),
    [(("slow", "even"), "faster", "waited"), (("even", "slow"), "slower", "wait")],
)
def test_the_rank_that_changed_is_named(jobs, sides, verdict, waits, capsys):
    """Whether it became slow or was mended; every rank waits for it, so all steps change alike."""
    assert run(["diff", *(jobs[side] for side in sides), "-q", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [document[side]["critical_rank"] for side in ("before", "after")] == [5, 5]
    where, operator = document["proven"]
    assert operator.startswith(f"aten::op {verdict}: ")
    assert where == (
        f"computing {verdict} on rank 5 (dp2 tp1) only; the other ranks {waits} for it"
    )
    longer = {row["after"]: row["computing_ns"] for row in document["ranks"]}
    assert [n for n, (a, b) in longer.items() if abs(b - a) > 1000] == [5]
    assert {row["verdict"] for row in document["ranks"]} == {verdict}


def test_a_change_within_the_tolerance_is_none(jobs, capsys):
    """The first line has the change and the tolerance."""
    assert run(["diff", jobs["even"], jobs["slow"], "-q", "--tolerance", "60"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("no change: ") and first.endswith(", within the tolerance of 60 %")


def test_another_rank_may_be_the_slow_one(jobs, capsys):
    """Both critical ranks are listed; figures are of the one that is critical after."""
    assert run(["diff", jobs["slow"], jobs["other"], "-q"]) == 0
    text = capsys.readouterr().out
    listed = re.findall(r"(?m)^(\d)(?: \*)? +\d", text)
    assert {"2", "5"} <= set(listed)
    assert "gone" not in text and "per step, rank 2" in text
    assert run(["diff", jobs["slow"], jobs["other"], "-q", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [document[side]["critical_rank"] for side in ("before", "after")] == [5, 2]


def test_ranks_that_are_not_shown_are_summed_up(jobs, capsys):
    """With the range of their changes; every rank says by how much its computing changed."""
    assert run(["diff", jobs["even"], jobs["slow"], "-q", "--top", "3"]) == 0
    *_, head, first, _, critical, rest = capsys.readouterr().out.splitlines()
    assert head.split()[-1] == "computing"
    assert first.split()[0] == "0" and critical.startswith("5 *")
    assert critical.split()[-3:] == ["slower", "+1.10", "ms"]
    assert rest.startswith("5 more ranks: +1.08 ms")
