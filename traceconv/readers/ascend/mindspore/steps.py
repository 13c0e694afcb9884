"""``step_trace_raw_<rank>_detail_time.csv``: the steps of a rank, and its collectives in them.

Units: ticks of 10 ns. Columns: ``step_num``, ``start_point``, ``end_point``, ``fp_point``,
``bp_point`` (none in inference) and others that follow from them; then of every collective
``<op>_start_point``, ``<op>_end_point`` and ``<op>``, its length, in any order. ``<op>`` is
``stream_<stream>_<number>_<operator>``, or ``..._parallel`` before a graph names operators.

The last row, numbered ``-`` or ``0``, is an average (of rows 2 and on; of all in newer code), not
a step. ``hccl_raw_<rank>.csv`` beside it has the cost of each collective, in ms: that
becomes arguments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues, MalformedInputError
from traceconv.core.model import I64, Capture, Layer, OpClass
from traceconv.core.patterns import lazy_regex
from traceconv.core.side_tables import ABSENT, Columns
from traceconv.core.source import Source
from traceconv.readers.ascend.mindspore.files import TICK_NS, Part
from traceconv.readers.ascend.mindspore.shown_rows import Shown
from traceconv.readers.ascend.mindspore.text_tables import doubts_of, whole
from traceconv.readers.shared.ascend_lanes import step_lane
from traceconv.readers.shared.csv_tables import Column, Doubt, csv_columns, table

# -- hccl_raw_<rank>.csv: what the collectives of each step cost, and over which links ----------
#
# Columns: ``step_num`` (``-`` for the average over steps), ``communication_cost`` and ``wait_cost``
# (ms, of the whole step), ``link_info`` and ``communication_operator_cost``, both JSON:
# ``{"<source>-<destination>": {transport: [time ms, size KB, bandwidth KB/s]}}``, and
# ``{operator: [step, cost, wait, links]}``. The cost is without the time spent in
# ``Notify_Wait``, which is the wait.

_DECODER = json.JSONDecoder(parse_float=str, parse_constant=str)

Row = dict[str, str]


def step_columns(source: Source, name: str, issues: Issues) -> dict[str, Column]:
    """One row per step: ``step_num``, ``communication_cost(ms)``, ``wait_cost(ms)`` (as ns)."""
    rows = [
        {
            "step_num": step,
            "communication_cost(ms)": _at(cells, "communication_cost"),
            "wait_cost(ms)": _at(cells, "wait_cost"),
        }
        for step, cells in _rows(source, name, issues)
    ]
    return table(rows, doubts_of(source, name, issues))


def link_columns(source: Source, name: str, issues: Issues) -> dict[str, Column]:
    """One row per step, operator, link and transport; operators without a link have one, too.

    Columns: ``step_num``, ``operator`` ("" for all of the step), ``communication_cost(ms)`` and
    ``wait_cost(ms)`` of the operator, ``source``, ``destination``, ``transport``, ``time(ms)``,
    ``size(KB)``, ``bandwidth(KB/s)``.
    """
    found: list[Row] = []
    doubt = doubts_of(source, name, issues)
    for step, cells in _rows(source, name, issues):
        whole = {"step_num": step, "operator": ""}
        found += [whole | link for link in _links(_object(_at(cells, "link_info"), doubt))]
        for operator, cost, wait, links in _operators(cells, doubt):
            place = {
                "step_num": step,
                "operator": operator,
                "communication_cost(ms)": cost,
                "wait_cost(ms)": wait,
            }
            found += [place | link for link in _links(links)] or [place]
    return table(found, doubt)


def costs_beside(
    capture: Capture, name: str, issues: Issues
) -> dict[tuple[int, str], dict[str, Any]]:
    """Costs in the ``hccl_raw`` beside ``name`` by step and operator: arguments, in ms."""
    folder = name.rpartition("/")[0]
    beside = [
        other
        for other in capture.known
        if other.rpartition("/")[0] == folder and "hccl_raw_" in other
    ]
    found: dict[tuple[int, str], dict[str, Any]] = {}
    for other in beside:
        doubt = doubts_of(capture.source, other, issues)
        for step, cells in _rows(capture.source, other, issues):
            if re.fullmatch(r"\d{1,18}", step):
                for operator, cost, wait, _ in _operators(cells, doubt):
                    stated = {"communication_cost(ms)": cost, "wait_cost(ms)": wait}
                    found[int(step), operator] = {k: _number(v) for k, v in stated.items()}
    return found


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _rows(source: Source, name: str, issues: Issues) -> Iterator[tuple[str, Mapping[str, Any]]]:
    columns = csv_columns(source, name, issues)
    if "step_num" not in columns:
        return
    for i, step in enumerate(columns["step_num"].tolist()):
        yield str(step), {heading: column[i] for heading, column in columns.items()}


def _at(cells: Mapping[str, Any], heading: str) -> str:
    return str(cells.get(heading, ""))


def _object(text: str, doubt: Doubt) -> Mapping[str, Any]:
    try:
        parsed = _DECODER.decode(text) if text else {}
    except (ValueError, RecursionError) as e:
        doubt("malformed-record", str(e)[:120], 1)
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _operators(
    cells: Mapping[str, Any], doubt: Doubt
) -> Iterator[tuple[str, str, str, Mapping[str, Any]]]:
    """Operator, cost, wait and links of a step."""
    for operator, stated in _object(_at(cells, "communication_operator_cost"), doubt).items():
        if isinstance(stated, list) and len(stated) >= 3:
            links = stated[3] if len(stated) > 3 and isinstance(stated[3], dict) else {}
            yield operator, str(stated[1]), str(stated[2]), links


def _links(links: Mapping[str, Any]) -> Iterator[Row]:
    for link, transports in links.items():
        source, _, destination = link.partition("-")
        for transport, stated in transports.items() if isinstance(transports, dict) else ():
            if isinstance(stated, list) and len(stated) == 3:
                yield {
                    "source": source,
                    "destination": destination,
                    "transport": transport,
                    "time(ms)": str(stated[0]),
                    "size(KB)": str(stated[1]),
                    "bandwidth(KB/s)": str(stated[2]),
                }


# -- the steps ---------------------------------------------------------------------------------

_AVERAGE = ("-", "0")
_COLLECTIVE = lazy_regex(r"(stream_(\d{1,18})_.+)_start_point")
_LARGEST = (2**63 - 1) // TICK_NS

_PARTS: tuple[tuple[str, OpClass, str, str], ...] = (
    ("Iteration", OpClass.ITERATION, "start_point", "end_point"),
    ("Iteration Interval", OpClass.INTERVAL, "start_point", "fp_point"),
    ("FP_BP Time", OpClass.FP_BP, "fp_point", "bp_point"),
    ("Iteration Refresh", OpClass.TAIL, "bp_point", "end_point"),
)
"""Name, class, start and end of what a step is made of."""


@dataclass(frozen=True)
class _Table:
    """The rows that are steps.

    Attributes:
        number: of each step.
        ns:     columns of points, in ns; ``ABSENT`` where there is none.
    """

    number: NDArray[np.int32]
    ns: Mapping[str, I64]


def read_steps(capture: Capture, build: TraceBuilder, part: Part, shown: Shown) -> None:
    """Add the steps, and the collectives that ``shown`` lacks.

    Raises:
        MalformedInputError: it has no column ``step_num``, ``start_point`` or ``end_point``.
    """
    columns = csv_columns(capture.source, part.name, build.issues, ended=True)
    if not {"step_num", "start_point", "end_point"} <= columns.keys():
        raise MalformedInputError(build.file, "line 1", "no step table: headings are missing")
    table = _steps(build, columns)
    track = build.add_track(step_lane(-1).track)
    for name, op, start, end in _PARTS:
        _add(build, table, track, op, start, end, name)
    costs = costs_beside(capture, part.name, build.issues)
    for heading in columns:
        if match := _COLLECTIVE.fullmatch(heading):
            track = build.track(Layer.COMM, f"Stream {match[2]}", title="Communication")
            _add_collective(build, table, track, match[1], shown, costs)


def _steps(build: TraceBuilder, columns: Columns) -> _Table:
    """The rows without the average; rows without a number or a start and an end are booked."""
    text = [str(cell) for cell in columns["step_num"].tolist()]
    if text and text[-1] in _AVERAGE:
        build.skip("metadata-unused", "the last row is an average, no step")
        text.pop()
    rows = len(text)
    points = {
        heading: _nanoseconds(column[:rows])
        for heading, column in columns.items()
        if heading.endswith("_point")
    }
    numbered = np.array([bool(re.fullmatch(r"\d{1,9}", cell)) for cell in text], bool)
    whole = (points["start_point"] != ABSENT) & (points["end_point"] != ABSENT)
    good = numbered & whole
    if not good.all():
        bad = np.flatnonzero(~good).tolist()
        build.seen("slice", len(bad))
        build.skip("malformed-record", f"row {bad[0] + 1}", len(bad), kind="slice")
    number = [int(cell) for cell, fine in zip(text, good.tolist(), strict=True) if fine]
    return _Table(np.array(number, np.int32), {h: c[good] for h, c in points.items()})


def _nanoseconds(ticks: NDArray[Any]) -> I64:
    """Ticks as nanoseconds; ``ABSENT`` for what is no number of them."""
    ticks = whole(ticks)
    usable = (ticks > 0) & (ticks <= _LARGEST)
    return np.where(usable, np.where(usable, ticks, 0) * TICK_NS, ABSENT)


def _add(
    build: TraceBuilder, table: _Table, track: int, op: OpClass, start: str, end: str, name: str
) -> None:
    """One part of every step that has it; pauses of no length are none."""
    if start not in table.ns or end not in table.ns:
        return
    begin, stop = table.ns[start], table.ns[end]
    rows = (begin != ABSENT) & (stop != ABSENT)
    if op is OpClass.INTERVAL:
        rows &= stop != begin
    rows = _forward(build, rows, begin, stop)
    names = [build.string(f"{name} {number}") for number in table.number[rows].tolist()]
    build.extend(
        track=track, start_ns=begin[rows], dur_ns=stop[rows] - begin[rows],
        name=np.array(names, np.int32), op=op, step=table.number[rows],
    )  # fmt: skip


def _add_collective(
    build: TraceBuilder,
    table: _Table,
    track: int,
    name: str,
    shown: Shown,
    costs: Mapping[tuple[int, str], dict[str, Any]],
) -> None:
    begin = table.ns[f"{name}_start_point"]
    stop = table.ns.get(f"{name}_end_point", np.full(len(begin), ABSENT, np.int64))
    rows = shown.lacks(build, Layer.COMM, begin, (begin != ABSENT) & (stop != ABSENT))
    rows = _forward(build, rows, begin, stop)
    numbers = table.number[rows]
    args = [build.args(costs.get((number, name))) for number in numbers.tolist()]
    # what begins within its step is found there by its time, as all other rows are; a number
    # would mean that the device's work on the step begins with it
    early = begin < table.ns["start_point"]
    build.extend(
        track=track, start_ns=begin[rows], dur_ns=stop[rows] - begin[rows],
        name=build.string(name), op=OpClass.COMM, step=np.where(early[rows], numbers, -1),
        args=np.array(args, np.int32),
    )  # fmt: skip


def _forward(
    build: TraceBuilder, rows: NDArray[np.bool_], begin: I64, stop: I64
) -> NDArray[np.bool_]:
    """The rows that do not end before they start; the accounts of all."""
    backward = rows & (stop < begin)
    build.seen("slice", int(np.count_nonzero(rows)))
    build.skip("negative-duration", "", int(np.count_nonzero(backward)), kind="slice")
    forward: NDArray[np.bool_] = rows & ~backward
    return forward
