"""A reader, a writer, a rule and a table in one package. tictoc: a line per event - start, length,
name.

Written by: an example, no real tool
Files:      ``*.tictoc``, one per rank.
Units and clock: ns, on an unknown clock.
Rank from:  "rank<n>" in the path.
Quirks:     a line that is no event is counted and left out.
Ignored:    empty lines.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from traceconv.plugin import (
    Capacity,
    Capture,
    Case,
    Column,
    Columns,
    Costs,
    Document,
    Issues,
    Known,
    Layer,
    Limit,
    Limits,
    Ranked,
    Rule,
    Severity,
    Source,
    Table,
    Trace,
    TraceBuilder,
    each_rank,
    stacked,
)

TORN = "tictoc-torn-line"
Issues.register("tictoc", TORN, Severity.LOSS, "A line is no event and was left out.")

LEFT_OUT = "tictoc-left-out"
Issues.register("tictoc", LEFT_OUT, Severity.LOSS, "A table of slices has no counters and arrows.")


class LogReader:
    """Reads one file per rank. See :class:`traceconv.plugin.Reader`."""

    name = "tictoc"
    title = "tictoc log"
    files = "*.tictoc"
    order = 50  # before readers that take any text

    def find(self, source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
        """A capture for each of our files. Events are not read here."""
        return [
            Capture(self.name, source, (name,), label=source.title(name))
            for name in names
            if name.endswith(".tictoc")
        ]

    def read(self, capture: Capture, build: TraceBuilder) -> None:
        """Every line of the file."""
        (name,) = capture.files
        build.file = capture.source.title(name)
        thread = build.track(Layer.HOST, "Thread 1")
        for number, line in enumerate(capture.source.read(name).splitlines(), 1):
            if not line.strip():
                continue
            try:
                start, length, title = line.split(maxsplit=2)
                begin_ns, long_ns = int(start), int(length)
                if begin_ns < 0 or long_ns < 0:
                    raise ValueError
            except ValueError:
                build.seen("slice")
                build.skip(TORN, f"line {number}", kind="slice")
                continue
            build.slice(thread, begin_ns, long_ns, title.decode(errors="replace"))


class SliceWriter:
    """A table of slices and instants, a row each. See :class:`traceconv.plugin.Writer`."""

    name: ClassVar[str] = "tictoc"
    title: ClassVar[str] = "table of slices (CSV)"
    suffixes: ClassVar[tuple[str, ...]] = (".slices.csv",)
    between: ClassVar[bytes] = b""
    member_capacity: ClassVar[Capacity | None] = None

    def __init__(self) -> None:
        self.issues = Issues()
        self._base_ns = 0

    def begin(self, document: Document) -> bytes:
        """The headings."""
        self._base_ns = document.base_ns
        return b"rank,lane,start_ns,dur_ns,name\r\n"

    def trace(self, trace: Trace) -> Iterator[bytes]:
        """The rows of a rank, a thousand at a time."""
        rows = list(self._rows(trace))
        for first in range(0, len(rows), 1000):
            yield b"".join(rows[first : first + 1000])
        left_out = len(trace.counters) + len(trace.flows)
        self.issues.add(LEFT_OUT, count=left_out, rank=trace.rank)

    def end(self) -> bytes:
        """Nothing: the last row is the end."""
        return b""

    def costs(self, trace: Trace, document: Document) -> Costs:
        """The length of every row; what is left out costs nothing."""
        self._base_ns = document.base_ns
        rows = np.fromiter(map(len, self._rows(trace)), np.int64, len(trace.events))
        counters = np.zeros(len(trace.counters), np.int64)
        return Costs(
            len(self.begin(document)), rows, counters, np.zeros(len(trace.flows), np.int64)
        )

    def _rows(self, trace: Trace) -> Iterator[bytes]:
        events = trace.events
        for row in range(len(events)):
            track = trace.tracks[events.track[row]]
            start = int(events.start_ns[row]) - self._base_ns
            cells = (trace.rank, track.title or track.name, start, int(events.dur_ns[row]))
            line = io.StringIO()
            csv.writer(line).writerow((*cells, trace.strings[events.name[row]]))
            yield line.getvalue().encode("utf-8", "backslashreplace")


READER = LogReader()


def longest(trace: Trace) -> Known | None:
    """The longest event of a rank, and the time from the first event to the last, ns."""
    events = trace.events.take(trace.rows_of(Layer.HOST))  # without the lanes that are derived
    if not len(events):
        return None
    row = int(events.dur_ns.argmax())
    return {
        "name": trace.strings[int(events.name[row])],
        "longest_ns": int(events.dur_ns[row]),
        "span_ns": int(events.end_ns.max() - events.start_ns.min()),
    }


def dominating(rank: int, known: Known, limits: Limits) -> Iterator[Case]:
    """A case if one event takes most of the time of its rank."""
    percent = 100 * known["longest_ns"] / max(known["span_ns"], 1)
    if percent > limits[""]:
        figures = {"longest_ns": known["longest_ns"]}
        yield Case(rank, percent, figures, where=known["name"])


RULE = Rule(
    "tictoc-long-event",
    "One event takes most of the time",
    "host",
    "share of the longest event in the time of its rank",
    (Limit(50.0, "%", "chosen here"),),
    "events",
    "Split the work that this event stands for.",
    longest,
    each_rank(dominating),
)


def times(trace: Trace) -> Columns:
    """The name and the length of every event."""
    events = trace.events.take(trace.rows_of(Layer.HOST))
    names = np.array([trace.strings[name] for name in events.name.tolist()], object)
    return {"Name": names, "Time(ns)": events.dur_ns}


def all_times(ranked: Ranked) -> Columns:
    """The rows of all ranks below each other, with the rank of each."""
    return stacked(ranked)


TABLE = Table(
    "tictoc",
    "Events of tictoc",
    "Every event with its name and its length.",
    "events",
    Column.parse("Rank, Name:text, Time(ns)"),
    times,
    all_times,
    capped=True,
)
