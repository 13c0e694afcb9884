"""MLPerf logs: intervals and points in time among the lines of a training script.

Written by: mlperf_logging (``:::MLLOG {...}`` lines); no file of a real run was available.
Files:      any text with such lines; the output of several tasks may be in one file, with the task
            before each line ("3: " of srun, "[1,3]<stdout>:" of mpirun, "[3] ").
Units and clock: ms, Unix time.
Rank from:  the task before the line, else "rank<n>" in the path.
Quirks:     start and end of an interval have different keys ("epoch_start", "epoch_stop") and are
            paired by the part before the underscore, the newest first. Steps are epochs, or blocks
            in logs without epochs.
Ignored:    all other lines; paths of source files.
Source:     https://github.com/mlcommons/logging
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues
from traceconv.core.model import Capture
from traceconv.core.source import Source

_TAG = b":::MLLOG"


class MllogReader:
    """Reads the ``:::MLLOG`` lines of a log."""

    name = "mllog"
    title = "MLPerf log"
    files = "any text with :::MLLOG lines"
    order = 340

    def find(self, source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
        """One capture per task in every log; where a log has tasks, one without is optional."""
        tasks_found: list[Capture] = []
        for name in names:
            if _TAG in source.text_head(name):
                from traceconv.readers.event_log.mllog_lines import captures

                tasks_found += captures(source, name, issues)
        tasks = any(c.rank is not None for c in tasks_found)
        return [replace(c, optional=tasks and c.rank is None) for c in tasks_found]

    def read(self, capture: Capture, build: TraceBuilder) -> None:
        """Read one task; see :class:`traceconv.readers.Reader`."""
        from traceconv.readers.event_log.mllog_lines import read_task

        read_task(capture, build)


READER = MllogReader()
