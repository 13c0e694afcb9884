"""Tables of a generation A ``profiler`` folder as sheets: see :class:`traceconv.sheets.Sheet`.

A CSV file keeps its headings; all else is laid out as this table says. ``(ms)`` and ``(us)`` in a
heading mean that the column holds int64 nanoseconds; times without a unit are as written, in the
unit given here. ``<r>`` is the rank.

===============================  =========================================================
sheet                            file; columns
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
                                 execution_time (ms), execution_frequency
aicore_type                      aicore_intermediate_<r>_type.csv: kernel_type,
                                 total_time (ms), execution_frequency, percent
aicpu_intermediate               CSV
output_op_compute_time           text: op_name, compute_time(ms), stream_id; sums left out
output_op_compute_time_type      output_op_compute_time_detail_<r>.txt: optype_name, compute
                                 time (ms) and calls per step, percent
output_op_compute_time_detail    the same file: op_name, op_type, avg_execution_time (ms),
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

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath

import numpy as np

from traceconv.build import TraceBuilder
from traceconv.errors import Issues
from traceconv.model import Capture
from traceconv.readers import _mindspore_hccl as hccl
from traceconv.readers import _mindspore_pipeline as pipeline
from traceconv.readers._mindspore_queue import QUEUE_COLUMNS
from traceconv.readers._mindspore_text import ruled_columns, spaced_columns
from traceconv.readers._sheet_cells import Column
from traceconv.readers._sheets import csv_columns
from traceconv.source import Source

Columns = dict[str, Column]
Load = Callable[[Source, str, Issues], Columns]

_GET_NEXT = ("op", "start({unit})", "end({unit})", "queue_size")
_CLUSTER = re.compile(r"ascend_cluster_analyse_(.+)_(\d+)_(\d+)_\d+\.csv(?:\.gz)?")


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


_SHEETS: tuple[tuple[str, str, Load], ...] = (
    ("step_trace_raw", r"step_trace_raw_\d+_detail_time\.csv", csv_columns),
    ("step_trace_time", r"step_trace_time_\d+\.csv", csv_columns),
    ("step_trace_point_info", r"step_trace_point_info(?:_\d+)?\.json", pipeline.object_columns),
    ("hccl_raw", r"hccl_raw_\d+\.csv", hccl.step_columns),
    ("hccl_raw_links", r"hccl_raw_\d+\.csv", hccl.link_columns),
    ("aicore_detail", r"aicore_intermediate_\d+_detail\.csv", csv_columns),
    ("aicore_type", r"aicore_intermediate_\d+_type\.csv", csv_columns),
    ("aicpu_intermediate", r"aicpu_intermediate_\d+\.csv", csv_columns),
    ("output_op_compute_time", r"output_op_compute_time_\d+\.txt", ruled_columns),
    ("output_op_compute_time_type", r"output_op_compute_time_detail_\d+\.txt", ruled_columns),
    (
        "output_op_compute_time_detail",
        r"output_op_compute_time_detail_\d+\.txt",
        partial(ruled_columns, number=1),
    ),
    ("output_data_preprocess_aicpu", r"output_data_preprocess_aicpu_\d+\.txt", ruled_columns),
    ("framework_raw", r"framework_raw_\d+\.csv", csv_columns),
    ("timeline_summary", r"(?:ascend_|gpu_)?timeline_summary_\d+\.json", pipeline.duration_columns),
    ("min_cycle_counter", r"min_cycle_counter_\d+\.txt", _spaced("min_cycle_counter")),
    ("dataset", r"dataset_\d+\.csv", csv_columns),
    ("minddata_pipeline", r"pipeline_profiling_\d+\.json", pipeline.pipeline_columns),
    ("minddata_pipeline", r"minddata_pipeline_raw_\d+\.csv", csv_columns),
    ("minddata_pipeline_samples", r"pipeline_profiling_\d+\.json", pipeline.sample_columns),
    (
        "minddata_pipeline_summary",
        r"minddata_pipeline_summary_\d+\.json",
        pipeline.summary_columns,
    ),
    (
        "minddata_pipeline_summary",
        r"minddata_pipeline_summary_\d+\.csv",
        pipeline.summary_table_columns,
    ),
    (
        "minddata_cpu_utilization",
        r"minddata_cpu_utilization_\d+\.json",
        pipeline.utilization_columns,
    ),
    ("device_queue_profiling", r"device_queue_profiling_\d+\.txt", _spaced(*QUEUE_COLUMNS)),
    ("dataset_iterator_profiling", r"dataset_iterator_profiling_\d+\.txt", _spaced(*QUEUE_COLUMNS)),
    (
        "minddata_aicpu",
        r"minddata_aicpu_\d+\.txt",
        _spaced(*(heading.format(unit="us") for heading in _GET_NEXT)),
    ),
    (
        "minddata_getnext_profiling",
        r"minddata_getnext_profiling_\d+\.txt",
        _spaced(*(heading.format(unit="ns") for heading in _GET_NEXT)),
    ),
    ("dynamic_shape_info", r"dynamic_shape_info_\d+\.json", pipeline.shape_columns),
    ("dynamic_shape_types", r"dynamic_shape_info_\d+\.json", pipeline.shape_type_columns),
    ("flops", r"flops_\d+\.txt", csv_columns),
    ("flops_summary", r"flops_summary_\d+\.json", pipeline.object_columns),
    ("flops_scope", r"flops_scope_\d+\.json", pipeline.scope_columns),
    ("parallel_strategy", r"parallel_strategy_\d+\.json", pipeline.object_columns),
    ("cluster_analyse", r"ascend_cluster_analyse_.+_\d+\.csv", _cluster_columns),
)
"""Name, file and loader of every sheet; of two of one name the later is preferred."""

_PATTERNS = tuple((name, re.compile(f"{file}(?:\\.gz)?"), load) for name, file, load in _SHEETS)


_STARTS = (
    "step_trace_", "hccl_raw_", "aicore_", "aicpu_", "output_", "framework_raw_", "timeline_",
    "ascend_", "gpu_", "min_cycle_", "dataset_", "minddata_", "pipeline_", "device_queue_",
    "dynamic_shape_", "flops_", "parallel_strategy_",
)  # fmt: skip
"""How their names begin: PROF folders hold thousands of others."""


def with_sheets(captures: Sequence[Capture]) -> list[Capture]:
    """The captures with these sheets among their tables, and what their files are good for."""
    return [_described(capture) for capture in captures]


def announce(capture: Capture, build: TraceBuilder) -> None:
    """Announce these sheets of a capture to ``build``; no file is opened yet."""
    for name, file, load in _found(capture):
        loaded = partial(load, capture.source, file, build.issues)
        build.sheet(name, capture.source.title(file), loaded)


def _described(capture: Capture) -> Capture:
    found = _found(capture)
    holds: dict[str, str] = {}
    for name, file, _ in found:
        holds[file] = f"{holds[file]}, {name}" if file in holds else f"table {name}"
    uses = {name: holds[name] for name in capture.known if name in holds}
    tables = {**capture.tables, **{name: (file,) for name, file, _ in found}}
    return replace(capture, tables=dict(sorted(tables.items())), uses={**capture.uses, **uses})


def _found(capture: Capture) -> list[tuple[str, str, Load]]:
    """Name, file and loader of the sheets of a capture; of two files the preferred one."""
    names = [
        name
        for name in sorted((*capture.known, *capture.files))
        if name.rpartition("/")[2].startswith(_STARTS)
    ]
    found: dict[str, tuple[str, str, Load]] = {}
    for sheet, pattern, load in _PATTERNS:
        for name in names:
            if pattern.fullmatch(PurePosixPath(name).name) and capture.source.size(name):
                found[sheet] = (sheet, name, load)
    return list(found.values())
