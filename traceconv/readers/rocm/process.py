"""Events of ROCm's profilers, described once for all their files, and the process being read.

Communication kernels are on tracks of their library, copies that a kernel carries out are copies,
and every call has a flow to the work it launched. rocTX ranges that name a step carry its number.
The file layouts (:mod:`.database_content`, :mod:`.rpd_tables`, :mod:`.tables`, :mod:`.tool_json`)
add the columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from typing import Any, NamedTuple

import msgspec
import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I64, Kind, Layer, OpClass, TrackKind
from traceconv.readers.shared.arguments import quoted
from traceconv.readers.shared.layouts import (
    KERNEL,
    Launched,
    Members,
    RowLayout,
    Shown,
    TableRows,
    add_rows,
    book_unread,
)

ROCTX = "rocTX"
"""Heading of the tracks of the user's ranges."""

_DEVICE = Shown("device", "GPU {}", of="device")
_GPU = {"device_kind": "GPU"}

_LINKS = frozenset(
    {"id", "guid", "nid", "ppid", "Guid", "Process_Id", "pid", "PID", "Kind", "Kernel_Id", "size"}
)
"""Columns that identify the process of a row, or the kind of the table or record."""

CALLS = RowLayout(
    first_ns=1,
    links=_LINKS,
    layer=Layer.RUNTIME,
    lane=Shown("thread", "Thread {}", "Thread {}", "No thread", "thread"),
    steps=True,
    args=("correlation",),
)
KERNELS = RowLayout(
    first_ns=1,
    links=_LINKS,
    layer=Layer.DEVICE,
    title="GPU Hardware",
    lane=Shown("stream", "Stream {}", absent="No stream", of="stream"),
    group=_DEVICE,
    track=_GPU,
    op=KERNEL,
    args=(
        "correlation", "dispatch", "queue", "stream", "LDS", "scratch", "VGPRs",
        "accumulation VGPRs", "SGPRs", "grid", "block",
    ),
)  # fmt: skip
COPIES = msgspec.structs.replace(
    KERNELS,
    name=Shown("name", number="Memory copy", absent="Memory copy"),
    op=OpClass.COPY,
    args=("correlation", "bytes", "from", "to", "stream"),
)
ALLOCATIONS = RowLayout(first_ns=1, links=_LINKS | {"event_id", "Correlation_Id"})

QUEUES = Shown("queue", "Queue {}", absent="No queue", of="stream")
"""The tracks of a device if no stream is known."""


class Category(msgspec.Struct, frozen=True):
    """The tracks and class of calls of one category.

    Attributes:
        layer, title: layer and heading of the tracks.
        marker: whether the calls are rocTX ranges and markers.
        op: the class.
    """

    layer: Layer
    title: str
    marker: bool = False
    op: OpClass = OpClass.HOST

    @property
    def track(self) -> Mapping[str, Any]:
        """Further fields of the tracks."""
        return {"kind": TrackKind.RANGES} if self.marker else {}


MARKERS = Category(Layer.HOST, ROCTX, marker=True)

_CALLS = {
    "hip": "HIP",
    "hsa": "HSA",
    "rccl": "RCCL",
    "rocdecode": "rocDecode",
    "rocjpeg": "rocJPEG",
    "kfd": "KFD",
}
"""Headings of calls by the prefix of their category."""


def category(name: str) -> Category:
    """The category called ``name``: ``HIP_RUNTIME_API_EXT``, ``hip_api``, ``rocm_hip_api``."""
    low = name.lower().removeprefix("rocm_")
    if low.startswith("marker"):
        return MARKERS
    for begin, title in _CALLS.items():
        if low.startswith(begin):
            return Category(Layer.RUNTIME, title)
    return Category(Layer.HOST, name if name not in ("", "host") else "")


class RpdProcess(NamedTuple):
    """A process of a database.

    Attributes:
        pid:   as its rows have it; -1 if the database names none.
        first: whether tables that are not read are counted with it.
        first_of_node: whether monitors of its node, and operations of no process, are its.
        node, pid_stride, gpu_stride: processes and threads of its node are numbered from
            ``node * pid_stride`` on, GPUs from ``node * gpu_stride`` on; the strides are 0 where
            all are of one node.
    """

    pid: int
    first: bool
    first_of_node: bool
    node: int
    pid_stride: int
    gpu_stride: int


@dataclass
class Process:
    """One process being read."""

    build: TraceBuilder
    launched: Launched = field(default_factory=Launched)

    def calls(
        self,
        layout: RowLayout,
        rows: TableRows,
        categories: Mapping[int, Category],
        details: Members | None = None,
    ) -> I64:
        """Add calls and host ranges. rocTX ranges without a duration become instants.

        Args:
            categories: by the number in column ``category``.

        Returns:
            The event row of each row, -1 for rows that are left out.
        """
        added = np.full(len(rows), -1, np.int64)
        spans = layout.kind is Kind.SLICE
        marks = (rows["start"] == rows["end"]) | (not spans)
        for code in np.unique(rows["category"]).tolist():
            kind_of_call = categories[code]
            for kind in (Kind.SLICE, Kind.INSTANT) if kind_of_call.marker else (layout.kind,):
                chosen = rows["category"] == code
                if kind_of_call.marker:
                    chosen &= marks == (kind is Kind.INSTANT)
                selected = np.flatnonzero(chosen)
                placed = msgspec.structs.replace(
                    layout,
                    layer=kind_of_call.layer,
                    title=kind_of_call.title,
                    op=kind_of_call.op,
                    kind=kind,
                    track=kind_of_call.track,
                )
                members = details and partial(
                    lambda positions, chosen_part: details(positions[chosen_part]), selected
                )
                added[selected] = add_rows(self.build, placed, rows.take(selected), members)
                if spans and not kind_of_call.marker:
                    self.launched.calls.append((_linked(rows)[selected], added[selected]))
        return added

    def work(self, layout: RowLayout, rows: TableRows, details: Members | None = None) -> I64:
        """Add device work, on its stream if streams are known, otherwise on its queue.

        Returns:
            The event row of each row, -1 for rows that are left out.
        """
        if len(rows) and rows["stream"].max() < 0 and "queue" in layout.sources:
            layout = msgspec.structs.replace(layout, lane=QUEUES)
        added = add_rows(self.build, layout, rows, details)
        self.launched.work.append((_linked(rows), added))
        return added

    def place(self, rows: TableRows, devices: Mapping[int, int]) -> None:
        """Number the GPUs: ``devices`` maps their numbers in the file."""
        rows.names["device"] = {code: f"GPU {number}" for code, number in devices.items()}
        rows.identity["device"] = {code: {"device": number} for code, number in devices.items()}

    def allocations(self, rows: TableRows) -> None:
        """Add the memory allocated on each device since the recording began.

        A release has neither device nor size: it releases the allocation at its address, when the
        call ends. Columns, besides times: ``device``, ``size``, ``address``, ``operation`` (text
        that contains ALLOC or FREE) and ``level`` (REAL, VIRTUAL or SCRATCH; absent for REAL).
        """
        build, start, end = self.build, rows["start"], rows["end"]
        book_unread(build, rows)
        build.seen("counter", len(rows))
        bad = (start <= 0) | (end < start)
        build.skip("bad-time", rows.where, int(bad.sum()), "counter")
        order = np.argsort(end, kind="stable")
        held: dict[tuple[object, str], tuple[int, int]] = {}
        sums: dict[tuple[int, str], int] = {}
        samples: dict[tuple[int, str], list[tuple[int, int]]] = {}
        alone = 0
        kind, level, address = (
            rows.texts("operation"),
            rows.texts("level"),
            rows["address"].tolist(),
        )
        device, size = rows["device"], rows["size"]
        for i in order[~bad[order]].tolist():
            word, memory_level = kind[i].upper(), level[i]
            if "FREE" in word or "RECLAIM" in word:
                number, change = held.pop((address[i], memory_level), (-1, 0))
                change = -change
                if not change:
                    alone += 1
                    continue
            else:
                number, change = int(device[i]), max(int(size[i]), 0)
                held[address[i], memory_level] = number, change
            key = number, memory_level
            sums[key] = sums.get(key, 0) + change
            samples.setdefault(key, []).append((int(end[i]), sums[key]))
        build.skip("end-without-begin", f"{rows.where}: releases", alone, "counter")
        for (number, memory_level), values_by_time in samples.items():
            name = "Allocated" + (
                f" ({memory_level.lower()})" if memory_level not in ("", "REAL") else ""
            )
            group, title = _DEVICE.text(rows, number), "Memory since the recording began"
            of_track: dict[str, Any] = {**_GPU, **_DEVICE.identity(rows, number)}
            track = build.track(Layer.COUNTER, name, group, title, unit="B", **of_track)
            times, values = zip(*values_by_time, strict=True)
            build.counters(
                track=track, start_ns=np.array(times, np.int64), value=np.array(values, np.float64)
            )


def _linked(rows: TableRows) -> I64:
    """The correlation numbers of rows; 0, which means no launch, becomes -1."""
    return np.where(rows["correlation"] > 0, rows["correlation"], -1)


def found_in(members: Mapping[int, bytes], keys: I64) -> Members | None:
    """Further arguments of rows, by a number of each row; None if no row has any."""
    if not members:
        return None
    return lambda rows: [members.get(key, b"") for key in keys[rows].tolist()]


def copy_device(source: I64, target: I64, gpus: I64) -> I64:
    """The GPU that a copy occupies, the source if both ends are GPUs; -1 if none is."""
    by_target = np.where(np.isin(target, gpus), target, -1)
    return np.where(np.isin(source, gpus), source, by_target)


def summed(dispatches: I64, names: Sequence[str], values: Sequence[float]) -> dict[int, bytes]:
    """Counters of dispatches as JSON members, each with a leading comma.

    Instances of a counter that have no names are summed.

    Args:
        dispatches: the dispatch of each value.
    """
    by_dispatch: dict[int, dict[str, float]] = {}
    for number, name, value in zip(dispatches.tolist(), names, values, strict=True):
        if isfinite(value):
            sums = by_dispatch.setdefault(number, {})
            sums[name] = sums.get(name, 0.0) + value
    members = {}
    for number, sums in by_dispatch.items():
        totals = (
            (name, int(v) if v.is_integer() else v) for name, v in sums.items() if isfinite(v)
        )
        texts = (b",%b:%b" % (quoted(name), repr(v).encode()) for name, v in totals)
        members[number] = b"".join(texts)
    return members
