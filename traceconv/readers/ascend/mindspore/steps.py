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

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec import structs

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues, MalformedInputError
from traceconv.core.model import I64, Capture, Layer, Mask, OpClass
from traceconv.core.patterns import lazy_regex
from traceconv.core.side_tables import ABSENT, Columns
from traceconv.core.source import Source
from traceconv.readers.ascend.mindspore.files import TICK_NS, Part
from traceconv.readers.ascend.tables.json_rows import (
    DECODER,
    Row,
    columns_of,
    doubts_of,
    listed,
    mapping,
)  # fmt: skip
from traceconv.readers.shared.csv_tables import Doubt, csv_columns, whole
from traceconv.readers.shared.layouts import RowLayout, Shown, TableRows, add_rows

# -- hccl_raw_<rank>.csv: the cost of the collectives of each step, and their links -------------
#
# Columns: ``step_num`` (``-`` for the average over steps), ``communication_cost`` and ``wait_cost``
# (ms, of the whole step), ``link_info`` and ``communication_operator_cost``, both JSON:
# ``{"<source>-<destination>": {transport: [time ms, size KB, bandwidth KB/s]}}``, and
# ``{operator: [step, cost, wait, links]}``. The cost excludes the time spent in
# ``Notify_Wait``, which is the wait.

_COST = ("communication_cost(ms)", "wait_cost(ms)")
_LINK = ("time(ms)", "size(KB)", "bandwidth(KB/s)")


def step_columns(source: Source, name: str, issues: Issues) -> Columns:
    """One row per step: ``step_num``, ``communication_cost(ms)``, ``wait_cost(ms)`` (as ns)."""
    rows = (
        {"step_num": step, **{heading: cells[heading.removesuffix("(ms)")] for heading in _COST}}
        for step, cells in _rows(source, name, issues)
    )
    return columns_of(source, name, issues, rows)


def link_columns(source: Source, name: str, issues: Issues) -> Columns:
    """One row per step, operator, link and transport; operators without a link have one, too.

    Columns: ``step_num``, ``operator`` ("" for all of the step), ``communication_cost(ms)`` and
    ``wait_cost(ms)`` of the operator, ``source``, ``destination``, ``transport``, ``time(ms)``,
    ``size(KB)``, ``bandwidth(KB/s)``.
    """
    rows: list[Row] = []
    doubt = doubts_of(source, name, issues)
    for step, cells in _rows(source, name, issues):
        row_start = {"step_num": step, "operator": ""}
        rows += [row_start | link for link in _links(_object(cells["link_info"], doubt))]
        for operator, costs, links in _operators(cells, doubt):
            row_start = {"step_num": step, "operator": operator, **costs}
            rows += [row_start | link for link in _links(links)] or [row_start]
    return columns_of(source, name, issues, rows)


def costs_beside(
    capture: Capture, name: str, issues: Issues
) -> dict[tuple[int, str], dict[str, Any]]:
    """Costs in the ``hccl_raw`` of the folder of ``name``, by step and operator: arguments, ms."""
    costs_by_step: dict[tuple[int, str], dict[str, Any]] = {}
    folder = name.rpartition("/")[0]
    for other in capture.known:
        if other.rpartition("/")[0] == folder and "hccl_raw_" in other:
            doubt = doubts_of(capture.source, other, issues)
            for step, cells in _rows(capture.source, other, issues):
                for operator, costs, _ in _operators(cells, doubt) if step.isdecimal() else ():
                    costs_by_step[int(step[:18]), operator] = {
                        k: _number(v) for k, v in costs.items()
                    }
    return costs_by_step


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _rows(source: Source, name: str, issues: Issues) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Steps, and the cells of each; "" for columns that are missing."""
    columns = csv_columns(source, name, issues)
    for i, step in enumerate(columns.get("step_num", np.empty(0)).tolist()):
        cells = {heading: str(column[i]) for heading, column in columns.items()}
        yield str(step), defaultdict(str, cells)


def _object(text: str, doubt: Doubt) -> Mapping[str, Any]:
    try:
        return mapping(DECODER.decode(text) if text else {})
    except (ValueError, RecursionError) as e:
        doubt("malformed-record", str(e)[:120], 1)
        return {}


def _operators(
    cells: Mapping[str, str], doubt: Doubt
) -> Iterator[tuple[str, Row, Mapping[str, Any]]]:
    """Operator, costs and links of a step."""
    for operator, cost_list in _object(cells["communication_operator_cost"], doubt).items():
        if len(listed(cost_list)) >= 3:
            costs = dict(zip(_COST, map(str, cost_list[1:3]), strict=True))
            yield operator, costs, mapping(cost_list[3]) if len(cost_list) > 3 else {}


def _links(links: Mapping[str, Any]) -> Iterator[Row]:
    for link, transports in links.items():
        source, _, destination = link.partition("-")
        for transport, figures in mapping(transports).items():
            if len(listed(figures)) == 3:
                row_start = {"source": source, "destination": destination, "transport": transport}
                yield row_start | dict(zip(_LINK, map(str, figures), strict=True))


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
"""Name, class, start and end of the parts of a step."""


STEPS = RowLayout(
    end="end", name=Shown("name"), layer=Layer.STEP, title="Step Trace", lane=Shown(absent="Steps")
)
COLLECTIVES = RowLayout(
    end="end", name=Shown("name"), layer=Layer.COMM, title="Communication",
    lane=Shown("stream", "Stream {}"), op=OpClass.COMM,
)  # fmt: skip


@dataclass
class ShownRows:
    """The starts of the display file's rows, by layer; empty without a display file."""

    starts: dict[Layer, list[I64]] = field(default_factory=dict)

    def lacks(self, build: TraceBuilder, layer: Layer, start_ns: I64, rows: Mask) -> Mask:
        """Which of ``rows``, by their starts, are not on a layer of the display file. The others
        are reported as repeated-content.
        """
        shown = self.starts.get(layer)
        if not shown:
            return rows
        new: Mask = rows & np.isin(start_ns, np.concatenate(shown), invert=True)
        build.skip("repeated-content", "", int(np.count_nonzero(rows & ~new)))
        return new


def read_steps(capture: Capture, build: TraceBuilder, part: Part, shown: ShownRows) -> None:
    """Add the steps, and the collectives that ``shown`` lacks.

    Raises:
        MalformedInputError: it has no column ``step_num``, ``start_point`` or ``end_point``.
    """
    columns = csv_columns(capture.source, part.name, build.issues, ended=True)
    if not {"step_num", "start_point", "end_point"} <= columns.keys():
        raise MalformedInputError(build.file, "line 1", "no step table: headings are missing")
    steps = _steps(build, columns)
    for name, op, start, end in _PARTS:
        rows = _between(steps, start, end)
        if op is OpClass.INTERVAL:  # an interval of no length is left out
            rows = rows.take(rows["end"] != rows["start"])
        rows.coded("name", [f"{name} {number}" for number in rows["number"].tolist()])
        layout = structs.replace(STEPS, op=op)
        add_rows(build, layout, rows, step=rows["number"].astype(np.int32))
    costs = costs_beside(capture, part.name, build.issues)
    for heading in columns:
        if match := _COLLECTIVE.fullmatch(heading):
            name = match[1]
            rows = _between(steps, f"{name}_start_point", f"{name}_end_point")
            all_rows = np.ones(len(rows), bool)
            rows = rows.take(shown.lacks(build, Layer.COMM, rows["start"], all_rows))
            rows.coded("name", [name] * len(rows))
            rows.columns["stream"] = np.full(len(rows), int(match[2]))
            numbers = rows["number"]
            args = [build.args(costs.get((number, name))) for number in numbers.tolist()]
            # a collective within its step is found there by its time, as all other rows are; a
            # number would mean that the device's work on the step begins with it
            step = np.where(rows["start"] < rows["start_point"], numbers, -1).astype(np.int32)
            add_rows(build, COLLECTIVES, rows, args=np.array(args, np.int32), step=step)


def _steps(build: TraceBuilder, columns: Columns) -> TableRows:
    """The rows without the average; rows without a number or a start and an end are reported.

    Points are ns, ``ABSENT`` for other cells.
    """
    text = [str(cell) for cell in columns["step_num"].tolist()]
    if text and text[-1] in _AVERAGE:
        build.skip("metadata-unused", "the last row is an average, no step")
        text.pop()
    rows = TableRows({}, "", len(text))
    for heading, column in columns.items():
        if heading.endswith("_point"):
            ticks = whole(column[: len(text)])
            usable = (ticks > 0) & (ticks <= _LARGEST)
            rows.columns[heading] = np.where(usable, np.where(usable, ticks, 0) * TICK_NS, ABSENT)
    number = [int(cell) if re.fullmatch(r"\d{1,9}", cell) else -1 for cell in text]
    rows.columns["number"] = np.array(number, np.int64)
    good = rows["number"] >= 0
    good &= (rows["start_point"] != ABSENT) & (rows["end_point"] != ABSENT)
    if not good.all():
        bad = np.flatnonzero(~good)
        build.lose("malformed-record", f"row {int(bad[0]) + 1}", len(bad))
    return rows.take(good)


def _between(steps: TableRows, start: str, end: str) -> TableRows:
    """The steps that have both points, from the one to the other."""
    if not {start, end} <= steps.columns.keys():
        return steps.take(np.zeros(len(steps), bool))
    rows = steps.take((steps[start] != ABSENT) & (steps[end] != ABSENT))
    rows.columns["start"], rows.columns["end"] = rows[start], rows[end]
    return rows
