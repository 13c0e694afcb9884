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
from collections.abc import Callable
from functools import partial
from pathlib import PurePosixPath

import numpy as np

from traceconv.build import TraceBuilder
from traceconv.errors import Issues
from traceconv.model import Capture
from traceconv.readers import _mindspore_hccl as hccl
from traceconv.readers import _mindspore_pipeline as pipeline
from traceconv.readers._mindspore_queue import QUEUE_COLUMNS
from traceconv.readers._mindspore_sheet_names import sheets_of
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


LAYOUTS: dict[str, Load] = {
    "csv": csv_columns,
    "object": pipeline.object_columns,
    "collectives": hccl.step_columns,
    "links": hccl.link_columns,
    "ruled": ruled_columns,
    "ruled, second": partial(ruled_columns, number=1),
    "durations": pipeline.duration_columns,
    "number": _spaced("min_cycle_counter"),
    "pipeline": pipeline.pipeline_columns,
    "pipeline samples": pipeline.sample_columns,
    "pipeline summary": pipeline.summary_columns,
    "pipeline table": pipeline.summary_table_columns,
    "utilization": pipeline.utilization_columns,
    "queue": _spaced(*QUEUE_COLUMNS),
    "get next, us": _spaced(*(heading.format(unit="us") for heading in _GET_NEXT)),
    "get next, ns": _spaced(*(heading.format(unit="ns") for heading in _GET_NEXT)),
    "shapes": pipeline.shape_columns,
    "shape types": pipeline.shape_type_columns,
    "scopes": pipeline.scope_columns,
    "cluster": _cluster_columns,
}
"""How files are laid out (see ``_mindspore_sheet_names``), and what reads them."""


def announce(capture: Capture, build: TraceBuilder) -> None:
    """Announce these sheets of a capture to ``build``; no file is opened yet."""
    for name, file, layout in sheets_of(capture):
        loaded = partial(LAYOUTS[layout], capture.source, file, build.issues)
        build.sheet(name, capture.source.title(file), loaded)
