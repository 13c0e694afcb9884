"""Timelines old MindSpore draws itself: display files without process names, and ``host_info``.

The display files number their processes: 9000 AI CPU, 10000 communication, 11000 host operators,
12000 overlap, 13000 GPU activity, anything else is the number of a device. Later ones name
their processes as msprof does, and are placed as its are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from traceconv.core.model import Layer, OpClass, Track
from traceconv.readers.shared import ascend_lanes as ops
from traceconv.readers.shared.ascend_lanes import Classifier, step_lane
from traceconv.readers.shared.trace_events.timeline import Lane, Named, Placed, Skipped

_STREAM = re.compile(r"(?:Stream ?#?)?(\d+)")
_STEPS, _SCOPES, _GPU_OPS, _HOST_OPS = "100000", "100001", "100002", "100003"
_OVERLAP = {
    "7999": (0, "Merged Computation Op", OpClass.COMPUTING),
    "8000": (2, "Pure Communication Op", OpClass.NOT_OVERLAPPED),
    "8001": (1, "Merged Communication Op", OpClass.COMMUNICATION),
    "8002": (3, "Free Time", OpClass.FREE),
}
_QUEUE = re.compile(r"(?:.*/)?(?:GetNext|InitData)[^/]*")


@dataclass(frozen=True)
class DisplayClassifier:
    """Says where the lanes of a display file go.

    Attributes:
        hardware: title of the device layer: "Ascend Hardware" or "GPU Hardware".
        named:    for files that name their processes.
    """

    hardware: str
    named: Classifier

    def __call__(self, lane: Lane) -> Placed | Skipped | None:
        if lane.process:
            return self.named(lane)
        numbered = {
            "9000": self._ai_cpu,
            "10000": self._communication,
            "11000": self._host,
            "12000": self._overlap,
        }
        return numbered.get(lane.pid, self._device)(lane)

    def _device(self, lane: Lane) -> Placed:
        if lane.tid == _STEPS:
            return step_lane(-1)
        if lane.tid == _SCOPES:
            return Placed(Track(Layer.SCOPE, "Scope Name"))
        stream = _STREAM.fullmatch(lane.tid)
        if lane.tid in (_GPU_OPS, _HOST_OPS) or stream is None:
            return self._host(lane)
        title = "GPU Hardware" if lane.pid == "13000" else self.hardware
        track = Track(Layer.DEVICE, f"Stream {stream[1]}", title=title)
        return Placed(track, OpClass.COMPUTE, by_name=ops.task_named)

    def _ai_cpu(self, lane: Lane) -> Placed:
        track = Track(Layer.DEVICE, _stream(lane), title="AI CPU")
        return Placed(track, OpClass.COMPUTE, by_name=waiting_for_data)

    def _communication(self, lane: Lane) -> Placed:
        return Placed(Track(Layer.COMM, _stream(lane), title="Communication"), OpClass.COMM)

    def _host(self, lane: Lane) -> Placed:
        names = {_GPU_OPS: "GPU Ops", _HOST_OPS: "Host CPU Ops"}
        name = names.get(lane.tid) or lane.tid
        return Placed(Track(Layer.HOST, name, title="Host Ops"), OpClass.HOST)

    def _overlap(self, lane: Lane) -> Placed:
        unknown = (len(_OVERLAP), lane.thread or lane.tid, OpClass.OTHER)
        sort, name, op = _OVERLAP.get(lane.tid, unknown)
        return Placed(Track(Layer.OVERLAP, name, title="Overlap Analysis", sort=sort), op)


def _stream(lane: Lane) -> str:
    match = _STREAM.fullmatch(lane.tid)
    return f"Stream {match[1]}" if match else lane.tid


def waiting_for_data(name: str) -> Named | None:
    """GetNext and InitData wait for the host's queue; they compute nothing."""
    return Named(OpClass.WAIT) if _QUEUE.fullmatch(name) else None


def host_info_lane(lane: Lane) -> Placed:
    """Where a lane of ``host_info/timeline_<rank>.json`` goes: pids and tids are its only names."""
    group = f"Process {lane.pid}" if lane.pid else ""
    track = Track(Layer.HOST, f"Thread {lane.tid}", group, "MindSpore Host")
    return Placed(track, OpClass.HOST)
