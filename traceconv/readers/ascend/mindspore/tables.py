"""Tables of the ``profiler`` folder of MindSpore before 2.4, as side tables of a trace.

A CSV file keeps its headings, but for a unit they leave out; all else is laid out as in this
table. ``(ms)`` and ``(us)`` in a
heading mean that the column holds int64 nanoseconds; times without a unit are as written, in the
unit given here. ``<r>`` is the rank.

===============================  =========================================================
side table                            file; columns
===============================  =========================================================
step_trace_raw                   step_trace_raw_<r>_detail_time.csv: ticks of 10 ns, step_num
                                 as text; the last row is an average
step_trace_time                  step_trace_time_<r>.csv
step_trace_point_info            ..._point_info[_<r>].json: fp_start, bp_end; one row
hccl_raw                         hccl_raw_<r>.csv: step_num, communication_cost(ms),
                                 wait_cost(ms)
hccl_raw_links                   the same file: step_num, operator ("" = all of the step),
                                 communication_cost(ms), wait_cost(ms), source, destination,
                                 transport, time(ms), size(KB), bandwidth(KB/s)
aicore_detail                    aicore_intermediate_<r>_detail.csv: full_kernel_name,
                                 execution_time(ms), execution_frequency
aicore_type                      aicore_intermediate_<r>_type.csv: kernel_type,
                                 total_time(ms), execution_frequency, percent
aicpu_intermediate               CSV
output_op_compute_time           text: op_name, compute_time(ms), stream_id; sums left out
output_op_compute_time_type      output_op_compute_time_detail_<r>.txt: optype_name, compute
                                 time (ms) and calls per step, percent
output_op_compute_time_detail    the same file: op_name, op_type, avg_execution_time(ms),
                                 subgraph
output_data_preprocess_aicpu     text: serial_number, node_type_name, total_time(ms),
                                 dispatch_time(ms), run_start (us), run_end (us)
framework_raw                    CSV: task_id, stream_id, block_dim, full_kernel_name ...
timeline_summary                 JSON: total_time(ms), num_of_streams ...; one row
min_cycle_counter                text: min_cycle_counter (ticks); one row
dataset                          host_info/dataset_<r>.csv: Operation, Stage, Occurrences ...
minddata_pipeline                minddata_pipeline_raw_<r>.csv, else pipeline_profiling: op_id,
                                 op_type, num_workers, output_queue_size (JSON), ..._average_size,
                                 ..._length, ..._usage_rate (0..1), sample_interval (ms),
                                 parent_id, children_id (JSON)
minddata_pipeline_samples        pipeline_profiling_<r>.json: op_id, op_type, sample, size,
                                 length, throughput
minddata_pipeline_summary        CSV, else JSON: op_ids, op_names, num_workers,
                                 queue_utilization_pct ...; a row per operator, -1 = unknown
minddata_cpu_utilization         JSON: scope (device, process, operator), op_id, time_stamp (ms),
                                 user_utilization, sys_utilization, io_utilization,
                                 idle_utilization (percent), runable_processes,
                                 context_switch_count, cpu_processor_num, sampling_interval (ms)
device_queue_profiling           text: type (0 duration, 1 queue length), subtype (0 pipeline,
                                 1 push, 2 batch; of a length the capacity), step, value
                                 (ms; of a length the items), time(ms)
dataset_iterator_profiling       the same of a dataset that is not sunk
minddata_aicpu                   text: op, start(us), end(us), queue_size
minddata_getnext_profiling       text (GPU): op, start(ns), end(ns), queue_size
dynamic_shape_info               JSON: side (operator, kernel), step, op_side, op_type, op_name,
                                 dur(us), shape_info (JSON), op_full_name, block_dim, grid_dim
dynamic_shape_types              the same file: side, step, type, total(us), count, average(us),
                                 op_full_name
flops                            flops_<r>.txt: full_kernel_name, FLOPs, FLOPS ...
flops_summary                    JSON: FLOPs, FLOPS, FLOPS_Utilization; one row
flops_scope                      JSON: source, target, value
parallel_strategy                JSON; one row, what is nested as JSON
cluster_analyse                  ascend_cluster_analyse_*_<r>.csv (ms); its mode and numbers of
                                 stages and ranks as columns mode, stages, ranks
===============================  =========================================================
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues, MalformedInputError
from traceconv.core.model import Capture
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source
from traceconv.readers.ascend.mindspore import steps as hccl
from traceconv.readers.ascend.mindspore.text_tables import (
    MAX_BYTES,
    QUEUE_COLUMNS,
    Rows,
    doubts_of,
    ruled_columns,
    spaced_columns,
)
from traceconv.readers.ascend.tables.names import STEP_TIMES, mindspore_tables_of
from traceconv.readers.shared.csv_tables import Column, csv_columns, table

_DECODER = json.JSONDecoder(parse_float=str, parse_constant=str)

Columns = dict[str, Column]
Row = dict[str, str]


def pipeline_columns(source: Source, name: str, issues: Issues) -> Columns:
    """``pipeline_profiling``: one row per operator, as ``minddata_pipeline_raw`` has them."""
    info = _object(source, name)
    parents = {
        _text(child): _text(op.get("op_id"))
        for op in _list(info.get("op_info"))
        for child in _plain_list(op.get("children"))
    }
    rows = []
    for op in _list(info.get("op_info")):
        number, queue = _text(op.get("op_id")), _queue(op)
        sizes = [float(s) for s in _plain_list(queue.get("size")) if _is_number(s)]
        length = _text(queue.get("length"))
        mean = sum(sizes) / len(sizes) if sizes else None
        rate = mean / float(length) if mean is not None and _positive(length) else None
        rows.append(
            {
                "op_id": number,
                "op_type": _text(op.get("op_type")),
                "num_workers": _text(op.get("num_workers")),
                "output_queue_size": _numbers_text(queue.get("size")),
                "output_queue_average_size": "" if mean is None else repr(mean),
                "output_queue_length": length,
                "output_queue_usage_rate": "" if rate is None else repr(rate),
                "sample_interval": _text(info.get("sampling_interval")),
                "parent_id": parents.get(number, ""),
                "children_id": _numbers_text(op.get("children")),
            }
        )
    return table(rows, doubts_of(source, name, issues))


def sample_columns(source: Source, name: str, issues: Issues) -> Columns:
    """``pipeline_profiling``: one row per operator and sample of its output queue."""
    rows: Rows = []
    for op in _list(_object(source, name).get("op_info")):
        queue = _queue(op)
        sizes, rates = _plain_list(queue.get("size")), _plain_list(queue.get("throughput"))
        for i, size in enumerate(sizes):
            rows.append(
                {
                    "op_id": _text(op.get("op_id")),
                    "op_type": _text(op.get("op_type")),
                    "sample": str(i),
                    "size": _text(size),
                    "length": _text(queue.get("length")),
                    "throughput": _text(rates[i]) if i < len(rates) else "",
                }
            )
    return table(rows, doubts_of(source, name, issues))


def utilization_columns(source: Source, name: str, issues: Issues) -> Columns:
    """``minddata_cpu_utilization``: one row per sample of the machine, the process, an operator."""
    info = _object(source, name)
    stamps = [_text(stamp) for stamp in _plain_list(info.get("time_stamp"))]
    scopes = [("device", "", info.get("device_info")), ("process", "", info.get("process_info"))]
    scopes += [
        ("operator", _text(op.get("op_id")), op.get("metrics")) for op in _list(info.get("op_info"))
    ]
    rows: Rows = []
    for scope, op, metrics in scopes:
        series = {
            key: _plain_list(values)
            for key, values in (metrics if isinstance(metrics, dict) else {}).items()
        }
        for i in range(max(map(len, series.values()), default=0)):
            row = {"scope": scope, "op_id": op, "time_stamp": stamps[i] if i < len(stamps) else ""}
            rows.append(row | {k: _text(v[i]) for k, v in series.items() if i < len(v)})
    for row in rows:
        row["cpu_processor_num"] = _text(info.get("cpu_processor_num"))
        row["sampling_interval"] = _text(info.get("sampling_interval"))
    return table(rows, doubts_of(source, name, issues))


def summary_columns(source: Source, name: str, issues: Issues) -> Columns:
    """``minddata_pipeline_summary`` (JSON): one row per operator, one column per key."""
    return _transposed(_object(source, name), source, name, issues)


def summary_table_columns(source: Source, name: str, issues: Issues) -> Columns:
    """``minddata_pipeline_summary`` (CSV): the same; there a key is a line, its name in front."""
    columns = csv_columns(source, name, issues)
    lines = [list(columns), *zip(*(c.tolist() for c in columns.values()), strict=True)]
    keyed = {str(line[0]): [_text(cell) for cell in line[1:]] for line in lines if line}
    return _transposed(keyed, source, name, issues)


def _transposed(keyed: Mapping[str, Any], source: Source, name: str, issues: Issues) -> Columns:
    rows = len(_plain_list(keyed.get("op_ids")))
    found = [
        {key: _text(values[i]) for key, values in keyed.items() if _holds(values, i)}
        for i in range(rows)
    ]
    return table(found, doubts_of(source, name, issues))


def _holds(values: object, i: int) -> bool:
    return isinstance(values, list) and i < len(values)


def shape_columns(source: Source, name: str, issues: Issues) -> Columns:
    """``dynamic_shape_info``: one row per operator (``side`` "operator") or kernel and step."""
    info = _object(source, name)
    rows = [
        {"side": side} | _row(one, {"dur": "dur(us)"})
        for side in ("operator", "kernel")
        for ones in _mapping(info.get(side)).values()
        for one in _list(ones)
    ]
    return table(rows, doubts_of(source, name, issues))


def shape_type_columns(source: Source, name: str, issues: Issues) -> Columns:
    """``dynamic_shape_info``: what each type of operator or kernel took in each step."""
    info = _object(source, name)
    rows = [
        {"side": side, "step": step, "type": kind}
        | dict(zip(("total(us)", "count", "average(us)", "op_full_name"), stated, strict=False))
        for side in ("operator", "kernel")
        for step, kinds in _mapping(info.get(f"{side}_type")).items()
        for kind, cells in _mapping(kinds).items()
        for stated in [[_text(cell) for cell in _plain_list(cells)]]
    ]
    return table(rows, doubts_of(source, name, issues))


def scope_columns(source: Source, name: str, issues: Issues) -> Columns:
    """``flops_scope``: one row per scope and the one within it, with its FLOPs."""
    links = _mapping(_object(source, name).get("data")).get("links")
    return table([_row(link) for link in _list(links)], doubts_of(source, name, issues))


def object_columns(source: Source, name: str, issues: Issues) -> Columns:
    """A JSON object as a table of one row; what is not a number or text is given as JSON."""
    return table([_row(_object(source, name))], doubts_of(source, name, issues))


def duration_columns(source: Source, name: str, issues: Issues) -> Columns:
    """``timeline_summary``: one row; ``total_time`` is ms, and so ``total_time(ms)`` here."""
    row = _row(_object(source, name), {"total_time": "total_time(ms)"})
    return table([row], doubts_of(source, name, issues))


def _object(source: Source, name: str) -> Mapping[str, Any]:
    """A whole JSON object, its numbers as text.

    Raises:
        SourceError: the file cannot be read.
        MalformedInputError: it is none.
    """
    text = source.read(name, MAX_BYTES).decode("utf-8-sig", "replace")
    try:
        parsed = _DECODER.decode(text.strip())
    except (ValueError, RecursionError) as e:
        raise MalformedInputError(source.title(name), "", f"not JSON: {str(e)[:100]}") from e
    if not isinstance(parsed, dict):
        raise MalformedInputError(source.title(name), "", "not a JSON object")
    return parsed


def _row(one: Mapping[str, Any], renamed: Mapping[str, str] | None = None) -> Row:
    return {(renamed or {}).get(key, key): _text(value) for key, value in one.items()}


def _text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _queue(op: Mapping[str, Any]) -> Mapping[str, Any]:
    return _mapping(_mapping(op.get("metrics")).get("output_queue"))


def _numbers_text(values: object) -> str:
    return f"[{', '.join(map(_text, values))}]" if isinstance(values, list) else ""


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _plain_list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _list(value: object) -> Iterator[Mapping[str, Any]]:
    return (one for one in _plain_list(value) if isinstance(one, dict))


def _is_number(text: object) -> bool:
    try:
        float(str(text))
    except ValueError:
        return False
    return True


def _positive(text: str) -> bool:
    return _is_number(text) and float(text) > 0


Load = Callable[[Source, str, Issues], Columns]

_GET_NEXT = ("op", "start({unit})", "end({unit})", "queue_size")
_CLUSTER = lazy_regex(r"ascend_cluster_analyse_(.+)_(\d{1,18})_(\d{1,18})_\d+\.csv(?:\.gz)?")


def _spaced(*headings: str) -> Load:
    return partial(spaced_columns, headings=headings)


def _cluster_columns(source: Source, name: str, issues: Issues) -> Columns:
    columns = csv_columns(source, name, issues)
    match = _CLUSTER.fullmatch(PurePosixPath(name).name)
    rows = len(next(iter(columns.values()), ()))
    if match is None:
        return columns
    mode = np.full(rows, match[1], object)
    stages, ranks = (np.full(rows, int(digits[:18]), np.int64) for digits in match.group(2, 3))
    return {**columns, "mode": mode, "stages": stages, "ranks": ranks}


_IN_MS = {name: f"{name}(ms)" for name in ("execution_time", "total_time")}

LAYOUTS: dict[str, Load] = {
    "csv": csv_columns,
    "step times": partial(csv_columns, renamed=STEP_TIMES),
    "core times": partial(csv_columns, renamed=_IN_MS),
    "object": object_columns,
    "collectives": hccl.step_columns,
    "links": hccl.link_columns,
    "ruled": ruled_columns,
    "ruled, second": partial(ruled_columns, number=1),
    "durations": duration_columns,
    "number": _spaced("min_cycle_counter"),
    "pipeline": pipeline_columns,
    "pipeline samples": sample_columns,
    "pipeline summary": summary_columns,
    "pipeline table": summary_table_columns,
    "utilization": utilization_columns,
    "queue": _spaced(*QUEUE_COLUMNS),
    "get next, us": _spaced(*(heading.format(unit="us") for heading in _GET_NEXT)),
    "get next, ns": _spaced(*(heading.format(unit="ns") for heading in _GET_NEXT)),
    "shapes": shape_columns,
    "shape types": shape_type_columns,
    "scopes": scope_columns,
    "cluster": _cluster_columns,
}
"""What reads a file, by its layout in ``MINDSPORE_TABLES`` of
:mod:`traceconv.readers.ascend.tables.names`."""


def announce(capture: Capture, build: TraceBuilder) -> None:
    """Announce these side tables of a capture to ``build``; no file is opened yet."""
    for name, file, layout in mindspore_tables_of(capture):
        loaded = partial(LAYOUTS[layout], capture.source, file, build.issues)
        build.side_table(name, capture.source.title(file), loaded)
