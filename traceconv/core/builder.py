"""How readers make a trace: batches of columns in, one frozen ``core.model.Trace`` out.

The batch interface (:meth:`TraceBuilder.extend`, :meth:`~TraceBuilder.counters`,
:meth:`~TraceBuilder.flows`) is the normal way; the single-event methods are for formats that
are small by nature.

Accounts: a reader says what it *saw* (:meth:`~TraceBuilder.seen`) and what it could not keep
(:meth:`~TraceBuilder.skip`); :meth:`~TraceBuilder.finish` checks that the rest is in the trace.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Collection
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from traceconv.core.clock import INT64_MAX
from traceconv.core.columns import BLOB_BITS, OFFSET_MASK
from traceconv.core.errors import Issues
from traceconv.core.hints import Hints
from traceconv.core.intervals import union
from traceconv.core.model import (
    I64,
    KINDS,
    Args,
    Capture,
    CounterTable,
    EventTable,
    FlowTable,
    Kind,
    Layer,
    Mask,
    OpClass,
    Strings,
    Trace,
    Track,
    arranged,
)
from traceconv.core.robust import FAR_NS, far_from, usual_range
from traceconv.core.side_tables import Columns, SideTable
from traceconv.core.source import RecordedSource
from traceconv.scratch.memory import ReadMapping, give_back
from traceconv.scratch.temporary import temporary_file

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

FARTHEST_NS = 2**62 - 1
"""No clock shows 146 years; and nearer stamps can be subtracted without leaving int64."""

SPILL_AFTER = 4 << 20
"""Bytes of arguments kept in memory before they are written to a temporary file."""


class TraceBuilder:
    """Collects one rank's events.

    ``file`` is the name issues are counted under; a reader sets it whenever it opens another file.
    ``hints`` is what passes decide by (:class:`~traceconv.core.hints.Hints`); ``notes`` is for
    display only.
    ``comm_words`` are the user's own words for kernels that communicate (lower case).
    """

    def __init__(self, capture: Capture, issues: Issues | None = None) -> None:
        self.capture = capture
        self.issues = issues if issues is not None else Issues()
        self.strings = Strings()
        self.file = capture.files[0] if capture.files else capture.label
        self.hints = Hints()
        self.notes: dict[str, Any] = {}
        self._side_tables: dict[str, SideTable] = {}
        self.comm_words: tuple[str, ...] = ()
        self._tracks: dict[Track, int] = {}
        self._events: list[EventTable] = []
        self._counters: list[CounterTable] = []
        self._flows: list[FlowTable] = []
        self._rows = 0
        self._seen: Counter[str] = Counter()
        self._lost: Counter[str] = Counter()
        self._windows: list[tuple[int, int]] = []
        self._blobs: list[Any] = [b""]  # blob 0 is the spill
        self._spill = Spill()
        self._address: list[I64] = []
        self._length: list[NDArray[np.int32]] = []
        self._args = 0

    @classmethod
    def of_rank(cls, rank: int, label: str = "") -> TraceBuilder:
        """For a trace that is made in Python and read from nothing; see :func:`traceconv.write`.

        Args:
            label: how reports and messages call it; "" for ``rank 3``.
        """
        label = label or f"rank {rank}"
        return cls(Capture("python", RecordedSource(label, {}), (), rank=rank, label=label))

    # -- names, tracks, arguments ---------------------------------------------------------

    def track(
        self,
        layer: Layer | str,
        name: str,
        group: str = "",
        title: str = "",
        sort: int = 0,
        unit: str | None = None,
        **identity: Any,
    ) -> int:
        """The number of a track, new or known, for use in ``track=`` columns.

        Args:
            identity: further fields of :class:`~traceconv.core.model.Track`: ``device=3``.
        """
        return self.add_track(Track(Layer(layer), name, group, title, sort, unit, **identity))

    def add_track(self, track: Track) -> int:
        """The number of ``track``, new or known."""
        return self._tracks.setdefault(track, len(self._tracks))

    def string(self, value: str) -> int:
        """The id of a string, for ``name=`` columns."""
        return self.strings.intern(value)

    def attach(self, buffer: Any) -> int:
        """Make a whole buffer (a mapped input) addressable; returns the address of its start.

        The buffer must stay readable until the trace is written.
        """
        self._blobs.append(buffer)
        return (len(self._blobs) - 1) << BLOB_BITS

    def args_at(self, address: I64, length: NDArray[np.int32]) -> int:
        """Register JSON objects that are in attached buffers; the id of the first.

        Args:
            address: int64, start of a buffer (from :meth:`attach`) plus offset.
            length:  int32, bytes.
        """
        first_id = self._args
        self._address.append(np.asarray(address, np.int64))
        length = np.asarray(length, np.int32)
        # a view would keep what it is of, which no limit on memory would hold for
        self._length.append(length if length.flags.owndata else length.copy())
        self._args += len(address)
        return first_id

    def args_bytes(self, blob: bytes, length: NDArray[np.int32]) -> int:
        """Register JSON objects that follow each other in ``blob``; the id of the first."""
        start = np.zeros(len(length), np.int64)
        np.cumsum(length[:-1], out=start[1:])
        return self.args_at(start + self._spill.append(blob), length)

    def spill(self, blob: bytes) -> int:
        """Store bytes whose buffer will not last; their address, for :meth:`args_at`."""
        return self._spill.append(blob)

    def args_of(self, ids: NDArray[np.integer[Any]]) -> list[bytes]:
        """Registered JSON objects by their ids; ``b""`` for -1. They are read one by one."""
        self._address = [_joined(self._address, np.int64)]
        self._length = [_joined(self._length, np.int32)]
        columns = (self._address[0], self._length[0])
        address, length = (np.append(one, 0)[ids].tolist() for one in columns)  # -1: the last
        return list(map(self.stored, address, length))

    def stored(self, address: int, length: int) -> bytes:
        """The bytes at an address of :meth:`attach` or :meth:`spill`."""
        offset = address & OFFSET_MASK
        if address >> BLOB_BITS:
            return bytes(self._blobs[address >> BLOB_BITS][offset : offset + length])
        return self._spill.read(offset, length)

    def args(self, value: dict[str, Any] | bytes | None) -> int:
        """Register one JSON object; its id, or -1 for an empty one."""
        if not value:
            return -1
        raw = value if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False).encode()
        return self.args_bytes(raw, np.array([len(raw)], np.int32))

    # -- events ---------------------------------------------------------------------------

    def extend(
        self,
        *,
        track: ArrayLike,
        start_ns: I64,
        dur_ns: ArrayLike = 0,
        name: ArrayLike,
        kind: ArrayLike = Kind.SLICE,
        op: ArrayLike = OpClass.OTHER,
        graph: ArrayLike = -1,
        step: ArrayLike = -1,
        args: ArrayLike = -1,
    ) -> int:
        """Add many events. Columns as in :class:`EventTable`; scalars apply to all rows.

        Returns:
            The row of the first one, counted over all ``extend`` calls: what
            :meth:`flows` refers to. :meth:`finish` translates rows to the sorted table.
        """
        first_row = self._rows
        table = EventTable.filled(
            start_ns, dur_ns, track=track, name=name, kind=kind, op=op, graph=graph, step=step,
            args=args,
        )  # fmt: skip
        self._events.append(table)
        self._rows += len(table)
        return first_row

    def reclassify(self, which: Callable[[EventTable], Mask], op: OpClass) -> None:
        """Give another class to some of the rows added so far.

        Args:
            which: a mask of the rows of a table.
        """
        for i, table in enumerate(self._events):
            rows = which(table)
            if rows.any():
                self._events[i] = table.with_columns(op=np.where(rows, np.int8(op), table.op))

    def starts(self, which: Callable[[EventTable], Mask]) -> I64:
        """The starts of some of the rows added so far, ascending; see :meth:`reclassify`."""
        return np.unique(_joined([t.start_ns[which(t)] for t in self._events], np.int64))

    def slice(
        self, track: int, start_ns: int, dur_ns: int, name: str, *, kind: Kind = Kind.SLICE,
        op: OpClass = OpClass.OTHER, graph: int = -1, step: int = -1,
        args: dict[str, Any] | None = None,
    ) -> int:  # fmt: skip
        """Add one slice; its row. For small inputs."""
        self.seen("slice" if kind is Kind.SLICE else "instant")
        return self.extend(
            track=track, kind=kind, op=op, start_ns=np.array([start_ns], np.int64), dur_ns=dur_ns,
            name=self.string(name), graph=graph, step=step, args=self.args(args),
        )  # fmt: skip

    def instant(
        self, track: int, start_ns: int, name: str, *, op: OpClass = OpClass.OTHER,
        graph: int = -1, step: int = -1, args: dict[str, Any] | None = None,
    ) -> int:  # fmt: skip
        """Add one instant; its row. For small inputs."""
        return self.slice(
            track, start_ns, 0, name, kind=Kind.INSTANT, op=op, graph=graph, step=step, args=args
        )

    def counters(self, *, track: ArrayLike, start_ns: I64, value: ArrayLike) -> None:
        """Add many counter samples."""
        n = len(start_ns)
        tracks = np.full(n, track, np.int32) if np.ndim(track) == 0 else track
        values = np.full(n, value, np.float64) if np.ndim(value) == 0 else value
        self._counters.append(CounterTable(track=tracks, start_ns=start_ns, value=values))  # type: ignore[arg-type]

    def counter(self, track: int, start_ns: int, value: float) -> None:
        """Add one counter sample. For small inputs."""
        self.seen("counter")
        self.counters(track=track, start_ns=np.array([start_ns], np.int64), value=value)

    def flows(self, *, src: ArrayLike, dst: ArrayLike, name: ArrayLike) -> None:
        """Add flows between rows as returned by :meth:`extend`; ``name`` is a string id."""
        sources = np.asarray(src, np.int32)
        names = np.full(len(sources), name, np.int32) if np.ndim(name) == 0 else name
        self._flows.append(FlowTable(src=sources, dst=np.asarray(dst, np.int32), name=names))  # type: ignore[arg-type]

    def flow(self, src: int, dst: int, name: str) -> None:
        """Add one flow. For small inputs."""
        self.seen("flow")
        self.flows(src=[src], dst=[dst], name=self.string(name))

    def arrows(self, name: str, src: I64, dst: I64) -> None:
        """Count and add the flows whose ends are both known, not -1."""
        drawn = np.flatnonzero((src >= 0) & (dst >= 0))
        self.seen("flow", len(drawn))
        if len(drawn):
            self.flows(src=src[drawn], dst=dst[drawn], name=self.string(name))

    @property
    def rows(self) -> int:
        """Event rows added so far: the row the next :meth:`extend` will return."""
        return self._rows

    def span(self, first_row: int = 0, layers: Collection[Layer] = ()) -> tuple[int, int] | None:
        """Earliest start and latest end of the rows from ``first_row`` on, ns.

        Rows whose stamps are damaged do not count (:func:`traceconv.core.robust.usual_range`).

        Args:
            layers: only rows on tracks of these; empty for all.
        """
        selected = np.array([not layers or t.layer in layers for t in self._tracks], bool)
        starts, ends, row = [], [], 0
        for table in self._events:
            rows = selected[table.track]
            rows[: max(first_row - row, 0)] = False
            row += len(table)
            if rows.any():
                starts.append(table.start_ns[rows])
                ends.append(table.end_ns[rows])
        if not starts:
            return None
        low, high = (
            min(int(column.min()) for column in starts),
            max(int(column.max()) for column in ends),
        )
        if high - low <= FAR_NS:
            return low, high
        start_ns, end_ns = np.concatenate(starts), np.concatenate(ends)
        usual = usual_range(start_ns)
        near = ~(far_from(start_ns, usual) | far_from(end_ns, usual))
        return (int(start_ns[near].min()), int(end_ns[near].max())) if near.any() else (low, high)

    def window(self, start_ns: int, end_ns: int) -> None:
        """Say that the profiler was collecting from ``start_ns`` to ``end_ns``.

        Issues: malformed-record, if these are no times.
        """
        if not -INT64_MAX <= min(start_ns, end_ns) <= max(start_ns, end_ns) <= INT64_MAX:
            self.skip("malformed-record", f"recorded from {start_ns} to {end_ns} ns")
        elif end_ns > start_ns:
            self._windows.append((start_ns, end_ns))

    def side_table(
        self, name: str, file: str, load: Callable[[], Columns], issues: Issues | None = None
    ) -> SideTable:
        """Add a side table. ``load`` runs when the table is first read and may count what it
        finds under ``issues`` (see :class:`~traceconv.core.side_tables.SideTable`).
        """
        return self._side_tables.setdefault(name, SideTable(name, file, load, issues))

    # -- accounts -------------------------------------------------------------------------

    def seen(self, kind: str, count: int = 1) -> None:
        """Count ``count`` records of ``kind`` ("slice", "instant", "counter", "flow") as found.

        A begin/end pair is one slice; a counter event counts once per series; a flow counts
        once per head. The single-event methods count themselves.
        """
        assert kind in KINDS, kind
        self._seen[kind] += int(count)

    def skip(self, code: str, where: str = "", count: int = 1, kind: str | None = None) -> None:
        """Book ``count`` records under an issue code.

        Args:
            kind: what was lost, if the records had been counted as seen and are not kept;
                None for doubts about records that are kept, and for records of no kind.
        """
        self.issues.add(code, self.file, where, int(count))
        if kind is not None:
            assert kind in KINDS, kind
            self._lost[kind] += int(count)

    def lose(self, code: str, where: str = "", count: int = 1, kind: str = "slice") -> None:
        """Count records of ``kind`` that were found and are not kept, under an issue code."""
        self.seen(kind, count)
        self.skip(code, where, count, kind)

    def skip_keys(self, keys: Collection[str]) -> None:
        """Count keys of a file that are not used, and name them, with up to 1000 characters."""
        if keys:
            listed = f"keys {', '.join(sorted(keys))}"[:1000]
            self.skip("metadata-unused", listed, len(keys))

    def finish(self) -> Trace:
        """The trace: sorted, with tracks in screen order and the accounts closed.

        Raises:
            AssertionError: seen minus lost is not what was added (a fault of the reader).
        """
        args = Args(
            (self._spill.close(), *self._blobs[1:]),
            _joined(self._address, np.int64),
            _joined(self._length, np.int32),
        )
        self._address, self._length = [], []
        windows = np.array(self._windows, np.int64).reshape(-1, 2)
        trace = Trace(
            capture=self.capture,
            tracks=tuple(self._tracks),
            strings=self.strings,
            events=_drained(EventTable, self._events),
            counters=_drained(CounterTable, self._counters),
            flows=_drained(FlowTable, self._flows),
            args=args,
            issues=self.issues,
            windows=union(windows[:, 0], windows[:, 1]),
            hints=self.hints,
            notes=self.notes,
            side_tables=self._side_tables,
        )
        trace = self._believable(trace)
        self._book_backwards(trace)
        ledger = {}
        for kind, added in trace.counts().items():
            seen, lost = self._seen[kind], self._lost[kind]
            assert seen - lost == added, f"{kind}: saw {seen}, lost {lost}, kept {added}"
            if seen:
                ledger["read", kind] = seen
            if lost:
                ledger["lost", kind] = -lost
        trace.ledger.update(ledger)
        give_back()
        trace = arranged(trace, alone=True)
        give_back()
        return trace

    def _book_backwards(self, trace: Trace) -> None:
        """Book, once, the launches of work that began before them: the device's clock is ahead."""
        flows, events = trace.flows, trace.events
        layers = [track.layer for track in trace.tracks]
        host = np.array([layer in (Layer.HOST, Layer.RUNTIME) for layer in layers], bool)
        device = np.array([layer in (Layer.DEVICE, Layer.COMM) for layer in layers], bool)
        launch = host.take(events.track.take(flows.src)) & device.take(events.track.take(flows.dst))
        ahead = events.start_ns[flows.src[launch]] - events.start_ns[flows.dst[launch]]
        count, longest = int((ahead > 0).sum()), int(ahead.max(initial=0))
        where = f"by up to {longest} ns"
        self.issues.add("launch-backwards", self.capture.label, where, count)

    def _believable(self, trace: Trace) -> Trace:
        """The trace without rows whose stamps are beyond :data:`FARTHEST_NS`, which are counted."""
        events, samples = trace.events, trace.counters.start_ns
        longest = int(events.dur_ns.max(initial=0))
        if _within(events.start_ns, FARTHEST_NS - longest) and _within(samples, FARTHEST_NS):
            return trace
        near = _near(events.start_ns) & (events.dur_ns <= FARTHEST_NS)
        near &= ~near | _near(events.end_ns)
        believable = trace.keep("lost", near, _near(samples))
        for kind, count in trace.counts().items():
            if lost := count - believable.counts()[kind]:
                code = "flow-unbound" if kind == "flow" else "bad-time"
                self.skip(code, "more than 146 years from its clock's zero", lost, kind)
        return believable


def _within(ns: I64, farthest: int) -> bool:
    """Whether all of ``ns`` are at most ``farthest`` from 0; makes no new column."""
    return -farthest <= int(ns.min(initial=0)) and int(ns.max(initial=0)) <= farthest


def _near(ns: I64) -> NDArray[np.bool_]:
    return (ns >= -FARTHEST_NS) & (ns <= FARTHEST_NS)


def _joined(parts: list[Any], dtype: Any) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.empty(0, dtype)


def _drained(cls: Any, tables: list[Any]) -> Any:
    """One table of many, column by column, so that never two copies of all are alive."""
    if len(tables) == 1:
        return tables.pop()
    columns = {}
    for name, dtype in cls.COLUMNS.items():
        columns[name] = _joined([getattr(t, name) for t in tables], dtype)
        for table in tables:
            delattr(table, name)
        give_back()  # parts are too small for the system to take back one by one
    tables.clear()
    return cls(**columns)


class Spill:
    """Bytes that grow: in memory at first, in an unnamed temporary file when there are many."""

    def __init__(self) -> None:
        self._memory = bytearray()
        self._file: IO[bytes] | None = None
        self._size = 0

    def append(self, blob: bytes) -> int:
        """Add bytes; where they begin."""
        offset = self._size
        self._size += len(blob)
        if self._file is None and self._size > SPILL_AFTER:
            self._file = temporary_file()
            self._file.write(self._memory)
            self._memory = bytearray()
        if self._file is None:
            self._memory += blob
        else:
            self._file.write(blob)
        return offset

    def read(self, offset: int, length: int) -> bytes:
        """Bytes that were added."""
        if self._file is None:
            return bytes(self._memory[offset : offset + length])
        self._file.flush()
        self._file.seek(offset)
        try:
            return self._file.read(length)
        finally:
            self._file.seek(0, os.SEEK_END)

    def close(self) -> Any:
        """The bytes, as a buffer. Nothing can be added after it."""
        if self._file is None:
            return bytes(self._memory)
        with self._file:
            self._file.flush()
            return ReadMapping(self._file.fileno())

    def __del__(self) -> None:
        # a reader that raises never gets to close()
        if self._file is not None:
            self._file.close()
