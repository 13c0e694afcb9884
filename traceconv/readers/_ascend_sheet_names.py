"""The sheets that databases of Ascend captures hold, and the tables each is made of."""

from __future__ import annotations

from collections.abc import Mapping

_OPERATION = {
    "step": "Step", "type": "Kind", "hccl_op_name": "Operator", "group_name": "Group",
}  # fmt: skip
_TRANSIT = {
    "transport_type": "Transport Type", "transit_size": "Transit Size(MB)",
    "transit_time": "Transit Time(ms)", "bandwidth": "Bandwidth(GB/s)",
}  # fmt: skip

SUMS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "step_trace_time": (
        "StepTraceTime",
        {
            "deviceId": "Device_id", "step": "Step", "computing": "Computing",
            "communication_not_overlapped": "Communication(Not Overlapped)",
            "overlapped": "Overlapped", "communication": "Communication", "free": "Free",
            "stage": "Stage", "bubble": "Bubble",
            "communication_not_overlapped_and_exclude_receive":
                "Communication(Not Overlapped and Exclude Receive)",
            "preparing": "Preparing",
        },
    ),
    "communication": (
        "CommAnalyzerTime",
        {
            **_OPERATION, "start_timestamp": "Start Timestamp(us)",
            "elapse_time": "Elapse Time(ms)", "transit_time": "Transit Time(ms)",
            "wait_time": "Wait Time(ms)", "synchronization_time": "Synchronization Time(ms)",
            "idle_time": "Idle Time(ms)",
        },
    ),
    "communication_bandwidth": (
        "CommAnalyzerBandwidth",
        {
            **_OPERATION, **_TRANSIT, "large_packet_ratio": "Large Packet Ratio",
            "package_size": "Package Size(MB)", "count": "Count",
            "total_duration": "Total Duration(ms)",
        },
    ),
    "communication_matrix": (
        "CommAnalyzerMatrix",
        {
            **_OPERATION, "src_rank": "Source", "dst_rank": "Target", **_TRANSIT,
            "op_name": "Op Name",
        },
    ),
}  # fmt: skip
"""Sheets of sums: the table, and the heading of each of its columns."""

TABLES: Mapping[str, frozenset[str]] = {
    "kernel_details": frozenset(("TASK", "COMPUTE_TASK_INFO", "STRING_IDS")),
    "memory_record": frozenset(("MEMORY_RECORD", "STRING_IDS")),
    "operator_memory": frozenset(("OP_MEMORY", "STRING_IDS")),
    "npu_module_mem": frozenset(("NPU_MODULE_MEM", "ENUM_MODULE")),
}
"""Sheets made of the tables of events, and the tables they need."""
