"""Traces set aside on disk between reading and writing.

The base of time and the size limit depend on all ranks, but only one rank's columns shall be in
memory. So every rank is read, worked on, and *parked*: its columns go to an unnamed temporary
file and come back mapped, which costs address space, not memory.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from traceconv.model import Args, CounterTable, EventTable, FlowTable, Strings, Table, Trace
from traceconv.source import temporary_folder

SMALL_BYTES = 1 << 20
"""Traces up to this size stay in memory."""


class Parked:
    """One rank, out of memory. ``load()`` gives it back; ``rest()`` lets its pages go again.

    Attributes:
        rank:   of the trace.
        counts: rows by kind.
        span:   earliest start, latest end; None if it is empty.
        notes:  of the trace (small).
        windows: of the trace.
    """

    def __init__(self, trace: Trace, in_memory: bool = False) -> None:
        self.rank = trace.rank
        self.counts: dict[str, int] = trace.counts()
        self.span = trace.span()
        self.notes: Mapping[str, Any] = trace.notes
        self.windows = trace.windows
        trace = compact(trace)
        self._mapped: mmap.mmap | None = None
        tables = (trace.events, trace.counters, trace.flows)
        if not in_memory and sum(_size(t) for t in tables) > SMALL_BYTES:
            trace, self._mapped = _written(trace)
        self._trace = trace

    def load(self) -> Trace:
        """The trace; its columns are read from disk as they are used."""
        return self._trace

    def rest(self) -> None:
        """Give memory back that :meth:`load` brought in."""
        for buffer in (self._mapped, *self._trace.args.blobs):
            if isinstance(buffer, mmap.mmap):
                buffer.madvise(mmap.MADV_DONTNEED)


def compact(trace: Trace) -> Trace:
    """``trace`` with the strings and arguments its rows refer to, and no others."""
    events, flows = trace.events, trace.flows
    names, back = np.unique(np.concatenate((events.name, flows.name)), return_inverse=True)
    back = back.astype(np.int32)
    args, kept = _used_args(trace.args, events.args)
    return replace(
        trace,
        strings=Strings(trace.strings[i] for i in names.tolist()),
        events=events.with_columns(name=back[: len(events)], args=kept),
        flows=flows.with_columns(name=back[len(events) :]),
        args=args,
    )


def _used_args(args: Args, column: Any) -> tuple[Args, Any]:
    used = np.zeros(len(args) + 1, bool)
    used[column] = True  # -1 marks the extra last one
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


def _size(table: Table) -> int:
    return sum(column.nbytes for column in table.columns().values())


def _written(trace: Trace) -> tuple[Trace, mmap.mmap]:
    """The trace with columns mapped from a temporary file that has no name any more."""
    file = tempfile.TemporaryFile(prefix="traceconv-", dir=temporary_folder())  # noqa: SIM115
    with file:
        places: list[tuple[int, Any]] = []
        for column in _columns(trace):
            file.write(b"\0" * (-file.tell() % 8))
            places.append((file.tell(), column.dtype))
            file.write(np.ascontiguousarray(column).view(np.uint8).data)
        file.flush()
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    sizes = [len(column) for column in _columns(trace)]
    views = iter(
        [
            np.frombuffer(mapped, t, n, at) if n else np.empty(0, t)
            for (at, t), n in zip(places, sizes, strict=True)
        ]
    )
    back = replace(
        trace,
        events=EventTable(**{n: next(views) for n in EventTable.COLUMNS}),
        counters=CounterTable(**{n: next(views) for n in CounterTable.COLUMNS}),
        flows=FlowTable(**{n: next(views) for n in FlowTable.COLUMNS}),
        args=replace(trace.args, address=next(views), length=next(views)),
    )
    return back, mapped


def _columns(trace: Trace) -> list[Any]:
    tables: tuple[Table, ...] = (trace.events, trace.counters, trace.flows)
    columns = [c for t in tables for c in t.columns().values()]
    return [*columns, trace.args.address, trace.args.length]
