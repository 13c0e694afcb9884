"""One device of an XSpace: its own lines, and the rows of the host that belong to it.

A file holds the devices of one process or host, and each device is a rank. A row of the host
belongs to the device that it names or launches work on; other rows belong to the first device of
the file. Step annotations are repeated for every device.
"""

from __future__ import annotations

import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import INT64_MAX
from traceconv.core.errors import MalformedInputError
from traceconv.core.model import Capture, Layer, OpClass
from traceconv.readers.shared.profiler_messages import book_messages
from traceconv.readers.shared.protobuf_wire import content
from traceconv.readers.xla.device_lines import DeviceLines
from traceconv.readers.xla.host_threads import HostThreads
from traceconv.readers.xla.plane_rows import PlaneRows
from traceconv.readers.xla.planes import Kind, kind_of
from traceconv.readers.xla.space import Plane, space_of


def read_device(capture: Capture, build: TraceBuilder) -> None:
    """Put one device of a file into ``build``.

    Raises:
        MalformedInputError: nothing in the file can be read.
    """
    name = capture.files[0]
    build.file = capture.source.title(name)
    build.hints.free_rule = "device"
    space = space_of(content(capture.source, name))
    if not space.planes:
        raise MalformedInputError(build.file, "", "not one plane of a profile can be read")
    rows = PlaneRows(build, space, capture.detail)
    if space.recorded_ns:
        build.window(*space.recorded_ns)
    threads, lines = HostThreads(rows), DeviceLines(rows)
    for plane in space.planes:
        kind = kind_of(plane.name)
        if kind in (Kind.HOST, Kind.RUNTIME):
            threads.add(plane, kind)
        elif kind is Kind.NOTES:
            if plane.name == "/host:metadata":
                _note(rows, plane, versions_only=True)
        elif rows.is_ours(plane):
            lines.add(plane, kind)
            if kind is Kind.DEVICE:
                _note(rows, plane)
        elif rows.device.first and not rows.is_device(plane):
            _other_plane(rows, plane)
    rows.links.draw(build)
    if rows.device.first:
        book_messages(build, space.errors, space.warnings)
        if space.broken >= 0:
            build.skip("truncated", f"byte {space.broken}")
    if not build.rows:
        build.skip("empty-file")


def _other_plane(rows: PlaneRows, plane: Plane) -> None:
    """Add a plane of unknown meaning. Megascale planes are shown with the communication but not
    counted: nothing says which device waits for it."""
    rows.book(plane)
    events = np.flatnonzero(~plane.aggregate)
    comm = "megascale" in plane.name.lower()
    layer, op = (Layer.COMM, OpClass.COMM_TASK) if comm else (Layer.OTHER, OpClass.OTHER)
    tracks = [
        rows.build.track(layer, line.name or f"Line {line.id}", "", plane.name)
        for line in plane.lines
    ]
    added = rows.added(
        plane,
        events,
        track=np.array(tracks or [0], np.int32)[plane.line_of[events]],
        op=np.full(len(events), op, np.int8),
        name=rows.names(plane)[events],
        step=np.full(len(events), -1, np.int32),
    )
    rows.links.take(plane, added)


def _note(rows: PlaneRows, plane: Plane, versions_only: bool = False) -> None:
    """Keep what a plane states of the device or of the versions that wrote the file."""
    stats, device = plane.own(), rows.device.number
    size = stats.get("memory_size")
    if not versions_only and device >= 0 and type(size) is int and 0 < size <= INT64_MAX:
        rows.build.hints.device_memory_bytes[device] = size
    facts = {k: v for k, v in stats.items() if not versions_only or k.endswith("_version")}
    rows.build.notes.setdefault("xla", {}).update(facts)
