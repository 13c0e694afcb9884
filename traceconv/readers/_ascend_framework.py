"""Files of ``FRAMEWORK``: what PyTorch and MindSpore write about themselves while they run."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from traceconv.build import TraceBuilder
from traceconv.errors import SourceError
from traceconv.readers import _ascend_framework_ms as ms
from traceconv.readers import _ascend_framework_python as python
from traceconv.readers import _ascend_framework_torch as torch
from traceconv.readers._ascend_framework_clock import FrameworkClock
from traceconv.readers._ascend_raw_clock import Clock
from traceconv.readers._ascend_raw_slices import LARGEST_BYTES
from traceconv.source import Source

_HASHES, _CALLS = "torch.python_tracer_hash", "torch.python_tracer_func"

_READERS: dict[str, Callable[[TraceBuilder, Any, FrameworkClock], None]] = {
    r"mindspore\.op_range": ms.read_ranges,
    r"mindspore\.memory_usage": ms.read_memory,
    r"op_range_\d+": ms.read_old_ranges,
    r"torch\.op_range": torch.read_operators,
    r"torch\.op_mark": torch.read_marks,
    r"torch\.memory_usage": torch.read_memory,
    r"torch\.gc_record": torch.read_garbage,
}


def read_framework(build: TraceBuilder, source: Source, names: Sequence[str], clock: Clock) -> None:
    """Put the framework's own timeline and memory into ``build``.

    Args:
        names: files of one ``FRAMEWORK`` folder; of others nothing is read.
        clock: of the collector that ran beside; ``profiler_info`` is looked for around the folder.
    """
    inside = [name for name in names if name.rpartition("/")[0].rpartition("/")[2] == "FRAMEWORK"]
    if not inside:
        return
    folder = inside[0].rpartition("/")[0].rpartition("/")[0]
    clocks = FrameworkClock(build, source, folder, clock)
    by_base = {name.rpartition("/")[2]: name for name in inside}
    for base, name in sorted(by_base.items()):
        for pattern, read in _READERS.items():
            if re.fullmatch(pattern, base):
                _read(build, source, name, read, clocks)
    if _CALLS in by_base:
        _read_calls(build, source, by_base, clocks)


def _read(
    build: TraceBuilder,
    source: Source,
    name: str,
    read: Callable[[TraceBuilder, Any, FrameworkClock], None],
    clock: FrameworkClock,
) -> None:
    data = _content(build, source, name)
    if len(data):
        read(build, data, clock)
    else:
        build.skip("empty-file")


def _read_calls(
    build: TraceBuilder, source: Source, names: dict[str, str], clock: FrameworkClock
) -> None:
    said = {}
    if _HASHES in names:
        said = python.read_names(build, _content(build, source, names[_HASHES]))
    data = _content(build, source, names[_CALLS])
    python.read_calls(build, data, said, clock)


def _content(build: TraceBuilder, source: Source, name: str) -> Any:
    """A whole file; issues are booked under it from now on. What cannot be read is empty."""
    build.file = source.title(name)
    try:
        with source.open(name) as stream:
            if stream.mapped is not None:
                stream.advance(len(stream.mapped))
                return stream.mapped
        return source.read(name, LARGEST_BYTES)
    except SourceError as e:
        build.skip("skipped-bytes", str(e)[:120])
        return b""
