"""Tracks: their layers, kinds, identity and names."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import msgspec

from traceconv.core.columns import natural_order


class Layer(StrEnum):
    """The top level by which viewers group tracks, in the order on screen."""

    STEP = "step"
    OVERLAP = "overlap"
    HOST = "host"  # framework operators, Python
    RUNTIME = "runtime"  # CANN, CUDA calls
    SCOPE = "scope"  # module and name scopes
    DEVICE = "device"  # hardware streams
    COMM = "comm"  # HCCL, NCCL: groups and planes
    COUNTER = "counter"
    OTHER = "other"

    @property
    def order(self) -> int:
        """Position on screen, 0 first."""
        return _LAYER_ORDER[self]


_LAYER_ORDER = {layer: i for i, layer in enumerate(Layer)}

TITLES: dict[Layer, str] = {
    Layer.STEP: "Step Trace",
    Layer.OVERLAP: "Overlap Analysis",
    Layer.HOST: "Host",
    Layer.RUNTIME: "Runtime",
    Layer.SCOPE: "Scope Layer",
    Layer.DEVICE: "Hardware",
    Layer.COMM: "Communication",
    Layer.COUNTER: "Counters",
    Layer.OTHER: "Other",
}
"""Heading of a layer on screen where its source does not name it."""


class TrackKind(StrEnum):
    """The kind of a track, for tracks that passes and analyses treat specially."""

    OTHER = ""
    RANGES = "ranges"  # of a host thread; every slice is a range of the user (NVTX, rocTX)
    PROJECTION = "projection"  # ranges of the host, when the device did what they launched
    OFF_CPU = "off_cpu"  # when a host thread had no CPU
    CPU = "cpu"  # what other processes ran on the CPU whose number is ``device``
    SYSTEM_CALLS = "system_calls"  # of a host thread, into the operating system
    MESSAGES = "messages"  # of a host thread, into a message-passing library (MPI)
    ALLOCATOR = "allocator"  # counter: memory that the allocator of a framework holds
    MODULE_MEMORY = "module_memory"  # counter: memory that modules of CANN hold


Number = Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)]
"""An id in a column of tracks; -1 if absent. Values in traceconv's own files are checked."""


class Track(msgspec.Struct, frozen=True, omit_defaults=True):
    """Identity of one row of the viewer. Writers number tracks; readers never invent pids.

    ``name``, ``group`` and ``title`` are headings, for people. Code decides by the other fields.

    Attributes:
        layer: the layer.
        name:  of the row: "Stream 3", "Plane 0", "Thread 1207", "HBM 0/Read".
        group: what nests between layer and name: "Group 0", "NPU 1", "HBM"; "" if nothing.
        title: the layer's name in the words of its source ("Ascend Hardware", "HCCL", "CANN",
            "Python"); "" means that of :data:`TITLES`. Two titles in one layer are two rows.
        sort:  order among the tracks of one (layer, title, group); equal ones sort by name.
        unit:  of a counter ("MB/s", "KB", "%", "" if none is known); None for slices.
        lane:  0, or the number of the sub-lane that slices which would cross were moved to.
        kind:  the kind of its rows.
        device: number of the device it is of; -1 if unknown, or of no device.
        device_kind: "GPU", "NPU", "TPU", "CPU"; "" if unknown.
        stream: number of the stream or queue; -1 if unknown, or of no stream.
        process: process id, where it is of another process than the rank's own; else -1.
        thread: number of the host thread it is of; -1 if unknown, or of no thread.
        thread_name: of the thread, "" if it has none.
        communicator: the group of ranks that communicate here, as all of them call it; "" if
            the source does not name it.
        communicator_index: number of a group without a name among those of its rank; else -1.
    """

    layer: Layer
    name: str
    group: str = ""
    title: str = ""
    sort: int = 0
    unit: str | None = None
    lane: int = 0
    kind: TrackKind = TrackKind.OTHER
    device: Number = -1
    device_kind: str = ""
    stream: Number = -1
    process: Number = -1
    thread: Number = -1
    thread_name: str = ""
    communicator: str = ""
    communicator_index: Number = -1

    @property
    def heading(self) -> str:
        """The layer's name as shown on screen."""
        return self.title or TITLES[self.layer]

    @property
    def is_counter(self) -> bool:
        """Whether it has samples, not slices."""
        return self.unit is not None

    @property
    def whole(self) -> Track:
        """The track that a sub-lane is of."""
        return msgspec.structs.replace(self, lane=0) if self.lane else self

    def order_key(self) -> tuple[Any, ...]:
        """Sorts tracks as they appear on screen; numbers in names count as numbers."""
        return (
            self.layer.order,
            natural_order(self.heading),
            natural_order(self.group),
            self.sort,
            natural_order(self.name),
            self.lane,
            self.unit or "",
            *msgspec.structs.astuple(self)[_HEADINGS:],
        )


_HEADINGS = Track.__struct_fields__.index("kind")
