"""``traceconv diagnose``: what it prints and writes, and how it ends."""

import json
import re
from decimal import Decimal

import pytest
from paths import ROOT

import traceconv
from traceconv.cli import run
from traceconv.core.errors import OptionError

SAMPLE = str(ROOT / "golden" / "trace_view" / "demo" / "input")


def test_findings_go_to_stdout(monkeypatch, capsys):
    """Messages to stderr."""
    monkeypatch.delenv("COLUMNS", raising=False)
    assert run(["diagnose", SAMPLE]) == 0
    out, err = capsys.readouterr()
    said, _, found = out.partition("gain/step  finding ")
    headline, *verdict = said.splitlines()
    _, finding, advice = found.splitlines()[:3]
    assert headline.startswith("Mean of ranks 0-1: step 4.06 ms + gaps 1.59 ms = 5.65 ms. Lost: ")
    assert finding.split("  ")[1:3] == ["Long gaps between steps: 28.2 %", ""]
    assert finding.endswith("  rank 0, graph 1 +1 more")
    assert any("rank 1" in line for line in verdict)
    assert advice.strip().startswith("iteration-gap: Most often the device waits for data")
    assert "checks skipped (data not recorded), gains overlap" in " ".join(out.split())
    assert "warning" not in err
    assert run(["diagnose", SAMPLE, "-v"]) == 0
    assert "not checked: reader-ratio: needs a log of Paddle's timer" in capsys.readouterr().out


def test_evidence_is_where_a_viewer_shows_it(tmp_path, capsys):
    """Every slice, by its name and start, is in the trace of the same ranks; no line has a stamp
    of more digits than a time since its start."""
    out = tmp_path / "x.json"
    assert run(["merge", SAMPLE, "-m", "detail", "-q", "-o", str(out)]) == 0
    events = json.loads(out.read_bytes(), parse_float=Decimal)["traceEvents"]
    drawn = {(e["name"], int(e["ts"] * 1000)) for e in events if e["ph"] in "XB"}
    assert run(["diagnose", SAMPLE, "-q", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["findings"]
    told = [one for finding in found for one in finding["slices"] if one["lane"]]
    assert told
    assert [one for one in told if (one["name"], one["since_start_ns"]) not in drawn] == []
    assert run(["merge", SAMPLE, "-q", "-o", str(tmp_path / "y.json"), "--report",
                str(tmp_path / "r.md")]) == 0  # fmt: skip
    for form in ("text", "md"):
        assert run(["diagnose", SAMPLE, "-q", "--format", form]) == 0
        assert re.findall(r"\d{15,}", capsys.readouterr().out) == []
    findings = (tmp_path / "r.md").read_text().partition("## Findings")[2].partition("\n## ")[0]
    assert " on Overlap Analysis / Communication(Not Overlapped), at 0." in findings
    assert re.findall(r"\d{15,}", findings) == []


def test_json_is_one_document(capsys):
    """With findings, stragglers and issues."""
    assert run(["diagnose", SAMPLE, "--format", "json", "-q"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["schema_version"], told["ranks"]) == (1, [0, 1])
    assert {"findings", "quiet", "not_checked", "stragglers", "issues"} <= told.keys()
    assert told["stragglers"]["verdict"] == "no verdict"


def test_the_ending_names_the_format(tmp_path, capsys):
    """Markdown by its ending; the file is named on stderr."""
    path = tmp_path / "f.md"
    assert run(["diagnose", SAMPLE, "-o", str(path)]) == 0
    headline, rest = path.read_text().split("\n\n", 1)
    assert headline.startswith("**Mean of ranks 0-1: step 4.06 ms + gaps 1.59 ms = 5.65 ms. Lost: ")
    assert rest.startswith("## Findings\n\n- **warning: iteration-gap")
    assert "## Stragglers" in path.read_text()
    assert f"wrote {path}" in capsys.readouterr().err


def test_nothing_is_overwritten_without_force(tmp_path, capsys):
    """Exit 3 before anything is read."""
    path = tmp_path / "f.json"
    path.write_text("mine")
    assert run(["diagnose", SAMPLE, "-o", str(path)]) == 2
    assert (path.read_text(), "pass -f" in capsys.readouterr().err) == ("mine", True)
    assert run(["diagnose", SAMPLE, "-o", str(path), "-f", "-q"]) == 0
    assert json.loads(path.read_text())["ranks"] == [0, 1]


def test_a_folder_that_is_not_there_is_an_error(tmp_path, capsys):
    """Not a traceback."""
    assert run(["diagnose", SAMPLE, "-q", "-o", str(tmp_path / "no" / "f.md")]) == 2
    assert "does not exist; create it" in capsys.readouterr().err


def test_rules_can_be_chosen(capsys):
    """Others are not mentioned."""
    assert run(["diagnose", SAMPLE, "--rule", "long-tail,reader-ratio", "-q"]) == 0
    out = capsys.readouterr().out
    assert "long-tail" in out
    assert "1 check skipped" in out
    assert "iteration-gap" not in out


def test_thresholds_can_be_set(capsys):
    """Tails of 25 % do not reach 30 %."""
    call = ["diagnose", SAMPLE, "--rule", "long-tail", "--threshold", "long-tail=30", "-q"]
    assert run(call) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == ["no findings", "1 check passed; -v: details"]


@pytest.mark.parametrize("said", ["long-tail", "long-tail=much", "=3", "long-tail=nan", "A=1"])
def test_thresholds_are_name_and_number(said, capsys):
    """Anything else is a usage error."""
    assert run(["diagnose", SAMPLE, "--threshold", said]) == 2
    assert "is not RULE=NUMBER" in capsys.readouterr().err


def test_what_is_not_there_is_refused(capsys):
    """Rules, thresholds and steps, with those there are."""
    for extra, code, text in (
        (["--rule", "colour"], 2, "error: --rule: no rule 'colour'; there are: iteration-gap"),
        (["--threshold", "long-tial=1"], 2, "no threshold 'long-tial' (did you mean 'long-tail'?)"),
        (["--steps", "999"], 3, "steps found: 1-3"),
    ):
        assert run(["diagnose", SAMPLE, *extra]) == code
        assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("extra", "code"),
    [
        (["--fail-on", "warning"], 10),
        (["--fail-on", "note"], 10),
        (["--fail-on", "warning", "--rule", "device-busy"], 0),
        (["--fail-on", "note", "--rule", "device-busy"], 0),
        (["--fail-on", "note", "--rule", "reader-ratio"], 0),
    ],
)
def test_a_gate_for_scripts(extra, code):
    """Exit code 10 if a finding is grave enough; the findings are printed all the same."""
    assert run(["diagnose", SAMPLE, "-q", *extra]) == code


def test_ranks_and_steps_are_chosen(capsys):
    """One rank, two steps: no comparison, and findings of these only."""
    assert (
        run(["diagnose", SAMPLE, "--ranks", "1", "--steps", "2-3", "--format", "json", "-q"]) == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert (told["ranks"], told["stragglers"]) == ([1], None)
    assert {step for one in told["findings"] for step in one["steps"]} <= {2, 3}
    assert "compute-spread" in {one["rule"] for one in told["not_checked"]}


def test_library_refuses_before_it_reads():
    """Unknown rules are found out first, whatever the paths."""
    with pytest.raises(OptionError, match="no rule 'x'"):
        traceconv.diagnose("nowhere", rule=["x"])


def test_issues_of_tables_are_told():
    """What reading met is in the document of the run."""
    found = traceconv.diagnose(SAMPLE, rule=["communication-wait"])
    assert "overlap-recomputed" in {issue.code for issue in found.issues}
