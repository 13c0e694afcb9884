"""Raw event logs: one event per line, as JSON or in a table, of our own schema or any other.

Written by: custom loggers (schema: ``schemas/json/raw_event_log.schema.json``); ``nsys stats``
            (GPU, API and NVTX traces as CSV), ``nvprof --print-gpu-trace --csv`` and Enter/Leave
            tables of analysis libraries, all recognised by their header; any other log with a
            mapping (:func:`with_mapping`); lines of text with a pattern.
Files:      any name; JSON lines or CSV, recognised by the first lines. Logs of one rank whose
            names differ in numbers are its windows. A first JSON object with ``rawlog``, or lines
            ``# key=value`` before a table, state unit, clock, rank and host.
Units and clock: from the head, the mapping or the header, else us; decimal digits are exact, and
            rounded half up to ns. ISO 8601 times are recognised; those without a zone are taken as
            UTC (``clock-assumed``). ``clock`` says whether stamps are Unix time; else their size.
Rank from:  the record, the mapping, the head, "rank<n>" in the path. A file may hold many ranks.
Quirks:     records are in any order; the next end of the same lane and name ends a begin (golden
            case ``begin_end``); banners, notices and a row of units may surround a table
            (``nsys_stats``, ``nvprof``); quoted cells contain line ends (``table``).
Ignored:    columns of known tables that are derived from other columns.
Source:     ``schemas/json/raw_event_log.schema.json``; the header rows of the tools named above.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues, MalformedInputError
from traceconv.core.model import Capture
from traceconv.core.source import Source
from traceconv.readers import Reader

if TYPE_CHECKING:
    from traceconv.readers.event_log.find import Part
    from traceconv.readers.event_log.mapping import Mapping


class EventLogReader:
    """Reads raw event logs.

    Args:
        mapping: the user's; None: our schema and the known tables.
    """

    name = "event_log"
    title = "Raw event logs: JSON lines, CSV, lines of text, nsys stats, nvprof"
    files = "*.jsonl, *.csv (the first lines tell)"
    order = 400

    def __init__(self, mapping: Mapping | None = None) -> None:
        self._mapping = mapping
        if mapping is not None:
            self.order = 50  # before all others: the user named the format
            self.files = f"logs with {', '.join(mapping.required())}"

    def find(self, source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
        """One capture per rank in every log; the tables of an nsys report are one log, and the
        files of a rank's rotating log its windows."""
        from traceconv.readers.event_log.find import captures

        return captures(source, names, self._mapping, issues)

    def read(self, capture: Capture, build: TraceBuilder) -> None:
        """Put every event of one rank into ``build``; see :class:`traceconv.readers.Reader`."""
        from traceconv.readers.event_log.find import report_of
        from traceconv.readers.event_log.records import batches
        from traceconv.readers.event_log.rows import EventRows
        from traceconv.readers.shared.lines import Lines, unheard

        logs: Sequence[Part] = capture.detail
        tables = len({report_of(name, layout) for name, layout in logs}) < len(logs)
        failures: list[MalformedInputError] = []
        for name, layout in logs:
            build.file, first_row = capture.source.title(name), build.rows
            rows = EventRows(build, layout.units)
            report = unheard if layout.by_rank else build.skip
            try:
                with capture.source.open(name) as stream:
                    for batch in batches(Lines(stream, report), layout):
                        rows.add(batch)
                rows.finish()
            except MalformedInputError as e:
                failures.append(e)
                build.skip("malformed-record", str(e)[:200])
                continue
            # tables of a report are not windows, the files of a log are
            if len(logs) > 1 and not tables and (span := build.span(first_row)):
                build.window(*span)
        if len(failures) == len(logs):
            raise failures[0]


def with_mapping(text_or_path: str) -> Reader:
    """A reader of logs in any layout.

    Args:
        text_or_path: a mapping (``name=Name,ts=Start (ns):ns,dur=Length,kind='compute'``), a JSON
            file with one, or a preset (nsys-gpu, nsys-api, nsys-nvtx, nvprof-gpu, enter-leave),
            which changes may follow (``nsys-gpu,rank='3'``).

    Raises:
        OptionError: it is invalid; the message names the part and the valid choices.
        SourceError: the file cannot be read.
    """
    from traceconv.readers.event_log.find import mapping_of

    return EventLogReader(mapping_of(text_or_path))


READER = EventLogReader()
