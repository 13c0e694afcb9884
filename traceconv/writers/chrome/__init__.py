"""Chrome trace-event JSON: read by every trace viewer.

Shape: one object, its ``metadata`` first, so that a file cut short keeps its base of time. Times
are microseconds with exactly three decimals, made from integers, relative to the base: small
enough to be exact as doubles.

Viewers drop flows that run backwards in time, which occur where the clocks of host and device
disagree. Such flows are written from the earlier end to the later, and their name states it.

The format knows two levels. A process is one layer of one rank (``Rank 0 Overlap Analysis``), a
thread is one track, with its group in front (``Group 0 Plane 1``). Numbers follow the rank: rank 3
has the pids 3001, 3002 ... and, after them, its tids; none is used twice in a file, none is 0.

For our own reader, further data is stored where viewers ignore it: the exact track in the arguments
of ``thread_name`` (for counters, too), the class of an event in ``cat``, ``graph`` and ``step`` as
keys of the event.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import ClassVar

from traceconv.core.errors import Issues
from traceconv.core.model import Trace
from traceconv.writers import Capacity, Costs, Document, Writer


class ChromeJsonWriter:
    """Writes one Chrome JSON file. See :class:`traceconv.writers.Writer`."""

    name: ClassVar[str] = "chrome_json"
    title: ClassVar[str] = "Chrome trace-event JSON"
    suffixes: ClassVar[tuple[str, ...]] = (".json.gz", ".json")
    between: ClassVar[bytes] = b","
    member_capacity: ClassVar[Capacity | None] = None

    def __init__(self) -> None:
        self.issues = Issues()
        self._document = Document(0, ())
        self._empty = True

    def begin(self, document: Document) -> bytes:
        from traceconv.writers.arguments import Rewritten, strict_one

        self._document = document
        facts = {"base_ns": str(document.base_ns), **document.facts}
        text = json.dumps(facts, ensure_ascii=False, separators=(",", ":"))
        raw = strict_one(text.encode("utf-8", "replace"), Rewritten())
        return b'{"displayTimeUnit":"ns","metadata":{"traceconv":' + raw + b'},\n"traceEvents":['

    def trace(self, trace: Trace) -> Iterator[bytes]:
        from traceconv.writers.chrome.encoder import Encoder

        for block in Encoder(trace, self._document).blocks(self.issues):
            first, self._empty = self._empty, False
            yield block[1:] if first else block  # the first record has no comma before it

    def end(self) -> bytes:
        return b"\n]}\n"

    def costs(self, trace: Trace, document: Document) -> Costs:
        from traceconv.writers.chrome.encoder import Encoder

        head = len(ChromeJsonWriter().begin(document)) + len(self.end())
        costs = Encoder(trace, document).costs()
        share = -(-head // max(1, len(document.ranks)))
        return Costs(costs.fixed + share, costs.events, costs.counters, costs.flows)


WRITER: type[Writer] = ChromeJsonWriter
