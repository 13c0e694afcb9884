"""Intel PTI: categories of unitrace, and the commands that it shows on a device."""

from tests.census import READ, UNCLASSIFIED, Inventory
from traceconv.core.model import OpClass
from traceconv.readers.shared.intel_commands import COMMANDS, command_class

_UNITRACE = "intel/pti-gpu, tools/unitrace/src"
_DATE = "2026-06"

LEVEL_ZERO = """
zeCommandListAppendMemoryCopy zeCommandListAppendMemoryCopyRegion
zeCommandListAppendMemoryCopyFromContext zeCommandListAppendImageCopy
zeCommandListAppendImageCopyRegion zeCommandListAppendImageCopyFromMemory
zeCommandListAppendImageCopyToMemory zeCommandListAppendMemoryFill zeCommandListAppendBarrier
zeCommandListAppendMemoryRangesBarrier zeCommandListAppendEventReset
"""

OPENCL = """
clEnqueueReadBuffer clEnqueueWriteBuffer clEnqueueCopyBuffer clEnqueueFillBuffer
clEnqueueReadBufferRect clEnqueueWriteBufferRect clEnqueueCopyBufferRect clEnqueueReadImage
clEnqueueWriteImage clEnqueueCopyImage clEnqueueFillImage clEnqueueCopyImageToBuffer
clEnqueueCopyBufferToImage clEnqueueMemcpyINTEL clEnqueueMemsetINTEL clEnqueueMemFillINTEL
clEnqueueMigrateMemINTEL clEnqueueMemAdviseINTEL
"""


def _command(name: str) -> str:
    return UNCLASSIFIED if command_class(name) is OpClass.UNCLASSIFIED else READ


def _known(prefix: str) -> set[str]:
    return {name for name in COMMANDS if name.startswith(prefix)}


INVENTORIES = (
    Inventory(
        "chrome_json",
        "Level Zero commands of unitrace",
        f"{_UNITRACE}/levelzero/ze_collector.h, `device_command_names`",
        _DATE,
        tuple(LEVEL_ZERO.split()),
        _command,
        _known("ze"),
    ),
    Inventory(
        "chrome_json",
        "OpenCL commands of unitrace",
        f"{_UNITRACE}/opencl/cl_collector.h",
        _DATE,
        tuple(OPENCL.split()),
        _command,
        _known("cl"),
    ),
)
