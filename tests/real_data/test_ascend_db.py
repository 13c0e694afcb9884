"""Ascend databases as their profilers wrote them, against their own sums and their own tables."""

import sqlite3
from contextlib import closing
from decimal import Decimal

import numpy as np
import pytest
from paths import ASCEND

import traceconv
from traceconv.analysis.tables.step import step_trace_time
from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues
from traceconv.core.model import Layer, OpClass
from traceconv.io.sources import sources
from traceconv.passes import compose
from traceconv.readers.ascend import trace_view
from traceconv.readers.ascend.db import reader as ascend_db

MSINSIGHT = ASCEND / "msinsight"
TORCH = MSINSIGHT / "test" / "data" / "pytorch"
VIEWER = MSINSIGHT / "server" / "src" / "test" / "test_data"
FOLDERS = ["level1/rank0", "level1/rank1", "level2/rank0"]


def read(path, module=ascend_db):
    """The one capture below a path, as its reader gives it."""
    (source,) = sources([str(path)])
    (capture,) = module.READER.find(source, source.names(), Issues())
    build = TraceBuilder(capture)
    module.READER.read(capture, build)
    return build.finish()


def query(path, statement):
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as db:
        return db.execute(statement).fetchall()


def database(folder):
    (path,) = (TORCH / "db" / f"{folder}_ascend_pt" / "ASCEND_PROFILER_OUTPUT").glob("ascend_*.db")
    return path


def ns(microseconds):
    return round(Decimal(str(microseconds)) * 1000)


@pytest.fixture(scope="module")
def traces():
    """The three framework databases."""
    return {folder: read(TORCH / "db" / f"{folder}_ascend_pt") for folder in FOLDERS}


def viewed(trace, mode):
    """The trace after the passes of a view."""
    for step in compose(mode):
        trace = step(trace)
    return trace


# -- sums -----------------------------------------------------------------------------------


def test_published_sums(traces):
    """Union of compute tasks, of operations, what nothing hides, and idle, to the nanosecond."""
    summary = viewed(traces["level1/rank0"], "summary")
    assert summary.overlap.sums_ns[:4] == (8_903_431, 102_108_100, 98_071_947, 25_258_144)


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_column_of_the_step_table(traces, folder):
    """``analysis.db`` beside each database, all columns, exactly."""
    names = (
        "computing, communication_not_overlapped, overlapped, communication, free, stage, bubble, "
        "communication_not_overlapped_and_exclude_receive, preparing"
    )
    analysis = database(folder).with_name("analysis.db")
    (told,) = query(analysis, f"SELECT step, {names} FROM StepTraceTime")
    columns = step_trace_time(viewed(traces[folder], "detail"))
    row = {key: column.item() for key, column in columns.items()}
    assert (row["step"], [ns(value) for value in told[1:]]) == (
        int(told[0]),
        [
            row["computing_ns"], row["not_overlapped_ns"], row["overlapped_ns"],
            row["communication_ns"], row["free_ns"], row["stage_ns"], row["bubble_ns"],
            row["exclude_receive_ns"], row["preparing_ns"],
        ],
    )  # fmt: skip


@pytest.mark.parametrize("folder", FOLDERS)
def test_summary_gives_the_step_its_share(traces, folder):
    """The one step holds all of it, and is idle before its first task and after its last, too."""
    analysis = database(folder).with_name("analysis.db")
    names = "computing, communication, communication_not_overlapped, free, preparing"
    (told,) = query(analysis, f"SELECT {names} FROM StepTraceTime")
    *sums, free, preparing = map(ns, told)
    steps = viewed(traces[folder], "summary").steps
    keys = ("computing_ns", "communication_ns", "not_overlapped_ns")
    assert [getattr(steps, key).tolist() for key in keys] == [[value] for value in sums]
    worked = preparing + sums[0] + sums[2] + free  # to the end of the last task
    after = max(int(steps.dur_ns[0]) - worked, 0)
    assert steps.free_ns.tolist() == [preparing + free + after]
    assert steps.known_ns.tolist() == [worked + after]


# -- accounts -------------------------------------------------------------------------------

SLICES = {
    "TASK": (Layer.DEVICE, None),
    "COMMUNICATION_OP": (Layer.COMM, OpClass.COMM),
    "COMMUNICATION_TASK_INFO": (Layer.COMM, OpClass.COMM_TASK),
    "CANN_API": (Layer.RUNTIME, None),
    "PYTORCH_API": (Layer.HOST, None),
    "STEP_TIME": (Layer.STEP, None),
    "OVERLAP_ANALYSIS": (Layer.OVERLAP, None),
}
SAMPLES = {
    "AICORE_FREQ": ("AI Core Freq", 1), "NPU_MEM": ("NPU MEM", 2), "HBM": ("HBM", 1),
    "LLC": ("LLC", 2), "ACC_PMU": ("Acc PMU", 4), "SOC_BANDWIDTH_LEVEL": ("Stars Soc Info", 2),
    "NPU_MODULE_MEM": ("NPU Module Mem", 1), "MEMORY_RECORD": ("Memory", 3), "QOS": ("QoS", 1),
}  # fmt: skip


def tables(path):
    names = [n for (n,) in query(path, "SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {n: query(path, f'SELECT COUNT(*) FROM "{n}"')[0][0] for n in names}


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_row_of_every_table_is_there(traces, folder):
    """Slices and samples by table; none lost, none made up."""
    trace, rows = traces[folder], tables(database(folder))
    kept = {}
    for table, (layer, op) in SLICES.items():
        there = trace.rows_of(layer)
        kept[table] = int((there if op is None else there & (trace.events.op == op)).sum())
    groups = np.array([t.group for t in trace.tracks])[trace.counters.track]
    for table, (group, each) in SAMPLES.items():
        kept[table] = int((groups == group).sum()) / each
    assert kept == {table: rows.get(table, 0) for table in kept}
    assert [kind for (stage, kind) in trace.ledger if stage == "lost"] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_is_not_drawn_is_booked(traces, folder):
    """Only memory records that stand in another table, too; and tasks that begin before the call
    that launched them, by the database's own join.
    """
    rows = tables(database(folder))
    booked = [(i.code, i.count, i.places) for i in traces[folder].issues]
    twice = rows["NPU_OP_MEM"] + 2 * rows["OP_MEMORY"] - releases(folder)
    [(backwards, most)] = query(
        database(folder),
        "SELECT COUNT(*), MAX(call.startNs - task.startNs) FROM TASK AS task JOIN CANN_API AS call "
        "USING (connectionId) WHERE call.startNs > task.startNs",
    )
    ahead = [("launch-backwards", backwards, (f"by up to {most} ns",))] if backwards else []
    known = [("repeated-content", twice, ("table NPU_OP_MEM", "table OP_MEMORY"))]
    assert sorted(booked) == sorted(known + ahead)


def releases(folder):
    return query(database(folder), "SELECT COUNT(*) FROM OP_MEMORY WHERE releaseTime IS NULL")[0][0]


@pytest.mark.parametrize("folder", FOLDERS)
def test_memory_of_operators_stands_in_the_record(folder):
    """Every allocation and release of an operator is a row of MEMORY_RECORD with its totals."""
    record = set(query(database(folder), "SELECT timestamp, totalAllocated FROM MEMORY_RECORD"))
    for time, total in (
        ("allocationTime", "allocationTotalAllocated"),
        ("releaseTime", "releaseTotalAllocated"),
    ):
        own = query(database(folder), f"SELECT {time}, {total} FROM OP_MEMORY WHERE {time} > 0")
        assert set(own) <= record
    ge = query(database(folder), "SELECT timestampNs, totalAllocate FROM NPU_OP_MEM")
    assert set(ge) <= record


# -- meaning --------------------------------------------------------------------------------


def lanes(trace, *layers):
    return {
        (t.layer, t.title, t.group, t.name, t.sort, t.unit)
        for t in trace.tracks
        if t.layer in layers
    }


def test_lanes_are_those_of_the_timeline(traces):
    """The same model, profiled once as JSON and once as a database."""
    timeline = read(TORCH / "text" / "level1" / "rank0_ascend_pt", trace_view)
    device = (Layer.DEVICE, Layer.COMM, Layer.OVERLAP)
    mine = traces["level1/rank0"]
    assert lanes(mine, *device) == lanes(timeline, *device)
    assert {t.title for t in mine.tracks} - {"Step Trace"} == {t.title for t in timeline.tracks}
    own = {"Memory", "NPU Module Mem"}  # tables beside the timeline
    absent = {"QoS"}  # not collected in this run
    counters = {lane for lane in lanes(mine, Layer.COUNTER) if lane[2] not in own}
    theirs = {lane for lane in lanes(timeline, Layer.COUNTER) if lane[2] not in absent}
    renamed = {lane[3] for lane in theirs - counters}
    assert {name.split(" acc_id")[0] for name in renamed} == {
        "APP/Memory",  # the sum of the two others
        "Device/Memory",
        "write_band_width",  # spelled so in that version
    }


def test_arrows_of_four_kinds(traces):
    """Launches of 187 kernels, 4 operations, 24 copies and 26 events; as the viewer counts the
    rest: 191 kernels and operations of operators, 159 through the queue, 27 to the backward pass.
    """
    trace = traces["level1/rank0"]
    names = [trace.strings[n] for n in trace.flows.name]
    assert {name: names.count(name) for name in sorted(set(names))} == {
        "HostToDevice": 187 + 4 + 24 + 26,
        "async_npu": 191,
        "async_task_queue": 159,
        "fwdbwd": 27,
    }
    counted = dict(
        query(database("level1/rank0"), "SELECT cat, COUNT(*) FROM connectionCats GROUP BY cat")
    )
    del counted["HostToDevice"]  # the viewer has none for copies and events
    assert {name: names.count(name) for name in counted} == counted


def test_arrows_run_forward(traces):
    """No effect comes earlier than its cause by more than the clocks of host and device differ."""
    for trace in traces.values():
        start = trace.events.start_ns
        assert (start[trace.flows.src] - start[trace.flows.dst]).max() < 10_000


def test_ranks_and_devices(traces):
    """By ``profiler_info_<rank>.json``; the card by the table of the database."""
    found = [(t.rank, t.capture.device, t.capture.host) for t in traces.values()]
    assert found == [(0, 0, "ubuntu"), (1, 1, "ubuntu"), (0, 0, "ubuntu")]


def test_two_ranks_merge(tmp_path):
    """The cluster's folder as it lies there, to a trace with both ranks."""
    report = traceconv.merge(
        str(TORCH / "db" / "level1"), out=str(tmp_path / "x.pftrace"), mode="detail"
    )
    assert report.ranks == (0, 1)


def test_addresses_of_hosts_do_not_travel(traces):
    """Groups are named after them in the database: "<address>%<interface>_<port>_..."."""
    for folder, trace in traces.items():
        told = query(
            database(folder), "SELECT value FROM STRING_IDS WHERE value LIKE '%\\%%' ESCAPE '\\'"
        )
        said = {*trace.strings, *(t.group for t in trace.tracks), *(t.name for t in trace.tracks)}
        assert told != []
        assert said & {name for (name,) in told} == set()


# -- databases of the viewer's own tests ----------------------------------------------------


def test_database_of_2023():
    """Enumerations among the strings, another device number, tables of the viewer; 24 tasks, 11
    of them kernels, 9 parts of operations whose own rows are gone.
    """
    trace = read(VIEWER / "full_db")
    assert (trace.capture.device, trace.rows_of(Layer.DEVICE).sum()) == (-1, 24)
    assert (trace.events.op == OpClass.COMPUTE).sum() == 11
    parts = tables(VIEWER / "full_db" / "msprof_0.db")["COMMUNICATION_TASK_INFO"]
    lost = [i.count for i in trace.issues if "table COMMUNICATION_TASK_INFO" in i.places]
    assert (int(trace.rows_of(Layer.COMM).sum()) + sum(lost), parts) == (9, 9)


def test_sums_alone_are_no_events():
    """A folder with nothing but an analysis, called ``.dat``: no capture of this reader."""
    (source,) = sources([str(VIEWER / "multiDevice")])
    issues = Issues()
    assert ascend_db.READER.find(source, source.names(), issues) == []
    assert list(issues) == []
