"""Reading captures of several trace-event files in turn, and their table of steps.

The step trace as a table (``step_trace_*.csv``) is used if no other file brings a step trace. All
its reduce columns carry the same header text, so they are read by position.
"""

from __future__ import annotations

import numpy as np
from msgspec import structs

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues, MalformedInputError, SourceError
from traceconv.core.model import I64, Capture, Layer, OpClass
from traceconv.core.ordering import mapped
from traceconv.core.side_tables import ABSENT
from traceconv.core.source import Source
from traceconv.readers.ascend.common.capture_files import Detail, Part, Role, is_empty
from traceconv.readers.ascend.common.identity import describe
from traceconv.readers.shared.ascend_lanes import Classifier, graph_id
from traceconv.readers.shared.ascend_marks import HardwareLanes
from traceconv.readers.shared.clock_check import check_clock
from traceconv.readers.shared.csv_tables import Column, csv_columns, whole
from traceconv.readers.shared.layouts import RowLayout, Shown, TableRows, add_rows
from traceconv.readers.shared.trace_events.timeline import Classify, read_events


def read_parts(capture: Capture, build: TraceBuilder) -> None:
    """Read all files of a capture.

    Raises:
        MalformedInputError: none of them can be read.
    """
    detail: Detail = capture.detail
    parts = [part for part in detail.parts if part.name in set(capture.files)]
    describe(build, detail.notes)
    failures: list[MalformedInputError] = []
    windows: dict[str, list[tuple[int, int]]] = {}
    stepped: set[int] = set()
    for part in parts:
        build.file = capture.source.title(part.name)
        if is_empty(capture.source, part.name):
            build.skip("empty-file")
        elif part.role is Role.STEP_TABLE:
            if build.span(layers=(Layer.STEP,)) is None:
                read_step_table(capture.source, part.name, build)
        else:
            elsewhere = frozenset(stepped) if part.role is Role.EVENTS else frozenset()
            classify: Classify = Classifier(detail.ranks, max(part.graph, -1), elsewhere)
            if part.role is Role.HOST_INFO:
                from traceconv.readers.ascend.mindspore.host import host_info_lane

                classify = host_info_lane
            before = build.rows
            try:
                _read_part(capture, build, part, classify)
            except MalformedInputError as e:
                failures.append(e)
                build.skip("malformed-record", str(e)[:200])
            else:
                spans = windows.setdefault(part.window, [])
                # of all rows: steps begin on the host, before their work on the device; but an
                # export of one iteration of a graph is known from its first work to its last
                layers = (Layer.DEVICE, Layer.COMM) if part.graph >= 0 else ()
                if part.window and (span := build.span(before, layers) or build.span(before)):
                    spans.append(span)
                stepped |= {part.graph} if part.role is Role.STEPS else set()
    if failures and not windows:
        raise failures[0]
    for name, spans in windows.items():
        if name and spans:
            build.window(min(s[0] for s in spans), max(s[1] for s in spans))
    check_clock(capture, build)


def _read_part(capture: Capture, build: TraceBuilder, part: Part, classify: Classify) -> None:
    """Read one file."""
    offset = 0
    if part.role in (Role.HOST_INFO, Role.HOST_RECORDS) and capture.clock is not None:
        offset = -capture.clock.offset_ns  # it is in Unix time, whatever the others are
    if part.role is Role.HOST_RECORDS:
        from traceconv.readers.ascend.mindspore.host import read_records

        read_records(capture.source, part.name, build, offset)
        return
    lanes = HardwareLanes(build, classify)
    read_events(
        capture.source, part.name, build, lanes, offset_ns=lambda _: offset, revise=lanes.revise
    )
    lanes.finish()


# -- the step trace as a table --------------------------------------------------------------------

_STEPS = RowLayout(
    end="end", name=Shown("name"), layer=Layer.STEP, title="Step Trace",
    lane=Shown("graph", "Model {}", absent="Steps"),
)  # fmt: skip
_LAST_STEP = 2**31 - 1
_FARTHEST_NS = 2**62


def graphs_in(source: Source, name: str, issues: Issues) -> set[int]:
    """The graph ids of a step table, without -1."""
    try:
        column = csv_columns(source, name, issues).get("Model ID", np.empty(0, np.int64))
    except (SourceError, MalformedInputError) as e:
        issues.add("malformed-record", source.title(name), str(e)[:120])
        return set()
    return set(_graphs(column).tolist()) - {-1, ABSENT}


def _graphs(column: Column) -> I64:
    """The graphs of cells ("2", "2.0"): -1 for no graph, ``ABSENT`` for other text."""
    numbers = whole(column)
    return np.where(numbers < 0, ABSENT, mapped(numbers, lambda n: graph_id(str(n)), np.int64))


def read_step_table(source: Source, name: str, build: TraceBuilder) -> None:
    """Add the slices of a step table: iterations, FP_BP, refresh and reduce.

    Raises:
        MalformedInputError: it is no table.
    """
    columns = csv_columns(source, name, build.issues)
    if not {"Iteration ID", "Model ID"} <= columns.keys():
        build.skip("unused-file", "no column Iteration ID or Model ID")
        return
    step, graph = whole(columns["Iteration ID"]), _graphs(columns["Model ID"])
    end, length, forward, backward = (
        columns.get(f"{heading}(us)", np.full(len(step), ABSENT))
        for heading in ("Iteration End", "Iteration Time", "FP Start", "BP End")
    )
    good = (step >= 0) & (step <= _LAST_STEP) & (graph >= -1) & (end != ABSENT) & (length != ABSENT)
    build.lose("malformed-record", "no step, graph, end or length", int((~good).sum()))
    headings = list(columns)
    reduces = [columns[h] for h in headings[headings.index("Model ID") + 1 :] if h.endswith(")")]
    parts = [
        ("Iteration {}", OpClass.ITERATION, _plus(end, length, -1), end),
        ("FP_BP Time {}", OpClass.FP_BP, forward, backward),
        ("Iteration Refresh {}", OpClass.TAIL, backward, end),
        *(
            (f"Reduce_{{}}_{k}", OpClass.REDUCE, start, _plus(start, length))
            for k, (start, length) in enumerate(zip(reduces[0::2], reduces[1::2], strict=False))
        ),
    ]
    for title, op, begin, finish in parts:
        rows = TableRows(
            {"start": begin, "end": finish, "step": step, "graph": graph}, name, len(step)
        )
        rows = rows.take(good & (begin != ABSENT) & (finish != ABSENT))
        rows.coded("name", [title.format(number) for number in rows["step"].tolist()])
        graph_of, step_of = (rows[key].astype(np.int32) for key in ("graph", "step"))
        add_rows(build, structs.replace(_STEPS, op=op), rows, graph=graph_of, step=step_of)


def _plus(time: I64, length: I64, sign: int = 1) -> I64:
    """``time`` and a length; -1 beyond what stamps can be, ``ABSENT`` where either is."""
    absent = (time == ABSENT) | (length == ABSENT)
    far = (abs(time) > _FARTHEST_NS) | (abs(length) > _FARTHEST_NS)
    return np.where(absent, ABSENT, np.where(far, -1, time + sign * np.where(far, 0, length)))
