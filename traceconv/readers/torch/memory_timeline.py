"""PyTorch's memory timeline: allocated bytes by category (parameters, gradients ...).

Written by: ``prof.export_memory_timeline`` of PyTorch 2.0 and newer.
Files:      ``*.raw.json.gz`` with [time, action, bytes, category] per change, and ``*.json`` or
            ``*.json.gz`` with [times, bytes per category at each]. The HTML holds a picture only.
Units and clock: ns in the first kind, us in the second; Unix time; bytes.
Rank from:  "rank<n>" in the path; the file names neither rank nor device.
Quirks:     what existed before has the time -1 (golden case ``raw``), or the earliest one.
Ignored:    which tensor a change is of; the file does not say.
Source:     torch/profiler/_memory_profiler.py of pytorch/pytorch (_CATEGORY_TO_INDEX, Action)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import Anchor, Domain
from traceconv.core.errors import Issues, MalformedInputError
from traceconv.core.json_text import NOT_JSON
from traceconv.core.model import I64, Capture, Layer
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source
from traceconv.readers.shared.lines import capture_of_file

MOST_BYTES = 2 << 30
CATEGORIES = (
    "Parameter", "Optimizer State", "Input", "Temporary", "Activation", "Gradient",
    "Autograd Detail", "Unknown",
)  # fmt: skip
_TOTAL = "Total"
_RAW = lazy_regex(rb"\s*\[\s*\[\s*-?\d{1,19}\s*,\s*[1-4]\s*,\s*-?\d{1,18}\s*,\s*[0-7]\s*\]")
_SUMS = lazy_regex(rb"\s*\[\s*\[\s*\d{15,16}\s*[,\]]")
_LARGEST = 1 << 53  # bytes: beyond, counters are not exact


class MemoryTimelineReader:
    """Reads memory timelines of PyTorch's profiler."""

    name = "memory_timeline"
    title = "PyTorch memory timeline"
    files = "*.json, *.json.gz (export_memory_timeline)"
    order = 332

    def find(self, source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
        """One capture per file."""
        clock = Anchor(Domain.UNIX, evidence="Unix time stamps")
        return [
            capture_of_file(self.name, source, name, clock)
            for name in names
            if _RAW.match(head := source.head(name)) or _SUMS.match(head)
        ]

    def read(self, capture: Capture, build: TraceBuilder) -> None:
        """A counter per category, and one of their sum; see :class:`traceconv.readers.Reader`."""
        import orjson

        name = capture.files[0]
        build.file = capture.source.title(name)
        try:
            value = orjson.loads(capture.source.read(name, MOST_BYTES))
        except NOT_JSON as e:
            raise MalformedInputError(build.file, "", f"it ends early, or is not JSON ({e})") from e
        if not isinstance(value, list) or not value:
            raise MalformedInputError(build.file, "", "no list of changes or of times")
        add = _changes if _is_change(value[0]) else _sums
        add(build, value)


def _is_change(one: Any) -> bool:
    return (
        isinstance(one, list)
        and len(one) == 4
        and all(type(number) is int and abs(number) < 1 << 62 for number in one)
        and 0 <= one[3] < len(CATEGORIES)
        and abs(one[2]) < _LARGEST
    )


def _changes(build: TraceBuilder, listed: list[Any]) -> None:
    """The sums of all changes; memory that existed before has the time of the first one."""
    kept = [one for one in listed if _is_change(one)]
    _lost(build, len(listed) - len(kept), "malformed-record")
    time, _, change, category = np.array(kept, np.int64).reshape(-1, 4).T
    if not (time > 0).any():
        _lost(build, len(kept), "bad-time")
        return
    time = np.where(time > 0, time, time[time > 0].min())
    order = np.argsort(time, kind="stable")
    time, change, category = time[order], change[order], category[order]
    for number, name in enumerate((*CATEGORIES, _TOTAL)):
        own = (category == number) | (name == _TOTAL)
        _counter(build, name, time[own], np.cumsum(change[own]))


def _lost(build: TraceBuilder, count: int, code: str) -> None:
    build.lose(code, build.file, count, "counter")


def _sums(build: TraceBuilder, value: list[Any]) -> None:
    """Each sum where it changes. Rows begin with a 0, below which nothing is drawn."""
    times, rows = value if len(value) == 2 else ([], [])
    width = len(CATEGORIES) + 1
    pairs = [
        (time, row)
        for time, row in zip(times, rows, strict=False)
        if type(time) is int and 0 < time < (1 << 62) // 1000
        and isinstance(row, list) and len(row) == width
        and all(type(size) is int and abs(size) < _LARGEST for size in row)
    ]  # fmt: skip
    if not pairs:
        raise MalformedInputError(build.file, "", "no list of times and of bytes at each")
    _lost(build, max(len(times), len(rows)) - len(pairs), "malformed-record")
    time = np.array([time for time, _ in pairs], np.int64) * 1000
    size = np.array([row for _, row in pairs], np.int64)
    for name, column in ((_TOTAL, size.sum(axis=1)), *zip(CATEGORIES, size.T[1:], strict=True)):
        _counter(build, name, time, column)


def _counter(build: TraceBuilder, name: str, time: I64, size: I64) -> None:
    """The last size at each instant, where it differs from the one before."""
    last = np.flatnonzero(np.append(time[1:] != time[:-1], True)[: len(time)])
    last = last[np.append(True, size[last][1:] != size[last][:-1])[: len(last)]]
    if len(last):
        time, size = time[last], size[last]
        build.seen("counter", len(time))
        build.skip("counter-clipped", build.file, int((size < 0).sum()))
        track = build.track(Layer.COUNTER, name, "", "PyTorch Memory by Category", unit="B")
        build.counters(track=track, start_ns=time, value=np.maximum(size, 0).astype(np.float64))


READER = MemoryTimelineReader()
