"""What GPU work is, by its name: the one table all GPU readers share.

A kernel communicates if its lower-cased name holds one of :data:`COMMUNICATION`; more words can
be given by the user. Everything else a device does under a kernel's name is compute.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from traceconv.core.clock import INT64_MAX
from traceconv.core.hints import HintsBuilder
from traceconv.core.model import OpClass

COMMUNICATION = (
    "nccldevkernel",
    "ncclkernel",
    "nccl:",
    "rccl",
    "mscclkernel",
    "xccl",
    "hccl",
    "hcom_",
    "oneccl",
    "deep_ep",
    "::ep::internode",
    "::ep::intranode",
    "nvshmem",
    "cross_device_reduce",
    "one_shot_all_reduce",
    "two_shot_all_reduce",
    "symm_mem",
    "userbuffers",
)
"""Words in the names of kernels that communicate (lower case)."""

MAX_DEVICES = 256
"""Of further devices of a machine no memory is told."""

STEP_NAME = re.compile(
    r"(?:iter|iteration|step|train_step|ProfilerStep#|ProfileStep#)[ _#:=]*(\d{1,9})",
    re.IGNORECASE,
)
"""Host ranges that stand for a training step, and its number."""


def kernel_class(name: str, more: Sequence[str] = ()) -> OpClass:
    """COMM or COMPUTE.

    Args:
        more: further words (lower case) that mark communication.
    """
    low = name.lower()
    return OpClass.COMM if any(word in low for word in (*COMMUNICATION, *more)) else OpClass.COMPUTE


def step_number(name: str) -> int:
    """The step a host range stands for, or -1."""
    match = STEP_NAME.fullmatch(name)
    return int(match[1]) if match else -1


def note_memory(hints: HintsBuilder, devices: Any) -> None:
    """Add the memory of GPUs, by their number, to ``hints.device_memory_bytes``.

    Args:
        devices: what a profiler says of each, as JSON values; what is no size is passed over.
    """
    for one in devices[:MAX_DEVICES] if isinstance(devices, list) else ():
        if not isinstance(one, Mapping):
            continue
        number = one.get("id")
        size = one.get("totalGlobalMem", one.get("total_global_memory"))
        if type(number) is int and type(size) is int and number >= 0 and 0 < size <= INT64_MAX:
            hints.device_memory_bytes.setdefault(number, size)
