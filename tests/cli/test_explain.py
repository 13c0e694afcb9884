"""``traceconv explain``: every code that is printed can be looked up."""

import json

import pytest
from paths import ROOT

from traceconv.analysis.rules.catalog import RULES
from traceconv.analysis.tables.catalog import TABLES
from traceconv.cli import run, say
from traceconv.core.errors import CODES, Issues
from traceconv.validation import RULES as FAULTS

CUT = str(ROOT / "golden" / "trace_view" / "cut_off" / "input")


@pytest.mark.parametrize(
    ("code", "parts"),
    [
        ("truncated", [CODES["truncated"].advice, "issue, loss", "--strict"]),
        ("LONG-TAIL", [RULES["long-tail"].advice, "> 20 %", "--threshold long-tail=NUMBER"]),
        ("P05-redefined", [FAULTS["P05-redefined"].sentence, "rule of validate, silent"]),
        ("memory_curve", [TABLES["memory_curve"].formula, "table of stats"]),
        ("size-limit", ["Raise --max-size, or pass --over-limit split"]),
    ],
)
def test_a_code_is_explained(capsys, code, parts):
    """In words, with what can be done; keyword arguments as flags."""
    assert run(["explain", code]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert [part for part in parts if say.with_flags(" ".join(part.split())) not in told] == []


def test_every_code_is_listed(capsys):
    """A line each, of all kinds; as JSON, too."""
    assert run(["explain"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert {*CODES, *RULES, *FAULTS, *TABLES} <= set(listed)
    assert run(["explain", "--json"]) == 0
    assert [one["code"] for one in json.loads(capsys.readouterr().out)["codes"]] == listed


def test_a_typing_error_is_answered(capsys):
    """Exit code 2, with the nearest, not with two hundred names."""
    assert run(["explain", "trunkated"]) == 2
    err = capsys.readouterr().err
    assert "did you mean 'truncated'?" in err
    assert "`traceconv explain` lists all" in err
    assert len(err) < 300


def test_plugins_explain_theirs(capsys, monkeypatch):
    """A code that a plugin announced is one of all."""
    monkeypatch.setattr("traceconv.core.errors._PLUGIN_CODES", {})
    Issues.register("mine", "mine-torn", CODES["truncated"].severity, "It is torn.")
    assert run(["explain", "mine-torn"]) == 0
    assert "It is torn." in capsys.readouterr().out


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_lines_fit_the_terminal(capsys, monkeypatch, columns):
    """Whatever its width."""
    monkeypatch.setenv("COLUMNS", str(columns))
    run(["explain", "step", "launch-backwards"])
    assert columns * 0.8 < max(map(len, capsys.readouterr().out.splitlines())) <= columns


def test_verbose_lines_have_places(tmp_path, capsys):
    """-v says what each code means, and where to look."""
    assert run(["convert", CUT, "-o", str(tmp_path / "x.json"), "-v"]) == 0
    err = capsys.readouterr().err
    (line,) = (line for line in err.splitlines() if line.startswith("loss: truncated"))
    assert say.with_flags(CODES["truncated"].advice) in line
    assert line.endswith("]") and "byte" in line.rpartition("[")[2]
    assert "(-v explains)" not in err
