"""Timelines that Paddle's ``tools/timeline.py`` made of old profiles.

It wrote nanoseconds where trace events have microseconds. Stamps of today do not fit into int64
nanoseconds that way, so a copy with the points where they belong is read instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import Layer, OpClass, Track
from traceconv.io.sources import FileSource, Source
from traceconv.io.streams import Stream
from traceconv.io.temporary import named_temporary_file
from traceconv.readers.paddle.old_profile import is_copy
from traceconv.readers.shared.gpu_kernels import kernel_class
from traceconv.readers.shared.trace_events.timeline import Lane, Named, Placed, read_events

_TIME = re.compile(rb'("(?:ts|dur)"\s*:\s*)(\d+)(?:\.0+)?(?=\s*[,}])')
_ROW = re.compile(r"(memory usage on )?([^:]*):(.*)", re.DOTALL)
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
        cut = max(text.rfind(b","), text.rfind(b"{")) + 1  # no time lies across one of these
        cut = len(text) if cut == 0 and len(text) > BLOCK_BYTES else cut
        yield _TIME.sub(_thousandth, text[:cut])
        held = text[cut:]
    yield _TIME.sub(_thousandth, held)


def _thousandth(match: re.Match[bytes]) -> bytes:
    digits = match[2].rjust(4, b"0")
    return match[1] + digits[:-3] + b"." + digits[-3:]


def _placed(build: TraceBuilder, key: str, lane: Lane) -> Placed | None:
    """Where a lane goes; None if it is another process's."""
    match = _ROW.fullmatch(lane.process)
    if match is None or match[2] != key:
        return None if match else Placed(Track(Layer.OTHER, lane.process or lane.pid))
    if match[1] or lane.phase == "C":
        return Placed(Track(Layer.COUNTER, "", match[3], "Memory"))
    if match[3].startswith("gpu:"):
        group = f"GPU {match[3].removeprefix('gpu:')}"
        track = Track(Layer.DEVICE, f"Stream {lane.tid}", group, "GPU Hardware")
        return Placed(track, OpClass.COMPUTE, by_name=partial(_work, build.comm_words))
    if match[3] == "cuda_api":
        return Placed(Track(Layer.RUNTIME, f"Thread {lane.tid}", "", "CUDA"), OpClass.HOST)
    return Placed(Track(Layer.HOST, f"Thread {lane.tid}", match[3], "Paddle"), OpClass.HOST)


def _work(more: tuple[str, ...], name: str) -> Named:
    return Named(OpClass.COPY if is_copy(name) else kernel_class(name, more))
