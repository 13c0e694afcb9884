"""Which files of a generation A ``profiler`` folder are side tables, by their names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from traceconv.core.model import Capture

SHEETS: tuple[tuple[str, str, str], ...] = (
    ("step_trace_raw", r"step_trace_raw_\d+_detail_time\.csv", "csv"),
    ("step_trace_time", r"step_trace_time_\d+\.csv", "csv"),
    ("step_trace_point_info", r"step_trace_point_info(?:_\d+)?\.json", "object"),
    ("hccl_raw", r"hccl_raw_\d+\.csv", "collectives"),
    ("hccl_raw_links", r"hccl_raw_\d+\.csv", "links"),
    ("aicore_detail", r"aicore_intermediate_\d+_detail\.csv", "csv"),
    ("aicore_type", r"aicore_intermediate_\d+_type\.csv", "csv"),
    ("aicpu_intermediate", r"aicpu_intermediate_\d+\.csv", "csv"),
    ("output_op_compute_time", r"output_op_compute_time_\d+\.txt", "ruled"),
    ("output_op_compute_time_type", r"output_op_compute_time_detail_\d+\.txt", "ruled"),
    (
        "output_op_compute_time_detail",
        r"output_op_compute_time_detail_\d+\.txt",
        "ruled, second",
    ),
    ("output_data_preprocess_aicpu", r"output_data_preprocess_aicpu_\d+\.txt", "ruled"),
    ("framework_raw", r"framework_raw_\d+\.csv", "csv"),
    ("timeline_summary", r"(?:ascend_|gpu_)?timeline_summary_\d+\.json", "durations"),
    ("min_cycle_counter", r"min_cycle_counter_\d+\.txt", "number"),
    ("dataset", r"dataset_\d+\.csv", "csv"),
    ("minddata_pipeline", r"pipeline_profiling_\d+\.json", "pipeline"),
    ("minddata_pipeline", r"minddata_pipeline_raw_\d+\.csv", "csv"),
    ("minddata_pipeline_samples", r"pipeline_profiling_\d+\.json", "pipeline samples"),
    (
        "minddata_pipeline_summary",
        r"minddata_pipeline_summary_\d+\.json",
        "pipeline summary",
    ),
    (
        "minddata_pipeline_summary",
        r"minddata_pipeline_summary_\d+\.csv",
        "pipeline table",
    ),
    (
        "minddata_cpu_utilization",
        r"minddata_cpu_utilization_\d+\.json",
        "utilization",
    ),
    ("device_queue_profiling", r"device_queue_profiling_\d+\.txt", "queue"),
    ("dataset_iterator_profiling", r"dataset_iterator_profiling_\d+\.txt", "queue"),
    (
        "minddata_aicpu",
        r"minddata_aicpu_\d+\.txt",
        "get next, us",
    ),
    (
        "minddata_getnext_profiling",
        r"minddata_getnext_profiling_\d+\.txt",
        "get next, ns",
    ),
    ("dynamic_shape_info", r"dynamic_shape_info_\d+\.json", "shapes"),
    ("dynamic_shape_types", r"dynamic_shape_info_\d+\.json", "shape types"),
    ("flops", r"flops_\d+\.txt", "csv"),
    ("flops_summary", r"flops_summary_\d+\.json", "object"),
    ("flops_scope", r"flops_scope_\d+\.json", "scopes"),
    ("parallel_strategy", r"parallel_strategy_\d+\.json", "object"),
    ("cluster_analyse", r"ascend_cluster_analyse_.+_\d+\.csv", "cluster"),
)
"""Name, file and layout (see ``_mindspore_side_tables``) of every side table; of two of one name the later is
preferred."""

_STARTS = (
    "step_trace_", "hccl_raw_", "aicore_", "aicpu_", "output_", "framework_raw_", "timeline_",
    "ascend_", "gpu_", "min_cycle_", "dataset_", "minddata_", "pipeline_", "device_queue_",
    "dynamic_shape_", "flops_", "parallel_strategy_",
)  # fmt: skip
"""How their names begin: PROF folders hold thousands of others."""


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str], str], ...]:
    """The side tables as patterns; most runs hold none of them."""
    return tuple((name, re.compile(f"{file}(?:\\.gz)?"), layout) for name, file, layout in SHEETS)


def side_tables_of(capture: Capture) -> list[tuple[str, str, str]]:
    """Name, file and layout of the side tables of a capture; of two files the preferred one."""
    names = [
        name
        for name in sorted((*capture.known, *capture.files))
        if name.rpartition("/")[2].startswith(_STARTS)
    ]
    found: dict[str, tuple[str, str, str]] = {}
    for side_table, pattern, layout in _patterns() if names else ():
        for name in names:
            if pattern.fullmatch(name.rpartition("/")[2]) and capture.source.size(name):
                found[side_table] = (side_table, name, layout)
    return list(found.values())


def with_side_tables(captures: Sequence[Capture]) -> list[Capture]:
    """The captures with these side tables among their tables, and what their files are good for."""
    return [_described(capture) for capture in captures]


def _described(capture: Capture) -> Capture:
    found = side_tables_of(capture)
    holds: dict[str, str] = {}
    for name, file, _ in found:
        holds[file] = f"{holds[file]}, {name}" if file in holds else f"table {name}"
    uses = {name: holds[name] for name in capture.known if name in holds}
    tables = {**capture.tables, **{name: (file,) for name, file, _ in found}}
    return replace(capture, tables=dict(sorted(tables.items())), uses={**capture.uses, **uses})
