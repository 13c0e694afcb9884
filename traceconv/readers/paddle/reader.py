"""Paddle's profiler: the timelines ``export_chrome_tracing`` and ``export_protobuf`` write.

Written by: ``paddle.profiler`` 2.3 to 3.x, files of version 1.0.0 to 1.0.2; seen: 3.3.1, on CPU.
Files: ``<worker>_time_<local time>.paddle_trace.json`` or ``.pb``, one per collection window; other
names are recognised by the first bytes. Where both hold one recording, the ``.pb`` is read. Before
2.3: binary ``Profile`` messages of any name, and the timelines that ``tools/timeline.py`` made of
them, with a process per trainer.
Units and clock: ``.pb`` in ns, JSON in whole us, both since 1970; finer times are recovered from
the JSON (:mod:`traceconv.readers.paddle.repair`). Old profiles and timelines are in ns.
Rank from: the worker's name ("rank3", "trainer3", "worker3"); a name made of host and process
has none.
Quirks: names are printed without escapes, so a quote breaks the JSON (golden case unescaped); every
name ends in the duration, device numbers replace pids, flows end anywhere within a microsecond
(device_rows); starts are truncated but durations are not, so children outlast their parents
(two_windows); the Python and C++ rows of a thread do not nest in each other; the root of every
thread in the ``.pb`` is not an event (protobuf).
Classes: Kernel, Memcpy and Memset; device events of another type are unclassified.
Ignored: colours, parents by number (times imply them), allocations of old profiles, old profiles as
text.
Source: paddle/fluid/platform/profiler of PaddlePaddle/Paddle, which writes them.
"""

from __future__ import annotations

from collections.abc import Sequence

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues
from traceconv.core.model import Capture
from traceconv.core.source import Source


class PaddleReader:
    """Reads the timelines of Paddle's profiler, JSON and protobuf."""

    name = "paddle"
    title = "PaddlePaddle profiler"
    files = "*.paddle_trace.json, *.paddle_trace.pb"
    order = 210

    def find(self, source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
        """One capture per process and collection window."""
        from traceconv.readers.paddle.captures import captures

        return captures(source, names, issues)

    def read(self, capture: Capture, build: TraceBuilder) -> None:
        """Put every event into ``build``; see :class:`traceconv.readers.Reader`."""
        from traceconv.readers.paddle.captures import read_file

        build.hints.free_rule = "device"
        build.file = capture.source.title(capture.detail.name)
        read_file(capture, capture.detail, build)


READER = PaddleReader()
