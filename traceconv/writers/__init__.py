"""Writers: traces in, bytes out. This module holds what they all agree on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from traceconv.core.clock import INT64_MAX
from traceconv.core.errors import ClockError, Issues
from traceconv.core.model import I64, Trace

WRITERS = {"perfetto": "perfetto", "chrome_json": "chrome", "bundle": "bundle", "text": "text"}
"""Modules that hold a ``WRITER``, by the format's name."""


def check_times(trace: Trace, base_ns: int, earliest: int = 0) -> None:
    """Refuse stamps more than ``-earliest`` ns before the base, or too far behind it for int64.

    Raises:
        ClockError: there are such.
    """
    span = trace.span() or (base_ns, base_ns)
    if not earliest <= span[0] - base_ns <= span[1] - base_ns <= INT64_MAX:
        raise ClockError(
            f"rank {trace.rank}: times from {span[0]} to {span[1]} ns cannot be counted from "
            f"{base_ns} ns, the base of the trace"
        )


@dataclass(frozen=True)
class Document:
    """What is known of the whole output before its first byte.

    Attributes:
        base_ns: Unix (or local) nanosecond that becomes time 0: every stamp is written minus this.
        ranks:   all ranks in the output, ascending.
        facts:   the trace metadata document of the product (version, mode, clock, issues, dropped);
            JSON values. ``base_ns`` stands there as a decimal string.
        args:    which arguments travel: None for all, else the wanted keys (empty = none).
        pids:    per rank, the process its capture names: two ranks may name one.
    """

    base_ns: int
    ranks: tuple[int, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    args: frozenset[str] | None = None
    pids: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Costs:
    """Upper bounds of the bytes each row of a trace takes in one format.

    Attributes:
        fixed:    everything that does not depend on which rows are kept: tracks, header share.
        events:   int64 per event row (names and strings counted at every use, or on top).
        counters: int64 per counter row.
        flows:    int64 per flow row.
    """

    fixed: int
    events: I64
    counters: I64
    flows: I64


class Writer(Protocol):
    """What an output format brings.

    Every rank is encoded by an instance of its own, after :meth:`begin` with a document without
    facts, maybe in another process; ranks know nothing of each other. The bytes of a file are
    those of ``begin`` and all ranks, ascending, and of ``end``.

    Attributes:
        name:     one word, the ``--to`` value.
        title:    one line for people.
        suffixes: file name endings, longest first.
        between:  what stands between two ranks that wrote anything.
    """

    name: str
    title: str
    suffixes: tuple[str, ...]
    between: bytes

    def begin(self, document: Document) -> bytes:
        """What stands before the first trace."""
        ...

    def trace(self, trace: Trace) -> Iterator[bytes]:
        """One rank, in blocks of bounded size."""
        ...

    def end(self) -> bytes:
        """What closes the file."""
        ...

    def costs(self, trace: Trace, document: Document) -> Costs:
        """What the rows of ``trace`` take; never less than :meth:`trace` will write."""
        ...


class SpilledRank(Protocol):
    """One rank set aside. It is loaded when its turn comes, and forgotten afterwards."""

    @property
    def rank(self) -> int:
        """The global rank."""
        ...

    def load(self) -> Trace:
        """The trace."""
        ...


@dataclass(frozen=True)
class Part:
    """One output file: what stands in its head, and its ranks, ascending."""

    document: Document
    traces: Sequence[SpilledRank]


@dataclass(frozen=True)
class Plan:
    """What will be written, settled before the first byte.

    Attributes:
        parts:     the files, in the order of their numbers.
        max_bytes: no part may grow beyond it (before compression); None = no limit.
        predicted: upper bound of all parts' bytes before compression, 0 if not computed.
        issues:    what the size limit costs.
        dropped:   the same by rank and lane: JSON values.
    """

    parts: tuple[Part, ...]
    max_bytes: int | None = None
    predicted: int = 0
    issues: Issues = field(default_factory=Issues)
    dropped: tuple[Mapping[str, Any], ...] = ()
