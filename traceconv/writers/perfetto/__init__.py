"""Perfetto: one protobuf file of TrackEvents, for ui.perfetto.dev and its trace processor.

*Layout*: see :mod:`~traceconv.writers.perfetto.tracks`. *Time*: nanoseconds since the base,
which is the trace attribute ``traceconv.base_ns``, among the other facts.
*Ranks*: each has its own packet sequence, range of track ids and range of flow ids, all derived
from the rank, so that ranks encoded separately can be concatenated.
*Slices*: a begin and an end each. *Arguments*: typed, strings interned
(:mod:`~traceconv.writers.perfetto.arguments`). *Class* of an event: its category.
*Flows*: viewers draw them from the earlier event to the later, whichever is the source.
*Not written*: the names of flows, for which the format has no field; the collection windows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from traceconv.core.errors import Issues
from traceconv.core.model import Trace
from traceconv.writers import Capacity, Costs, Document, Writer


class PerfettoWriter:
    """Writes one file: packets follow each other, with nothing around them.

    ``issues`` counts arguments that are no JSON, numbers too large, texts that are no UTF-8,
    arguments not selected, samples that are no number.
    """

    name: ClassVar[str] = "perfetto"
    title: ClassVar[str] = "Perfetto trace (protobuf)"
    suffixes: ClassVar[tuple[str, ...]] = (
        ".perfetto-trace.gz",
        ".pftrace.gz",
        ".perfetto-trace",
        ".pftrace",
    )
    between: ClassVar[bytes] = b""
    member_capacity: ClassVar[Capacity | None] = None

    def __init__(self) -> None:
        self.issues = Issues()
        self._document = Document(0, ())

    def begin(self, document: Document) -> bytes:
        from traceconv.writers.perfetto.encoder import head

        self._document = document
        return head(document)

    def trace(self, trace: Trace) -> Iterator[bytes]:
        """One rank, in blocks of bounded size.

        Raises:
            ClockError: a stamp is before the document's base.
            OutputError: the rank or the number of tracks is too large for the format.
        """
        from traceconv.writers.perfetto.encoder import Encoder

        yield from Encoder(self._document, self.issues).trace(trace)

    def end(self) -> bytes:
        """Nothing: the format needs no closing."""
        return b""

    def costs(self, trace: Trace, document: Document) -> Costs:
        """What rows take; reads and encodes their arguments once.

        Raises:
            ClockError, OutputError: as :meth:`trace`.
        """
        from traceconv.writers.perfetto.encoder import costs

        return costs(trace, document)


WRITER: type[Writer] = PerfettoWriter
