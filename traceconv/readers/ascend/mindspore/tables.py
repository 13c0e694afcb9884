"""Tables of the ``profiler`` folder of MindSpore before 2.4, as side tables of a trace.

``MINDSPORE_TABLES`` names the file and the layout of each. A CSV file keeps its headings, with the
unit where they leave it out; ``(ms)`` and ``(us)`` in a heading mean that the column holds int64
nanoseconds. Times without a unit are as written; their units are in
:mod:`traceconv.readers.shared.table_kinds`. Nested values are JSON. Beyond what headings say:

* ``step_trace_raw`` and ``min_cycle_counter`` count ticks of 10 ns; the last row of the first is
  an average, so its ``step_num`` is text;
* in ``hccl_raw_links`` the operator is empty for all of a step;
* ``device_queue_profiling`` and ``dataset_iterator_profiling``: ``type`` 0 is a duration (``value``
  in ms), 1 the length of a queue (``value`` in items, ``time`` its capacity); ``subtype`` 0 is the
  pipeline, 1 push, 2 batch;
* in ``minddata_pipeline_summary`` -1 is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues
from traceconv.core.model import Capture
from traceconv.core.patterns import lazy_regex
from traceconv.core.side_tables import Columns
from traceconv.core.source import Source
from traceconv.readers.ascend.mindspore import steps as hccl
from traceconv.readers.ascend.mindspore.text_tables import (
    QUEUE_COLUMNS,
    ruled_columns,
    spaced_columns,
)
from traceconv.readers.ascend.tables.json_rows import (
    Row,
    cell,
    columns_of,
    listed,
    loaded,
    mapping,
    objects,
    row,
)  # fmt: skip
from traceconv.readers.ascend.tables.names import STEP_TIMES, mindspore_tables_of
from traceconv.readers.shared.csv_tables import csv_columns
from traceconv.readers.shared.numbers import values

Load = Callable[[Source, str, Issues], Columns]

_SIDES = ("operator", "kernel")

# -- JSON, as rows ---------------------------------------------------------------------------------


def _queues(info: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """The operators of a data pipeline, each with its output queue."""
    for op in objects(info.get("op_info")):
        yield op, mapping(mapping(op.get("metrics")).get("output_queue"))


def _pipeline(info: Mapping[str, Any]) -> Iterator[Row]:
    """One row per operator, as in ``minddata_pipeline_raw``."""
    parents = {
        cell(child): cell(op.get("op_id"))
        for op, _ in _queues(info)
        for child in listed(op.get("children"))
    }

    def numbers(value: object) -> str:
        return f"[{', '.join(map(cell, value))}]" if isinstance(value, list) else ""

    for op, queue in _queues(info):
        sizes = values([cell(size) for size in listed(queue.get("size"))])
        sizes = sizes[~np.isnan(sizes)]
        mean = sum(sizes.tolist()) / len(sizes) if len(sizes) else None
        length = cell(queue.get("length"))
        [capacity] = values([length]).tolist()
        rate = mean / capacity if mean is not None and capacity > 0 else None
        yield {
            "op_id": cell(op.get("op_id")),
            "op_type": cell(op.get("op_type")),
            "num_workers": cell(op.get("num_workers")),
            "output_queue_size": numbers(queue.get("size")),
            "output_queue_average_size": "" if mean is None else repr(mean),
            "output_queue_length": length,
            "output_queue_usage_rate": "" if rate is None else repr(rate),
            "sample_interval": cell(info.get("sampling_interval")),
            "parent_id": parents.get(cell(op.get("op_id")), ""),
            "children_id": numbers(op.get("children")),
        }


def _samples(info: Mapping[str, Any]) -> Iterator[Row]:
    """One row per operator and sample of its output queue."""
    for op, queue in _queues(info):
        rates = listed(queue.get("throughput"))
        for i, size in enumerate(listed(queue.get("size"))):
            yield {
                "op_id": cell(op.get("op_id")),
                "op_type": cell(op.get("op_type")),
                "sample": str(i),
                "size": cell(size),
                "length": cell(queue.get("length")),
                "throughput": cell(rates[i]) if i < len(rates) else "",
            }


def _utilization(info: Mapping[str, Any]) -> Iterator[Row]:
    """One row per sample of the machine, the process, an operator."""
    stamps = listed(info.get("time_stamp"))
    scopes = [("device", "", info.get("device_info")), ("process", "", info.get("process_info"))]
    for op in objects(info.get("op_info")):
        scopes.append(("operator", cell(op.get("op_id")), op.get("metrics")))
    common = {key: cell(info.get(key)) for key in ("cpu_processor_num", "sampling_interval")}
    for scope, op_id, metrics in scopes:
        series = {key: listed(samples) for key, samples in mapping(metrics).items()}
        for i in range(max(map(len, series.values()), default=0)):
            stamp = cell(stamps[i]) if i < len(stamps) else ""
            sample = {"scope": scope, "op_id": op_id, "time_stamp": stamp}
            yield sample | {k: cell(v[i]) for k, v in series.items() if i < len(v)} | common


def _transposed(keyed: Mapping[str, Any]) -> Iterator[Row]:
    """One row per operator, one column per key."""
    for i in range(len(listed(keyed.get("op_ids")))):
        yield {key: cell(column[i]) for key, column in keyed.items() if i < len(listed(column))}


def _shapes(info: Mapping[str, Any]) -> Iterator[Row]:
    """One row per operator or kernel and step."""
    for side in _SIDES:
        for entries in mapping(info.get(side)).values():
            for entry in objects(entries):
                yield {"side": side} | row(entry, {"dur": "dur(us)"})


def _shape_types(info: Mapping[str, Any]) -> Iterator[Row]:
    """One row per step and type of operators or kernels."""
    headings = ("total(us)", "count", "average(us)", "op_full_name")
    for side in _SIDES:
        for step, kinds in mapping(info.get(f"{side}_type")).items():
            for kind, cells in mapping(kinds).items():
                figures = zip(headings, map(cell, listed(cells)), strict=False)
                yield {"side": side, "step": step, "type": kind, **dict(figures)}


def _scopes(info: Mapping[str, Any]) -> Iterator[Row]:
    """One row per scope and the one within it, with its FLOPs."""
    return map(row, objects(mapping(info.get("data")).get("links")))


def _alone(info: Mapping[str, Any], renamed: Mapping[str, str] | None = None) -> Iterator[Row]:
    """A table of one row; nested values as JSON."""
    yield row(info, renamed)


def _of_json(rows: Callable[[Mapping[str, Any]], Iterator[Row]]) -> Load:
    def load(source: Source, name: str, issues: Issues) -> Columns:
        return columns_of(source, name, issues, rows(loaded(source, name)))

    return load


# -- text ------------------------------------------------------------------------------------------


def _summary_table(source: Source, name: str, issues: Issues) -> Columns:
    """``minddata_pipeline_summary`` as CSV: each line is a key and its values."""
    columns = csv_columns(source, name, issues)
    lines = [list(columns), *zip(*(c.tolist() for c in columns.values()), strict=True)]
    keyed = {str(line[0]): [cell(text) for text in line[1:]] for line in lines if line}
    return columns_of(source, name, issues, _transposed(keyed))


_GET_NEXT = ("op", "start({unit})", "end({unit})", "queue_size")
_CLUSTER = lazy_regex(r"ascend_cluster_analyse_(.+)_(\d{1,18})_(\d{1,18})_\d+\.csv(?:\.gz)?")


def _spaced(*headings: str) -> Load:
    return partial(spaced_columns, headings=headings)


def _cluster(source: Source, name: str, issues: Issues) -> Columns:
    columns = csv_columns(source, name, issues)
    rows = len(next(iter(columns.values()), ()))
    if match := _CLUSTER.fullmatch(PurePosixPath(name).name):
        columns["mode"] = np.full(rows, match[1], object)
        columns["stages"] = np.full(rows, int(match[2]), np.int64)
        columns["ranks"] = np.full(rows, int(match[3]), np.int64)
    return columns


_IN_MS = {name: f"{name}(ms)" for name in ("execution_time", "total_time")}

LAYOUTS: dict[str, Load] = {
    "csv": csv_columns,
    "step times": partial(csv_columns, renamed=STEP_TIMES),
    "core times": partial(csv_columns, renamed=_IN_MS),
    "object": _of_json(_alone),
    "collectives": hccl.step_columns,
    "links": hccl.link_columns,
    "ruled": ruled_columns,
    "ruled, second": partial(ruled_columns, number=1),
    "durations": _of_json(partial(_alone, renamed=_IN_MS)),
    "number": _spaced("min_cycle_counter"),
    "pipeline": _of_json(_pipeline),
    "pipeline samples": _of_json(_samples),
    "pipeline summary": _of_json(_transposed),
    "pipeline table": _summary_table,
    "utilization": _of_json(_utilization),
    "queue": _spaced(*QUEUE_COLUMNS),
    "get next, us": _spaced(*(heading.format(unit="us") for heading in _GET_NEXT)),
    "get next, ns": _spaced(*(heading.format(unit="ns") for heading in _GET_NEXT)),
    "shapes": _of_json(_shapes),
    "shape types": _of_json(_shape_types),
    "scopes": _of_json(_scopes),
    "cluster": _cluster,
}
"""Loads a file, by its layout in ``MINDSPORE_TABLES`` of
:mod:`traceconv.readers.ascend.common.table_files`."""


def announce(capture: Capture, build: TraceBuilder) -> None:
    """Announce these side tables of a capture to ``build``; no file is opened yet."""
    for name, file, layout in mindspore_tables_of(capture):
        load = partial(LAYOUTS[layout], capture.source, file, build.issues)
        build.side_table(name, capture.source.title(file), load)
