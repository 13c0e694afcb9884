"""Ranks spilled to disk between reading and writing.

The base of time, the clocks and the size limit depend on all ranks, but only one rank's columns
should be in memory. So every rank is read, processed, and *spilled*: written to a separate file
(:mod:`.rank_file`), which is mapped where it is needed, in this process or another.
The :class:`RankAccount` of every rank stays in memory.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakSet

import msgspec
import numpy as np

from traceconv.alignment.collective_records import CollectiveRecords
from traceconv.core.columns import OverlapSums
from traceconv.core.errors import Issues
from traceconv.core.model import (
    I64,
    Args,
    Capture,
    Coverage,
    EventTable,
    Hints,
    Ledger,
    Present,
    StepTable,
    Strings,
    Trace,
    Track,
    no_windows,
)
from traceconv.scratch.memory import release_pages
from traceconv.store.rank_file import RankFile, save

SMALL_BYTES = 1 << 20
"""Arguments up to this size are copied together."""

MARGIN_NS = 1_000
"""Clocks that drift move a span of time by a rounded length."""

Change = Callable[[Trace], Trace]
Place = tuple[int, int | None]


class RankAccount(msgspec.Struct, frozen=True):
    """The facts about a spilled rank that a merge keeps in memory; all of them are small.

    Attributes:
        capture: of the trace.
        counts:  rows by kind.
        span:    earliest start, latest end; None if it is empty.
        tracks:  tracks with rows.
        tables:  names of its side tables.
        hints, present, steps, coverage, overlap, notes, windows, issues, ledger: of the trace.
    """

    capture: Capture
    counts: Mapping[str, int] = msgspec.field(default_factory=dict)
    span: tuple[int, int] | None = None
    tracks: tuple[Track, ...] = ()
    tables: tuple[str, ...] = ()
    hints: Hints = msgspec.field(default_factory=Hints)
    present: Present = msgspec.field(default_factory=Present)
    steps: StepTable = msgspec.field(default_factory=StepTable.empty)
    coverage: Coverage = msgspec.field(default_factory=Coverage)
    overlap: OverlapSums | None = None
    notes: Mapping[str, Any] = msgspec.field(default_factory=dict)
    windows: I64 = msgspec.field(default_factory=no_windows)
    issues: Issues = msgspec.field(default_factory=Issues)
    ledger: Ledger = msgspec.field(default_factory=dict)

    @classmethod
    def of(cls, trace: Trace) -> RankAccount:
        """The account of ``trace``."""
        return cls(
            trace.capture,
            trace.counts(),
            trace.span(),
            tuple(trace.tracks[i] for i in np.flatnonzero(trace.used).tolist()),
            tuple(trace.side_tables),
            trace.hints,
            trace.present,
            trace.steps,
            trace.coverage,
            trace.overlap,
            trace.notes,
            trace.windows,
            trace.issues,
            trace.ledger,
        )

    def changed(self, change: Change) -> RankAccount:
        """The account of the rank after ``change``, which does nothing but move it in time."""
        spans = np.array([self.span] if self.span else [], np.int64).reshape(-1, 2)
        low, high = spans.T
        outline = Trace(
            self.capture,
            events=EventTable.filled(low, high - low, track=0, name=0),
            windows=self.windows,
            steps=self.steps,
            coverage=self.coverage,
        )
        moved = change(outline)
        return msgspec.structs.replace(
            self,
            span=moved.span(),
            capture=moved.capture,
            windows=moved.windows,
            steps=moved.steps,
            coverage=moved.coverage,
        )


class SpilledRank:
    """One rank on disk. ``load()`` returns its trace; ``release_pages()`` frees the memory.

    It is sent to other processes as its path and its pending changes.

    Args:
        place: first byte and length of the part of the file that it is in; None for all.
    """

    def __init__(
        self, path: Path | str, changes: tuple[Change, ...] = (), place: Place | None = None
    ) -> None:
        self.path, self._changes, self._place = Path(path), changes, place or (0, None)
        self._mapped: WeakSet[mmap.mmap] = WeakSet()

    def __reduce__(self) -> Any:
        return SpilledRank, (self.path, self._changes, self._place)

    @property
    def _file(self) -> RankFile:
        return RankFile(self.path, *self._place)

    @cached_property
    def account(self) -> RankAccount:
        """The account of the rank, with its changes applied."""
        account = RankAccount(**self._file.account())
        for change in self._changes:
            account = account.changed(change)
        return account

    @property
    def in_memory(self) -> bool:
        """Whether it stays in memory and has no file."""
        return False

    @property
    def rank(self) -> int:
        """The global rank."""
        assert self.account.capture.rank is not None, "ranks are resolved before reading"
        return self.account.capture.rank

    def load(self, args: bool = True) -> Trace:
        """The trace; its columns are read from disk as they are used.

        Args:
            args: False leaves the arguments of a packed rank empty.

        Raises:
            SourceError: its file, or the input its arguments are in, is not what it was.
        """
        trace, mapped = self._file.load(args)
        self._mapped.update(mapped)
        return self._changed(trace)

    def load_within(self, start_ns: int | None, end_ns: int | None) -> Trace:
        """At least what touches a window of time, ns on the clock after all changes; None = open.

        Rows that are left out of a packed rank are counted as ``select-time``.

        Raises:
            SourceError: as :meth:`load`.
        """
        bounds = self._file.block_bounds()
        if bounds is None:
            return self.load()
        low, high = bounds
        spans = EventTable.filled(low, high - low, track=0, name=0)
        moved = self._changed(Trace(self.account.capture, events=spans)).events
        low, high = moved.start_ns, moved.end_ns  # as the changes move them
        needed = np.ones(len(low), bool)
        if start_ns is not None:
            needed &= high >= start_ns - MARGIN_NS
        if end_ns is not None:
            needed &= low <= end_ns + MARGIN_NS
        return self._changed(self._file.load_blocks(needed))

    def _changed(self, trace: Trace) -> Trace:
        for change in self._changes:
            trace = change(trace)
        return trace

    def collective_records(self) -> CollectiveRecords:
        """The collectives of the rank before it was narrowed to a view, on its own clock."""
        return self._file.collective_records()

    def release_pages(self) -> None:
        """Free the memory of traces from :meth:`load`; pages in use are read again when needed."""
        for buffer in self._mapped:
            release_pages(buffer)

    def changed(self, change: Change) -> SpilledRank:
        """This rank as ``change``, which moves it in time, makes it whenever it is loaded."""
        return SpilledRank(self.path, (*self._changes, change), self._place)


class InMemoryRank(SpilledRank):
    """A rank that stays in memory: where there is only one, and no other to compare it with."""

    def __init__(self, trace: Trace, changes: tuple[Change, ...] = ()) -> None:
        super().__init__("", changes)
        self._trace = trace if changes else compact(trace)

    @property
    def in_memory(self) -> bool:
        return True

    @cached_property
    def account(self) -> RankAccount:
        return RankAccount.of(self.load())

    def load(self, args: bool = True) -> Trace:
        return self._changed(self._trace)

    def load_within(self, start_ns: int | None, end_ns: int | None) -> Trace:
        return self.load()

    def collective_records(self) -> CollectiveRecords:
        return CollectiveRecords.none(self.rank)

    def release_pages(self) -> None:
        """Only the pages of mapped input are released."""
        for buffer in self._trace.args.blobs:
            if isinstance(buffer, mmap.mmap):
                release_pages(buffer)

    def changed(self, change: Change) -> InMemoryRank:
        return InMemoryRank(self._trace, (*self._changes, change))


def rank_path(folder: Path, rank: int) -> Path:
    """The file in ``folder`` that a rank is spilled to."""
    return folder / f"rank-{rank}.spilled"


def spill(
    trace: Trace, collective_records: CollectiveRecords, path: Path, alone: bool = False
) -> SpilledRank:
    """Write ``trace`` to the file ``path``, which appears when it is complete.

    Args:
        collective_records: of the rank before it was narrowed to a view.
        alone: the file needs no other: arguments are copied from the input.

    Raises:
        OutputError: it cannot be written.
    """
    save(path, compact(trace), collective_records, alone)
    return SpilledRank(path)


def compact(trace: Trace) -> Trace:
    """``trace`` with the strings and arguments its rows refer to, and no others."""
    events, flows = trace.events, trace.flows
    used = np.zeros(len(trace.strings), bool)
    used[events.name] = True
    used[flows.name] = True
    args, arg_ids = _used_args(trace.args, events.args)
    events = events.with_columns(args=arg_ids)
    if used.all():
        return replace(trace, events=events, args=args)
    number = np.cumsum(used, dtype=np.int32) - np.int32(1)
    return replace(
        trace,
        strings=Strings(map(trace.strings.__getitem__, np.flatnonzero(used).tolist())),
        events=events.with_columns(name=number.take(events.name)),
        flows=flows.with_columns(name=number.take(flows.name)),
        args=args,
    )


def _used_args(args: Args, column: Any) -> tuple[Args, Any]:
    used = np.zeros(len(args) + 1, bool)
    used[column] = True  # -1 sets the extra last one
    used[-1] = False
    if used[:-1].all() and len(args):
        return args, column
    number = np.cumsum(used, dtype=np.int32) - np.int32(1)
    number[-1] = -1
    ids = np.flatnonzero(used)
    length = args.length[ids]
    if int(length.sum()) <= SMALL_BYTES:
        small, _ = Args().extended([args.raw(i) for i in ids.tolist()])
        return small, number[column]
    return Args(args.blobs, args.address[ids], length), number[column]
