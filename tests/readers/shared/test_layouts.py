"""One description of a table reads it from SQLite, CSV and JSON alike."""

import json
import sqlite3
from contextlib import closing

import numpy as np
import pytest
from msgspec import structs

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues
from traceconv.core.model import Kind, Layer, OpClass
from traceconv.io.sources import sources
from traceconv.readers.shared.csv_tables import csv_columns
from traceconv.readers.shared.layouts import (
    KERNEL,
    Classes,
    Launched,
    RowLayout,
    Shown,
    TableRows,
    add_rows,
    add_samples,
)
from traceconv.readers.shared.sqlite.database import opened
from traceconv.readers.shared.table_rows import csv_rows, database_rows, json_rows

WORK = RowLayout(
    table="work",
    start="begin",
    end="stop",
    columns={"name": "what", "stream": "stream", "grid": ("gx", "gy"), "load": "load"},
    texts=frozenset({"name"}),
    floats=frozenset({"load"}),
    layer=Layer.DEVICE,
    lane=Shown("stream", "Stream {}", absent="No stream", of="stream"),
    op=KERNEL,
    args=("grid", "load"),
)
HEADINGS = ("begin", "stop", "what", "stream", "gx", "gy", "load", "spare")
ROWS = [
    (10, 20, "gemm", 7, 1, 2, 0.5, 0),
    (15, 30, "ncclDevKernel_AllReduce", 7, 4, 1, 2.0, 3),
    (40, 45, "gemm", None, None, None, None, 0),
    (50, 45, "backwards", 7, 1, 1, 1.0, 0),
    (60, None, "endless", 7, 1, 1, 1.0, 0),
    (70, 80, "", 8, 1, 1, 1.0, 0),
]


def from_sqlite(folder):
    path = folder / "rows.sqlite"
    with closing(sqlite3.connect(path)) as file:
        columns = ("what TEXT" if h == "what" else "load REAL" if h == "load" else f"{h} INTEGER"
                   for h in HEADINGS)  # fmt: skip
        file.execute(f"CREATE TABLE work ({', '.join(columns)})")
        file.executemany(f"INSERT INTO work VALUES ({', '.join('?' * len(HEADINGS))})", ROWS)
        file.commit()
    [source] = sources([str(path)])
    with opened(source, path.name) as database:
        return database_rows(database, WORK)


def from_csv(folder):
    path = folder / "rows.csv"
    cells = [["" if cell is None else str(cell) for cell in row] for row in ROWS]
    path.write_text("\n".join(",".join(row) for row in [HEADINGS, *cells]) + "\n")
    [source] = sources([str(path)])
    return csv_rows(csv_columns(source, path.name, Issues()), WORK, "table work")


def from_json(folder):
    records = [
        {h: cell for h, cell in zip(HEADINGS, row, strict=True) if cell is not None} for row in ROWS
    ]
    rows, bad = json_rows([json.dumps(r).encode() for r in [*records, [1]]], WORK, "table work")
    assert bad == 1
    return rows


def made(rows, layout=WORK):
    """The trace of some rows, and where each went."""
    build = TraceBuilder.of_rank(0)
    added = add_rows(build, layout, rows)
    return build.finish(), added.tolist()


def told(trace):
    """(layer, lane, stream, name, class, start, duration, arguments) of every event."""
    events = trace.events
    columns = (events.track, events.name, events.op, events.start_ns, events.dur_ns, events.args)
    return sorted(
        (str(track.layer), track.name, track.stream, trace.strings[n], OpClass(op).name, start, dur,
         trace.args[a] if a >= 0 else None)
        for t, n, op, start, dur, a in zip(*(c.tolist() for c in columns), strict=True)
        for track in (trace.tracks[t],)
    )  # fmt: skip


@pytest.mark.parametrize("form", [from_sqlite, from_csv, from_json])
def test_the_same_rows_in_every_form(form, tmp_path):
    """The same events and issues: one row ends before it starts, one has no end."""
    trace, added = made(form(tmp_path))
    assert told(trace) == [
        ("comm", "Stream 7", 7, "ncclDevKernel_AllReduce", "COMM", 15, 15,
         {"grid": [4, 1], "load": 2}),
        ("device", "No stream", -1, "gemm", "COMPUTE", 40, 5, None),
        ("device", "Stream 7", 7, "gemm", "COMPUTE", 10, 10, {"grid": [1, 2], "load": 0.5}),
        ("device", "Stream 8", 8, "(no name)", "UNCLASSIFIED", 70, 10, {"grid": [1, 1], "load": 1}),
    ]  # fmt: skip
    assert added == [0, 1, 2, -1, -1, 3]
    counts = {one.code: one.count for one in trace.issues}
    assert counts.pop("columns-unread", 0) == (form is not from_json)  # the first row has a 0
    assert counts == {"bad-time": 1, "negative-duration": 1, "missing-name": 1}


@pytest.mark.parametrize("spare", [b"1e999", b'"\xff"', b"[" * 3000 + b"]" * 3000])
def test_damage_in_members_that_are_not_read(spare):
    """Such a record is read, or counted as one that is none."""
    rows, bad = json_rows([b'{"begin":1,"stop":2,"spare":' + spare + b"}"], WORK, "table work")
    assert len(rows) + bad == 1


def rows_of(**columns):
    arrays = {name: np.array(column) for name, column in columns.items()}
    return TableRows(arrays, "table t", len(next(iter(arrays.values()))))


def test_a_row_that_never_ends_lasts_until_the_last_stamp():
    """Where the layout says so; an issue counts it."""
    layout = RowLayout(end="end", unended=True)
    trace, _ = made(rows_of(start=[1, 5], end=[-1, 9], name=[-1, -1]), layout)
    assert trace.events.dur_ns.tolist() == [8, 4]
    assert trace.issues.count("unfinished-slice") == 1


def test_durations_instead_of_ends():
    """An absent one is no time, a negative one none either."""
    layout = RowLayout(duration="dur")
    trace, added = made(rows_of(start=[1, 5, 7], duration=[3, -1, -2], name=[-1] * 3), layout)
    assert (added, trace.events.dur_ns.tolist()) == ([0, -1, -1], [3])


def test_types_that_no_table_of_classes_has_are_of_no_class():
    """By text, where a number stands for one, else by the number."""
    classes = Classes("type", {"copy": OpClass.COPY, 5: OpClass.WAIT})
    layout = RowLayout(kind=Kind.INSTANT, op=classes)
    rows = rows_of(start=[1, 2, 3, 4], name=[-1] * 4, type=[0, 1, 5, -1])
    rows.names["type"] = {0: "copy", 1: "telepathy"}
    trace, _ = made(rows, layout)
    names = [OpClass(op).name for op in trace.events.op.tolist()]
    assert names == ["COPY", "UNCLASSIFIED", "WAIT", "UNCLASSIFIED"]


def test_samples_are_counters_by_name_and_unit():
    """An issue counts values that are not numbers."""
    layout = RowLayout(title="Clocks", lane=Shown("name"), unit=Shown("unit"))
    rows = rows_of(start=[1, 2, 3], value=[1.5, np.nan, 2.0])
    rows.coded("name", ["a", "a", "b"])
    rows.coded("unit", ["MHz", "MHz", ""])
    build = TraceBuilder.of_rank(0)
    add_samples(build, layout, rows)
    trace = build.finish()
    lanes = [(trace.tracks[t].name, trace.tracks[t].unit) for t in trace.counters.track.tolist()]
    assert lanes == [("a", "MHz"), ("b", "")]
    assert trace.issues.count("counter-not-numeric") == 1


def test_a_column_of_values_that_is_missing_has_none(tmp_path):
    """An absent value is no number; it is not the -1 of absent ids."""
    (tmp_path / "t.csv").write_text("start,other\n1,2\n")
    [source] = sources([str(tmp_path / "t.csv")])
    layout = RowLayout(columns={"value": "value"}, floats=frozenset({"value"}))
    rows = csv_rows(csv_columns(source, "t.csv", Issues()), layout, "t")
    assert np.isnan(rows["value"]).all()


def test_launches_lead_from_the_first_call_of_a_number():
    """An issue counts work without a recorded call; -1 was not launched."""
    build = TraceBuilder.of_rank(0)
    layout = structs.replace(RowLayout(), kind=Kind.INSTANT)
    first = add_rows(build, layout, rows_of(start=[1, 2, 3, 4, 5], name=[-1] * 5))
    launched = Launched([(np.array([8, 8]), first[:2])], [(np.array([8, 9, -1]), first[2:])])
    launched.draw(build)
    trace = build.finish()
    start = trace.events.start_ns
    assert start[trace.flows.src].tolist() == [1]
    assert start[trace.flows.dst].tolist() == [3]
    assert trace.issues.count("flow-without-end") == 1
