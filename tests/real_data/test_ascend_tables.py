"""Tables as Ascend's profilers wrote them: what is counted in the data's README, and what their
figures must come to.
"""

import json
import re
from collections import Counter
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from paths import ASCEND

import traceconv
from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues
from traceconv.core.model import Layer, OpClass
from traceconv.core.side_tables import SideTable
from traceconv.io.sources import sources
from traceconv.readers.ascend import trace_view
from traceconv.readers.ascend.db import reader as ascend_db
from traceconv.readers.ascend.tables import reader as ascend_tables
from traceconv.readers.ascend.tables.load import database_columns, matrix_columns, operation_columns
from traceconv.readers.shared.csv_tables import csv_columns
from traceconv.readers.shared.sqlite.database import opened

INSIGHT = ASCEND / "msinsight" / "test"
TEXT, DATABASE = (INSIGHT / "data" / "pytorch" / kind for kind in ("text", "db"))
BOTH = INSIGHT / "st" / "level2"


def read(path, module=trace_view):
    """The one capture below a path, as its reader gives it."""
    (source,) = sources([str(path)])
    (capture,) = module.READER.find(source, source.names(), Issues())
    build = TraceBuilder(capture)
    module.READER.read(capture, build)
    return build.finish()


def said():
    """Rows and columns of every CSV file, as the README of the data counts them."""
    if not ASCEND.is_dir():
        return {}
    line = re.compile(r"- `(.+?\.csv)` .*?(\d+) data rows x (\d+) columns")
    text = (ASCEND / "README.md").read_text(encoding="utf-8")
    return {m[1]: (int(m[2]), int(m[3])) for m in line.finditer(text)}


@pytest.mark.parametrize("name", said())
def test_every_table_has_its_rows_and_columns(name):
    """All rows are read, or booked: two samples have a row that lacks a cell."""
    (source,) = sources([str(ASCEND / name)])
    issues = Issues()
    columns = csv_columns(source, Path(name).name, issues)
    rows = len(next(iter(columns.values())))
    assert (rows + issues.count("malformed-record"), len(columns)) == said()[name]
    assert len(issues) == (1 if "test_kernel" in name or "test_rank_0/A" in name else 0) * (
        "kernel_details" in name or "op_summary" in name
    )


def test_records_of_many_lines():
    """6224 lines of operators with their call stacks are 859 records."""
    side_table = read(TEXT / "level1" / "rank0_ascend_pt").side_tables["operator_details"]
    assert (len(side_table), sum("\n" in stack for stack in side_table["Call Stack"])) == (859, 315)


@pytest.mark.parametrize(
    ("folder", "names"),
    [
        ("level0/rank0_ascend_pt", 7),
        ("level1/rank0_ascend_pt", 12),
        ("level1/rank1_ascend_pt", 12),
    ],
)
def test_a_capture_offers_all_its_tables(folder, names):
    """One side table per CSV file and two of ``communication.json``; every file has a use."""
    trace = read(TEXT / folder)
    assert len(trace.side_tables) == names
    assert set(trace.side_tables) == set(trace.capture.tables)
    assert set(trace.capture.uses) == set(trace.capture.known)


def detail(folder):
    (trace,) = traceconv.open(str(folder)).traces("detail")
    return trace


def test_every_kernel_meets_its_row():
    """191 rows of the table join the 187 compute tasks and the four collectives."""
    trace = detail(TEXT / "level1" / "rank0_ascend_pt")
    rows = [
        i for i, a in enumerate(trace.events.args.tolist()) if b'"Op Type"' in trace.args.raw(a)
    ]
    where = Counter(trace.tracks[trace.events.track[i]].layer for i in rows)
    assert where == {Layer.DEVICE: 187, Layer.COMM: 4}
    assert trace.issues.count("row-unmatched") == 0
    kernel = next(i for i in rows if trace.strings[trace.events.name[i]] == "trans_TransData_0")
    args = trace.args[trace.events.args[kernel]]
    assert (args["Op Type"], args["Block Num"], args["aiv_time(us)"]) == ("TransData", 32, 50.522)
    assert (args["Input Shapes"], args["connection_id"]) == ('"32,3,224,224"', 953)


def test_level0_has_nothing_but_waits():
    """Types are ``N/A`` there: no argument claims one, and every row meets its slice."""
    trace = detail(TEXT / "level0" / "rank0_ascend_pt")
    raw = [trace.args.raw(a) for a in trace.events.args.tolist()]
    assert sum(b'"Wait Time(us)"' in one for one in raw) == 191
    assert sum(b'"Op Type"' in one for one in raw) == 0
    assert trace.issues.count("row-unmatched") == 0


@pytest.mark.parametrize("rank", [0, 1])
def test_sums_of_operators_are_those_of_the_timeline(rank):
    """Count and total time by type; a total may differ by a nanosecond per operator, since the
    timeline rounds each."""
    trace = detail(TEXT / "level1" / f"rank{rank}_ascend_pt")
    count, total = Counter(), Counter()
    device = trace.rows_of(Layer.DEVICE)
    for row in np.flatnonzero(device & (trace.events.op == OpClass.COMPUTE)).tolist():
        kind = trace.args[trace.events.args[row]]["Op Type"]
        count[kind] += 1
        total[kind] += int(trace.events.dur_ns[row])
    side_table = trace.side_tables["op_statistic"]
    stated = Counter(), Counter()
    for kind, n, time in zip(
        side_table["OP Type"],
        side_table["Count"].tolist(),
        side_table["Total Time(ns)"].tolist(),
        strict=True,
    ):
        stated[0][kind] += n
        stated[1][kind] += time
    assert stated[0] == count
    assert {k: t for k, t in stated[1].items() if abs(t - total[k]) > count[k]} == {}


def test_memory_becomes_counters_beside_those_of_the_timeline():
    """Of 1004 and 1078 samples; the timeline's own stay as they are."""
    folder = TEXT / "level1" / "rank0_ascend_pt"
    before, after = read(folder), detail(folder)
    added = {t.group for t in after.tracks} - {t.group for t in before.tracks}
    side_tables = before.side_tables
    figures = [
        side_tables["memory_record"][f"Total {t}(MB)"] for t in ("Allocated", "Reserved", "Active")
    ]
    samples = sum(int((~np.isnan(f)).sum()) for f in figures)
    modules = int((side_tables["npu_module_mem"]["Total Reserved(MB)"] >= 0).sum())
    assert added & {"Memory", "NPU Module Mem"} == {"Memory", "NPU Module Mem"}
    assert after.ledger["tables", "counter"] == samples + modules


def test_a_summary_reads_no_table():
    """What a view does not show is not opened."""
    (trace,) = traceconv.open(str(TEXT / "level1" / "rank0_ascend_pt")).traces("summary")
    assert [
        name for name, side_table in trace.side_tables.items() if "columns" in vars(side_table)
    ] == []
    assert ("tables", "counter") not in trace.ledger


def test_figures_of_communication_are_those_of_the_file():
    """Numbers as stored, times in ns, without the file's own totals."""
    folder = TEXT / "level1" / "rank0_ascend_pt"
    side_table = read(folder).side_tables["communication"]
    stored = json.loads((folder / "ASCEND_PROFILER_OUTPUT" / "communication.json").read_text())
    groups = stored["step50"]["collective"]
    assert [
        f"{o}@{g}" for o, g in zip(side_table["Operator"], side_table["Group"], strict=True)
    ] == [name for name in groups if name != "Total Op Info"]
    info = [groups[n]["Communication Time Info"] for n in groups if n != "Total Op Info"]
    assert side_table["Step"].tolist() == [50] * 4
    assert side_table["Wait Time Ratio"].tolist() == [i["Wait Time Ratio"] for i in info]
    assert side_table["Start Timestamp(ns)"].tolist() == [
        int(Decimal(str(i["Start Timestamp(us)"])) * 1000) for i in info
    ]
    elapsed = (
        side_table["Transit Time(ns)"] + side_table["Wait Time(ns)"] + side_table["Idle Time(ns)"]
    )
    assert np.abs(elapsed - side_table["Elapse Time(ns)"]).max() <= 2


@pytest.mark.parametrize(("rank", "rows"), [(1, (15, 27, 73, 1)), (3, (23, 37, 95, 1))])
def test_databases_say_what_text_says(rank, rows):
    """``analysis.db`` and the files beside it are one run: one code path reads both.

    The text of Stage and Preparing went through doubles and lies on a grid of 0.25 us.
    """
    trace = read(BOTH / f"rank_{rank}_ascend_pt", ascend_tables)
    names = ("communication", "communication_bandwidth", "communication_matrix", "step_trace_time")
    assert tuple(len(trace.side_tables[name]) for name in names) == rows
    (database,) = (n for n in trace.capture.known if n.endswith("analysis.db"))
    for name in names:
        with opened(trace.capture.source, database) as opening:
            loaded = database_columns(opening, name, lambda *_: None)
        held = SideTable(name, database, lambda loaded=loaded: loaded).columns
        text = trace.side_tables[name].columns
        assert set(held) <= set(text)
        assert {h for h in text if "Ratio" not in h} <= set(held) | {"Large Packet Ratio"}
        for heading, column in held.items():
            if column.dtype == object:
                assert sorted(column) == sorted(text[heading]), heading
            else:
                near = 250 if heading in ("Stage(ns)", "Preparing(ns)") else 1e-6
                apart = np.sort(column.astype(float)) - np.sort(text[heading].astype(float))
                assert np.abs(apart).max() < near, heading


def test_a_database_alone_has_the_same_side_tables():
    """What text has beside a timeline, as far as a database holds it, under the same headings."""
    text = read(TEXT / "level1" / "rank0_ascend_pt").side_tables
    held = read(DATABASE / "level1" / "rank0_ascend_pt", ascend_db).side_tables
    rows = {name: len(side_table) for name, side_table in held.items()}
    assert rows == {
        "communication": 4, "communication_bandwidth": 12, "communication_matrix": 48,
        "kernel_details": 187, "memory_record": 990, "npu_module_mem": 1078,
        "operator_memory": 184, "step_trace_time": 1,
    }  # fmt: skip
    own = {"Device_id"}  # databases may hold several devices
    assert {n: set(s.columns) - set(text[n].columns) - own for n, s in held.items()} == {
        name: set() for name in held
    }
    assert held["step_trace_time"]["Computing(ns)"].tolist() == [8_903_431]
    kernels = held["kernel_details"]
    assert int(kernels["Duration(ns)"].sum()) == 8_903_431


def test_tables_without_a_timeline_are_read():
    """21 rows, of which one lacks its duration: operators on their streams, and memory."""
    trace = detail(ASCEND / "msinsight/server/src/test/test_data/test_rank_0")
    assert trace.rank == 0
    assert int(trace.rows_of(Layer.DEVICE, Layer.COMM).sum()) == 20
    assert trace.issues.count("malformed-record") == 1
    assert len(trace.side_tables) == 9


def test_figures_of_a_table_cut_down_are_those_of_its_steps():
    """20 operators of a step that computed for 75.2 ms: they take 27.1 ms, and the device was said
    to be idle for 86 % of 268 ms. The profiler's own table says 24 % of 291.7 ms."""
    folder = ASCEND / "msinsight/server/src/test/test_data/test_rank_0"
    found = traceconv.diagnose(str(folder))
    assert found.headline == (
        "Rank 0: 292 ms per step (step_trace_time). Lost: "
        "exposed communication 147 ms (50 %), idle 69.9 ms (24 %)"
    )
    (missing,) = [one for one in found.issues if one.code == "operators-missing"]
    assert missing.places == (
        "malformed-record x1",
        "step 2: operators of 27130.587 µs, Computing of 75174.575 µs in step_trace_time",
    )


def test_headlines_of_tables_alone():
    """What the steps lose is what the profiler's tables state of them."""
    folders = {
        "msinsight/test/st/level2": "Mean of ranks 1, 3 (2 of 4 ranks of the job): "
        "810 ms per step (step_trace_time). Lost: exposed communication 352 ms (43 %), "
        "idle 142 ms (18 %)",
        "msprof-analyze/resource/advisor": "Mean of ranks 0-7: 1.71 s recorded "
        "(cluster_step_trace_time). Lost: idle 1.18 s (69 %), "
        "exposed communication 454 ms (26 %)",
        "msinsight/server/src/test/test_data/cluster_analysis_output": "Mean of ranks 0-15: 338 ms "
        "per step (cluster_step_trace_time). Lost: exposed communication 183 ms "
        "(54 %), idle 76.7 ms (23 %)",
    }
    for name, headline in folders.items():
        found = traceconv.diagnose(str(ASCEND / name), analyse=True)
        assert found.headline == headline
        assert "<html" in found.html_text()


def test_cluster_tables_lie_in_a_capture_of_their_own():
    """Alone they have no events, and belong to no rank."""
    folder = ASCEND / "msprof-analyze/resource/advisor/cluster_analysis_output"
    trace = read(folder, ascend_tables)
    side_table = trace.side_tables["cluster_step_trace_time"]
    assert (trace.capture.rank, len(side_table), trace.counts()["slice"]) == (None, 9, 0)
    assert side_table["Type"].tolist() == ["rank"] * 8 + ["stage"]


def test_cluster_json_names_ranks_and_groups():
    """By group of ranks, step, operator and rank."""
    folder = ASCEND / "msinsight/server/src/test/test_data/cluster_analysis_output"
    (source,) = sources([str(folder)])
    operations = operation_columns(source, "cluster_communication.json", Issues())
    assert (len(operations["Rank"]), set(operations["Kind"])) == (6, {"p2p", "collective"})
    assert "(0, 1, 2, 3, 4, 5, 6, 7)" in set(operations["Rank Set"])
    links = matrix_columns(source, "cluster_communication_matrix.json", Issues())
    assert (links["Source"].tolist()[:2], links["Target"].tolist()[:2]) == ([0, 0], [0, 8])


def test_inspect_knows_every_table():
    """No CSV file of the sample folder, and no table in JSON or a database, is unknown."""
    inspection = traceconv.inspect(str(INSIGHT))
    tables = re.compile(r"\.csv$|communication.*\.json$|analysis\.db$")
    assert [name for name in inspection.unknown if tables.search(name)] == []
