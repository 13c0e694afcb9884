"""``traceconv stats``: what it prints and writes, and how tables look."""

import csv
import io
import json
import re
import shutil
from decimal import Decimal

import numpy as np
import pytest
from paths import ROOT

import traceconv
from traceconv.analysis.tables.catalog import FILES, TABLES
from traceconv.analysis.tables.definition import Column, Result, Table
from traceconv.cli import run
from traceconv.core.errors import OptionError
from traceconv.core.side_tables import ABSENT, DataTable
from traceconv.report import table_files
from traceconv.report import table_text as render

SAMPLE = str(ROOT / "golden" / "trace_view" / "demo" / "input")
LONG = "kernel<" + "x" * 100 + ">"


COLUMNS = Column.parse("Rank, Name:text, Start Time(ns), Total Time(ns), Ratio(%)")
VALUES = (
    np.array([3, ABSENT]),
    np.array(["a|b\nc", LONG], object),
    np.array([1736408883704643212, ABSENT]),
    np.array([1_234_567, 5]),
    np.array([12.3456789, np.nan]),
)


def _result(rows=2, columns=COLUMNS, values=VALUES):
    """A table by hand."""
    table = Table("made", "Made by hand", "Total = a + b.", "hands", columns, dict, dict, True)
    found = {column.key: array for column, array in zip(columns, values, strict=True)}
    return Result(table, DataTable("made", found, {c.key: c.unit for c in columns}), rows)


# -- how tables look ---------------------------------------------------------------------------


def test_text_suits_its_units_to_the_column():
    """Each column has one unit, in which its smallest value has three digits; instants count from
    the first; what is absent is a dash."""
    title, zero, heading, first, second, *_ = render.text([_result()]).splitlines()
    known = "1736408883704643.212 us, 2025-01-09 07:48:03.704643212 UTC"
    assert zero == f"  instants are counted from {known}"
    assert title == "Made by hand"
    assert heading.split() == [
        "Rank", "Name", "Start", "Time(ms)", "Total", "Time(ns)", "Ratio(%)",
    ]  # fmt: skip
    assert first.split() == ["3", "a|b", "c", "0", "1234567", "12.3"]
    assert second.split()[0] == "all"
    assert second.split()[2:] == ["–", "5", "–"]
    assert len({len(heading), len(first), len(second)}) == 1


@pytest.mark.parametrize(
    ("shortest", "longest", "heading", "cells"),
    [
        (21_240_010_000, 23_409_000_000, "(s)", ["21.2", "23.4"]),
        (40, 3_000_000, "(µs)", ["0.040", "3000"]),
        (2_000_000, 3_000_000_000, "(s)", ["0.00200", "3.00"]),
        (1, 3_600 * 10**9, "(ns) (s)", ["1", "3600"]),
    ],
)
@pytest.mark.parametrize("look", ["text", "markdown"])
def test_the_times_of_a_table_have_one_unit(look, shortest, longest, heading, cells):
    """Min and Max compare at a glance; only times that no unit shows well have their own."""
    columns = Column.parse("Rank, Min Time(ns), Max Time(ns)")
    values = [np.array([0]), np.array([shortest]), np.array([longest])]
    lines = getattr(render, look)([_result(1, columns, values)]).splitlines()
    units = re.findall(r"\(\w+\)", next(line for line in lines if "Min Time" in line))
    assert " ".join(dict.fromkeys(units)) == heading
    row = [line for line in lines if line][-1].replace("|", " ").split()
    assert row[1:] == cells


def test_text_shortens_long_names_by_the_arguments_of_their_templates():
    """They tell least."""
    assert render.text([_result()]).splitlines()[4].split()[1] == "kernel"


def test_text_explains_on_request():
    """The formula stands below the title."""
    assert "Total = a + b." in render.text([_result()], explain=True)
    assert "Total = a + b." not in render.text([_result()])


def test_text_says_what_was_cut():
    """More rows than shown."""
    assert "(the first 2 of 40 rows; `top=None` for the rest)" in render.text([_result(rows=40)])


def test_nothing_says_what_would_be_needed():
    """In text and Markdown a line, in JSON a member."""
    nothing = Result(_result().table, DataTable("made", {}, {}), 0)
    assert "no data: needs hands" in render.text([nothing])
    assert "no data: needs hands" in render.markdown([nothing])
    (told,) = render.document([nothing])["tables"]
    assert (told["rows"], told["needs"]) == ([], "hands")


def test_csv_is_exact():
    """Decimal microseconds as the profilers write them, whole names, empty cells."""
    heading, first, second = csv.reader(io.StringIO(render.csv_text(_result())))
    assert heading == ["Rank", "Name", "Start Time(us)", "Total Time(us)", "Ratio(%)"]
    assert first == ["3", "a|b\nc", "1736408883704643.212", "1234.567", "12.3456789"]
    assert second == ["all", LONG, "", "0.005", ""]


def test_json_is_in_nanoseconds():
    """Units stand beside the names; absent values are null."""
    told = json.loads(render.json_text([_result()]))
    assert told["schema_version"] == 1
    (table,) = told["tables"]
    assert table["columns"] == [
        {"name": "Rank", "unit": "", "key": "rank"},
        {"name": "Name", "unit": "", "key": "name"},
        {"name": "Start Time", "unit": "ns", "key": "start_time_ns"},
        {"name": "Total Time", "unit": "ns", "key": "total_time_ns"},
        {"name": "Ratio", "unit": "%", "key": "ratio_pct"},
    ]
    assert table["rows"][0][2:] == [1736408883704643212, 1234567, 12.3456789]
    assert table["rows"][1] == [None, LONG, None, 5, None]


def test_markdown_escapes_what_would_break_it():
    """Bars in names, angle brackets, line ends."""
    lines = render.markdown([_result()]).splitlines()
    assert lines[0] == "## Made by hand"
    assert lines[2].startswith("instants are counted from 1736408883704643.212 us, 2025-01-09")
    assert lines[5] == "| ---: | --- | ---: | ---: | ---: |"
    assert lines[6].startswith("| 3 | a\\|b c | 0 |")
    assert "kernel&lt;" in lines[7]


# -- the command ---------------------------------------------------------------------------------


def test_what_computes_is_unknown_where_device_work_is_unclassified(tmp_path, capsys, monkeypatch):
    """In the table, the headline, the report and the verdict: no compute of 0 %; communication that
    it may hide is an upper bound. The median of two steps is between them."""
    lines = ["name,ts,dur,rank,stream"]
    for rank, work in ((0, 5000), (1, 7000)):
        for start, ends in ((0, 10_000), (10_000, 21_000)):
            lines += [f"step {start},{start},{ends - start},{rank},"]
            lines += [f"matmul,{start},{work},{rank},7"]
            lines += [f"all_reduce,{start + work},{9000 - work},{rank},9"]
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    log = [
        str(tmp_path / "log.csv"),
        "--map",
        "name=name,ts=ts:us,dur=dur:us,rank=rank,stream=stream",
    ]
    overlap = traceconv.stats(log[0], mapping=log[2], by="overlap")["overlap"]
    assert np.isnan([overlap["Compute(%)"], overlap["Exposed Communication(%)"]]).all()
    assert overlap["Unclassified(ns)"][0] == 5_000_000
    monkeypatch.setenv("COLUMNS", "100")
    assert run(["stats", *log]) == 0
    heading, first = capsys.readouterr().out.splitlines()[1:3]
    assert heading.split()[3:5] == ["p50(ms)", "p95(ms)"] and first.split()[2:5] == ["10.5"] * 2 + [
        "11.0"
    ]
    assert "Compute" not in heading and "Unclassified(%)" in heading
    diagnosis = traceconv.diagnose(log[0], mapping=log[2], analyse=True)
    assert "unclassified device work 6 ms (57 %)" in diagnosis.headline
    assert "exposed communication at most 3 ms (29 %)" in diagnosis.headline
    row = diagnosis.document["overview"]["overlap"]["rows"][0]
    assert row["pure_compute_ns"] is None and row["unclassified_ns"] in (5_000_000, 7_000_000)
    assert ">unknown<" in diagnosis.html_text()
    assert "own computing" not in "".join(traceconv.stragglers(log[0], mapping=log[2]).lines())


def test_steps_and_overlap_by_default(capsys):
    """In one table; whole ones on request."""
    assert run(["stats", SAMPLE]) == 0
    _, *heading, first = capsys.readouterr().out.splitlines()[:5]
    names = " ".join(heading).split()
    assert {"Mean", "p50", "p95", "Max", "Worst", "Compute", "Idle"} <= set(names)
    assert " ".join(first.split()) == "1 1 3 4.059 3.950 4.295 4.295 2 93.5 5.81 0.730"
    assert run(["stats", SAMPLE, "-v"]) == 0
    out = capsys.readouterr().out
    assert "Step times: mean and spread" in out
    assert "Overlap per rank and step" in out


def test_the_ending_names_the_format(tmp_path, capsys):
    """JSON by its ending; the file is named on stderr."""
    path = tmp_path / "tables.json"
    assert run(["stats", SAMPLE, "--by", "type", "-o", str(path)]) == 0
    (table,) = json.loads(path.read_text())["tables"]
    assert (table["name"], len(table["rows"]) == table["total_rows"]) == ("type", True)
    assert f"wrote {path}" in capsys.readouterr().err


def test_call_paths_are_files_of_flame_graphs(tmp_path, capsys):
    """Device and host time by call path: both forms hold the sums of the table, rank by rank."""
    table = traceconv.stats(SAMPLE, by="stack_path")["stack_path"].columns
    sums = {
        f"Rank {rank}, {measure} time": int(table[key][table["Rank"] == rank].sum())
        for rank in (0, 1)
        for measure, key in (("device", "Device Time(ns)"), ("host", "Self Time(ns)"))
    }
    scope, folded = tmp_path / "x.speedscope.json", tmp_path / "x.folded"
    assert run(["stats", SAMPLE, "-q", "-o", str(scope)]) == 0
    assert run(["stats", SAMPLE, "-q", "-o", str(folded)]) == 0
    document = json.loads(scope.read_text())
    assert {one["name"]: sum(one["weights"]) for one in document["profiles"]} == sums
    frames = document["shared"]["frames"]
    first = document["profiles"][0]["samples"][0]
    lines = [line.rpartition(" ") for line in folded.read_text().splitlines()]
    assert lines[0][0].split(";")[1:] == [frames[i]["name"] for i in first]
    found = dict.fromkeys(sums, 0)
    for path, _, ns in lines:
        found[path.partition(";")[0]] += int(ns)
    assert found == sums
    assert run(["stats", SAMPLE, "--by", "op", "-o", str(folded), "-f"]) == 2
    assert "flame graphs hold call paths: use --by stack" in capsys.readouterr().err


def test_several_csv_tables_are_several_files(tmp_path):
    """One table per file, so that each can be read."""
    path = tmp_path / "t.csv"
    assert run(["stats", SAMPLE, "--by", "comm", "-o", str(path)]) == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["t_comm.csv", "t_comm_op.csv"]


def test_nothing_is_overwritten_without_force(tmp_path, capsys):
    """Exit 3 and a pointer to -f."""
    path = tmp_path / "t.md"
    path.write_text("mine")
    assert run(["stats", SAMPLE, "-o", str(path)]) == 2
    assert (path.read_text(), "pass -f" in capsys.readouterr().err) == ("mine", True)
    assert run(["stats", SAMPLE, "-o", str(path), "-f"]) == 0
    assert path.read_text().startswith("## Step times")


def test_top_rows_for_people_all_for_programs(capsys):
    """--top cuts long tables; CSV has every row unless it says so."""
    run(["stats", SAMPLE, "--by", "type", "--top", "1"])
    assert "(the first" in capsys.readouterr().out
    run(["stats", SAMPLE, "--by", "type", "--format", "csv"])
    every = capsys.readouterr().out.splitlines()
    run(["stats", SAMPLE, "--by", "type", "--format", "csv", "--top", "1"])
    assert 1 < len(capsys.readouterr().out.splitlines()) < len(every)


@pytest.mark.parametrize("value", ["0", "-1", "many"])
def test_top_is_a_number_of_rows(value, capsys):
    """Anything else is a usage error."""
    assert run(["stats", SAMPLE, "--top", value]) == 2
    assert "neither a number of rows nor all" in capsys.readouterr().err


def test_unknown_tables_and_steps_are_refused(capsys):
    """With those there are."""
    assert run(["stats", SAMPLE, "--by", "zzz"]) == 2
    assert "error: --by: no table 'zzz'; there are: step, overlap" in capsys.readouterr().err
    assert run(["stats", SAMPLE, "--steps", "999999"]) == 3
    assert "step 999999 is in none of the ranks" in capsys.readouterr().err


def test_steps_narrow_the_tables():
    """Only the steps asked for; the sums of the whole rank would mislead and are left out."""
    every = traceconv.stats(SAMPLE, by=["overlap"])["overlap"]["Step"]
    one = int(every[every != ABSENT][0])
    found = traceconv.stats(SAMPLE, by=["overlap"], steps=[one])["overlap"]
    assert set(found["Step"].tolist()) == {one}


def test_a_window_narrows_the_tables():
    """What touches the first microsecond, of one rank and of two."""
    whole = traceconv.stats(SAMPLE, by=["type"])["type"]["Count"].sum()
    for ranks in ([0], None):
        part = traceconv.stats(SAMPLE, by=["type"], ranks=ranks, time=(None, 1000))["type"]
        assert (len(part) and part["Count"].sum()) < whole


def test_ranks_are_rows():
    """Two ranks and both together; one rank alone has no job row."""
    both = traceconv.stats(SAMPLE, by=["step_trace_time"])
    assert set(both["step_trace_time"]["Rank"].tolist()) == {0, 1, ABSENT}
    assert both.ranks == (0, 1)
    one = traceconv.stats(SAMPLE, by=["step_trace_time"], ranks=[1])["step_trace_time"]
    assert set(one["Rank"].tolist()) == {1}


def test_folders_of_the_user_do_not_choose_a_rule_of_steps(tmp_path):
    """MindSpore counts the columns of a step in another way; its own names of folders tell."""
    places = [tmp_path / name for name in ("a", "mindspore", "a_ascend_ms")]
    for place in places:
        shutil.copytree(ROOT / "golden" / "trace_view" / "two_windows" / "input", place)
    plain, named, of_mindspore = (
        traceconv.stats(place, by=["step_trace_time"])["step_trace_time"]["Stage(ns)"].tolist()
        for place in places
    )
    assert plain == named != of_mindspore


def test_what_reading_a_table_meets_is_told(tmp_path):
    """A row of the profiler's own table that is cut short is an issue of the run."""
    shutil.copytree(SAMPLE, tmp_path / "prof")
    (place,) = (tmp_path / "prof").glob("localhost_4021_*/ASCEND_PROFILER_OUTPUT")
    (place / "kernel_details.csv").write_text(
        "Name,Type,Accelerator Core,Start Time(us),Duration(us)\nop,Add,AI_CORE,1\nop,Add,AI_CORE"
    )
    found = traceconv.stats(str(tmp_path / "prof"), by=["type"], ranks=[0])
    told = [i.code for i in found.issues if i.file.endswith("kernel_details.csv")]
    assert told == ["malformed-record", "truncated"]


def _files_of(options):
    """The tables with rows of all ranks of a case, as those of files are called."""
    traces = list(traceconv.open("input", **options).traces())
    there = {name for t in traces for name, table in t.side_tables.items() if len(table)}
    return {name for name, table in FILES.items() if there.issuperset(table.reads)}


@pytest.mark.sample(3)
def test_every_table_of_every_golden_case(sampled):
    """Whatever a reader makes of its input, tables are made of it, and can be written."""
    found = traceconv.stats("input", by=["all", "files"], **sampled.reading)
    names = [result.table.name for result in found.results]
    assert names[: len(TABLES)] == list(TABLES)
    there = _files_of(sampled.reading)
    assert names[len(TABLES) :] == [name for name in FILES if name in there]
    told = json.loads(render.json_text(found.results))["tables"]
    for result, table in zip(found.results, told, strict=True):
        assert len(table["rows"]) == result.rows == len(result.data)
        assert render.csv_text(result).count("\n") >= result.rows
    assert render.text(found.results, explain=True)
    assert render.markdown(found.results)


# -- where to, and in which format ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ["-o", "t.ods"],
            "no format ends in '.ods'; there are: .txt, .csv, .json, .md, .parquet, .xlsx",
        ),
        (["-o", "t.parquet", "--format", "text"], "the extension says parquet, and --format says"),
        (["--format", "xlsx"], "xlsx needs a file; name one with -o FILE.xlsx"),
        (["-o", "t.json", "--format", "csv"], "the extension says json, and --format says csv"),
        (["--json", "--format", "md"], "both want stdout"),
        (["--format", "csv"], "one (--by step_summary), or write a file for each (-o FILE.csv)"),
        (["--by", "opp", "--format", "csv"], "did you mean 'op'"),
    ],
)
def test_a_format_that_does_not_fit_is_refused(tmp_path, monkeypatch, capsys, words, text):
    """Before anything is read, with what fits."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("traceconv.api.reading.found_below", None)
    assert run(["stats", SAMPLE, *words]) == 2
    assert text in " ".join(capsys.readouterr().err.split())
    assert list(tmp_path.iterdir()) == []


def test_no_csv_file_is_empty(tmp_path, capsys):
    """A table without data is a line; if no table has any, that is an error."""
    path = tmp_path / "t.csv"
    assert run(["stats", SAMPLE, "--by", "data,step", "-o", str(path)]) == 0
    written = sorted(file.name for file in tmp_path.iterdir())
    assert "t_step.csv" in written
    assert all(file.read_text().count("\n") > 1 for file in tmp_path.iterdir())
    err = capsys.readouterr().err
    named = {line.split()[1] for line in err.splitlines() if "has no data: needs" in line}
    every = set(traceconv.stats(SAMPLE, by="data,step").results)
    assert named and {f"t_{one.table.name}.csv" for one in every if one.rows} == set(written)
    assert named == {one.table.name for one in every if not one.rows}
    for words in (["-o", str(tmp_path / "n.csv")], []):
        assert run(["stats", SAMPLE, "--by", "pipeline", "--format", "csv", *words]) == 3
        assert "has no data: needs" in capsys.readouterr().err
    assert not (tmp_path / "n.csv").exists()


@pytest.mark.parametrize("command", [["stats", "--by", "type"], ["diagnose"]])
def test_json_is_a_document_on_stdout_whatever_is_written(tmp_path, capsys, command):
    """Alone the result itself, beside a file as well."""
    file = tmp_path / "t.md"
    assert run([*command, SAMPLE, "--json", "-q"]) == 0
    alone = capsys.readouterr().out
    assert run([*command, SAMPLE, "--json", "-q", "-o", str(file)]) == 0
    beside = capsys.readouterr().out
    assert json.loads(alone)["schema_version"] >= 1
    assert beside == alone
    assert file.read_text().startswith(("#", "*"))


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_tables_fit_the_terminal(tmp_path, monkeypatch, capsys, columns):
    """Whatever its width; files are as wide as they have to be."""
    monkeypatch.setenv("COLUMNS", str(columns))
    words = ["stats", SAMPLE, "--by", "all", "--top", "2", "--explain"]
    assert run(words) == 0
    assert columns * 0.8 < max(map(len, capsys.readouterr().out.splitlines())) <= columns
    assert run([*words, "-o", str(tmp_path / "t.txt")]) == 0
    assert max(map(len, (tmp_path / "t.txt").read_text().splitlines())) > 120


def test_sizes_are_in_readable_units(monkeypatch):
    """Of 1024, that which suits the largest; small ones stay bytes."""
    columns = Column.parse("Rank, Peak(B)")
    table = _result(columns=columns, values=(np.array([0, 1]), np.array([3 << 20, ABSENT])))
    assert [line.split() for line in render.text([table]).splitlines()[1:]] == [
        ["Rank", "Peak(MiB)"], ["0", "3.000"], ["1", "–"]
    ]  # fmt: skip
    small = _result(columns=columns, values=(np.array([0, 1]), np.array([1023, 0])))
    assert "Peak(B)" in render.text([small])


def test_names_of_csv_files_depend_on_what_is_asked_for(tmp_path):
    """Not on what a filter leaves."""
    words = ["stats", SAMPLE, "--by", "kernel", "--filter", "Kernel~MatMul", "-q"]
    assert run([*words, "-o", str(tmp_path / "t.csv")]) == 0
    assert [file.name for file in tmp_path.iterdir()] == ["t_kernel.csv"]


def test_a_file_that_exists_is_refused_before_anything_is_read(tmp_path, monkeypatch):
    """It may take minutes to read."""
    monkeypatch.setattr("traceconv.api.reading.found_below", None)
    (tmp_path / "t.json").write_text("mine")
    assert run(["stats", SAMPLE, "-o", str(tmp_path / "t.json")]) == 2


# -- files of other programs ---------------------------------------------------------------------


def test_parquet_holds_what_data_frames_hold(tmp_path):
    """A file per table, with the names and values of ``to_arrow``; absent cells are null."""
    parquet = pytest.importorskip("pyarrow.parquet")
    assert run(["stats", SAMPLE, "--by", "step,data", "-o", str(tmp_path / "t.parquet")]) == 0
    found = traceconv.stats(SAMPLE, by="step,data")
    written = {f"t_{one.table.name}.parquet": one for one in found.results if one.rows}
    assert {file.name for file in tmp_path.iterdir()} == set(written)
    for name, one in written.items():
        assert parquet.read_table(tmp_path / name).equals(one.data.to_arrow())


def test_a_workbook_holds_every_digit(tmp_path):
    """A sheet per table with rows; numbers that Excel would round are texts, as are formulas."""
    openpyxl = pytest.importorskip("openpyxl")
    pytest.importorskip("xlsxwriter")
    path = tmp_path / "t.xlsx"
    assert run(["stats", SAMPLE, "--by", "step,data", "-o", str(path)]) == 0
    book = openpyxl.load_workbook(path)
    found = [one for one in traceconv.stats(SAMPLE, by="step,data").results if one.rows]
    assert book.sheetnames == [one.table.name for one in found]
    for one in found:
        lines = list(csv.reader(io.StringIO(render.csv_text(one))))
        cells = [["" if v is None else v for v in row] for row in book[one.table.name].values]
        assert cells[0] == lines[0]
        for told, exact in zip(cells[1:], lines[1:], strict=True):
            for value, text in zip(told, exact, strict=True):
                if value != text and len(text) > 16:  # a share: the writer keeps 16 digits
                    assert value == pytest.approx(float(text), 1e-15)
                elif value != text:
                    assert Decimal(repr(value)) == Decimal(text)
    result = _result()
    name = result.data.columns["Name"]
    name[0] = "=1+1"
    path.write_bytes(table_files.workbook({"a": render.exact_columns(result)}))
    sheet = openpyxl.load_workbook(path)["a"]
    assert (sheet["B2"].value, sheet["B2"].data_type) == ("=1+1", "s")
    assert sheet["C2"].value == "1736408883704643.212"


@pytest.mark.parametrize(
    ("cells", "text"),
    [
        (["x"] * (table_files.MOST_ROWS + 1), "has 1048576 rows, and a sheet of Excel holds"),
        (["x" * 32768], "has a text of 32768 characters (Name)"),
    ],
)
def test_what_a_sheet_cannot_hold_is_refused(cells, text):
    """Rather than cut."""
    pytest.importorskip("xlsxwriter")
    with pytest.raises(OptionError, match=re.escape(text)):
        table_files.workbook({"kernel": [render.ExactColumn("Name", cells, False)]})


def test_a_table_that_is_cut_begins_with_all_ranks(monkeypatch, capsys):
    """A screen leaves out rows of ranks, not their sums."""
    monkeypatch.setenv("COLUMNS", "100")
    assert run(["stats", str(ROOT / "examples" / "job"), "--by", "kernel", "-q"]) == 0
    kernels = [line for line in capsys.readouterr().out.splitlines() if "gemm" in line]
    assert [line.split()[0] for line in kernels[:2]] == ["all", "0"]


def test_a_table_that_is_named_has_its_rows(monkeypatch, capsys, tmp_path):
    """A screen of them each on a terminal; all of them in a pipe and in a file."""
    monkeypatch.setenv("COLUMNS", "100")
    assert run(["stats", SAMPLE, "--by", "overlap", "-q"]) == 0
    assert len(capsys.readouterr().out.splitlines()) > 12
    monkeypatch.delenv("COLUMNS")
    assert run(["stats", SAMPLE, "--by", "overlap", "-q"]) == 0
    assert "more rows" not in capsys.readouterr().out
    assert run(["stats", SAMPLE, "--by", "op", "-q", "-o", str(tmp_path / "op.txt")]) == 0
    assert "the first" not in (tmp_path / "op.txt").read_text()
