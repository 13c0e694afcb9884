"""Writers: traces in, bytes out. This module is what all of them, and all that use them, agree on.

A writer is a class; an instance encodes one file, or one rank of it (see :class:`Writer`). What is
written is decided before the first byte, in a :class:`Plan`: one :class:`Part` per file, with the
:class:`Document` in its head and its ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypedDict, runtime_checkable

import msgspec

from traceconv.core.clock import INT64_MAX
from traceconv.core.errors import ClockError, Issues
from traceconv.core.model import I64, Trace, Track

WRITERS = {
    "perfetto": "perfetto", "chrome_json": "chrome", "bundle": "bundle", "text": "text",
    "parquet": "parquet",
}  # fmt: skip
"""Modules with a ``WRITER``, by the format's name."""


REQUIRED = (
    *("name", "title", "suffixes", "between", "member_capacity"),
    *("begin", "trace", "end", "costs"),
)
"""Attributes that the class of a writer must have; see :class:`Writer`."""


def check_times(trace: Trace, base_ns: int, earliest: int = 0) -> None:
    """Refuse time stamps more than ``-earliest`` ns before the base, or too far after it for int64.

    Raises:
        ClockError: there are such.
    """
    span = trace.span() or (base_ns, base_ns)
    if not earliest <= span[0] - base_ns <= span[1] - base_ns <= INT64_MAX:
        raise ClockError(
            f"rank {trace.rank}: times from {span[0]} to {span[1]} ns cannot be counted from "
            f"{base_ns} ns, the base of the trace"
        )


class Across(msgspec.Struct, frozen=True):
    """The same lanes of all ranks side by side, where a viewer shows them so.

    Attributes:
        ranks: in the order of the screen.
        lanes: that any rank has, in the order of the screen; without sub-lanes, and without those
            that stay with their ranks: threads of the host.
    """

    ranks: tuple[int, ...]
    lanes: tuple[Track, ...]


@dataclass(frozen=True)
class Beside:
    """A trace in an archive that is not a rank: bytes that a reader passes on.

    Attributes:
        name:      of the member.
        offset_ns: added to its timestamps to align them with the ranks, which count from the base.
    """

    name: str
    offset_ns: int


@dataclass(frozen=True)
class Document:
    """Facts about the whole output that are known before its first byte is written.

    Attributes:
        base_ns: Unix (or local) time in ns that becomes time 0: subtracted from every timestamp.
        ranks:   all ranks in the output, ascending.
        facts:   metadata of the run for the head of the file (version, mode, clock, issues,
            dropped); JSON values. ``base_ns`` is in it as a decimal string.
        args:    keys of the arguments that are written; None for all, empty for none.
        pids:    per rank, the process id in its capture: two ranks may have the same.
        across:  how tracks are grouped across ranks; None to group them by rank.
        beside:  further members of an archive.
    """

    base_ns: int
    ranks: tuple[int, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    args: frozenset[str] | None = None
    pids: Mapping[int, int] = field(default_factory=dict)
    across: Across | None = None
    beside: tuple[Beside, ...] = ()


@dataclass(frozen=True)
class Costs:
    """Upper bounds of the bytes each row of a trace takes in one format.

    Attributes:
        fixed:    everything that does not depend on which rows are kept: tracks, share of the head.
        events:   int64 per event row, with its names and strings unless ``fixed`` has them.
        counters: int64 per counter row.
        flows:    int64 per flow row.
    """

    fixed: int
    events: I64
    counters: I64
    flows: I64


class Capacity(msgspec.Struct, frozen=True):
    """The largest trace that a viewer opens reliably.

    Attributes:
        max_bytes:  before compression; None = no limit.
        max_events: rows of all kinds; None = no limit.
    """

    max_bytes: int | None = None
    max_events: int | None = None


class Writer(Protocol):
    """An output format.

    Every rank is encoded by a separate instance, after :meth:`begin` with a document without facts,
    possibly in another process. An instance that encodes one rank does not see the others. A file
    consists of the bytes of ``begin``, of all ranks, ascending, and of ``end``.

    Attributes:
        name:     one word, by which users choose the format.
        title:    one line of description.
        suffixes: file name endings, longest first.
        between:  bytes between two ranks that are not empty.
        member_capacity: the most one member of an archive may hold: larger ranks are reduced,
            each alone; None for formats that are one file.
        issues:   data that the format cannot represent exactly; grows while traces are written.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]]
    between: ClassVar[bytes]
    member_capacity: ClassVar[Capacity | None]
    issues: Issues

    def begin(self, document: Document) -> bytes:
        """The bytes before the first rank."""
        ...

    def trace(self, trace: Trace) -> Iterator[bytes]:
        """One rank, in blocks of bounded size.

        Raises:
            ClockError, OutputError: the format cannot represent its times or its number.
        """
        ...

    def end(self) -> bytes:
        """The bytes after the last rank."""
        ...

    def costs(self, trace: Trace, document: Document) -> Costs:
        """The size of the rows of ``trace``; never less than :meth:`trace` will write."""
        ...


@runtime_checkable
class ArchiveWriter(Writer, Protocol):
    """A writer whose files can hold traces besides those of the ranks (``Document.beside``)."""

    def beside(self, member: Beside, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """One of them, after all ranks, in blocks of bounded size."""
        ...


@runtime_checkable
class TableWriter(Writer, Protocol):
    """A format of several files, one for each table of all ranks.

    The class takes the name of a table. One instance writes all ranks of a file, in order.

    Attributes:
        tables: names, which are inserted before the suffix; the first has the name as it is.
        kinds:  the kinds of rows that this file has.
    """

    tables: ClassVar[tuple[str, ...]]
    kinds: tuple[str, ...]


WriterFactory = Callable[..., Writer]
"""Makes a writer for one file or one rank: a writer's class, as a rule. It can be pickled."""


class SpilledRank(Protocol):
    """One rank on disk. It is loaded when it is written, and released afterwards."""

    @property
    def rank(self) -> int:
        """The global rank."""
        ...

    def load(self) -> Trace:
        """The trace."""
        ...

    def release_pages(self) -> None:
        """Free the memory that loading took; pages in use are read again when needed."""
        ...


@dataclass(frozen=True)
class Part:
    """One output file: what its head says, and its ranks, ascending.

    Attributes:
        beside: the content of ``document.beside``, in the same order, as blocks.
    """

    document: Document
    traces: Sequence[SpilledRank]
    beside: tuple[Callable[[], Iterator[bytes]], ...] = ()


class DroppedRows(TypedDict):
    """Rows that the size limit took, as they are reported in JSON.

    ``rank`` is -1 and the texts are empty where a row sums up several others; ``busy_ns`` is the
    time their slices cover, ns.
    """

    rank: int
    layer: str
    heading: str
    track: str
    rows: int
    busy_ns: int
    reason: str


@dataclass(frozen=True)
class Plan:
    """What will be written, decided before the first byte.

    Attributes:
        parts:     the files, in the order of their numbers.
        max_bytes: no part may grow beyond it (before compression); None = no limit.
        predicted: upper bound of all parts' bytes before compression, 0 if not computed.
        issues:    what the size limit costs.
        dropped:   the same by rank, lane and reason.
    """

    parts: tuple[Part, ...]
    max_bytes: int | None = None
    predicted: int = 0
    issues: Issues = field(default_factory=Issues)
    dropped: tuple[DroppedRows, ...] = ()
