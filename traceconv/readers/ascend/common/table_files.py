"""Names of files with tables."""

from __future__ import annotations

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
