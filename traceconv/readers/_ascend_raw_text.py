"""Text beside the binary records of old captures: operators of tasks, and the AI CPU's log."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from traceconv.build import TraceBuilder
from traceconv.model import I64, Layer, OpClass
from traceconv.readers._ascend_db_codes import label, shared
from traceconv.readers._ascend_raw_clock import Clock
from traceconv.sheets import Columns

_TASK = re.compile(r"^(\S.*?) (\d{1,9}) (\d{1,9}) (\d{1,9})\s*$", re.MULTILINE)
_POINT = re.compile(r"^(\d{1,9}) (\S.*?)\s*$", re.MULTILINE)
_OPERATOR = re.compile(r"^op_name:(\S+) op_type:(\S+)", re.MULTILINE)

_NODE = (
    r"\[\s*\d+\s*\]\s*Node:(?P<node>[^,\0]*), Run s?tart:\s*(?P<began>\d{1,18})"
    r"[^\0]*?,\s*Run end:\s*(?P<ended>\d{1,18})"
)
_DONE = (
    r"Thread\[\s*(?P<thread>\d{1,9})\s*\][^\0]*?task end,"
    r"[^\0]*?tickBeforeRun=(?P<first>\d{1,18}),\s*tickAfterRun=(?P<last>\d{1,18}),"
    r"\s*dispatchTime=(?P<dispatch>\d{1,12}) us,\s*totalTime=(?P<total>\d{1,12}) us"
)
_SENTENCE = re.compile(f"{_NODE}|{_DONE}")
_SUFFIX = re.compile(r"-op\d+\Z")


@dataclass(frozen=True)
class Operators:
    """What the framework's text says of tasks, by task number.

    Attributes:
        name: operators.
        kind: their types.
        blocks: of their tasks.
    """

    name: Mapping[int, str]
    kind: Mapping[str, str]
    blocks: Mapping[int, int]


def operators(tasks: str, graph: str) -> Operators:
    """The operators of ``task_desc_info``, with their types from ``graph_desc_info``.

    A task's logical stream stands there too; the device logs another number, so only tasks count.
    """
    found = _TASK.findall(tasks)
    kinds = dict(_OPERATOR.findall(graph))
    names = {int(task): name for name, _, task, _ in found}
    return Operators(names, kinds, {int(task): int(blocks) for _, blocks, task, _ in found})


def points(text: str) -> dict[int, str]:
    """The operators beside the step marks, by the tag of the mark."""
    return {int(tag): name for tag, name in _POINT.findall(text)}


# -- the AI CPU ---------------------------------------------------------------------------


@dataclass(frozen=True)
class AiCpu:
    """Tasks of the AI CPU in the order they are told of.

    Attributes:
        node: operators; "" where no sentence names them.
        began, ended: microseconds of a clock of the AI CPU's own; -1 for unknown.
        first, last: ticks of the device before and after the run.
        dispatch, total: microseconds.
    """

    node: tuple[str, ...]
    began: I64
    ended: I64
    first: I64
    last: I64
    dispatch: I64
    total: I64
    thread: I64

    def sheet(self) -> Columns:
        """The columns of the profiler's own table of it; times are nanoseconds."""
        return {
            "node_type_name": np.array(
                [_SUFFIX.sub("", n.rpartition("/")[2]) for n in self.node], object
            ),
            "total_time(ms)": self.total * 1000,
            "dispatch_time(ms)": self.dispatch * 1000,
            "run_start": self.began,
            "run_end": self.ended,
        }


def ai_cpu(text: str) -> AiCpu:
    """The sentences of an AI CPU log: the operator's and the scheduler's alternate and belong
    together; either may be missing.
    """
    rows: list[tuple[str, ...]] = []
    nobody = ("", "-1", "-1")
    node: tuple[str, ...] = nobody
    for match in _SENTENCE.finditer(text):  # text, and little of it
        said = match.groups()
        if match["node"] is not None:
            node = said[:3]
        else:
            rows.append((*node, *said[3:]))
            node = nobody
    nodes = tuple(row[0].strip() for row in rows)
    numbers = np.array([[int(v) for v in row[1:]] for row in rows], np.int64).reshape(-1, 7)
    began, ended, thread, first, last, dispatch, total = numbers.T
    return AiCpu(nodes, began, ended, first, last, dispatch, total, thread)


def put_ai_cpu(build: TraceBuilder, found: AiCpu, clock: Clock, group: str) -> None:
    """The runs of the AI CPU on a lane of their own; the streams' own tasks are what computes."""
    start, end = clock.device_ns(found.first), clock.device_ns(found.last)
    bad = (start < 0) | (end < 0)
    negative = ~bad & (end < start)
    build.seen("slice", len(start))
    build.skip("bad-time", "", int(bad.sum()), "slice")
    build.skip("negative-duration", "", int(negative.sum()), "slice")
    kept = np.flatnonzero(~bad & ~negative)
    said = {
        "Thread Id": (found.thread[kept], label({})),
        "Dispatch Time(us)": (found.dispatch[kept], label({})),
        "Total Time(us)": (found.total[kept], label({})),
    }
    if len(kept):
        build.extend(
            track=build.track(Layer.DEVICE, "AI CPU", group, "Ascend Hardware", sort=1),
            start_ns=start[kept],
            dur_ns=(end - start)[kept],
            name=np.array([build.string(found.node[i] or "AI CPU task") for i in kept], np.int32),
            op=OpClass.OTHER,
            args=shared(build, said),
        )
