"""Parquet and Arrow: every row of every rank, exact, in files that other programs open."""

import json
from collections import Counter

import numpy as np
import pytest
from paths import ROOT

import traceconv
from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import OutputPathError, SizeLimitError
from traceconv.core.model import Capture, Layer
from traceconv.core.rank_tables import TABLES
from traceconv.find.own_outputs import written_by_us
from traceconv.io.sources import FileSource, FolderSource

pyarrow = pytest.importorskip("pyarrow", reason="needs the extra arrow")
parquet = pytest.importorskip("pyarrow.parquet")

JOB = ROOT / "golden" / "kineto" / "two_ranks" / "input"
FILES = {"events": "run", **{name: f"run_{name}" for name in TABLES if name != "events"}}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder with the files of a merge in the detail view."""
    folder = tmp_path_factory.mktemp("parquet")
    traceconv.merge(JOB, out=folder / "run.parquet", mode="detail")
    return folder


def of(folder, name):
    return parquet.read_table(folder / f"{FILES[name]}.parquet")


@pytest.mark.parametrize("name", TABLES)
def test_files_are_the_tables_in_memory(run, name):
    """A merge writes what ``to_arrow`` has, under the names that the reference lists."""
    ours = traceconv.open(JOB).to_arrow()[name]
    assert of(run, name).column_names == list(TABLES[name])
    assert of(run, name).to_pylist() == ours.to_pylist()


def test_rows_are_those_of_the_traces(run):
    """Times to the nanosecond, names, arguments and flows, rank by rank."""
    events, flows = of(run, "events").to_pylist(), of(run, "flows").to_pylist()
    for trace in traceconv.open(JOB).traces("detail"):
        own = [row for row in events if row["rank"] == trace.rank]
        rows = trace.events
        assert [row["event_id"] for row in own] == list(range(len(rows)))
        assert [row["start_ns"] for row in own] == rows.start_ns.tolist()
        assert [row["dur_ns"] for row in own] == rows.dur_ns.tolist()
        assert [row["name"] for row in own] == trace.strings.of(rows.name)
        assert [row["track"] for row in own] == [trace.tracks[i].name for i in rows.track.tolist()]
        arguments = [json.loads(row["args"]) if row["args"] else {} for row in own]
        assert arguments == [trace.args[i] for i in rows.args.tolist()]
        ends = [(row["src"], row["dst"]) for row in flows if row["rank"] == trace.rank]
        ours = zip(trace.flows.src.tolist(), trace.flows.dst.tolist(), strict=True)
        assert ends == list(ours)


def test_a_row_group_has_one_rank(run):
    """So a filter on the rank reads no other."""
    file = parquet.ParquetFile(run / "run.parquet")
    ranks = [
        file.metadata.row_group(i).column(0).statistics for i in range(file.metadata.num_row_groups)
    ]
    assert [(one.min, one.max) for one in ranks] == [(0, 0), (1, 1)]


@pytest.mark.parametrize("module", ["pandas", "polars", "duckdb"])
def test_others_read_the_same_totals(run, module):
    """One file, by its name alone: rows and busy time per rank."""
    library = pytest.importorskip(module)
    path = str(run / "run.parquet")
    expected = {
        trace.rank: (len(trace.events), int(trace.events.dur_ns.sum()))
        for trace in traceconv.open(JOB).traces("detail")
    }
    if module == "duckdb":
        sql = f"select rank, count(*), sum(dur_ns) from '{path}' group by 1"
        rows = library.sql(sql).fetchall()
    elif module == "polars":
        frame = library.read_parquet(path).group_by("rank")
        rows = frame.agg(library.len(), library.col("dur_ns").sum()).rows()
    else:
        frame = library.read_parquet(path).groupby("rank")["dur_ns"].agg(["size", "sum"])
        rows = frame.itertuples()
    found = {int(rank): (int(count), int(busy)) for rank, count, busy in rows}
    assert found == expected


def test_selected_arguments_are_written(tmp_path):
    """``args`` as for other outputs; arguments that are left out are counted."""
    report = traceconv.merge(JOB, out=tmp_path / "run.parquet", mode="detail", args="none")
    assert of(tmp_path, "events")["args"].null_count == of(tmp_path, "events").num_rows
    assert "args-dropped" in {issue.code for issue in report.issues}


def test_arguments_are_json_and_texts_utf_8(tmp_path):
    """NaN and half surrogates, which other programs refuse, are rewritten and counted."""
    build = TraceBuilder(Capture("test", FileSource(tmp_path, "nowhere"), (), 0))
    track = build.track(Layer.HOST, "Thread 1")
    build.slice(track, 10**18 + 1, 3, "half \ud800", args={"x": float("nan"), "big": 2**70})
    traceconv.write(build.finish(), tmp_path / "run.parquet")
    [row] = of(tmp_path, "events").to_pylist()
    assert (row["start_ns"], row["name"]) == (10**18 + 1, "half ?")
    assert json.loads(row["args"]) == {"x": "NaN", "big": str(2**70)}


def test_all_files_or_none(run, tmp_path):
    """A file in the way, a stream, a size limit: a clear error, and nothing is left behind."""
    (tmp_path / "run_flows.parquet").write_bytes(b"mine")
    with pytest.raises(OutputPathError, match=r"run_flows\.parquet: exists"):
        traceconv.merge(JOB, out=tmp_path / "run.parquet")
    with pytest.raises(OutputPathError, match="5 files cannot go to one stream"):
        traceconv.merge(JOB, out="-", writer="parquet")
    with pytest.raises(SizeLimitError, match="no size limit"):
        traceconv.merge(JOB, out=tmp_path / "x.parquet", max_size="1M")
    assert [path.name for path in tmp_path.iterdir()] == ["run_flows.parquet"]


def test_outputs_are_not_taken_for_captures(run):
    """A merge in this folder leaves the files out, as it does with other outputs."""
    source = FolderSource(run, "here")
    assert written_by_us(source, "run.parquet")
    parquet.write_table(pyarrow.table({"traceconv": np.arange(3)}), run / "theirs.parquet")
    assert not written_by_us(source, "theirs.parquet")


def test_equal_inputs_give_equal_bytes(run, tmp_path):
    """Whatever the number of workers."""
    traceconv.merge(JOB, out=tmp_path / "run.parquet", mode="detail", jobs=2)
    for name in FILES.values():
        there = (tmp_path / f"{name}.parquet").read_bytes()
        assert there == (run / f"{name}.parquet").read_bytes()


def test_every_row_is_written(tmp_path):
    """The files have as many rows as the report counts."""
    case = ROOT / "golden" / "trace_view" / "demo" / "input"
    report = traceconv.merge(case, out=tmp_path / "run.parquet", mode="detail")
    rows = {name: of(tmp_path, name).num_rows for name in ("events", "counters", "flows")}
    counts = Counter()
    for part in report.written:
        counts.update(part.counts)
    assert rows == {
        "events": counts["slice"] + counts["instant"],
        "counters": counts["counter"],
        "flows": counts["flow"],
    }
    assert all(rows.values())
