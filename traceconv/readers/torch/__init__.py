"""Readers of what PyTorch and NCCL write."""

READERS = {
    "flight_recorder": "flight_recorder",
    "kineto": "kineto.reader",
    "nccl_inspector": "nccl_inspector",
}
"""Modules of this family that hold a ``READER``, by the reader's name."""
