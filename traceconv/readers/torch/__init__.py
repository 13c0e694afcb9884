"""Readers of the files that PyTorch and NCCL write."""

READERS = {
    "flight_recorder": "flight_recorder",
    "kineto": "kineto.reader",
    "memory_snapshot": "memory_snapshot",
    "memory_timeline": "memory_timeline",
    "nccl_inspector": "nccl_inspector",
}
"""Modules of this family that hold a ``READER``, by the reader's name."""
