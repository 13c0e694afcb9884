"""Tables of Ascend captures: which belong to which, what they become, and what broken ones cost."""

import json
import sqlite3
from contextlib import closing

import numpy as np
import pytest
from ascend_files import OUTPUT, PROF, UNIX_US, Folder, events, steps

import traceconv
from traceconv.cli import run
from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues, SourceError, TraceconvError
from traceconv.core.model import Capture, Layer, OpClass
from traceconv.core.side_tables import ABSENT
from traceconv.io.sources import sources
from traceconv.passes.kernel_args import kernel_args
from traceconv.passes.table_counters import side_table_counters
from traceconv.readers.ascend.tables import reader as ascend_tables
from traceconv.readers.ascend.tables.load import (
    bandwidth_columns,
    matrix_columns,
    operation_columns,
)

RANK0 = "host_7_20250301080000123_ascend_pt"
KERNELS = "Name,Type,Start Time(us),Duration(us),Block Dim\n"
INFO = {"rank_id": 0}


def kernel(ts="0.250", name="MatMul", block=8):
    return f"{name},Mm,{UNIX_US + int(float(ts))}.{ts.partition('.')[2]},4.5,{block}\n"


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def traces(folder, mode=None, **options):
    return list(traceconv.open(str(folder.root), **options).traces(mode))


def arguments(trace):
    """Arguments of the device rows, by name."""
    rows = trace.rows_of(Layer.DEVICE).nonzero()[0].tolist()
    e = trace.events
    return {trace.strings[e.name[i]]: trace.args[e.args[i]] for i in rows}


def test_tables_beside_a_timeline_are_side_tables(folder):
    """Under one name whoever wrote them: CANN's ``op_summary`` is ``kernel_details``."""
    folder.capture(RANK0, profiler_info_0=INFO)
    folder.add(f"{RANK0}/{OUTPUT}/op_statistic.csv", "OP Type,Count\nMm,3\n")
    folder.add(
        f"{RANK0}/{PROF}/mindstudio_profiler_output/op_summary_20250301080105.csv",
        "Op Name,OP Type,Task Start Time(us),Task Duration(us)\nMatMul,Mm,1,2\n",
    )
    (trace,) = traces(folder)
    assert {n: list(s.columns) for n, s in trace.side_tables.items()} == {
        "op_statistic": ["OP Type", "Count"],
        "kernel_details": ["Name", "Type", "Start Time(ns)", "Duration(ns)"],
    }


def test_the_newest_export_of_a_table_is_read(folder):
    """All parts of it, and nothing of the framework's own twice."""
    place = f"{RANK0}/{PROF}/mindstudio_profiler_output"
    folder.capture(RANK0, profiler_info_0=INFO)
    for name, count in (
        ("op_statistic_20250301080105", 1),
        ("op_statistic_20250301090105", 2),
        ("api_statistic_slice_0_20250301080105", 3),
        ("api_statistic_slice_1_20250301080106", 4),
        ("api_statistic_slice_0_20250228080105", 5),
        ("step_trace_time", 6),
    ):
        folder.add(f"{place}/{name}.csv", f"OP Type,Count\nMm,{count}\n")
    folder.add(f"{RANK0}/{OUTPUT}/step_trace_time.csv", "OP Type,Count\nMm,7\n")
    (trace,) = traces(folder)
    counts = {name: table["Count"].tolist() for name, table in trace.side_tables.items()}
    assert counts == {
        "api_statistic": [3, 4], "op_statistic": [2], "step_trace_time": [7],
    }  # fmt: skip
    uses = {n.rpartition("/")[2]: use for n, use in trace.capture.uses.items()}
    assert uses["op_statistic_20250301080105.csv"] == "another export of table op_statistic"


def test_empty_tables_are_none(folder):
    """A file without a byte is an export that was only named."""
    folder.capture(RANK0, profiler_info_0=INFO).add(f"{RANK0}/{OUTPUT}/l2_cache.csv", "")
    (trace,) = traces(folder)
    assert trace.side_tables == {}
    assert trace.capture.uses[f"{RANK0}/{OUTPUT}/l2_cache.csv"] == "empty"


def test_steps_are_numbers_even_where_there_are_none(folder):
    """``step50`` and ``50`` are 50; an empty column is absent, not text."""
    folder.capture(RANK0, profiler_info_0=INFO)
    folder.add(f"{RANK0}/{OUTPUT}/step_trace_time.csv", "Step,Computing\n,1.5\n,2\n")
    folder.add(f"{RANK0}/{OUTPUT}/communication.json", {"step50": COMMUNICATION})
    (trace,) = traces(folder)
    assert trace.side_tables["step_trace_time"]["Step"].tolist() == [ABSENT, ABSENT]
    assert trace.side_tables["communication"]["Step"].tolist() == [50]


INFOS = {
    "Communication Time Info": {
        "Start Timestamp(us)": 1740816000000160.5,
        "Elapse Time(ms)": 0.08,
    },
    "Communication Bandwidth Info": {
        "HCCS": {"Transit Size(MB)": 0.5, "Size Distribution": {"0.25": [2, 0.05]}},
        "RDMA": {"Transit Size(MB)": 0, "Size Distribution": {}},
    },
}
COMMUNICATION = {"p2p": {}, "collective": {"hcom_a@17": INFOS, "Total Op Info": INFOS}}


@pytest.mark.parametrize(
    ("written", "place"),
    [
        ({"step5": COMMUNICATION}, (5, "collective", "hcom_a", "17")),
        ({"step": {"p2p": {"hcom_a@17": INFOS}}}, (ABSENT, "p2p", "hcom_a", "17")),
        ({"hcom_send_@17": INFOS}, (ABSENT, "p2p", "hcom_send_", "17")),
        ({"hcom_a@17": INFOS}, (ABSENT, "collective", "hcom_a", "17")),
    ],
)
def test_communication_with_and_without_steps(folder, written, place):
    """The framework's file and the collector's; totals of the file are left out."""
    folder.add("communication.json", written)
    (source,) = sources([str(folder.root)])
    columns = operation_columns(source, "communication.json", Issues())
    assert tuple(columns[h].tolist()[0] for h in ("Step", "Kind", "Operator", "Group")) == place
    assert columns["Start Timestamp(us)"].tolist() == [1740816000000160500]
    parts = bandwidth_columns(source, "communication.json", Issues())
    assert (parts["Transport Type"].tolist(), parts["Count"].tolist()) == (["HCCS"], [2])


def test_a_matrix_has_a_row_per_link(folder):
    """Ranks of both ends are numbers, and a group of digits stays text."""
    link = {"Transport Type": "HCCS", "Transit Time(ms)": 0.5, "op_name": "x"}
    folder.add("m.json", {"step1": {"p2p": {}, "collective": {"a-top1@17": {"0-11": link}}}})
    (source,) = sources([str(folder.root)])
    columns = matrix_columns(source, "m.json", Issues())
    assert {h: c.tolist() for h, c in columns.items()} == {
        "Step": [1], "Kind": ["collective"], "Operator": ["a-top1"], "Group": ["17"],
        "Source": [0], "Target": [11], "Transport Type": ["HCCS"],
        "Transit Time(ms)": [500_000], "Op Name": ["x"],
    }  # fmt: skip


@pytest.mark.parametrize("written", ["[" * 100_000, "{", '{"a": {"Communication Time Info": 1}}'])
def test_json_that_is_none_of_it_is_ours_to_say(folder, written):
    """Only errors of the library leave, and nothing is made of what has another shape."""
    folder.add("communication.json", written)
    (source,) = sources([str(folder.root)])
    try:
        assert operation_columns(source, "communication.json", Issues()) == {}
    except TraceconvError as e:
        assert "communication.json" in str(e)


# -- operators ------------------------------------------------------------------------------


def test_a_row_becomes_arguments_of_its_slice(folder):
    """In the detail view, with the timeline's own arguments first; not elsewhere."""
    folder.capture(RANK0, profiler_info_0=INFO)
    folder.add(f"{RANK0}/{OUTPUT}/kernel_details.csv", KERNELS + kernel())
    (trace,) = traces(folder, "detail")
    assert arguments(trace) == {"MatMul": {"Task Type": "AI_CORE", "Op Type": "Mm", "Block Num": 8}}
    (trace,) = traces(folder)
    assert arguments(trace) == {"MatMul": {"Task Type": "AI_CORE"}}


def test_rows_that_meet_no_slice_are_counted(folder):
    """Another name, another time, and the second row for one slice: the nearer one has it."""
    rows = (kernel("0.5", block=1), kernel(name="Add"), kernel("9.0"), kernel("0.25", block=2))
    folder.capture(RANK0, profiler_info_0=INFO)
    folder.add(f"{RANK0}/{OUTPUT}/kernel_details.csv", KERNELS + "".join(rows))
    (trace,) = traces(folder, "detail")
    assert arguments(trace)["MatMul"]["Block Num"] == 2
    assert trace.issues.count("row-unmatched") == 3


@pytest.mark.parametrize(("ts", "joined"), [("0.0", True), ("0.750", True), ("1.0", False)])
def test_starts_may_differ_by_rounding(folder, ts, joined):
    """Tables written through floating point lie on a grid of a quarter microsecond."""
    folder.capture(RANK0, profiler_info_0=INFO)
    folder.add(f"{RANK0}/{OUTPUT}/kernel_details.csv", KERNELS + kernel(ts))
    (trace,) = traces(folder, "detail")
    assert ("Op Type" in arguments(trace)["MatMul"]) == joined


@pytest.mark.parametrize(
    "table", ["", "\x00", "Name\nMatMul\n", "Name,Start Time(us)\nMatMul,soon\n", "A,B\n1\n"]
)
def test_a_broken_table_costs_no_event(folder, table):
    """The timeline stays, whatever lies beside it."""
    folder.capture(RANK0, profiler_info_0=INFO)
    folder.add(f"{RANK0}/{OUTPUT}/kernel_details.csv", table)
    folder.add(f"{RANK0}/{OUTPUT}/memory_record.csv", table)
    (trace,) = traces(folder, "detail")
    assert arguments(trace) == {"MatMul": {"Task Type": "AI_CORE"}}


def test_a_table_that_cannot_be_read_is_booked():
    """One that is gone since it was found costs its arguments and its counters."""
    build = TraceBuilder(Capture("test", None, (), rank=0))
    build.slice(build.track(Layer.DEVICE, "Stream 2"), 0, 5, "MatMul")

    def gone():
        raise SourceError("t.csv: cannot open")

    for name in ("kernel_details", "memory_record"):
        build.side_table(name, f"{name}.csv", gone)
    trace = side_table_counters(kernel_args(build.finish()))
    found = {(i.code, i.file) for i in trace.issues}
    assert found == {
        ("malformed-record", "kernel_details.csv"), ("malformed-record", "memory_record.csv"),
    }  # fmt: skip


def test_losses_of_a_table_are_told_once(folder):
    """A row that lacks a cell is booked by the pass that reads the table."""
    folder.capture(RANK0, profiler_info_0=INFO)
    folder.add(f"{RANK0}/{OUTPUT}/kernel_details.csv", KERNELS + "MatMul,Mm\n" + kernel())
    (trace,) = traces(folder, "detail")
    assert trace.issues.count("malformed-record") == 1
    assert len(trace.side_tables["kernel_details"]) == 1
    assert trace.issues.count("malformed-record") == 1


# -- counters -------------------------------------------------------------------------------

MEMORY = "Component,Timestamp(us),Total Allocated(MB),Total Reserved(KB),Device Type\n"


def samples(trace):
    names = [f"{t.group}: {t.name} [{t.unit}]" for t in trace.tracks]
    c = trace.counters
    return [
        (names[track], start - UNIX_US * 1000, value)
        for track, start, value in zip(
            c.track.tolist(), c.start_ns.tolist(), c.value.tolist(), strict=True
        )
    ]


def test_memory_becomes_counters(folder):
    """In MB whatever the heading says; absent and negative figures are no samples."""
    folder.capture(RANK0, profiler_info_0=INFO).add(
        f"{RANK0}/{OUTPUT}/memory_record.csv",
        f"{MEMORY}PTA,{UNIX_US + 1},1.5,2048,NPU:0\nPTA,{UNIX_US + 2},N/A,-1,NPU:0\n",
    )
    (trace,) = traces(folder, "detail")
    assert samples(trace) == [
        ("Memory: PTA/Total Allocated [MB]", 1000, 1.5),
        ("Memory: PTA/Total Reserved [MB]", 1000, 2.0),
    ]
    assert trace.ledger["tables", "counter"] == 2


def test_a_counter_never_comes_twice(folder):
    """Lanes the timeline has go before the table, and the table of samples before that of
    allocations."""
    own = [
        {"ph": "M", "name": "process_name", "pid": 9, "args": {"name": "Memory"}},
        {"ph": "C", "name": "PTA/Total Allocated", "pid": 9, "ts": UNIX_US, "args": {"MB": 7.0}},
    ]
    table = f"{MEMORY}PTA,{UNIX_US + 1},1.5,2048,NPU:0\n"
    allocations = f"Name,Allocation Time(us),Allocation Total Allocated(MB)\na,{UNIX_US + 3},2.5\n"
    folder.capture("a_ascend_pt", profiler_info_0=INFO)
    folder.capture("b_ascend_pt", profiler_info_1={"rank_id": 1})
    folder.add("a_ascend_pt/" + OUTPUT + "/trace_view.json", events(UNIX_US, *own))
    for name in ("a_ascend_pt", "b_ascend_pt"):
        folder.add(f"{name}/{OUTPUT}/memory_record.csv", table)
        folder.add(f"{name}/{OUTPUT}/operator_memory.csv", allocations)
    first, second = traces(folder, "detail")
    assert [value for _, _, value in samples(first)] == [7.0]
    assert [value for _, _, value in samples(second)] == [1.5, 2.0]


def test_allocations_stand_in_for_samples(folder):
    """Of what was never freed only the allocation is known."""
    folder.capture(RANK0, profiler_info_0=INFO).add(
        f"{RANK0}/{OUTPUT}/operator_memory.csv",
        "Name,Allocation Time(us),Release Time(us),Allocation Total Allocated(MB),"
        f"Release Total Allocated(MB)\na,{UNIX_US + 3},{UNIX_US + 5},2.5,0.5\n"
        f"b,{UNIX_US + 4},,3.5,\n",
    )
    (trace,) = traces(folder, "detail")
    lane = "Memory: PTA/Total Allocated [MB]"
    assert samples(trace) == [(lane, 3000, 2.5), (lane, 4000, 3.5), (lane, 5000, 0.5)]
    assert trace.issues.count("bad-time") == 0


def test_devices_have_lanes_of_their_own(folder):
    """Where a table holds several, as in databases."""
    folder.capture(RANK0, profiler_info_0=INFO).add(
        f"{RANK0}/{OUTPUT}/npu_module_mem.csv",
        f"Device_id,Component,Timestamp(us),Total Reserved(KB)\n0,HCCL,{UNIX_US},1024\n"
        f"1,HCCL,{UNIX_US},2048\n",
    )
    (trace,) = traces(folder, "detail")
    assert samples(trace) == [
        ("NPU 0 NPU Module Mem: HCCL [MB]", 0, 1.0), ("NPU 1 NPU Module Mem: HCCL [MB]", 0, 2.0),
    ]  # fmt: skip


# -- one run, exported twice ----------------------------------------------------------------


def _database(path):
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("CREATE TABLE TASK (startNs INTEGER)")
    return path.read_bytes()


def test_a_database_beside_text_is_left_out_by_name(folder, tmp_path, capsys):
    """In the lines of inspect, among the issues of a merge, and among the uses of files."""
    content = _database(tmp_path / "made.db")
    (tmp_path / "made.db").unlink()
    folder.capture(RANK0, profiler_info_0=INFO)
    name = f"{RANK0}/{OUTPUT}/ascend_pytorch_profiler_0.db"
    (folder.root / name).write_bytes(content)
    shown = traceconv.inspect(str(folder.root))
    (capture,) = shown.captures
    assert capture.reader == "trace_view"
    assert capture.uses[name] == "left out, as another export of the same run is read"
    assert "ascend_pytorch_profiler_0.db" in "\n".join(shown.lines())
    for issues in (shown.issues, traceconv.stats(str(folder.root)).issues):
        (issue,) = [one for one in issues if one.code == "export-unused"]
        assert issue.file.endswith(name)
        assert (issue.count, str(issue.severity)) == (1, "info")


def test_text_beside_a_database_that_is_read_is_left_out_by_name(folder, tmp_path):
    """The framework's database holds the device's side, too, that CANN exported as text."""
    prof = f"{RANK0}/{PROF}/mindstudio_profiler_output/msprof_20250301080105.json"
    folder.add(prof, events()).add(f"{RANK0}/profiler_info_0.json", INFO)
    content = _database(tmp_path / "made.db")
    (tmp_path / "made.db").unlink()
    folder.add(f"{RANK0}/{OUTPUT}/x.txt", "")
    (folder.root / f"{RANK0}/{OUTPUT}/ascend_pytorch_profiler_0.db").write_bytes(content)
    shown = traceconv.inspect(str(folder.root))
    assert [one.reader for one in shown.captures] == ["ascend_db"]
    (issue,) = [one for one in shown.issues if one.code == "export-unused"]
    assert issue.file.endswith("msprof_20250301080105.json")


# -- captures without a timeline ------------------------------------------------------------


def test_tables_alone_are_a_capture(folder):
    """With the rank of the files around them; operators lie on streams, communication apart."""
    folder.add(f"{RANK0}/profiler_info_3.json", {"rank_id": 3})
    folder.add(
        f"{RANK0}/{OUTPUT}/kernel_details.csv",
        "Step Id,Stream ID,Model ID,Name,Accelerator Core,Start Time(us),Duration(us)\n"
        f"5,2,4294967295,a,AI_CORE,{UNIX_US},4\n6,2,1,b,AIV,{UNIX_US + 9},1\n"
        f"6,N/A,1,hcom_x,HCCL,{UNIX_US + 9},3\n",
    )
    (trace,) = traces(folder)
    assert (trace.rank, trace.capture.rank_from) == (3, "profiler_info_3.json")
    lanes = [(trace.tracks[t].layer, trace.tracks[t].name) for t in trace.events.track.tolist()]
    assert lanes == [
        (Layer.STEP, "Steps"), (Layer.STEP, "Steps"), (Layer.DEVICE, "Stream 2"),
        (Layer.DEVICE, "Stream 2"), (Layer.COMM, "Communication"),
    ]  # fmt: skip
    assert trace.events.graph.tolist() == [-1, -1, -1, 1, 1]
    assert trace.events.step.tolist() == [5, 6, 5, 6, 6]
    assert trace.events.dur_ns.tolist()[:2] == [4000, 3000]


@pytest.mark.parametrize(
    "cell", ["9223372036854775.807", "-9223372036854775.807", "1e30", "nan", "", "x"]
)
def test_times_at_the_edge_do_no_harm(folder, cell):
    """A start or a duration near the end of int64 is no time."""
    header = "Name,Start Time(us),Duration(us)\n"
    folder.add("kernel_details.csv", f"{header}a,{cell},1\nb,1,{cell}\nc,1,2\n")
    (trace,) = traces(folder, "detail")
    assert "c" in {trace.strings[i] for i in trace.events.name.tolist()}
    assert int(trace.events.dur_ns.min()) >= 0


TASKS = "Step Id,Stream ID,Name,Type,Accelerator Core,Start Time(us),Duration(us)\n"
STEP_TIMES = "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free\n"


def _tasks(*rows):
    """Rows of operators of step 5: name, start and length."""
    core = {"hcom_x": "HCCL"}
    return TASKS + "".join(
        f"5,2,{name},{name},{core.get(name, 'AI_CORE')},{UNIX_US + start},{length}\n"
        for name, start, length in rows
    )


WHOLE = _tasks(("a", 0, 40), ("hcom_x", 40, 10), ("a", 60, 30), ("b", 90, 10))
"""Of 100 us: 80 computing, 10 communication, 10 idle."""

BROKEN = {
    "cut in a row": WHOLE[:-12],
    "cut in the last cell": WHOLE[:-2],
    "a row that is none": WHOLE.replace("hcom_x,HCCL", "hcom_x,x,HCCL"),
    "a row without a start": WHOLE.replace(f"{UNIX_US + 60}", ""),
    "a row without a length": WHOLE[:-3] + "N/A\n",
}


def test_a_whole_table_of_operators_has_figures(folder):
    """Idle time is what its rows do not fill, and ratios are shares of all of them."""
    folder.add("kernel_details.csv", WHOLE)
    stats = traceconv.stats(str(folder.root), by="overlap,step,type")
    assert stats["overlap"]["Idle(ns)"].tolist() == [10_000, 10_000]
    assert stats["step"]["Duration(ns)"].tolist() == [100_000]
    assert stats["type"]["Ratio(%)"].tolist() == [70 / 80 * 100, 10 / 80 * 100]
    assert "idle 10 µs (10 %)" in traceconv.diagnose(str(folder.root)).headline


@pytest.mark.parametrize("how", BROKEN)
def test_a_table_that_lacks_rows_has_no_figures_of_all(folder, tmp_path, how):
    """Nothing is idle, no share of anything, and no length of a step; what is there is counted."""
    folder.add("kernel_details.csv", BROKEN[how])
    stats = traceconv.stats(str(folder.root), by="all")
    for table in ("overlap", "step_trace_time", "step", "step_summary", "stage", "device"):
        assert len(stats[table]) == 0, table
    for table in ("op", "type", "kernel"):
        assert np.isnan(stats[table]["Ratio(%)"]).all()
    assert stats["type"]["Count"].sum() > 0
    assert {issue.code for issue in stats.issues} > {"operators-missing"}
    found = traceconv.diagnose(str(folder.root), analyse=True)
    assert found.headline.endswith("so losses are unknown")
    assert found.findings.findings == ()
    assert "idle" not in found.document["overview"]["sentences"][0]
    assert "–" in found.html_text()
    report = traceconv.merge(str(folder.root), out=str(tmp_path / "x.txt"))
    assert not any(line.startswith("Rank") for line in report.lines())
    text = (tmp_path / "x.txt").read_text()
    assert "Free" not in text
    assert "Not Overlapped" not in text


@pytest.mark.parametrize("lacking", [5, 6])
def test_steps_without_missing_operators_have_figures(folder, lacking):
    """Of two steps with 80 of 100 us computing, one has a row without a length, or a cut one."""
    later = _tasks(("a", 200, 40), ("hcom_x", 240, 10), ("a", 260, 30), ("b", 290, 10))
    later = later.partition("\n")[2].replace("5,2,", "6,2,")
    rows = WHOLE.replace("060,30", "060,N/A") + later if lacking == 5 else WHOLE + later[:-12]
    folder.add("kernel_details.csv", rows)
    stats = traceconv.stats(str(folder.root), by="overlap,type")
    overlap = stats["overlap"]
    known = dict(zip(overlap["Step"].tolist(), overlap["Total Compute(ns)"].tolist(), strict=True))
    assert (known[11 - lacking], known[lacking]) == (80_000, ABSENT)
    assert overlap["Idle(ns)"][overlap["Step"] == 11 - lacking].tolist() == [10_000]
    assert np.isnan(stats["type"]["Ratio(%)"]).all()
    assert stats.issues.count("operators-missing")


@pytest.mark.parametrize("lost", [False, True])
def test_the_profilers_own_steps_are_used_for_what_the_table_lacks(folder, lost):
    """Of 80 us of computing half is in the table of operators: figures are those of the steps."""
    rows = _tasks(("a", 0, 40), ("hcom_x", 40, 10)) if lost else WHOLE
    folder.add("kernel_details.csv", rows)
    folder.add("step_trace_time.csv", f"{STEP_TIMES}5,80.0,10.0,0,10.0,10.0\n")
    stats = traceconv.stats(str(folder.root), by="overlap,type,step")
    assert stats["overlap"]["Total Compute(ns)"].tolist() == [80_000]
    assert stats["overlap"]["Source"].tolist() == ["step_trace_time"]
    missing = [issue for issue in stats.issues if issue.code == "operators-missing"]
    assert [one.places for one in missing] == (
        [("step 5: operators of 40.000 µs, Computing of 80.000 µs in step_trace_time",)] * lost
    )
    assert np.isnan(stats["type"]["Ratio(%)"]).all() == lost
    found = traceconv.diagnose(str(folder.root), analyse=True)
    assert found.headline == (
        "Rank 0: 100 µs per step (step_trace_time). Lost: "
        "exposed communication 10 µs (10 %), idle 10 µs (10 %)"
    )
    (trace,) = traces(folder, "detail")
    assert bool((trace.events.op == OpClass.FREE).any()) == (not lost)


def test_steps_of_tables_alone_are_in_headline_rules_and_page(folder):
    """Without operators, too: what the profiler's table of steps states is all there is."""
    folder.add("step_trace_time.csv", f"{STEP_TIMES}5,30,50,0,50,20\n6,50,30,0,30,20\n")
    found = traceconv.diagnose(str(folder.root), analyse=True)
    assert found.headline == (
        "Rank 0: 100 µs per step (step_trace_time). Lost: "
        "exposed communication 40 µs (40 %), idle 20 µs (20 %)"
    )
    (one,) = found.findings.findings
    assert (one.rule.id, one.case.value, one.case.steps) == ("exposed-communication", 40, [5, 6])
    assert found.document["overview"]["sentences"][0] == (
        "2 steps with device work: computing 40 %, device utilisation 80.0 % of a step."
    )
    assert "needs marked steps" in found.html_text()


def test_steps_of_a_cluster_are_those_of_its_ranks(folder):
    """One table names two ranks: both are in the headline."""
    rows = '5,rank,0,40,40,0,40,20\n5,rank,1,60,20,0,20,20\n5,stage,"(0, 1)",60,40,0,40,20\n'
    header = STEP_TIMES.replace("Step,", "Step,Type,Index,")
    folder.add("cluster_analysis_output/cluster_step_trace_time.csv", header + rows)
    found = traceconv.diagnose(str(folder.root), analyse=True)
    assert found.headline == (
        "Mean of ranks 0-1: 100 µs per step (cluster_step_trace_time). Lost: "
        "exposed communication 30 µs (30 %), idle 20 µs (20 %)"
    )
    assert [row["rank"] for row in found.document["overview"]["overlap"]["rows"]] == [0, 1]
    assert "<html" in found.html_text()


def test_stats_say_how_many_steps_are_known(folder, capsys):
    """Of one rank those a table states, of another sums of a capture, of a third all there are."""
    folder.add(f"a/{RANK0}/profiler_info_0.json", INFO)
    folder.add(f"a/{RANK0}/{OUTPUT}/step_trace_time.csv", f"{STEP_TIMES}5,30,50,0,50,20\n")
    folder.add(f"b/{RANK0}/profiler_info_1.json", {"rank_id": 1})
    folder.add(f"b/{RANK0}/{OUTPUT}/step_trace_time.csv", f"{STEP_TIMES},30,50,0,50,20\n")
    folder.add(f"c/{RANK0}/profiler_info_2.json", {"rank_id": 2})
    folder.add(f"c/{RANK0}/{OUTPUT}/kernel_details.csv", WHOLE)
    found = traceconv.stats(str(folder.root), by="overlap")
    assert found.step_lines == [
        "steps of rank 0: figures of 1 step from step_trace_time",
        "steps of rank 1: sums of the whole capture, from step_trace_time",
        "steps of rank 2: 1, with device data",
    ]
    assert run(["stats", str(folder.root), "--by", "overlap", "-v"]) == 0
    assert "\nsteps of rank 2: 1, with device data\n" in f"\n{capsys.readouterr().err}"


def test_other_files_of_such_names_are_not_claimed(folder):
    """What a table is called, anybody may call a file: its first bytes decide."""
    folder.add("dataset.csv", "x,y\n1,2\n").add("communication.json", {"a": 1})
    folder.add("pcie.csv", "lane;speed\n")
    (source,) = sources([str(folder.root)])
    assert ascend_tables.READER.find(source, source.names(), Issues()) == []


def test_a_table_without_a_rank_does_not_stop_a_merge(folder):
    """It is told, shown by inspect, and left out."""
    folder.capture(RANK0, profiler_info_0=INFO)
    folder.add("copy/kernel_details.csv", KERNELS + kernel())
    found = traceconv.open(str(folder.root))
    assert [c.reader for c in found.found] == ["trace_view"]
    assert [(i.code, i.places) for i in found.issues] == [
        ("unused-file", ("nothing names its rank",))
    ]
    shown = traceconv.inspect(str(folder.root))
    assert [c.reader for c in shown.captures] == ["trace_view", "ascend_tables"]


def test_cluster_tables_go_to_the_first_capture_beside_them(folder):
    """They were made of all ranks, and are no rank."""
    cluster = "Step,Type,Index,Computing,Communication(Not Overlapped)\n,rank,0,1.5,2\n"
    folder.add("cluster_analysis_output/cluster_step_trace_time.csv", cluster)
    folder.add("cluster_analysis_output/communication_group.json", {"collective": [[0, 1]]})
    folder.capture("a_ascend_pt", profiler_info_0=INFO)
    folder.capture("b_ascend_pt", profiler_info_1={"rank_id": 1})
    first, second = traces(folder)
    assert (list(first.side_tables), list(second.side_tables)) == (
        ["cluster_step_trace_time", "communication_group"], [],
    )  # fmt: skip
    assert first.side_tables["communication_group"]["Rank Set"].tolist() == ["(0, 1)"]
    assert traceconv.open(str(folder.root)).unknown == ()


def test_sums_of_a_database_are_the_same_side_tables(folder):
    """Steps of ``analysis.db`` under the headings of the text, which goes first if it is there."""
    folder.capture(RANK0, profiler_info_0=INFO)
    with closing(sqlite3.connect(folder.root / RANK0 / OUTPUT / "analysis.db")) as db, db:
        db.execute("CREATE TABLE StepTraceTime (step TEXT, computing NUMERIC, free NUMERIC)")
        db.execute("INSERT INTO StepTraceTime VALUES ('5', 1.5, 2)")
    (trace,) = traces(folder)
    side_table = trace.side_tables["step_trace_time"]
    assert {h: c.tolist() for h, c in side_table.columns.items()} == {
        "Step": [5], "Computing(ns)": [1500], "Free(ns)": [2000],
    }  # fmt: skip
    folder.add(f"{RANK0}/{OUTPUT}/step_trace_time.csv", "Step,Computing\n6,7.5\n")
    (trace,) = traces(folder)
    assert trace.side_tables["step_trace_time"]["Computing(ns)"].tolist() == [7500]


# -- inspect --------------------------------------------------------------------------------


def test_inspect_lists_tables_with_their_rows(folder):
    """Names from the start, rows with --counts; every file has a word said of it."""
    folder.capture(RANK0, profiler_info_0=INFO)
    folder.add(f"{RANK0}/{OUTPUT}/op_statistic.csv", "OP Type,Count\nMm,3\nMa,4\n")
    folder.add(f"{RANK0}/{OUTPUT}/op_statistic.csv.done", "")
    assert "tables of rank 0: op_statistic" in traceconv.inspect(str(folder.root)).lines()
    counted = traceconv.inspect(str(folder.root), counts=True)
    assert "tables of rank 0: op_statistic 2" in counted.lines()
    (capture,) = json.loads(json.dumps(counted.as_dict()))["captures"]
    table = f"{RANK0}/{OUTPUT}/op_statistic.csv"
    assert (capture["tables"], capture["counts"]["tables"]) == (
        {"op_statistic": [table]}, {"op_statistic": 2},
    )  # fmt: skip
    assert capture["uses"] == {
        table: "table op_statistic",
        f"{RANK0}/profiler_info_0.json": "rank, device, host, clock",
    }


def test_two_databases_with_the_same_sums_are_read_once(folder):
    """MindSpore copies what CANN's analysis holds."""
    folder.capture(RANK0, profiler_info_0=INFO)
    for name in ("analysis.db", "communication_analyzer.db"):
        with closing(sqlite3.connect(folder.root / RANK0 / OUTPUT / name)) as db, db:
            db.execute("CREATE TABLE CommAnalyzerTime (hccl_op_name TEXT, step TEXT)")
            db.execute("INSERT INTO CommAnalyzerTime VALUES ('hcom_a', 'step5')")
    (trace,) = traces(folder)
    side_table = trace.side_tables["communication"]
    assert (side_table["Operator"].tolist(), side_table["Step"].tolist()) == (["hcom_a"], [5])


# -- figures without a timeline --------------------------------------------------------------


@pytest.fixture
def tables_alone(folder):
    """What remains of rank 9 on device 4: two steps of the profiler, of one some operators."""
    place = f"{RANK0}/{OUTPUT}"
    head = "Device_id,Step Id,Model ID,Task ID,Stream ID,Name,Type,Accelerator Core"
    times = "Start Time(us),Duration(us),Context ID"
    folder.add(f"{RANK0}/profiler_info_9.json", {"rank_id": 9})
    folder.add(
        f"{place}/kernel_details.csv",
        f"{head},{times}\n4,1,4294967295,940,2,MatMul,Mm,AI_CORE,{UNIX_US}.25,4.5,7\n"
        f"4,1,4294967295,N/A,2,hcom_allReduce__1_0_1,hcom_allReduce_,HCCL,{UNIX_US}.5,9,N/A\n",
    )
    folder.add(
        f"{place}/step_trace_time.csv",
        "Device_id,Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,"
        "Stage,Bubble,Communication(Not Overlapped and Exclude Receive),Preparing\n"
        "4,1,100.5,50.25,10,60.25,40,190.75,0.0,50.25,206.25\n4,2,90,50,10,60,60,200,0,50,7\n",
    )
    stated = {
        "Start Timestamp(us)": UNIX_US + 0.5, "Elapse Time(ms)": 0.75, "Transit Time(ms)": 0,
        "Wait Time(ms)": 0.5, "Synchronization Time(ms)": 0.25, "Idle Time(ms)": 0.25,
        "Wait Time Ratio": 1.0, "Synchronization Time Ratio": 1.0,
    }  # fmt: skip
    operation = {"hcom_allReduce__1_0_1@17": {"Communication Time Info": stated}}
    folder.add(f"{place}/communication.json", {"step1": {"collective": operation}})
    return str(folder.root)


def _stats(path, table, **options):
    columns = traceconv.stats(path, by=[table], **options)[table].columns
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def test_operations_without_planes_are_those_of_communication_json(tables_alone):
    """Its ratio of 1.0 is 100 %, and the parts are there."""
    (row,) = _stats(tables_alone, "comm_op")
    assert row == {
        "Rank": 9, "Step": 1, "Group": "17", "Operation": "hcom_allReduce__1_0_1",
        "Start Time(ns)": UNIX_US * 1000 + 500, "Elapse Time(ns)": 750_000,
        "Transit Time(ns)": 0, "Wait Time(ns)": 500_000, "Synchronization Time(ns)": 250_000,
        "Idle Time(ns)": 250_000, "Wait Time Ratio(%)": 100.0,
        "Synchronization Time Ratio(%)": 100.0,
    }  # fmt: skip


def test_the_device_of_tables_is_the_one_they_name(tables_alone):
    """Not 0, which is another one."""
    assert [row["Device"] for row in _stats(tables_alone, "device")] == [4]
    assert [c.device for c in traceconv.inspect(tables_alone).captures] == [4]


def test_steps_of_tables_are_the_profilers_own(tables_alone):
    """Preparing is in no table of operators; the five legends follow the same row. It is idle time
    of the first step; that of the next is in Free already, where the gap begins."""
    rows = _stats(tables_alone, "step_trace_time")
    assert [row["Preparing(ns)"] for row in rows] == [206_250, 7_000]
    assert [(row["Device"], row["Source"]) for row in rows] == [(4, "step_trace_time")] * 2
    overlap = _stats(tables_alone, "overlap")
    assert [
        [row[f"{name}(ns)"] for name in ("Total Compute", "Pure Compute", "Idle", "Known")]
        for row in overlap
    ] == [
        [100_500, 90_500, 40_000 + 206_250, 190_750 + 206_250],
        [90_000, 80_000, 60_000, 200_000],
    ]
    assert [row["Input Wait(ns)"] for row in overlap] == [206_250, 7_000]


def test_ids_and_cores_of_a_table_are_arguments(folder, tables_alone):
    """As a timeline has them; an empty cell is none."""
    (trace,) = traces(folder)
    rows = trace.rows_of(Layer.DEVICE, Layer.COMM).nonzero()[0].tolist()
    assert [trace.args[trace.events.args[i]] for i in rows] == [
        {"Task Type": "AI_CORE", "Model Id": 4294967295, "Task Id": 940, "Context Id": 7},
        {"Task Type": "HCCL", "Model Id": 4294967295},
    ]


def test_a_cluster_table_alone_shows_every_rank(folder):
    """Steps, overlap and spread of 40 ranks, whatever timelines are at hand."""
    head = "Step,Type,Index,Computing,Communication(Not Overlapped),Overlapped,Communication,Free\n"
    rows = [f"3,rank,{rank},{rank + 100},10,5,15,20.5\n" for rank in range(40)]
    stage = '3,stage,"(0, 1)",139,10,5,15,20.5\n'
    path = folder.root / "cluster_analysis_output"
    folder.add(f"{path.name}/cluster_step_trace_time.csv", head + "".join(rows) + stage)
    steps = _stats(str(path), "step")
    assert [(r["Rank"], r["Step"], r["Device Time(ns)"]) for r in steps] == [
        (rank, 3, (rank + 100) * 1000 + 30_500) for rank in range(40)
    ]
    *_, job = _stats(str(path), "step_summary")
    assert (job["Rank"], job["Count"], job["Mean(ns)"]) == (ABSENT, 40, 150_000)
    *_, mean = _stats(str(path), "overlap")
    assert (mean["Total Compute(ns)"], mean["Idle(ns)"]) == (119_500, 20_500)


def test_steps_of_a_capture_of_tables_beside_a_timeline(folder):
    """Steps that no timeline of the rank marks are rows of their own, from the profiler's table;
    the means of the report are of what was measured."""
    head = "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Preparing\n"
    folder.add(f"{RANK0}/{OUTPUT}/step_trace_time.csv", f"{head}1,100,50,10,60,40,200\n")
    folder.capture("other_ascend_pt", profiler_info_9={"rank_id": 9})
    folder.add(f"{RANK0}/profiler_info_9.json", {"rank_id": 9})
    folder.add(
        f"other_ascend_pt/{OUTPUT}/trace_view.json", events(UNIX_US, *steps(7, ts=UNIX_US - 70))
    )
    path = str(folder.root)
    figures = {
        table: [(row["Step"], row[heading]) for row in _stats(path, table)]
        for table, heading in (
            ("step", "Device Time(ns)"), ("overlap", "Known(ns)"), ("step_trace_time", "Free(ns)")
        )
    }  # fmt: skip
    # the profiler counts from the first kernel on, we from the start of the step
    assert figures == {
        "step": [(7, 9_000), (1, 390_000)],
        "overlap": [(7, 9_000), (ABSENT, 9_000), (1, 390_000)],
        "step_trace_time": [(7, 0), (1, 40_000)],
    }
    out = folder.root / "out" / "trace.json"
    out.parent.mkdir()
    drawn = traceconv.merge(path, out=str(out), analyse=True).as_dict()["overview"]["overlap"]
    assert [(row["steps"], row["known_ns"]) for row in drawn["rows"]] == [(1, 9_000)]


def test_calls_are_those_of_the_profilers_table_where_no_timeline_has_any(tmp_path):
    """Count and times as stated; without api_statistic.csv there is nothing."""
    folder = tmp_path / "h_1_20260101000000000_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    folder.mkdir(parents=True)
    (folder.parent / "profiler_info_0.json").write_text('{"rank_id": 0}')
    (folder / "api_statistic.csv").write_text(
        "Level,API Name,Time(us),Count,Avg(us),Min(us),Max(us),Variance\n"
        "acl,aclrtMalloc,30.5,3,10.167,7.67,14.54,9.238\nhccl,Launch,0.5,1,0.5,0.5,0.5,0.0\n"
    )
    data = traceconv.stats(str(tmp_path), by=["api"])["api"]
    assert data["API Name"].tolist() == ["aclrtMalloc", "Launch"]
    assert data["Time(ns)"].tolist() == [30_500, 500]
    assert data["Count"].tolist() == [3, 1]
    assert data["Max(ns)"].tolist() == [14_540, 500]
    assert data["Variance"].tolist() == pytest.approx([9.238, 0.0])


def test_results_of_recipes_in_a_database_of_cluster_tools_are_counted(folder):
    """What the file holds beyond the tables that are read is named, with its rows."""
    path = folder.root / "cluster_analysis_output" / "cluster_analysis.db"
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as made, made:
        made.execute('CREATE TABLE ClusterStepTraceTime(step, type, "index", computing)')
        made.execute("INSERT INTO ClusterStepTraceTime VALUES('5', 'rank', '0', 100.5)")
        made.execute("CREATE TABLE SlowLinkSum(rank, ratio)")
        made.executemany("INSERT INTO SlowLinkSum VALUES(?, 0.5)", [(0,), (1,)])
    (trace,) = traces(folder)
    [issue] = [one for one in trace.issues if one.code == "kind-not-read"]
    assert (issue.count, issue.places) == (2, ("table SlowLinkSum",))


def test_a_database_of_cluster_tools_has_the_steps_and_links_of_all_ranks(tmp_path):
    """As their CSV and JSON say it; totals are left out, and a slow link is found."""
    folder = tmp_path / "cluster_analysis_output"
    folder.mkdir()
    times = "computing, communication_not_overlapped, overlapped, communication, free"
    with closing(sqlite3.connect(folder / "cluster_analysis.db")) as database:
        database.execute(f'CREATE TABLE ClusterStepTraceTime(step, type, "index", {times})')
        database.executemany(
            "INSERT INTO ClusterStepTraceTime VALUES(?, ?, ?, ?, ?, ?, ?, ?)",
            [("5", "rank", "0", 100.5, 20.25, 5, 25.25, 30), ("5", "rank", "1", 140, 10, 5, 15, 5),
             ("5", "stage", "(0, 1)", 140, 20.25, 5, 25.25, 30)],
        )  # fmt: skip
        database.execute(
            "CREATE TABLE ClusterCommunicationTime(step, rank_id, hccl_op_name, group_name,"
            " start_timestamp, elapsed_time)"
        )
        database.executemany(
            "INSERT INTO ClusterCommunicationTime VALUES('5', 0, ?, '123', ?, 0.025)",
            [("hcom_allReduce__123_0_1", UNIX_US), ("Total Op Info", 0)],
        )
        database.execute(
            "CREATE TABLE ClusterCommunicationMatrix(step, hccl_op_name, group_name, src_rank,"
            " dst_rank, transit_size, transit_time, bandwidth, transport_type, op_name)"
        )
        database.executemany(
            "INSERT INTO ClusterCommunicationMatrix VALUES"
            "('5', 'allreduce-total', '123', ?, ?, ?, ?, 0, 'HCCS', '')",
            [
                (a, b, 50, 1 if (a, b) != ("0", "1") else 10)
                for a in "0123"
                for b in "0123"
                if a != b
            ],
        )
        database.commit()
    stats = traceconv.stats(str(tmp_path), by=["overlap", "link", "cluster_communication"])
    overlap = stats["overlap"]
    steps = overlap["Rank"] != ABSENT
    assert overlap["Rank"][steps].tolist() == [0, 1]
    assert overlap["Total Compute(ns)"][steps].tolist() == [100_500, 140_000]
    assert overlap["Idle(ns)"][steps].tolist() == [30_000, 5_000]
    assert len(stats["cluster_communication"]["Operator"]) == 1
    assert (stats["link"]["Rank"] != ABSENT).sum() == 12
    found = traceconv.diagnose(str(tmp_path)).findings.findings
    [slow] = [one for one in found if one.rule.id == "slow-link"]
    assert "0 to 1" in str(slow)


def test_rows_of_unknown_types_meet_their_slices(tmp_path):
    """An operator on an unknown core is unclassified, and still in the table."""
    titles = "Task ID,Stream ID,Op Name,OP Type,Task Type,Task Start Time(us),Task Duration(us)\n"
    output = tmp_path / "PROF_000001_20250615120000123_AAAAAAAAAAAAAAAA/mindstudio_profiler_output"
    output.mkdir(parents=True)
    rows = "1,2,MatMul,Mm,AI_CORE,1750000000.0,9.0\n2,2,Print,Pr,NEXT_CORE,1750000010.0,5.0\n"
    (output / "op_summary_20250615120100.csv").write_text(titles + rows)
    (trace,) = traceconv.open(tmp_path).traces("detail")
    assert trace.issues.count("row-unmatched") == 0
    assert arguments(trace)["Print"]["Op Type"] == "Pr"


def test_rows_of_two_devices_meet_their_own_slices(tmp_path):
    """Devices of one process may run one operator at one time."""
    titles = "Device_id,Task ID,Stream ID,Op Name,OP Type,Task Type,Task Start Time(us),"
    titles += "Task Duration(us),Block Num\n"
    rows = [f"{n},1,2,MatMul,Mm,AI_CORE,1750000000.000,{10 + n}.0,{24 + n}\n" for n in (0, 1)]
    output = tmp_path / "PROF_000001_20250615120000123_AAAAAAAAAAAAAAAA/mindstudio_profiler_output"
    output.mkdir(parents=True)
    (output / "op_summary_20250615120100.csv").write_text(titles + "".join(rows))
    found = traceconv.open(tmp_path)
    assert found.found[0].device == -1
    (trace,) = found.traces("detail")
    assert trace.issues.count("row-unmatched") == 0
    kernels = trace.events.take(trace.events.op == OpClass.COMPUTE)
    blocks = [trace.args[i]["Block Num"] for i in kernels.args.tolist()]
    assert dict(zip(kernels.dur_ns.tolist(), blocks, strict=True)) == {10_000: 24, 11_000: 25}
