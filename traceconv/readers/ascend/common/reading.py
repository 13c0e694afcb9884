"""Reading captures of several trace-event files in turn, and their table of steps.

The step trace as a table (``step_trace_*.csv``) is used if no other file brings a step trace. All
its reduce columns carry the same header text, so they are read by position. Absent values are
``N/A``; numbers may end in a tabulator. Units: us.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import INT64_MAX, to_ns
from traceconv.core.errors import ClockError, Issues, MalformedInputError, SourceError
from traceconv.core.model import Capture, Layer, OpClass
from traceconv.core.source import Source
from traceconv.readers.ascend.common.capture_files import Detail, Part, Role, is_empty
from traceconv.readers.ascend.common.identity import describe
from traceconv.readers.shared.ascend_lanes import Classifier, graph_id, step_lane
from traceconv.readers.shared.ascend_marks import HardwareLanes
from traceconv.readers.shared.clock_check import check_clock
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

_LAST_STEP = 2**31 - 1
_ABSENT = ("", "N/A", "NA", "None", "nan")


def _text(source: Source, name: str) -> str:
    return source.read(name).decode("utf-8-sig", "replace")


def _rows(text: str) -> Iterator[list[str]]:
    for row in csv.reader(text.splitlines()):
        yield [cell.strip() for cell in row]


def _graph(text: str) -> int | None:
    """The graph of a cell ("2", "2.0"), -1 for no graph, None for other text."""
    digits = text.partition(".")[0]
    return graph_id(digits) if digits.isdecimal() else None


def graphs_in(source: Source, name: str, issues: Issues) -> set[int]:
    """The graph ids of a step table, without -1."""
    try:
        rows = list(_rows(_text(source, name)))
    except (SourceError, csv.Error) as e:
        issues.add("malformed-record", source.title(name), str(e)[:120])
        return set()
    if not rows or "Model ID" not in rows[0]:
        return set()
    column = rows[0].index("Model ID")
    ids = {_graph(row[column]) for row in rows[1:] if len(row) > column}
    return {g for g in ids if g is not None and g >= 0}


def read_step_table(source: Source, name: str, build: TraceBuilder) -> None:
    """Add the slices of a step table: iterations, FP_BP, refresh and reduce."""
    text = _text(source, name)
    rows, lines = _rows(text), text.count("\n")
    try:
        header = next(rows, [])
        if "Iteration ID" not in header or "Model ID" not in header:
            build.skip("unused-file", "no column Iteration ID or Model ID")
            return
        columns = {title: i for i, title in reversed(list(enumerate(header)))}
        for line, row in enumerate(rows, 2):
            if any(row):
                _add_row(build, columns, row, f"line {line}")
        if not text.endswith("\n"):
            build.skip("unended-line", f"line {lines + 1}")
    except csv.Error as e:
        build.skip("malformed-record", str(e)[:120])


def _add_row(
    build: TraceBuilder, columns: Mapping[str, int], row: Sequence[str], where: str
) -> None:
    def ns(title: str) -> int | None:
        i = columns.get(title, len(row))
        return to_ns(row[i]) if i < len(row) and row[i] not in _ABSENT else None

    try:
        step = int(row[columns["Iteration ID"]][:20])
        graph = _graph(row[columns["Model ID"]])
        end, length = ns("Iteration End(us)"), ns("Iteration Time(us)")
        forward, backward = ns("FP Start(us)"), ns("BP End(us)")
        cells = row[columns["Model ID"] + 1 :]
        reduces = [  # pairs of start and duration, behind the named columns
            (to_ns(start), to_ns(start) + to_ns(length))
            for start, length in zip(cells[0::2], cells[1::2], strict=False)
            if start not in _ABSENT and length not in _ABSENT
        ]
    except (ValueError, IndexError, ClockError):
        graph = None
    if graph is None or end is None or length is None or not -1 <= step <= _LAST_STEP:
        build.lose("malformed-record", where)
        return
    track = build.add_track(step_lane(graph).track)
    spans = [(f"Iteration {step}", OpClass.ITERATION, end - length, end)]
    if forward is not None and backward is not None:
        spans.append((f"FP_BP Time {step}", OpClass.FP_BP, forward, backward))
    if backward is not None:
        spans.append((f"Iteration Refresh {step}", OpClass.TAIL, backward, end))
    spans += [(f"Reduce_{step}_{k}", OpClass.REDUCE, *r) for k, r in enumerate(reduces)]
    for name, op, start, stop in spans:
        far = start < -INT64_MAX or max(stop, stop - start) > INT64_MAX
        if stop < start or far:
            build.lose("negative-duration" if stop < start else "bad-time", where)
        else:
            build.slice(track, start, stop - start, name, op=op, graph=graph, step=step)
