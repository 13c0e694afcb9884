"""What Paddle's profiler wrote before 2.3: one ``Profile`` message, a flat list of events."""

from __future__ import annotations

from typing import Any

import numpy as np

from traceconv._proto import message, parsed
from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import INT64_MAX
from traceconv.core.errors import MalformedInputError
from traceconv.io.sources import Source
from traceconv.readers.paddle.layout import Lane, Records, What, noted, put
from traceconv.readers.paddle.protobuf import BATCH_BYTES, PACKAGE, STEM
from traceconv.readers.paddle.wire import Cut, Damaged, content, fields
from traceconv.readers.shared.arguments import quoted

EVENT, MEMORY = 1, 4
CALL_ROW = -1
"""Stands for a device where calls into CUDA are listed."""

_KNOWN = frozenset((1, 2, 3, 5, 6, 7, 8, 9))
_LOOKED_AT = 4
_ON_GPU = 1

Row = tuple[int, int, int, int, int]
"""lane, start, end, name, args"""


def first_events(head: bytes) -> list[Any]:
    """The first events, if these bytes begin such a file; else none.

    Nothing in it says what it is, so every member of several events has to fit.
    """
    found: list[Any] = []
    kind = message(STEM, f"{PACKAGE}.ProfileEvent")
    try:
        for field in fields(head, 0, len(head)):
            if field.number != EVENT or field.end > len(head) or len(found) == _LOOKED_AT:
                break
            inner = fields(head, field.start, field.end)
            event = parsed(kind, head[field.start : field.end])
            if not {f.number for f in inner} <= _KNOWN or not _is_event(event):
                return []
            found.append(event)
    except (Cut, Damaged, ValueError):
        return []
    return found


def _is_event(event: Any) -> bool:
    try:
        name = event.name.decode()
    except UnicodeDecodeError:
        return False
    timed = event.HasField("start_ns") and event.HasField("end_ns") and event.HasField("type")
    return bool(name.isprintable() and name and timed and event.start_ns <= event.end_ns)


def is_copy(name: str) -> bool:
    """Whether work of a device that is called so moves or sets memory."""
    return name.upper().startswith(("MEMCPY", "MEMSET"))


def read_profile(
    source: Source, name: str, build: TraceBuilder, pid: int
) -> tuple[int, int] | None:
    """Read one file.

    Returns:
        Earliest start and latest end, ns; None if there are no events.

    Raises:
        MalformedInputError: nothing in it can be read.
    """
    data = content(source, name)
    events, lost = _Events(build), ""
    memory, first, at = 0, 0, 0
    try:
        for field in fields(data, 0, len(data)):
            if field.end > len(data):
                raise Cut(field.begin)
            if at - first >= BATCH_BYTES:
                events.take(data[first:at])
                first = at
            memory, at = memory + (field.number == MEMORY), field.end
    except Cut as e:
        lost = f"byte {e.args[0]}"
        build.skip("truncated", lost)
    except Damaged as e:
        lost = f"byte {e.args[0]}"
        build.skip("skipped-bytes", lost, len(data) - e.args[0])
    events.take(data[first:at])
    if lost and not events.rows:
        raise MalformedInputError(source.title(name), lost, "not one event can be read")
    build.skip("kind-not-read", "allocations", memory)
    noted(build, version="Profile")
    return put(events.records(), build, pid)


class _Events:
    """Rows of decoded events."""

    def __init__(self, build: TraceBuilder) -> None:
        self._build = build
        self._profile = message(STEM, f"{PACKAGE}.Profile")
        self._lanes: dict[Lane, int] = {}
        self.rows: list[Row] = []

    def take(self, raw: bytes) -> None:
        """Add the events of a piece of the file."""
        try:
            decoded = parsed(self._profile, raw).events
        except ValueError:
            self._build.skip("malformed-record", "events that cannot be decoded")
            return
        for event in decoded:
            lane = self._lanes.setdefault(_lane(event), len(self._lanes))
            start, end = event.start_ns, event.end_ns
            if max(start, end) > INT64_MAX:
                start = end = INT64_MAX + 1
            name = self._build.string(event.name.decode("utf-8", "replace"))
            self.rows.append((lane, start, end, name, self._build.args(_args(event))))

    def records(self) -> Records:
        """Everything taken."""
        lane, start, end, name, args = zip(*self.rows, strict=True) if self.rows else [()] * 5
        begin, stop = np.array(start, np.uint64), np.array(end, np.uint64)
        held = begin <= INT64_MAX
        at = np.where(held, begin, INT64_MAX).astype(np.int64)
        dur = np.where(held, np.where(held, stop, 0).astype(np.int64) - at, INT64_MAX)
        n, none = len(at), np.empty(0, np.int64)
        return Records(
            list(self._lanes),
            np.array(lane, np.int32),
            at,
            dur,
            np.array(name, np.int32),
            np.array(args, np.int32),
            np.full(n, -1, np.int32),
            np.zeros(n, bool),
            (none, none),
        )


def _lane(event: Any) -> Lane:
    device, row = str(event.device_id), str(event.sub_device_id)
    if event.device_id == CALL_ROW:
        return Lane(What.RUNTIME, "", row)
    if event.type == _ON_GPU:
        moves = event.HasField("memcopy") or is_copy(event.name.decode("utf-8", "replace"))
        return Lane(What.COPY if moves else What.KERNEL, device, row)
    return Lane(What.HOST, "", row)


def _args(event: Any) -> bytes:
    said = []
    if event.HasField("memcopy"):
        said.append(b'"bytes":%d' % event.memcopy.bytes)
    if event.detail_info:
        said.append(b'"detail":%b' % quoted(event.detail_info.decode("utf-8", "replace")))
    return b"{%b}" % b",".join(said) if said else b""
