"""Device rows of Intel's unitrace: the class of a command, and the device of a process.

unitrace writes kernels and other commands of a device under the category ``gpu_op``. A command has
the name of the call that appended it, with direction and size ("zeCommandListAppendMemoryCopy(M2D)
[4096]"); a kernel has its own name.

Source: intel/pti-gpu tools/unitrace/src (2026-06): ``device_command_names`` in
levelzero/ze_collector.h, ``OnExitEnqueueTransfer`` in opencl/cl_collector.h, ``GetDevicePidTid`` in
chromelogger.h.
"""

from __future__ import annotations

from traceconv.core.model import OpClass
from traceconv.core.patterns import lazy_regex

_LEVEL_ZERO_COPIES = (
    "MemoryCopy", "MemoryCopyRegion", "MemoryCopyFromContext", "MemoryFill", "ImageCopy",
    "ImageCopyRegion", "ImageCopyFromMemory", "ImageCopyToMemory",
)  # fmt: skip
_OPENCL_COPIES = (
    "ReadBuffer", "WriteBuffer", "CopyBuffer", "FillBuffer", "ReadBufferRect", "WriteBufferRect",
    "CopyBufferRect", "ReadImage", "WriteImage", "CopyImage", "FillImage", "CopyImageToBuffer",
    "CopyBufferToImage", "MemcpyINTEL", "MemsetINTEL", "MemFillINTEL", "MigrateMemINTEL",
)  # fmt: skip

COMMANDS = {
    **{f"zeCommandListAppend{name}": OpClass.COPY for name in _LEVEL_ZERO_COPIES},
    "zeCommandListAppendBarrier": OpClass.WAIT,
    "zeCommandListAppendMemoryRangesBarrier": OpClass.WAIT,
    "zeCommandListAppendEventReset": OpClass.OTHER,
    **{f"clEnqueue{name}": OpClass.COPY for name in _OPENCL_COPIES},
    "clEnqueueMemAdviseINTEL": OpClass.OTHER,
}
"""The commands that are not kernels, and their classes."""

_COMMAND = lazy_regex(r"(?:Tile #\d+: )?((?:zeCommandList|clEnqueue)\w+)")
_DEVICE = lazy_regex(r"(?:RANK \d+ )?DEVICE<.*>.* #(\d{1,9})(?:\.\d+)?")


def command_class(name: str) -> OpClass | None:
    """The class of a command; None for kernels. An unknown command is unclassified."""
    match = _COMMAND.match(name)
    return COMMANDS.get(match[1], OpClass.UNCLASSIFIED) if match else None


def device_of(process: str) -> int:
    """The number of the device in the name of a process, or -1."""
    match = _DEVICE.fullmatch(process)
    return int(match[1]) if match else -1
