"""What tasks of Ascend's hardware streams, step traces and overlap lanes do, by their names.

The rule for compute tasks reproduces the profiler's own ``Computing`` lane on every sample: a
task computes if it carries the name of an operator and runs on a compute engine. A task that
belongs to no operator is named after its own kind (``MEMCPY_ASYNC``), so the name goes before the
``Task Type``, which is ``Other`` for everything in some versions.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from traceconv.core.model import NO_GRAPH, OpClass
from traceconv.readers.shared.trace_events.timeline import Named

BY_TASK_TYPE: dict[str, OpClass] = {
    **dict.fromkeys(
        (
            "AI_CORE", "AI_VECTOR_CORE", "AI_CPU", "AIV", "AIC", "MIX_AIC", "MIX_AIV",
            "C_CORE", "DSA", "DSA_SQE", "Other",
        ),
        OpClass.COMPUTE,
    ),
    **dict.fromkeys(
        (
            "NOTIFY_RECORD", "NOTIFY_WAIT", "NOTIFY_RECORD_SQE", "NOTIFY_WAIT_SQE",
            "EVENT_RECORD", "EVENT_WAIT", "EVENT_RESET", "EVENT_RECORD_SQE", "EVENT_WAIT_SQE",
            "WRITE_VALUE", "WRITE_VALUE_SQE", "Notify Wait", "Notify Record", "Write Value",
        ),
        OpClass.WAIT,
    ),
    **dict.fromkeys(
        (
            "SDMA", "SDMA_SQE", "PCIE_DMA", "PCIE_DMA_SQE", "MEMCPY_ASYNC", "REDUCE_ASYNC_V2",
            "ROCCE", "RDMA_SEND", "RDMA_DB_SEND",
        ),
        OpClass.COPY,
    ),
    **dict.fromkeys(("HCCL", "COMMUNICATION"), OpClass.COMM_TASK),
    **dict.fromkeys(("PLACE_HOLDER", "PLACE_HOLDER_SQE"), OpClass.OTHER),
}  # fmt: skip
"""Class of a hardware task by its ``Task Type``; others with an operator's name compute."""

_KINDS = re.compile(
    r"(?P<copy>(?:MEMCPY|MEMSET|REDUCE|RDMA|SDMA|PCIE_DMA)(?:_[A-Z0-9]+)*)"
    r"|(?P<wait>(?:EVENT|NOTIFY|WRITE_VALUE|MEM_WAIT|MEM_WRITE|BARRIER)(?:_[A-Z0-9]+)*"
    r"|Notify (?:Wait|Record)|Write Value)"
    r"|(?P<comm>hcom_.*|.*(?:AicpuKernel|AivKernel))"
    r"|(?P<other>(?:KERNEL|PROFILING|FFTS|STREAM|LABEL|MODEL|PLACE_HOLDER|PCTRACE|CMO|CALLBACK"
    r"|MAINTENANCE|DATADUMP|FUSION)(?:_[A-Z0-9]+)*)",
    re.DOTALL,
)
_KIND_OPS = {
    "copy": OpClass.COPY,
    "wait": OpClass.WAIT,
    "comm": OpClass.COMM_TASK,
    "other": OpClass.OTHER,
}

_TRANSFERS = re.compile(
    r"Memcpy|Reduce_Inline|Reduce_TBE|Notify[_ ](?:Wait|Record)|RDMA_?Send|Write[_ ]Value|SDMA"
)

_STEP_NAMES: tuple[tuple[re.Pattern[str], OpClass], ...] = (
    (re.compile(r"(?:Model (?P<graph>\d+) )?Iteration (?P<step>\d+)"), OpClass.ITERATION),
    (
        re.compile(r"Model ID: ?(?P<graph>\d+) Iteration ID: ?(?P<step>\d+)"),
        OpClass.ITERATION,
    ),
    (re.compile(r"(?P<step>\d+)"), OpClass.ITERATION),
    (re.compile(r"FP_BP Time (?P<step>\d+)"), OpClass.FP_BP),
    (re.compile(r"Iteration Refresh (?P<step>\d+)"), OpClass.TAIL),
    (re.compile(r"Reduce_(?P<step>\d+)_\d+"), OpClass.REDUCE),
)

OVERLAP_LANES: dict[str, tuple[int, OpClass]] = {
    "Computing": (0, OpClass.COMPUTING),
    "Communication": (1, OpClass.COMMUNICATION),
    "Communication(Not Overlapped)": (2, OpClass.NOT_OVERLAPPED),
    "Free": (3, OpClass.FREE),
}
"""The four overlap lanes: order on screen and class of their slices."""


def graph_id(text: str) -> int:
    """A graph id as the model wants it: -1 for "belongs to no graph"."""
    return _number(text) if text != str(NO_GRAPH) else -1


def _number(digits: str) -> int:
    """What fits the model's int32 columns; -1 for what does not."""
    return int(digits) if len(digits) <= 9 else -1


def task_named(name: str) -> Named | None:
    """What a hardware task is, if its name tells; None for the name of an operator."""
    match = _KINDS.fullmatch(name)
    return Named(_KIND_OPS[str(match.lastgroup)]) if match else None


def transfer_named(name: str) -> Named | None:
    """A task of a plane that stands among operators; None for operators."""
    return Named(OpClass.COMM_TASK) if _TRANSFERS.fullmatch(name) else None


def step_named(name: str) -> Named | None:
    """What a slice of a step trace is; None for marks of another kind (``GetNext``)."""
    for pattern, op in _STEP_NAMES:
        if match := pattern.fullmatch(name):
            graph = match.groupdict().get("graph")
            return Named(op, graph_id(graph) if graph else -1, _number(match["step"]))
    return None


_PROFILER_STEP = re.compile(r"ProfilerStep#(\d+)")


def host_named(name: str) -> Named | None:
    """The step a framework's own mark (``ProfilerStep#n``) stands for."""
    match = _PROFILER_STEP.fullmatch(name)
    return Named(OpClass.HOST, step=_number(match[1])) if match else None


def overlap_named(lane: str) -> tuple[int, OpClass, Callable[[str], Named | None]]:
    """Order and class of an overlap lane, and the classes of slices by their own names."""
    sort, op = OVERLAP_LANES.get(lane, (len(OVERLAP_LANES), OpClass.OTHER))

    def named(name: str) -> Named | None:
        return Named(OVERLAP_LANES[name][1]) if name in OVERLAP_LANES else None

    return sort, op, named
