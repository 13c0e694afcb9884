"""Ascend's lanes as tracks and its names as classes: what readers of its captures share.

Processes are known by name, never by pid or sort index (both changed between versions).
What tasks do is in :mod:`traceconv.readers.shared.ascend_tasks`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

import msgspec
import numpy as np

from traceconv.core.model import EVERY_GRAPH, I32, NO_GRAPH, Layer, OpClass, Track, TrackKind
from traceconv.core.ordering import mapped
from traceconv.core.patterns import lazy_regex
from traceconv.readers.shared.ascend_tasks import OPERATORS, named_class
from traceconv.readers.shared.layouts import TableRows
from traceconv.readers.shared.trace_events.timeline import Lane, Named, Placed, Skipped

# -- what tasks, steps and overlap slices are, by their names -------------------------------------

COPY_DIRECTIONS = {
    0: "host to host", 1: "host to device", 2: "device to host", 3: "device to device",
    4: "managed memory", 5: "addr device to device", 6: "host to device ex",
    7: "device to host ex",
}  # fmt: skip
"""What CANN calls its copies, by the number in its records."""

_TRANSFERS = lazy_regex(
    r"Memcpy|Reduce_Inline|Reduce_TBE|Notify[_ ](?:Wait|Record)|RDMA_?Send|Write[_ ]Value|SDMA"
)

_STEP_NAMES: tuple[tuple[re.Pattern[str], OpClass], ...] = (
    (lazy_regex(r"(?:Model (?P<graph>\d{1,18}) )?Iteration (?P<step>\d{1,18})"), OpClass.ITERATION),
    (
        lazy_regex(r"Model ID: ?(?P<graph>\d{1,18}) Iteration ID: ?(?P<step>\d{1,18})"),
        OpClass.ITERATION,
    ),
    (lazy_regex(r"(?P<step>\d{1,18})"), OpClass.ITERATION),
    (lazy_regex(r"FP_BP Time (?P<step>\d{1,18})"), OpClass.FP_BP),
    (lazy_regex(r"Iteration Refresh (?P<step>\d{1,18})"), OpClass.TAIL),
    (lazy_regex(r"Reduce_(?P<step>\d{1,18})_\d+"), OpClass.REDUCE),
)

OVERLAP_LANES: dict[str, tuple[int, OpClass]] = {
    "Computing": (0, OpClass.COMPUTING),
    "Communication": (1, OpClass.COMMUNICATION),
    "Communication(Not Overlapped)": (2, OpClass.NOT_OVERLAPPED),
    "Free": (3, OpClass.FREE),
    "Memory Copy": (4, OpClass.COPYING),
    "Memory Copy(Not Overlapped)": (5, OpClass.COPY_NOT_OVERLAPPED),
    "Unclassified": (6, OpClass.UNCLASSIFIED_ALONE),
}
"""The vendor's four overlap lanes, and the further ones of our own files: order on screen and class
of their slices."""


def graph_id(text: str) -> int:
    """A graph id as the model wants it: -1 for "belongs to no graph"."""
    return _number(text) if text != str(NO_GRAPH) else -1


def _number(digits: str) -> int:
    """What fits the model's int32 columns; -1 for what does not."""
    return int(digits) if len(digits) <= 9 else -1


def task_named(name: str) -> Named | None:
    """The class of a hardware task by its name; None for the name of an operator."""
    op = named_class(name)
    return None if op is None else Named(op)


def transfer_named(name: str) -> Named | None:
    """A task of a plane that is shown among operators; None for operators."""
    return Named(OpClass.COMM_TASK) if _TRANSFERS.fullmatch(name) else None


def step_named(name: str) -> Named | None:
    """The class of a slice of a step trace; None for other slices (``GetNext``)."""
    for pattern, op in _STEP_NAMES:
        if match := pattern.fullmatch(name):
            graph = match.groupdict().get("graph")
            return Named(op, graph_id(graph) if graph else -1, _number(match["step"]))
    return None


_PROFILER_STEP = lazy_regex(r"ProfilerStep#(\d{1,18})")


def host_named(name: str) -> Named | None:
    """The step of a framework's own marker (``ProfilerStep#n``)."""
    match = _PROFILER_STEP.fullmatch(name)
    return Named(OpClass.HOST, step=_number(match[1])) if match else None


def marked_steps(rows: TableRows) -> I32:
    """The step that the name of each row states; -1 for other rows."""

    def step(code: int) -> int:
        mark = host_named(rows.names["name"].get(code, ""))
        return mark.step if mark else -1

    return mapped(rows["name"], step, np.int32)


def overlap_named(lane: str) -> tuple[int, OpClass, Callable[[str], Named | None]]:
    """Order and class of an overlap lane, and the classes of slices by their own names."""
    sort, op = OVERLAP_LANES.get(lane, (len(OVERLAP_LANES), OpClass.OTHER))

    def class_of(name: str) -> Named | None:
        return Named(OVERLAP_LANES[name][1]) if name in OVERLAP_LANES else None

    return sort, op, class_of


# -- where lanes are shown ------------------------------------------------------------------------

_RANK_SUFFIX = lazy_regex(r"(.+) Rank ?(\d{1,18})", re.DOTALL)
_STREAM = lazy_regex(r"(?:Logic )?Stream ?#?(\d{1,18})")
_MODEL = lazy_regex(r"(?:Step Trace ?\()?Model ID: ?(\d{1,18})\)?")
_GROUP = lazy_regex(r"Group (.+?) Communication", re.DOTALL)
_NO_GROUP = lazy_regex(r"(?:(?:Stream|Plane|Lane|Thread) .*|Communication(?: Kernel)?|)", re.DOTALL)
_THREAD = lazy_regex(r"Thread (\d{1,18})(?: \((.+)\))?")
_NUMBER = lazy_regex(r"-?\d{1,18}")
_PLANE = lazy_regex(r"Plane ?\d+")
_DEVICE = lazy_regex(r"NPU ?(\d{1,18})")
_OTHER_LABEL = lazy_regex(r"(DPU) \d{1,9}")
"""Label of a process that is called as the host's is, "CANN" (``dpu_assembler.cpp``)."""

_ALIASES = {"PCle": "PCIe"}
_COMMUNICATION = ("HCCL", "Communication")
_MARKERS = "PID Name"
"""The process of MSTX markers and ranges."""
_FRAMEWORK = ("Python", "MindSpore", "CPU OP", "Python GC", _MARKERS)
_RUNTIME = ("CANN", "OS Runtime API")
_OTHER_DEVICE = ("CCU", "DPU", "Biu Perf", "Ub", "Block Detail", "Fusion Task")
"""Processes of units without streams (``meta_data_event.h`` of Ascend/msprof, 2026-07)."""


class Classifier(msgspec.Struct, frozen=True):
    """Decides on which tracks the lanes of one Ascend file are shown; call it with a lane.

    Attributes:
        ranks: in files that older viewers merged of several ranks, those whose lanes belong to
            the capture; -1 is for lanes that name no rank. None takes all.
        graph: of device tasks and communication that name none themselves.
        steps_elsewhere: graphs whose step trace is read from another file; their lanes are
            left out here.
    """

    ranks: Collection[int] | None = None
    graph: int = -1
    steps_elsewhere: Collection[int] = ()

    def __call__(self, lane: Lane) -> Placed | Skipped | None:
        suffix = _RANK_SUFFIX.fullmatch(lane.process)
        if self.ranks is not None and (int(suffix[2]) if suffix else -1) not in self.ranks:
            return None
        if lane.category == "Data_aug Bound":
            return Skipped("decoration-skipped")
        process = suffix[1] if suffix else _ALIASES.get(lane.process, lane.process)
        devices = {label for label in lane.names.labels.values() if _DEVICE.fullmatch(label)}
        labelled = _DEVICE.fullmatch(lane.labels) if len(devices) > 1 else None
        device = int(labelled[1]) if labelled else -1
        if lane.phase == "C":
            name = f"{device_heading(device)} {process}".strip()
            kind = MEMORY_KINDS.get(process, TrackKind.OTHER)
            return Placed(
                Track(
                    Layer.COUNTER, "", name, "Counters", kind=kind, device=device, device_kind="NPU"
                )
            )
        if match := _OTHER_LABEL.fullmatch(lane.labels):
            unit = Track(Layer.DEVICE, lane.thread or f"Thread {lane.tid}", lane.labels, match[1])
            return Placed(unit, graph=self.graph)
        return _PLACES.get(process, _of_process)(self, lane, process, device)


MEMORY_KINDS = {"Memory": TrackKind.ALLOCATOR, "NPU Module Mem": TrackKind.MODULE_MEMORY}
"""Kinds of the counters that the profiler has in tables, too, by their group."""


def device_heading(device: int) -> str:
    """What sets the lanes of one of several devices apart; "" for -1."""
    return f"NPU {device}" if device >= 0 else ""


def step_lane(graph: int, device: int = -1, name: str = "") -> Placed:
    """A lane of the step trace; ``graph`` -1 holds the framework's own steps."""
    title = name or (f"Model {graph}" if graph >= 0 else "Steps")
    track = Track(Layer.STEP, title, device_heading(device), "Step Trace", device=device)
    return Placed(track, by_name=step_named, graph=graph)


def _hardware(setting: Classifier, lane: Lane, process: str, device: int) -> Placed | Skipped:
    if _MODEL.fullmatch(lane.thread):
        return _steps(setting, lane, process, device)
    match = _STREAM.fullmatch(lane.thread)
    stream = int(match[1]) if match else -1 if lane.thread else lane.thread_id
    track = Track(
        Layer.DEVICE,
        f"Stream {match[1]}" if match else lane.thread or f"Stream {lane.tid}",
        device_heading(device),
        process,
        device=device,
        device_kind="NPU",
        stream=stream,
    )
    return Placed(track, OpClass.UNCLASSIFIED, OPERATORS, task_named, setting.graph)


def _steps(setting: Classifier, lane: Lane, process: str, device: int) -> Placed | Skipped:
    match = _MODEL.fullmatch(lane.thread)
    if not match:
        return step_lane(setting.graph, device, lane.thread)
    graph = graph_id(match[1])
    if graph in setting.steps_elsewhere or EVERY_GRAPH in setting.steps_elsewhere:
        return Skipped("repeated-content")
    return step_lane(graph, device)


def _communication(setting: Classifier, lane: Lane, process: str, device: int) -> Placed:
    group = _group_of(lane)
    plane = bool(_PLANE.fullmatch(lane.thread))
    track = Track(
        Layer.COMM,
        lane.thread or f"Thread {lane.tid}",
        f"{device_heading(device)} {group.title}".strip(),
        process,
        sort=int(plane),
        device=device,
        device_kind="NPU",
        communicator=group.name,
        communicator_index=group.index,
    )
    if plane:
        return Placed(track, OpClass.COMM_TASK, graph=setting.graph)
    return Placed(track, OpClass.COMM, by_name=transfer_named, graph=setting.graph)


class Communicator(msgspec.Struct, frozen=True):
    """A group of ranks, as a file of one of them has it.

    Attributes:
        title: its heading.
        name:  what all of its ranks call it; "" if it is only numbered.
        index: its number among those without a name; -1 of others, and of the only one.
    """

    title: str = ""
    name: str = ""
    index: int = -1

    @classmethod
    def numbered(cls, index: int) -> Communicator:
        """One of several without a name."""
        return cls(f"Group {index}", index=index)

    @classmethod
    def named(cls, name: str) -> Communicator:
        """One with a name."""
        return cls(f"Group {name}", f"Group {name}")


def _group_of(lane: Lane) -> Communicator:
    """The communication group of a lane: its own, or for a plane that of the nearest group
    thread before it. Several groups without a name are numbered in the order of their threads.
    """
    threads = {t: n for (p, t), n in lane.names.threads.items() if p == lane.pid}
    threads[lane.tid] = lane.thread
    heads = sorted(
        (int(tid), name)
        for tid, name in threads.items()
        if _NUMBER.fullmatch(tid) and not _PLANE.fullmatch(name)
    )
    if not _NUMBER.fullmatch(lane.tid):
        return Communicator()
    before = [i for i, (tid, _) in enumerate(heads) if tid <= int(lane.tid)]
    if not before:
        return Communicator()
    name = heads[before[-1]][1]
    if match := _GROUP.fullmatch(name):
        group_name = match[1]
        return (
            Communicator.numbered(int(group_name))
            if group_name.isdecimal()
            else Communicator.named(group_name)
        )
    nameless = [i for i, (_, n) in enumerate(heads) if n == name]
    if len(nameless) > 1:
        return Communicator.numbered(nameless.index(before[-1]))
    return Communicator(name="" if _NO_GROUP.fullmatch(name) else name)


def _of_process(setting: Classifier, lane: Lane, process: str, device: int) -> Placed:
    """A lane whose layer follows from its process, else from the label of that."""
    layer = _LAYERS.get(process, Layer.HOST if lane.labels == "CPU" else Layer.OTHER)
    title, heading = lane.thread or f"Thread {lane.tid}", device_heading(device)
    if layer in (Layer.HOST, Layer.RUNTIME):
        match = _THREAD.fullmatch(lane.thread)
        track = Track(
            layer, title, heading, process,
            kind=TrackKind.RANGES if process == _MARKERS else TrackKind.OTHER, device=device,
            thread=int(match[1]) if match else -1 if lane.thread else lane.thread_id,
            thread_name=(match[2] or "") if match else "",
        )  # fmt: skip
        return Placed(track, OpClass.HOST, by_name=host_named if layer is Layer.HOST else None)
    track = Track(layer, title, heading, process or f"Process {lane.pid}", device=device)
    if layer is Layer.OVERLAP:
        sort, op, class_of = overlap_named(lane.thread)
        return Placed(msgspec.structs.replace(track, sort=sort), op, by_name=class_of)
    return Placed(track, graph=setting.graph if layer is Layer.DEVICE else -1)


_LAYERS = {
    "Scope Layer": Layer.SCOPE,
    "Overlap Analysis": Layer.OVERLAP,
    **dict.fromkeys(_FRAMEWORK, Layer.HOST),
    **dict.fromkeys(_RUNTIME, Layer.RUNTIME),
    **dict.fromkeys(_OTHER_DEVICE, Layer.DEVICE),
}
_PLACES: dict[str, Callable[[Classifier, Lane, str, int], Placed | Skipped]] = {
    "Ascend Hardware": _hardware,
    "Step Trace": _steps,
    **dict.fromkeys(_COMMUNICATION, _communication),
}
"""Where the lanes of other processes are is in ``_LAYERS``."""
