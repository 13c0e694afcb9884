"""Paddle's profiler before 2.3: ``Profile`` messages, and the timelines made of them.

A ``Profile`` is a flat list of events. ``tools/timeline.py`` converts it to trace events with
nanoseconds in place of microseconds, which do not fit into int64 ns. A copy with the decimal points
moved is read instead.

Source: paddle/fluid/platform/profiler.proto and tools/timeline.py of Paddle before 2.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import MalformedInputError
from traceconv.core.model import Layer, OpClass, Track
from traceconv.core.patterns import lazy_regex, natural
from traceconv.core.source import Source, Stream
from traceconv.io.sources import FileSource
from traceconv.protobuf.message_columns import DAMAGED, Columns, columns
from traceconv.readers.paddle.layout import Lane, Records, What, noted, put
from traceconv.readers.paddle.protobuf import spans
from traceconv.readers.shared.arguments import objects, quoted
from traceconv.readers.shared.gpu_kernels import kernel_class
from traceconv.readers.shared.protobuf_wire import content, damage_in, nested
from traceconv.readers.shared.trace_events import contract
from traceconv.readers.shared.trace_events.contract import Named, Placed
from traceconv.scratch.temporary import named_temporary_file

_EVENTS, _MEMORY = 1, 4
_NAME, _START, _END, _DEVICE, _ROW, _COPY, _TYPE, _DETAIL = 1, 2, 3, 5, 6, 7, 8, 9
"""Fields of an event; the row is a thread or a stream."""

_CALL_ROW = -1
"""In place of a device: the calls into CUDA."""

_ON_GPU = 1
_LOOKED_AT = 4


def first_span(head: bytes) -> tuple[int, int] | None:
    """First start and last end of the first events, ns; None if these bytes begin no such file.

    Nothing in it names the format, so every field of several events has to fit.
    """
    _, start, size = nested(head, np.array([0]), np.array([len(head)]), _EVENTS)
    start, size = start[:_LOOKED_AT], size[:_LOOKED_AT]
    events = columns(head, start, size, range(1, 10))
    begin, end = events.integer(_START), events.integer(_END)
    fits = events.has(_START) & events.has(_END) & events.has(_TYPE) & (begin <= end)
    fits &= (events.rest == 0) & ~events.has(_MEMORY) & events.is_bytes(_NAME)
    if not len(start) or not head.startswith(b"\n") or not fits.all():
        return None
    for offset, length in zip(*map(np.ndarray.tolist, events.spans(_NAME)), strict=True):
        try:
            name = head[offset : offset + length].decode()
        except UnicodeDecodeError:
            return None
        if not name or not name.isprintable():
            return None
    return int(begin.min()), int(end.max())


def is_copy(name: str) -> bool:
    """Whether device work of this name moves or sets memory."""
    return name.upper().startswith(("MEMCPY", "MEMSET"))


def read_profile(source: Source, name: str, build: TraceBuilder, pid: int) -> None:
    """Read one file.

    Raises:
        MalformedInputError: nothing in it can be read.
    """
    data = content(source, name)
    file_span = np.array([0]), np.array([len(data)])
    damage_begin, _, cut = damage_in(data, 0, len(data), _EVENTS)
    if damage_begin >= 0:
        code, count = ("truncated", 1) if cut else ("skipped-bytes", len(data) - damage_begin)
        build.skip(code, f"byte {damage_begin}", count)
    _, start, size = nested(data, *file_span, _EVENTS)
    events = columns(data, start, size, range(1, 10))
    build.skip("malformed-record", count=int((events.rest & DAMAGED > 0).sum()))
    if damage_begin >= 0 and not len(events):
        raise MalformedInputError(
            source.title(name), f"byte {damage_begin}", "not one event can be read"
        )
    build.skip("kind-not-read", "allocations", len(nested(data, *file_span, _MEMORY)[0]))
    noted(build, version="Profile")
    put(_records(data, events, build), build, pid)


def _records(data: Any, events: Columns, build: TraceBuilder) -> Records:
    names, details = (
        [bytes(data[offset : offset + length]).decode("utf-8", "replace") for offset, length in
         zip(*map(np.ndarray.tolist, events.spans(number)), strict=True)]
        for number in (_NAME, _DETAIL)
    )  # fmt: skip
    lanes: dict[Lane, int] = {}
    lane, args = [], []
    copies = columns(data, *events.spans(_COPY), (1,)).integer(1).tolist()
    locations = (events.integer(number).tolist() for number in (_DEVICE, _ROW, _TYPE))
    moved = events.is_bytes(_COPY).tolist()
    rows = zip(names, details, copies, moved, *locations, strict=True)
    for name, detail, count, copies_memory, device, row, kind in rows:
        kind_of_lane, device_id = What.HOST, ""
        if device == _CALL_ROW:
            kind_of_lane = What.RUNTIME
        elif kind == _ON_GPU:
            kind_of_lane, device_id = (
                What.COPY if copies_memory or is_copy(name) else What.KERNEL,
                str(device),
            )
        lane.append(lanes.setdefault(Lane(kind_of_lane, device_id, str(row)), len(lanes)))
        members = [b'"bytes":%d' % count] if copies_memory else []
        members += [b'"detail":%b' % quoted(detail)] if detail else []
        args.append(b"{%b}" % b",".join(members) if members else b"")
    n, none = len(events), np.empty(0, np.int64)
    start, dur = spans(events, _START)
    return Records(
        list(lanes),
        np.array(lane, np.int32),
        start,
        dur,
        np.array([build.string(name) for name in names], np.int32),
        objects(build, args),
        np.full(n, -1, np.int32),
        np.zeros(n, bool),
        (none, none),
    )


_TIME = lazy_regex(rb'("(?:ts|dur)"\s*:\s*)(\d+)(?:\.0+)?(?=\s*[,}])')
_PROCESS = lazy_regex(r"(memory usage on )?([^:]*):(.*)", re.DOTALL)
BLOCK_BYTES = 1 << 20


def read_timeline(source: Source, name: str, build: TraceBuilder, key: str) -> None:
    """Read the rows of one process.

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
        read_events(scaled, path.name, build, partial(_placed, build, key))


def _rescaled(stream: Stream) -> Iterator[bytes]:
    """The file with every time divided by 1000."""
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
    """The place of a lane; None for those of other processes."""
    match = _PROCESS.fullmatch(lane.process)
    if not match or match[2] != key:
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
            device=natural(digits),
            device_kind="GPU",
            stream=lane.thread_id,
        )
        words = build.comm_words
        return Placed(
            track, OpClass.COMPUTE,
            by_name=lambda n: Named(OpClass.COPY if is_copy(n) else kernel_class(n, words)),
        )  # fmt: skip
    if match[3] == "cuda_api":
        layer, group, title = Layer.RUNTIME, "", "CUDA"
    else:
        layer, group, title = Layer.HOST, match[3], "Paddle"
    track = Track(layer, f"Thread {lane.tid}", group, title, thread=lane.thread_id)
    return Placed(track, OpClass.HOST)
