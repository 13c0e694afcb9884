"""Raw event logs: one event per line, as JSON or as a table, of our own schema or of any other.

Written by: people's own loggers (schema: ``schemas/json/raw_event_log.schema.json``);
            ``nsys stats`` (GPU, API and NVTX traces as CSV), ``nvprof --print-gpu-trace --csv``,
            Enter/Leave tables of analysis libraries - these are known by their header row; any
            other log with a mapping (:func:`with_mapping`), lines of text with a pattern.
Files:      any name; JSON lines or CSV, recognised by the first lines. Logs of one rank whose
            names differ in numbers are its windows. JSON lines may begin with
            an object that has ``rawlog``, tables with lines ``# key=value``: unit, clock, rank,
            host.
Units and clock: as the head, the mapping or the header says, else us; digits are taken as they
            are written, beyond the nanosecond half up. Times of ISO 8601 are known as such; those
            in no zone are taken as UTC (``clock-assumed``). ``clock`` says whether stamps are Unix
            time; where nothing does, their size decides.
Rank from:  the record, the mapping, the head, "rank<n>" in the path. A file may hold many ranks.
Quirks:     records come in any order; a begin is ended by the next end of its lane and name
            (golden case ``begin_end``); banners, notices and a row of units may surround a table
            (``nsys_stats``, ``nvprof``); quoted cells hold line ends (``table``).
Ignored:    columns of known tables that are derived from others of the same row.
Source:     ``schemas/json/raw_event_log.schema.json``; the header rows of the tools named above.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues
from traceconv.core.model import Capture
from traceconv.core.source import Source
from traceconv.readers import Reader
from traceconv.readers.shared.windows import read_windows

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
        """One capture per rank in every log; the tables of one nsys report are one log, and files
        that one rank began one after another are its windows."""
        from traceconv.readers.event_log.find import captures

        return captures(source, names, self._mapping, issues)

    def read(self, capture: Capture, build: TraceBuilder) -> None:
        """Put every event of one rank into ``build``; see :class:`traceconv.readers.Reader`."""
        from traceconv.readers.event_log.find import report_of
        from traceconv.readers.event_log.records import batches
        from traceconv.readers.event_log.rows import Rows
        from traceconv.readers.shared.lines import Lines, unheard

        parts: Sequence[Part] = capture.detail
        tables = len({report_of(name, layout) for name, layout in parts}) < len(parts)

        def read(part: Part) -> tuple[int, int] | None:
            first, (name, layout) = build.rows, part
            rows = Rows(build, layout.units)
            report = unheard if layout.by_rank else build.skip
            with capture.source.open(name) as stream:
                for batch in batches(Lines(stream, report), layout):
                    rows.add(batch)
            rows.finish()
            return None if tables else build.span(first)  # tables of a report are no windows

        read_windows(capture, build, ((part[0], part) for part in parts), read)


def with_mapping(text_or_path: str) -> Reader:
    """A reader of logs in a layout of their own.

    Args:
        text_or_path: a mapping (``name=Name,ts=Start (ns):ns,dur=Length,kind='compute'``), a JSON
            file with one, or a preset (nsys-gpu, nsys-api, nsys-nvtx, nvprof-gpu, enter-leave),
            which changes may follow (``nsys-gpu,rank='3'``).

    Raises:
        OptionError: it cannot be understood; the message says which part, and what there is.
        SourceError: the file cannot be read.
    """
    from traceconv.readers.event_log.find import mapping_of

    return EventLogReader(mapping_of(text_or_path))


READER = EventLogReader()
