"""Paddle's profiler: the timelines ``export_chrome_tracing`` and ``export_protobuf`` write.

Written by: ``paddle.profiler`` 2.3 to 3.x, files of version 1.0.0 to 1.0.2; seen: 3.3.1, on CPU.
Files: ``<worker>_time_<local time>.paddle_trace.json`` or ``.pb``, one per collection window; both
are known by their first bytes, too. Where both hold one recording, the ``.pb`` is read. Of the
profiler before 2.3: binary ``Profile`` messages of any name, and the timelines that
``tools/timeline.py`` made of them, with a process per trainer.
Units and clock: ``.pb`` in ns, JSON in whole us, both since 1970; the JSON's finer times are
recovered, see :mod:`traceconv.readers.paddle.repair`. Old files in ns, timelines too, which should
be in us.
Rank from: the worker's name ("rank3", "trainer3", "worker3"); a name made of host and process
says none, and no file holds one.
Quirks: printed without escapes, so a quote in a name breaks the JSON (golden case unescaped);
every name ends in the event's duration, numbers of devices are in place of processes, arrows end
anywhere within a microsecond (device_rows); starts are cut and durations are not, so children
outlast their parents (two_windows); a thread is two rows that do not nest in each other; the root
of every thread in the ``.pb`` is no event (protobuf).
Ignored: text reports, timer logs, colours, parents by number (times say the same), allocations of
old profiles, old profiles as text.
Source: paddle/fluid/platform/profiler of PaddlePaddle/Paddle, which writes them.
"""

from __future__ import annotations

from collections.abc import Sequence

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues
from traceconv.core.model import Capture
from traceconv.core.source import Source
from traceconv.readers.shared.windows import read_windows


class PaddleReader:
    """Reads the timelines of Paddle's profiler, JSON and protobuf."""

    name = "paddle"
    title = "PaddlePaddle profiler"
    files = "*.paddle_trace.json, *.paddle_trace.pb"
    order = 210

    def find(self, source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
        """One capture per process, its collection windows in the order of time."""
        from traceconv.readers.paddle.captures import captures

        return captures(source, names, issues)

    def read(self, capture: Capture, build: TraceBuilder) -> None:
        """Put every event into ``build``; see :class:`traceconv.readers.Reader`."""
        from traceconv.readers.paddle.captures import read_file

        build.hints.free_rule = "device"
        windows = ((file.name, file) for file in capture.detail)
        read_windows(capture, build, windows, lambda file: read_file(capture, file, build))


READER = PaddleReader()
