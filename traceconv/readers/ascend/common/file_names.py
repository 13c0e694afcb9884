"""Names of files that belong to Ascend captures without being read for events."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache
from itertools import takewhile

PROF = re.compile(r"PROF_\d+_\d+_[0-9a-zA-Z]+")
"""The name of a folder of the CANN collector."""

_TABLES = (
    "kernel_details|op_statistic|api_statistic|step_trace_time|operator_details|dataset"
    "|data_preprocess|operator_memory|memory_record|npu_module_mem|static_op_mem|l2_cache|soc_pmu"
    "|task_time|nic|roce|pcie|hccs|hbm|ddr|llc|npu_mem|ai_core_utilization"
    "|communication_statistic|op_summary|aicpu|aicpu_mi|dp"
)

_OUTPUT = (
    r"trace_view\.json(?:\.gz)?",
    rf"(?:{_TABLES})(?:_\d+)*\.csv",
    r"communication(?:_matrix)?\.json",
    r"ascend_[a-z]+_profiler(?:_\d+)?\.db(?:-wal|-shm)?",
    r"(?:analysis|communication_analyzer|msprof_\d+)\.db",
    r"minddata_.*_\d+\.(?:csv|json|txt)",
)
_IN_PROF = (
    r"(?:host|device_\d+)/(?:info\.json|start_info|end_info|host_start\.log|dev_start\.log"
    r"|sample\.json|incompatible_features\.json)(?:\.\d+)?(?:\.done)?",
    r"(?:host|device_\d+)/(?:data|sqlite)/.+",
    r"device_\d+/(?:timeline|summary)/[^/]+\.(?:json|csv)",
    r"mindstudio_profiler_output/[^/]+\.(?:json|csv|txt)",
    r"(?:mindstudio_profiler_log|log|analyze)/.+",
    r"msprof_[^/]*\.(?:db|json)",
)
_DERIVED = (
    r"profiler_info_(\d+)\.json",
    r"(?:ascend_|gpu_)?timeline_(?:display|summary)_(\d+)\.json",
    r"step_trace_raw_(\d+)_detail_time\.csv",
    r"step_trace_point_info(?:_(\d+))?\.json",
    r"step_trace_time_(\d+)\.csv",
    r"output_(?:timeline_data|op_compute_time|op_compute_time_detail|format_data_hwts"
    r"|data_preprocess_aicpu)_(\d+)\.txt",
    r"(?:aicore|aicpu)_intermediate_(\d+)(?:_detail|_type)?\.csv",
    r"(?:framework_raw|hccl_raw|minddata_pipeline_raw|minddata_pipeline_summary)_(\d+)\.csv",
    r"ascend_cluster_analyse_.+_(\d+)\.csv",
    r"flops(?:_summary|_scope)?_(\d+)\.(?:txt|json)",
    r"(?:pipeline_profiling|minddata_cpu_utilization|minddata_pipeline_summary"
    r"|dynamic_shape_info|parallel_strategy)_(\d+)\.json",
    r"(?:device_queue_profiling|dataset_iterator_profiling|minddata_aicpu"
    r"|minddata_getnext_profiling|cpu_op_execute_timestamp|min_cycle_counter)_(\d+)\.txt",
    r"host_info/(?:host_info|host_memory|dataset)_(\d+)\.csv",
    r"host_info/timeline_(\d+)\.json",
    r"FRAMEWORK/op_range_(\d+)",
)


_CAPTURE = (
    r"profiler_info(?:_\d+)?\.json",
    r"profiler_metadata\.json",
    r"(?:FRAMEWORK|logs)/.+",
    *(rf"(?:ASCEND_PROFILER_OUTPUT/)?(?:{p})" for p in _OUTPUT),
    *(rf"{PROF.pattern}/(?:{p})" for p in _IN_PROF),
)


@cache
def _any(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """One of several; compiled when first looked for, as that takes a millisecond each."""
    return re.compile("|".join(f"(?:{p})" for p in patterns))


def below(ordered: Sequence[str], folder: str) -> Sequence[str]:
    """The names within ``folder`` ("" for all), of a sorted list."""
    if not folder:
        return ordered
    first = bisect_left(ordered, folder + "/")
    return ordered[first : bisect_left(ordered, folder + "0", first)]  # "0" comes after "/"


def starting(ordered: Sequence[str], prefix: str) -> list[str]:
    """The names that start with ``prefix``, of a sorted list."""
    first = bisect_left(ordered, prefix)
    return list(takewhile(lambda n: n.startswith(prefix), ordered[first:]))


def folder_around(folder: str) -> str | None:
    """The folder that holds ``folder``, "" for the source itself, None if that lies outside."""
    return folder.rpartition("/")[0] if folder else None


def device_folder(relative: str, otherwise: int) -> int:
    """The device whose folder a file of a PROF folder lies in."""
    match = re.match(r"device_(\d+)/", relative)
    return int(match[1]) if match else otherwise


def inside(name: str, folder: str) -> str:
    """``name`` relative to ``folder``."""
    return name[len(folder) + 1 :] if folder else name


def is_capture_folder(folder: str) -> bool:
    """Whether a folder is called as the profilers of PyTorch and MindSpore call theirs."""
    return folder.endswith(("_ascend_pt", "_ascend_ms"))


def is_capture_file(relative: str) -> bool:
    """Whether a file of a ``*_ascend_*`` folder is one of those its profilers write."""
    return _any(_CAPTURE).fullmatch(relative) is not None


def is_framework_database(name: str) -> bool:
    """Whether a file is a database that holds the device's and the framework's side."""
    return re.search(r"(?:^|/)ascend_[a-z]+_profiler(?:_\d+)?\.db$", name) is not None


def is_prof_file(relative: str) -> bool:
    """Whether a file of a PROF folder is one of those CANN writes."""
    return any(_any(p).fullmatch(relative) for p in (_IN_PROF, _OUTPUT))


def derived_rank(relative: str) -> int | None:
    """The rank of a file of a generation A ``profiler`` folder: -1 if its name has none, None
    if it is no such file.
    """
    match = _any(_DERIVED).fullmatch(relative)
    if match is None:
        return None
    return next((int(rank) for rank in match.groups() if rank), -1)
