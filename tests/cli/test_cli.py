"""The command line: what it prints where, what it ends with, what it refuses and how it says so."""

import json
import os
import re
import subprocess
import sys

import click
import pytest
from paths import ROOT

import traceconv
from tests.support.commands import COMMANDS
from traceconv import native
from traceconv.cli import run, say
from traceconv.cli.options import SECTIONS
from traceconv.core.codes import Severity
from traceconv.core.errors import Issues
from traceconv.store import rank_file

SAMPLE = str(ROOT / "golden" / "trace_view" / "demo" / "input")
CUT = str(ROOT / "golden" / "trace_view" / "cut_off" / "input")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def process(*arguments, **more):
    """The command line as a program of its own."""
    return subprocess.run(
        [sys.executable, "-m", "traceconv", *arguments],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        **more,
    )


# -- first run -----------------------------------------------------------------------------


def test_first_run_writes_a_named_file(here, capsys):
    """Without -o the file says what it holds."""
    assert run(["merge", SAMPLE, "--ranks", "0-1", "--mode", "summary"]) == 0
    assert [p.name for p in here.iterdir()] == ["trace_summary_ranks0-1.pftrace"]


def test_a_log_without_device_work_gets_the_detail_view(here, capsys):
    """A summary would be empty. A requested one is written, with a remark."""
    (here / "own.csv").write_text("name,ts,dur\nread,1,2\ndecode,4,2\n")
    report = traceconv.merge("own.csv")
    assert (report.mode, report.output) == ("detail", "trace_detail_ranks0.pftrace")
    assert run(["merge", "own.csv"]) == 2
    assert "trace_detail_ranks0.pftrace: exists" in capsys.readouterr().err
    assert run(["merge", "own.csv", "-m", "summary"]) == 0
    assert "no device work is known" in capsys.readouterr().err
    assert (here / "trace_summary_ranks0.pftrace").exists()


def test_there_is_no_command_for_reports(here, capsys):
    """The message says which commands write them."""
    assert run(["report", SAMPLE]) == 2
    assert "traceconv merge ./prof --report report.html" in capsys.readouterr().err


def test_an_input_that_is_missing_comes_before_an_output_that_exists(here, capsys):
    """The output is not in the way of a run that cannot begin."""
    (here / "run.tcz").touch()
    assert run(["pack", "nope"]) == 3
    assert "nope: no such file or folder" in capsys.readouterr().err


def test_two_reports_are_refused(here, capsys):
    """Only the last would be written."""
    assert run(["merge", SAMPLE, "--report", "r.html", "--report", "r.md"]) == 2
    assert "given 2 times; write one report per call" in capsys.readouterr().err
    assert list(here.iterdir()) == []


def test_first_run_says_what_matters(here, capsys):
    """Ranks, clock, steps, the losses, the file and where to drag it: on stderr."""
    run(["merge", SAMPLE])
    out, err = capsys.readouterr()
    assert out == ""
    for part in (
        "ranks 0-1",
        "clock:",
        "steps per rank: 3 of graph 1",
        "nothing was lost",
        "Lost: gaps between steps",
        "wrote",
        "ui.perfetto.dev",
    ):
        assert part in " ".join(err.split())


def test_quiet_says_nothing(here, capsys):
    """-q leaves both streams empty."""
    assert run(["merge", SAMPLE, "-q"]) == 0
    assert capsys.readouterr() == ("", "")


# -- streams -------------------------------------------------------------------------------


def test_json_is_one_document_on_stdout(here, capsys):
    """--json gives the report, with its schema version, and nothing else on stdout."""
    assert run(["merge", SAMPLE, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["schema_version"], document["ranks"]) == (1, [0, 1])


def test_output_to_stdout_is_the_trace(here):
    """-o - writes the bytes a file would hold."""
    done = process("convert", CUT, "-o", "-", "--to", "text", cwd=here)
    run(["convert", CUT, "-o", "same.txt", "-q"])
    assert (here / "same.txt").read_bytes() == done.stdout


def test_reader_that_goes_away_is_no_error(here):
    """A closed pipe ends the run without a traceback."""
    program = subprocess.Popen(
        [sys.executable, "-m", "traceconv", "convert", CUT, "-o", "-", "--to", "text"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=here,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    program.stdout.close()
    err = program.stderr.read().decode()
    program.wait()
    program.stderr.close()
    assert (program.returncode, "Traceback" in err, "Broken" in err) == (141, False, False)


def test_no_color_is_respected(here, monkeypatch, capsys):
    """No escape codes with NO_COLOR, nor where there is no terminal."""
    monkeypatch.setenv("NO_COLOR", "1")
    run(["convert", CUT, "-o", "a.json"])
    assert "\x1b" not in capsys.readouterr().err


# -- exit codes ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--version"], 0),
        (["merge"], 3),
        (["merge", SAMPLE, "--ranks", "x"], 2),
        (["merge", "no/such/folder"], 3),
        (["merge", SAMPLE, "--ranks", "9"], 3),
        (["merge", SAMPLE, "--graphs", "9"], 3),
        (["merge", SAMPLE, "--steps", "99"], 3),
        (["merge", SAMPLE, "--from", "kinetoo"], 2),
        (["merge", SAMPLE, "--layers", "nonsense"], 2),
        (["merge", SAMPLE, "-o", "no/folder/out.pftrace"], 2),
        (["merge", SAMPLE, "-o", "out.xyz"], 2),
        (["merge", SAMPLE, "-o", "out.pftrce"], 2),
        (["merge", SAMPLE, "--to", "perfeto"], 2),
        (["merge", SAMPLE, "--mode", "sumary"], 2),
        (["merge", SAMPLE, "--rank-from", "("], 2),
        (["merge", SAMPLE, "--map", "nsys"], 2),
        (["merge", SAMPLE, "--shard", "0/2", "-o", "a.pftrace"], 2),
        (["merge", SAMPLE, "--engine-address", "tcp://x"], 2),
        (["merg", SAMPLE], 2),
        (["stats", SAMPLE, "-o", "tables.ods"], 2),
        (["stats", SAMPLE, "--by", "opp"], 2),
        (["diagnose", SAMPLE, "-o", "found.htm"], 2),
        (["diagnose", SAMPLE, "--rule", "long-tial"], 2),
        (["convert", CUT, "-o", "x.json", "--strict"], 4),
        (["convert", SAMPLE, "-o", "x.json", "--report", "x.pdf"], 2),
        (["merge", SAMPLE, "-o", "-", "--json"], 2),
        (["validate", "no_such.pftrace"], 3),
    ],
    ids=lambda value: "-".join(value)[-40:].replace("/", "_") if isinstance(value, list) else None,
)
def test_exit_code(here, capsys, arguments, code):
    """Each way to end has its number."""
    assert run(arguments) == code
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["merge", SAMPLE, "-o", "out.pftrce"], "'.pftrace'"),
        (["merge", SAMPLE, "--to", "perfeto"], "'perfetto'"),
        (["merge", SAMPLE, "--from", "kinetoo"], "'kineto'"),
        (["merge", SAMPLE, "--mode", "sumary"], "'summary'"),
        (["merg", SAMPLE], "'merge'"),
        (["stats", SAMPLE, "-o", "tables.jsn"], "'.json'"),
        (["stats", SAMPLE, "--by", "opp"], "'op'"),
        (["diagnose", SAMPLE, "-o", "found.htm"], "'.html'"),
        (["diagnose", SAMPLE, "--rule", "long-tial"], "'long-tail'"),
        (["align", SAMPLE, "--align", "colective"], "'collective'"),
    ],
)
def test_a_wrong_value_is_answered_with_the_nearest(here, capsys, arguments, meant):
    """Exit code 2, no file, and what was probably meant."""
    assert run(arguments) == 2
    assert f"did you mean {meant}?" in capsys.readouterr().err.replace("Did", "did")
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "module", "line"),
    [
        (["--engine", "dask"], "distributed", "in a checkout: pip install '.[dask]'"),
        (["-o", "s3://bucket/x.json"], "fsspec.core", "in a checkout: pip install '.[s3]'"),
    ],
)
def test_a_missing_extra_is_answered_with_the_line_that_installs_it(
    here, monkeypatch, capsys, arguments, module, line
):
    """Exit code 2: the input is not at fault."""
    monkeypatch.setitem(sys.modules, module, None)
    assert run(["merge", SAMPLE, *arguments]) == 2
    assert line in capsys.readouterr().err


def test_strict_leaves_no_file(here, capsys):
    """What --strict refuses is not written."""
    run(["convert", CUT, "-o", "x.json", "--strict"])
    assert list(here.iterdir()) == []


def test_interruption_ends_with_130(monkeypatch, capsys):
    """Ctrl-C is answered with one line."""

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("traceconv.api.inspect.inspect", interrupted)
    assert run(["inspect", SAMPLE]) == 130
    assert "interrupted" in capsys.readouterr().err


@pytest.mark.parametrize(("flags", "traceback"), [([], False), (["-v"], True)])
def test_internal_error_is_one_line_without_v(tmp_path, flags, traceback):
    """A fault of ours ends with 1 and a hint; -v shows the traceback."""
    (tmp_path / "broken.py").write_text(
        "import traceconv.api.inspect\n"
        "def fail(*_, **__):\n    raise ZeroDivisionError('for the test')\n"
        "traceconv.api.inspect.inspect = fail\n"
        "from traceconv.cli import main\nmain()\n"
    )
    done = subprocess.run(
        [sys.executable, str(tmp_path / "broken.py"), "inspect", SAMPLE, *flags],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, "Traceback" in done.stderr) == (1, traceback)
    assert "internal error: ZeroDivisionError: for the test" in done.stderr


# -- safety --------------------------------------------------------------------------------


def test_existing_file_is_not_overwritten(here, capsys):
    """A second run needs -f."""
    assert run(["merge", SAMPLE, "-q"]) == 0
    assert run(["merge", SAMPLE, "-q"]) == 2
    assert run(["merge", SAMPLE, "-q", "-f"]) == 0


def test_existing_report_is_not_overwritten(here, capsys):
    """The same holds for the report, before anything is read."""
    (here / "r.md").write_text("mine")
    assert run(["merge", SAMPLE, "--report", "r.md"]) == 2
    assert [p.name for p in here.iterdir()] == ["r.md"]


def test_dry_run_writes_nothing(here, capsys):
    """-n names the file it would write."""
    assert run(["merge", SAMPLE, "-n"]) == 0
    assert list(here.iterdir()) == []
    assert "would write trace_summary_ranks0-1.pftrace" in capsys.readouterr().err


# -- names ---------------------------------------------------------------------------------


def test_version_says_which_program_this_is(capsys):
    """--version tells it from Perfetto's helper."""
    run(["--version"])
    out = capsys.readouterr().out
    assert traceconv.__version__ in out
    assert "Perfetto" in out


@pytest.mark.parametrize(
    ("built", "said"),
    [
        (native.TIERS, "parts in C: all\n"),
        (native.TIERS[1:], "parts in C: all but scan\n"),
        ((), "parts in C: none (three to four times slower, same output)\n"),
    ],
)
def test_version_names_the_tier_and_the_formats(capsys, monkeypatch, built, said):
    """What a report of a fault needs: who does the work, and which files go together."""
    monkeypatch.setattr(native, "_built", lambda part: part if part in built else None)
    monkeypatch.delenv("TRACECONV_NATIVE", raising=False)
    run(["--version"])
    out = capsys.readouterr().out
    assert said in out
    assert f"rank file {rank_file.VERSION}" in out
    monkeypatch.setenv("TRACECONV_NATIVE", "0")
    run(["--version"])
    assert "parts in C: none" in capsys.readouterr().out


@pytest.mark.parametrize("mode", ["json", "systrace", "profile", "text", "symbolize"])
def test_calls_meant_for_perfettos_helper_are_answered(capsys, mode):
    """The old call form gets the name of the right command, not "no such command"."""
    assert run([mode, "in.pftrace", "out.json"]) == 2
    err = capsys.readouterr().err
    assert "traceconv convert in.pftrace -o out.json" in err


def test_forgotten_command_is_supplied(capsys):
    """``traceconv ./prof`` is told of merge."""
    assert run([SAMPLE]) == 2
    assert f"traceconv merge {SAMPLE}" in capsys.readouterr().err


# -- other commands ------------------------------------------------------------------------


def test_inspect_lists_a_line_per_rank(capsys):
    """Format, rank and device of every capture, on stdout."""
    assert run(["inspect", SAMPLE]) == 0
    out, _ = capsys.readouterr()
    assert [line.split()[:2] for line in out.splitlines() if line[:1].isdigit()] == [
        ["0", "trace_view"],
        ["1", "trace_view"],
    ]


def test_inspect_counts_as_json(capsys):
    """--counts --json gives rows by kind."""
    assert run(["inspect", SAMPLE, "--counts", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [c["counts"]["counter"] for c in document["captures"]] == [60, 60]


def test_formats_names_readers_and_writers(capsys):
    """Every reader and writer has a line."""
    assert run(["formats"]) == 0
    out = capsys.readouterr().out
    for name in ("trace_view", "msprof", "mindspore", "chrome_json", "perfetto", "text"):
        assert name in out


def test_validate_passes_our_own_output(here, capsys):
    """What merge writes is valid, in both formats."""
    for name in ("a.pftrace", "a.json"):
        run(["merge", SAMPLE, "-m", "detail", "-q", "-o", name])
        assert run(["validate", name]) == 0


def test_validate_finds_fault_with_a_broken_file(here, capsys):
    """A cut-off Perfetto trace is refused."""
    run(["merge", SAMPLE, "-q", "-o", "a.pftrace"])
    (here / "cut.pftrace").write_bytes((here / "a.pftrace").read_bytes()[:-3])
    assert run(["validate", "cut.pftrace"]) == 3


# -- report --------------------------------------------------------------------------------


def test_report_fits_its_schema(here, capsys):
    """The JSON report is what schemas/json/report.schema.json describes."""
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((ROOT / "schemas" / "json" / "report.schema.json").read_text())
    run(["merge", SAMPLE, "--report", "r.json"])
    run(["merge", SAMPLE, "--report", "r.json", "-m", "detail", "--max-events", "300", "-f"])
    jsonschema.validate(json.loads((here / "r.json").read_text()), schema)


def test_markdown_report_has_the_sections(here, capsys):
    """The Markdown report tells files, ranks, clock, issues and rows."""
    run(["convert", CUT, "-o", "a.json", "--report", "r.md"])
    text = (here / "r.md").read_text()
    titles = [line for line in text.splitlines() if line.startswith("## ")]
    for title in ("## What was written", "## What was read", "## Clocks", "## Rows by stage"):
        assert title in titles


DOUBTS = ["rank-conflict", "unaligned", "clock-assumed", "missing-duration", "missing-name",
          "time-rounded", "bad-encoding", "unfinished-slice", "args-not-json"]  # fmt: skip


def test_issue_lines_are_few_and_gravest_first():
    """At most eight lines; losses before doubts, what is left out is counted."""
    issues = Issues()
    for code in [*DOUBTS, "truncated", "unused-file"]:
        issues.add(code, "a.json")
    lines = say.issue_lines(issues, 8)
    assert [severity for _, severity in lines] == [
        Severity.LOSS, *[Severity.DOUBT] * 7
    ]  # fmt: skip
    assert lines[7][0] == "... and 3 more kinds (-v shows them)"


def test_notes_are_shown_on_request():
    """By default only notes that say what is missing in the result; with -v all."""
    issues = Issues()
    issues.add("unused-file", "a.json", count=2)
    issues.add("empty-file", "b.json")
    assert [line for line, _ in say.issue_lines(issues, 8)] == [
        "info: empty-file x1: b.json: The file has no events."
    ]
    assert len(say.issue_lines(issues, say.ALL_LINES)) == 2


def test_steps_without_device_data_have_a_line():
    """Though nothing was lost: figures of them are missing."""
    issues = Issues()
    for rank in (0, 1):
        issues.add(
            "steps-uncovered", count=6, where="device data for 4 of 10 iterations", rank=rank
        )
    ((line, severity),) = say.issue_lines(issues, 8)
    assert line.startswith("info: steps-uncovered x12: device data for 4 of 10 iterations: ")
    assert severity is Severity.INFO


def test_issue_lines_sum_over_files():
    """Equal codes of several files are one line."""
    issues = Issues()
    issues.add("truncated", "a.json", count=2)
    issues.add("truncated", "b.json", count=3)
    assert say.issue_lines(issues, 8)[0][0].startswith("loss: truncated x5 in 2 files: ")


# -- values --------------------------------------------------------------------------------


def test_inspect_predicts_output_sizes(here, capsys):
    """What --counts predicts is at least the size of the file, and not 15 % more."""
    run(["inspect", "--counts", "--json", SAMPLE])
    seen = json.loads(capsys.readouterr().out)
    for mode in ("summary", "detail"):
        predicted = sum(c["counts"]["predicted_bytes"][mode] for c in seen["captures"])
        run(["merge", "-q", "-m", mode, "-o", f"{mode}.pftrace", SAMPLE])
        size = (here / f"{mode}.pftrace").stat().st_size
        assert 0.95 * size <= predicted <= 1.15 * size


def test_align_writes_json_only(here, capsys):
    """Another ending is refused; `-` is stdout, as everywhere."""
    assert run(["align", SAMPLE, "-o", "offsets.csv"]) == 2
    assert "there are: .json" in capsys.readouterr().err
    assert run(["align", SAMPLE, "-o", "-", "-q"]) == 0
    assert json.loads(capsys.readouterr().out)
    assert list(here.iterdir()) == []


def test_validate_checks_every_file(here, capsys):
    """What one file is does not keep the others from being checked."""
    for name in ("a.pftrace", "b.json"):
        run(["merge", SAMPLE, "-q", "-o", name])
    (here / "cut.pftrace").write_bytes((here / "a.pftrace").read_bytes()[:-3])
    capsys.readouterr()
    assert run(["validate", "none.json", "a.pftrace", "cut.pftrace", "b.json"]) == 3
    out, err = capsys.readouterr()
    assert [line for line in out.splitlines() if line.endswith(": ok")] == [
        "a.pftrace: ok", "b.json: ok"
    ]  # fmt: skip
    assert ("none.json" in err, "error: cut.pftrace" in err) == (True, True)
    assert run(["validate", "--json", "none.json", "a.pftrace", "cut.pftrace"]) == 3
    told = json.loads(capsys.readouterr().out)
    assert [(one["path"], one["ok"]) for one in told["traces"]] == [
        ("a.pftrace", True), ("cut.pftrace", False)
    ]  # fmt: skip
    assert (told["ok"], [one["path"] for one in told["unreadable"]]) == (False, ["none.json"])
    assert run(["validate", "a.pftrace", "b.json"]) == 0


def test_a_step_marker_is_a_pattern(here, capsys):
    """Steps of the summary are those it names; what is no pattern is refused by its flag."""
    case = str(ROOT / "golden" / "kineto" / "step_marker" / "input")
    marker = "--step-marker=micro batch ([0-9]+) of"
    assert run(["convert", case, "-o", "out.txt", marker, "--steps", "83-84"]) == 0
    steps = re.findall(r"iteration step=(\d+)", (here / "out.txt").read_text())
    assert steps == ["83", "84"]
    assert "steps per rank: 2" in capsys.readouterr().err
    assert run(["merge", case, "-o", "bad.txt", "--step-marker", "a("]) == 2
    assert "--step-marker" in capsys.readouterr().err


# -- help ----------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [80, 120])
def test_help_fits_the_terminal(monkeypatch, capsys, columns):
    """Of every command; wide terminals are used."""
    monkeypatch.setenv("COLUMNS", str(columns))
    for name in COMMANDS:
        assert run([name, "--help"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line for line in lines if len(line) > columns] == []
        if name == "merge":
            assert max(map(len, lines)) > columns * 0.9


@pytest.mark.parametrize("name", ["merge", "convert", "stats", "diagnose", "align", "join"])
def test_help_groups_options_by_purpose(capsys, name):
    """Each option is below one heading, and none below "Options"."""
    assert run([name, "--help"]) == 0
    text = capsys.readouterr().out
    titles = re.findall(r"^(\S[^:]*):$", text, re.MULTILINE)
    assert len(titles) > 3 and set(titles) <= set(SECTIONS)
    assert "000000" not in text  # times are not in ns
    for parameter in COMMANDS[name].params:
        for option in parameter.opts if isinstance(parameter, click.Option) else ():
            assert len(re.findall(rf"^  (?:-\w, )?{option}(?![\w-])", text, re.MULTILINE)) <= 1
            assert option in text
