"""Files of Ascend captures: to which they belong, by their names, and what each is read for."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from itertools import takewhile
from pathlib import PurePosixPath
from typing import Any

import msgspec

from traceconv.core.clock import Anchor, Domain, is_unix_ns
from traceconv.core.errors import MissingExtraError, SourceError
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source

TABLES = (
    "kernel_details", "op_summary", "op_statistic", "api_statistic", "step_trace_time",
    "step_trace", "operator_details", "operator_memory", "memory_record", "npu_module_mem",
    "npu_mem", "static_op_mem", "communication_statistic", "l2_cache", "aicpu", "aicpu_mi",
    "data_preprocess", "dp", "dataset", "soc_pmu", "ai_core_utilization", "task_time", "nic",
    "roce", "pcie", "hccs", "hbm", "ddr", "llc", "fusion_op", "page_fault",
)  # fmt: skip
"""CSV tables of CANN, PyTorch and MindSpore 2.4+, without numbers and ending."""

MINDSPORE_TABLES: tuple[tuple[str, str, str], ...] = (
    ("step_trace_raw", r"step_trace_raw_\d+_detail_time\.csv", "csv"),
    ("step_trace_time", r"step_trace_time_\d+\.csv", "step times"),
    ("step_trace_point_info", r"step_trace_point_info(?:_\d+)?\.json", "object"),
    ("hccl_raw", r"hccl_raw_\d+\.csv", "collectives"),
    ("hccl_raw_links", r"hccl_raw_\d+\.csv", "links"),
    ("aicore_detail", r"aicore_intermediate_\d+_detail\.csv", "core times"),
    ("aicore_type", r"aicore_intermediate_\d+_type\.csv", "core times"),
    ("aicpu_intermediate", r"aicpu_intermediate_\d+\.csv", "csv"),
    ("output_op_compute_time", r"output_op_compute_time_\d+\.txt", "ruled"),
    ("output_op_compute_time_type", r"output_op_compute_time_detail_\d+\.txt", "ruled"),
    ("output_op_compute_time_detail", r"output_op_compute_time_detail_\d+\.txt", "ruled, second"),
    ("output_data_preprocess_aicpu", r"output_data_preprocess_aicpu_\d+\.txt", "ruled"),
    ("framework_raw", r"framework_raw_\d+\.csv", "csv"),
    ("timeline_summary", r"(?:ascend_|gpu_)?timeline_summary_\d+\.json", "durations"),
    ("min_cycle_counter", r"min_cycle_counter_\d+\.txt", "number"),
    ("dataset", r"dataset_\d+\.csv", "csv"),
    ("minddata_pipeline", r"pipeline_profiling_\d+\.json", "pipeline"),
    ("minddata_pipeline", r"minddata_pipeline_raw_\d+\.csv", "csv"),
    ("minddata_pipeline_samples", r"pipeline_profiling_\d+\.json", "pipeline samples"),
    ("minddata_pipeline_summary", r"minddata_pipeline_summary_\d+\.json", "pipeline summary"),
    ("minddata_pipeline_summary", r"minddata_pipeline_summary_\d+\.csv", "pipeline table"),
    ("minddata_cpu_utilization", r"minddata_cpu_utilization_\d+\.json", "utilization"),
    ("device_queue_profiling", r"device_queue_profiling_\d+\.txt", "queue"),
    ("dataset_iterator_profiling", r"dataset_iterator_profiling_\d+\.txt", "queue"),
    ("minddata_aicpu", r"minddata_aicpu_\d+\.txt", "get next, us"),
    ("minddata_getnext_profiling", r"minddata_getnext_profiling_\d+\.txt", "get next, ns"),
    ("dynamic_shape_info", r"dynamic_shape_info_\d+\.json", "shapes"),
    ("dynamic_shape_types", r"dynamic_shape_info_\d+\.json", "shape types"),
    ("flops", r"flops_\d+\.txt", "csv"),
    ("flops_summary", r"flops_summary_\d+\.json", "object"),
    ("flops_scope", r"flops_scope_\d+\.json", "scopes"),
    ("parallel_strategy", r"parallel_strategy_\d+\.json", "object"),
    ("cluster_analyse", r"ascend_cluster_analyse_.+_\d+\.csv", "cluster"),
)  # fmt: skip
"""Name, file and layout (see ``LAYOUTS`` in :mod:`traceconv.readers.ascend.mindspore.tables`) of
every side table; of two of one name the later is preferred."""

PROF = lazy_regex(r"PROF_\d+_\d+_[0-9a-zA-Z]+")
"""The name of a folder of the CANN collector."""

_OUTPUT = (
    r"trace_view\.json(?:\.gz)?",
    rf"(?:{'|'.join(TABLES)})(?:_\d+)*\.csv",
    r"communication(?:_matrix)?\.json",
    r"ascend_[a-z]+_profiler(?:_\d+)?\.db(?:-wal|-shm)?",
    r"(?:analysis|communication_analyzer|msprof_\d+)\.db",
    r"minddata_.*_\d+\.(?:csv|json|txt)",
)
_IN_PROF = (
    r"(?:host|device_\d+)/(?:info\.json|start_info|end_info|host_start\.log|dev_start\.log"
    r"|sample\.json|incompatible_features\.json)(?:\.\d+)?(?:\.done)?",
    r"(?:host|device_\d+)/(?:data|sqlite)/.+",
    r"(?:(?:host|device_\d+)/)?(?:timeline|summary)/[^/]+\.(?:json|csv)",
    r"mindstudio_profiler_output/[^/]+\.(?:json|csv|txt)",
    r"(?:mindstudio_profiler_log|log|analyze)/.+",
    r"msprof_[^/]*\.(?:db|json)",
)
_DERIVED = (
    r"profiler_info_(\d{1,18})\.json",
    r"(?:ascend_|gpu_)?timeline_display_(\d{1,18})\.json",
    r"(?:output_timeline_data|output_format_data_hwts|cpu_op_execute_timestamp)_(\d{1,18})\.txt",
    r"host_info/(?:host_info|host_memory|dataset)_(\d{1,18})\.csv",
    r"host_info/timeline_(\d{1,18})\.json",
    r"FRAMEWORK/op_range_(\d{1,18})",
    *(
        file.replace(r"\d+", r"(\d{1,18})")
        for table, file, _ in MINDSPORE_TABLES
        if table != "dataset"
    ),
)
"""Files of the ``profiler`` folder of MindSpore before 2.4."""

_CAPTURE = (
    r"profiler_info(?:_\d+)?\.json",
    r"profiler_metadata\.json",
    r"(?:FRAMEWORK|logs)/.+",
    *(rf"(?:ASCEND_PROFILER_OUTPUT/)?(?:{p})" for p in _OUTPUT),
    *(rf"{PROF.pattern}/(?:{p})" for p in _IN_PROF),
)


_CAPTURE_FILES = tuple(map(lazy_regex, _CAPTURE))  # few are tried, and so compiled, mostly
_DERIVED_FILE = lazy_regex("|".join(f"(?:{p})" for p in _DERIVED))
_PROF_FILES = tuple(map(lazy_regex, (*_IN_PROF, *_OUTPUT)))


def below(ordered: Sequence[str], folder: str) -> Sequence[str]:
    """The names within ``folder`` ("" for all), of a sorted list."""
    if not folder:
        return ordered
    begin = bisect_left(ordered, folder + "/")
    return ordered[begin : bisect_left(ordered, folder + "0", begin)]  # "0" comes after "/"


def starting(ordered: Sequence[str], prefix: str) -> list[str]:
    """The names that start with ``prefix``, of a sorted list."""
    begin = bisect_left(ordered, prefix)
    return list(takewhile(lambda n: n.startswith(prefix), ordered[begin:]))


def folder_around(folder: str) -> str | None:
    """The folder that holds ``folder``, "" for the source itself, None if that is outside."""
    return folder.rpartition("/")[0] if folder else None


def prof_folder(name: str) -> str:
    """The innermost ``PROF_*`` folder around a file, "" outside of such folders."""
    folder = name.rpartition("/")[0]
    while folder and not PROF.fullmatch(folder.rpartition("/")[2]):
        folder = folder.rpartition("/")[0]
    return folder


def capture_folder(name: str, outputs: Collection[str]) -> str:
    """The folder of the capture a file belongs to: the framework's, else the collector's.

    Args:
        outputs: names of the folders within a capture in which such files are.
    """
    if prof := prof_folder(name):
        around = prof.rpartition("/")[0]
        return around if is_capture_folder(around) else prof
    folder, _, base = name.rpartition("/")[0].rpartition("/")
    return folder if base in outputs else name.rpartition("/")[0]


def folder_path(source: Source, folder: str) -> str:
    """A folder as a path whose last part is its own name, if that can be known."""
    return folder or PurePosixPath(source.label).name


def files_in(ordered: Sequence[str], folder: str | None, *starts: str) -> tuple[str, ...]:
    """The files of ``folder`` whose names start with one of ``starts``, of a sorted list.

    None of a folder outside the source.
    """
    if folder is None:
        return ()
    prefix = f"{folder}/" if folder else ""
    return tuple(name for start in starts for name in starting(ordered, prefix + start))


def device_folder(relative: str, otherwise: int) -> int:
    """The device whose folder a file of a PROF folder is in."""
    match = re.match(r"device_(\d{1,18})/", relative)
    return int(match[1]) if match else otherwise


def inside(name: str, folder: str) -> str:
    """``name`` relative to ``folder``."""
    return name[len(folder) + 1 :] if folder else name


def is_capture_folder(folder: str) -> bool:
    """Whether a folder is called as the profilers of PyTorch and MindSpore call theirs."""
    return folder.endswith(("_ascend_pt", "_ascend_ms"))


def is_capture_file(relative: str) -> bool:
    """Whether the profilers write such a file into a ``*_ascend_*`` folder."""
    return any(p.fullmatch(relative) for p in _CAPTURE_FILES)


def is_framework_database(name: str) -> bool:
    """Whether a file is a database that holds the device's and the framework's side."""
    return re.search(r"(?:^|/)ascend_[a-z]+_profiler(?:_\d+)?\.db$", name) is not None


def is_prof_file(relative: str) -> bool:
    """Whether CANN writes such a file into a PROF folder."""
    return any(p.fullmatch(relative) for p in _PROF_FILES)


def derived_rank(relative: str) -> int | None:
    """The rank of a file of a ``profiler`` folder of MindSpore before 2.4: -1 without one in its
    name, None for other files.
    """
    match = _DERIVED_FILE.fullmatch(relative)
    if not match:
        return None
    return next((int(rank) for rank in match.groups() if rank), -1)


def last_run(slices: dict[str, tuple[str, int]]) -> list[str]:
    """The slices of the newest export, by number.

    Slices are written one after the other, so within an export the time does not fall as the
    number rises; going back in time, a number that does not fall belongs to an older export.
    """
    run: list[str] = []
    for name in sorted(slices, key=lambda n: slices[n], reverse=True):
        if run and slices[name][1] >= slices[run[-1]][1]:
            break
        run.append(name)
    return run[::-1]


# -- captures of several files --------------------------------------------------------------------


class Role(StrEnum):
    """The purpose for which a file is read."""

    EVENTS = "events"
    STEPS = "steps"  # the step trace of the whole run
    STEP_TABLE = "step table"  # its CSV, used only if no other file brings a step trace
    HOST_INFO = "host_info"
    HOST_RECORDS = "host_info records"
    DISPLAY = "display"


class Part(msgspec.Struct, frozen=True):
    """One file of a capture.

    Attributes:
        graph:  the graph in its name, -1 if none; of step traces, those it may hold.
        window: the iteration it holds, by any name; "" if it is the whole capture.
    """

    name: str
    role: Role = Role.EVENTS
    graph: int = -1
    window: str = ""


class Detail(msgspec.Struct, frozen=True):
    """The parts of a capture, from finding to reading.

    Attributes:
        parts: in reading order; the names are the files of the capture.
        notes: for the trace.
        root:  the folder of the capture within its source.
        ranks: see :class:`traceconv.readers.shared.ascend_lanes.Classifier`.
    """

    parts: tuple[Part, ...]
    notes: Mapping[str, Any] = msgspec.field(default_factory=dict)
    root: str = ""
    ranks: tuple[int, ...] | None = None

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the parts."""
        return tuple(part.name for part in self.parts)


def is_empty(source: Source, name: str) -> bool:
    """Whether a file holds nothing at all."""
    if source.size(name) and source.head(name, 1):
        return False
    try:
        return not source.size(name) or not source.first(name, 1)
    except (SourceError, MissingExtraError):  # reading it reports why it cannot be read
        return False


def tied_to_unix_time(clock: Anchor | None) -> bool:
    """Whether stamps of this clock can be converted to Unix time."""
    return clock is not None and (clock.domain is Domain.UNIX or is_unix_ns(clock.shared_ns))
