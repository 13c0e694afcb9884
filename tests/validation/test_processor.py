"""SQL over traces and ``validate --deep``, with a stand-in for Perfetto's trace processor."""

import json
import os
import sys
import time
from functools import partial
from types import SimpleNamespace

import pytest

pytest.importorskip("perfetto.trace_processor")

from perfetto_stand_in import script

import traceconv
from traceconv.cli import run
from traceconv.core.errors import EngineError, MissingExtraError, OptionError, SourceError
from traceconv.core.side_tables import ABSENT
from traceconv.validation import processor

QUERY = ("query", "--engine", "perfetto")
asked = partial(traceconv.query, engine="perfetto")

VALUES = "select 1 as a, 2.5 as b, 'x' as c, null as d, x'00ff' as e, 7 as a "


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """The package looks every second whether the program has started; the stand-in has, soon."""
    often = SimpleNamespace(sleep=lambda seconds: time.sleep(seconds / 5))
    monkeypatch.setattr("perfetto.trace_processor.shell.time", often)


@pytest.fixture
def program(tmp_path, monkeypatch):
    """The stand-in, named in the environment."""
    below = tmp_path / "bin"
    below.mkdir()

    def named(wrong=""):
        monkeypatch.setenv(processor.VARIABLE, str(script(below, wrong)))
        return below

    return named


@pytest.fixture
def trace(tmp_path):
    """An output of ours."""
    out = tmp_path / "out.pftrace"
    rows = [
        {"name": "step 1", "ts": 0, "dur": 90, "kind": "step"},
        {"name": "gemm", "ts": 10, "dur": 40, "stream": 7},
        {"name": "mark", "ts": 20, "ph": "mark"},
    ]
    log = tmp_path / "rank0.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    traceconv.merge(log, out=out, mode="detail")
    return out


def test_rows_become_columns(program, trace):
    """Each of its type, what is NULL unknown; columns of one name are told apart."""
    folder = program()
    found = asked(trace, VALUES + "union all select null, null, null, null, null, null")
    assert {name: column.tolist()[0] for name, column in found.columns.items()} == {
        "a": 1, "b": 2.5, "c": "x", "d": None, "e": "00ff", "a (2)": 7,
    }  # fmt: skip
    assert found["a"].tolist() == [1, ABSENT]
    assert str(found["b"][1]) == "nan"
    assert found["c"].tolist() == ["x", None]
    none = asked(trace, "select ts, dur from slice where ts < 0")
    assert [len(none[name]) for name in ("ts", "dur")] == [0, 0]
    assert (folder / "received").read_bytes() == trace.read_bytes()
    with pytest.raises(ProcessLookupError):
        os.kill(int((folder / "pid").read_text()), 0)  # it was ended


def test_numbers_stay_exact(program, trace):
    """Whole numbers beside fractions are numbers while they are exact, else texts."""
    program()
    small = asked(trace, "select 1 as a union all select 0.5")
    assert small["a"].tolist() == [1.0, 0.5]
    large = asked(trace, f"select {2**53 + 1} as a union all select 0.5")
    assert large["a"].tolist() == [str(2**53 + 1), "0.5"]


def test_the_command_prints_all_formats(program, trace, tmp_path, capsys, monkeypatch):
    """Text, CSV, JSON, files; SQL from standard input."""
    program()
    question = "select 'a b' as name, 5 as dur union all select null, null"
    assert run([*QUERY, str(trace), question]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["name", "dur"], ["a", "b", "5"], ["–", "–"],
    ]  # fmt: skip
    assert run([*QUERY, str(trace), question, "--format", "csv"]) == 0
    assert capsys.readouterr().out == "name,dur\na b,5\n,\n"
    assert run([*QUERY, str(trace), question, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "schema_version": 1, "columns": ["name", "dur"], "rows": [["a b", 5], [None, None]],
    }  # fmt: skip
    (tmp_path / "sql").write_text(question)
    monkeypatch.setattr(sys, "stdin", (tmp_path / "sql").open())
    assert run([*QUERY, str(trace), "-", "-o", str(tmp_path / "x.csv")]) == 0
    sys.stdin.close()
    assert (tmp_path / "x.csv").read_text() == "name,dur\na b,5\n,\n"
    assert run([*QUERY, str(trace), question, "-o", str(tmp_path / "x.csv")]) == 2
    assert run([*QUERY, str(trace), question, "-o", str(tmp_path / "x.md")]) == 2


def test_sql_that_is_not_understood(program, trace, capsys):
    """An error of usage, with the processor's own words."""
    program()
    with pytest.raises(OptionError, match="no such table: nowhere"):
        asked(trace, "select * from nowhere")
    assert run([*QUERY, str(trace), "selec"]) == 2
    assert "syntax error" in capsys.readouterr().err
    with pytest.raises(OptionError, match="is empty"):
        asked(trace, " ")


@pytest.mark.parametrize(
    ("wrong", "error", "why"),
    [
        ("refuse", SourceError, "out.pftrace: refused .*Unknown trace type"),
        ("die", EngineError, "does not answer any more"),
    ],
)
def test_a_processor_that_fails(program, trace, wrong, error, why):
    """Whose fault it is, and no process is left."""
    folder = program(wrong)
    with pytest.raises(error, match=why):
        asked(trace, "select 1")
    with pytest.raises(ProcessLookupError):
        os.kill(int((folder / "pid").read_text()), 0)


def test_a_processor_that_does_not_start(program, trace):
    """What it said."""
    program("never")
    with pytest.raises(EngineError, match=r"(?s)does not start: .*cannot start here"):
        asked(trace, "select 1")


def test_files_that_cannot_be_asked(program, tmp_path):
    """Nothing is started for them."""
    program("never")
    with pytest.raises(SourceError, match="cannot open: No such file"):
        asked(tmp_path / "none.pftrace", "select 1")
    with pytest.raises(SourceError, match="copy it here first"):
        asked("https://u:secret@example.org/a.pftrace", "select 1")


def test_without_a_processor(trace, monkeypatch, tmp_path, capsys):
    """Exit code 2 and how one is named; nothing is fetched."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(processor.VARIABLE, raising=False)
    assert run([*QUERY, str(trace), "select 1"]) == 2
    message = capsys.readouterr().err
    assert "trace_processor_shell" in message
    assert processor.VARIABLE in message
    assert run(["validate", "--deep", str(trace)]) == 2
    monkeypatch.setenv(processor.VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(MissingExtraError, match="nowhere' is not a program"):
        asked(trace, "select 1")
    script(tmp_path)
    monkeypatch.delenv(processor.VARIABLE)
    assert processor.program() == str(tmp_path / "trace_processor_shell")


@pytest.mark.parametrize(
    ("absent", "why"),
    [
        ("perfetto.trace_processor.api", r"'\.\[query\]'"),
        ("google.protobuf", "pip install -U"),
    ],
)
def test_without_the_package(program, trace, monkeypatch, absent, why):
    """How it is installed; protobuf that does not fit is told apart."""
    program()
    for name in [one for one in sys.modules if one.startswith("perfetto.trace_processor")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(MissingExtraError, match=why):
        asked(trace, "select 1")


def test_the_importer_agrees(program, trace, capsys):
    """The verdict has its figures."""
    program()
    verdict = traceconv.validate(trace, deep=True)
    assert (verdict.ok, verdict.findings) == (True, ())
    assert verdict.importer == {
        "slices": verdict.counts["slices"] + verdict.counts["instants"],
        "busy_ns": verdict.importer["busy_ns"],
        "counters": verdict.counts["counters"],
        "flows": verdict.counts["flows"],
    }
    assert verdict.importer["busy_ns"] > 90_000
    assert traceconv.validate(trace).importer is None
    assert run(["validate", "--deep", str(trace), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["traces"][0]["importer"] == verdict.importer
    assert run(["validate", "--deep", str(trace)]) == 0
    assert "Perfetto's importer: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wrong", "rule", "place"),
    [
        ("fewer", "D-counts", "slices: "),
        ("errors", "D-statistics", "flow_no_enclosing_slice: 3"),
        ("refuse", "D-refused", "refused by the trace processor: "),
    ],
)
def test_the_importer_disagrees(program, trace, wrong, rule, place):
    """It is a finding, and the trace is not good."""
    program(wrong)
    verdict = traceconv.validate(trace, deep=True)
    assert not verdict.ok
    (found,) = (one for one in verdict.findings if one.rule == rule)
    assert found.places[0].startswith(place)
    assert (verdict.importer is None) == (wrong == "refuse")


def test_it_answers_where_duckdb_does_not(program, trace, tmp_path, monkeypatch):
    """Without DuckDB; for PerfettoSQL; for a trace that holds no profile. DuckDB has the rest."""
    program()
    assert traceconv.query(trace, VALUES + "-- create perfetto table")["a"].tolist() == [1]
    other = tmp_path / "system.pftrace"
    other.write_bytes(b"\x0a\x02\x10\x01")
    assert traceconv.query(other, VALUES)["a"].tolist() == [1]
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert traceconv.query(trace, VALUES)["a"].tolist() == [1]
    with pytest.raises(MissingExtraError, match=r"'\.\[sql\]'"):
        traceconv.query(trace, VALUES, ranks=0)
