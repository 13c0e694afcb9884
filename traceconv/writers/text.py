"""A trace as plain text, for people, for ``diff`` and for tests.

One line per row, grouped by track, in screen order; equal traces give equal text whatever they
were read from. Times are nanoseconds since the base; names are JSON strings; what is absent is
left out::

    rank 0
      track "Ascend Hardware" "" "Stream 3" layer=device
        1500 +820 "MatMul" compute graph=1 step=2 {"Task Type":"AI_CORE"}
        2400 ! "mark" other
      track "Counters" "HBM 0" "Read" layer=counter unit="MB/s"
        1500 = 12.5
      flows
        "HostToDevice" "CANN" "" "Thread 7"@100 "launch" -> "Ascend Hardware" ...@1500 "MatMul"

``+`` is a duration, ``!`` an instant, ``=`` the value of a counter. The metadata of the run
(version, clock, issues) is not written: it is not part of the trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from traceconv.core.errors import Issues
from traceconv.core.model import Trace
from traceconv.writers import Capacity, Costs, Document, Writer


class TextWriter:
    """Writes one text file. See :class:`traceconv.writers.Writer`."""

    name: ClassVar[str] = "text"
    title: ClassVar[str] = "plain text, one line per event"
    suffixes: ClassVar[tuple[str, ...]] = (".txt",)
    between: ClassVar[bytes] = b""
    member_capacity: ClassVar[Capacity | None] = None

    def __init__(self) -> None:
        self.issues = Issues()
        self._document = Document(0, ())

    def begin(self, document: Document) -> bytes:
        self._document = document
        ranks = " ".join(map(str, document.ranks))
        return f"traceconv text 1\nbase_ns {document.base_ns}\nranks {ranks}\n".encode()

    def trace(self, trace: Trace) -> Iterator[bytes]:
        from traceconv.writers.text_lines import Lines

        yield b"\nrank %d\n" % trace.rank
        lines = Lines(trace, self._document)
        for number, track in enumerate(trace.tracks):
            yield from lines.of_track(number, track)
        yield from lines.arrows()
        self.issues.add("args-dropped", count=lines.tally.filtered, rank=trace.rank)

    def end(self) -> bytes:
        return b""

    def costs(self, trace: Trace, document: Document) -> Costs:
        from traceconv.writers.text_lines import Lines

        head = len(TextWriter().begin(document))
        costs = Lines(trace, document).costs()
        return Costs(costs.fixed + head, costs.events, costs.counters, costs.flows)


WRITER: type[Writer] = TextWriter
