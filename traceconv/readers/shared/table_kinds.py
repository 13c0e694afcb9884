"""Every kind of table that readers find beside a timeline, and the units its headings leave out.

What ``inspect`` lists by these names, ``stats`` shows by them: see
:mod:`traceconv.analysis.tables.file_tables`. A reader that offers another table adds it here.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

NOT_NEEDED = "of the capture, holds no events that are read"
"""The use of a file without a more specific one."""


SAME_RUN = "the same run in another form"
"""The use of a file that holds the same as another that is read."""


class TableKind(msgspec.Struct, frozen=True):
    """One kind.

    Attributes:
        files: as it is stored, for people.
        units: of columns whose headings name none, as far as they have one.
    """

    files: str
    units: Mapping[str, str] = msgspec.field(default_factory=dict)


def _named(files: str, *names: str) -> dict[str, TableKind]:
    """Tables that are stored under their own name, which is ``{0}`` in ``files``."""
    return {name: TableKind(files.format(name)) for name in names}


_DATABASE = "analysis.db, communication_analyzer.db"
_FLOPS = {"FLOPs": "MFLOP", "FLOPS": "GFLOP/s"}
_PERCENT = ("FLOPS utilization", "FLOPS utilization(cube)", "FLOPS utilization(vec)")
_CPU = ("user_utilization", "sys_utilization", "io_utilization", "idle_utilization")

KINDS: Mapping[str, TableKind] = {
    # Ascend: CANN, PyTorch, MindSpore 2.4+
    **_named(
        "{0}.csv, {0}_*.csv", "op_statistic", "api_statistic", "operator_details", "memory_record",
        "npu_mem", "static_op_mem", "communication_statistic", "l2_cache", "aicpu_mi", "dataset",
        "soc_pmu", "ai_core_utilization", "task_time", "nic", "roce", "pcie", "hccs", "hbm", "ddr",
        "llc", "fusion_op", "page_fault", "step_trace",
    ),
    "kernel_details": TableKind("kernel_details.csv, op_summary_*.csv, databases of events"),
    "operator_memory": TableKind("operator_memory.csv, table OP_MEMORY of databases"),
    "memory_record": TableKind("memory_record.csv, table MEMORY_RECORD of databases"),
    "npu_module_mem": TableKind("npu_module_mem.csv, table NPU_MODULE_MEM of databases"),
    "data_preprocess": TableKind("data_preprocess.csv, aicpu_*.csv"),
    "dp": TableKind("dp.csv, dp_*.csv, DATA_PREPROCESS.dev.TDT.* of raw data"),
    "step_trace_time": TableKind(f"step_trace_time.csv, step_trace_time_*.csv, {_DATABASE}"),
    "communication": TableKind(f"communication.json, {_DATABASE}"),
    "communication_bandwidth": TableKind(f"communication.json, {_DATABASE}"),
    "communication_matrix": TableKind(f"communication_matrix.json, {_DATABASE}"),
    "communication_group": TableKind("communication_group.json, communication_group_old.json"),
    **_named("{0}.csv", "cluster_step_trace_time"),
    "cluster_time_summary": TableKind("cluster_time_summary_*.csv, cluster_analysis.db"),
    **_named("{0}.json", "cluster_communication", "cluster_communication_matrix"),
    "cluster_communication_bandwidth": TableKind("cluster_communication.json"),
    # MindSpore before 2.4
    **_named("{0}_*.csv", "hccl_raw", "aicpu_intermediate", "framework_raw"),
    **_named(
        "{0}_*.txt", "output_op_compute_time", "min_cycle_counter", "device_queue_profiling",
        "dataset_iterator_profiling", "minddata_aicpu", "minddata_getnext_profiling",
    ),
    **_named("{0}_*.json", "dynamic_shape_info", "parallel_strategy"),
    "step_trace_raw": TableKind("step_trace_raw_*_detail_time.csv"),
    "step_trace_point_info": TableKind("step_trace_point_info*.json"),
    "hccl_raw_links": TableKind("hccl_raw_*.csv"),
    "aicore_detail": TableKind("aicore_intermediate_*_detail.csv"),
    "aicore_type": TableKind("aicore_intermediate_*_type.csv", {"percent": "%"}),
    "output_op_compute_time_type": TableKind(
        "output_op_compute_time_detail_*.txt", {"percent": "%"}
    ),
    "output_op_compute_time_detail": TableKind("output_op_compute_time_detail_*.txt"),
    "output_data_preprocess_aicpu": TableKind(
        "output_data_preprocess_aicpu_*.txt, DATA_PREPROCESS.dev.AICPU.* of raw data",
        {"run_start": "us", "run_end": "us"},
    ),
    "timeline_summary": TableKind("*timeline_summary_*.json"),
    "minddata_pipeline": TableKind("minddata_pipeline_raw_*.csv, pipeline_profiling_*.json",
                                   {"sample_interval": "ms"}),
    "minddata_pipeline_samples": TableKind("pipeline_profiling_*.json"),
    "minddata_pipeline_summary": TableKind(
        "minddata_pipeline_summary_*.csv, minddata_pipeline_summary_*.json",
        {"queue_utilization_pct": "%", "queue_empty_freq_pct": "%", "avg_cpu_pct": "%"},
    ),
    "minddata_cpu_utilization": TableKind(
        "minddata_cpu_utilization_*.json",
        {"time_stamp": "ms", "sampling_interval": "ms", **dict.fromkeys(_CPU, "%")},
    ),
    "dynamic_shape_types": TableKind("dynamic_shape_info_*.json"),
    "flops": TableKind("flops_*.txt", {**_FLOPS, **dict.fromkeys(_PERCENT, "%")}),
    "flops_summary": TableKind("flops_summary_*.json", {**_FLOPS, "FLOPS_Utilization": "%"}),
    "flops_scope": TableKind("flops_scope_*.json", {"value": "MFLOP"}),
    "cluster_analyse": TableKind(
        "ascend_cluster_analyse_*.csv",
        dict.fromkeys(
            ("computation_time", "communication_alone_time", "stage_time", "receive_alone_time",
             "collective_communication_alone_time"),
            "ms",
        ),
    ),
    # Paddle
    "paddle_summary": TableKind("what profiler.summary() printed"),
    "paddle_timer": TableKind("a log with timer_only=True"),
    "paddle_timer_log": TableKind("a log with timer_only=True"),
}  # fmt: skip
"""By the name that ``inspect`` and :attr:`Trace.side_tables` have for it."""
