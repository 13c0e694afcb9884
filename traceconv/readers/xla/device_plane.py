"""One device of an XSpace: its lines, and the rows of the host that belong to it.

A file holds one process (or one host) with all its devices, and each device is a rank. A row of the
host belongs to the device that it names, or launches work on; all others, to the first device of
the file. Marks of steps hold for all devices, and are with each of them.
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
from traceconv.readers.xla.planes import (
    Kind,
    kind_of,
)
from traceconv.readers.xla.space import Plane, space_of

HIDDEN = frozenset(
    ("_pt", "_p", "_ct", "_c", "_src", "_r", "_a", "source_stack", "memory_access_breakdown")
)
"""Stats that are no arguments: links, which become arrows, and where the profiler was called."""

PATHS = frozenset(("source",))
"""Stats that are paths of the user."""

_MOST_PS = 1 << 62


def _read(rows: PlaneRows) -> None:
    """Put everything of the device into the trace."""
    build, device = rows.build, rows.device
    recorded = rows.space.recorded_ns
    if recorded:
        build.window(*recorded)
    threads, lines = HostThreads(rows), DeviceLines(rows)
    for plane in rows.space.planes:
        kind = kind_of(plane.name)
        if kind is Kind.NOTES:
            continue
        if kind in (Kind.HOST, Kind.RUNTIME):
            threads.add(plane, kind)
        elif rows.is_ours(plane):
            lines.add(plane, kind)
        elif device.first and not rows.is_device(plane):
            _other_plane(rows, plane)
    rows.links.draw(build)
    _note(rows)


def _other_plane(planes: PlaneRows, plane: Plane) -> None:
    """Planes of which nothing is known but their name; those of communication are on its
    layer, but not counted: nothing says which device waits for it."""
    planes.book(plane)
    at = np.flatnonzero(~plane.aggregate)
    comm = "megascale" in plane.name.lower()
    layer, op = (Layer.COMM, OpClass.COMM_TASK) if comm else (Layer.OTHER, OpClass.OTHER)
    tracks = [
        planes.build.track(layer, line.name or f"Line {line.id}", "", plane.name)
        for line in plane.lines
    ]
    rows = planes.added(
        plane,
        at,
        track=np.array(tracks or [0], np.int32)[plane.line_of[at]],
        op=np.full(len(at), op, np.int8),
        name=planes.names(plane)[at],
        step=np.full(len(at), -1, np.int32),
    )
    planes.links.take(plane, rows)


def _note(rows: PlaneRows) -> None:
    build, space, device = rows.build, rows.space, rows.device
    if device.first:
        book_messages(build, space.errors, space.warnings)
        if space.broken >= 0:
            build.skip("truncated", f"byte {space.broken}")
    for plane in space.planes:
        if kind_of(plane.name) is Kind.DEVICE and rows.is_ours(plane):
            own = plane.own()
            size = own.get("memory_size")
            if device.number >= 0 and type(size) is int and 0 < size <= INT64_MAX:
                build.hints.device_memory_bytes[device.number] = size
            facts = {k: v for k, v in own.items() if isinstance(v, str | int | float)}
            build.notes.setdefault("xla", {}).update(facts)
    versions = [p.own() for p in space.planes if p.name == "/host:metadata"]
    for own in versions:
        build.notes.setdefault("xla", {}).update(
            {k: v for k, v in own.items() if k.endswith("_version")}
        )


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
    _read(PlaneRows(build, space, capture.detail))
    if not build.rows:
        build.skip("empty-file")
