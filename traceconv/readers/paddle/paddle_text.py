"""Paddle's printed reports: the tables of ``profiler.summary()`` and logs with ``timer_only=True``.

Written by: ``paddle.profiler`` 2.3 to 3.x, to standard output; seen: 3.3.1, on CPU.
Files:      any text whose beginning holds a section of the report, a "Perf Summary" or a line with
            reader_cost, batch_cost and ips; other lines of the program are between.
Units and clock: the unit the report names (ms by default); timer logs in s. No stamps at all.
Rank from:  nothing names one.
Quirks:     columns are as wide as the rules above and below the headings, names are cut to fit;
            numbers are rounded to the report's two decimals; the section of user ranges has no
            closing rule; an overview holds a second table under the same title.
Ignored:    notes, and everything that is no table: nothing has a time, so the trace is empty and
            all is in the side tables ``paddle_summary``, ``paddle_timer`` and ``paddle_timer_log``.
Source:     python/paddle/profiler/profiler_statistic.py and timer.py of PaddlePaddle/Paddle.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues, SourceError
from traceconv.core.model import Capture
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source

if TYPE_CHECKING:
    pass

MAX_LINES = 1_000_000
"""Longer logs are refused: the tables of a report are kept in memory."""

_SIGNS = lazy_regex(
    rb"(?<!-)-{5,}+(?:Device|Overview|Model|Distribution|Operator|Kernel|Memory Manipulation"
    rb"|UserDefined|Memory) Summary-{5,}|(?<!=)={20,}+Perf Summary={20,}"
    rb"|batch_cost: \d+\.\d+ s ips: \d"
)
TEXTS = {
    "paddle_summary": ("Section", "Thread", "Name"),
    "paddle_timer": ("Measure", "Unit"),
    "paddle_timer_log": ("Prefix", "Unit"),
}
"""The side tables, and their columns of text."""


class PaddleTextReader:
    """Reads the reports and timer logs Paddle's profiler prints."""

    name = "paddle_text"
    title = "PaddlePaddle profiler: printed summary, timer log"
    files = "any text with a profiler summary or reader_cost/batch_cost lines"
    order = 335
    shown = "the tables of Paddle below"

    def find(self, source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
        """One capture per log, optional: its rank is unknown where timelines are found, too."""
        return [
            Capture(
                reader=self.name,
                source=source,
                files=(name,),
                label=source.title(name),
                optional=True,
            )
            for name in names
            if _SIGNS.search(source.text_head(name))
        ]

    def read(self, capture: Capture, build: TraceBuilder) -> None:
        """Put the tables into side tables; see :class:`traceconv.readers.Reader`."""
        from traceconv.readers.paddle.printed_report import Report
        from traceconv.readers.shared.csv_tables import table
        from traceconv.readers.shared.lines import Lines

        name = capture.files[0]
        build.file = capture.source.title(name)
        report = Report()
        with capture.source.open(name) as stream:
            lines = Lines(stream, build.skip)
            for first_number, block in lines.blocks():
                if first_number > MAX_LINES:
                    raise SourceError(f"{build.file}: more than {MAX_LINES} lines, refused")
                for number, line in enumerate(block, first_number):
                    report.take(number, line)
        if lines.unended:
            build.skip("truncated", f"line {lines.unended}")
        if report.odd:
            build.skip("malformed-record", f"line {report.odd[0]}", len(report.odd))
        for side_table, rows in report.side_tables().items():
            columns = table(rows, build.skip, text=TEXTS[side_table])
            build.side_table(side_table, build.file, partial(dict, columns))


READER = PaddleTextReader()
