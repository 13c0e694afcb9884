"""What Paddle's profiler wrote before 2.3: ``Profile`` messages, and the timelines made of them.

A ``Profile`` is a flat list of events. ``tools/timeline.py`` made trace events of it and wrote
nanoseconds where those have microseconds. Stamps of today do not fit into int64 nanoseconds that
way, so a copy with the decimal points where they belong is read instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from traceconv._proto import message, parsed
from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import INT64_MAX
from traceconv.core.errors import MalformedInputError
from traceconv.core.model import Layer, OpClass, Track
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source, Stream
from traceconv.io.sources import FileSource
from traceconv.readers.paddle.layout import Lane, Records, What, noted, put
from traceconv.readers.paddle.protobuf import BATCH_BYTES, PACKAGE, STEM
from traceconv.readers.shared.arguments import quoted
from traceconv.readers.shared.gpu_kernels import kernel_class
from traceconv.readers.shared.protobuf_wire import Cut, Damaged, content, fields
from traceconv.readers.shared.trace_events import contract
from traceconv.readers.shared.trace_events.contract import Named, Placed
from traceconv.scratch.temporary import named_temporary_file

EVENT, MEMORY = 1, 4
CALL_ROW = -1
"""In place of a device: the calls into CUDA."""

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
    members = []
    if event.HasField("memcopy"):
        members.append(b'"bytes":%d' % event.memcopy.bytes)
    if event.detail_info:
        members.append(b'"detail":%b' % quoted(event.detail_info.decode("utf-8", "replace")))
    return b"{%b}" % b",".join(members) if members else b""


_TIME = lazy_regex(rb'("(?:ts|dur)"\s*:\s*)(\d+)(?:\.0+)?(?=\s*[,}])')
_ROW = lazy_regex(r"(memory usage on )?([^:]*):(.*)", re.DOTALL)
BLOCK_BYTES = 1 << 20


def read_timeline(
    source: Source, name: str, build: TraceBuilder, key: str
) -> tuple[int, int] | None:
    """Read the rows of one process.

    Returns:
        Earliest start and latest end of its slices, ns; None if there are none.

    Raises:
        MalformedInputError: nothing in it can be read.
    """
    from traceconv.readers.shared.trace_events.timeline import read_events

    with named_temporary_file() as copy:
        with source.open(name) as stream:
            for block in _rescaled(stream):
                copy.write(block)
        copy.flush()
        path = Path(copy.name)
        scaled = FileSource(path, source.title(name))
        return read_events(scaled, path.name, build, partial(_placed, build, key))


def _rescaled(stream: Stream) -> Iterator[bytes]:
    """The file with every time a thousandth of what it was."""
    held = b""
    while block := stream.read(BLOCK_BYTES):
        text = held + block
        cut = max(text.rfind(b","), text.rfind(b"{")) + 1  # no time contains one of these
        cut = len(text) if cut == 0 and len(text) > BLOCK_BYTES else cut
        yield _TIME.sub(_thousandth, text[:cut])
        held = text[cut:]
    yield _TIME.sub(_thousandth, held)


def _thousandth(match: re.Match[bytes]) -> bytes:
    digits = match[2].rjust(4, b"0")
    return match[1] + digits[:-3] + b"." + digits[-3:]


def _placed(build: TraceBuilder, key: str, lane: contract.Lane) -> Placed | None:
    """The place of a lane; None if it is another process's."""
    match = _ROW.fullmatch(lane.process)
    if match is None or match[2] != key:
        return None if match else Placed(Track(Layer.OTHER, lane.process or lane.pid))
    if match[1] or lane.phase == "C":
        return Placed(Track(Layer.COUNTER, "", match[3], "Memory"))
    if match[3].startswith("gpu:"):
        digits = match[3].removeprefix("gpu:")
        track = Track(
            Layer.DEVICE,
            f"Stream {lane.tid}",
            f"GPU {digits}",
            "GPU Hardware",
            device=int(digits) if digits.isdecimal() else -1,
            device_kind="GPU",
            stream=lane.thread_id,
        )
        return Placed(track, OpClass.COMPUTE, by_name=partial(_work, build.comm_words))
    if match[3] == "cuda_api":
        layer, group, title = Layer.RUNTIME, "", "CUDA"
    else:
        layer, group, title = Layer.HOST, match[3], "Paddle"
    track = Track(layer, f"Thread {lane.tid}", group, title, thread=lane.thread_id)
    return Placed(track, OpClass.HOST)


def _work(more: tuple[str, ...], name: str) -> Named:
    return Named(OpClass.COPY if is_copy(name) else kernel_class(name, more))
